"""`doctor`, `download` and `micro`: what this machine lacks, downloads and builds."""

from __future__ import annotations

import os
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from harness.cli import common
from harness.cli.common import console, emit, print_json, text_table, unbroken
from harness.errors import HarnessError, UserError
from harness.project import work_dir
from harness.selection.names import DEFAULT_PROFILE
from harness.strict import Output
from harness.words import counted
from harness.worlds.needs import Missing

if TYPE_CHECKING:
    from harness.worlds.embedded.files import Card

TableArgument = Annotated[
    str | None, common.argument("TABLE", "Only what the rest of this table or group needs.")
]
OneProfileOption = Annotated[
    str | None,
    common.option("--profile", "NAME", "What is missing for this profile, one per line."),
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


class Readiness(Output):
    """What a profile, or what is left of a table at it, lacks on this machine."""

    profile: str
    asked_as: str
    """The profile's `--profile` argument."""
    scale: str
    table: str | None = None
    """What is to be run; null for everything the profile could need."""
    ready: bool
    """Whether nothing is missing."""
    missing: list[Missing]
    unavailable: list[str]
    """Scores that a run will lack, and why."""


class Doctor(Output):
    work_dir: str
    profiles: list[Readiness]


@app.command("doctor", epilog="Example: harness doctor table4 --profile paper")
def doctor(
    table: TableArgument = None,
    profile: OneProfileOption = None,
    as_json: common.JsonOption = False,
) -> None:
    """Show which profiles can run on this machine, and what is missing for one.

    With a table, run the checks that `harness run` makes before it starts. Exits with 1 if no
    profile, or not the one named, can run here. Makes no network requests.
    """
    from harness.registry.declared import all_profiles

    every = table is None and profile is None
    asked = list(all_profiles()) if every else [profile or DEFAULT_PROFILE]
    found = [_readiness(table, name) for name in asked]
    emit(Doctor(work_dir=str(work_dir()), profiles=found), as_json, _profiles if every else _one)
    if not any(each.ready for each in found):
        raise typer.Exit(1)


def _readiness(table: str | None, name: str) -> Readiness:
    from harness.registry.declared import named_profile
    from harness.selection.experiment import select
    from harness.worlds.needs import Demand

    profile, unavailable = named_profile(name), list[str]()
    try:
        demand = Demand(profile, select(table or "all", name, seeds=0).plan().pending)
        missing, unavailable = demand.missing(), demand.unavailable()
    except UserError as error:
        if table is not None:
            raise
        missing = [Missing.because(f"profile {name}", error)]
    return Readiness(
        profile=profile.name,
        asked_as=profile.asked_as,
        scale=profile.scale,
        table=table,
        ready=not missing,
        missing=missing,
        unavailable=unavailable,
    )


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
    from harness.selection.experiment import select
    from harness.worlds.needs import Demand
    from harness.worlds.needs import download as fetch

    left = select(table or "all", profile).plan().pending
    say = partial(console(stderr=as_json).print, soft_wrap=True)
    found = fetch(Demand(named_profile(profile), left), say)
    if as_json:
        print_json({"fetched": found})


def _one(found: Doctor) -> Iterator[Any]:
    """Yield the command that downloads, then a line per missing thing and score."""
    from harness.worlds.needs import to_download

    (one,) = found.profiles
    of = one.profile if one.table is None else f"{one.table} on {one.profile}"
    if one.ready:
        yield unbroken(f"{of} can run here.")
    else:
        more = to_download(one.missing, one.asked_as, one.table)
        yield unbroken(f"{of} cannot run here: {counted(len(one.missing), 'thing')} missing.")
        yield from map(unbroken, more.splitlines()[1:])
        yield ""
    yield from (unbroken(f"missing: {it.line}") for it in one.missing)
    yield from (unbroken(f"not measured: {text}") for text in one.unavailable)


def _profiles(found: Doctor) -> Iterator[Any]:
    rows = []
    for it in found.profiles:
        missing = f"{counted(len(it.missing), 'thing')} missing"
        rows.append((it.profile, it.scale, "ready" if it.ready else missing))
    yield text_table(("profile", "scale", "on this machine"), rows)
    yield unbroken("\nWhat is missing: harness doctor --profile NAME")
    yield unbroken(f"The work folder is {found.work_dir}.")


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
    say = partial(console(stderr=as_json).print, soft_wrap=True)
    card = build_world(folder, seed, say)
    differing = _differing(card)
    say(f"The world {card.version} is in {folder}: {_compared(differing)}.")
    if as_json:
        print_json({"version": card.version, "folder": str(folder), "differing": differing})


@micro.command("freeze", epilog="Example: harness micro freeze")
def freeze(
    profile: common.ProfileOption = DEFAULT_PROFILE, as_json: common.JsonOption = False
) -> None:
    """Write down what decides a profile's numbers, before any row of eva is run in its world.

    `harness verify` fails where it has changed since, or where a published row of eva is older.
    """
    from harness.registry.declared import named_profile
    from harness.worlds.profile_freeze import freeze_world

    found = freeze_world(named_profile(profile))
    emit(vars(found), as_json, lambda _: [f"Frozen at {found.at}: {len(found.parts)} parts."])


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
