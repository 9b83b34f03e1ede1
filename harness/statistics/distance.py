"""How far apart two sets of prompts are: one stated distance between their wordings.

A set of prompts is taken as a bag of word bigrams (each pair of neighbouring words of a prompt,
split at white space), and two sets are compared by the Jensen-Shannon distance between the
relative frequencies of their bigrams, with logarithms to base 2. It is a metric between 0 (the
same frequencies) and 1 (no bigram in common).

Words may be masked before they are counted. In the embedded world a prompt is a wording around a
list of single characters, and masking them compares the wordings rather than the lists.

Two finite sets drawn from one source are a little apart: a distance says something beside another
one between sets of about the same size.
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

ITEM = "#"
"""What stands for every masked item."""


def mask_items(word: str) -> str:
    """Return `#` for a word of one letter or digit, any other word as it is."""
    return ITEM if len(word) == 1 and word.isalnum() else word


def bigrams(prompts: Iterable[str], mask: Mask = mask_items) -> Bigrams:
    """Count the pairs of neighbouring words in some prompts, over all prompts together."""
    counts: Bigrams = Counter()
    for prompt in prompts:
        counts.update(pairwise(map(mask, prompt.split())))
    return counts


def jensen_shannon(a: Mapping[Key, int], b: Mapping[Key, int]) -> float:
    """Return the Jensen-Shannon distance (base 2) between two bags, from 0 to 1.

    With p and q the relative frequencies and m = (p + q) / 2, it is the square root of
    KL(p, m) / 2 + KL(q, m) / 2.

    Raises:
        HarnessError: A bag is empty.

    Source: Endres and Schindelin (2003), IEEE Transactions on Information Theory 49(7): the
    square root is a metric.
    """
    if not any(a.values()) or not any(b.values()):
        raise HarnessError(
            "A set of prompts has no two neighbouring words, so it has no distance to another; "
            "compare sets of whole sentences."
        )
    keys = list(dict.fromkeys([*a, *b]))
    counts = np.array([[bag.get(key, 0) for key in keys] for bag in (a, b)], dtype=np.float64)
    share = counts / counts.sum(axis=1, keepdims=True)
    ratio = np.divide(share, share.mean(axis=0), out=np.ones_like(share), where=share > 0)
    divergence = float((share * np.log2(ratio)).sum()) / 2.0
    # Rounding can leave equal bags a hair below zero and disjoint ones a hair above one.
    return float(np.sqrt(min(max(divergence, 0.0), 1.0)))
