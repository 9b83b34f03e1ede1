"""What a segment of an online run costs: rollouts, rewards, rewrites and training."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from harness.cost.calls import Calls, calls
from harness.cost.costing import Costing, StageCost
from harness.cost.gpu_time import GpuTime
from harness.cost.online import Stretch, count_steps
from harness.cost.sizes import Prompts
from harness.registry.recipe import Online
from harness.runtime.stage import Stage
from harness.trainer.online_plan import stream_settings


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
