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

Work is split evenly over the GPUs; a model is whole on each of them, except in training, where
sharding is part of the share reached.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from harness.cost.assumptions import Assumptions, GpuUse, Hardware, Shape, shape_of
from harness.cost.sizes import Prompts, Sizes, base_policy
from harness.registry.profile import Profile
from harness.runtime.stage import Stage
from harness.worlds.real.asking import Role, price_of


@dataclass(frozen=True)
class Calls:
    """Requests of one kind to one model.

    Attributes:
        role: whose requests they are.
        model: who is asked.
        requests: how many.
        prompt_tokens: tokens of all prompts together.
        completion_tokens: tokens of all replies together.
    """

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
    """What a stage costs.

    Attributes:
        gpu_s: GPU seconds, over all GPUs; None where a model's shape is not known.
        calls: requests to endpoints.
        kept: bytes it leaves in the store.
        passing: bytes it needs besides while it runs.
        unknown: why the GPU seconds are not known.
    """

    gpu_s: float | None = 0.0
    calls: tuple[Calls, ...] = ()
    kept: float = 0.0
    passing: float = 0.0
    unknown: str | None = None


@dataclass(frozen=True)
class GpuTime:
    """The time of models' work on some hardware; numbers are so many bytes wide."""

    hardware: Hardware
    use: GpuUse
    width: int = 2

    def fits(self, shape: Shape) -> bool:
        """Return whether a model fits on one GPU with room for a sequence."""
        return self._room(shape) > 0

    def generating(
        self, shape: Shape, sequences: float, prompt: float, answer: float, at_once: float
    ) -> float:
        """Return the GPU seconds of answers, `at_once` of which there are at any time."""
        each = shape.cache_bytes(self.width) * (prompt + answer)
        most = max(1.0, self._room(shape) // each)
        batch = min(self.use.sequences, most, max(1.0, at_once / self.hardware.count))
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
        """Return the GPU seconds until a stage's models are loaded; all GPUs wait."""
        return self.use.start_s * self.hardware.count

    def _room(self, shape: Shape) -> float:
        """Return the bytes of a GPU that are left for keys and values."""
        return self.hardware.gpu.memory * self.use.memory - shape.parameters * self.width


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
            raise UnknownTimeError(f"{name} does not fit on one {self._gpu.hardware.name}")
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
