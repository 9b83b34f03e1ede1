"""The price of a plan in `plan` and `run`: its options and its limits.

Only profiles whose models come from outside the embedded world have a price.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from harness.catalogue.profile import Profile
    from harness.cost.pricing import Price
    from harness.store import Stage, Store
    from harness.trainer.figure_runs import FigureRuns

GpuOption = Annotated[
    str | None,
    typer.Option("--gpu", metavar="NAME", help="Price for this GPU.", show_default="the profile's"),
]
GpusOption = Annotated[
    int | None,
    typer.Option("--gpus", metavar="N", help="... and so many.", show_default="the profile's"),
]
MaxGpuHoursOption = Annotated[
    float | None,
    typer.Option(
        "--max-gpu-hours",
        metavar="H",
        help="Fail if what is left is estimated to take more GPU hours.",
    ),
]
BudgetOption = Annotated[
    float | None,
    typer.Option(
        "--budget-usd",
        metavar="B",
        help="Fail if judge and creator are estimated to cost more dollars.",
    ),
]


@dataclass(frozen=True)
class PriceAsked:
    """What was asked about a price.

    Attributes:
        gpu: A GPU other than the profile's.
        gpus: Another number of them.
        max_gpu_hours: Most GPU hours.
        budget_usd: Most dollars.
    """

    gpu: str | None = None
    gpus: int | None = None
    max_gpu_hours: float | None = None
    budget_usd: float | None = None


def has_price(profile: Profile) -> bool:
    """Return whether a profile's plans have a price: its models come from outside, and are real."""
    from harness.worlds.lookup import world_of

    return not world_of(profile).self_contained


def price_of_plan(
    stages: Iterable[Stage], profile: Profile, store: Store, asked: PriceAsked
) -> Price | None:
    """Return the price of what is left of a plan; None for a profile that has no prices.

    Raises:
        UserError: An option is wrong, or is given for a profile that has no prices.
    """
    from harness.cost.hardware import hardware_of
    from harness.cost.pricing import price
    from harness.errors import UserError

    if not has_price(profile):
        if asked != PriceAsked():
            raise UserError(
                f"`{profile.name}` runs on this machine and costs nothing; leave out `--gpu`, "
                "`--gpus`, `--max-gpu-hours` and `--budget-usd`"
            )
        return None
    hardware = hardware_of(profile, asked.gpu, asked.gpus)
    stages = list(stages)
    done = [s.fingerprint for s in stages if store.status(s.fingerprint) == "done"]
    return price(stages, profile, hardware, done)


def limit_passed(price: Price | None, asked: PriceAsked) -> str | None:
    """Return in a sentence which limit a price passes; None if it keeps them all.

    Raises:
        UserError: A limit is none.
    """
    from harness.cost.limits import Limits, over_limits

    limits = Limits(asked.max_gpu_hours, asked.budget_usd)
    return None if price is None else over_limits(price, limits)


def end_if_over(price: Price | None, asked: PriceAsked) -> None:
    """End the command with exit code 1 and a sentence if a price passes a limit.

    Raises:
        HarnessError: It does.
    """
    from harness.errors import HarnessError

    sentence = limit_passed(price, asked)
    if sentence is not None:
        raise HarnessError(sentence)


def with_price(summary: dict[str, Any], price: Price | None) -> dict[str, Any]:
    """Return the summary of a plan with its price, if it has one."""
    return summary if price is None else summary | {"price": price.as_json()}


def refuse_over_limits(
    name: str,
    profile: str,
    rows: str | None,
    seeds: str,
    asked: PriceAsked,
    *,
    skip_unsupported: bool,
) -> None:
    """Refuse a run before it starts if the price of what is left passes a limit.

    Args:
        name: Table, figure or group.
        profile: Name of the profile.
        rows: The text of `--rows`.
        seeds: The text of `--seeds`.
        asked: The limits.
        skip_unsupported: Leave out tables of a group that the profile cannot run.

    Raises:
        HarnessError: A limit is passed.
        UserError: As planning it.
    """
    from harness.cli.asking import named_profile, planned
    from harness.cli.figure_commands import is_figure, runnable_figure
    from harness.cli.options import one_table, parse_names, parse_seeds
    from harness.cli.together import planned_together
    from harness.engine import Plan
    from harness.project import store_dir
    from harness.store import Store

    if asked == PriceAsked():
        return
    ids = parse_seeds(seeds)
    if is_figure(name):
        targets = runnable_figure(name, profile, ids, rows).targets
    elif one_table(name, rows, skip_unsupported):
        targets = planned(name, profile, ids, parse_names("--rows", rows)).targets
    else:
        group = planned_together(name, profile, ids, skip_unsupported=skip_unsupported)
        targets = group.targets
    price = price_of_plan(Plan(targets), named_profile(profile), Store(store_dir()), asked)
    end_if_over(price, asked)


def figures_beside(
    group: str, profile: Profile, seeds: tuple[int, ...]
) -> tuple[list[FigureRuns], dict[str, str]]:
    """Return the figures that are priced with all tables, and why others are not.

    Args:
        group: Name of the group; only `all` has figures.
        profile: The profile.
        seeds: Root seeds.
    """
    from harness.cli.asking import all_figures, all_tables
    from harness.trainer.figure_runs import plan_figure

    if group != "all" or not has_price(profile):
        return [], {}
    planned, left_out = [], {}
    for figure in all_figures().values():
        runs = plan_figure(figure, all_tables(), profile, seeds)
        if runs.runs:
            planned.append(runs)
        for row, reason in runs.lacking.items():
            left_out[f"{figure.id}, {row}"] = reason
    return planned, left_out
