"""Text on the page: sentences with names in them, and what a model wrote, made harmless.

Whatever is shown goes through the template's escaping. Here it is made legible first: control and
direction characters, which could hide or turn around what stands beside them, become visible, and
a very long text is cut with the number of characters left out.
"""

from __future__ import annotations

import re

from harness.report.view import Part

LONGEST = 2000
"""Characters of a model's text that are shown."""

_BREAKS = ("\n", "\t")


def ticked_parts(text: str) -> list[Part]:
    """Return a sentence whose names stand between backticks as pieces without them."""
    pieces = re.split(r"`([^`]*)`", text)
    return [Part(piece, code=i % 2 == 1) for i, piece in enumerate(pieces) if piece]


def visible(text: str, longest: int = LONGEST) -> str:
    """Return a model's text with what cannot be seen made visible.

    Line breaks and tabs stay. Other characters without a shape of their own, among them those
    that change the direction of writing, become U+FFFD.
    """
    shown = "".join(c if c.isprintable() or c in _BREAKS else "\ufffd" for c in text[:longest])
    rest = len(text) - longest
    return f"{shown} … ({rest:,} characters more)" if rest > 0 else shown
