"""What one stage takes, by its kind: tokens of models, requests, and bytes.

Requests are counted as they are when nothing fails; of rewrites a share is asked for again. Prices
are those that a user gives for a role (`HARNESS_CREATOR_PRICE`), else the list's
(`harness.endpoint.prices`). A model without a price has none, which is not zero.

How many prompts a stage works on is read off the graph; of an online run, step by step. Numbers are
what a run makes when nothing is dropped: every rewrite usable, no tie left out. What is drawn from
a mixture of human and evolved prompts has the mixture's shares. The phases of an online run are
those of `harness.selectors.eva`. Table 9's tasks run in lm-evaluation-harness: no endpoint judges.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, cast

from harness.cost.assumptions import Asked, Judged, assumptions, parameters_of
from harness.eva.informativeness import selected_count
from harness.eva.pairs import evolved_count
from harness.evaluation.benchmark import Benchmark
from harness.registry.profile import REWARD_JUDGE, Profile, benchmark_named
from harness.registry.recipe import budget_taken
from harness.runtime.stage import Stage
from harness.selectors.eva import StreamSettings
from harness.worlds.real.benchmarks import DOWNSTREAM, are_tasks, class_of
from harness.worlds.real.models import Role, price_of

FIRST_INPUT = {
    "generate": "prompts",
    "annotate": "completions",
    "evolve": "selected",
    "rewrite": "pairs",
    "train": "pairs",
    "rate": "prompts",
    "topics": "prompts",
}
"""The input whose prompts a kind of stage works on, one by one."""


@dataclass(frozen=True)
class Prompts:
    """So many prompts of people, and so many that a creator wrote."""

    human: int
    evolved: int = 0

    @property
    def total(self) -> int:
        return self.human + self.evolved

    def drawn(self, count: int) -> Prompts:
        """Return so many of them, in the same shares."""
        evolved = round(count * self.evolved / self.total) if self.total else 0
        return Prompts(count - evolved, evolved)


class Sizes:
    """The prompts of stages, each counted once."""

    def __init__(self) -> None:
        self._known: dict[str, Prompts] = {}

    def of(self, stage: Stage) -> Prompts:
        """Return the prompts that a stage yields, or works on where it yields none.

        Raises:
            KeyError: it is of a kind that has no prompts.
        """
        found = self._known.get(stage.fingerprint)
        if found is None:
            found = self._known[stage.fingerprint] = self._count(stage)
        return found

    def _count(self, stage: Stage) -> Prompts:
        s, inputs = stage.settings, stage.inputs
        if stage.kind in FIRST_INPUT and stage.kind != "evolve":
            return self.of(inputs[FIRST_INPUT[stage.kind]])
        match stage.kind:
            case "prompts":
                return Prompts(cast(int, s["count"]))
            case "select":
                before = self.of(inputs["prompts"])
                return before.drawn(selected_count(before.total, cast(float, s["fraction"])))
            case "evolve":
                return Prompts(0, self.of(inputs["selected"]).total * cast(int, s["evolutions"]))
            case "pair":
                return self.of(inputs["only"] if "only" in inputs else inputs["completions"])
            case "mix":
                size = cast(int, s["size"])
                evolved = evolved_count(size, cast(float, s["evolved_share"]))
                base = self.of(inputs["base"]).drawn(size - evolved)
                return Prompts(base.human, base.evolved + evolved)
            case "join":
                parts = [self.of(before) for before in inputs.values()]
                return Prompts(sum(p.human for p in parts), sum(p.evolved for p in parts))
            case "repeat":
                return self.of(inputs["pairs"]).drawn(cast(int, s["size"]))
        raise KeyError(stage.kind)


def base_policy(stage: Stage) -> str:
    while "policy" not in stage.settings:
        stage = stage.inputs["policy"]
    return str(stage.settings["policy"])


@dataclass(frozen=True)
class Stretch:
    """What some steps of an online run do, counted in prompts.

    Attributes:
        children: rewrites that are asked for.
        scored: rolled out only to be scored: rewrites on entering, the buffer anew.
        judged: candidates of best-of-n trees that a scorer reads.
    """

    trained: int
    children: int = 0
    scored: int = 0
    judged: int = 0


def count_steps(s: StreamSettings, first: int, last: int, *, evolves: bool) -> Stretch:
    """Return what the steps `first` to `last` of a run do, counted from 1.

    The buffer is filled, mixed with human prompts until these are used up, and then lives of its
    own rewrites. It is taken to be full where it is scored anew.
    """
    trained = (last - first + 1) * s.minibatch
    if not evolves:
        return Stretch(trained)
    warm_up = s.warm_up_steps or math.ceil(s.capacity / (s.evolved * s.n_new))
    mixed = s.minibatch - s.from_buffer
    human = max(0, s.x - warm_up * s.minibatch)
    end = warm_up + (math.ceil(human / mixed) if mixed else math.inf)
    with_people = max(0, min(last, end) - first + 1)
    alone = last - first + 1 - with_people
    entering = int(s.evolved * (s.n_new * with_people + s.n_new_bootstrap * alone))
    anew = (
        0 if s.rescore_every is None else last // s.rescore_every - (first - 1) // s.rescore_every
    )
    scored = anew * s.capacity + (entering if s.child_score == "rollout" else 0)
    asked = entering * (s.tree_depth if s.shape == "tree" else 1)
    return Stretch(trained, asked, scored, asked - entering)


@dataclass(frozen=True)
class Calls:
    """Requests of one kind to one model in a role, with the tokens of all of them together."""

    role: Role
    model: str
    requests: float
    prompt_tokens: float
    completion_tokens: float

    @property
    def usd(self) -> float | None:
        """Their price in dollars; None where the model's price is not known."""
        price = price_of(self.role, self.model)
        if price is None:
            return None
        return price.of(round(self.prompt_tokens), round(self.completion_tokens))

    def __add__(self, other: Calls) -> Calls:
        return Calls(
            self.role,
            self.model,
            self.requests + other.requests,
            self.prompt_tokens + other.prompt_tokens,
            self.completion_tokens + other.completion_tokens,
        )


def calls(role: Role, model: str, requests: float, prompt: float, reply: float) -> Calls:
    """Return requests with a mean length of prompt and reply, in tokens."""
    return Calls(role, model, requests, requests * prompt, requests * reply)


Verb = Literal["generating", "reading", "training"]


@dataclass(frozen=True)
class Load:
    """Tokens that a model works through; it is named by its identity."""

    verb: Verb
    model: str
    tokens: float


@dataclass(frozen=True)
class StageCost:
    """What a stage takes.

    `kept` is what it leaves in the store, `passing` what it needs besides while it runs, in bytes
    of weights: texts are nothing beside them.
    """

    loads: tuple[Load, ...] = ()
    calls: tuple[Calls, ...] = ()
    kept: float = 0.0
    passing: float = 0.0


QUESTIONS = 2
"""What is asked about a rated prompt: complexity and quality."""

WITH_REFERENCE = ("dpo", "sppo")
"""Algorithms that evaluate a reference, once before training."""


class Costing:
    """Estimates what the stages of one profile take, at the lengths that are assumed."""

    def __init__(self, profile: Profile) -> None:
        self.profile = profile
        self.sizes = Sizes()
        self.assumed = assumptions()

    def prompt_tokens(self, prompts: Prompts) -> float:
        """Return the mean tokens of prompts, the chat template's included."""
        t = self.assumed.tokens
        if not prompts.total:
            return float(t.prompt + t.overhead)
        all_of_them = prompts.human * t.prompt + prompts.evolved * t.evolved_prompt
        return all_of_them / prompts.total + t.overhead

    def answer_tokens(self, prompts: Prompts, limit: int | None = None) -> float:
        """Return the mean tokens of answers to prompts, at most a limit."""
        t = self.assumed.tokens
        if not prompts.total:
            return float(t.answer)
        mean = (prompts.human * t.answer + prompts.evolved * t.evolved_answer) / prompts.total
        return mean if limit is None else min(mean, limit)

    def rewrites(self, model: str, children: float) -> Calls:
        """Return the requests for so many rewrites, those asked for again included."""
        creator, length = self.assumed.creator, self.assumed.tokens.evolved_prompt
        requests = children * (1 + creator.retried)
        return calls("CREATOR", model, requests, creator.instructions + length, length)


def parameters(stage: Stage) -> float:
    """Return the parameters of a stage's policy; 0 where they are not known."""
    return float(parameters_of(base_policy(stage)) or 0)


def _settings(stage: Stage) -> Mapping[str, Any]:
    return cast(Mapping[str, Any], stage.settings)


def _generating(stage: Stage, answers: float, prompt: float, answer: float) -> tuple[Load, ...]:
    """Return the tokens of a policy's answers, and of the prompts that it reads first."""
    policy = base_policy(stage)
    return (
        Load("reading", policy, answers * prompt),
        Load("generating", policy, answers * answer),
    )


def _rewarding(model: str, answers: float, n: int, prompt: float, answer: float) -> Load:
    """Return the tokens that a reward model reads.

    `n` answers to a prompt are compared two by two, in both orders; 0 where each is scored alone.
    """
    if n == 0:
        return Load("reading", model, answers * (prompt + answer))
    return Load("reading", model, answers * (n - 1) * (prompt + 2 * answer))


def _generate(c: Costing, stage: Stage) -> StageCost:
    """N answers to each prompt."""
    prompts, s = c.sizes.of(stage), _settings(stage)
    prompt, answer = c.prompt_tokens(prompts), c.answer_tokens(prompts, s["max_new_tokens"])
    count = float(prompts.total * s["n"])
    return StageCost(_generating(stage, count, prompt, answer))


def _annotate(c: Costing, stage: Stage) -> StageCost:
    prompts, s = c.sizes.of(stage), _settings(stage)
    rollouts = _settings(stage.inputs["completions"])
    prompt, answer = c.prompt_tokens(prompts), c.answer_tokens(prompts, rollouts["max_new_tokens"])
    count = float(prompts.total * rollouts["n"])
    compared = rollouts["n"] if s.get("rewards") == "win_probability" else 0
    read = _rewarding(s["reward_model"], count, compared, prompt, answer)
    return StageCost((read,))


def _evolve(c: Costing, stage: Stage) -> StageCost:
    """The creator's rewrites."""
    children, s = c.sizes.of(stage).total, _settings(stage)
    asked = (c.rewrites(s["rewriting"]["model"], children),) if "rewriting" in s else ()
    return StageCost(calls=asked)


def _rewrite(c: Costing, stage: Stage) -> StageCost:
    """The policy's revision of each chosen answer, and its reward."""
    prompts, s = c.sizes.of(stage), _settings(stage)
    prompt, answer = c.prompt_tokens(prompts), c.answer_tokens(prompts, s["max_new_tokens"])
    asked = prompt + answer + c.assumed.tokens.rewrite_instruction
    count = float(prompts.total)
    read = _rewarding(s["reward_model"], count, 0, prompt, answer)
    return StageCost((*_generating(stage, count, asked, answer), read))


def _train(c: Costing, stage: Stage) -> StageCost:
    """Training on pairs."""
    pairs, s = c.sizes.of(stage), _settings(stage)
    longest, policy = s["max_length"], base_policy(stage)
    prompt = min(c.prompt_tokens(pairs), s["max_prompt_length"] or longest)
    each = 2.0 * pairs.total * min(prompt + c.answer_tokens(pairs), longest)
    loads = [Load("training", policy, s["epochs"] * each)]
    if s["algorithm"] in WITH_REFERENCE:
        loads.append(Load("reading", policy, each))
    disk, size = c.assumed.disk, parameters(stage)
    kept, passing = size * disk.parameter, size * disk.checkpoint
    return StageCost(tuple(loads), kept=kept, passing=passing)


def _rows(c: Costing, stage: Stage) -> StageCost:
    return StageCost()


def _answer(c: Costing, stage: Stage) -> StageCost:
    s = _settings(stage)
    if are_tasks(s["benchmark"]):
        return _tasks(c, stage)
    kind, items, lengths = _judged(c, s["benchmark"])
    answer = min(lengths.answer, s["max_new_tokens"])
    turns = [turn * lengths.question + (turn - 1) * answer for turn in range(1, kind.turns + 1)]
    loads = [load for turn in turns for load in _generating(stage, items, turn, answer)]
    return StageCost(tuple(loads))


def _judge(c: Costing, stage: Stage) -> StageCost:
    s = _settings(stage)
    if are_tasks(s["benchmark"]):
        return StageCost()  # the answers were scored by the package that asked for them
    kind, items, lengths = _judged(c, s["benchmark"])
    if s["judge"].startswith(REWARD_JUDGE):
        each, count = lengths.question, 2.0 * items * kind.turns
        model = s["judge"].removeprefix(REWARD_JUDGE)
        return StageCost((_rewarding(model, count, 0, each, lengths.answer),))
    requests = items * kind.verdicts
    prompt = lengths.instructions + lengths.question + lengths.answer + lengths.reference
    asked = calls("JUDGE", s["judge"], requests, prompt, lengths.reply)
    return StageCost(calls=(asked,))


def _rate(c: Costing, stage: Stage) -> StageCost:
    return _about_prompts(c, stage, c.assumed.benchmarks.prompt_judge, QUESTIONS)


def _topics(c: Costing, stage: Stage) -> StageCost:
    return _about_prompts(c, stage, c.assumed.benchmarks.topics, 1)


def _about_prompts(c: Costing, stage: Stage, each: Asked, questions: int) -> StageCost:
    prompts = c.sizes.of(stage)
    requests, prompt = questions * prompts.total, each.instructions + c.prompt_tokens(prompts)
    asked = calls("SCORER", _settings(stage)["judge"], requests, prompt, each.reply)
    return StageCost(calls=(asked,))


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
    policy, read, written = base_policy(stage), 0.0, 0.0
    for score in declared.columns:
        task, count = tasks[score], declared.items_of(score)
        read += count * task.requests * task.prompt
        written += count * task.generated
    return StageCost((Load("reading", policy, read), Load("generating", policy, written)))


def _online(c: Costing, stage: Stage) -> StageCost:
    """A segment of an online run; its policy and its optimiser's moments are kept.

    A step lasts as long as its longest rollout, which is taken to reach the limit.
    """
    s, policy = _settings(stage), base_policy(stage)
    did = _of_budget(stage, s)
    if did is None:
        did = count_steps(
            StreamSettings(**s["online"], x=s["x"], retries=s["retries"]),
            s["first_step"],
            s["last_step"],
            evolves=s["creator"] is not None,
        )
    hyper, prompts = s["training"], Prompts(did.trained + did.scored)
    prompt, limit = c.prompt_tokens(prompts), int(hyper["max_new_tokens"])
    answer, rollouts = c.answer_tokens(prompts, limit), float(hyper["rollouts"])
    length = min(prompt + answer, int(hyper["max_length"]))
    trained = did.trained * rollouts * length
    rewards = filter(None, (s["reward_model"], s["ranker"]))
    loads = (
        *_generating(stage, prompts.total * rollouts, prompt, limit),
        *(_rewarding(str(m), prompts.total * rollouts, 0, prompt, answer) for m in rewards),
        Load("training", policy, trained),
        Load("reading", policy, trained),  # the reference
    )
    asked = _calls(c, s, did)
    disk, size = c.assumed.disk, parameters(stage)
    return StageCost(loads, asked, size * (disk.parameter + disk.moments), size * disk.checkpoint)


def _of_budget(stage: Stage, s: Mapping[str, Any]) -> Stretch | None:
    """Return what a part of a league's budget pays for where nothing but training is spent on.

    None where the stage has no budget.
    """
    if "budget" not in s:
        return None
    before = stage.inputs.get("before")
    done = 0 if before is None else _settings(before)["budget"]["amount"]
    hyper, size = s["training"], s["online"]["minibatch"]
    rollouts = hyper["minibatch"] * hyper["rollouts"]
    per_step = budget_taken(s["budget"]["of"], 1, rollouts, hyper["max_new_tokens"])
    steps = (s["budget"]["amount"] - done) // per_step
    children = 0 if s["creator"] is None else steps * max(1, size // 2) * s["online"]["n_new"]
    return Stretch(steps, steps * size, children)


def _calls(c: Costing, s: Mapping[str, Any], did: Stretch) -> tuple[Calls, ...]:
    asked = []
    if "rewriting" in s:
        asked.append(c.rewrites(str(s["rewriting"]["model"]), did.children))
    if "scorer" in s:
        each, length = c.assumed.benchmarks.prompt_judge, c.assumed.tokens.evolved_prompt
        model, questions = str(s["scorer"]["model"]), 2 * did.judged
        asked.append(calls("SCORER", model, questions, each.instructions + length, each.reply))
    return tuple(asked)


BY_KIND: Mapping[str, Callable[[Costing, Stage], StageCost]] = {
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
"""The cost of each kind of stage that a profile from outside the embedded world can have."""


def stage_cost(c: Costing, stage: Stage) -> StageCost:
    """Return what a stage takes.

    Raises:
        KeyError: it is of a kind that has no cost here.
    """
    return BY_KIND[stage.kind](c, stage)
