"""A toy sweep: real plans of real recipes, with stages that do arithmetic instead of training.

A policy's "skill" grows with every training by ten times the evolved share of its mix, and by its
seed. The judge scores four validation prompts with the skill, less or more by one. So the mean of
`val_wr` is `10 * evolved_share + seed`, which makes every objective known by hand.
"""

import json
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Self

import pyarrow as pa
import pyarrow.parquet as pq

from harness.pipeline.factory import KINDS
from harness.project import store_dir
from harness.registry.profile import Profile, load_profiles
from harness.runtime import Plan, RunOutcome, Stage, StageContext, Store
from harness.runtime.stage import PROGRESS, append_point
from harness.sweep.conduct import Order
from harness.sweep.declaration import Sweep

FUNCTIONS = dict.fromkeys(KINDS, "toy_sweep:stage") | {
    kind: f"toy_sweep:{kind}_stage" for kind in ("prompts", "mix", "train", "judge")
}

SHARE = "recipe.creator.evolved_share"
METRIC = "recipe.creator.metric"

OFFLINE: Mapping[str, Any] = {
    "name": "toy",
    "question": "Which share?",
    "recipe": {"algorithm": "dpo", "chain": ["human", "eva"]},
    "space": {
        SHARE: {"suggest_float": {"low": 0.2, "high": 0.8, "step": 0.2}},
        METRIC: {"suggest_categorical": {"choices": ["a_min", "var"]}},
    },
    "objectives": [{"name": "win_rate", "measure": "val_wr", "direction": "maximize"}],
    "seeds": [0, 1],
    "sampler": {"kind": "random", "seed": 0},
    "trials": 4,
    "result": {"seeds": [10, 11]},
}


def toy(**changes: Any) -> Sweep:
    return Sweep.model_validate({**OFFLINE, **changes})


def micro() -> Profile:
    return load_profiles()["micro"]


def choice(*values: Any) -> dict[str, Any]:
    return {"suggest_categorical": {"choices": list(values)}}


def order_of(sweep: Sweep, **changes: Any) -> Order:
    return Order(sweep, micro(), **changes)


class InlineEngine:
    """Computes stages in this process; `fails` says which fail."""

    def __init__(self, fails: Callable[[Stage], bool] = lambda stage: False) -> None:
        self.store = Store(store_dir())
        self.fails = fails
        self.computed: list[Stage] = []
        self.on_event: Any = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def run(self, plan: Plan) -> RunOutcome:
        done: list[Stage] = []
        for stage in plan.pending(self.store):
            if self.fails(stage):
                return RunOutcome(done, {stage: "the toy is broken"})
            compute(self.store, stage)
            done.append(stage)
        self.computed += done
        return RunOutcome(done)


def compute(store: Store, stage: Stage) -> None:
    from toy_identities import PROVENANCE  # which the workers' path has not

    inputs = {name: store.open(s.fingerprint) for name, s in stage.inputs.items()}
    function = globals()[FUNCTIONS[stage.kind].partition(":")[2]]
    with store.writing(stage, PROVENANCE) as output:
        report = partial(append_point, output / PROGRESS)
        function(StageContext(stage.settings, inputs, output, stage.seed, report))


def stage(ctx: StageContext) -> None:
    _write(ctx, _skill(ctx))


def prompts_stage(ctx: StageContext) -> None:
    """Prompts carry the seed of their run, which ends up in the skill."""
    _write(ctx, {"policy": 0.0, "share": 0.0, "seed": float(ctx.settings.get("seed", 0))})  # type: ignore[arg-type]


def mix_stage(ctx: StageContext) -> None:
    _write(ctx, {**_skill(ctx), "share": float(ctx.settings["evolved_share"])})  # type: ignore[arg-type]


def train_stage(ctx: StageContext) -> None:
    skill = _skill(ctx)
    _write(ctx, {**skill, "policy": 10.0 * skill["share"] + skill["seed"]})
    ctx.report(1, {"loss": 0.5})


def judge_stage(ctx: StageContext) -> None:
    skill = _skill(ctx)["policy"]
    name = str(ctx.settings["benchmark"]).partition("/")[2].partition("@")[0]
    columns = {
        "validation": ["val_wr", "val_len"],
        "arena_hard": ["ah_wr", "ah_len"],
        "alpaca_eval": ["ae_lc", "ae_wr"],
        "mt_bench": ["mt_avg", "mt_t1", "mt_t2"],
        "downstream": ["gsm8k", "wmdp"],
    }[name]
    rows = [
        {"prompt_id": f"q{i}", "column": column, "value": skill + (-1.0) ** i}
        for column in columns
        for i in range(4)
    ]
    pq.write_table(pa.Table.from_pylist(rows), ctx.output / "scores.parquet")


def _skill(ctx: StageContext) -> dict[str, float]:
    """Return what the inputs carry, the largest of each."""
    found = {"policy": 0.0, "share": 0.0, "seed": 0.0}
    for folder in ctx.inputs.values():
        for name, value in json.loads((folder / "skill.json").read_text()).items():
            found[name] = max(found[name], value)
    return found


def _write(ctx: StageContext, skill: Mapping[str, float]) -> None:
    (ctx.output / "skill.json").write_text(json.dumps(dict(skill)))
