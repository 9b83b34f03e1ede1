"""`micro`: the embedded world; `micro build` makes its files anew."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from harness.cli.options import AllowFewerOption, JobsOption
from harness.cli.output import console, note, writing
from harness.errors import HarnessError, UserError
from harness.project import PACKAGE, SHIPPED, work_dir
from harness.selection.names import LARGEST_SEED, publishing, workers_of

if TYPE_CHECKING:
    from harness.runtime import Event, Store
    from harness.trainer.acceptance import Point
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


def _recordable(write: bool) -> bool:
    """Let figures be recorded, unless the card is of an installed package (before measuring).

    Raises:
        UserError: It is.
    """
    from harness.worlds.embedded import files

    if write and files.folder().is_relative_to(PACKAGE) and SHIPPED.exists():
        raise UserError(
            "--write would change the world that came with the installed package; name a world "
            "of your own in HARNESS_WORLD"
        )
    return write


WriteOption = Annotated[
    bool,
    typer.Option(
        "--write",
        help="Record the figures in the card of the world in use.",
        callback=_recordable,
    ),
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


@group.command("gates", epilog="Example: harness micro gates")
def gates(jobs: JobsOption = None, write: WriteOption = False) -> None:
    """Measure the gates that decide the world: validation prompts, base policy, first iteration.

    Takes a few minutes; exit code 1 if a gate is not passed.
    """
    from harness.trainer.acceptance import measure
    from harness.worlds.embedded.files import note_measured

    out = console()
    measured = measure(*_gate_work(jobs), _say)
    for name, value in measured.as_json().items():
        out.print(f"{name}: {value}")
    if write:
        note_measured("gates", measured.as_json())
    for failure in measured.failures():
        note(f"gate not passed: {failure}")
    if measured.failures():
        raise typer.Exit(1)


@group.command("offline-gates", epilog="Example: harness micro offline-gates")
def offline_gates(jobs: JobsOption = None, write: WriteOption = False) -> None:
    """Measure what decides SPPO, SimPO and ORPO: first iterations over a grid, validation prompts.

    Takes some ten minutes; exit code 1 if the profile's settings do not follow.
    """
    from harness.trainer.acceptance import OFFLINE, measure_grids

    _decide("offline_gates", measure_grids(OFFLINE, *_gate_work(jobs), _say), write)


@group.command("online-gates", epilog="Example: harness micro online-gates")
def online_gates(
    jobs: JobsOption = None,
    write: WriteOption = False,
    pushed: Annotated[
        bool,
        typer.Option("--pushed", help="Also over-optimise one policy, and publish how it looks."),
    ] = False,
    allow_fewer: AllowFewerOption = None,
) -> None:
    """Measure what decides online training: RLOO 1x over a grid, on validation prompts.

    Takes some ten minutes; exit code 1 if the profile's settings do not follow.
    """
    from harness.report.over_optimisation import FOLDER, Pushed, publish_pushed
    from harness.trainer.acceptance import ONLINE, measure_grids, measure_pushed

    to = publishing(pushed, allow_fewer, [FOLDER], "micro")
    found = measure_grids(ONLINE, *_gate_work(jobs), _say)
    if to is not None:
        measured = Pushed.model_validate(measure_pushed(*_gate_work(jobs), _say))
        fewer = bool(to.fewer)
        folder = publish_pushed(measured, to.results_dir, "micro", allow_fewer=fewer)
        note(f"published in {folder}")
    _decide("online_gates", sorted(found, key=lambda point: -point.gain), write)


def _gate_work(jobs: int | None) -> tuple[Store, int]:
    """Return the store that gates work in, and how many workers."""
    from harness.runtime import Store

    return Store(work_dir() / "gates" / "store"), workers_of(jobs)


def _decide(name: str, points: Sequence[Point], write: bool) -> None:
    """Print a grid's measurements, record them if asked, and fail where the profile differs."""
    from harness.trainer.acceptance import grid_failures
    from harness.worlds.embedded.files import note_measured

    for point in points:
        console().print(str(point), soft_wrap=True)
    if write:
        note_measured(name, [point.as_json() for point in points])
    reasons = grid_failures(points)
    for reason in reasons:
        note(f"gate not passed: {reason}")
    if reasons:
        raise typer.Exit(1)


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
