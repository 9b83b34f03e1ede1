"""`doctor` and `engine check`: what this machine can run, and whether its engine is right."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from harness.cli.options import JsonOption, ProfileOption
from harness.cli.output import console, grid, print_json
from harness.errors import HarnessError, UserError
from harness.project import work_dir
from harness.selection.names import DEFAULT_PROFILE
from harness.words import counted

if TYPE_CHECKING:
    from harness.preflight.machine import Need
    from harness.registry.profile import Profile

OneProfileOption = Annotated[
    str | None,
    typer.Option(
        "--profile", metavar="NAME", help="Everything that one profile needs, a line each."
    ),
]
OnlineOption = Annotated[
    bool,
    typer.Option("--online", help="With --profile: also ask the hub and the endpoints."),
]

app = typer.Typer(rich_markup_mode=None)


@app.command("doctor", epilog="Example: harness doctor --profile paper")
def doctor(
    profile: OneProfileOption = None, online: OnlineOption = False, as_json: JsonOption = False
) -> None:
    """Say what this machine can run, and what is missing for each profile.

    Fails if no profile can run here (stand-ins, which always can, are not counted), or the one that
    is named cannot. Nobody is asked over the network without --online. Keys are only looked for;
    their values are never shown.
    """
    from harness.registry.declared import named_profile

    if profile is not None:
        _one_profile(named_profile(profile), online=online, as_json=as_json)
        return
    if online:
        raise UserError("`--online` asks about one profile; name it with `--profile`")
    _all_profiles(as_json=as_json)


def _one_profile(profile: Profile, *, online: bool, as_json: bool) -> None:
    """Print what one profile needs; end with exit code 1 if anything is missing.

    Raises:
        Exit: Something is missing.
    """
    from harness.preflight.machine import inspect_machine
    from harness.preflight.needs import needs_of, ready
    from harness.preflight.outside import online_needs
    from harness.selection.planning import has_price

    needs = needs_of(profile, inspect_machine())
    if online and has_price(profile):
        needs += online_needs(profile)
    can_run = ready(needs)
    if as_json:
        told = {"profile": profile.name, "scale": profile.scale, "ready": can_run}
        print_json({**told, "needs": [need.as_json() for need in needs]})
    else:
        _print_needs(profile, needs)
    if not can_run:
        raise typer.Exit(1)


def _print_needs(profile: Profile, needs: list[Need]) -> None:
    """Print a line for each need, those that are missing last."""
    out, order = console(), ("met", "advised", "missing")
    for state in order:
        for need in needs:
            if need.state == state:
                out.print(f"{state:8} {need.line}", soft_wrap=True)
    missing = sum(need.state == "missing" for need in needs)
    if missing:
        out.print(f"\n{profile.name} cannot run here: {counted(missing, 'thing')} missing.")
    else:
        out.print(f"\n{profile.name} can run here.")


def _all_profiles(*, as_json: bool) -> None:
    """Print what this machine has, and whether each profile can run.

    Raises:
        Exit: None can whose numbers mean something.
    """
    from harness.preflight.machine import inspect_machine
    from harness.preflight.needs import needs_of
    from harness.registry.declared import all_profiles, all_tables

    tables, machine = all_tables(), inspect_machine()
    profiles = []
    for profile in all_profiles().values():
        missing = [n.line for n in needs_of(profile, machine) if n.state == "missing"]
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
    stand_ins = {p.name for p in all_profiles().values() if p.stand_ins is not None}
    if not any(profile["ready"] and profile["profile"] not in stand_ins for profile in profiles):
        raise typer.Exit(1)


def _runs(table: Any, profile: Any) -> bool:
    from harness.registry.profile import table_unsupported

    return not table_unsupported(table, profile)


def _print(found: dict[str, Any]) -> None:

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
            ", ".join(profile["tables"])
            if profile["ready"]
            else f"{counted(len(profile['missing']), 'thing')}: "
            f"harness doctor --profile {profile['profile']}",
        )
        for profile in found["profiles"]
    ]
    headings = ("profile", "scale", "torch threads", "state", "tables, or what is missing")
    out.print(grid(headings, rows, right="2"))


group = typer.Typer(name="engine", help="What gives the policy's answers.", no_args_is_help=True)
app.add_typer(group, name="engine")

PolicyOption = Annotated[
    Path | None,
    typer.Option("--policy", metavar="FOLDER", help="Another policy than the profile's base one."),
]
ToleranceOption = Annotated[
    float | None,
    typer.Option(
        "--tolerance",
        metavar="NATS",
        min=0.0,
        help="Largest mean difference of log-probabilities.",
        show_default="0.001 in float32, 0.05 in bfloat16",
    ),
]


@group.callback()
def engine() -> None:
    """What gives the policy's answers."""


@group.command("check", epilog="Example: harness engine check --profile single-gpu")
def check(
    profile: ProfileOption = DEFAULT_PROFILE,
    policy: PolicyOption = None,
    tolerance: ToleranceOption = None,
    as_json: JsonOption = False,
) -> None:
    """Compare the engine's log-probabilities with the training's, token by token.

    Starts the profile's engine on its base policy, has it answer a few prompts, and has the model
    as it is trained read the same answers. Fails if they are further apart than the tolerance.
    """
    from dataclasses import asdict

    from harness.registry.declared import named_profile
    from harness.solver.environment import identity

    chosen = named_profile(profile)
    name = identity(chosen.engine)
    found = _measured(chosen, name, policy, tolerance)
    if as_json:
        print_json({"engine": name, "dtype": chosen.dtype, **asdict(found), "agrees": found.agrees})
    else:
        lines = [
            ("engine", name),
            ("number format", chosen.dtype),
            ("compared", f"{found.tokens} tokens of {found.answers} answers"),
            ("mean difference", f"{found.mean_difference:.2g} nats"),
            ("largest difference", f"{found.max_difference:.2g} nats"),
            ("KL per token", f"{found.kl:.2g} nats"),
        ]
        console().print(grid(("log-probabilities", ""), lines))
    if not found.agrees:
        raise HarnessError(
            f"the engine {name} and the training differ by {found.mean_difference:.2g} nats a "
            f"token, more than {found.tolerance:g}: see that both read the same checkpoint in the "
            "same number format"
        )


def _measured(profile: Profile, identity: str, policy: Path | None, tolerance: float | None) -> Any:
    from harness.solver.opening import opening
    from harness.solver.parity import measure
    from harness.worlds.answers import place_of
    from harness.worlds.lookup import resolve, world_of

    world = world_of(profile)
    world.prepare()
    base = world.policy() if policy is None else policy.name
    folder = resolve(base) if policy is None else policy
    work_dir().mkdir(parents=True, exist_ok=True)
    opened = opening(
        identity,
        folder,
        dtype=profile.dtype,
        batch_size=profile.generation.batch_size,
        log=work_dir() / "engine-check.log",
        place=place_of(base.partition("@")[0]) if identity == "endpoint" else None,
    )
    return measure(folder, opened, dtype=profile.dtype, tolerance=tolerance)
