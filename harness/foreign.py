"""What comes from outside: what a model, an endpoint or somebody's file says, read without trust.

Python's own reader of JSON returns what can then not be written, sent or counted: a text with half
a surrogate pair, nesting too deep to be written, an integer of thousands of digits. Whoever reads
text that this project did not write reads it here, and gets values that can be kept, or one error.
"""

from __future__ import annotations

import errno
import json
import math
import re
import stat
from pathlib import Path
from typing import Any

MOST_DEPTH = 100
"""Lists and objects within each other, at most; no format that is read here has ten."""

MOST_DIGITS = 300
"""Digits of an integer, at most: a float holds it then."""

READ_BY_LOADERS = (".json", ".safetensors", ".model", ".txt", ".jinja")
"""Endings of the files that decide what a model computes: configuration, weights, tokenizer. None
could run code when it is read."""

_LONG_INTEGER = re.compile(rf"[0-9]{{{MOST_DIGITS + 1}}}")
_HALVES = range(0xD800, 0xE000)


class ForeignTextError(ValueError):
    """A text that is no JSON, or none that can be taken up; the message is a few words."""


def read_json(text: str | bytes) -> Any:
    """Read JSON into values that can be written again as UTF-8.

    Halves of surrogate pairs become U+FFFD, the sign for a character that cannot be shown. A number
    that no float holds (`1e999`, `NaN`, integers of hundreds of digits) is null: it counts nothing.

    Raises:
        ForeignTextError: It is no JSON, or nested too deeply.
    """
    try:
        if isinstance(text, bytes):
            text = text.decode(json.detect_encoding(text))
        found = json.loads(text, parse_int=_integer if _LONG_INTEGER.search(text) else None)
    except json.JSONDecodeError as error:
        raise ForeignTextError(f"{error.msg} at character {error.pos}") from None
    except UnicodeDecodeError:
        raise ForeignTextError("it is not UTF-8") from None
    except RecursionError:
        raise ForeignTextError(f"nested more than {MOST_DEPTH} deep") from None
    return _taken_up(found)


def read_plain(path: Path, most: int = -1) -> bytes:
    """Return what a plain file holds; a pipe may never end and a device never does.

    Args:
        path: The file, or a link to it.
        most: Bytes that are read at most; -1 for all.

    Raises:
        OSError: It cannot be read, or is no plain file.
    """
    mode = path.stat().st_mode
    if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):
        raise OSError(errno.EINVAL, "it is no plain file", str(path))
    with path.open("rb") as file:
        return file.read(most)


def in_a_line(text: str, longest: int = 500) -> str:
    """Return a text as one line of a message, cut where it is longer than so many characters."""
    shown = text
    if not text.isprintable():
        shown = "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
    return shown if len(shown) <= longest else f"{shown[:longest]}…"


def error_in_a_line(error: BaseException) -> str:
    """Return an exception's class and text as one line; code of others may raise anything."""
    try:
        text = str(error)
    except BaseException:  # noqa: BLE001 (its text is code of others too)
        text = ""
    said = f"{type(error).__name__}: {text}".strip().removesuffix(":")
    return in_a_line(said.replace("\n", " "))


def readable(text: str) -> str:
    """Return a text with U+FFFD for every half of a surrogate pair that lacks the other."""
    if text.isascii() or not any(ord(character) in _HALVES for character in text):
        return text
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _integer(digits: str) -> int | None:
    return int(digits) if len(digits) <= MOST_DIGITS else None


def _taken_up(value: Any) -> Any:
    """Return a value in which every text can be encoded and every number is one.

    It is changed in place, level by level: a store's manifests have ten thousand values.
    """
    whole = [value]
    level: list[Any] = [whole]
    for _ in range(MOST_DEPTH + 1):
        below: list[Any] = []
        for box in level:
            for name, item in list(enumerate(box) if isinstance(box, list) else box.items()):
                if isinstance(item, str):
                    box[name] = item if item.isascii() else readable(item)
                elif isinstance(item, float):
                    box[name] = item if math.isfinite(item) else None
                elif isinstance(item, list | dict):
                    below.append(item)
            if isinstance(box, dict) and not all(map(str.isascii, box)):
                named = {readable(name): item for name, item in box.items()}
                box.clear()
                box.update(named)
        if not below:
            return whole[0]
        level = below
    raise ForeignTextError(f"nested more than {MOST_DEPTH} deep")
