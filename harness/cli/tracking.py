"""`sync` and `ui`: what leaves the store for MLflow's pages."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated

import typer

from harness.cli.output import console, warn
from harness.errors import UserError
from harness.project import evaluations_dir, results_dir, store_dir, work_dir
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


@app.command("sync", epilog="Example: MLFLOW_TRACKING_URI=http://host:5000 harness sync")
def sync(published: PublishedOption = False, to: ToOption = None) -> None:
    """Bring the tracking server to the state of the store.

    All tables and sweeps that were ever run, and all evaluations that were kept, are written to
    MLFLOW_TRACKING_URI, by default a database in the work folder. Doing it again changes nothing.
    """
    from harness.evaluation.archive import all_kept
    from harness.runtime import Store
    from harness.selection.tracked import asked_states, tracker_of
    from harness.sweep.conduct import sync_sweeps
    from harness.tracking import EvaluationTracker, PublishedTracker

    out = console()
    if to is not None:
        _write_elsewhere(to.value, published=published)
        return
    if published:
        changes = PublishedTracker(work_dir()).sync(results_dir())
        out.print(f"published results: {_counted(changes)}.", soft_wrap=True)
        return
    store = Store(store_dir())
    states = asked_states(store)
    evaluations = all_kept(evaluations_dir())
    if states:
        named = dict.fromkeys(f"{s.runs.table.id}/{s.runs.profile.name}" for s in states)
        tables = ", ".join(named)
        changes = tracker_of(store, warn).sync(states)
        out.print(f"{tables}: {_counted(changes)}.", soft_wrap=True)
    sweeps = sync_sweeps(warn)
    for name, number in sweeps.items():
        out.print(f"sweep {name}: {counted(number, 'trial')}.", soft_wrap=True)
    if evaluations:
        changes = EvaluationTracker(work_dir(), warn).sync()
        out.print(f"evaluations: {_counted(changes)}.", soft_wrap=True)
    if not states and not evaluations and not sweeps:
        out.print("No table was run yet, so there is nothing to write: harness run table4")


def _write_elsewhere(place: str, *, published: bool) -> None:
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
    console().print(f"{place}: {_counted(changes, 'run')}{beside}.", soft_wrap=True)


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
        out.print("Ours against the paper, table by table:")
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
