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
    text = _profiles if every else _one
    emit({"work_dir": str(work_dir()), "profiles": found}, as_json, lambda _: text(found))
    if not any(each["ready"] for each in found):
        raise typer.Exit(1)


def _readiness(table: str | None, name: str) -> dict[str, Any]:
    """Return what a profile, or what is left of a table at it, lacks on this machine."""
    profile, unavailable = named_profile(name), list[str]()
    try:
        chosen = select(table or "all", name, seeds=0 if table is None else None)
        demand = Demand(profile, chosen.plan().pending)
        missing, unavailable = demand.missing(), demand.unavailable()
    except UserError as error:
        if table is not None:
            raise
        missing = [Missing.because(f"profile {name}", error)]
    return {
        "profile": profile.name,
        "asked_as": profile.asked_as,
        "scale": profile.scale,
        "table": table,
        "ready": not missing,
        "missing": missing,
        "unavailable": unavailable,
    }


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
    chosen = select(table or "all", profile).plan()
    say = partial(console(stderr=as_json).print, soft_wrap=True)
    found = fetch(Demand(chosen.profile, chosen.pending), say)
    if as_json:
        print_json({"fetched": found})


def _one(found: list[dict[str, Any]]) -> Iterator[Any]:
    """Yield the command that downloads, then a line per missing thing and score."""
    (one,) = found
    missing, table = one["missing"], one["table"]
    of = one["profile"] if table is None else f"{table} on {one['profile']}"
    if one["ready"]:
        yield unbroken(f"{of} can run here.")
    else:
        more = to_download(missing, one["asked_as"], table)
        yield unbroken(f"{of} cannot run here: {counted(len(missing), 'thing')} missing.")
        yield from map(unbroken, more.splitlines()[1:])
        yield ""
    yield from (unbroken(f"missing: {it.line}") for it in missing)
    yield from (unbroken(f"not measured: {text}") for text in one["unavailable"])


def _profiles(found: list[dict[str, Any]]) -> Iterator[Any]:
    rows = []
    for it in found:
        missing = f"{counted(len(it['missing']), 'thing')} missing"
        rows.append((it["profile"], it["scale"], "ready" if it["ready"] else missing))
    yield text_table(("profile", "scale", "on this machine"), rows)
    yield unbroken("\nWhat is missing: harness doctor --profile NAME")
    yield unbroken(f"The work folder is {work_dir()}.")
