"""The stage of online eva: one segment of a continual run.

This is where the prompt stream, the rewards, the policy and the trainer meet. The stage writes what
a continuation needs (`model/`, `optimizer.safetensors`, `stream.json`), what was trained on
(`trained.parquet`), and the costs since the start of the run (`summary.json`). Of several processes
only the first has the stream, the reward models and the creator, and writes the output.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from harness.errors import UserError
from harness.eva.evolving import Prompt, evolve
from harness.extensions import SELECTORS
from harness.models.policy import embed, generate
from harness.models.reward_model import Rewards
from harness.pipeline.steps import rewards_of, to_prompts, user
from harness.registry.objective import COSTS
from harness.registry.recipe import BUFFER_RULES
from harness.runtime.stage import StageContext
from harness.selectors.eva import Eva, StreamSettings
from harness.selectors.screening import Ranked
from harness.selectors.selector import Group, Phase, Pool, Selector, Shuffled
from harness.selectors.stream import MiniBatch, PromptStream, StepResult
from harness.training.distributed import SharedPolicy, is_first
from harness.training.launch import launch
from harness.training.online import (
    OPTIMIZER,
    Drawn,
    OnlineAlgorithm,
    Policy,
    Segment,
    train_segment,
)
from harness.training.online_losses import ALGORITHMS
from harness.training.placement import PLAIN, Metrics, Placement
from harness.worlds.embedded.choosing import OracleValue, read_right
from harness.worlds.lookup import runtime_of
from harness.worlds.real.models import resolve
from harness.worlds.stage_io import (
    INT,
    PROMPT_SCHEMA,
    REAL,
    Rows,
    read_prompts,
    schema_of,
    write_json,
    write_rows,
)

TRAINED_SCHEMA = schema_of(
    *PROMPT_SCHEMA,
    ("step", INT),
    "phase",
    ("informativeness", REAL),
    ("reward_mean", REAL),
    ("reward_best", REAL),
)
"""Columns of `trained.parquet`: the prompts trained on in this segment, in order of steps."""

CHOSEN_SCHEMA = schema_of(*TRAINED_SCHEMA, ("spread", REAL), ("predicted", REAL))
"""The same in a league, plus the rewards' standard deviation and, if the selector reports one, its
prediction, which should increase with it."""

ROLLOUT_BATCH = 256  # completions generated at a time; other sizes only round differently
STREAM = "stream.json"
"""The stream's state and the costs so far, written at the end of each segment."""

LEDGER = (*COSTS, "trained", "insertion", "scored_tokens", "creator_tokens", "read_prompts")
"""`COSTS` in a league, plus the rollouts trained on and those of prompts that entered the pool
(all others were for selection); tokens of answers read by reward models; tokens written by the
creator; prompts read by the policy to value them."""

REWRITE_COUNTS = ("children", "dropped", "unusable", "repeated", "without_reward")
"""Counts of how a segment's rewrites fared, and of prompts whose rollouts had no reward."""


def online_stage(ctx: StageContext) -> None:
    if "last_step" in ctx.settings:
        ctx.expect(ctx.settings["last_step"])
    if "numerics" in ctx.settings:
        launch(f"{__name__}:train_here", ctx, ctx.report, online=True)
    else:
        train_here(ctx, PLAIN)


def train_here(ctx: StageContext, place: Placement) -> None:
    """Run this process's part of a segment; the first process draws, rewards and writes."""
    s = ctx.settings
    before = ctx.inputs.get("before")
    base = resolve(s["policy"])
    state = {} if before is None else json.loads((before / STREAM).read_text(encoding="utf-8"))
    algorithm = ALGORITHMS[s["algorithm"]](**s["training"])
    # First, because it loads models that must not be spread over the processes.
    source = StreamSource(ctx, algorithm, state) if not place.shared or is_first() else None
    train_segment(
        algorithm,
        policy=before / "model" if before else base,
        reference=base,
        optimizer_state=before / OPTIMIZER if before else None,
        out_dir=ctx.output,
        segment=_segment(s, state.get("step", 0)),
        source=source,
        seed=s["seed"],
        on_log=ctx.report,
        place=place,
    )
    if source is not None:
        schema = CHOSEN_SCHEMA if "budget" in s else TRAINED_SCHEMA
        write_rows(ctx.output / "trained.parquet", source.trained, schema)
        write_json(ctx.output / "summary.json", source.summary())
        write_json(ctx.output / STREAM, source.stream.state() | {"costs": source.reported_costs})


def _segment(s: Mapping[str, Any], done: int) -> Segment:
    """Return the segment's steps; with a budget, an upper bound on what it can pay for."""
    if "budget" not in s:
        return Segment(s["first_step"], s["last_step"])
    # A rollout has at least one token.
    per_step = s["training"]["minibatch"] * s["training"]["rollouts"]
    most = s["budget"]["amount"] // (1 if s["budget"]["of"] == "steps" else per_step) + 1
    return Segment(done + 1, done + most, budgeted=True)


class StreamSource:
    """Implements `StepPrompts`: prompts from the stream, rewards from the reward models.

    `trained` has one row per prompt trained on in this segment; `costs` are the run's, as in
    `LEDGER`.
    """

    def __init__(self, ctx: StageContext, hyper: OnlineAlgorithm, state: dict[str, Any]) -> None:
        """Start a segment where the previous one ended; `hyper` has the sampling settings."""
        s = ctx.settings
        online = s["online"]
        self.trained: Rows = []
        self.costs = dict.fromkeys(LEDGER, 0)
        self._s = s
        self._hyper = hyper
        self._budget = s.get("budget")
        self._prompt_metrics = runtime_of(s["policy"]).prompt_metrics()
        self._reward_model = rewards_of(ctx, "one answer")
        self._ranker = rewards_of(ctx, "one answer", "ranker") if s["ranker"] else None
        human = to_prompts(read_prompts(ctx.inputs["prompts"]))
        if "pass" in s:
            # Otherwise a later pass would repeat the mini-batches of the first.
            rng = np.random.default_rng([s["seed"], s["pass"]])
            human = [human[i] for i in rng.permutation(len(human))]
        evolver = runtime_of(s["creator"]).evolver(s) if s["creator"] else None
        self._oracle: OracleValue | None = None
        if "probe" in ctx.inputs:  # the oracle values prompts instead of a metric
            right, shuffled = read_right(ctx.inputs["probe"]), online.get("shuffled", False)
            self._oracle = OracleValue(right, online["oracle"], shuffled=shuffled, seed=s["seed"])
        bound = None
        if evolver is not None:
            how = {"retries": s["retries"], "chained": False, "over": evolver.over}
            bound = partial(evolve, creator=evolver.creator, **how)
        n_new = online["n_new"] if evolver else 0
        if self._budget is not None:
            chosen: Selector = self._league_selector(len(human), n_new)
            capacity = len(human)
        else:
            own = {name: it for name, it in online.items() if name not in BUFFER_RULES}
            sizes = StreamSettings(**own, x=s["x"])
            chosen = Eva(sizes, creates=evolver is not None, value=self._oracle)
            capacity = sizes.capacity
        self.stream = PromptStream(
            chosen,
            Pool(human, capacity),
            s["seed"],
            minibatch=online["minibatch"],
            rollouts=hyper.rollouts,
            evolve=bound,
            n_new=n_new,
            embed=self._embedded,
        )
        if state:
            self.costs |= state["costs"]
            # A run on human prompts continues with the next x of them, from the first.
            self.stream.restore(state | ({"used": 0} if s.get("new_prompts") else {}))
        self._calls: int | None = None
        self._became: Counter[str] = Counter(dict.fromkeys(REWRITE_COUNTS, 0))

    def _league_selector(self, pool: int, n_new: int) -> Selector:
        online, league = self._s["online"], self._s["online"]["league"]
        if "selector_plugin" in self._s:
            SELECTORS.check(league["selector"], self._s["selector_plugin"])
        kind: type[Selector] = SELECTORS.load(league["selector"])
        chosen = kind.made(league["options"], online["minibatch"], pool, n_new)
        if self._oracle is not None:
            return Ranked(self._oracle)
        return Shuffled(chosen) if online.get("shuffled") else chosen

    @property
    def reported_costs(self) -> dict[str, int]:
        """The costs to write: all of them if there is a budget."""
        return {name: self.costs[name] for name in (COSTS if self._budget is None else LEDGER)}

    @property
    def spent(self) -> bool:
        if self._budget is None:
            return False
        generated = self.costs["tokens"] + self.costs["creator_tokens"]
        used = {"steps": self.costs["gradient_steps"], "rollouts": self.costs["rollouts"]}
        return bool(used.get(self._budget["of"], generated) >= self._budget["amount"])

    def draw(self, policy: Policy) -> Drawn:
        self._policy, self._calls = policy, 0
        self._batch = self.stream.draw(self._rolled_out)
        texts = [prompt.prompt for prompt in self._batch.prompts]
        if not self._batch.kept:
            return Drawn(texts)
        return Drawn(texts, [[c.ids for c in group.answers] for group in self._batch.kept])

    def reward(
        self, completions: Sequence[Sequence[str]], ended: NDArray[np.bool_], tokens: int
    ) -> NDArray[np.float64]:
        self.costs["trained"] += ended.size
        if self._batch.kept:  # counted and rewarded when generated
            rewards = ranks = np.array([group.rewards for group in self._batch.kept])
        else:
            self._count(ended.size, tokens)
            texts = [prompt.prompt for prompt in self._batch.prompts]
            rewards = ranks = self._scored(self._reward_model, texts, completions, ended)
            if self._ranker is not None:
                ranks = self._scored(self._ranker, texts, completions, ended)
        self._step = _StepRewards(rewards, ranks, tokens / ended.size, float(ended.mean()))
        return rewards

    def finish(self, policy: Policy) -> Metrics:
        """End the step: evolve, fill the buffer, and return the metrics."""
        batch, step = self._batch, self._step
        self._policy, self._calls = policy, None
        result = self.stream.finish_step(step.ranks, self._rolled_out)
        if self._oracle is not None:
            self._oracle.train([prompt.prompt for prompt in batch.prompts])
        self.costs["gradient_steps"] += 1
        self.costs["creator_calls"] += result.evolved.attempts
        if self._budget is not None:
            self.costs["creator_tokens"] += _written(policy, result)
        self._became["children"] += len(result.evolved.prompts)
        self._became["dropped"] += result.evolved.dropped
        self._became["unusable"] += sum(result.evolved.unusable.values())
        self._became["repeated"] += result.repeated
        for i, prompt in enumerate(batch.prompts):
            row = {
                **vars(prompt),
                "step": batch.step,
                "phase": batch.phase,
                "informativeness": float(result.informativeness[i]),
                "reward_mean": float(step.rewards[i].mean()),
                "reward_best": float(step.rewards[i].max()),
            }
            if self._budget is not None:
                row["spread"] = float(step.rewards[i].std())
                row["predicted"] = batch.predicted and batch.predicted[i]
            self.trained.append(row)
        return self._metrics(batch, step, result)

    def summary(self) -> dict[str, Any]:
        """Return the run's costs so far and how this segment's rewrites fared."""
        phases = [row["phase"] for row in self.trained]
        return {
            **self.reported_costs,
            **self._became,
            "weights": self._reward_model.weights,
            "phases": {phase: phases.count(phase) for phase in dict.fromkeys(phases)},
            "evolved_share": float(np.mean([row["generation"] > 0 for row in self.trained])),
            "buffer": len(self.stream.pool.buffer),
        }

    def _metrics(self, batch: MiniBatch, step: _StepRewards, result: StepResult) -> Metrics:
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
                "buffer/children": float(len(result.evolved.prompts)),
                "buffer/evicted": float(result.evicted),
                "buffer/dropped": float(result.evolved.dropped),
            }
        if buffer:
            metrics |= {
                "buffer/informativeness": float(np.mean([e.informativeness for e in buffer])),
                "buffer/generation": float(np.mean([e.prompt.generation for e in buffer])),
                "buffer/age": float(np.mean([batch.step - e.entered for e in buffer])),
            }
        return metrics

    def _rolled_out(self, prompts: Sequence[Prompt], n: int, phase: Phase) -> list[Group]:
        h = self._hyper
        purpose = [self._s["seed"], self.stream.step, 2]
        if self._calls is not None:  # before the step's own rollouts, possibly several times
            purpose = [self._s["seed"], self.stream.step, 4, self._calls]
            self._calls += 1
        policy = self._policy
        if isinstance(policy, SharedPolicy):
            roll_out = policy.generate
        else:
            roll_out = partial(generate, policy)
        texts = [prompt.prompt for prompt in prompts]
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
        rows = zip(prompts, rewards, completions, strict=True)
        return [Group(prompt, own, answers=tuple(completed)) for prompt, own, completed in rows]

    def _embedded(self, prompts: Sequence[Prompt]) -> NDArray[np.float64]:
        if isinstance(self._policy, SharedPolicy):
            raise UserError(
                "a selector that reads prompts with the policy needs it on one device: lower "
                "`hardware.devices`, or choose another selector"
            )
        self.costs["read_prompts"] += len(prompts)
        texts = [user(prompt.prompt) for prompt in prompts]
        return np.asarray(embed(self._policy, texts, ROLLOUT_BATCH))

    def _scored(
        self,
        model: Rewards,
        prompts: Sequence[str],
        completions: Sequence[Sequence[str]],
        ended: NDArray[np.bool_],
    ) -> NDArray[np.float64]:
        found = model.score([user(prompt) for prompt in prompts], completions)
        self._became["without_reward"] += int(found.left_out.sum())
        # Equal rewards teach nothing and make a prompt no more informative.
        rewards = np.where(found.left_out[:, None], 0.0, found.values)
        unended = ~(ended | found.left_out[:, None])
        return np.asarray(rewards - self._s["missing_eos_penalty"] * unended)

    def _count(self, rollouts: int, tokens: int) -> None:
        self.costs["rollouts"] += int(rollouts)
        self.costs["tokens"] += int(tokens)
        self.costs["scored_tokens"] += int(tokens)


class _StepRewards(NamedTuple):
    """A step's rewards, rewards for ranking prompts, mean length in tokens, and share ended."""

    rewards: NDArray[np.float64]
    ranks: NDArray[np.float64]
    length: float
    ended: float


def _written(policy: Policy, result: StepResult) -> int:
    """Return how many tokens the creator wrote in a step, by the policy's tokenizer."""
    refused = [attempt.written for attempt in result.evolved.tried if attempt.written]
    texts = [*refused, *(child.prompt for child in result.evolved.prompts)]
    return sum(len(policy.tokenizer(text)["input_ids"]) for text in texts)
