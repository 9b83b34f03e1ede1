"""`doctor` and `download`: what this machine lacks, and fetching it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from functools import partial
from typing import Annotated, Any

import typer

from harness.cli import common
from harness.cli.common import console, emit, print_json, text_table, unbroken
from harness.errors import UserError
from harness.project import work_dir
from harness.registry.declared import all_profiles, named_profile
from harness.selection.experiment import select
from harness.selection.names import DEFAULT_PROFILE
from harness.strict import Output
from harness.words import counted
from harness.worlds.needs import Demand, Missing, to_download
from harness.worlds.needs import download as fetch

TableArgument = Annotated[
    str | None, common.argument("TABLE", "Only what the rest of this table or group needs.")
]
OneProfileOption = Annotated[
    str | None,
    common.option("--profile", "NAME", "What is missing for this profile, one per line."),
]

app = typer.Typer(rich_markup_mode=None)


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
    every = table is None and profile is None
    asked = list(all_profiles()) if every else [profile or DEFAULT_PROFILE]
    found = [_readiness(table, name) for name in asked]
    emit(Doctor(work_dir=str(work_dir()), profiles=found), as_json, _profiles if every else _one)
    if not any(each.ready for each in found):
        raise typer.Exit(1)


def _readiness(table: str | None, name: str) -> Readiness:
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
    left = select(table or "all", profile).plan().pending
    say = partial(console(stderr=as_json).print, soft_wrap=True)
    found = fetch(Demand(named_profile(profile), left), say)
    if as_json:
        print_json({"fetched": found})


def _one(found: Doctor) -> Iterator[Any]:
    """Yield the command that downloads, then a line per missing thing and score."""
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
