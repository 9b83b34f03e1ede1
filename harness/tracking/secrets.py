"""Tracking URIs as they may be shown: without the user, the password and the query in them."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from urllib.parse import unquote

_IN_ENVIRONMENT = ("MLFLOW_TRACKING_PASSWORD", "MLFLOW_TRACKING_TOKEN")
_HIDDEN = "***"
_SHORT = 4
"""Secrets of fewer letters than this are replaced as whole words only, or nothing is readable."""


def shown(uri: str) -> str:
    """Return a URI without what may be a secret in it."""
    return without_secrets(uri, uri)


def without_secrets(text: str, uri: str) -> str:
    """Return a text without what may be a secret of a URI, whole, in parts and decoded.

    Args:
        text: What a library says about it, for example.
        uri: The URI. What the environment gives MLflow to log in with is a secret as well.
    """
    for secret in sorted(set(_secrets(uri)), key=len, reverse=True):
        word = re.escape(secret)
        text = re.sub(word if len(secret) >= _SHORT else rf"(?<!\w){word}(?!\w)", _HIDDEN, text)
    return text


def _secrets(uri: str) -> Iterator[str]:
    """Yield what must not be shown; too much rather than too little where a URI is malformed."""
    scheme = re.match(r"[^/?#:]+:(//(?!/))?", uri)
    if scheme is None:
        return  # a path
    rest = uri[scheme.end() :]
    user, at, place = rest.rpartition("@") if scheme[1] else ("", "", rest)
    found = [user, user.partition(":")[2]] if at else []
    query = re.split(r"[?#]", place, maxsplit=1)[1:]
    for part in query:
        values = [pair.partition("=")[2] for pair in re.split(r"[&;#]", part)]
        found += [part, *values]
    found += [os.environ.get(name, "") for name in _IN_ENVIRONMENT]
    for secret in filter(None, found):
        yield secret
        yield unquote(secret)
