"""A plan's price as data, and spending limits."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from harness.cost.assumptions import Assumed, Gpu
from harness.errors import UserError
from harness.registry.serving import ServedRole, variable
from harness.strict import Strict


class PricedHardware(Gpu):
    """The GPUs a plan is priced for, with the specs of one."""

    gpu: str
    gpus: int


class KindPrice(Strict):
    """Total cost of the stages of one kind."""

    stages: int
    """Number left to compute."""
    gpu_hours: float
    """Total over stages whose time is known."""
    unknown: int
    """Number of stages whose time is unknown."""
    measured: bool
    """Whether the speed was measured on the plan's own stages."""
    gb: float
    """Disk space they keep, in GB."""


class GpuHours(Strict):
    known: float
    complete: bool
    unknown: list[str]
    """Distinct reasons why some are unknown."""
    wall_hours: float | None
    """Lower bound on wall time with these GPUs: the larger of all GPUs always busy and the longest
    chain of stages, each on the GPUs it needs; null without GPUs."""
    by_kind: dict[str, KindPrice]


class CallPrice(Strict):
    """Requests to one model in one role."""

    role: ServedRole
    model: str
    requests: int
    prompt_tokens: int
    completion_tokens: int
    usd_per_million: tuple[float, float] | None
    """Prices of prompt and completion tokens; null if the model has no price."""
    usd: float | None


class Dollars(Strict):
    known: float
    complete: bool
    calls: list[CallPrice]
    prices: str
    """Where the prices come from."""


class DiskGb(Strict):
    """Disk space needed by what is left, in GB of 10^9 bytes."""

    total: float
    kept: float
    """What stages keep in the store."""
    spent: float
    """The part of `kept` that is weights and optimizer states of online segments with a
    continuation: `harness store --prune` frees it, even during the run."""
    in_passing: float
    """Maximum temporary space of any one stage."""
    models: dict[str, float | None]
    """Size of each model; null if unknown."""


class ServerStarts(Strict):
    """How often the harness starts a role's server, one at a time on a GPU."""

    role: str
    starts: int
    gpu_hours: float


class Uncertainty(Strict):
    """Factors by which an estimate may be off, in either direction."""

    gpu: float
    money: float


class PlanPrice(Strict):
    """The price of what is left of a plan: totals, their breakdown, and assumptions."""

    hardware: PricedHardware | None
    gpu_hours: GpuHours
    usd: Dollars
    disk_gb: DiskGb
    servers: list[ServerStarts]
    """Servers the harness starts; startup is included in the GPU hours, and requests are free."""
    uncertainty: Uncertainty
    assumptions: dict[str, Assumed]


@dataclass(frozen=True)
class Limits:
    """Spending limits, in GPU hours and in dollars to model providers; None for no limit."""

    gpu_hours: float | None = None
    usd: float | None = None

    def __post_init__(self) -> None:
        for option, value in (("--max-gpu-hours", self.gpu_hours), ("--budget-usd", self.usd)):
            if value is not None and not 0.0 <= value < float("inf"):
                raise UserError(f"`{option} {value:g}` is no limit; give a number, 0 or more")


def over_limits(price: PlanPrice, limits: Limits) -> str | None:
    """Return which limits a price exceeds or cannot be checked against, as text; None if none.

    The point estimate is compared, not its upper bound; a price equal to the limit is allowed.
    """
    return "; ".join(_passed(price.gpu_hours, price.usd, limits)) or None


def _passed(hours: GpuHours, usd: Dollars, limits: Limits) -> Iterator[str]:
    if limits.gpu_hours is not None and hours.unknown:
        yield (
            f"--max-gpu-hours cannot be held, because {'; '.join(hours.unknown)}; leave the limit "
            "out, or let a first stage of each kind be computed, whose speed then holds"
        )
    elif limits.gpu_hours is not None and hours.known > limits.gpu_hours:
        yield (
            f"the plan takes about {hours.known:,.1f} GPU hours and --max-gpu-hours is "
            f"{limits.gpu_hours:,g}; raise it, or ask for fewer rows or seeds"
        )
    if limits.usd is None:
        return
    for call in usd.calls:
        if call.usd is None:
            yield (
                f"--budget-usd needs the price of {call.model}, which is not known; give it in "
                f"{variable(call.role, 'PRICE')}, as dollars for a million tokens in and out "
                "(`1.25,5`; `0,0` for a model of your own)"
            )
    if usd.complete and usd.known > limits.usd:
        yield (
            f"the plan costs about ${usd.known:,.2f} and --budget-usd is {limits.usd:,g}; raise "
            "it, or ask for fewer rows or seeds"
        )
