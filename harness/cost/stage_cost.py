"""What one stage costs: GPU seconds, requests and bytes, by its kind.

A stage's cost is a function of itself and of the sizes of what it works on. Kinds that only move
rows take no GPU; reading and writing them is not counted as time.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, cast

from harness.catalogue.profile import Profile
from harness.catalogue.recipe import Online
from harness.cost.assumptions import Assumptions, Judged
from harness.cost.calls import Calls, calls
from harness.cost.gpu_time import GpuTime
from harness.cost.hardware import Hardware
from harness.cost.online import Stretch, count_steps
from harness.cost.shapes import Shape, shape_of
from harness.cost.sizes import Prompts, Sizes, base_policy
from harness.errors import HarnessError
from harness.store.stage import Stage
from harness.trainer.online_plan import stream_settings

LM_EVAL = "lm-eval"
"""How the identity begins of tasks that lm-evaluation-harness has."""

WITH_REFERENCE = ("dpo", "sppo")
"""Offline algorithms that evaluate a reference, once before training."""


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


class _Unknown(Exception):
    """A model's time cannot be told; the message says why."""


class StageCosts:
    """The costs of a profile's stages on some hardware."""

    def __init__(self, profile: Profile, hardware: Hardware | None, assumed: Assumptions) -> None:
        """Price for a profile.

        Args:
            profile: the profile that the stages were planned for.
            hardware: the GPUs; None where no GPU is used, so that GPU time is nothing.
            assumed: what the model assumes.
        """
        self._profile = profile
        self._assumed = assumed
        self._gpu = GpuTime(hardware, assumed.gpu) if hardware else None
        self._sizes = Sizes()
        self._by_kind: Mapping[str, Callable[[Stage], StageCost]] = {
            "generate": self._generate,
            "annotate": self._annotate,
            "evolve": self._evolve,
            "rewrite": self._rewrite,
            "train": self._train,
            "online": self._online,
            "answer": self._answer,
            "judge": self._judge,
            "rate": self._rate,
            "topics": self._topics,
        }

    def of(self, stage: Stage) -> StageCost:
        """Return what a stage costs.

        Raises:
            HarnessError: the model does not know its kind.
        """
        if stage.kind not in self._by_kind:
            rows = self._sizes.of(stage)
            return StageCost(kept=self._text(rows.total, 3 * self._answer_tokens(rows)))
        return self._by_kind[stage.kind](stage)

    # Lengths -------------------------------------------------------------------------------------

    def _prompt_tokens(self, prompts: Prompts) -> float:
        t = self._assumed.tokens
        if not prompts.total:
            return float(t.prompt)
        sum_ = prompts.human * t.prompt + prompts.evolved * t.evolved_prompt
        return sum_ / prompts.total + t.overhead

    def _answer_tokens(self, prompts: Prompts, limit: int | None = None) -> float:
        t = self._assumed.tokens
        if not prompts.total:
            return float(t.answer)
        mean = (prompts.human * t.answer + prompts.evolved * t.evolved_answer) / prompts.total
        return mean if limit is None else min(mean, limit)

    def _text(self, rows: float, tokens: float) -> float:
        """Return the bytes of so many rows with texts of a mean length."""
        disk = self._assumed.disk
        return rows * (tokens * disk.token + disk.row)

    # Time ----------------------------------------------------------------------------------------

    def _timed(
        self, work: Callable[[GpuTime], float], kept: float, passing: float = 0.0, *asked: Calls
    ) -> StageCost:
        """Return the cost of a stage with work for GPUs, its start included."""
        if self._gpu is None:
            return StageCost(0.0, asked, kept, passing)
        try:
            return StageCost(work(self._gpu) + self._gpu.starting(), asked, kept, passing)
        except _Unknown as why:
            return StageCost(None, asked, kept, passing, str(why))

    def _shape(self, identity: str) -> Shape:
        name = identity.partition("@")[0]
        shape = shape_of(identity)
        if shape is None:
            raise _Unknown(f"the shape of {name} is not known")
        if self._gpu is not None and not self._gpu.fits(shape):
            raise _Unknown(f"{name} does not fit on one {self._gpu.hardware.name}")
        return shape

    def _scoring(
        self, gpu: GpuTime, identity: str, answers: float, n: int, prompt: float, answer: float
    ) -> float:
        """Return the GPU seconds of rewards of answers, n to a prompt; pairwise where n > 0."""
        shape = self._shape(identity)
        if n == 0:
            return gpu.scoring(shape, answers, prompt + answer)
        return gpu.scoring(shape, answers * (n - 1), prompt + 2 * answer)

    # Kinds ---------------------------------------------------------------------------------------

    def _generate(self, stage: Stage) -> StageCost:
        prompts, s = self._sizes.of(stage), stage.settings
        n = cast(int, s["n"])
        prompt = self._prompt_tokens(prompts)
        answer = self._answer_tokens(prompts, cast(int, s["max_new_tokens"]))
        count = float(prompts.total * n)

        def work(gpu: GpuTime) -> float:
            return gpu.generating(self._shape(base_policy(stage)), count, prompt, answer, count)

        return self._timed(work, self._text(count, answer) + self._text(prompts.total, prompt))

    def _annotate(self, stage: Stage) -> StageCost:
        prompts, s = self._sizes.of(stage), stage.settings
        rollouts = stage.inputs["completions"].settings
        n = cast(int, rollouts["n"])
        prompt = self._prompt_tokens(prompts)
        answer = self._answer_tokens(prompts, cast(int, rollouts["max_new_tokens"]))
        count = float(prompts.total * n)
        compared = n if s.get("rewards") == "win_probability" else 0

        def work(gpu: GpuTime) -> float:
            return self._scoring(gpu, str(s["reward_model"]), count, compared, prompt, answer)

        return self._timed(work, self._text(count, 0))

    def _evolve(self, stage: Stage) -> StageCost:
        children = self._sizes.of(stage).total
        asked: tuple[Calls, ...] = ()
        if "rewriting" in stage.settings:
            model = str(cast(dict[str, Any], stage.settings["rewriting"])["model"])
            asked = (self._rewrites(model, children),)
        length = self._assumed.tokens.evolved_prompt
        return StageCost(0.0, asked, 2 * self._text(children, length) + _replies(self, asked))

    def _rewrites(self, model: str, children: float) -> Calls:
        """Return the requests for so many rewrites, those asked for again included."""
        creator, length = self._assumed.creator, self._assumed.tokens.evolved_prompt
        requests = children * (1 + creator.retried)
        return calls("CREATOR", model, requests, creator.instructions + length, length)

    def _rewrite(self, stage: Stage) -> StageCost:
        prompts, s = self._sizes.of(stage), stage.settings
        answer = self._answer_tokens(prompts, cast(int, s["max_new_tokens"]))
        prompt = self._prompt_tokens(prompts)
        asked = prompt + answer + self._assumed.tokens.rewrite_instruction
        count = float(prompts.total)

        def work(gpu: GpuTime) -> float:
            revising = gpu.generating(self._shape(base_policy(stage)), count, asked, answer, count)
            return revising + self._scoring(gpu, str(s["reward_model"]), count, 0, prompt, answer)

        return self._timed(work, self._text(count, prompt + 2 * answer))

    def _train(self, stage: Stage) -> StageCost:
        pairs, s = self._sizes.of(stage), stage.settings
        longest = cast(int, s["max_length"])
        prompt = min(self._prompt_tokens(pairs), cast(int, s["max_prompt_length"] or longest))
        length = min(prompt + self._answer_tokens(pairs), longest)
        reference = 1 if s["algorithm"] in WITH_REFERENCE else 0

        def work(gpu: GpuTime) -> float:
            shape, passes = self._shape(base_policy(stage)), cast(float, s["epochs"])
            sequences = 2.0 * pairs.total
            return gpu.training(shape, sequences, length, passes, reference=reference)

        disk, size = self._assumed.disk, self._parameters(stage)
        return self._timed(work, size * disk.parameter, size * disk.checkpoint)

    def _parameters(self, stage: Stage) -> float:
        """Return the parameters of a stage's policy; 0 where they are not known."""
        shape = shape_of(base_policy(stage))
        return 0.0 if shape is None else float(shape.parameters)

    def _online(self, stage: Stage) -> StageCost:
        s = stage.settings
        online = Online.model_validate(s["online"])
        x, hyper = cast(int, s["x"]), cast(dict[str, Any], s["training"])
        did = count_steps(
            stream_settings(online, x, cast(int, s["retries"])),
            x,
            cast(int, s["first_step"]),
            cast(int, s["last_step"]),
            evolves=s["creator"] is not None,
        )
        asked = self._online_calls(s, did)
        disk, size = self._assumed.disk, self._parameters(stage)

        def work(gpu: GpuTime) -> float:
            return self._online_time(gpu, stage, did, int(hyper["rollouts"]), hyper)

        kept = size * (disk.parameter + disk.moments) + _replies(self, asked)
        return self._timed(work, kept, size * disk.checkpoint, *asked)

    def _online_calls(self, s: Mapping[str, Any], did: Stretch) -> tuple[Calls, ...]:
        asked = []
        if "rewriting" in s:
            asked.append(self._rewrites(str(s["rewriting"]["model"]), did.children))
        if "scorer" in s:
            each = self._assumed.benchmarks.prompt_judge
            length = self._assumed.tokens.evolved_prompt
            model, questions = str(s["scorer"]["model"]), 2 * did.judged
            asked.append(calls("SCORER", model, questions, each.instructions + length, each.reply))
        return tuple(asked)

    def _online_time(
        self, gpu: GpuTime, stage: Stage, did: Stretch, n: int, hyper: Mapping[str, Any]
    ) -> float:
        """Return the GPU seconds of a segment: rollouts of each step by themselves, and training.

        A step's rollouts are few, so a step of generating reads the weights for few sequences; and
        it lasts as long as its longest rollout, which is taken to reach the limit.
        """
        policy = self._shape(base_policy(stage))
        s, prompts = stage.settings, Prompts(did.trained + did.scored)
        prompt, limit = self._prompt_tokens(prompts), int(hyper["max_new_tokens"])
        answer = self._answer_tokens(prompts, limit)
        trained, scored = float(did.trained * n), float(did.scored * n)
        seconds = gpu.generating(policy, trained, prompt, limit, trained / did.steps)
        if scored:
            seconds += gpu.generating(policy, scored, prompt, limit, scored / did.steps)
        models = [str(s["reward_model"])] + ([str(s["ranker"])] if s["ranker"] else [])
        for model in models:
            seconds += self._scoring(gpu, model, trained + scored, 0, prompt, answer)
        length = min(prompt + answer, int(hyper["max_length"]))
        return seconds + gpu.training(policy, trained, length, 1, reference=1)

    def _answer(self, stage: Stage) -> StageCost:
        identity = str(stage.settings["benchmark"])
        if identity.startswith(LM_EVAL):
            return self._tasks(stage)
        name, lengths = self._judged(identity)
        items, turns = cast(int, self._profile.benchmarks[name].items), _turns(name)
        answer = min(lengths.answer, cast(int, stage.settings["max_new_tokens"]))

        def work(gpu: GpuTime) -> float:
            shape = self._shape(base_policy(stage))
            return sum(
                gpu.generating(
                    shape, items, turn * lengths.question + (turn - 1) * answer, answer, items
                )
                for turn in range(1, turns + 1)
            )

        return self._timed(work, self._text(items * turns, lengths.question + answer))

    def _tasks(self, stage: Stage) -> StageCost:
        """Return the cost of table 9's tasks, which the policy answers and no endpoint judges."""
        items = self._profile.benchmarks["downstream"]
        tasks = self._assumed.benchmarks.downstream

        def work(gpu: GpuTime) -> float:
            shape, seconds = self._shape(base_policy(stage)), 0.0
            for score in items.columns:
                task, count = tasks[score], items.items_of(score)
                if task.generated:
                    seconds += gpu.generating(shape, count, task.prompt, task.generated, count)
                else:
                    seconds += gpu.scoring(shape, count * task.requests, task.prompt)
            return seconds

        rows = sum(items.items_of(score) for score in items.columns)
        return self._timed(work, self._text(rows, self._assumed.tokens.answer))

    def _judge(self, stage: Stage) -> StageCost:
        identity = str(stage.settings["benchmark"])
        if identity.startswith(LM_EVAL):
            # The tasks are answered and scored in one go; where nothing was answered before, here.
            return StageCost() if "answers" in stage.inputs else self._tasks(stage)
        name, lengths = self._judged(identity)
        requests = cast(int, self._profile.benchmarks[name].items) * _requests(name)
        prompt = lengths.instructions + lengths.question + lengths.answer + lengths.reference
        asked = (calls("JUDGE", str(stage.settings["judge"]), requests, prompt, lengths.reply),)
        return StageCost(0.0, asked, self._text(requests, lengths.reply) + _replies(self, asked))

    def _judged(self, identity: str) -> tuple[str, Judged]:
        """Return a benchmark's name in the profile and its lengths."""
        name = identity.partition("@")[0].replace("-", "_")
        found = getattr(self._assumed.benchmarks, name, None)
        if not isinstance(found, Judged) or name not in self._profile.benchmarks:
            raise HarnessError(f"the cost model does not know the benchmark `{identity}`")
        return name, found

    def _rate(self, stage: Stage) -> StageCost:
        prompts = self._sizes.of(stage)
        each = self._assumed.benchmarks.prompt_judge
        requests = 2 * prompts.total  # complexity and quality
        prompt = each.instructions + self._prompt_tokens(prompts)
        model = str(stage.settings["judge"])
        asked = (calls("JUDGE", model, requests, prompt, each.reply),)
        return StageCost(0.0, asked, self._text(requests, 0) + _replies(self, asked))

    def _topics(self, stage: Stage) -> StageCost:
        prompts = self._sizes.of(stage)
        each = self._assumed.benchmarks.topics
        prompt = each.instructions + self._prompt_tokens(prompts)
        model = str(stage.settings["judge"])
        asked = (calls("JUDGE", model, prompts.total, prompt, each.reply),)
        return StageCost(0.0, asked, self._text(prompts.total, 0) + _replies(self, asked))


def _turns(benchmark: str) -> int:
    """Return the turns of a benchmark's conversations."""
    return 2 if benchmark == "mt_bench" else 1


def _requests(benchmark: str) -> int:
    """Return the requests to a judge for an item: both orders, or both turns."""
    return 1 if benchmark == "alpaca_eval" else 2


def _replies(costs: StageCosts, asked: tuple[Calls, ...]) -> float:
    """Return the bytes of requests and replies that are kept, so that none is paid twice."""
    tokens = sum(c.prompt_tokens + c.completion_tokens for c in asked)
    return tokens * costs._assumed.disk.token
