"""`micro`: the embedded world; `micro build` makes its files anew."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from harness.micro.world import Card

app = typer.Typer(
    help="The embedded world that the profile `micro` runs in.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

OutputOption = Annotated[
    Path | None,
    typer.Option(
        "--output", metavar="DIR", help="Where to write.", show_default="`world` in the work folder"
    ),
]
SeedOption = Annotated[int, typer.Option("--seed", metavar="ID", min=0, help="Seed of it all.")]


@app.callback()
def _group() -> None:
    """Keep `build` a verb of its own, though it is the only one."""


@app.command("build", epilog="Example: harness micro build --output my-world")
def build(output: OutputOption = None, seed: SeedOption = 0) -> None:
    """Rebuild the world's files from its seed: prompts, benchmarks, base policy, reward model.

    Takes up to 90 minutes on 2 cores. The same processor and thread count give the same digests.
    The shipped world is left alone: set HARNESS_WORLD to the folder to run in the rebuilt one.
    """
    from harness.cli.output import console
    from harness.micro.build import build as build_world
    from harness.project import work_dir

    folder = (work_dir() / "world" if output is None else output).resolve()
    out = console()

    def say(line: str) -> None:
        out.print(line, soft_wrap=True)
        out.file.flush()

    card = build_world(folder, seed, say)
    say(f"The world {card.version} is in {folder}: {_compared(card)}.")


def _compared(card: Card) -> str:
    """Return how a rebuilt world differs from the one in use."""
    from harness.errors import HarnessError
    from harness.micro import world

    try:
        known = world.card().assets
    except HarnessError:
        return "there is no other to compare it with"
    differing = [
        name
        for name, asset in card.assets.items()
        if asset["sha256"] != known.get(name, {}).get("sha256")
    ]
    if not differing:
        return "every file has the digest of the world in use"
    return f"{', '.join(differing)} differ from the world in use"
