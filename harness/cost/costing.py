"""What the cost of every kind of stage is made of: requests, texts, bytes, and GPU seconds.

Requests are counted as they are when nothing fails; of rewrites a share is asked for again. Prices
are those that a user gives for a role (`HARNESS_CREATOR_PRICE`), else the list's
(`harness.endpoint.prices`). A model without a price has none, which is not zero.

Generating. Each step reads the weights and the keys and values of B sequences from memory and
computes one token of each; the slower of the two is the step's time. B is what fits into the memory
beside the weights, at most what an engine takes at a time and what there is to do. Prompts are read
first, as in scoring.

Scoring and training. Operations over the share of the peak that is reached. A training pass costs
as much as three forward passes of the policy: one forward, one back to the activations, one to the
weights. A fourth comes in where activations are computed again, and one goes where only adapters
are trained.

A stage holds the GPUs that the profile gives its kind, and its work is split evenly over them. A
model is whole on each of them, except in training, where sharding is part of the share reached, and
in engines of their own, which spread it, or as many copies of it as the profile says.

Sizes. How many prompts a stage works on is read off the graph; of an online run, step by step.
Numbers are what a run makes when nothing is dropped: every rewrite usable, no tie left out. What is
drawn from a mixture of human and evolved prompts has the mixture's shares. The phases of an online
run are those of `harness.eva.stream`: the buffer is filled, mixed with human prompts, and then
lives of its own rewrites.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from dataclasses import dataclass, replace
from functools import cache
from typing import cast

from harness.cost.assumptions import Assumptions, GpuUse, Hardware, Shape, shape_of
from harness.eva.informativeness import selected_count
from harness.eva.pairs import evolved_count
from harness.eva.stream import StreamSettings
from harness.registry.profile import Profile
from harness.runtime.stage import Stage
from harness.trainer.factory import needs_of
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
        """All of them."""
        return self.human + self.evolved

    def drawn(self, count: int) -> Prompts:
        """Return so many of them, in the same shares."""
        evolved = round(count * self.evolved / self.total) if self.total else 0
        return Prompts(count - evolved, evolved)


class Sizes:
    """The prompts of stages, each counted once."""

    def __init__(self) -> None:
        """Know nothing yet."""
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
    """Return the identity of the model that a stage's policy was trained from."""
    while "policy" not in stage.settings:
        stage = stage.inputs["policy"]
    return str(stage.settings["policy"])


@dataclass(frozen=True)
class Stretch:
    """What some steps of an online run do, counted in prompts but for the first.

    Attributes:
        children: rewrites that were asked for.
        scored: rolled out only to be scored: rewrites on entering, the buffer anew.
        judged: candidates of best-of-n trees that a scorer reads.
    """

    steps: int
    trained: int
    children: int = 0
    scored: int = 0
    judged: int = 0


def count_steps(s: StreamSettings, first: int, last: int, *, evolves: bool) -> Stretch:
    """Return what the steps `first` to `last` of a run do, counted from 1."""
    steps = last - first + 1
    trained = steps * s.minibatch
    if not evolves:
        return Stretch(steps, trained)
    children, scored = _cumulated(s, last)
    if first > 1:
        before_children, before_scored = _cumulated(s, first - 1)
        children, scored = children - before_children, scored - before_scored
    asked = children * (s.tree_depth if s.shape == "tree" else 1)
    return Stretch(steps, trained, asked, scored, asked - children)


@cache
def _cumulated(s: StreamSettings, last: int) -> tuple[int, int]:
    """Return the rewrites that entered the buffer by a step, and the prompts scored for it."""
    buffer = used = children = scored = 0
    phase = "warm-up"
    for step in range(1, last + 1):
        if phase == "warm-up":
            full = buffer >= s.capacity
            over = full if s.warm_up_steps is None else step > s.warm_up_steps
            phase = "mix-up" if over else phase
        if used >= s.x:
            phase = "bootstrap"
        wanted = {"bootstrap": 0, "mix-up": s.minibatch - s.from_buffer}.get(phase, s.minibatch)
        human = min(wanted, s.x - used)
        used += human
        buffer -= min(s.minibatch - human, buffer)
        new = s.evolved * (s.n_new_bootstrap if phase == "bootstrap" else s.n_new)
        if phase == "bootstrap" and buffer + new < s.minibatch:
            new = s.minibatch * s.n_new_bootstrap  # the others of the mini-batch as well
        entering = new + (human if s.buffer_holds == "evolved_and_human" else 0)
        buffer = min(s.capacity, buffer + entering)
        children += new
        scored += new if s.child_score == "rollout" else 0
        if s.rescore_every is not None and step % s.rescore_every == 0:
            scored += buffer
    return children, scored


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


@dataclass(frozen=True)
class StageCost:
    """What a stage costs: GPU seconds over all GPUs, requests, and bytes.

    `kept` is what it leaves in the store, `passing` what it needs besides while it runs. The GPU
    seconds are None where a model's shape is not known; `unknown` says why.
    """

    gpu_s: float | None = 0.0
    calls: tuple[Calls, ...] = ()
    kept: float = 0.0
    passing: float = 0.0
    unknown: str | None = None


@dataclass(frozen=True)
class GpuTime:
    """The time of models' work on some hardware; numbers are so many bytes wide.

    An engine of its own, as vLLM, spreads a model over several GPUs; a training has it on each.
    """

    hardware: Hardware
    use: GpuUse
    width: int = 2
    spread: int = 1

    def fits(self, shape: Shape) -> bool:
        """Return whether a model fits on its GPUs with room for a sequence."""
        return self._room(shape) > 0

    def generating(
        self, shape: Shape, sequences: float, prompt: float, answer: float, at_once: float
    ) -> float:
        """Return the GPU seconds of answers, `at_once` of which there are at any time."""
        each = shape.cache_bytes(self.width) * (prompt + answer)
        most = max(1.0, self._room(shape) // each)
        batch = min(self.use.sequences, most, max(1.0, at_once * self.spread / self.hardware.count))
        length = prompt + answer / 2
        read = shape.parameters * self.width + batch * shape.cache_bytes(self.width) * length
        gpu = self.hardware.gpu
        from_memory = read / (gpu.bandwidth * self.use.decoding_bandwidth)
        # Attention in a step reads the whole context, where a forward pass reads half on average.
        computing = batch * shape.forward_flops(2 * length) / (gpu.flops * self.use.decoding_flops)
        step = max(from_memory, computing)
        return self.scoring(shape, sequences, prompt) + sequences * answer / batch * step

    def scoring(self, shape: Shape, sequences: float, length: float) -> float:
        """Return the GPU seconds of forward passes over sequences of a length."""
        operations = sequences * length * shape.forward_flops(length)
        return operations / (self.hardware.gpu.flops * self.use.scoring)

    def training(self, shape: Shape, sequences: float, length: float, forwards: float) -> float:
        """Return the GPU seconds of a training that costs so many forward passes."""
        operations = sequences * length * shape.forward_flops(length) * forwards
        return operations / (self.hardware.gpu.flops * self.use.training)

    def starting(self) -> float:
        """Return the GPU seconds until a stage's models are loaded; all its GPUs wait."""
        return self.use.start_s * self.hardware.count

    def _room(self, shape: Shape) -> float:
        """Return the bytes of a model's GPUs that are left for keys and values."""
        memory = self.hardware.gpu.memory * self.spread * self.use.memory
        return memory - shape.parameters * self.width


class UnknownTimeError(Exception):
    """The time of a model's work cannot be told; the message says why."""


class Costing:
    """Prices parts of stages: for a profile, on some hardware, with some assumptions."""

    def __init__(self, profile: Profile, hardware: Hardware | None, assumed: Assumptions) -> None:
        """Price for a profile; without hardware GPU time is nothing."""
        self.profile = profile
        self.assumed = assumed
        self.sizes = Sizes()
        self._gpu = GpuTime(hardware, assumed.gpu) if hardware else None
        self._needs = needs_of(profile)

    def gpus_of(self, kind: str) -> int:
        """Return how many GPUs a stage of a kind holds: as many as it needs, of those there are."""
        if self._gpu is None:
            return 0
        there, needed = self._gpu.hardware.count, self._needs.of(kind).gpus
        # A profile that says nothing of its stages gives each the whole machine.
        return min(there, max(1, needed)) if self.profile.hardware else there

    def holding(self, kind: str) -> Costing:
        """Return what prices a stage of a kind, on the GPUs that it holds."""
        if self._gpu is None:
            return self
        held = copy(self)
        hardware = replace(self._gpu.hardware, count=self.gpus_of(kind))
        spread, said = 1, self.profile.hardware
        if kind in ("generate", "answer"):
            spread = hardware.count // (said.copies(kind, hardware.count) if said else 1)
        held._gpu = replace(self._gpu, hardware=hardware, spread=spread)
        return held

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

    def text_bytes(self, rows: float, tokens: float) -> float:
        """Return the bytes of so many rows with texts of a mean length."""
        return rows * (tokens * self.assumed.disk.token + self.assumed.disk.row)

    def asking(self, asked: tuple[Calls, ...], kept: float) -> StageCost:
        """Return the cost of requests, which are kept so that none is paid twice."""
        return StageCost(0.0, asked, kept + self.reply_bytes(asked))

    def reply_bytes(self, asked: tuple[Calls, ...]) -> float:
        """Return the bytes of requests and replies."""
        tokens = sum(call.prompt_tokens + call.completion_tokens for call in asked)
        return tokens * self.assumed.disk.token

    def rewrites(self, model: str, children: float) -> Calls:
        """Return the requests for so many rewrites, those asked for again included."""
        creator, length = self.assumed.creator, self.assumed.tokens.evolved_prompt
        requests = children * (1 + creator.retried)
        return calls("CREATOR", model, requests, creator.instructions + length, length)

    def timed(
        self, work: Callable[[GpuTime], float], kept: float, passing: float = 0.0, *asked: Calls
    ) -> StageCost:
        """Return the cost of a stage with work for GPUs, its start included."""
        if self._gpu is None:
            return StageCost(0.0, asked, kept, passing)
        try:
            return StageCost(work(self._gpu) + self._gpu.starting(), asked, kept, passing)
        except UnknownTimeError as why:
            return StageCost(None, asked, kept, passing, str(why))

    def policy(self, stage: Stage) -> Shape:
        """Return the shape of a stage's policy.

        Raises:
            UnknownTimeError: it is not known, or does not fit.
        """
        return self.shape(base_policy(stage))

    def shape(self, identity: str) -> Shape:
        """Return the shape of a model by its identity.

        Raises:
            UnknownTimeError: it is not known, or does not fit.
        """
        name = identity.partition("@")[0]
        shape = shape_of(identity)
        if shape is None:
            raise UnknownTimeError(f"the shape of {name} is not known")
        if self._gpu is not None and not self._gpu.fits(shape):
            spread = self._gpu.spread
            on = str(spread) if spread > 1 else "one"
            raise UnknownTimeError(f"{name} does not fit on {on} {self._gpu.hardware.name}")
        return shape

    def parameters(self, stage: Stage) -> float:
        """Return the parameters of a stage's policy; 0 where they are not known."""
        shape = shape_of(base_policy(stage))
        return 0.0 if shape is None else float(shape.parameters)

    def training_forwards(self, passes: float, *, lora: bool, reference: bool) -> float:
        """Return how many forward passes a training costs; a reference costs one."""
        hardware = self.profile.hardware
        again = self.assumed.gpu.checkpointing
        if hardware is not None:
            again = hardware.gradient_checkpointing
        return passes * (2 + (not lora) + again) + reference

    def rewarding(
        self, gpu: GpuTime, identity: str, answers: float, n: int, prompt: float, answer: float
    ) -> float:
        """Return the GPU seconds of rewards.

        `n` answers to a prompt are compared two by two, in both orders; 0 where each is
        scored by itself.
        """
        shape = self.shape(identity)
        if n == 0:
            return gpu.scoring(shape, answers, prompt + answer)
        return gpu.scoring(shape, answers * (n - 1), prompt + 2 * answer)
