"""The stage of online eva: one segment of a continual run.

Here the prompts' stream, the rewards, the policy and the trainer meet. A `Source` is what the
trainer asks for the prompts of each step and tells of their rollouts: it rewards them, lets the
stream's selector choose and the creator rewrite, rolls out with the policy as it is what the
selector asks for, and counts what everything costs. The stage writes what a continuation needs
(`model/`, `optimizer.safetensors`, `stream.json`), what was trained on (`trained.parquet`), and
what it cost since the run began (`summary.json`).

It is trained in this process; where the profile has hardware of several devices, by a process for
each under `accelerate`, of which only the first has the stream, the reward models and the creator,
and writes what the stage leaves. A segment is short and has no checkpoints within: one that was
killed starts again from the end of the one before.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, cast

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from harness.errors import UserError
from harness.eva.evolving import Prompt
from harness.extensions import SELECTORS
from harness.models.loading import Checkpoint
from harness.models.policy import embed, generate
from harness.models.reward_model import Rewards
from harness.pipeline.steps import (
    hardware_for_training,
    prompts_of,
    rewards_of,
    user,
)
from harness.registry.training import Hardware
from harness.runtime.files import held
from harness.runtime.stage import StageContext
from harness.selectors.eva import StreamSettings, eva_stream
from harness.selectors.screening import Ranked
from harness.selectors.selector import Phase, Pool, Rolled, Selector, Shuffled, Sizes
from harness.selectors.stream import Evolving, Fed, MiniBatch, PromptStream
from harness.training.distributed import SharedPolicy, is_first
from harness.training.launch import Metrics, launch
from harness.training.online import OPTIMIZER, Drawn, OnlineAlgorithm, Segment, train_segment
from harness.training.placement import PLAIN, Placement, one_device
from harness.worlds import Evolver
from harness.worlds.embedded.choosing import OracleValue, read_right
from harness.worlds.lookup import resolve, runtime_of
from harness.worlds.stage_io import (
    PROMPT_SCHEMA,
    Rows,
    read_prompts,
    write_json,
    write_rows,
)

TRAINED_SCHEMA = pa.schema(
    [
        *PROMPT_SCHEMA,
        ("step", pa.int64()),
        ("phase", pa.string()),
        ("informativeness", pa.float64()),
        ("reward_mean", pa.float64()),
        ("reward_best", pa.float64()),
    ]
)
"""Columns of `trained.parquet`: the prompts trained on in this segment, step by step."""

CHOSEN_SCHEMA = pa.schema(
    [
        *TRAINED_SCHEMA,
        ("spread", pa.float64()),
        ("predicted", pa.float64()),
        ("propensity", pa.float64()),
    ]
)
"""The same in a league: the standard deviation of the rewards; what the selector predicted, which
should rise with it; and the chance that the prompt had. The last two where it says."""


def online_stage(ctx: StageContext) -> None:
    """Train one segment of a continual run; see the module for what it writes."""
    if "last_step" in ctx.settings:
        ctx.expect(cast(int, ctx.settings["last_step"]))
    with placed(ctx) as (place, work):
        if place.shared:
            assert work is not None
            hardware = Hardware.model_validate(ctx.hardware["training"])
            launch(f"{__name__}:train_here", ctx, place, hardware, work, ctx.report)
        else:
            train_here(ctx, place)


def train_here(ctx: StageContext, place: Placement) -> None:
    """Do this process's part of a segment; the first process draws, rewards and writes."""
    s = cast(dict[str, Any], ctx.settings)
    before = ctx.inputs.get("before")
    algorithm = _algorithm(s["algorithm"])(**s["training"])
    segment = _segment(ctx)
    # First, because it loads models that are not to be spread over the processes.
    source = StreamSource(ctx, algorithm) if not place.shared or is_first() else None
    train_segment(
        algorithm,
        policy=_policy(ctx),
        reference=resolve(s["policy"]),
        optimizer_state=before / OPTIMIZER if before else None,
        out_dir=ctx.output,
        segment=segment,
        source=source,
        seed=s["seed"],
        on_log=ctx.report,
        place=place,
    )
    if source is not None:
        schema = CHOSEN_SCHEMA if "budget" in s else TRAINED_SCHEMA
        write_rows(ctx.output / "trained.parquet", source.trained, schema)
        write_json(ctx.output / "summary.json", source.summary())
        write_json(ctx.output / STREAM, source.stream.state() | {"costs": source.said_costs})


def _segment(ctx: StageContext) -> Segment:
    """Return the steps of the segment; with a budget, at most those that it could pay for."""
    s = cast(dict[str, Any], ctx.settings)
    if "budget" not in s:
        return Segment(s["first_step"], s["last_step"])
    done = 0
    if "before" in ctx.inputs:
        done = json.loads((ctx.inputs["before"] / STREAM).read_text(encoding="utf-8"))["step"]
    # A rollout has at least one token.
    per_step = s["training"]["minibatch"] * s["training"]["rollouts"]
    most = s["budget"]["amount"] // (1 if s["budget"]["of"] == "steps" else per_step) + 1
    return Segment(done + 1, done + most, budgeted=True)


@contextmanager
def placed(ctx: StageContext) -> Iterator[tuple[Placement, Path | None]]:
    """Yield how the stage is laid on this machine, and a working folder that this process holds.

    The folder is None where none is needed.
    """
    numerics = cast(dict[str, Any] | None, ctx.settings.get("numerics"))
    if numerics is None:
        yield PLAIN, None
        return
    hardware, unfinished = hardware_for_training(ctx)
    shared = hardware.devices > 1
    place = Placement(
        device="cuda" if shared else one_device(),
        devices=hardware.devices,
        dtype=numerics["dtype"],
        attention=numerics["attention"],
        micro_batch=hardware.micro_batch_of(str(ctx.settings["algorithm"])),
        gradient_checkpointing=hardware.gradient_checkpointing,
        shared=shared,
        rollouts_gpu_memory=hardware.rollouts_gpu_memory,
    )
    if not shared:
        yield place, None
        return
    with held(unfinished) as work:
        yield place, work


def _policy(ctx: StageContext) -> Path:
    """Return the checkpoint that the segment starts from."""
    before = ctx.inputs.get("before")
    return before / "model" if before else resolve(str(ctx.settings["policy"]))


def _algorithm(name: str) -> type[OnlineAlgorithm]:
    """Return an online algorithm; the libraries of the others are not loaded."""
    if name == "oaif":
        from harness.training.oaif import OAIF

        return OAIF
    from harness.training.rloo import RLOO

    return RLOO


def oracle_of(ctx: StageContext) -> OracleValue | None:
    """Return what values prompts where the oracle chooses them; None where a metric does."""
    if "probe" not in ctx.inputs:
        return None
    online = cast(dict[str, Any], ctx.settings["online"])
    shuffled = online.get("shuffled", False)
    seed = cast(int, ctx.settings["seed"])
    right = read_right(ctx.inputs["probe"])
    return OracleValue(right, online["oracle"], shuffled=shuffled, seed=seed)


ROLLOUT_BATCH = 256
"""Completions generated at a time; other sizes round differently, no more."""

STREAM = "stream.json"
"""The stream's state and the costs so far, written at the end of each segment."""

COSTS = ("rollouts", "tokens", "gradient_steps", "creator_calls")
"""What a run has cost since it began: rollouts and their tokens (those of rewrites and of buffer
scoring included), optimiser steps, calls of the creator."""

LEDGER = (*COSTS, "trained", "insertion", "scored_tokens", "creator_tokens", "read_prompts")
"""The same in a league, and of the rollouts those that were trained on and those of prompts that
entered the pool (the others were made to choose); tokens of answers that reward models read; tokens
that the creator wrote; prompts that the policy read to value them."""


class StreamSource:
    """Prompts from the stream, rewards from the reward models (`StepPrompts`).

    `trained` has what was trained on in this segment, one row a prompt, and `costs` what the run
    has cost since it began, by the names in `COSTS`.
    """

    def __init__(self, ctx: StageContext, hyper: OnlineAlgorithm) -> None:
        """Begin a segment where the one before ended; `hyper` says how rollouts are sampled."""
        s = cast(dict[str, Any], ctx.settings)
        self.trained: Rows = []
        self.seed: int = s["seed"]
        self._hyper = hyper
        self._prompt_metrics = runtime_of(s["policy"]).prompt_metrics()
        self._penalty: float = s["missing_eos_penalty"]
        self._reward_model = rewards_of(ctx, "one answer")
        self._ranker = rewards_of(ctx, "one answer", "ranker") if s["ranker"] else None
        human = prompts_of(read_prompts(ctx.inputs["prompts"]))
        if "pass" in s:
            # Else a later pass would see the mini-batches of the first.
            rng = np.random.default_rng([self.seed, s["pass"]])
            human = [human[i] for i in rng.permutation(len(human))]
        creating = runtime_of(s["creator"]) if s["creator"] else None
        evolver = creating.evolver(s) if creating else None
        self._oracle = oracle_of(ctx)
        self.costs = dict.fromkeys(LEDGER, 0)
        self._budget = cast(dict[str, Any] | None, s.get("budget"))
        if self._budget is None:
            self.stream = eva_stream(
                StreamSettings(**s["online"], x=s["x"], retries=s["retries"]),
                human,
                evolver.creator if evolver else None,
                self.seed,
                rollouts=hyper.rollouts,
                quality=creating.tree_score(s) if creating else None,
                over=evolver.over if evolver else map,
                value=self._oracle,
            )
        else:
            self.stream = self._in_league(s, human, evolver)
        if "before" in ctx.inputs:
            self._restore(ctx.inputs["before"], new_prompts=s.get("new_prompts", False))
        self._batch: MiniBatch | None = None
        self._calls: int | None = None
        self._children = self._dropped = self._unusable = self._repeated = self._left_out = 0

    def _in_league(
        self, s: dict[str, Any], human: Sequence[Prompt], evolver: Evolver | None
    ) -> PromptStream:
        online = s["online"]
        league = online["league"]
        n_new = online["n_new"] if evolver else 0
        sizes = Sizes(online["minibatch"], len(human), n_new)
        if "selector_plugin" in s:
            SELECTORS.check(league["selector"], s["selector_plugin"])
        chosen: Selector = SELECTORS.get(league["selector"]).made(league["options"], sizes)
        if self._oracle is not None:
            chosen = Ranked(self._oracle)
        elif online.get("shuffled"):
            chosen = Shuffled(chosen)
        evolving = None
        if evolver is not None:
            evolving = Evolving(evolver.creator, n_new, s["retries"], over=evolver.over)
        return PromptStream(
            chosen,
            Pool(human, len(human)),
            self.seed,
            minibatch=online["minibatch"],
            rollouts=self._hyper.rollouts,
            evolving=evolving,
            seen=league["seen"] or chosen.view,
            embed=self._embedded,
        )

    @property
    def said_costs(self) -> dict[str, int]:
        """What is written of the costs: all of them where a budget is counted."""
        return {name: self.costs[name] for name in (COSTS if self._budget is None else LEDGER)}

    @property
    def spent(self) -> bool:
        """Whether the budget of the segment is used up."""
        if self._budget is None:
            return False
        generated = self.costs["tokens"] + self.costs["creator_tokens"]
        used = {"steps": self.costs["gradient_steps"], "rollouts": self.costs["rollouts"]}
        return bool(used.get(self._budget["of"], generated) >= self._budget["amount"])

    def _restore(self, before: Path, *, new_prompts: bool) -> None:
        state = json.loads((before / STREAM).read_text(encoding="utf-8"))
        self.costs |= state["costs"]
        # A run on human prompts goes on with the next x of them, from their first.
        self.stream.restore(state | ({"used": 0} if new_prompts else {}))

    def draw(self, policy: Checkpoint | SharedPolicy) -> Drawn:
        """Begin a step and return its prompts."""
        self._policy, self._calls = policy, 0
        self._batch = self.stream.draw(partial(self._rolled_out, policy))
        texts = [prompt.prompt for prompt in self._batch.prompts]
        if not self._batch.kept:
            return Drawn(texts)
        return Drawn(texts, [[c.ids for c in group.answers] for group in self._batch.kept])

    def reward(
        self, completions: Sequence[Sequence[str]], ended: NDArray[np.bool_], tokens: int
    ) -> NDArray[np.float64]:
        """Return the P x N rewards of the step's rollouts."""
        assert self._batch is not None
        self.costs["trained"] += ended.size
        length, share = tokens / ended.size, float(ended.mean())
        if self._batch.kept:  # counted and rewarded when they were made
            rewards = np.array([group.rewards for group in self._batch.kept])
            self._step = _Step(rewards, rewards, length, share)
            return rewards
        self._count(ended.size, tokens)
        texts = [prompt.prompt for prompt in self._batch.prompts]
        rewards = self._scored(self._reward_model, texts, completions, ended)
        ranks = rewards
        if self._ranker is not None:
            ranks = self._scored(self._ranker, texts, completions, ended)
        self._step = _Step(rewards, ranks, length, share)
        return rewards

    def finish(self, policy: Checkpoint | SharedPolicy) -> Metrics:
        """End the step: evolve, fill the buffer, and say what happened."""
        assert self._batch is not None
        batch, step = self._batch, self._step
        self._calls = None
        fed = self.stream.feed(step.ranks, partial(self._rolled_out, policy))
        if self._oracle is not None:
            self._oracle.train([prompt.prompt for prompt in batch.prompts])
        self.costs["gradient_steps"] += 1
        self.costs["creator_calls"] += fed.calls
        self.costs["creator_tokens"] += self._written(policy, fed)
        self._children += len(fed.children)
        self._dropped += fed.dropped
        self._unusable += sum(fed.unusable.values())
        self._repeated += fed.repeated
        for i, prompt in enumerate(batch.prompts):
            row = {
                **vars(prompt),
                "step": batch.step,
                "phase": batch.phase,
                "informativeness": float(fed.informativeness[i]),
                "reward_mean": float(step.rewards[i].mean()),
                "reward_best": float(step.rewards[i].max()),
            }
            if self._budget is not None:
                row["spread"] = float(step.rewards[i].std())
                row["predicted"] = batch.predicted and batch.predicted[i]
                row["propensity"] = batch.propensity and batch.propensity[i]
            self.trained.append(row)
        return self._metrics(batch, step, fed)

    def summary(self) -> dict[str, Any]:
        """Return what the run has cost since it began, and how this segment's rewrites fared."""
        phases = [row["phase"] for row in self.trained]
        return {
            **self.said_costs,
            "children": self._children,
            "dropped": self._dropped,
            "unusable": self._unusable,
            "repeated": self._repeated,
            "without_reward": self._left_out,
            "phases": {phase: phases.count(phase) for phase in dict.fromkeys(phases)},
            "evolved_share": float(np.mean([row["generation"] > 0 for row in self.trained])),
            "buffer": len(self.stream.pool.buffer),
        }

    def _metrics(self, batch: MiniBatch, step: _Step, fed: Fed) -> Metrics:
        prompts = batch.prompts
        buffer = self.stream.pool.buffer.entries
        metrics = {
            "reward": float(step.rewards.mean()),
            "gap": float((step.rewards.max(axis=1) - step.rewards.mean(axis=1)).mean()),
            "without_spread": float((np.ptp(step.rewards, axis=1) == 0).mean()),
            "completion_length": step.length,
            "ended": step.ended,
            "evolved_share": float(np.mean([p.generation > 0 for p in prompts])),
            "rollouts": float(self.costs["rollouts"]),
            "tokens": float(self.costs["tokens"]),
        }
        for name, metric in self._prompt_metrics.items():
            metrics[name] = float(np.mean([metric(p.prompt) for p in prompts]))
        if batch.phase != "human":
            phases = ("warm-up", "mix-up", "bootstrap")
            metrics |= {f"phase/{name}": float(batch.phase == name) for name in phases}
            metrics |= {
                "buffer/size": float(len(buffer)),
                "buffer/children": float(len(fed.children)),
                "buffer/evicted": float(fed.evicted),
                "buffer/dropped": float(fed.dropped),
            }
        if buffer:
            metrics |= {
                "buffer/informativeness": float(np.mean([e.informativeness for e in buffer])),
                "buffer/generation": float(np.mean([e.prompt.generation for e in buffer])),
                "buffer/age": float(np.mean([batch.step - e.entered for e in buffer])),
            }
        return metrics

    def _rolled_out(
        self, policy: Checkpoint | SharedPolicy, prompts: Sequence[Prompt], n: int, phase: Phase
    ) -> list[Rolled]:
        h = self._hyper
        purpose = [self.seed, self.stream.step, 2]
        if self._calls is not None:  # before the step's own rollouts, and perhaps several times
            purpose = [self.seed, self.stream.step, 4, self._calls]
            self._calls += 1
        texts = [prompt.prompt for prompt in prompts]
        if isinstance(policy, SharedPolicy):
            roll_out = policy.generate
        else:
            roll_out = partial(generate, policy)
        completions = roll_out(
            [user(text) for text in texts],
            n=n,
            temperature=h.temperature,
            top_p=h.top_p,
            max_new_tokens=h.max_new_tokens,
            batch_size=ROLLOUT_BATCH,
            seed=int(np.random.SeedSequence(purpose).generate_state(1)[0]),
        )
        if phase == "insertion":
            self.costs["insertion"] += n * len(prompts)
        ended = np.array([[c.n_tokens < h.max_new_tokens for c in row] for row in completions])
        self._count(ended.size, sum(c.n_tokens for row in completions for c in row) + ended.sum())
        answers = [[c.text for c in row] for row in completions]
        rewards = self._scored(self._ranker or self._reward_model, texts, answers, ended)
        rows = zip(rewards, completions, strict=True)
        return [Rolled(own, tuple(completed)) for own, completed in rows]

    def _embedded(self, prompts: Sequence[Prompt]) -> NDArray[np.float64]:
        if isinstance(self._policy, SharedPolicy):
            raise UserError(
                "a selector that reads prompts with the policy needs it on one device: lower "
                "`hardware.devices`, or choose another selector"
            )
        self.costs["read_prompts"] += len(prompts)
        texts = [user(prompt.prompt) for prompt in prompts]
        return np.asarray(embed(self._policy, texts, ROLLOUT_BATCH))

    def _written(self, policy: Checkpoint | SharedPolicy, fed: Fed) -> int:
        """Return the tokens of all that the creator wrote in a step, as the policy counts them."""
        if self._budget is None:
            return 0
        refused = [attempt.written for attempt in fed.tried if attempt.written]
        texts = [*refused, *(child.prompt for child in fed.children)]
        return sum(len(policy.tokenizer(text)["input_ids"]) for text in texts)

    def _scored(
        self,
        model: Rewards,
        prompts: Sequence[str],
        completions: Sequence[Sequence[str]],
        ended: NDArray[np.bool_],
    ) -> NDArray[np.float64]:
        found = model.score([user(prompt) for prompt in prompts], completions)
        self._left_out += int(found.left_out.sum())
        # Equal rewards teach nothing, and make a prompt no more informative than it was.
        rewards = np.where(found.left_out[:, None], 0.0, found.values)
        return np.asarray(rewards - self._penalty * ~(ended | found.left_out[:, None]))

    def _count(self, rollouts: int, tokens: int) -> None:
        self.costs["rollouts"] += int(rollouts)
        self.costs["tokens"] += int(tokens)
        self.costs["scored_tokens"] += int(tokens)


@dataclass(frozen=True)
class _Step:
    """What the rollouts of one step gave: rewards, those that rank prompts, and their lengths."""

    rewards: NDArray[np.float64]
    ranks: NDArray[np.float64]
    length: float
    ended: float
