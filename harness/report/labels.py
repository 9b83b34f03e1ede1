"""Labels as the paper prints them: a text whose indices are set low."""

from __future__ import annotations

import re
from dataclasses import dataclass

_INDEX = re.compile(r"_(?:\{([^{}]*)\}|([A-Za-z]+|\d+))")


@dataclass(frozen=True)
class Part:
    """A piece of a text, set low where it is an index, and as code where it is a name."""

    text: str
    low: bool = False
    code: bool = False


def label_parts(label: str) -> list[Part]:
    """Return a label as the paper prints it: `θ_{0→1}` and `A*_min` have an index.

    A word or a number after an underscore is an index only behind a star or a symbol of the
    paper's, so that names such as `ratio_evol` stay as they are.
    """
    parts: list[Part] = []
    end = 0
    for match in _INDEX.finditer(label):
        before = label[match.start() - 1 : match.start()]
        if match[1] is None and (before.isascii() and before != "*"):
            continue
        index = match[2] if match[1] is None else match[1]
        parts += [Part(label[end : match.start()]), Part(index, low=True)]
        end = match.end()
    parts.append(Part(label[end:]))
    return [part for part in parts if part.text]
