"""`micro`: the embedded world; `micro build` makes its files anew."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from harness.cli.options import AllowFewerOption, JobsOption
from harness.cli.output import console, note, writing
from harness.errors import HarnessError
from harness.project import work_dir
from harness.selection.names import LARGEST_SEED, publishing, workers_of

if TYPE_CHECKING:
    from harness.runtime import Event
    from harness.worlds.embedded.files import Card

group = typer.Typer(
    help="The embedded world that the profile `micro` runs in.",
    no_args_is_help=True,
    rich_markup_mode=None,
)
app = typer.Typer(rich_markup_mode=None)
app.add_typer(group, name="micro")

OutputOption = Annotated[
    Path | None,
    typer.Option(
        "--output", metavar="DIR", help="Where to write.", show_default="`world` in the work folder"
    ),
]
SeedOption = Annotated[
    int, typer.Option("--seed", metavar="ID", min=0, max=LARGEST_SEED, help="Seed of it all.")
]


@group.callback()
def _group() -> None:
    """Group the verbs of the embedded world."""


@group.command("build", epilog="Example: harness micro build --output my-world")
def build(output: OutputOption = None, seed: SeedOption = 0) -> None:
    """Rebuild the world's files from its seed: prompts, benchmarks, base policy, reward model.

    Takes up to 90 minutes on 2 cores. The same processor and thread count give the same digests.
    The shipped world is left alone: set HARNESS_WORLD to the folder to run in the rebuilt one.
    """
    from harness.worlds.embedded.build import build as build_world

    given = work_dir() / "world" if output is None else output
    with writing("--output", given) as folder:
        folder.mkdir(parents=True, exist_ok=True)
    out = console()

    def say(line: str) -> None:
        out.print(line, soft_wrap=True)
        out.file.flush()

    card = build_world(folder, seed, say)
    say(f"The world {card.version} is in {folder}: {_compared(card)}.")


@group.command("over-optimise", epilog="Example: harness micro over-optimise")
def over_optimise(jobs: JobsOption = None, allow_fewer: AllowFewerOption = None) -> None:
    """Push one policy beyond what its reward model knows, and publish how it looks.

    RLOO without a KL penalty at a large learning rate; takes a few minutes.
    """
    from harness.report.over_optimisation import FOLDER, OVER_OPTIMISATION, Pushed
    from harness.runtime import Store
    from harness.trainer.over_optimise import push

    to = publishing(True, allow_fewer, [FOLDER], "micro")
    assert to is not None
    store = Store(work_dir() / "over-optimise" / "store")
    measured = Pushed.model_validate(push(store, workers_of(jobs), _say))
    fewer, place = bool(to.fewer), f"micro/{FOLDER}"
    folder = OVER_OPTIMISATION.publish(measured, place, to.results_dir, allow_fewer=fewer)
    note(f"published in {folder}")


def _say(event: Event) -> None:
    """Print a line for each stage that is done."""
    from harness.runtime import StageFinished

    if isinstance(event, StageFinished):
        console().print(f"{event.stage.label}: {event.wall_s:.1f} s", soft_wrap=True)


def _compared(card: Card) -> str:
    """Return how a rebuilt world differs from the one in use."""
    from harness.worlds.embedded import files

    try:
        known = files.card().assets
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
