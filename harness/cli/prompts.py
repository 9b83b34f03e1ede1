"""`prompts`: how large a pool of human prompts is, and what it repeats."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from harness.cli.options import JsonOption, ProfileOption
from harness.cli.output import console, grid, print_json
from harness.errors import UserError
from harness.selection.names import parse_names
from harness.words import counted

if TYPE_CHECKING:
    from harness.registry.profile import Profile

SourceOption = Annotated[
    Path | None,
    typer.Option("--source", metavar="PATH", help="A file or data set in place of the profile's."),
]
SplitsOption = Annotated[
    str | None, typer.Option("--splits", metavar="A,B", help="Splits of a data set's folder.")
]
AgainstOption = Annotated[
    list[str] | None,
    typer.Option(
        "--against", metavar="NAME=FILE", help="Questions of a benchmark; may be repeated."
    ),
]

app = typer.Typer(rich_markup_mode=None)


@app.command(
    "prompts",
    epilog="Example: harness prompts --source prompts.jsonl --against mt_bench=question.jsonl",
)
def prompts(
    profile: ProfileOption = "paper",
    source: SourceOption = None,
    splits: SplitsOption = None,
    against: AgainstOption = None,
    as_json: JsonOption = False,
) -> None:
    """Count human prompts, those that repeat another, and those that overlap a benchmark.

    Two prompts repeat each other where their words are equal; a prompt overlaps a question with
    which it shares 13 words in a row. Nothing is removed.
    """
    from dataclasses import asdict

    from harness.registry.declared import named_profile
    from harness.worlds.lookup import world_of
    from harness.worlds.real.prompts import duplicates, overlaps, read_local, read_questions

    chosen = named_profile(profile)
    questions = {name: read_questions(path) for name, path in _files(against or [])}
    if source is not None:
        pool, named = read_local(source, parse_names("--splits", splits) or ()), str(source)
    else:
        pool, named = world_of(chosen).prompt_pool()
    sizes, problem = _pieces(len(pool), chosen)
    found: dict[str, Any] = {
        "source": named,
        "profile": chosen.name,
        "pieces": sizes,
        "problem": problem,
        **asdict(duplicates(pool)),
        "overlap": {name: asdict(o) for name, o in overlaps(pool, questions).items()},
    }
    print_json(found) if as_json else _print(found)


def _files(against: list[str]) -> list[tuple[str, Path]]:

    pairs = [text.partition("=") for text in against]
    for name, _, path in pairs:
        if not name or not path:
            raise UserError(f"`--against {name}` names no file; write NAME=FILE")
    if len({name for name, _, _ in pairs}) < len(pairs):
        raise UserError("`--against` has one name twice; give each benchmark its own")
    return [(name, Path(path)) for name, _, path in pairs]


def _pieces(size: int, profile: Profile) -> tuple[list[int], str | None]:
    """Return the sizes of a profile's pieces, and what is wrong if there are none."""
    from harness.worlds.real.prompts import piece_bounds

    try:
        bounds = piece_bounds(size, profile.x, profile.prompts.available)
    except UserError as error:
        return [], str(error)
    return [after - before for before, after in pairwise(bounds)], None


def _print(found: dict[str, Any]) -> None:

    out = console()
    out.print(f"{found['source']}: {counted(found['prompts'], 'prompt')}")
    if found["pieces"]:
        least, most = min(found["pieces"]), max(found["pieces"])
        of = str(least) if least == most else f"{least} to {most}"
        out.print(f"{len(found['pieces'])} pieces of {of} for the profile {found['profile']}")
    else:
        out.print(f"Not for the profile {found['profile']}: {found['problem']}")
    out.print(
        f"{found['same_text']} have the text of an earlier one, {found['same_words']} its words"
    )
    if found["overlap"]:
        rows = [
            (name, *(str(o[key]) for key in ("questions", "questions_met", "whole", "in_part")))
            for name, o in found["overlap"].items()
        ]
        headings = ("benchmark", "questions", "of them met", "prompts whole", "prompts in part")
        out.print()
        out.print(grid(headings, rows, right="1234"))
