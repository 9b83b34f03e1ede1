"""What the stages without a model do, from prompts to the mix; and where each kind is found.

Stage functions are the only place where the method's pure parts, the models and the disk meet.
Each takes a `StageContext`; the files it reads and writes are named in its docstring.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

import numpy as np

from harness.errors import HarnessError
from harness.eva.evolving import Prompt, Shape, evolve
from harness.eva.informativeness import informativeness, weights
from harness.eva.mixing import evolved_count, mix, repeated
from harness.eva.pairs import best_against_worst
from harness.eva.selection import select, selected_count
from harness.runtime.stage import StageContext
from harness.worlds.lookup import STAGES, runtime_of
from harness.worlds.stage_io import (
    ATTEMPT_SCHEMA,
    PAIR_SCHEMA,
    PROMPT_SCHEMA,
    SELECTED_SCHEMA,
    progress_callback,
    read_prompts,
    read_rewards,
    read_rows,
    write_json,
    write_rows,
)

FUNCTIONS: Mapping[str, str] = {
    **{
        k: f"{__name__}:{k}_stage"
        for k in ("prompts", "select", "evolve", "pair", "mix", "join", "rate", "repeat")
    },
    **{
        k: f"harness.trainer.model_steps:{k}_stage"
        for k in ("generate", "annotate", "rewrite", "train", "answer", "judge")
    },
    "online": "harness.trainer.online_steps:online_stage",
    **STAGES,
}
"""The function of each kind of stage, by dotted name."""


def prompts_stage(ctx: StageContext) -> None:
    """Cut pieces out of the shuffled pool of new prompts; writes `prompts.parquet`.

    They are human, or matched to the hard benchmark. Of a pool from outside the embedded world it
    also writes `summary.json`. A stage that names a benchmark takes that benchmark's first turns
    instead; a seed beside it only tells apart what is sampled from them.
    """
    if "benchmark" in ctx.settings:
        identity = str(ctx.settings["benchmark"])
        prompts = [
            Prompt(prompt_id=item.item_id, prompt=item.turn_1, source="benchmark")
            for item in runtime_of(identity).questions(identity)
        ]
        write_rows(ctx.output / "prompts.parquet", [vars(p) for p in prompts], PROMPT_SCHEMA)
        return
    runtime = runtime_of(str(ctx.settings["source"]))
    matched = "matched" in ctx.settings
    human = (runtime.matched_prompts if matched else runtime.human_prompts)(ctx.settings)
    kind, source = ("m", "matched") if matched else ("h", "human")
    prompts = [
        Prompt(prompt_id=f"{kind}{i:05d}", prompt=human.pool[i], source=source)
        for i in human.positions
    ]
    write_rows(ctx.output / "prompts.parquet", [vars(p) for p in prompts], PROMPT_SCHEMA)
    if human.summary is not None:
        write_json(ctx.output / "summary.json", human.summary)


def select_stage(ctx: StageContext) -> None:
    """Draw the informative prompts; writes `selected.parquet` in the order drawn.

    Where the signal is shuffled, a prompt's `informativeness` is the one that weighted it, which
    is another prompt's.
    """
    prompts = {row["prompt_id"]: row for row in read_prompts(ctx.inputs["prompts"])}
    ids, rewards = read_rewards(ctx.inputs["rewards"])
    metric = str(ctx.settings["metric"])
    values = informativeness(rewards, metric)
    rng = np.random.default_rng(ctx.seed)
    settings = ctx.settings
    if settings.get("shuffled"):
        values = rng.permutation(values)
    shares = weights(values, metric)
    count = selected_count(len(ids), cast(float, settings["fraction"]))
    drawn = select(shares, count, str(settings["sampling"]), rng, str(settings["too_few"]))
    rows = [
        {
            **prompts[ids[position]],
            "informativeness": float(values[position]),
            "weight": float(shares[position]),
            "draw": draw,
        }
        for draw, position in enumerate(drawn)
    ]
    write_rows(ctx.output / "selected.parquet", rows, SELECTED_SCHEMA)
    summary = {
        "metric": metric,
        "prompts": len(ids),
        "selected": count,
        "without_weight": int(sum(shares[position] == 0.0 for position in drawn)),
        "without_spread": float(np.mean(np.ptp(rewards, axis=1) == 0.0)),
    }
    write_json(ctx.output / "summary.json", summary)


def evolve_stage(ctx: StageContext) -> None:
    """Let the creator evolve the selected prompts.

    Writes `prompts.parquet`, `attempts.parquet` (every call of the creator, with what was wrong)
    and `summary.json`.

    Raises:
        HarnessError: Not one rewrite can be used, so that nothing is left to train on.
    """
    chosen = [
        Prompt(**{name: row[name] for name in PROMPT_SCHEMA.names})
        for row in read_rows(ctx.inputs["selected"] / "selected.parquet")
    ]
    s = ctx.settings
    evolver = runtime_of(str(s["creator"])).evolver(
        s, progress_callback(ctx, "evolved", len(chosen))
    )
    result = evolve(
        chosen,
        evolver.creator,
        evolutions=cast(int, s["evolutions"]),
        retries=cast(int, s["retries"]),
        seed=ctx.seed,
        iteration=cast(int, s["iteration"]),
        shape=cast(Shape, s.get("shape", "chain")),
        over=evolver.over,
    )
    write_rows(ctx.output / "prompts.parquet", [vars(p) for p in result.prompts], PROMPT_SCHEMA)
    if not result.prompts:
        reasons = ", ".join(f"{n} {why}" for why, n in sorted(result.unusable.items()))
        raise HarnessError(
            f"none of {result.attempts} rewrites by {s['creator']} can be used ({reasons}): look "
            "at the prompts it was given, or name another creator in the profile"
        )
    attempts = [{**vars(a), "creator": s["creator"]} for a in result.tried]
    write_rows(ctx.output / "attempts.parquet", attempts, ATTEMPT_SCHEMA)
    summary = {
        "seeds": len(chosen),
        "prompts": len(result.prompts),
        "calls": result.attempts,
        "dropped": result.dropped,
        "unusable": dict(sorted(result.unusable.items())),
        "duplicates": len(result.prompts) - len({p.prompt for p in result.prompts}),
    }
    if evolver.tokens is not None:
        summary["tokens"] = vars(evolver.tokens)
    write_json(ctx.output / "summary.json", summary)


def pair_stage(ctx: StageContext) -> None:
    """Pair best against worst; writes `pairs.parquet` (of the prompts in `only`, if given)."""
    completions = read_rows(ctx.inputs["completions"] / "completions.parquet")
    ids, rewards = read_rewards(ctx.inputs["rewards"])
    n = rewards.shape[1]
    pairs = best_against_worst(rewards, drop_ties=cast(bool, ctx.settings["drop_ties"]))
    only = ctx.inputs.get("only")
    wanted = set(ids) if only is None else {row["prompt_id"] for row in read_prompts(only)}
    rows = []
    for k, position in enumerate(pairs.prompt):
        if ids[position] not in wanted:
            continue
        best = completions[position * n + pairs.chosen[k]]
        worst = completions[position * n + pairs.rejected[k]]
        rows.append(
            {
                **{name: best[name] for name in PROMPT_SCHEMA.names},
                "chosen": best["completion"],
                "rejected": worst["completion"],
                "reward_chosen": float(pairs.reward_chosen[k]),
                "reward_rejected": float(pairs.reward_rejected[k]),
            }
        )
    write_rows(ctx.output / "pairs.parquet", rows, PAIR_SCHEMA)
    # Counted here and not among the pairs, where they may have been dropped.
    tied = {i for i, spread in zip(ids, np.ptp(rewards, axis=1), strict=True) if spread == 0.0}
    write_json(ctx.output / "summary.json", {"pairs": len(rows), "ties": len(tied & wanted)})


def mix_stage(ctx: StageContext) -> None:
    """Mix evolved and original pairs; writes `pairs.parquet` and `summary.json`."""
    base = read_rows(ctx.inputs["base"] / "pairs.parquet")
    evolved = read_rows(ctx.inputs["evolved"] / "pairs.parquet")
    share = cast(float, ctx.settings["evolved_share"])
    size = cast(int, ctx.settings["size"])
    rows = mix(base, evolved, size, share, np.random.default_rng(ctx.seed))
    write_rows(ctx.output / "pairs.parquet", rows, PAIR_SCHEMA)
    wanted = evolved_count(size, share)
    write_json(ctx.output / "summary.json", {"asked": wanted, "evolved": min(wanted, len(evolved))})


def join_stage(ctx: StageContext) -> None:
    """Put all original and all evolved pairs together, shuffled; writes `pairs.parquet`."""
    rows = [
        row for name in ("base", "evolved") for row in read_rows(ctx.inputs[name] / "pairs.parquet")
    ]
    order = np.random.default_rng(ctx.seed).permutation(len(rows))
    write_rows(ctx.output / "pairs.parquet", [rows[i] for i in order], PAIR_SCHEMA)


def rate_stage(ctx: StageContext) -> None:
    """Score prompts; writes `scores.parquet` and `summary.json`."""
    runtime_of(str(ctx.settings["judge"])).rate(ctx)


def repeat_stage(ctx: StageContext) -> None:
    """Go over pairs again and again until they are so many; writes `pairs.parquet`."""
    pairs = read_rows(ctx.inputs["pairs"] / "pairs.parquet")
    rows = repeated(pairs, cast(int, ctx.settings["size"]), np.random.default_rng(ctx.seed))
    write_rows(ctx.output / "pairs.parquet", rows, PAIR_SCHEMA)
