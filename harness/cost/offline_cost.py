"""What the offline stages with a model cost: generate, annotate, evolve, rewrite, train."""

from __future__ import annotations

from typing import Any, cast

from harness.cost.calls import Calls
from harness.cost.costing import Costing, StageCost
from harness.cost.gpu_time import GpuTime
from harness.runtime.stage import Stage

WITH_REFERENCE = ("dpo", "sppo")
"""Algorithms that evaluate a reference, once before training."""


def generate_cost(c: Costing, stage: Stage) -> StageCost:
    """Return the cost of n answers to each prompt."""
    prompts, s = c.sizes.of(stage), stage.settings
    prompt = c.prompt_tokens(prompts)
    answer = c.answer_tokens(prompts, cast(int, s["max_new_tokens"]))
    count = float(prompts.total * cast(int, s["n"]))

    def work(gpu: GpuTime) -> float:
        return gpu.generating(c.policy(stage), count, prompt, answer, count)

    return c.timed(work, c.text_bytes(count, answer) + c.text_bytes(prompts.total, prompt))


def annotate_cost(c: Costing, stage: Stage) -> StageCost:
    """Return the cost of a reward for each answer."""
    prompts, s = c.sizes.of(stage), stage.settings
    rollouts = stage.inputs["completions"].settings
    n = cast(int, rollouts["n"])
    prompt = c.prompt_tokens(prompts)
    answer = c.answer_tokens(prompts, cast(int, rollouts["max_new_tokens"]))
    count = float(prompts.total * n)
    compared = n if s.get("rewards") == "win_probability" else 0

    def work(gpu: GpuTime) -> float:
        return c.rewarding(gpu, str(s["reward_model"]), count, compared, prompt, answer)

    return c.timed(work, c.text_bytes(count, 0))


def evolve_cost(c: Costing, stage: Stage) -> StageCost:
    """Return the cost of the creator's rewrites."""
    children = c.sizes.of(stage).total
    asked: tuple[Calls, ...] = ()
    if "rewriting" in stage.settings:
        model = str(cast(dict[str, Any], stage.settings["rewriting"])["model"])
        asked = (c.rewrites(model, children),)
    # Prompts, and once more among the attempts.
    return c.asking(asked, 2 * c.text_bytes(children, c.assumed.tokens.evolved_prompt))


def rewrite_cost(c: Costing, stage: Stage) -> StageCost:
    """Return the cost of the policy's revision of each chosen answer, and of its reward."""
    prompts, s = c.sizes.of(stage), stage.settings
    answer = c.answer_tokens(prompts, cast(int, s["max_new_tokens"]))
    prompt = c.prompt_tokens(prompts)
    asked = prompt + answer + c.assumed.tokens.rewrite_instruction
    count = float(prompts.total)

    def work(gpu: GpuTime) -> float:
        revising = gpu.generating(c.policy(stage), count, asked, answer, count)
        return revising + c.rewarding(gpu, str(s["reward_model"]), count, 0, prompt, answer)

    return c.timed(work, c.text_bytes(count, prompt + 2 * answer))


def train_cost(c: Costing, stage: Stage) -> StageCost:
    """Return the cost of training on pairs."""
    pairs, s = c.sizes.of(stage), stage.settings
    longest = cast(int, s["max_length"])
    prompt = min(c.prompt_tokens(pairs), cast(int, s["max_prompt_length"] or longest))
    length = min(prompt + c.answer_tokens(pairs), longest)
    numerics = cast(dict[str, Any], s.get("numerics", {}))
    forwards = c.training_forwards(
        cast(float, s["epochs"]),
        lora=numerics.get("lora") is not None,
        reference=s["algorithm"] in WITH_REFERENCE,
    )

    def work(gpu: GpuTime) -> float:
        return gpu.training(c.policy(stage), 2.0 * pairs.total, length, forwards)

    disk, size = c.assumed.disk, c.parameters(stage)
    return c.timed(work, size * disk.parameter, size * disk.checkpoint)


def rows_cost(c: Costing, stage: Stage) -> StageCost:
    """Return the cost of a stage that only moves rows: what it leaves on disk."""
    prompts = c.sizes.of(stage)
    answers = 2 * c.answer_tokens(prompts) if stage.kind in PAIRS else 0.0
    return StageCost(kept=c.text_bytes(prompts.total, c.prompt_tokens(prompts) + answers))


PAIRS = ("pair", "mix", "join", "repeat")
"""Kinds of stages that leave pairs of answers."""
