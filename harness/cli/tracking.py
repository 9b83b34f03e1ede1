"""`sync` and `ui`: what leaves the store for MLflow's pages."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from enum import StrEnum
from typing import Annotated

import typer

from harness.cli.options import JsonOption
from harness.cli.output import console, print_json, warn
from harness.errors import UserError
from harness.project import evaluations_dir, results_dir, store_dir, work_dir
from harness.strict import Strict
from harness.words import counted

PortOption = Annotated[
    int, typer.Option("--port", metavar="N", min=1, max=65535, help="Where to listen.")
]

app = typer.Typer(rich_markup_mode=None)


class Place(StrEnum):
    """Where runs can be written to besides MLflow."""

    tensorboard = "tensorboard"
    wandb = "wandb"
    trackio = "trackio"


PublishedOption = Annotated[
    bool, typer.Option("--published", help="Write the published results instead of the store's.")
]


ToOption = Annotated[
    Place | None,
    typer.Option("--to", help="Write to another place than MLflow.", show_default="MLflow"),
]


class Synced(Strict):
    """What was done to bring some runs to where they are looked at."""

    what: str
    """The tables, the sweep, `published results`, `evaluations`, or the place besides MLflow."""
    runs: int
    """How many there are."""
    changes: dict[str, int]
    """How many were `created`, `updated`, `replaced`, and left `unchanged` or `kept`."""


Syncs = list[Synced]


@app.command("sync", epilog="Example: MLFLOW_TRACKING_URI=http://host:5000 harness sync")
def sync(
    published: PublishedOption = False, to: ToOption = None, as_json: JsonOption = False
) -> None:
    """Bring the tracking server to the state of the store.

    All tables and sweeps that were ever run, and all evaluations that were kept, are written to
    MLFLOW_TRACKING_URI, by default a database in the work folder. Doing it again changes nothing.
    """
    out = console(stderr=as_json)
    if to is not None:
        done = _write_elsewhere(to.value, published=published)
    else:
        done = _write_published() if published else _write_own()
    found: list[Synced] = []
    for one, sentence in done:
        found.append(one)
        out.print(sentence, soft_wrap=True)
    if as_json:
        print_json([one.model_dump(mode="json") for one in found])
    elif not found:
        out.print("No table was run yet, so there is nothing to write: harness run table4")


Said = Iterator[tuple[Synced, str]]
"""What was done, with the sentence that says so."""


def _write_published() -> Said:
    """Bring MLflow to the published results."""
    from harness.tracking import PublishedTracker

    yield _said("published results", PublishedTracker(work_dir()).sync(results_dir()))


def _write_own() -> Said:
    """Bring MLflow to the state of the store, of the sweeps, and of kept evaluations."""
    from harness.evaluation.archive import all_kept
    from harness.runtime import Store
    from harness.selection.tracked import asked_states, tracker_of
    from harness.sweep.conduct import sync_sweeps
    from harness.tracking import EvaluationTracker

    store = Store(store_dir())
    states = asked_states(store)
    evaluations = all_kept(evaluations_dir())
    if states:
        named = dict.fromkeys(f"{s.runs.table.id}/{s.runs.profile.name}" for s in states)
        yield _said(", ".join(named), tracker_of(store, warn).sync(states))
    for name, number in sync_sweeps(warn).items():
        one = Synced(what=f"sweep {name}", runs=number, changes={})
        yield one, f"{one.what}: {counted(number, 'trial')}."
    if evaluations:
        yield _said("evaluations", EvaluationTracker(work_dir(), warn).sync())


def _write_elsewhere(place: str, *, published: bool) -> Said:
    """Write what MLflow would hold to another place."""
    from harness.runtime import Store
    from harness.selection.tracked import asked_states, tracker_of
    from harness.tracking.published import published_records
    from harness.tracking.writers import write_to

    if published:
        records = published_records(results_dir())
    else:
        store = Store(store_dir())
        records = tracker_of(store, warn).records(asked_states(store))
    changes = write_to(place, records, work_dir())  # type: ignore[arg-type]
    where = work_dir() / "tracking" / place
    beside = "" if place == "trackio" else f" in {where}"
    one = Synced(what=place, runs=sum(changes.values()), changes=dict(changes))
    yield one, f"{place}: {_counted(changes, 'run')}{beside}."


def _said(what: str, changes: Mapping[str, int]) -> tuple[Synced, str]:
    one = Synced(what=what, runs=sum(changes.values()), changes=dict(changes))
    return one, f"{what}: {_counted(changes)}."


def _counted(changes: Mapping[str, int], what: str = "MLflow run") -> str:
    """Return how many runs were changed, and how."""
    total = counted(sum(changes.values()), what)
    done = ", ".join(f"{number} {change}" for change, number in sorted(changes.items()))
    return f"{total} ({done or 'nothing stored'})"


@app.command("ui", epilog="Example: harness ui --port 5001")
def ui(port: PortOption = 5000) -> None:
    """Serve MLflow's pages on this machine, until Ctrl-C."""
    import os

    from harness.tracking import ui_command

    command, environment, views = ui_command(work_dir(), port)
    check_port(port)
    out = console()
    # Without the query MLflow opens its pages on traces of language-model calls.
    page = f"http://127.0.0.1:{port}/#/experiments?workflowType=machine_learning"
    out.print(f"MLflow is in a few seconds at {page} (Ctrl-C stops it).", soft_wrap=True)
    if views:
        out.print("Ours against the paper table by table, and the trials of sweeps:")
    for name, view in views.items():
        out.print(f"  {name:<22} http://127.0.0.1:{port}{view}", soft_wrap=True)
    out.print(
        "Its home page says that it collects usage data: this server does not, and tells the page "
        "not to.",
        soft_wrap=True,
    )
    out.file.flush()
    os.execve(command[0], command, environment)


def check_port(port: int) -> None:
    """Check that something can listen on a port of this machine.

    Raises:
        UserError: It cannot.
    """
    import socket

    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError as error:
            raise UserError(
                f"port {port} cannot be used ({error.strerror}); choose another with `--port`"
            ) from error
