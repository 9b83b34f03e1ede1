"""Parsing and formatting of seeds, rows and formats."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Sequence
from enum import StrEnum
from numbers import Integral

from harness.errors import UserError
from harness.extensions import named_plugins
from harness.words import seeds_text

DEFAULT_PROFILE = "micro"
DEFAULT_SEEDS = "0-2"

MOST_SEEDS = 1000
"""Maximum seeds per command; more is a typo."""

LARGEST_SEED = 2**31 - 1

Seeds = str | int | Iterable[int] | None
"""A string such as `0-4`, numbers, or None for the default."""


class Format(StrEnum):
    """Output format of a report."""

    terminal = "terminal"
    markdown = "markdown"
    json = "json"
    html = "html"


def parse_seeds(text: str) -> tuple[int, ...]:
    """Parse a string such as `0`, `0,2` or `0-2,7` into seeds in ascending order."""
    given = f"`{text}`" if len(text) <= 80 else f"`{text[:80]}…`"
    seeds: set[int] = set()
    for part in text.split(","):
        match = re.fullmatch(r"0*(\d{1,12})(?:-0*(\d{1,12}))?", part.strip(), re.ASCII)
        if match is None:
            raise UserError(f"{given} is not a list of seeds; write ids as `0`, `0,2` or `0-4`")
        first, last = int(match[1]), int(match[2] or match[1])
        if max(first, last) > LARGEST_SEED:
            raise UserError(f"{given} goes beyond the largest seed, {LARGEST_SEED}")
        if last < first:
            raise UserError(f"{given} runs backwards; write `{last}-{first}`")
        named = set(range(first, min(last, first + MOST_SEEDS) + 1))
        if len(seeds | named) > MOST_SEEDS:
            raise UserError(f"{given} names more than {MOST_SEEDS} seeds; ask for fewer")
        if seeds & named:
            raise UserError(f"{given} names seed {min(seeds & named)} twice; name it once")
        seeds |= named
    return tuple(sorted(seeds))


def seeds_of(seeds: str | int | Iterable[int]) -> tuple[int, ...]:
    """Return seeds in ascending order, given a string or numbers."""
    if isinstance(seeds, str):
        return parse_seeds(seeds)
    numbers = [seeds] if isinstance(seeds, int | Integral) else list(seeds)
    if not numbers:
        raise UserError("no seed is given; ask for at least one, for example 0")
    return parse_seeds(",".join(map(str, numbers)))


def parse_names(given: str | Iterable[object] | None) -> tuple[str, ...] | None:
    """Return names, given separated by commas or one by one; None stays None."""
    if given is None:
        return None
    text = given if isinstance(given, str) else ",".join(map(str, given))
    names = tuple(name.strip() for name in text.split(","))
    if not all(names):
        raise UserError(f"`{text}` has an empty name; write names as `a,b`")
    twice = [name for name in names if names.count(name) > 1]
    if twice:
        raise UserError(f"`{text}` names `{twice[0]}` twice; name it once")
    return names


def check_jobs(jobs: int | None) -> None:
    """Check a number of processes, for `--jobs`."""
    if jobs is not None and not 1 <= jobs <= 1024:  # more is a typo
        raise UserError(f"jobs is {jobs}: give the number of processes, from 1 to 1024")


def again(name: str, profile: str, seeds: Sequence[int] = (), rows: Sequence[str] = ()) -> str:
    """Return the command-line arguments that repeat a request, without defaults."""
    words = [name]
    words += [] if profile == DEFAULT_PROFILE else ["--profile", profile]
    words += ["--rows", ",".join(rows)] if rows else []
    text = seeds_text(seeds) if seeds else DEFAULT_SEEDS
    words += [] if text == DEFAULT_SEEDS else ["--seeds", text]
    for plugin in named_plugins():
        words += ["--plugin", plugin]
    return shlex.join(words)
