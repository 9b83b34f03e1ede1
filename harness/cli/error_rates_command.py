"""`error-rates`: how often a verdict is reached where there is nothing to find."""

from __future__ import annotations

from typing import Annotated

import typer

from harness.cli.options import DEFAULT_PROFILE, JsonOption, ProfileOption
from harness.cli.publishing import AllowFewerOption, PublishOption, publishing

RepetitionsOption = Annotated[
    int,
    typer.Option(
        "--repetitions", min=1, max=1_000_000, metavar="N", help="Simulations of each table."
    ),
]
DealsOption = Annotated[
    int,
    typer.Option("--deals", min=1, max=1_000_000, metavar="N", help="Times that seeds are dealt."),
]


def register(app: typer.Typer) -> None:
    """Add the verb to the command line."""
    app.command("error-rates", epilog="Example: harness error-rates --publish")(error_rates)


def error_rates(
    profile: ProfileOption = DEFAULT_PROFILE,
    repetitions: RepetitionsOption = 40,
    deals: DealsOption = 20,
    publish: PublishOption = False,
    allow_fewer: AllowFewerOption = None,
    as_json: JsonOption = False,
) -> None:
    """Measure how often claims are decided where there is nothing to find.

    Simulated tables whose rows do not differ, and one recipe under two names from the published
    scores, go through the code that judges the paper's claims.
    """
    from harness.catalogue.profile import find_profile
    from harness.cli.asking import all_profiles, all_tables
    from harness.cli.output import console, grid, note, print_json
    from harness.project import results_dir
    from harness.report.error_rates import FOLDER, HEAD, lines, measure, write

    to = publishing(publish, allow_fewer, [FOLDER], profile)
    folder = results_dir() / find_profile(all_profiles(), profile).name
    found = measure(all_tables(), folder, repetitions=repetitions, deals=deals, said=note)
    if as_json:
        print_json(found)
    else:
        out = console()
        out.print(grid(HEAD, lines(found), right="1234567"))
        out.print(f"At most {found['level']:.0%} of the verdicts should be decided.")
    if to is not None:  # after what took so long is printed, because it may be refused
        target = write(found, to.results_dir, folder.name, allow_fewer=bool(to.fewer))
        note(f"published in {target}")
