"""`doctor`, `download` and `micro`: what this machine can run, download and build."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from harness.cli import common
from harness.cli.common import console, emit, note, print_json, text_table, unbroken
from harness.errors import HarnessError, UserError
from harness.project import publishing_dir, work_dir
from harness.selection.names import DEFAULT_PROFILE, workers_of
from harness.strict import Output
from harness.words import counted

if TYPE_CHECKING:
    from harness.preflight import Doctor, ProfileState, Readiness
    from harness.runtime import Event, Stage
    from harness.selection.selection import Selection
    from harness.worlds.embedded.files import Card

TableArgument = Annotated[
    str | None, common.argument("TABLE", "Only what the rest of this table or group needs.")
]
OneProfileOption = Annotated[
    str | None,
    common.option("--profile", "NAME", "Everything this profile needs, one per line."),
]
OutputOption = Annotated[
    Path | None,
    common.option("--output", "DIR", "Where to write.", default="`world` in the work folder"),
]

app = typer.Typer(rich_markup_mode=None)
micro = typer.Typer(
    name="micro",
    cls=common.Verbs,
    help="The embedded world that the profile `micro` runs in.",
    no_args_is_help=True,
    rich_markup_mode=None,
)
app.add_typer(micro)


@app.command("doctor", epilog="Example: harness doctor table4 --profile paper")
def doctor(
    table: TableArgument = None,
    profile: OneProfileOption = None,
    as_json: common.JsonOption = False,
) -> None:
    """Show which profiles can run on this machine, and what each one still needs.

    With a table, run the checks that `harness run` makes before it starts. Exits with 1 if no
    profile, or not the one named, can run here. Makes no network requests. Shows whether API keys
    are set, never their values.
    """
    from harness import preflight

    if table is not None or profile is not None:
        one = _readiness(table, profile or DEFAULT_PROFILE)
        emit(one, as_json, _needs)
        can_run = one.ready
    else:
        every = preflight.doctor()
        emit(every, as_json, _doctor)
        can_run = every.healthy
    if not can_run:
        raise typer.Exit(1)


def _readiness(table: str | None, profile: str) -> Readiness:
    from harness import preflight
    from harness.registry.declared import named_profile
    from harness.registry.profile import table_unsupported
    from harness.selection.selection import select

    asked = named_profile(profile)
    if table is None:
        return preflight.readiness(asked)
    chosen = select(table, profile)
    try:
        left = _left(chosen)
    except UserError:
        # What prevents planning may be among the profile's unmet needs.
        every = preflight.readiness(asked, table=table)
        never = not chosen.is_group and any(table_unsupported(it, asked) for it in chosen.tables)
        if never or every.ready:
            raise
        return every
    return preflight.readiness(asked, left, table)


def _left(chosen: Selection) -> Sequence[Stage]:
    """Return the pending stages of a table or group."""
    planned = chosen.plan()
    return planned.stages.pending(planned.store)


class Downloaded(Output):
    fetched: list[str]


@app.command("download", epilog="Example: harness download table4 --profile consumer-gpu")
def download(
    table: TableArgument = None,
    profile: common.ProfileOption = DEFAULT_PROFILE,
    as_json: common.JsonOption = False,
) -> None:
    """Download the models, prompts and benchmarks that a profile needs.

    Models are downloaded at the commits the profile pins; what is already here is skipped. Runs
    never download anything.
    """
    # Set before importing huggingface_hub, which reads it once.
    os.environ["HF_HUB_OFFLINE"] = "0"
    from harness.registry.declared import named_profile
    from harness.selection.selection import select
    from harness.worlds.needs import Demand
    from harness.worlds.needs import download as fetch

    left = None if table is None else _left(select(table, profile))
    say = common.saying(console(stderr=as_json))
    found = fetch(Demand.of(named_profile(profile), left), say)
    if as_json:
        print_json(Downloaded(fetched=found))


def _needs(found: Readiness) -> Iterator[Any]:
    """Yield a line per need, missing ones last."""
    from harness.preflight import to_download

    for state in ("met", "advised", "missing"):
        for need in found.needs:
            if need.state == state:
                yield unbroken(f"{state:8} {need.line}")
    missing = sum(need.state == "missing" for need in found.needs)
    of = found.profile if found.table is None else f"{found.table} on {found.profile}"
    more = to_download(found.needs, found.asked_as, found.table)
    cannot = f"{of} cannot run here: {counted(missing, 'thing')} missing.{more}"
    yield unbroken(f"\n{cannot if missing else f'{of} can run here.'}")


def _doctor(found: Doctor) -> Iterator[Any]:
    machine = found.machine
    engines = (f"{name} {version or 'not installed'}" for name, version in machine.engines.items())
    keys = (f"{name} {'set' if there else 'not set'}" for name, there in machine.keys.items())
    lines = [
        ("python", machine.python),
        ("cores", str(machine.cores)),
        ("memory", f"{machine.memory_gb} GB, {machine.memory_free_gb} GB free"),
        ("disk", f"{machine.disk_free_gb} GB free for {machine.work_dir}"),
        ("GPU", ", ".join(f"{gpu.name} ({gpu.memory_gb} GB)" for gpu in machine.gpus) or "none"),
        ("engines", ", ".join(engines)),
        ("keys", ", ".join(keys)),
        ("hub offline", "yes" if machine.hub_offline else "no"),
        ("embedded world",
         f"{machine.world.version}: {machine.world.problem or 'all digests are right'}"),
        ("MLflow", machine.mlflow_uri),
    ]  # fmt: skip
    yield text_table(("this machine", ""), lines)
    yield ""
    rows = [
        (p.profile, p.scale, str(p.threads), "ready" if p.ready else "not ready", _able(p))
        for p in found.profiles
    ]
    headings = ("profile", "scale", "torch threads", "state", "tables, or what is missing")
    yield text_table(headings, rows, right="2")


def _able(profile: ProfileState) -> str:
    """Return the tables a profile can run, or how much is missing and the command to list it."""
    if profile.ready:
        return ", ".join(profile.tables)
    missing = counted(len(profile.missing), "thing")
    return f"{missing}: harness doctor --profile {profile.profile}"


class Built(Output):
    version: str
    folder: str
    differing: list[str] | None
    """Files that differ from the world in use; null if there is none."""


class PublishedFolder(Output):
    folder: str


@micro.command("build", epilog="Example: harness micro build --output my-world")
def build(
    output: OutputOption = None, seed: common.SeedOption = 0, as_json: common.JsonOption = False
) -> None:
    """Rebuild the world's files from its seed: prompts, benchmarks, base policy, reward model.

    Takes 60 to 90 minutes on 2 cores. The same processor and thread count give the same digests.
    The shipped world is left alone: set HARNESS_WORLD to the folder to run in the rebuilt one.
    """
    from harness.worlds.embedded.build import build as build_world

    with common.writing(work_dir() / "world" if output is None else output) as folder:
        folder.mkdir(parents=True, exist_ok=True)
    say = common.saying(console(stderr=as_json))
    card = build_world(folder, seed, say)
    differing = _differing(card)
    say(f"The world {card.version} is in {folder}: {_compared(differing)}.")
    if as_json:
        print_json(Built(version=card.version, folder=str(folder), differing=differing))


class Frozen(Output):
    at: str
    """Time of freezing, ISO 8601 in UTC."""
    parts: dict[str, str]
    """Digest of each part that affects results."""


@micro.command("freeze", epilog="Example: harness micro freeze")
def freeze(as_json: common.JsonOption = False) -> None:
    """Write down what decides the world's numbers, before any row of eva is run in it.

    `harness verify` fails where it has changed since, or where a published row of eva is older.
    """
    from harness.registry.declared import named_profile
    from harness.worlds.embedded.freeze import freeze as freeze_world

    found = Frozen(**vars(freeze_world(named_profile(DEFAULT_PROFILE))))
    emit(found, as_json, lambda it: [f"Frozen at {it.at}: {len(it.parts)} parts."])


@micro.command("over-optimise", epilog="Example: harness micro over-optimise")
def over_optimise(
    jobs: common.JobsOption = None,
    allow_fewer: common.AllowFewerOption = False,
    as_json: common.JsonOption = False,
) -> None:
    """Push one policy beyond what its reward model knows, and publish how it looks.

    RLOO without a KL penalty at a large learning rate; takes a few minutes.
    """
    from harness.pipeline.studies import push
    from harness.report.over_optimisation import OVER_OPTIMISATION, PUSHED_FOLDER, OverOptimisation
    from harness.runtime import StageFinished, Store

    results_dir, say = publishing_dir(), common.saying(console(stderr=as_json))

    def tell(event: Event) -> None:
        if isinstance(event, StageFinished):
            say(f"{event.stage.label}: {event.wall_s:.1f} s")

    store = Store(work_dir() / "over-optimise" / "store")
    measured = OverOptimisation.model_validate(push(store, workers_of(jobs), tell))
    place = f"micro/{PUSHED_FOLDER}"
    folder = OVER_OPTIMISATION.publish(measured, place, results_dir, allow_fewer=allow_fewer)
    note(f"published in {folder}")
    if as_json:
        print_json(PublishedFolder(folder=str(folder)))


def _differing(card: Card) -> list[str] | None:
    """Return the rebuilt world's files that differ from the world in use; None without one."""
    from harness.worlds.embedded import files

    try:
        known = files.card().assets
    except HarnessError:
        return None
    return [
        name
        for name, asset in card.assets.items()
        if asset["sha256"] != known.get(name, {}).get("sha256")
    ]


def _compared(differing: list[str] | None) -> str:
    if differing is None:
        return "there is no other to compare it with"
    if not differing:
        return "every file has the digest of the world in use"
    return f"{', '.join(differing)} differ from the world in use"
