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
from harness.eva.stream import StreamSettings
from harness.evaluation.benchmark import Benchmark
from harness.registry.profile import benchmark_named
from harness.runtime.stage import Stage
from harness.worlds.real.benchmarks import DOWNSTREAM, are_tasks, class_of

QUESTIONS = 2
"""What is asked about a rated prompt: complexity and quality."""

PAIRS = ("pair", "mix", "join", "repeat")
"""Kinds of stages that leave pairs of answers."""

WITH_REFERENCE = ("dpo", "sppo")
"""Algorithms that evaluate a reference, once before training."""


def _settings(stage: Stage) -> Mapping[str, Any]:
    return cast(Mapping[str, Any], stage.settings)


def _generate(c: Costing, stage: Stage) -> StageCost:
    """N answers to each prompt."""
    prompts, s = c.sizes.of(stage), _settings(stage)
    prompt, answer = c.prompt_tokens(prompts), c.answer_tokens(prompts, s["max_new_tokens"])
    count = float(prompts.total * s["n"])
    return c.timed(
        lambda gpu: gpu.generating(c.policy(stage), count, prompt, answer, count),
        c.text_bytes(count, answer) + c.text_bytes(prompts.total, prompt),
    )


def _annotate(c: Costing, stage: Stage) -> StageCost:
    """A reward for each answer."""
    prompts, s = c.sizes.of(stage), _settings(stage)
    rollouts = _settings(stage.inputs["completions"])
    prompt, answer = c.prompt_tokens(prompts), c.answer_tokens(prompts, rollouts["max_new_tokens"])
    count = float(prompts.total * rollouts["n"])
    compared = rollouts["n"] if s.get("rewards") == "win_probability" else 0
    return c.timed(
        lambda gpu: c.rewarding(gpu, s["reward_model"], count, compared, prompt, answer),
        c.text_bytes(count, 0),
    )


def _evolve(c: Costing, stage: Stage) -> StageCost:
    """The creator's rewrites."""
    children, s = c.sizes.of(stage).total, _settings(stage)
    asked = (c.rewrites(s["rewriting"]["model"], children),) if "rewriting" in s else ()
    # Prompts, and once more among the attempts.
    return c.asking(asked, 2 * c.text_bytes(children, c.assumed.tokens.evolved_prompt))


def _rewrite(c: Costing, stage: Stage) -> StageCost:
    """The policy's revision of each chosen answer, and its reward."""
    prompts, s = c.sizes.of(stage), _settings(stage)
    prompt, answer = c.prompt_tokens(prompts), c.answer_tokens(prompts, s["max_new_tokens"])
    asked = prompt + answer + c.assumed.tokens.rewrite_instruction
    count = float(prompts.total)
    return c.timed(
        lambda gpu: (
            gpu.generating(c.policy(stage), count, asked, answer, count)
            + c.rewarding(gpu, s["reward_model"], count, 0, prompt, answer)
        ),
        c.text_bytes(count, prompt + 2 * answer),
    )


def _train(c: Costing, stage: Stage) -> StageCost:
    """Training on pairs."""
    pairs, s = c.sizes.of(stage), _settings(stage)
    longest = s["max_length"]
    prompt = min(c.prompt_tokens(pairs), s["max_prompt_length"] or longest)
    length = min(prompt + c.answer_tokens(pairs), longest)
    lora = s.get("numerics", {}).get("lora") is not None
    reference = s["algorithm"] in WITH_REFERENCE
    forwards = c.training_forwards(s["epochs"], lora=lora, reference=reference)
    disk, size = c.assumed.disk, c.parameters(stage)
    return c.timed(
        lambda gpu: gpu.training(c.policy(stage), 2.0 * pairs.total, length, forwards),
        size * disk.parameter,
        size * disk.checkpoint,
    )


def _rows(c: Costing, stage: Stage) -> StageCost:
    """What a stage that only moves rows leaves on disk."""
    prompts = c.sizes.of(stage)
    answers = 2 * c.answer_tokens(prompts) if stage.kind in PAIRS else 0.0
    return StageCost(kept=c.text_bytes(prompts.total, c.prompt_tokens(prompts) + answers))


def _answer(c: Costing, stage: Stage) -> StageCost:
    """A policy's answers to a benchmark."""
    s = _settings(stage)
    if are_tasks(s["benchmark"]):
        return _tasks(c, stage)
    kind, items, lengths = _judged(c, s["benchmark"])
    answer = min(lengths.answer, s["max_new_tokens"])
    turns = [turn * lengths.question + (turn - 1) * answer for turn in range(1, kind.turns + 1)]
    return c.timed(
        lambda gpu: sum(gpu.generating(c.policy(stage), items, t, answer, items) for t in turns),
        c.text_bytes(items * kind.turns, lengths.question + answer),
    )


def _judge(c: Costing, stage: Stage) -> StageCost:
    """A judge's verdicts on a benchmark."""
    s = _settings(stage)
    if are_tasks(s["benchmark"]):
        return StageCost()  # the answers were scored by the package that asked for them
    kind, items, lengths = _judged(c, s["benchmark"])
    requests = items * kind.verdicts
    prompt = lengths.instructions + lengths.question + lengths.answer + lengths.reference
    asked = calls("JUDGE", s["judge"], requests, prompt, lengths.reply)
    return c.asking((asked,), c.text_bytes(requests, lengths.reply))


def _rate(c: Costing, stage: Stage) -> StageCost:
    """Scores of each prompt's complexity and quality."""
    return _about_prompts(c, stage, c.assumed.benchmarks.prompt_judge, QUESTIONS)


def _topics(c: Costing, stage: Stage) -> StageCost:
    """The topic of each prompt."""
    return _about_prompts(c, stage, c.assumed.benchmarks.topics, 1)


def _about_prompts(c: Costing, stage: Stage, each: Asked, questions: int) -> StageCost:
    prompts = c.sizes.of(stage)
    requests, prompt = questions * prompts.total, each.instructions + c.prompt_tokens(prompts)
    asked = calls("SCORER", _settings(stage)["judge"], requests, prompt, each.reply)
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
    """Table 9's tasks, answered and scored."""
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


def _online(c: Costing, stage: Stage) -> StageCost:
    """A segment of an online run; its policy and its optimiser's moments are kept."""
    s = _settings(stage)
    did = count_steps(
        StreamSettings(**s["online"], x=s["x"], retries=s["retries"]),
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
    s, policy = _settings(stage), c.policy(stage)
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
    **dict.fromkeys(("prompts", "select", *PAIRS), _rows),
    "generate": _generate,
    "annotate": _annotate,
    "evolve": _evolve,
    "rewrite": _rewrite,
    "train": _train,
    "online": _online,
    "answer": _answer,
    "judge": _judge,
    "rate": _rate,
    "topics": _topics,
}
"""The cost of each kind of stage that a profile from outside the embedded world can have."""


def stage_cost(c: Costing, stage: Stage) -> StageCost:
    """Return what a stage costs.

    Raises:
        KeyError: it is of a kind that has no cost here.
    """
    return BY_KIND[stage.kind](c.holding(stage.kind), stage)
