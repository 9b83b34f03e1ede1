"""Distance between the wording of two sets of prompts.

A set of prompts is a bag of word bigrams (pairs of adjacent words within a prompt, split on
whitespace). Two sets are compared by the Jensen-Shannon distance between their relative bigram
frequencies, with base-2 logarithms: a metric from 0 (same frequencies) to 1 (no bigram in common).

Words may be masked before counting. In the embedded world a prompt is text around a list of single
characters; masking these compares the text rather than the lists.

Two finite sets from the same source have a nonzero distance, so compare a distance only with others
between sets of similar size.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping
from itertools import pairwise
from typing import TypeVar

import numpy as np

from harness.errors import HarnessError

Mask = Callable[[str], str]
Bigrams = Counter[tuple[str, str]]
Key = TypeVar("Key", bound=Hashable)


def bigrams(prompts: Iterable[str], mask: Mask) -> Bigrams:
    """Count the pairs of adjacent words over all prompts, each word as `mask` shows it."""
    counts: Bigrams = Counter()
    for prompt in prompts:
        counts.update(pairwise(map(mask, prompt.split())))
    return counts


def jensen_shannon(a: Mapping[Key, int], b: Mapping[Key, int]) -> float:
    """Return the Jensen-Shannon distance (base 2) between two bags, from 0 to 1.

    With p and q the relative frequencies and m = (p + q) / 2, it is the square root of
    KL(p, m) / 2 + KL(q, m) / 2.

    Source: Endres and Schindelin (2003), IEEE Transactions on Information Theory 49(7): the
    square root is a metric.
    """
    if not any(a.values()) or not any(b.values()):
        raise HarnessError(
            "A set of prompts has no two adjacent words, so it has no distance to another; "
            "compare sets of whole sentences."
        )
    keys = list(dict.fromkeys([*a, *b]))
    counts = np.array([[bag.get(key, 0) for key in keys] for bag in (a, b)], dtype=np.float64)
    share = counts / counts.sum(axis=1, keepdims=True)
    ratio = np.divide(share, share.mean(axis=0), out=np.ones_like(share), where=share > 0)
    divergence = float((share * np.log2(ratio)).sum()) / 2.0
    # Rounding can put equal bags slightly below 0 and disjoint ones slightly above 1.
    return float(np.sqrt(min(max(divergence, 0.0), 1.0)))
