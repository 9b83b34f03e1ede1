"""What one stage costs, by its kind: offline, online, and on benchmarks.

Table 9's tasks run in lm-evaluation-harness: the policy answers them, and no endpoint judges.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, cast

from harness.cost.assumptions import Asked, Judged
from harness.cost.costing import (
    Calls,
    Costing,
    GpuTime,
    Prompts,
    StageCost,
    Stretch,
    calls,
    count_steps,
)
from harness.evaluation.benchmark import Benchmark
from harness.registry.profile import benchmark_named
from harness.registry.recipe import Online
from harness.runtime.stage import Stage
from harness.trainer.plan import stream_settings
from harness.worlds.real.benchmarks import DOWNSTREAM, are_tasks, class_of

QUESTIONS = 2
"""What is asked about a rated prompt: complexity and quality."""

PAIRS = ("pair", "mix", "join", "repeat")
"""Kinds of stages that leave pairs of answers."""

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


def answer_cost(c: Costing, stage: Stage) -> StageCost:
    """Return the cost of a policy's answers to a benchmark."""
    identity = str(stage.settings["benchmark"])
    if are_tasks(identity):
        return _tasks(c, stage)
    kind, items, lengths = _judged(c, identity)
    turns = kind.turns
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
    if are_tasks(identity):
        return StageCost()  # the answers were scored by the package that asked for them
    kind, items, lengths = _judged(c, identity)
    requests = items * kind.verdicts
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


def _judged(c: Costing, identity: str) -> tuple[type[Benchmark], int, Judged]:
    """Return a benchmark, its items, and their lengths.

    Of a plug-in's benchmark they are not known: it is taken to ask what is asked in training, and
    to be rated as prompts are.
    """
    kind = class_of(identity)
    (declared,) = (b for n, b in c.profile.benchmarks.items() if benchmark_named(n) == kind.name)
    known = getattr(c.assumed.benchmarks, kind.name, None)
    if known is None:
        tokens, instructions = c.assumed.tokens, c.assumed.benchmarks.prompt_judge.instructions
        known = Judged(
            question=tokens.prompt,
            answer=tokens.answer,
            reference=0,
            instructions=instructions,
            reply=kind.reply_tokens,
        )
    return kind, cast(int, declared.items), cast(Judged, known)


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


def online_cost(c: Costing, stage: Stage) -> StageCost:
    """Return the cost of a segment; its policy and its optimiser's moments are kept."""
    s = cast(Mapping[str, Any], stage.settings)
    did = count_steps(
        stream_settings(Online.model_validate(s["online"]), s["x"], s["retries"]),
        s["x"],
        s["first_step"],
        s["last_step"],
        evolves=s["creator"] is not None,
    )
    asked = _calls(c, s, did)
    disk, size = c.assumed.disk, c.parameters(stage)
    kept = size * (disk.parameter + disk.moments) + c.reply_bytes(asked)
    return c.timed(lambda gpu: _time(c, gpu, stage, did), kept, size * disk.checkpoint, *asked)


def _calls(c: Costing, s: Mapping[str, Any], did: Stretch) -> tuple[Calls, ...]:
    asked = []
    if "rewriting" in s:
        asked.append(c.rewrites(str(s["rewriting"]["model"]), did.children))
    if "scorer" in s:
        each, length = c.assumed.benchmarks.prompt_judge, c.assumed.tokens.evolved_prompt
        model, questions = str(s["scorer"]["model"]), 2 * did.judged
        asked.append(calls("SCORER", model, questions, each.instructions + length, each.reply))
    return tuple(asked)


def _time(c: Costing, gpu: GpuTime, stage: Stage, did: Stretch) -> float:
    """Return the GPU seconds of a segment: rollouts of each step by themselves, and training.

    A step's rollouts are few, so that the weights are read for few sequences at a time; and a step
    lasts as long as its longest rollout, which is taken to reach the limit.
    """
    s, policy = cast(Mapping[str, Any], stage.settings), c.policy(stage)
    hyper = s["training"]
    prompts = Prompts(did.trained + did.scored)
    prompt, limit = c.prompt_tokens(prompts), int(hyper["max_new_tokens"])
    answer = c.answer_tokens(prompts, limit)
    rollouts = [float(count * hyper["rollouts"]) for count in (did.trained, did.scored)]
    seconds = sum(
        gpu.generating(policy, count, prompt, limit, count / did.steps)
        for count in rollouts
        if count
    )
    for model in filter(None, (s["reward_model"], s["ranker"])):
        seconds += c.rewarding(gpu, str(model), sum(rollouts), 0, prompt, answer)
    length = min(prompt + answer, int(hyper["max_length"]))
    forwards = c.training_forwards(1, lora=False, reference=True)
    return seconds + gpu.training(policy, rollouts[0], length, forwards)


BY_KIND: Mapping[str, Callable[[Costing, Stage], StageCost]] = {
    **dict.fromkeys(("prompts", "select", "pair", "mix", "join", "repeat"), rows_cost),
    "generate": generate_cost,
    "annotate": annotate_cost,
    "evolve": evolve_cost,
    "rewrite": rewrite_cost,
    "train": train_cost,
    "online": online_cost,
    "answer": answer_cost,
    "judge": judge_cost,
    "rate": rate_cost,
    "topics": topics_cost,
}
"""The cost of each kind of stage that a profile from outside the embedded world can have."""


def stage_cost(c: Costing, stage: Stage) -> StageCost:
    """Return what a stage costs.

    Raises:
        KeyError: it is of a kind that has no cost here.
    """
    return BY_KIND[stage.kind](c.holding(stage.kind), stage)
