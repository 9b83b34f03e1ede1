"""What a plan costs, the sum over its distinct stages that are not done, and what it may cost."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from harness.cost.assumptions import (
    Assumptions,
    Gpu,
    Hardware,
    Uncertainty,
    assumptions,
    listed,
    shape_of,
)
from harness.cost.costing import Calls, Costing, StageCost, price_of
from harness.cost.stages import stage_cost
from harness.endpoint.prices import Retirement, read_prices
from harness.errors import UserError
from harness.registry.profile import Profile
from harness.runtime.stage import Stage
from harness.strict import Strict
from harness.worlds.real.asking import Role

HOUR = 3600.0
GB = 1e9


@dataclass(frozen=True)
class KindCost:
    """What the stages of one kind cost together.

    Attributes:
        kind: the kind.
        stages: how many are left to compute.
        gpu_hours: of those whose time is known.
        unknown: stages whose time is not.
        kept: bytes they leave.
    """

    kind: str
    stages: int
    gpu_hours: float
    unknown: int
    kept: float


class PricedHardware(Gpu):
    """The GPUs a plan is priced for, with the data sheet of one."""

    gpu: str
    """Its name."""
    gpus: int
    """How many of them a stage holds."""


class KindPrice(Strict):
    """What the stages of one kind take together."""

    stages: int
    """How many are left to compute."""
    gpu_hours: float
    """Of those whose time is known."""
    unknown: int
    """Stages whose time is not."""
    gb: float
    """What they leave on disk."""


class GpuHours(Strict):
    """The GPU hours of what is left."""

    known: float
    complete: bool
    """Whether the time of every stage is known."""
    unknown: list[str]
    """Why that of some is not, each reason once."""
    wall_hours: float | None
    """If one stage runs after the other, each on all GPUs; null without GPUs."""
    by_kind: dict[str, KindPrice]


class CallPrice(Strict):
    """The requests to one model in one role."""

    role: str
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
    """Whether every model that is asked has a price."""
    calls: list[CallPrice]
    prices: str
    """Where the prices come from."""
    retirements: list[Retirement]


class DiskGb(Strict):
    """The disk that what is left needs, in GB of 10^9 bytes."""

    total: float
    kept: float
    """What stages leave."""
    in_passing: float
    """The most that a stage needs besides while it runs."""
    models: dict[str, float | None]
    """Each model; null where its shape is not known."""


class Assumed(Strict):
    """One assumption."""

    value: Any
    source: str


class PriceSummary(Strict):
    """What is left of a plan costs: totals, their parts, and what they assume."""

    hardware: PricedHardware | None
    gpu_hours: GpuHours
    usd: Dollars
    disk_gb: DiskGb
    uncertainty: Uncertainty
    assumptions: dict[str, Assumed]


@dataclass(frozen=True)
class Price:
    """What is left of a plan costs.

    Attributes:
        hardware: the GPUs it is priced for; None for none.
        kinds: by kind of stage, in the plan's order.
        calls: by role and model.
        models: bytes of each model that has to be there, None where its shape is not known.
        passing: the most bytes that a stage needs besides while it runs.
        unknown: why the time of some stages is not known, each reason once.
        assumed: what was assumed.
    """

    hardware: Hardware | None
    kinds: tuple[KindCost, ...]
    calls: tuple[Calls, ...]
    models: Mapping[str, float | None]
    passing: float
    unknown: tuple[str, ...]
    assumed: Assumptions

    @property
    def gpu_hours(self) -> float:
        """GPU hours of the stages whose time is known."""
        return sum(kind.gpu_hours for kind in self.kinds)

    @property
    def wall_hours(self) -> float | None:
        """Hours if one stage runs after the other, each on all GPUs; None without GPUs."""
        return None if self.hardware is None else self.gpu_hours / self.hardware.count

    @property
    def usd(self) -> float:
        """Dollars of the requests whose model has a price."""
        return sum(usd for usd in (call.usd for call in self.calls) if usd is not None)

    @property
    def unpriced(self) -> tuple[Calls, ...]:
        """The requests whose model has no price."""
        return tuple(call for call in self.calls if call.usd is None)

    @property
    def retirements(self) -> tuple[Retirement, ...]:
        """Which of the models that are asked are retired by their sellers, or will be."""
        known = read_prices().retirements
        models = dict.fromkeys(call.model for call in self.calls)
        return tuple(known[model] for model in models if model in known)

    @property
    def disk(self) -> float:
        """Bytes: what stages leave, the models, and the most that is needed in passing."""
        models = sum(size for size in self.models.values() if size is not None)
        return sum(kind.kept for kind in self.kinds) + models + self.passing

    @property
    def summary(self) -> PriceSummary:
        """Everything that is printed as JSON."""
        hardware = self.hardware
        return PriceSummary(
            hardware=None
            if hardware is None
            else PricedHardware(
                gpu=hardware.name, gpus=hardware.count, **hardware.gpu.model_dump()
            ),
            gpu_hours=GpuHours(
                known=self.gpu_hours,
                complete=not self.unknown,
                unknown=list(self.unknown),
                wall_hours=self.wall_hours,
                by_kind={
                    kind.kind: KindPrice(
                        stages=kind.stages,
                        gpu_hours=kind.gpu_hours,
                        unknown=kind.unknown,
                        gb=kind.kept / GB,
                    )
                    for kind in self.kinds
                },
            ),
            usd=Dollars(
                known=self.usd,
                complete=not self.unpriced,
                calls=[_summary(call) for call in self.calls],
                prices=read_prices().origin,
                retirements=list(self.retirements),
            ),
            disk_gb=DiskGb(
                total=self.disk / GB,
                kept=sum(kind.kept for kind in self.kinds) / GB,
                in_passing=self.passing / GB,
                models={n: None if size is None else size / GB for n, size in self.models.items()},
            ),
            uncertainty=self.assumed.uncertainty,
            assumptions={
                name: Assumed(value=value, source=source)
                for name, (value, source) in listed().items()
            },
        )


def _summary(call: Calls) -> CallPrice:
    price = price_of(call.role, call.model)
    return CallPrice(
        role=call.role.lower(),
        model=call.model,
        requests=round(call.requests),
        prompt_tokens=round(call.prompt_tokens),
        completion_tokens=round(call.completion_tokens),
        usd_per_million=None if price is None else (price.prompt, price.completion),
        usd=call.usd,
    )


def price(
    stages: Iterable[Stage],
    profile: Profile,
    hardware: Hardware | None,
    done: Iterable[str] = (),
    assumed: Assumptions | None = None,
) -> Price:
    """Price the stages that are left of a plan.

    Args:
        stages: the plan's stages; one that is there twice costs once.
        profile: the profile that they were planned for.
        hardware: the GPUs.
        done: fingerprints of the stages that are done, which cost nothing.
        assumed: what is assumed; the package's by default.

    Raises:
        KeyError: a stage is of a kind that only the embedded world has.
    """
    assumed = assumed or assumptions()
    finished = set(done)
    left = list({s.fingerprint: s for s in stages if s.fingerprint not in finished}.values())
    costing = Costing(profile, hardware, assumed)
    priced = [(stage, stage_cost(costing, stage)) for stage in left]
    kinds = dict.fromkeys(stage.kind for stage in left)
    return Price(
        hardware=hardware,
        kinds=tuple(_of_kind(kind, [c for s, c in priced if s.kind == kind]) for kind in kinds),
        calls=_together([call for _, cost in priced for call in cost.calls]),
        models=_models(left, assumed),
        passing=max((cost.passing for _, cost in priced), default=0.0),
        unknown=tuple(dict.fromkeys(cost.unknown for _, cost in priced if cost.unknown)),
        assumed=assumed,
    )


def _of_kind(kind: str, costs: Sequence[StageCost]) -> KindCost:
    known = [cost.gpu_s for cost in costs if cost.gpu_s is not None]
    return KindCost(
        kind,
        len(costs),
        sum(known) / HOUR,
        len(costs) - len(known),
        sum(cost.kept for cost in costs),
    )


def _together(found: Iterable[Calls]) -> tuple[Calls, ...]:
    """Return requests added up by role and model."""
    summed: dict[tuple[Role, str], Calls] = {}
    for call in found:
        key = (call.role, call.model)
        summed[key] = summed[key] + call if key in summed else call
    return tuple(summed.values())


def _models(stages: Iterable[Stage], assumed: Assumptions) -> dict[str, float | None]:
    """Return the bytes of each model that the stages load from outside the store."""
    from harness.worlds.real.world import MODELS

    found: dict[str, float | None] = {}
    for stage in stages:
        for setting in MODELS:
            identity = stage.settings.get(setting)
            if isinstance(identity, str):
                shape = shape_of(identity)
                size = None if shape is None else shape.parameters * float(assumed.disk.parameter)
                found[identity.partition("@")[0]] = size
    return found


@dataclass(frozen=True)
class Limits:
    """What may be spent; None for no limit.

    Attributes:
        gpu_hours: GPU hours.
        usd: dollars to sellers of models.

    Raises:
        UserError: a limit is below 0.
    """

    gpu_hours: float | None = None
    usd: float | None = None

    def __post_init__(self) -> None:
        for option, value in (("--max-gpu-hours", self.gpu_hours), ("--budget-usd", self.usd)):
            if value is not None and not 0.0 <= value < float("inf"):
                raise UserError(f"`{option} {value:g}` is no limit; give a number, 0 or more")


def over_limits(price: Price, limits: Limits) -> str | None:
    """Return in a sentence which limits a price passes, or cannot be held against; None if none.

    The estimate itself is compared, not its upper end; a price that equals a limit keeps it.
    """
    reasons = [*_over_hours(price, limits.gpu_hours), *_over_budget(price, limits.usd)]
    return "; ".join(reasons) if reasons else None


def _over_hours(price: Price, limit: float | None) -> Iterator[str]:
    if limit is None:
        return
    if price.unknown:
        yield (
            f"--max-gpu-hours cannot be held, because {'; '.join(price.unknown)}; add its shape to "
            "harness/cost/model_shapes.yaml or leave the limit out"
        )
    elif price.gpu_hours > limit:
        yield (
            f"the plan takes about {price.gpu_hours:,.1f} GPU hours and --max-gpu-hours is "
            f"{limit:,g}; raise it, or ask for fewer rows or seeds"
        )


def _over_budget(price: Price, limit: float | None) -> Iterator[str]:
    if limit is None:
        return
    for call in price.unpriced:
        yield (
            f"--budget-usd needs the price of {call.model}, which is not known; give it in "
            f"HARNESS_{call.role}_PRICE, as dollars for a million tokens in and out (`1.25,5`; "
            "`0,0` for a model of your own)"
        )
    if not price.unpriced and price.usd > limit:
        yield (
            f"the plan costs about ${price.usd:,.2f} and --budget-usd is {limit:,g}; raise it, or "
            "ask for fewer rows or seeds"
        )
