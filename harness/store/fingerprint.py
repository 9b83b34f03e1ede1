"""Fingerprints: the address of a value is the sha256 of its canonical JSON.

Canonical JSON has sorted keys, no white space, ASCII only, and floats as `repr` writes them. Only
the exact types None, bool, int, float, str, list and dict (with str keys) may appear: a subclass
(a numpy float, an enum) or any other object could be written differently by another version of
its library, and then the same settings would have two addresses. `1` and `1.0` are different
values, and so are `0.0` and `-0.0`; NaN and the infinities are refused.
"""

from __future__ import annotations

import hashlib
import json
import math
from typing import TypeAlias

from harness.errors import HarnessError

Json: TypeAlias = "bool | int | float | str | list[Json] | dict[str, Json] | None"


class FingerprintError(HarnessError):
    """A value that has no deterministic JSON form."""


def canonical_json(value: object, where: str = "value") -> str:
    """Return the one JSON text of a value.

    Args:
        value: What to write: None, bool, int, float, str, lists and dicts of these.
        where: What to call the value in an error, for example `settings`.

    Raises:
        FingerprintError: The value holds something else; the message names the key path.
    """
    _check(value, where)
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)


def digest(text: str) -> str:
    """Return the sha256 of a text as 64 hexadecimal digits."""
    return hashlib.sha256(text.encode("ascii")).hexdigest()


def _check(value: object, where: str) -> None:
    """Refuse what JSON cannot write in exactly one way, naming its key path."""
    kind = type(value)
    if value is None or kind is bool or kind is int or kind is str:
        return
    if isinstance(value, float) and kind is float:
        if not math.isfinite(value):
            raise FingerprintError(f"{where} is {value!r}: a setting must be a finite number")
    elif isinstance(value, list) and kind is list:
        for position, item in enumerate(value):
            _check(item, f"{where}[{position}]")
    elif isinstance(value, dict) and kind is dict:
        for key, item in value.items():
            if type(key) is not str:
                raise FingerprintError(f"{where} has the key {key!r}: a key must be plain text")
            _check(item, f"{where}.{key}")
    else:
        raise FingerprintError(
            f"{where} is a {kind.__module__}.{kind.__qualname__}: a setting must be made of plain "
            "null, bool, int, float, str, list and dict values"
        )
