"""What it costs to answer and judge benchmarks, and to have prompts rated or sorted.

Table 9's tasks run in lm-evaluation-harness: the policy answers them, and no endpoint judges.
"""

from __future__ import annotations

from typing import cast

from harness.cost.assumptions import Asked, Judged
from harness.cost.calls import calls
from harness.cost.costing import Costing, StageCost
from harness.cost.gpu_time import GpuTime
from harness.runtime.stage import Stage
from harness.worlds.real.benchmarks import DOWNSTREAM, KINDS, is_lm_eval, kind_of

TURNS = {"mt_bench": 2}
"""Turns of a benchmark's conversations, where they are not one."""

REQUESTS = {"arena_hard": 2, "mt_bench": 2, "alpaca_eval": 1}
"""Requests to a judge for an item: both orders, both turns, or one."""

QUESTIONS = 2
"""What is asked about a rated prompt: complexity and quality."""


def answer_cost(c: Costing, stage: Stage) -> StageCost:
    """Return the cost of a policy's answers to a benchmark."""
    identity = str(stage.settings["benchmark"])
    if is_lm_eval(identity):
        return _tasks(c, stage)
    name, lengths = _judged(c, identity)
    items, turns = cast(int, c.profile.benchmarks[name].items), TURNS.get(name, 1)
    answer = min(lengths.answer, cast(int, stage.settings["max_new_tokens"]))

    def work(gpu: GpuTime) -> float:
        policy = c.policy(stage)
        return sum(
            gpu.generating(
                policy, items, turn * lengths.question + (turn - 1) * answer, answer, items
            )
            for turn in range(1, turns + 1)
        )

    return c.timed(work, c.text_bytes(items * turns, lengths.question + answer))


def judge_cost(c: Costing, stage: Stage) -> StageCost:
    """Return the cost of a judge's verdicts on a benchmark."""
    identity = str(stage.settings["benchmark"])
    if is_lm_eval(identity):
        return StageCost()  # the answers were scored by the package that asked for them
    name, lengths = _judged(c, identity)
    requests = cast(int, c.profile.benchmarks[name].items) * REQUESTS[name]
    prompt = lengths.instructions + lengths.question + lengths.answer + lengths.reference
    asked = calls("JUDGE", str(stage.settings["judge"]), requests, prompt, lengths.reply)
    return c.asking((asked,), c.text_bytes(requests, lengths.reply))


def rate_cost(c: Costing, stage: Stage) -> StageCost:
    """Return the cost of scoring each prompt's complexity and quality."""
    return _about_prompts(c, stage, c.assumed.benchmarks.prompt_judge, QUESTIONS)


def topics_cost(c: Costing, stage: Stage) -> StageCost:
    """Return the cost of sorting each prompt by topic."""
    return _about_prompts(c, stage, c.assumed.benchmarks.topics, 1)


def _about_prompts(c: Costing, stage: Stage, each: Asked, questions: int) -> StageCost:
    prompts = c.sizes.of(stage)
    requests, prompt = questions * prompts.total, each.instructions + c.prompt_tokens(prompts)
    asked = calls("SCORER", str(stage.settings["judge"]), requests, prompt, each.reply)
    return c.asking((asked,), c.text_bytes(requests, 0))


def _judged(c: Costing, identity: str) -> tuple[str, Judged]:
    """Return a benchmark's name in the profile and its lengths."""
    kind = kind_of(identity)
    name = next(name for name, known in KINDS.items() if known is kind)
    return name, cast(Judged, getattr(c.assumed.benchmarks, name))


def _tasks(c: Costing, stage: Stage) -> StageCost:
    """Return the cost of table 9's tasks, answered and scored."""
    declared, tasks = c.profile.benchmarks[DOWNSTREAM], c.assumed.benchmarks.downstream

    def work(gpu: GpuTime) -> float:
        policy, seconds = c.policy(stage), 0.0
        for score in declared.columns:
            task, count = tasks[score], declared.items_of(score)
            if task.generated:
                seconds += gpu.generating(policy, count, task.prompt, task.generated, count)
            else:
                seconds += gpu.scoring(policy, count * task.requests, task.prompt)
        return seconds

    rows = sum(declared.items_of(score) for score in declared.columns)
    return c.timed(work, c.text_bytes(rows, c.assumed.tokens.answer))
