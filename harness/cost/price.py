"""What a plan costs, as data, and what it may cost."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from harness.cost.assumptions import Assumed, Gpu
from harness.endpoint.prices import Retirement
from harness.errors import UserError
from harness.registry.serving import ServedRole, variable
from harness.strict import Strict


class PricedHardware(Gpu):
    """The GPUs a plan is priced for, with what is known of one."""

    gpu: str
    gpus: int


class KindPrice(Strict):
    """What the stages of one kind take together."""

    stages: int
    """How many are left to compute."""
    gpu_hours: float
    """Of those whose time is known."""
    unknown: int
    """Stages whose time is not."""
    measured: bool
    """Whether their speed is that of the plan's own stages."""
    gb: float
    """What they leave on disk."""


class GpuHours(Strict):
    """The GPU hours of what is left."""

    known: float
    complete: bool
    unknown: list[str]
    """Why that of some is not, each reason once."""
    wall_hours: float | None
    """The least time on these GPUs: all of them always busy, or the longest chain of stages, each
    on the GPUs it needs; null without GPUs."""
    by_kind: dict[str, KindPrice]


class CallPrice(Strict):
    """The requests to one model in one role."""

    role: ServedRole
    model: str
    requests: int
    prompt_tokens: int
    completion_tokens: int
    usd_per_million: tuple[float, float] | None
    """Of prompt and completion tokens; null where the model has no price."""
    usd: float | None


class Dollars(Strict):
    """The dollars of what is left."""

    known: float
    complete: bool
    calls: list[CallPrice]
    prices: str
    """Where the prices come from."""
    retirements: list[Retirement]


class DiskGb(Strict):
    """The disk that what is left needs, in GB of 10^9 bytes."""

    total: float
    kept: float
    """What stages leave."""
    spent: float
    """Of it the weights and optimizer states of online segments that the run goes on from: the
    command `harness store --prune` gives them back, while the run goes on, too."""
    in_passing: float
    """The most that a stage needs besides while it runs."""
    models: dict[str, float | None]
    """Each model; null where its size is not known."""


class ServerStarts(Strict):
    """How often the harness starts the server of a role, one after the other on a GPU."""

    role: str
    starts: int
    gpu_hours: float


class Uncertainty(Strict):
    """By which factor an estimate may be off, either way."""

    gpu: float
    money: float


class PlanPrice(Strict):
    """What is left of a plan costs: totals, their parts, and what they assume."""

    hardware: PricedHardware | None
    gpu_hours: GpuHours
    usd: Dollars
    disk_gb: DiskGb
    servers: list[ServerStarts]
    """Servers of our own; their starts are among the GPU hours, what they answer costs nothing."""
    uncertainty: Uncertainty
    assumptions: dict[str, Assumed]


@dataclass(frozen=True)
class Limits:
    """What may be spent, in GPU hours and in dollars to sellers of models; None for no limit."""

    gpu_hours: float | None = None
    usd: float | None = None

    def __post_init__(self) -> None:
        for option, value in (("--max-gpu-hours", self.gpu_hours), ("--budget-usd", self.usd)):
            if value is not None and not 0.0 <= value < float("inf"):
                raise UserError(f"`{option} {value:g}` is no limit; give a number, 0 or more")


def over_limits(price: PlanPrice, limits: Limits) -> str | None:
    """Return in a sentence which limits a price passes, or cannot be held against; None if none.

    The estimate itself is compared, not its upper end; a price that equals a limit keeps it.
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
