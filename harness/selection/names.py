"""Seeds, rows and formats as text, turned into values and back."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from enum import StrEnum

from harness.errors import UserError

DEFAULT_PROFILE = "micro"
DEFAULT_SEEDS = "0-2"

MOST_SEEDS = 1000
"""Most seeds in one command; more is a slip of the finger."""

LARGEST_SEED = 2**31 - 1


class Format(StrEnum):
    """How a report is written."""

    terminal = "terminal"
    markdown = "markdown"
    json = "json"
    csv = "csv"
    latex = "latex"
    html = "html"


def parse_seeds(text: str) -> tuple[int, ...]:
    """Return the seeds a text names, in ascending order.

    Args:
        text: Ids and ranges, separated by commas: `0`, `0,2`, `0-4`, `0-2,7`.

    Raises:
        UserError: The text is not that, names a seed twice, or names too many.
    """
    seeds: list[int] = []
    for part in text.split(","):
        match = re.fullmatch(r"(\d+)(?:-(\d+))?", part.strip(), re.ASCII)
        if match is None:
            raise UserError(
                f"`--seeds {text}` is not a list of seeds; write ids as `0`, `0,2` or `0-4`"
            )
        first, last = int(match[1]), int(match[2] or match[1])
        if last < first:
            raise UserError(f"`--seeds {text}` runs backwards; write `{last}-{first}`")
        if last > LARGEST_SEED:
            raise UserError(f"`--seeds {text}` goes beyond the largest seed, {LARGEST_SEED}")
        if last - first >= MOST_SEEDS:
            raise UserError(f"`--seeds {text}` names more than {MOST_SEEDS} seeds; ask for fewer")
        seeds += range(first, last + 1)
    twice = sorted({seed for seed in seeds if seeds.count(seed) > 1})
    if twice:
        raise UserError(f"`--seeds {text}` names seed {twice[0]} twice; name it once")
    return tuple(sorted(seeds))


def seeds_of(seeds: str | Iterable[int]) -> tuple[int, ...]:
    """Return seeds in ascending order, given as a text or as numbers.

    Raises:
        UserError: As `parse_seeds`, or there is none.
    """
    if isinstance(seeds, str):
        return parse_seeds(seeds)
    if isinstance(seeds, int):
        seeds = (seeds,)
    numbers = [str(seed) for seed in seeds]
    if not numbers:
        raise UserError("no seed is given; ask for at least one, for example `--seeds 0-2`")
    return parse_seeds(",".join(numbers))


def parse_names(option: str, text: str | None) -> tuple[str, ...] | None:
    """Return the names in a text, separated by commas; None where there is no text.

    Raises:
        UserError: A name is empty or stands there twice.
    """
    if text is None:
        return None
    names = tuple(name.strip() for name in text.split(","))
    if not all(names):
        raise UserError(f"`{option} {text}` has an empty name; write names as `a,b`")
    twice = [name for name in names if names.count(name) > 1]
    if twice:
        raise UserError(f"`{option} {text}` names `{twice[0]}` twice; name it once")
    return names


def again(name: str, profile: str, seeds: Sequence[int] = (), rows: Sequence[str] = ()) -> str:
    """Return what stands behind a verb to ask for the same once more, without what is the default.

    Args:
        name: The table, figure or group.
        profile: What `--profile` takes.
        seeds: Distinct ascending seeds; none where the verb knows those last asked for.
        rows: Ids of rows; none where all are asked for.
    """
    from harness.report.view import seeds_text

    words = [name]
    words += [] if profile == DEFAULT_PROFILE else ["--profile", profile]
    words += ["--rows", ",".join(rows)] if rows else []
    text = seeds_text(seeds) if seeds else DEFAULT_SEEDS
    return " ".join(words + ([] if text == DEFAULT_SEEDS else ["--seeds", text]))
