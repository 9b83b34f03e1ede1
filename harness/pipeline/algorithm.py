"""Algorithm 1 of the paper as stages: from a recipe, a profile and a seed to a trained policy.

One offline iteration on new human prompts is

    prompts -> generate -> annotate -> pair -> train

An `eva` iteration starts from the prompts of the previous one:

    generate -> annotate -> select -> evolve        the creator's step, on the current policy
    generate -> annotate -> pair                    the evolved prompts
    mix                                             80% evolved, 20% of the prompts they came from
    train                                           from the current policy, which is the reference

When training from scratch, the last two steps are instead

    join                                            all of X_1's pairs and all evolved ones
    train                                           from the base policy, which is the reference

With a rewriter, a `rewrite` step before training lets the policy revise the chosen answers. A
`select` iteration trains on the selected prompts as they are; to match the step count of an `eva`
iteration, a `repeat` step repeats their pairs. A `same` iteration trains again on the previous
prompts, answered anew by the current policy, and a `matched` one on new prompts that the world
matches to the hard benchmark. The prompts of a single `human` iteration can be selected from a
larger pool, using the base policy.

An online run is one continual run, cut into segments. On human prompts, each x of training uses the
next x of them, starting over if there are several passes; with eva it uses a single x and grows the
rest in its buffer. Each segment is a stage that resumes from the previous one, so runs that are
checkpoints of one continual run (1x, 2x, 3x) share their first segments:

    prompts -> online (segment 1) -> online (segment 2) -> ...

Finally the policy, or the prompts themselves, are judged:

    policy -> answer -> judge       for each benchmark of answers
    prompts -> rate                 for each judge of prompts, if prompts are scored

Every benchmark of the profile that fits the run is planned; the tables choose which of them to run
(`harness.pipeline.runs`). Nothing here runs a model: the result is a graph in which identical steps
of different rows are one node.

Source: paper, Algorithm 1, section 3.3, table 1 and appendix A; the order of rollouts follows the
authors' scripts (answers to X_1 come from the policy already trained on X_1).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import takewhile

from harness.errors import UserError
from harness.extensions import CREATORS, LOSSES, METRICS, SELECTORS
from harness.pipeline.factory import StageFactory
from harness.registry.profile import BASE
from harness.registry.recipe import (
    FIRST_ARMS,
    Arm,
    Budget,
    Online,
    Recipe,
    RewardRole,
    evolves_online,
)
from harness.registry.schema import RowKind
from harness.registry.training import OnlineTraining
from harness.runtime.stage import Json, Stage
from harness.selectors.eva import StreamSettings


class Unfit(UserError):
    """The number of prompts of a profile does not fit a recipe."""


ORACLE: Mapping[str, str] = {"best": "var", "worst": "a_min_inv"}
"""The metric by which an oracle with many answers chooses the best and the worst prompts."""

INDEPENDENT = ("self_instruct",)
"""Built-in evolving methods whose rewrites of a prompt do not build on one another."""


@dataclass(frozen=True)
class Iteration:
    """The result of one iteration; a segment's pairs and policy are the same stage."""

    prompts: Stage
    pairs: Stage
    policy: Stage

    @property
    def rewards(self) -> Stage:
        """The rewards that an offline iteration selects by or, without selection, of its pairs."""
        pairs = self.pairs
        while "pairs" in pairs.inputs:  # rewritten or repeated
            pairs = pairs.inputs["pairs"]
        if "evolved" in pairs.inputs:
            evolved = pairs.inputs["evolved"].inputs["completions"].inputs["prompts"]
            return evolved.inputs["selected"].inputs["rewards"]
        return pairs.inputs.get("only", pairs).inputs["rewards"]


@dataclass(frozen=True)
class Run:
    """Recipe x profile x seed: a chain of stages that ends in a policy, or prompts, and its scores.

    `judges` has the judge stage of each benchmark of the profile; `asked` are the benchmarks to
    run.
    """

    run_id: str
    recipe: Recipe
    profile: str
    seed: int
    iterations: tuple[Iteration, ...]
    judges: Mapping[str, Stage]
    asked: tuple[str, ...]
    kind: RowKind = "policy"

    @property
    def name(self) -> str:
        """How published files name the run."""
        return f"{self.run_id}/{self.profile}/seed{self.seed}"

    @cached_property
    def judged(self) -> dict[str, Stage]:
        return {name: self.judges[name] for name in self.asked}

    @property
    def training(self) -> tuple[Stage, ...]:
        trained = self.iterations[:-1] if self.kind == "prompts" else self.iterations
        return tuple(iteration.policy for iteration in trained)

    @property
    def last_prompts(self) -> Stage:
        """The stage with the last iteration's prompts, trained on or scored."""
        last = self.iterations[-1]
        return last.prompts if self.kind == "prompts" else last.pairs

    @property
    def targets(self) -> tuple[Stage, ...]:
        return (*self.judged.values(), *self.training[-1:])

    def asking(self, benchmarks: Collection[str | None]) -> Run:
        return replace(self, asked=tuple(name for name in self.judges if name in benchmarks))


class Planner(StageFactory):
    def run(self, run_id: str, recipe: Recipe, seed: int, kind: RowKind = "policy") -> Run:
        label = f"seed {seed} · {run_id}"
        make = _segments if recipe.is_online else _iterations
        iterations = tuple(make(self, label, recipe, seed))
        if kind == "prompts":
            judges = self._judges_of_prompts(label, iterations[-1].prompts)
        else:
            policy = iterations[-1].policy if iterations else None
            judges = self._judges_of_answers(label, policy, seed)
        name = self.profile.name
        return Run(run_id, recipe, name, seed, iterations, judges, tuple(judges), kind)

    def probed(self, policy: Stage | None, label: str) -> Stage:
        """Return the stage that measures a policy name by name; the oracle picks prompts by it."""
        settings: dict[str, Json] = {**self.profile.generation.model_dump()}
        inputs = self.with_policy(settings, policy)
        return self.stage("probe", settings, inputs, label)

    def _judges_of_answers(self, label: str, policy: Stage | None, seed: int) -> dict[str, Stage]:
        judges = {}
        for name, benchmark in self.profile.benchmarks.items():
            if benchmark.of_prompts:
                continue
            asked = {"answers": self._answers(f"{label} · {name}", name, policy, seed)}
            if benchmark.against == BASE:
                asked["anchor"] = self._answers(f"seed {seed} · base · {name}", name, None, seed)
            judges[name] = self.stage("judge", self.world.judging(name), asked, f"{label} · {name}")
        return judges

    def _answers(self, label: str, name: str, policy: Stage | None, seed: int) -> Stage:
        settings = self.world.answering(name, seed)
        return self.stage("answer", settings, self.with_policy(settings, policy), label)

    def _judges_of_prompts(self, label: str, prompts: Stage) -> dict[str, Stage]:
        asked = {"prompts": prompts}
        return {
            name: self.stage("rate", self.world.rating(name), asked, f"{label} · {name}")
            for name, benchmark in self.profile.benchmarks.items()
            if benchmark.of_prompts
        }


# Offline runs.


def _iterations(planner: Planner, label: str, recipe: Recipe, seed: int) -> Iterable[Iteration]:
    done: list[Iteration] = []
    humans = 0
    for number, arm in enumerate(recipe.chain, start=1):
        step = _Step(planner, recipe, number, seed, f"{label} · {number}")
        if arm in FIRST_ARMS:
            policy = done[-1].policy if done else None
            done.append(step.new(policy, arm, first=recipe.skip + humans * recipe.size))
            humans += 1
        else:
            make = {"eva": step.eva, "select": step.select}.get(arm, step.same)
            done.append(make(done[-1]))
    return done


@dataclass(frozen=True)
class _Step:
    planner: Planner
    recipe: Recipe
    number: int
    seed: int
    label: str

    def new(self, policy: Stage | None, arm: Arm, first: int) -> Iteration:
        """Train on new prompts, or on a selection of them if the recipe has a pool."""
        size = self.recipe.pool or self.recipe.size
        prompts = self._stage("prompts", self.planner.new_prompts(arm, self.seed, first, size), {})
        only = None
        if self.recipe.pool is not None:
            only = self._selected(policy, prompts, self.recipe.size / self.recipe.pool)
        pairs = self._pairs(*self._rollouts(policy, prompts), only=only)
        return Iteration(only or prompts, pairs, self._train(policy, pairs))

    def eva(self, before: Iteration) -> Iteration:
        """Evolve an informative share of the previous prompts, and mix in some unevolved ones."""
        creator, planner = self.recipe.creator, self.planner
        method = creator.method or ""
        own = CREATORS.added(method)
        chained = method not in INDEPENDENT if own is None else bool(own.options["chained"])
        evolved = self._stage(
            "evolve",
            {
                **planner.creator(method),
                "evolutions": creator.evolutions,
                **({} if chained else {"shape": "independent"}),
                "retries": planner.profile.creator.retries,
                "iteration": self.number,
                "seed": self.seed,
                **({} if creator.reach is None else {"reach": creator.reach}),
            },
            {"selected": self._parents(before)},
        )
        evolved_pairs = self._pairs(*self._rollouts(before.policy, evolved))
        if self.recipe.train == "scratch" and self.number == len(self.recipe.chain):
            both = {"base": before.pairs, "evolved": evolved_pairs}
            joined = self._stage("join", {"seed": self.seed}, both)
            return Iteration(joined, joined, self._train(None, joined))
        arms = reversed(self.recipe.chain[: self.number - 1])
        left = creator.fraction ** len([*takewhile("select".__eq__, arms)])
        share = creator.fraction * creator.evolutions
        made = share if creator.parents is not None else share * left
        if left + min(made, creator.evolved_share) < 1:
            raise UserError(
                f"`eva` after `select` has {left:.0%} of the prompts left and evolves {made:.0%}, "
                "too few to mix as many as before: raise `creator.fraction`, or leave `select` out"
            )
        mixed = self._stage(
            "mix",
            {
                "size": self.recipe.size * planner.profile.x,
                "evolved_share": creator.evolved_share,
                "seed": self.seed,
            },
            {
                "base": self._pairs(*self._rollouts(before.policy, before.prompts)),
                "evolved": evolved_pairs,
            },
        )
        pairs = self._rewritten(before.policy, mixed)
        return Iteration(mixed, pairs, self._train(before.policy, pairs))

    def _parents(self, before: Iteration) -> Stage:
        creator = self.recipe.creator
        if creator.parents is None:
            return self._selected(before.policy, before.prompts, creator.fraction)
        settings = self.planner.new_prompts("human", self.seed, 0, creator.parents)
        pool = self._stage("prompts", settings, {})
        share = creator.fraction * self.recipe.size / creator.parents
        return self._selected(before.policy, pool, share)

    def _rewritten(self, policy: Stage, pairs: Stage) -> Stage:
        """Return pairs whose chosen answers the policy has revised, if the recipe asks for it."""
        if not self.recipe.rewriter:
            return pairs
        generation = self.planner.profile.generation.model_dump()
        settings: dict[str, Json] = {**generation, "n": 1, **self.planner.engine}
        settings |= self.planner.world.rewriter()
        role = self.recipe.reward_model_at(self.number)
        inputs = {
            "pairs": pairs,
            **self.planner.with_reward_model(settings, role),
            **self.planner.with_policy(settings, policy),
        }
        return self._stage("rewrite", settings, inputs)

    def select(self, before: Iteration) -> Iteration:
        """Train on the informative share of the previous prompts, as they are."""
        selected = self._selected(before.policy, before.prompts, self.recipe.creator.fraction)
        pairs = self._pairs(*self._rollouts(before.policy, before.prompts), only=selected)
        if self.recipe.step_matched:
            size = self.recipe.size * self.planner.profile.x
            pairs = self._stage("repeat", {"size": size, "seed": self.seed}, {"pairs": pairs})
        return Iteration(selected, pairs, self._train(before.policy, pairs))

    def same(self, before: Iteration) -> Iteration:
        pairs = self._pairs(*self._rollouts(before.policy, before.prompts))
        return Iteration(before.prompts, pairs, self._train(before.policy, pairs))

    def _selected(self, policy: Stage | None, prompts: Stage, fraction: float) -> Stage:
        creator = self.recipe.creator
        settings: dict[str, Json] = {"fraction": fraction, "seed": self.seed}
        if creator.shuffled:
            settings["shuffled"] = True
        metric, sampling, n = creator.metric, str(creator.sampling), None
        if creator.oracle is not None:
            n = self.planner.profile.selection.oracle_answers
            if n is None:
                settings["oracle"] = creator.oracle
                probe = self.planner.probed(policy, self.label)
                return self._stage("choose", settings, {"prompts": prompts, "probe": probe})
            # Many answers of their own tell how much a prompt's rewards vary under this policy.
            metric, sampling = ORACLE[creator.oracle], "greedy"
        settings |= {
            "metric": metric,
            "sampling": sampling,
            "too_few": self.planner.profile.selection.too_few,
            **METRICS.identity(metric),
        }
        role = self.recipe.informativeness_reward_model_at(self.number)
        _, rewards = self._rollouts(policy, prompts, role, n)
        return self._stage("select", settings, {"prompts": prompts, "rewards": rewards})

    def _rollouts(
        self,
        policy: Stage | None,
        prompts: Stage,
        role: RewardRole | None = None,
        n: int | None = None,
    ) -> tuple[Stage, Stage]:
        role = role or self.recipe.reward_model_at(self.number)
        return self.planner.rollouts(self.label, policy, prompts, role, n)

    def _pairs(self, completions: Stage, rewards: Stage, only: Stage | None = None) -> Stage:
        inputs = {"completions": completions, "rewards": rewards}
        if only is not None:
            inputs["only"] = only
        profile = self.planner.profile
        # Ties are dropped in training, so that a mix is of prompts, whatever their answers.
        settings: dict[str, Json] = {"drop_ties": False}
        if profile.pairs.open_cut:
            settings["open_from"] = profile.generation.max_new_tokens
        return self._stage("pair", settings, inputs)

    def _train(self, policy: Stage | None, pairs: Stage) -> Stage:
        algorithm, profile = str(self.recipe.algorithm), self.planner.profile
        hyper = profile.training.of(algorithm).model_dump()
        hyper["epochs"] *= self.recipe.passes
        settings: dict[str, Json] = {
            "algorithm": algorithm,
            "seed": self.seed,
            **hyper,
            **LOSSES.identity(algorithm),
        }
        if profile.pairs.drop_ties:
            settings["drop_ties"] = True
        if profile.hardware is not None:
            settings["numerics"] = profile.hardware.numerics(profile.dtype)
        inputs = {"pairs": pairs, **self.planner.with_policy(settings, policy)}
        return self._stage("train", settings, inputs)

    def _stage(self, kind: str, settings: Mapping[str, Json], inputs: Mapping[str, Stage]) -> Stage:
        return self.planner.stage(kind, settings, inputs, self.label)


# Online runs.

Part = tuple[str, Stage, dict[str, Json]]
"""A segment's label, its human prompts, and its settings."""


def _segments(planner: Planner, label: str, recipe: Recipe, seed: int) -> Iterable[Iteration]:
    online = recipe.online
    hyper = planner.profile.training.of(str(recipe.algorithm))
    assert online is not None
    assert isinstance(hyper, OnlineTraining)
    cut = _stretches if online.league is None else _marks
    settings = _of_all_segments(planner, recipe, online, seed, hyper)
    before: Stage | None = None
    for part, prompts, own in cut(planner, label, online, seed, hyper):
        inputs = {"prompts": prompts} | ({"before": before} if before else {})
        if online.oracle is not None:
            inputs["probe"] = planner.probed(before, part)
        before = planner.stage("online", settings | own, inputs, part)
        yield Iteration(prompts, before, before)


def _stretches(
    planner: Planner, label: str, online: Online, seed: int, hyper: OnlineTraining
) -> Iterator[Part]:
    """Cut a run by steps."""
    steps = segment_steps(online, hyper, planner.profile.x)
    # Raises if the buffer is too small.
    StreamSettings(**online.model_dump(), x=planner.profile.x)
    new = online.prompts != "eva"
    for number in range(online.length * hyper.segments):
        which, part = divmod(number, hyper.segments)
        again, first = divmod(which, online.size) if new else (0, 0)
        own = f"{label} · {which + 1}x"
        own += f" ({part + 1}/{hyper.segments})" if hyper.segments > 1 else ""
        cut = planner.new_prompts(online.prompts, seed, online.skip + first, 1)
        stretch: dict[str, Json] = {
            "first_step": number * steps + 1,
            "last_step": (number + 1) * steps,
            "new_prompts": new and part == 0 and which > 0,
        }
        if again:
            stretch["pass"] = again
        yield own, planner.stage("prompts", cut, {}, own), stretch


def _marks(
    planner: Planner, label: str, online: Online, seed: int, hyper: OnlineTraining
) -> Iterator[Part]:
    """Cut a league run by its budget; all parts use the same pool."""
    league, x = online.league, planner.profile.x
    assert league is not None
    count, rest = divmod(online.size * x, league.visits)
    whole = whole_budget(online, hyper, x, league.budget)
    n_new = online.n_new if league.grows else 0
    try:
        SELECTORS.load(league.selector).made(dict(league.options), online.minibatch, count, n_new)
    except (TypeError, KeyError, ValueError) as error:
        said = " ".join(str(error).split())
        raise UserError(
            f"the selector `{league.selector}` does not take these `options`: {said}"
        ) from error
    if count < online.minibatch:
        raise Unfit(
            f"{count} prompts make no mini-batch of {online.minibatch}: lower `visits`, or raise "
            "`size`"
        )
    arm = "matched" if online.prompts == "matched_pool" else "human"
    cut = planner.new_prompts(arm, seed, 0, 1) | {"count": count + (rest > 0)}
    prompts = planner.stage("prompts", cut, {}, f"{label} · pool")
    for mark in range(1, league.ends + 1):
        budget: dict[str, Json] = {"of": league.budget, "amount": whole * mark // league.marks}
        yield f"{label} · {mark}/{league.marks}", prompts, {"budget": budget}


def whole_budget(online: Online, hyper: OnlineTraining, x: int, unit: Budget) -> int:
    """Return what a pass over the prompts uses; assumes rollouts of half `max_new_tokens`."""
    prompts = online.size * x
    used = rollouts_used(prompts, hyper.rollouts, hyper.max_new_tokens)
    return {"steps": prompts // online.minibatch, **used}[unit]


def rollouts_used(prompts: int, rollouts: int, max_new_tokens: int) -> dict[Budget, int]:
    """Return what rollouts of some prompts use, with answers of half `max_new_tokens`."""
    made = prompts * rollouts
    return {"rollouts": made, "tokens": made * max_new_tokens // 2}


def segment_steps(online: Online, hyper: OnlineTraining, x: int) -> int:
    steps, rest = divmod(x, online.minibatch * hyper.segments)
    if rest or not steps:
        raise Unfit(
            f"{x} prompts make no whole number of mini-batches of {online.minibatch} in each of "
            f"{hyper.segments} segments: choose an `online.minibatch` and `segments` that divide x."
        )
    return steps


def _of_all_segments(
    planner: Planner, recipe: Recipe, online: Online, seed: int, hyper: OnlineTraining
) -> dict[str, Json]:
    world, profile = planner.world, planner.profile
    role = recipe.reward_model_at(1)
    ranked_by = recipe.informativeness_reward_model_at(1)
    league = online.league
    evolves = evolves_online(online)
    other = evolves and league is None and online.metric != "uniform" and ranked_by != role
    # These are in each segment's settings, so that longer runs begin with shorter ones.
    kept = {k: v for k, v in online.canonical().items() if k not in ("size", "passes", "skip")}
    metric = online.metric
    added: dict[str, Json] = {}
    if league is not None:
        # Budget and pool size are in each segment's settings.
        of_all = league.model_dump(include={"selector", "options", "grows"})
        kept["league"] = of_all | {"seen": None}
        metric = str(league.options.get("metric", metric))
        found = SELECTORS.identity(league.selector)
        added = {"selector_plugin": found["plugin"]} if found else {}
    if profile.dtype != "float32":
        added["dtype"] = profile.dtype  # the reward models'
    if profile.hardware is not None:
        added["numerics"] = profile.hardware.online_numerics(profile.dtype)
    creator = planner.creator(profile.creator.online_method) if evolves else {"creator": None}
    return {
        "algorithm": str(recipe.algorithm),
        "policy": world.policy(),
        "reward_model": world.reward_model(role),
        "ranker": world.reward_model(ranked_by) if other else None,
        **creator,
        "online": kept,
        **(METRICS.identity(metric) if evolves or league is not None else {}),
        **added,
        "x": profile.x,
        "retries": profile.creator.retries,
        "missing_eos_penalty": hyper.missing_eos_penalty,
        "training": training_settings(hyper, online, profile.x),
        "seed": seed,
    }


def training_settings(hyper: OnlineTraining, online: Online, x: int) -> dict[str, Json]:
    """Return the fields of `OnlineAlgorithm` from a profile, in steps instead of multiples of x.

    A decaying schedule spans `schedule_size` x or, if longer, the run. A constant one does not
    depend on the length, so that a longer run begins with the shorter one's steps.
    """
    falls = hyper.lr_scheduler != "constant_with_warmup"
    size = max(hyper.schedule_size, online.length) if falls else hyper.schedule_size
    whole = size * x // online.minibatch
    stated = {"lr_scheduler", "warmup_ratio", "schedule_size", "segments", "missing_eos_penalty"}
    return {
        **hyper.model_dump(exclude=stated, exclude_none=True),
        "schedule": hyper.lr_scheduler,
        "warmup_steps": round(hyper.warmup_ratio * whole),
        "schedule_steps": whole,
        "minibatch": online.minibatch,
    }
