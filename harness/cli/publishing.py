"""`--publish` and `--allow-fewer`, which every command that publishes has."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

PublishOption = Annotated[
    bool, typer.Option("--publish", help="Also write it to results/, with what it follows from.")
]
AllowFewerOption = Annotated[
    str | None,
    typer.Option(
        "--allow-fewer",
        metavar="A,B",
        help="Publish these though they are not whole, or have less than what stands there.",
    ),
]


@dataclass(frozen=True)
class Publishing:
    """Where to publish, and what may have less than it should.

    Attributes:
        results_dir: The folder of published results.
        fewer: Names of what may be published though it is not whole, or has less than before.
    """

    results_dir: Path
    fewer: frozenset[str] = frozenset()


def publishing(
    publish: bool, allow_fewer: str | None, names: Collection[str], profile: str
) -> Publishing | None:
    """Return where and how to publish, None where that is not asked for.

    Args:
        publish: Whether it is asked for.
        allow_fewer: The text of `--allow-fewer`.
        names: What is published.
        profile: Name of the profile.

    Raises:
        UserError: There is no such profile or it consists of stand-ins, less is allowed of
            something that is not published, or there is no checkout to publish in.
    """
    from harness.catalogue.profile import MEANINGLESS, find_profile
    from harness.cli.asking import all_profiles
    from harness.cli.options import parse_names
    from harness.errors import UserError
    from harness.project import publishing_dir

    fewer = parse_names("--allow-fewer", allow_fewer) or ()
    if not publish:
        if fewer:
            raise UserError("`--allow-fewer` goes with publishing; leave it out")
        return None
    for name in fewer:
        if name not in names:
            raise UserError(
                f"`--allow-fewer {name}` names nothing that is published here; what is: "
                f"{', '.join(names)}"
            )
    if find_profile(all_profiles(), profile).stand_ins is not None:
        raise UserError(f"at the profile `{profile}` {MEANINGLESS}; publish another profile's")
    return Publishing(publishing_dir(), frozenset(fewer))
