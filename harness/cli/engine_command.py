"""`engine check`: whether the engine that answers and the model that is trained are the same."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from harness.cli.options import DEFAULT_PROFILE, JsonOption, ProfileOption
from harness.errors import HarnessError

if TYPE_CHECKING:
    from harness.catalogue.profile import Profile

app = typer.Typer(name="engine", help="What gives the policy's answers.", no_args_is_help=True)

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


@app.callback()
def engine() -> None:
    """What gives the policy's answers."""


@app.command("check", epilog="Example: harness engine check --profile single-gpu")
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

    from harness.catalogue.profile import find_profile
    from harness.cli.asking import all_profiles
    from harness.cli.output import console, grid, print_json
    from harness.solver.environment import identity

    chosen = find_profile(all_profiles(), profile)
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
    from harness.project import work_dir
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
