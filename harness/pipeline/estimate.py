"""What the rest of a plan takes: requests to paid endpoints with their price, and time.

Requests are counted from the stages, as if every rewrite were usable and no reply were kept. Time
is scaled from finished stages of the same kind and base policy in the same store; where there are
none, there is no estimate, except at `micro`, whose seconds are known (`factory.KINDS`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from typing import Any

from harness.endpoint.access import price_of
from harness.eva.informativeness import selected_count
from harness.pipeline.algorithm import rollouts_used
from harness.pipeline.factory import KINDS, runs_a_model
from harness.registry.profile import Profile
from harness.registry.serving import ServedRole
from harness.runtime import Plan, Store
from harness.runtime.files import StoreError
from harness.runtime.stage import Stage
from harness.strict import Strict
from harness.worlds import DOWNSTREAM
from harness.worlds.lookup import world_of
from harness.worlds.needs import asked_by, served_here
from harness.worlds.real.benchmarks import class_of, is_benchmark

TOKENS: Mapping[ServedRole, tuple[int, int]] = {
    "policy": (195, 450),
    "creator": (495, 235),
    "scorer": (385, 10),
    "judge": (1500, 450),
}
"""Typical tokens of a request and its reply, by role: of UltraFeedback's prompts, and of published
judgments on Arena-Hard and AlpacaEval."""

RETRIED = 0.1
"""Share of rewrites requested again (ours)."""

FIRST_INPUTS = ("only", "prompts", "completions", "selected", "pairs")
"""Inputs whose prompts a stage processes, in order of preference."""


class PaidRequests(Strict):
    """Requests that the rest of a plan sends to one model in one role."""

    role: ServedRole
    model: str
    requests: int
    usd_per_million: tuple[float, float] | None
    """Price of prompt and reply tokens; null if it is not known."""
    usd: float | None
    """Price of the requests at typical lengths."""


def requests_of(profile: Profile, stages: Iterable[Stage]) -> list[PaidRequests]:
    """Return the requests of some stages to models that the harness does not serve itself."""
    sent = [
        (asked, stage)
        for stage in stages
        for asked in asked_by(stage)
        if served_here(profile, *asked) is None
    ]
    items = _items(profile) if sent else {}
    counts: dict[tuple[ServedRole, str], float] = {}
    for asked, stage in sent:
        counts[asked] = counts.get(asked, 0.0) + _requests(stage, items)
    found = []
    for (role, model), number in counts.items():
        price, (prompt, reply) = price_of(role, model), TOKENS[role]
        found.append(
            PaidRequests(
                role=role,
                model=model,
                requests=round(number),
                usd_per_million=None if price is None else (price.prompt, price.completion),
                usd=None if price is None else number * price.of(prompt, reply),
            )
        )
    return found


def _requests(stage: Stage, items: Mapping[str, int]) -> float:
    s = stage.settings
    match stage.kind:
        case "rate":
            return 2 * prompts_of(stage)  # complexity and quality
        case "evolve":
            return (1 + RETRIED) * prompts_of(stage)
        case "online":
            return (1 + RETRIED) * _steps(stage) * _rewrites(s["online"])
        case "judge" | "answer":
            identity = s["benchmark"]
            number = items[_place(identity)]
            if not is_benchmark(identity):
                return number
            kind = class_of(identity)
            return number * (kind.verdicts if stage.kind == "judge" else kind.turns)
    return prompts_of(stage) * int(s.get("n", 1))


def _items(profile: Profile) -> dict[str, int]:
    """Return the number of questions of each benchmark, by its identity without the digest."""
    world, found = world_of(profile), dict[str, int]()
    for name, it in profile.benchmarks.items():
        if not it.of_prompts:
            # Table 9's tasks have questions of their own; other scores share the answers.
            total = sum if name == DOWNSTREAM else max
            found.setdefault(_place(world.benchmark(name)), total(map(it.items_of, it.columns)))
    return found


def _place(identity: str) -> str:
    """Return a benchmark's identity without the digest of its files."""
    return identity.partition("@")[0]


def _rewrites(online: Mapping[str, Any]) -> float:
    """Return the rewrites of a step while human prompts last; it has half as many afterward.

    A league has no share: it evolves the better half.
    """
    evolved = round(online.get("evolve_share", 0.5) * online["minibatch"])
    return float(evolved * online["n_new"])


def _steps(stage: Stage) -> int:
    """Return the steps of an online segment; with a budget, about."""
    s = stage.settings
    if "budget" not in s:
        return int(s["last_step"]) - int(s["first_step"]) + 1
    before = stage.inputs.get("before")
    spent = 0 if before is None else before.settings["budget"]["amount"]
    t = s["training"]
    used = rollouts_used(t["minibatch"], t["rollouts"], t["max_new_tokens"])
    return int((s["budget"]["amount"] - spent) // {"steps": 1, **used}[s["budget"]["of"]])


def prompts_of(stage: Stage) -> int:
    """Return how many prompts a stage yields, or processes if it yields none; 1 if it has none."""
    s, inputs = stage.settings, stage.inputs
    match stage.kind:
        case "prompts":
            return int(s["count"])
        case "select" | "choose":
            return selected_count(prompts_of(inputs["prompts"]), s["fraction"])
        case "evolve":
            return prompts_of(inputs["selected"]) * int(s["evolutions"])
        case "mix" | "repeat":
            return int(s["size"])
        case "join":
            return sum(map(prompts_of, inputs.values()))
    first = next((inputs[name] for name in FIRST_INPUTS if name in inputs), None)
    return 1 if first is None else prompts_of(first)


class Timings:
    """Seconds that stages take, scaled by size from finished ones of the same kind."""

    def __init__(self, finished: Iterable[tuple[Stage, float]], *, shipped: bool) -> None:
        self._took: dict[tuple[object, ...], tuple[float, float]] = {}
        self._shipped = shipped
        for stage, wall_s in finished:
            seconds, size = self._took.get(_work(stage), (0.0, 0.0))
            self._took[_work(stage)] = seconds + wall_s, size + _size(stage)

    def seconds(self, stage: Stage) -> float | None:
        """Return a stage's expected seconds, or None if nothing like it was timed."""
        if (took := self._took.get(_work(stage))) is not None:
            return took[0] / took[1] * _size(stage)
        untimed = runs_a_model(stage) or any(asked_by(stage))
        return KINDS[stage.kind].seconds if self._shipped or not untimed else None

    def expected(self, stage: Stage) -> float:
        """Return a stage's expected seconds, or if nothing like it was timed, those at `micro`."""
        return self.seconds(stage) or KINDS[stage.kind].seconds

    def is_timed(self, stage: Stage) -> bool:
        return self.seconds(stage) is not None


def timings_of(plan: Plan, store: Store, profile: Profile) -> Timings:
    """Return timings from a plan's finished stages, or if they leave some untimed, the store's."""
    done = [(stage, found["wall_s"]) for stage in plan if (found := store.find(stage.fingerprint))]
    shipped = profile.name == "micro"  # which the seconds in `KINDS` were measured at
    own = Timings(done, shipped=shipped)
    if done and all(own.seconds(stage) is not None for stage in plan):
        return own
    # Only if needed: a store may have many stages.
    return Timings(finished_stages(store), shipped=shipped)


def finished_stages(store: Store) -> Iterator[tuple[Stage, float]]:
    """Yield a store's intact stages whose inputs are intact as well, with their seconds."""
    manifests = {}
    for fingerprint in store.fingerprints():
        try:
            manifests[fingerprint] = store.manifest(fingerprint)
        except StoreError:
            continue  # named by whoever needs it

    @cache
    def build(fingerprint: str) -> Stage | None:
        found = manifests.get(fingerprint)
        if found is None or found["kind"] not in KINDS:
            return None
        inputs = {name: build(needed) for name, needed in found["inputs"].items()}
        there = {name: stage for name, stage in inputs.items() if stage is not None}
        if len(there) < len(inputs):
            return None
        return Stage(found["kind"], found["version"], found["settings"], there)

    for fingerprint, manifest in manifests.items():
        if (stage := build(fingerprint)) is not None:
            yield stage, manifest["wall_s"]


def _work(stage: Stage) -> tuple[object, ...]:
    """Return a key: among stages that share it, time depends on size alone."""
    s = stage.settings
    named = ("algorithm", "benchmark", "judge", "reward_model", "engine")
    evolves = s.get("creator") is not None
    return (stage.kind, evolves, _policy(stage), *(str(s.get(name)) for name in named))


def _policy(stage: Stage) -> str | None:
    """Return the base policy behind a stage, or None."""
    if "policy" in stage.settings:
        return str(stage.settings["policy"])
    return next(filter(None, map(_policy, stage.inputs.values())), None)


def _size(stage: Stage) -> float:
    s = stage.settings
    if stage.kind == "online":
        return float(max(1, _steps(stage)))
    return float(max(1, prompts_of(stage)) * float(s.get("epochs", 1)) * int(s.get("n", 1)))
