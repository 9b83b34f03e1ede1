"""`doctor`: what this machine can run, and what is missing for each profile."""

from __future__ import annotations

from typing import Any

import typer

from harness.cli.options import JsonOption


def register(app: typer.Typer) -> None:
    """Add the verb to the command line."""
    app.command("doctor", epilog="Example: harness doctor")(doctor)


def doctor(as_json: JsonOption = False) -> None:
    """Say what this machine can run, and what is missing for each profile.

    Fails if no profile can run here. Keys are only looked for; their values are never shown.
    """
    from harness.cli.asking import all_profiles, all_tables
    from harness.cli.machine import inspect_machine, missing_for
    from harness.cli.output import print_json

    tables, machine = all_tables(), inspect_machine()
    profiles = []
    for profile in all_profiles().values():
        missing = missing_for(profile, machine)
        tables_here = [] if missing else [t.id for t in tables.values() if _runs(t, profile)]
        profiles.append(
            {
                "profile": profile.name,
                "scale": profile.scale,
                "threads": profile.threads,
                "ready": not missing,
                "missing": missing,
                "tables": tables_here,
            }
        )
    found = {"machine": machine, "profiles": profiles}
    if as_json:
        print_json(found)
    else:
        _print(found)
    if not any(profile["ready"] for profile in profiles):
        raise typer.Exit(1)


def _runs(table: Any, profile: Any) -> bool:
    from harness.catalogue.profile import table_unsupported

    return not table_unsupported(table, profile)


def _print(found: dict[str, Any]) -> None:
    from harness.cli.output import console, grid

    out, machine = console(), found["machine"]
    yes = {True: "yes", False: "no"}
    gpus = ", ".join(f"{g['name']} ({g['memory_gb']} GB)" for g in machine["gpus"]) or "none"
    engines = ", ".join(
        f"{name} {version or 'not installed'}" for name, version in machine["engines"].items()
    )
    keys = ", ".join(f"{name} {'set' if there else 'not set'}"
                     for name, there in machine["keys"].items())  # fmt: skip
    world = machine["world"]
    lines = [
        ("python", machine["python"]),
        ("cores", str(machine["cores"])),
        ("memory", f"{machine['memory_gb']} GB, {machine['memory_free_gb']} GB free"),
        ("disk", f"{machine['disk_free_gb']} GB free for {machine['work_dir']}"),
        ("GPU", gpus),
        ("engines", engines),
        ("keys", keys),
        ("hub offline", yes[machine["hub_offline"]]),
        ("embedded world", f"{world['version']}: {world['problem'] or 'all digests are right'}"),
        ("MLflow", machine["mlflow_uri"]),
    ]
    out.print(grid(("this machine", ""), lines))
    out.print()
    rows = [
        (
            profile["profile"],
            profile["scale"],
            str(profile["threads"]),
            "ready" if profile["ready"] else "not ready",
            ", ".join(profile["tables"]) if profile["ready"] else "\n".join(profile["missing"]),
        )
        for profile in found["profiles"]
    ]
    headings = ("profile", "scale", "torch threads", "state", "tables, or what is missing")
    out.print(grid(headings, rows, right="2"))
