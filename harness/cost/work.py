"""What a stage of each kind takes: model tokens, requests, and bytes.

Request counts assume no failures, except that a fraction of rewrites is retried. Prices are the
user's for a role (`HARNESS_CREATOR_PRICE`), else the price list's (`harness.endpoint.prices`). A
model without a price has an unknown price, not zero.

Prompt counts come from the stage graph, or for online runs from counting steps. They assume that
nothing is dropped: every rewrite usable, no ties. Draws from a mixture of human and evolved prompts
keep its proportions. Online phases are those of `harness.selectors.eva`. Table 9's tasks run in
lm-evaluation-harness, without an endpoint as judge.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal, cast

from harness.cost.assumptions import assumed, assumptions, parameters_of
from harness.endpoint.access import price_of
from harness.eva.informativeness import selected_count
from harness.eva.pairs import evolved_count
from harness.registry.profile import REWARD_JUDGE, Profile, benchmark_named
from harness.registry.recipe import budget_taken
from harness.registry.serving import ServedRole
from harness.runtime.stage import Stage
from harness.selectors.eva import StreamSettings
from harness.worlds.needs import served_here
from harness.worlds.real.benchmarks import DOWNSTREAM, are_tasks, class_of


@dataclass(frozen=True)
class PromptCount:
    """A number of human prompts, and of prompts that a creator evolved."""

    human: int
    evolved: int = 0

    @property
    def total(self) -> int:
        return self.human + self.evolved

    def drawn(self, count: int) -> PromptCount:
        """Return a draw of `count` in the same proportions."""
        evolved = round(count * self.evolved / self.total) if self.total else 0
        return PromptCount(count - evolved, evolved)

    def mean(self, human: str, evolved: str) -> float:
        """Average two assumed lengths, given by name, over human and evolved prompts."""
        if not self.total:
            return assumed(human)
        return (self.human * assumed(human) + self.evolved * assumed(evolved)) / self.total

    @property
    def length(self) -> float:
        """Mean prompt length in tokens, including the chat template."""
        return self.mean("tokens.prompt", "tokens.evolved_prompt") + assumed("tokens.overhead")

    def answer(self, limit: float = math.inf) -> float:
        """Return the mean answer length in tokens, capped at `limit`."""
        return min(self.mean("tokens.answer", "tokens.evolved_answer"), limit)


@dataclass(frozen=True)
class Stretch:
    """The work of some online steps, in prompts.

    Attributes:
        children: Rewrites requested.
        scored: Rolled out only for scoring: rewrites entering the buffer, and rescorings of it.
        judged: Candidates of best-of-n trees that a scorer reads.
    """

    trained: int
    children: int = 0
    scored: int = 0
    judged: int = 0


def count_steps(s: StreamSettings, first: int, last: int, *, evolves: bool) -> Stretch:
    """Return the work of steps `first` to `last` of a run, counted from 1.

    The phases are warm-up (filling the buffer), mix-up with human prompts until they run out, and
    then bootstrapping from the buffer's own rewrites. Rescoring assumes a full buffer.
    """
    steps = last - first + 1
    trained = steps * s.minibatch
    if not evolves:
        return Stretch(trained)
    warm_up = s.warm_up_steps or math.ceil(s.capacity / (s.evolved * s.n_new))
    mixed = s.minibatch - s.from_buffer
    human = max(0, s.x - warm_up * s.minibatch)
    end = warm_up + (math.ceil(human / mixed) if mixed else math.inf)
    with_people = max(0, min(last, end) - first + 1)
    entering = int(s.evolved * (s.n_new * with_people + s.n_new_bootstrap * (steps - with_people)))
    every = s.rescore_every
    anew = 0 if every is None else last // every - (first - 1) // every
    scored = anew * s.capacity + (entering if s.child_score == "rollout" else 0)
    asked = entering * (s.tree_depth if s.shape == "tree" else 1)
    return Stretch(trained, asked, scored, asked - entering)


@dataclass(frozen=True)
class Calls:
    """Requests of one kind to one model in a role, with their total tokens."""

    role: ServedRole
    model: str
    requests: float
    prompt_tokens: float
    completion_tokens: float

    @classmethod
    def of(
        cls, role: ServedRole, model: str, requests: float, prompt: float, reply: float
    ) -> Calls:
        """Build from the mean prompt and reply lengths, in tokens."""
        return cls(role, model, requests, requests * prompt, requests * reply)

    @property
    def usd(self) -> float | None:
        """Cost in dollars, or None if the model's price is unknown."""
        price = price_of(self.role, self.model)
        if price is None:
            return None
        return price.of(round(self.prompt_tokens), round(self.completion_tokens))

    def __add__(self, other: Calls) -> Calls:
        return replace(
            self,
            requests=self.requests + other.requests,
            prompt_tokens=self.prompt_tokens + other.prompt_tokens,
            completion_tokens=self.completion_tokens + other.completion_tokens,
        )


@dataclass(frozen=True)
class Load:
    """Tokens processed by a model, which is named by its identity."""

    verb: Literal["generating", "reading", "training"]
    model: str
    tokens: float


@dataclass(frozen=True)
class StageCost:
    """A stage's cost.

    `kept` is what it leaves in the store and `passing` its temporary space, in bytes of weights;
    texts are negligible.
    """

    loads: tuple[Load, ...] = ()
    calls: tuple[Calls, ...] = ()
    kept: float = 0.0
    passing: float = 0.0


QUESTIONS = 2
"""Questions about each rated prompt: complexity and quality."""

WITH_REFERENCE = ("dpo", "sppo")
"""Algorithms that evaluate a reference model, once before training."""

FIRST_INPUT = {
    "generate": "prompts",
    "annotate": "completions",
    "evolve": "selected",
    "rewrite": "pairs",
    "train": "pairs",
    "rate": "prompts",
    "topics": "prompts",
}
"""The input whose prompts a kind of stage processes."""


def base_policy(stage: Stage) -> str:
    while "policy" not in stage.settings:
        stage = stage.inputs["policy"]
    return str(stage.settings["policy"])


def parameters(stage: Stage) -> float:
    """Return the parameter count of a stage's policy; 0 if unknown."""
    return float(parameters_of(base_policy(stage)) or 0)


class Costing:
    """Estimates the cost of a profile's stages, at the assumed lengths."""

    def __init__(self, profile: Profile) -> None:
        self.profile = profile
        self._known: dict[str, PromptCount] = {}

    def cost(self, stage: Stage) -> StageCost:
        """Return a stage's cost; requests to servers the harness starts count as GPU work.

        Raises:
            KeyError: The stage's kind has no cost here.
        """
        found = BY_KIND[stage.kind](self, stage, cast(Mapping[str, Any], stage.settings))
        loads, asked = list(found.loads), []
        for call in found.calls:
            served = served_here(self.profile, call.role, call.model)
            if served is None:
                asked.append(call)
            else:
                loads.append(Load("reading", str(served.model), call.prompt_tokens))
                loads.append(Load("generating", str(served.model), call.completion_tokens))
        return replace(found, loads=tuple(loads), calls=tuple(asked))

    def prompts(self, stage: Stage) -> PromptCount:
        """Return the prompts a stage yields, or processes if it yields none.

        Raises:
            KeyError: The stage's kind has no prompts.
        """
        found = self._known.get(stage.fingerprint)
        if found is None:
            found = self._known[stage.fingerprint] = self._count(stage)
        return found

    def _count(self, stage: Stage) -> PromptCount:
        s, inputs = cast(Mapping[str, Any], stage.settings), stage.inputs
        match stage.kind:
            case "prompts":
                return PromptCount(s["count"])
            case "select":
                before = self.prompts(inputs["prompts"])
                return before.drawn(selected_count(before.total, s["fraction"]))
            case "evolve":
                return PromptCount(0, self.prompts(inputs["selected"]).total * s["evolutions"])
            case "pair":
                return self.prompts(inputs["only"] if "only" in inputs else inputs["completions"])
            case "mix":
                evolved = evolved_count(s["size"], s["evolved_share"])
                base = self.prompts(inputs["base"]).drawn(s["size"] - evolved)
                return PromptCount(base.human, base.evolved + evolved)
            case "join":
                parts = [self.prompts(before) for before in inputs.values()]
                return PromptCount(sum(p.human for p in parts), sum(p.evolved for p in parts))
            case "repeat":
                return self.prompts(inputs["pairs"]).drawn(s["size"])
        return self.prompts(inputs[FIRST_INPUT[stage.kind]])


def _generating(stage: Stage, answers: float, prompt: float, answer: float) -> Iterator[Load]:
    """Yield the loads of a policy's answers: prompts read, then tokens generated."""
    policy = base_policy(stage)
    yield Load("reading", policy, answers * prompt)
    yield Load("generating", policy, answers * answer)


def _rewrites(model: str, children: float) -> Calls:
    """Return the requests for a number of rewrites, including retries."""
    length = assumed("tokens.evolved_prompt")
    requests = children * (1 + assumed("creator.retried"))
    return Calls.of("creator", model, requests, assumed("creator.instructions") + length, length)


def _rows(c: Costing, stage: Stage, s: Mapping[str, Any]) -> StageCost:
    return StageCost()


def _generate(c: Costing, stage: Stage, s: Mapping[str, Any]) -> StageCost:
    p = c.prompts(stage)
    answer = p.answer(s["max_new_tokens"])
    return StageCost(tuple(_generating(stage, p.total * s["n"], p.length, answer)))


def _annotate(c: Costing, stage: Stage, s: Mapping[str, Any]) -> StageCost:
    """Answers are scored individually, or in pairs per prompt, in both orders."""
    p = c.prompts(stage)
    rollouts = cast(Mapping[str, Any], stage.inputs["completions"].settings)
    answer, n = p.answer(rollouts["max_new_tokens"]), rollouts["n"]
    each = p.length + answer
    if s.get("rewards") == "win_probability":
        each = (n - 1) * (p.length + 2 * answer)
    return StageCost((Load("reading", s["reward_model"], p.total * n * each),))


def _evolve(c: Costing, stage: Stage, s: Mapping[str, Any]) -> StageCost:
    if "rewriting" not in s:
        return StageCost()
    return StageCost(calls=(_rewrites(s["rewriting"]["model"], c.prompts(stage).total),))


def _rewrite(c: Costing, stage: Stage, s: Mapping[str, Any]) -> StageCost:
    """The policy revises each chosen answer, and the revision is scored."""
    p = c.prompts(stage)
    answer = p.answer(s["max_new_tokens"])
    asked = p.length + answer + assumed("tokens.rewrite_instruction")
    read = Load("reading", s["reward_model"], p.total * (p.length + answer))
    return StageCost((*_generating(stage, p.total, asked, answer), read))


def _train(c: Costing, stage: Stage, s: Mapping[str, Any]) -> StageCost:
    pairs, longest, policy = c.prompts(stage), s["max_length"], base_policy(stage)
    prompt = min(pairs.length, s["max_prompt_length"] or longest)
    each = 2.0 * pairs.total * min(prompt + pairs.answer(), longest)
    loads = [Load("training", policy, s["epochs"] * each)]
    if s["algorithm"] in WITH_REFERENCE:
        loads.append(Load("reading", policy, each))
    size = parameters(stage)
    kept, passing = size * assumed("disk.parameter"), size * assumed("disk.checkpoint")
    return StageCost(tuple(loads), kept=kept, passing=passing)


def _answer(c: Costing, stage: Stage, s: Mapping[str, Any]) -> StageCost:
    if are_tasks(s["benchmark"]):
        return _tasks(c, stage)
    kind = class_of(s["benchmark"])
    question, items = _length(s["benchmark"], "question"), _items(c, s["benchmark"])
    answer = min(_length(s["benchmark"], "answer"), s["max_new_tokens"])
    turns = [turn * question + (turn - 1) * answer for turn in range(1, kind.turns + 1)]
    return StageCost(tuple(x for turn in turns for x in _generating(stage, items, turn, answer)))


def _tasks(c: Costing, stage: Stage) -> StageCost:
    """Table 9's tasks, answered and scored."""
    declared, policy = c.profile.benchmarks[DOWNSTREAM], base_policy(stage)
    read, written = 0.0, 0.0
    for score in declared.columns:
        task, count = f"benchmarks.downstream.{score}", declared.items_of(score)
        read += count * assumed(f"{task}.requests") * assumed(f"{task}.prompt")
        written += count * assumed(f"{task}.generated")
    return StageCost((Load("reading", policy, read), Load("generating", policy, written)))


def _judge(c: Costing, stage: Stage, s: Mapping[str, Any]) -> StageCost:
    benchmark, judge = s["benchmark"], s["judge"]
    if are_tasks(benchmark):
        return StageCost()  # the answers were scored by lm-evaluation-harness
    kind, items = class_of(benchmark), _items(c, benchmark)
    parts = ("question", "answer", "reference", "instructions")
    question, answer, reference, instructions = (_length(benchmark, part) for part in parts)
    if judge.startswith(REWARD_JUDGE):
        read = 2.0 * items * kind.turns * (question + answer)
        return StageCost((Load("reading", judge.removeprefix(REWARD_JUDGE), read),))
    prompt, reply = question + answer + reference + instructions, _length(benchmark, "reply")
    return StageCost(calls=(Calls.of("judge", judge, items * kind.verdicts, prompt, reply),))


def _items(c: Costing, identity: str) -> int:
    named = class_of(identity).name
    (found,) = (b for name, b in c.profile.benchmarks.items() if benchmark_named(name) == named)
    return cast(int, found.items)


def _length(identity: str, part: str) -> float:
    """Return the mean length of a part of a benchmark's requests, in tokens.

    Lengths for a plug-in's benchmark are unknown: its questions and answers are assumed to be like
    training's, and its instructions like those for rating prompts.
    """
    kind = class_of(identity)
    if f"benchmarks.{kind.name}.{part}" in assumptions():
        return assumed(f"benchmarks.{kind.name}.{part}")
    if part == "reply":
        return kind.reply_tokens
    like = {
        "question": "tokens.prompt",
        "answer": "tokens.answer",
        "instructions": "benchmarks.prompt_judge.instructions",
    }
    return assumed(like[part]) if part in like else 0.0


def _rate(c: Costing, stage: Stage, s: Mapping[str, Any]) -> StageCost:
    return _about_prompts(c.prompts(stage), s["judge"], "prompt_judge", QUESTIONS)


def _topics(c: Costing, stage: Stage, s: Mapping[str, Any]) -> StageCost:
    return _about_prompts(c.prompts(stage), s["judge"], "topics", 1)


def _about_prompts(p: PromptCount, judge: str, asked: str, questions: int) -> StageCost:
    prompt = assumed(f"benchmarks.{asked}.instructions") + p.length
    reply = assumed(f"benchmarks.{asked}.reply")
    return StageCost(calls=(Calls.of("scorer", judge, questions * p.total, prompt, reply),))


def _online(c: Costing, stage: Stage, s: Mapping[str, Any]) -> StageCost:
    """A segment of an online run; its policy and optimizer moments are kept.

    A step takes as long as its longest rollout, which is assumed to reach the limit.
    """
    policy, hyper, did = base_policy(stage), s["training"], _did(stage, s)
    p = PromptCount(did.trained + did.scored)
    limit, rolled = int(hyper["max_new_tokens"]), p.total * float(hyper["rollouts"])
    each = p.length + p.answer(limit)
    trained = did.trained * float(hyper["rollouts"]) * min(each, int(hyper["max_length"]))
    rewards = filter(None, (s["reward_model"], s["ranker"]))
    loads = (
        *_generating(stage, rolled, p.length, limit),
        *(Load("reading", str(model), rolled * each) for model in rewards),
        Load("training", policy, trained),
        Load("reading", policy, trained),  # the reference
    )
    asked = []
    if "rewriting" in s:
        asked.append(_rewrites(str(s["rewriting"]["model"]), did.children))
    if "scorer" in s:
        model, questions = str(s["scorer"]["model"]), QUESTIONS * did.judged
        prompt = assumed("benchmarks.prompt_judge.instructions") + assumed("tokens.evolved_prompt")
        reply = assumed("benchmarks.prompt_judge.reply")
        asked.append(Calls.of("scorer", model, questions, prompt, reply))
    size = parameters(stage)
    kept = size * (assumed("disk.parameter") + assumed("disk.moments"))
    return StageCost(loads, tuple(asked), kept, size * assumed("disk.checkpoint"))


def _did(stage: Stage, s: Mapping[str, Any]) -> Stretch:
    """Return a segment's work; in a league, what its budget buys if all is spent on training."""
    if "budget" not in s:
        settings = StreamSettings(**s["online"], x=s["x"], retries=s["retries"])
        evolves = s["creator"] is not None
        return count_steps(settings, s["first_step"], s["last_step"], evolves=evolves)
    before = stage.inputs.get("before")
    done = 0 if before is None else cast(Mapping[str, Any], before.settings)["budget"]["amount"]
    hyper, size = s["training"], s["online"]["minibatch"]
    rollouts = hyper["minibatch"] * hyper["rollouts"]
    per_step = budget_taken(s["budget"]["of"], 1, rollouts, hyper["max_new_tokens"])
    steps = (s["budget"]["amount"] - done) // per_step
    children = 0 if s["creator"] is None else steps * max(1, size // 2) * s["online"]["n_new"]
    return Stretch(steps * size, children)


BY_KIND: Mapping[str, Callable[[Costing, Stage, Mapping[str, Any]], StageCost]] = {
    **dict.fromkeys(("prompts", "select", "pair", "mix", "join", "repeat"), _rows),
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
"""The cost of each kind of stage that a profile outside the embedded world can have."""
