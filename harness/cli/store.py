"""`store`, `sync` and `ui`: inspecting the store, and what is written from it."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from typing import Annotated, Any

import typer
from rich.filesize import decimal

from harness import project
from harness.cli import common
from harness.cli.common import console, emit, note, print_all, print_json, text_table, unbroken
from harness.errors import UserError
from harness.evaluation.scores import all_kept
from harness.project import store_dir, work_dir
from harness.registry.declared import named_profile
from harness.runtime import Store
from harness.selection import stored
from harness.selection.experiment import Experiment, select
from harness.selection.names import DEFAULT_PROFILE, again
from harness.tracking import Mlflow, evaluation_records, ui_command
from harness.words import Say, counted

VerifyOption = Annotated[
    bool, common.option("--verify", None, "Check every file, and name all that is broken.")
]
TableArgument = Annotated[str, common.argument("TABLE", "A table, a group or a YAML file.")]
TrainedTableArgument = Annotated[str, common.argument("TABLE", "A table, or a YAML file.")]
RowArgument = Annotated[
    str, common.argument("ROW", "A row of the table, or the id of one of its runs.")
]


group = typer.Typer(
    name="store",
    cls=common.Verbs,
    rich_markup_mode=None,
    invoke_without_command=True,
    epilog="Example: harness store --verify",
)
app = typer.Typer(rich_markup_mode=None)
app.add_typer(group)


@group.callback()
def store(
    ctx: typer.Context, verify: VerifyOption = False, as_json: common.JsonOption = False
) -> None:
    """Show what the store holds, by kind of stage.

    Anything deleted can be computed again.
    """
    if ctx.invoked_subcommand is not None:
        if verify or as_json:
            raise UserError(
                f"options before `{ctx.invoked_subcommand}` have no use; write its own after it"
            )
        return
    kept = Store(store_dir())
    if verify:
        with common.failure_as_json(as_json, lambda why: {"broken": why}):
            kept.check()
    said = stored.summary(kept) | ({"verified": True} if verify else {})
    emit(said, as_json, _stored)


def _stored(said: Mapping[str, Any]) -> Iterator[Any]:
    rows = [(it["kind"], f"{it['stages']:,}", decimal(it["size"])) for it in said["kinds"]]
    yield text_table(("kind", "stages", "size"), rows, right={1, 2})
    yield unbroken(f"{decimal(said['size'])} in {said['place']}")
    if "verified" in said:
        yield "every file is as it was written"


@group.command("path", epilog="Example: harness store path table4 eva-a_min --seed 0")
def path(
    table: TrainedTableArgument,
    row: RowArgument,
    profile: common.ProfileOption = DEFAULT_PROFILE,
    seed: common.SeedOption = 0,
    as_json: common.JsonOption = False,
) -> None:
    """Print the folder of a trained policy, which transformers' `from_pretrained` loads.

    Copy it before you change anything in it: other stages read it.
    """
    store = Store(store_dir())
    run = stored.trained_run(table, row, named_profile(profile), seed, store)
    folder = store.open(run.training[-1].fingerprint) / "model"
    found = {"run": run.run_id, "profile": run.profile, "seed": seed, "path": str(folder)}
    emit(found, as_json, lambda _: [unbroken(str(folder))])


@app.command("sync", epilog="Example: MLFLOW_TRACKING_URI=http://host:5000 harness sync")
def sync(
    table: TableArgument = "all",
    profile: common.ProfileOption = DEFAULT_PROFILE,
    as_json: common.JsonOption = False,
) -> None:
    """Update the tracking server from the store.

    Writes what the store has of a table, or the complete tables of a group, at a profile, every
    shipped sweep, and every evaluation that was kept, to MLFLOW_TRACKING_URI, by default a database
    in the work folder. Running it again changes nothing.
    """
    out = console(stderr=as_json)
    chosen = select(table, profile)
    if chosen.figure is not None:
        raise UserError(f"`{table}` is a figure; sync the tables whose rows it draws")
    found: list[dict[str, Any]] = []
    with common.watching() as show:
        for what, changes in _synced(chosen, show):
            runs = sum(changes.values())
            done = ", ".join(f"{number} {change}" for change, number in sorted(changes.items()))
            said = f"{counted(runs, 'MLflow run')} ({done or 'nothing stored'})"
            print_all([unbroken(f"{what}: {said}.")], out)
            found.append({"what": what, "runs": runs, "changes": dict(changes)})
    if as_json:
        print_json(found)
    elif not found:
        command = f"harness sync {again('table4', profile)}"
        part = f"complete table; to write a part of one: {command}"
        out.print(f"The store has no {part if chosen.is_group else f'run of {table}'}")


def _synced(chosen: Experiment, show: Say) -> Iterator[tuple[str, Mapping[str, int]]]:
    """Sync MLflow with the store, the sweeps and the kept evaluations."""
    from harness.sweep.conduct import sync_sweeps

    store = Store(store_dir())
    states = stored.stored_states(chosen.tables, chosen.profile, store, whole=chosen.is_group)
    evaluations = all_kept(project.evaluations_dir())
    if states:
        named = dict.fromkeys(f"{s.runs.table.id}/{s.runs.profile.name}" for s in states)
        yield ", ".join(named), stored.tracker_of(store, note, show).sync(states)
    for name, changes in sync_sweeps(note).items():
        yield f"sweep {name}", changes
    if evaluations:
        mlflow = Mlflow(work_dir(), note, watch=show)
        yield "evaluations", mlflow.write(lambda: evaluation_records(evaluations))


@app.command("ui", epilog="Example: harness ui --port 5001")
def ui(port: common.PortOption = 5000) -> None:
    """Serve MLflow's pages on this machine, until Ctrl-C."""
    command, environment = ui_command(work_dir(), port)
    # Without the query, MLflow opens on traces of language-model calls.
    page = f"http://127.0.0.1:{port}/#/experiments?workflowType=machine_learning"
    lines = [
        f"MLflow will be at {page} in a few seconds (Ctrl-C stops it).",
        "No usage data is collected, although MLflow's home page says so.",
    ]
    print_all(map(unbroken, lines))
    os.execve(command[0], command, environment)
