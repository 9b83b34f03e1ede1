"""Safe parsing of untrusted input from models, endpoints and users' files.

Python's JSON parser accepts values that later cannot be written, sent or counted: lone surrogates,
nesting too deep to serialize, integers of thousands of digits. All text that this project did not
write is read here, which yields storable values or a single kind of error.
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
"""Maximum nesting depth; no format read here has ten levels."""

MOST_DIGITS = 300
"""Maximum digits of an integer, so that it fits in a float."""

READ_BY_LOADERS = (".json", ".safetensors", ".model", ".txt", ".jinja")
"""Suffixes of the files that determine a model: configuration, weights, tokenizer. None can run
code when loaded."""

_LONG_INTEGER = re.compile(rf"[0-9]{{{MOST_DIGITS + 1}}}")
_HALVES = range(0xD800, 0xE000)


class ForeignTextError(ValueError):
    """Text that is not JSON, or JSON that cannot be accepted; with a short message."""


def read_json(text: str | bytes) -> Any:
    """Parse JSON into values that can be written again as UTF-8.

    Lone surrogates become U+FFFD, the replacement character. Numbers that do not fit a finite float
    (`1e999`, `NaN`, integers of hundreds of digits) become None.

    Raises:
        ForeignTextError: The text is not JSON, or is nested too deeply.
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
    """Read a regular file, refusing pipes and devices, which might never end.

    Args:
        path: The file, or a link to it.
        most: Maximum bytes to read; -1 for all.

    Raises:
        OSError: It cannot be read, or is not a regular file.
    """
    mode = path.stat().st_mode
    if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):
        raise OSError(errno.EINVAL, "it is no plain file", str(path))
    with path.open("rb") as file:
        return file.read(most)


def printable(text: str) -> str:
    """Return text with all characters escaped that a terminal could obey, but for line breaks."""
    if text.isprintable():
        return text
    return "\n".join(
        "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in line)
        for line in text.split("\n")
    )


def in_a_line(text: str, longest: int = 500) -> str:
    """Return text as one printable line, truncated to `longest` characters."""
    shown = printable(text).replace("\n", "\\n")
    return shown if len(shown) <= longest else f"{shown[:longest]}…"


def reason_of(error: Exception) -> str:
    """Return the system's words for an error, without number and path, else the error's text."""
    return getattr(error, "strerror", None) or str(error)


def error_in_a_line(error: BaseException) -> str:
    """Return an exception's class and text as one line; third-party code may raise anything."""
    try:
        text = str(error)
    except BaseException:  # noqa: BLE001 (its `__str__` is third-party code too)
        text = ""
    said = f"{type(error).__name__}: {text}".strip().removesuffix(":")
    return in_a_line(said.replace("\n", " "))


def readable(text: str) -> str:
    """Return text with lone surrogates replaced by U+FFFD."""
    if text.isascii() or not any(ord(character) in _HALVES for character in text):
        return text
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _integer(digits: str) -> int | None:
    return int(digits) if len(digits) <= MOST_DIGITS else None


def _taken_up(value: Any) -> Any:
    """Return a value with only encodable strings and finite numbers.

    It is modified in place, level by level, for speed: a store's manifests have 10,000 values.
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
