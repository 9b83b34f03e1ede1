"""Safe parsing of untrusted input from models, endpoints and users' files."""

from __future__ import annotations

import errno
import json
import re
import stat
from pathlib import Path
from typing import Any

READ_BY_LOADERS = (".json", ".safetensors", ".model", ".txt", ".jinja")
"""Suffixes of the files that determine a model: configuration, weights, tokenizer. None can run
code when loaded."""

_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]|[\ud800-\udfff]")


class ForeignTextError(ValueError):
    """Text that is not JSON, or JSON that cannot be accepted; with a short message."""


def read_json(text: str | bytes) -> Any:
    """Parse JSON into values that can be written again as UTF-8.

    Lone surrogates, as of half an emoji, become U+FFFD, and `NaN` becomes None.
    """
    try:
        if isinstance(text, bytes):
            text = text.decode("utf-8-sig")
        found = json.loads(text, parse_constant=lambda _: None)
        if _SURROGATE.search(text):
            found = json.loads(readable(json.dumps(found, ensure_ascii=False)))
    except json.JSONDecodeError as error:
        raise ForeignTextError(f"{error.msg} at character {error.pos}") from None
    except UnicodeDecodeError:
        raise ForeignTextError("it is not UTF-8") from None
    except (ValueError, RecursionError) as error:
        raise ForeignTextError(str(error)) from None
    return found


def read_plain(path: Path, most: int = -1) -> bytes:
    """Read a regular file, refusing pipes and devices, which might never end."""
    mode = path.stat().st_mode
    if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):
        raise OSError(errno.EINVAL, "not a regular file", str(path))
    with path.open("rb") as file:
        return file.read(most)


def printable(text: str) -> str:
    """Escape every character that a terminal could act on, except line breaks."""
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
    """Return an OS error's message without number and path, or another error's text."""
    return getattr(error, "strerror", None) or str(error)


def error_in_a_line(error: BaseException) -> str:
    """Return an exception's class and text as one line."""
    said = f"{type(error).__name__}: {error}".strip().removesuffix(":")
    return in_a_line(said.replace("\n", " "))


def readable(text: str) -> str:
    """Return text with lone surrogates replaced by U+FFFD."""
    if text.isascii():
        return text
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
