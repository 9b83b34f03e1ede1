"""The stages of reward models: training a graded one, and measuring how good any of them is."""

from __future__ import annotations

from typing import Any, cast

import numpy as np

from harness.runtime.stage import StageContext
from harness.worlds.embedded import world
from harness.worlds.protocol import ACCURACY, BEST_OF_N
from harness.worlds.stage_io import read_rewards, read_rows, write_json, write_rows


def reward_model_stage(ctx: StageContext) -> None:
    """Train a reward model on noisy preferences; writes `model/` and `log.json`."""
    from harness.worlds.embedded.reward import RewardConfig, fit_reward_model

    fields: dict[str, Any] = {k: v for k, v in ctx.settings.items() if k != "policy"}
    # As everywhere in a worker: one thread, and nothing that depends on a compiler being there.
    config = RewardConfig(**fields, threads=1, compiled=False)
    history: list[dict[str, float]] = []

    def on_step(step: int, loss: float) -> None:
        history.append({"step": step, "loss": loss})
        ctx.report(step, {"loss": loss})

    policy = world.resolve(str(ctx.settings["policy"]))
    fit_reward_model(config, policy, ctx.output / "model", on_step)
    summary = {"steps": config.steps, "loss_last": history[-1]["loss"]}
    write_json(ctx.output / "log.json", {"history": history, "summary": summary})


def held_out_stage(ctx: StageContext) -> None:
    """Let a reward model order held-out pairs; writes `scores.parquet`: 1 where it is right."""
    from harness.worlds.embedded.reward import RewardConfig, held_out_in_order

    s = ctx.settings
    config = RewardConfig(
        seed=cast(int, s["seed"]), held_out=cast(int, s["held_out"]), reads=cast(Any, s["reads"])
    )
    if "reward_model" in ctx.inputs:
        model = ctx.inputs["reward_model"] / "model"
    else:
        model = world.resolve(str(s["reward_model"]))
    right = held_out_in_order(model, config)
    rows = [
        {"prompt_id": f"pair{i:05d}", "column": ACCURACY, "value": float(is_right)}
        for i, is_right in enumerate(right)
    ]
    write_rows(ctx.output / "scores.parquet", rows)
    write_json(ctx.output / "summary.json", {"pairs": len(right), "right": sum(right)})


def best_of_n_stage(ctx: StageContext) -> None:
    """Score each prompt's best answer by the rewards; writes `scores.parquet` and `summary.json`.

    The judge scores it, and of equal rewards the first counts. The summary also has the mean score
    of all answers and of the judge's own best ones, between which the choice lies.
    """
    from harness.worlds.embedded.judge import JUDGE
    from harness.worlds.embedded.oracle import score

    judge = str(ctx.settings["judge"])
    if judge.partition("/")[2] != JUDGE:
        raise ValueError(f"the embedded world has no judge `{judge}`; use `{JUDGE}`")
    answers = read_rows(ctx.inputs["completions"] / "completions.parquet")
    ids, rewards = read_rewards(ctx.inputs["rewards"])
    scores = np.array([score(row["prompt"], row["completion"]) for row in answers])
    scores = scores.reshape(rewards.shape)
    chosen = scores[np.arange(len(scores)), rewards.argmax(axis=1)]
    rows = [
        {"prompt_id": prompt_id, "column": BEST_OF_N, "value": float(value)}
        for prompt_id, value in zip(ids, chosen, strict=True)
    ]
    write_rows(ctx.output / "scores.parquet", rows)
    summary = {
        "n": rewards.shape[1],
        "judge": judge,
        "chosen": float(chosen.mean()),
        "mean_answer": float(scores.mean()),
        "best_by_judge": float(scores.max(axis=1).mean()),
    }
    write_json(ctx.output / "summary.json", summary)
