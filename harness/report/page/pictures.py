"""Pictures on the page: as data within it, in as few characters as show the same.

A drawing goes in as an image, where nothing that it holds can run. Matplotlib writes six decimals
of a point and every style in full; a hundredth of a point cannot be seen. Drawings that are
published stay as they are: only what the page holds of them is shortened.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Self

from harness.report.plots import Picture

if TYPE_CHECKING:
    from markupsafe import Markup

_COMMENT = re.compile(r"<!--.*?-->|<metadata>.*?</metadata>|<\?xml.*?\?>|<!DOCTYPE.*?>", re.DOTALL)
_PATH = re.compile(r'\bd="([^"]*)"')
_PLACE = re.compile(r'\b(x|y|width|height|cx|cy|r|x1|x2|y1|y2)="(-?\d+\.\d+)"')
_MOVE = re.compile(r"translate\(([^)]*)\)")
_LINE = re.compile(r"M -?[\d.]+ -?[\d.]+( L -?[\d.]+ -?[\d.]+)+ ?")
_COMMAND = re.compile(r" ?([A-Za-z]) ?")
_NUMBER = re.compile(r"-?\d+\.\d+")
_BETWEEN = re.compile(r">\s+<")
_STYLE = re.compile(r'style="([^"]*)"')
_ID = re.compile(r' id="([^"]*)"')
_USED = re.compile(r'(?:xlink:)?href="#([^"]*)"|url\(#([^)]*)\)')

REPEATED = 3
"""Times a style is used that is worth a class."""

LONG = 300
"""Characters of a path that is a line through many points."""

_IN_ADDRESS = {"%": "%25", "#": "%23", '"': "'", "\n": " "}
"""What cannot stand in the address of an image within an attribute."""


@dataclass(frozen=True)
class Shown:
    """A picture on the page."""

    picture: Picture
    svg: bytes
    origin: str

    @classmethod
    def drawn(cls, picture: Picture, origin: str) -> Self:
        """Return a picture, drawn now."""
        return cls(picture, picture.svg(), origin)

    @property
    def data(self) -> Markup:
        """The picture as an address that holds it, written for an attribute between `"`.

        Only what could end the attribute or the address is escaped: angle brackets need not be.
        """
        from markupsafe import Markup

        text = compact(self.svg.decode("utf-8")).replace("'", "&apos;")
        for character, written in _IN_ADDRESS.items():
            text = text.replace(character, written)
        text = text.replace("&", "&amp;")
        return Markup(f"data:image/svg+xml,{text}")


def compact(svg: str) -> str:
    """Return a drawing that looks the same with fewer characters."""
    text = _COMMENT.sub("", svg).strip()
    text = _PATH.sub(lambda found: f'd="{_shorter(found[1])}"', text)
    text = _PLACE.sub(lambda found: f'{found[1]}="{_round(found[2])}"', text)
    text = _MOVE.sub(lambda found: f"translate({_shorter(found[1])})", text)
    text = _STYLE.sub(lambda found: f'style="{_tight(found[1])}"', text)
    return _BETWEEN.sub("><", _classed(_renamed(text)))


def _classed(text: str) -> str:
    """Return a drawing whose repeated styles are written once, as classes."""
    times = Counter(found[1] for found in _STYLE.finditer(text))
    repeated = (style for style, number in times.items() if number >= REPEATED)
    names = {style: f"s{number:x}" for number, style in enumerate(repeated)}
    if not names:
        return text
    rules = "".join(f".{name}{{{style}}}" for style, name in names.items())
    text = _STYLE.sub(
        lambda found: f'class="{names[found[1]]}"' if found[1] in names else found[0], text
    )
    end = text.index(">") + 1
    return f"{text[:end]}<style>{rules}</style>{text[end:]}"


def _renamed(text: str) -> str:
    """Return a drawing whose parts are named only where they are drawn again, and by a number."""
    used = {found[1] or found[2]: "" for found in _USED.finditer(text)}
    names = {name: f"i{number:x}" for number, name in enumerate(used)}
    text = _ID.sub(lambda found: f' id="{names[found[1]]}"' if found[1] in names else "", text)
    return _USED.sub(
        lambda found: f'href="#{names[found[1]]}"' if found[1] else f"url(#{names[found[2]]})", text
    )


def _shorter(numbers: str) -> str:
    """Return the commands of a path with fewer decimals and blanks."""
    # Of a long line a tenth of a point is too little to be seen; marks are small and drawn large.
    decimals = 1 if len(numbers) > LONG else 2
    if len(numbers) > LONG and (points := _LINE.fullmatch(" ".join(numbers.split()))):
        return _relative(points[0])
    rounded = _NUMBER.sub(lambda found: _round(found[0], decimals), " ".join(numbers.split()))
    return _COMMAND.sub(r"\1", rounded)


def _relative(line: str) -> str:
    """Return a line through many points as steps in tenths of a point; errors do not add up."""
    tenths = [round(10 * float(number)) for number in re.findall(r"-?[\d.]+", line)]
    places = list(zip(tenths[::2], tenths[1::2], strict=True))
    steps = [
        _tenth(b - a) for one, other in pairwise(places) for a, b in zip(one, other, strict=True)
    ]
    begin = f"M{_tenth(places[0][0])} {_tenth(places[0][1])}"
    return f"{begin}l{' '.join(steps).replace(' -', '-')}"


def _tenth(number: int) -> str:
    return f"{number / 10:g}".replace("0.", ".", 1) if abs(number) < 10 else f"{number / 10:g}"


def _round(number: str, decimals: int = 2) -> str:
    return f"{float(number):.{decimals}f}".rstrip("0").rstrip(".")


def _tight(style: str) -> str:
    return style.replace(": ", ":").replace("; ", ";")
