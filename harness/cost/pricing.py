"""Prices a plan: the sum over its distinct unfinished stages."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from harness.cost.assumptions import Gpus, assumed, assumptions, parameters_of
from harness.cost.price import (
    CallPrice,
    DiskGb,
    Dollars,
    GpuHours,
    KindPrice,
    PlanPrice,
    PricedHardware,
    ServerStarts,
    Uncertainty,
)
from harness.cost.work import Calls, Costing, StageCost, parameters
from harness.endpoint.access import price_of
from harness.endpoint.prices import read_prices
from harness.pipeline.factory import Turns, needs_of
from harness.registry.profile import REWARD_JUDGE, Profile
from harness.registry.serving import ServedRole
from harness.runtime.stage import Stage
from harness.worlds.needs import MODELS, asked_by, served_here

HOUR = 3600.0
GB = 1e9


class Speeds:
    """Estimates stages' GPU seconds, from finished stages or from the table of speeds."""

    def __init__(self, profile: Profile, hardware: Gpus | None) -> None:
        self._profile = profile
        self._hardware = hardware
        self._needs = needs_of(profile)
        self.turns = Turns(profile, hardware.count if hardware else 1)
        self._took: dict[str, tuple[float, float]] = {}

    def gpus_of(self, kind: str) -> int:
        """Return how many GPUs a stage of a kind holds, limited by those available."""
        if self._hardware is None:
            return 0
        there, needed = self._hardware.count, self._needs.of(kind).gpus
        # Without a `hardware` section, each stage gets the whole machine.
        return min(there, max(1, needed)) if self._profile.hardware else there

    def learn(self, kind: str, cost: StageCost, wall_s: float) -> None:
        tokens, seconds = self._took.get(kind, (0.0, 0.0))
        tokens += sum(load.tokens for load in cost.loads)
        self._took[kind] = tokens, seconds + wall_s * self.gpus_of(kind)

    def measured(self, kind: str) -> bool:
        return all(self._took.get(kind, (0.0,)))

    def gpu_s(self, stage: Stage, cost: StageCost) -> float | str:
        """Return a stage's GPU seconds, summed over the GPUs it holds, or why they are unknown."""
        if self._hardware is None or not cost.loads:
            return 0.0
        if self.measured(stage.kind):
            tokens, seconds = self._took[stage.kind]
            return seconds * sum(load.tokens for load in cost.loads) / tokens
        gpu, held = self._hardware.gpu, self.gpus_of(stage.kind)
        # The startup of a server shared by stages is counted separately.
        total = 0.0 if self.turns.roles(stage) else assumed("start_s") * held
        for load in cost.loads:
            name, size = load.model.partition("@")[0], parameters_of(load.model)
            speed = getattr(gpu, load.verb)
            if size is None:
                return f"the size of {name} is not known"
            if size * assumed("disk.parameter") > gpu.memory * held:
                return f"{name} does not fit on {held} {self._hardware.name}"
            if speed is None:
                return f"the speed of a {self._hardware.name} in {load.verb} is not known"
            total += load.tokens * size / speed
        return total


def price(
    stages: Iterable[Stage],
    profile: Profile,
    hardware: Gpus | None,
    done: Mapping[str, float | None] | None = None,
) -> PlanPrice:
    """Price the distinct unfinished stages of a plan.

    `stages` are in dependency order. `done` maps the fingerprints of finished stages to wall-clock
    seconds, or None if those say nothing about the hardware.

    Raises:
        KeyError: A stage is of a kind that only the embedded world has.
        UserError: A user-supplied price cannot be parsed.
    """
    finished, costing, speeds = done or {}, Costing(profile), Speeds(profile, hardware)
    distinct = {stage.fingerprint: stage for stage in stages}
    left = [stage for name, stage in distinct.items() if name not in finished]
    waiting = {stage.kind for stage in left}
    for name, wall_s in finished.items():
        stage = distinct.get(name)
        if stage is not None and wall_s is not None and stage.kind in waiting:
            speeds.learn(stage.kind, costing.cost(stage), wall_s)
    costs = [(stage, costing.cost(stage)) for stage in left]
    starts = speeds.turns.starts(left)
    each = assumed("server_start_s") / HOUR if hardware else 0.0
    servers = [
        ServerStarts(role=role, starts=number, gpu_hours=number * each)
        for role, number in starts.items()
    ]
    return PlanPrice(
        hardware=None
        if hardware is None
        else PricedHardware(gpu=hardware.name, gpus=hardware.count, **hardware.gpu.model_dump()),
        gpu_hours=_gpu_hours(costs, speeds, hardware, sum(it.gpu_hours for it in servers)),
        usd=_dollars(call for _, cost in costs for call in cost.calls),
        disk_gb=_disk(costs, _models(left, profile)),
        servers=servers,
        uncertainty=Uncertainty(gpu=assumed("uncertainty.gpu"), money=assumed("uncertainty.money")),
        assumptions=dict(assumptions()),
    )


def _gpu_hours(
    costs: Sequence[tuple[Stage, StageCost]],
    speeds: Speeds,
    hardware: Gpus | None,
    starting: float,
) -> GpuHours:
    """Return the GPU hours of stages (in dependency order) and of server startups."""
    by_kind: dict[str, KindPrice] = {}
    unknown = dict[str, None]()
    ends: dict[str, float] = {}
    for stage, cost in costs:
        seconds = speeds.gpu_s(stage, cost)
        if not (known := not isinstance(seconds, str)):
            unknown[str(seconds)] = None
        took = float(seconds) if known else 0.0
        before = by_kind.get(stage.kind)
        by_kind[stage.kind] = KindPrice(
            stages=1 + (before.stages if before else 0),
            gpu_hours=took / HOUR + (before.gpu_hours if before else 0.0),
            unknown=(not known) + (before.unknown if before else 0),
            measured=speeds.measured(stage.kind),
            gb=cost.kept / GB + (before.gb if before else 0.0),
        )
        begins = max((ends.get(s.fingerprint, 0.0) for s in stage.inputs.values()), default=0.0)
        ends[stage.fingerprint] = begins + took / max(1, speeds.gpus_of(stage.kind))
    total = starting + sum(kind.gpu_hours for kind in by_kind.values())
    chain = max(ends.values(), default=0.0) / HOUR
    return GpuHours(
        known=total,
        complete=not unknown,
        unknown=list(unknown),
        wall_hours=None if hardware is None else max(total / hardware.count, chain),
        by_kind=by_kind,
    )


def _dollars(found: Iterable[Calls]) -> Dollars:
    summed: dict[tuple[ServedRole, str], Calls] = {}
    for call in found:
        key = (call.role, call.model)
        summed[key] = summed[key] + call if key in summed else call
    calls = []
    for call in summed.values():
        price = price_of(call.role, call.model)
        calls.append(
            CallPrice(
                role=call.role,
                model=call.model,
                requests=round(call.requests),
                prompt_tokens=round(call.prompt_tokens),
                completion_tokens=round(call.completion_tokens),
                usd_per_million=None if price is None else (price.prompt, price.completion),
                usd=call.usd,
            )
        )
    known, prices = [call.usd for call in calls if call.usd is not None], read_prices()
    return Dollars(
        known=sum(known),
        complete=len(known) == len(calls),
        calls=calls,
        prices=prices.origin,
    )


def _disk(costs: Sequence[tuple[Stage, StageCost]], models: dict[str, float | None]) -> DiskGb:
    """Return the disk space for stages and for the models they load (sizes in GB)."""
    online = [stage for stage, _ in costs if stage.kind == "online"]
    before = {needed.fingerprint for stage in online for needed in stage.inputs.values()}
    spent = sum(parameters(stage) for stage in online if stage.fingerprint in before)
    kept = sum(cost.kept for _, cost in costs) / GB
    passing = max((cost.passing for _, cost in costs), default=0.0) / GB
    return DiskGb(
        total=kept + sum(size for size in models.values() if size is not None) + passing,
        kept=kept,
        spent=spent * (assumed("disk.parameter") + assumed("disk.moments")) / GB,
        in_passing=passing,
        models=models,
    )


def _models(stages: Iterable[Stage], profile: Profile) -> dict[str, float | None]:
    """Return the size in GB of each external model that the stages load or have served."""
    found: dict[str, float | None] = {}
    for stage in stages:
        named = [stage.settings.get(setting) for setting in MODELS]
        judge = str(stage.settings.get("judge", ""))
        named += [judge.removeprefix(REWARD_JUDGE)] if judge.startswith(REWARD_JUDGE) else []
        served = (served_here(profile, role, model) for role, model in asked_by(stage))
        for identity in [*named, *(it.model for it in served if it is not None)]:
            if isinstance(identity, str):
                size = parameters_of(identity)
                gb = None if size is None else size * assumed("disk.parameter") / GB
                found[identity.partition("@")[0]] = gb
    return found
