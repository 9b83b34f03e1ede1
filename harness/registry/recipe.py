"""A recipe: everything that changes the numbers of a run and does not depend on scale.

A recipe names an algorithm and where its prompts come from. Offline (DPO, SPPO, SimPO, ORPO) it
is a *chain*, one entry for each iteration: `human` trains on new human prompts, `eva` on the
prompts of the iteration before, an informative share of which was evolved, `select` on that
informative share as it is, and `same` on all prompts of the iteration before once more; `matched`
trains on new prompts that ask for what the hard benchmark asks, which no method could know. Online
(RLOO, OAIF) prompts are chosen for each mini-batch and the `online` block says how. No algorithm
at all is the base model. Sizes are multiples of x, the prompts of one iteration, and models are
roles: the profile gives both their meaning.

Two recipes are the same run exactly if their canonical forms are equal: `Recipe.canonical`
leaves out whatever the rest of the recipe makes irrelevant, such as the creator of a chain that
never evolves.

Sources: paper sections 3 and 4.2, appendices A, B and H; the authors' code where it says so.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from functools import cached_property
from itertools import chain
from typing import Annotated, Any, Final, Literal

from pydantic import Field, model_validator
from pydantic_core import CoreSchema, PydanticCustomError, core_schema

from harness.extensions import CREATORS, LOSSES, METRICS, SELECTORS, Extensible
from harness.strict import Strict, refuse

ONLINE_ALGORITHMS: Final[tuple[str, ...]] = ("rloo", "oaif")


class OneOf:
    """Marks a text in a declaration that must be one of the names there are, plug-ins' included.

    They are looked up whenever they are needed.
    """

    def __init__(self, *names: Extensible | Collection[str]) -> None:
        self._names = names

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> CoreSchema:
        """Return how a text is checked."""
        return core_schema.no_info_plain_validator_function(
            self._checked, serialization=core_schema.plain_serializer_function_ser_schema(str)
        )

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: Any) -> dict[str, Any]:
        """Return the JSON Schema: the names there are now."""
        return {"enum": list(chain.from_iterable(self._names)), "type": "string"}

    def _checked(self, value: Any) -> str:
        if isinstance(value, str):
            for names in self._names:
                if value in names:
                    return value
        expected = ", ".join(f"'{name}'" for name in chain.from_iterable(self._names))
        raise PydanticCustomError(
            "literal_error", "Input should be {expected}", {"expected": expected}
        )


Algorithm = Annotated[str, OneOf(LOSSES, ONLINE_ALGORITHMS)]
Arm = Literal["human", "eva", "select", "same", "matched", "off_target"]
FIRST_ARMS: Final[tuple[Arm, ...]] = ("human", "matched", "off_target")
"""The arms whose prompts are new, with which a chain can start."""
TrainMode = Literal["incremental", "scratch"]
RewardRole = Literal[
    "pointwise", "pointwise_large", "pairwise", "pairwise_large",
    "pointwise_brief_1", "pointwise_brief_2", "pointwise_brief_3", "pointwise_brief_4",
    "pointwise_noisy_1", "pointwise_noisy_2",
]  # fmt: skip
"""The paper's four reward models; and pointwise ones made to be worse, the first of each the worst:
trained briefly, or on noisier preferences."""
Metric = Annotated[str, OneOf(METRICS)]
Sampling = Literal["weighted", "greedy"]
Choice = Literal["best", "worst"]
"""What the oracle chooses: the prompts that can teach the policy most, or least."""
Reach = Literal["parent", "topic", "people", "even"]
"""Where the embedded creator takes the names that it adds: from its parent alone, from the topic,
as people use them, or evenly over all it knows."""
Method = Annotated[str, OneOf(CREATORS)]


class Creator(Strict):
    """How an `eva` or `select` iteration makes its prompts from those of the one before."""

    metric: Metric = "a_min"
    """Informativeness of a prompt over its rewards. Paper table 3 and section 4.2.1."""
    sampling: Sampling = "weighted"
    """Draw by weight without replacement, or take the top. Paper section 4.2.2."""
    fraction: float = Field(default=0.25, gt=0, le=1)
    """Share of the prompts that is sampled. Paper appendix A (25%)."""
    method: Method | None = "evol_instruct"
    """How a sampled prompt is rewritten; null where nothing evolves. Paper appendix H.1."""
    evolutions: int = Field(default=4, ge=1)
    """Rewrites made of each sampled prompt, all of them kept. Paper appendix A (4)."""
    evolved_share: float = Field(default=0.8, ge=0, le=1)
    """Share of evolved pairs in the training mix, the rest is replayed. Paper appendix A (80%)."""
    shuffled: bool = False
    """Permute the metric's values over the prompts before they become weights, so that they say
    nothing of the prompt they weight; of the oracle, the prompts it looks at. Ours: a control, the
    same weights without their signal."""
    oracle: Choice | None = None
    """Let the oracle choose in place of the metric. Ours: a control, no method."""
    parents: int | None = Field(default=None, ge=2)
    """Human prompts, in multiples of x, that `eva` iterations choose parents from; null: the
    prompts of the iteration before. As many are chosen either way. Ours: a pool several times as
    large as an iteration leaves something to choose from; all of it is answered and scored."""
    reach: Reach | None = None
    """Where the creator takes what it adds to a prompt; null as it is. Ours: a factor of the
    embedded creator alone."""

    @model_validator(mode="after")
    def _something_to_shuffle(self) -> Creator:
        uniform, oracle = self.metric == "uniform", self.oracle is not None
        refuse(
            (oracle and not uniform,
             "the `oracle` chooses in place of a metric: say `metric: uniform`"),
            (self.shuffled and uniform and not oracle,
             "`shuffled` permutes the values of a metric, and `uniform` has none"),
        )  # fmt: skip
        return self

    def canonical(self, *, evolves: bool) -> dict[str, Any]:
        """Return the settings that matter: without evolving, those of the selection alone."""
        selection, ours = {"metric", "sampling", "fraction"}, {"shuffled", "oracle"}
        data = self.model_dump(
            include=None if evolves else selection, exclude={*ours, "parents", "reach"}
        )
        # Named where they are used alone, so that no other recipe changes by their being there.
        named = self.model_dump(include=ours | ({"parents", "reach"} if evolves else set()))
        return data | {name: value for name, value in named.items() if value}


SelectorName = Annotated[str, OneOf(SELECTORS)]
Seen = Literal["raw", "beat", "rank"]
Budget = Literal["steps", "rollouts", "tokens"]


def budget_taken(budget: Budget, steps: int, rollouts: int, max_new_tokens: int) -> int:
    """Return what steps and their rollouts take of a budget; half of `max_new_tokens` is written.

    What is chosen, screened or evolved on the way is not in it.
    """
    tokens = rollouts * max_new_tokens // 2
    return {"steps": steps, "rollouts": rollouts, "tokens": tokens}[budget]


class League(Strict):
    """How one of several selectors chooses prompts out of the same pool, until a budget is spent.

    The budget is that of training on `size` x prompts drawn evenly, in the unit it is counted in.
    """

    selector: SelectorName = "uniform"
    options: dict[str, bool | int | float | str] = Field(default={})
    """The selector's own settings, where they are not the default."""
    seen: Seen | None = None
    """How the selector sees rewards; null: as it says itself."""
    grows: bool = False
    """Whether the creator rewrites the better half of each mini-batch, `n_new` times each, into the
    pool. Ours: the same creator for all, so that parents are chosen and nothing else."""
    visits: int = Field(default=3, ge=1)
    """How often each prompt of the pool could be trained on: the pool is the budget's prompts
    divided by it."""
    budget: Budget = "tokens"
    """What is equal: gradient steps, rollouts of whatever kind, or generated tokens, the creator's
    included."""
    marks: int = Field(default=4, ge=1)
    """Equal parts of the budget, after each of which the policy can be judged."""
    mark: int | None = Field(default=None, ge=1)
    """The part after which this run ends; null: the last."""

    @model_validator(mode="after")
    def _a_mark_there_is(self) -> League:
        wrong = f"`mark` {self.mark} lies beyond the {self.marks} `marks`"
        refuse((self.ends > self.marks, wrong))
        return self

    @property
    def ends(self) -> int:
        """The mark after which a run ends."""
        return self.mark or self.marks

    def canonical(self) -> dict[str, Any]:
        """Return the settings that matter."""
        return self.model_dump(exclude={"mark"}) | {"mark": self.ends}


class Online(Strict):
    """How mini-batches are drawn and evolved in one continual online run (paper appendix A)."""

    prompts: Literal["human", "eva", "matched", "pool", "matched_pool"] = "eva"
    """Human prompts only, human prompts and a buffer of evolved ones, or only prompts matched to
    the hard benchmark (ours: a control, the oracle's choice); or a pool of human or of matched
    prompts for a `league`."""
    metric: Metric = "a_avg"
    """Informativeness of a prompt over its rewards. Paper section 3.2 (average-based online)."""
    n_new: int = Field(default=4, ge=1)
    """Rewrites of each evolved prompt while human prompts last. Paper appendix A (4), table 8."""
    n_new_bootstrap: int = Field(default=2, ge=1)
    """Rewrites of each evolved prompt once human prompts are used up. Paper appendix A (2)."""
    ratio_evol: float = Field(default=0.5, ge=0, le=1)
    """Share of a mini-batch drawn from the buffer in mix-up. Paper appendix A, table 8."""
    evolve_share: float = Field(default=0.5, gt=0, le=1)
    """Most informative share of a mini-batch that is evolved. Paper appendix A (top 50%)."""
    minibatch: int = Field(default=8, ge=1)
    """Prompts in a mini-batch. Paper appendix A (8)."""
    buffer: float = Field(default=0.32, gt=0)
    """Size of the buffer in multiples of x. Paper appendix A (3,200 prompts at x = 10,000)."""
    method: Literal["independent", "tree_bon"] = "independent"
    """Independent rewrites of one parent, or tree best-of-n. Paper appendix A, figure 11."""
    tree_depth: int = Field(default=2, ge=1)
    """Levels of a best-of-n tree of width `n_new`; 1 is independent rewrites. Ours: figure 11 names
    neither depth nor width."""
    warm_up: float | None = Field(default=None, gt=0)
    """Human prompts of the warm-up in multiples of x; null: until the buffer is full. Ours: paper
    appendix A says "3200, i.e. 400 iterations", but 16 rewrites a step fill 3,200 in 200."""
    human_order: Literal["one_pass", "iid"] = "one_pass"
    """Human prompts in one shuffled pass, or drawn anew each time and as often. Ours: the paper
    says both "i.i.d." and "run out"."""
    buffer_holds: Literal["evolved", "evolved_and_human"] = "evolved"
    """Whether human prompts enter the buffer after their step. Paper appendix A ("only the evolved
    prompts")."""
    weight_floor: float = Field(default=0.01, ge=0, le=1)
    """Least min-max weight in the buffer. Ours: without one the least informative prompt is never
    drawn."""
    replacement: bool = False
    """Whether one mini-batch may hold a buffered prompt twice. Ours: prompts trained on are dropped
    anyway."""
    evolve_by: Literal["rank", "draw"] = "rank"
    """Whether the most informative are evolved, ties by position, or drawn by weight. Ours: "top
    50%" in paper appendix A says rank, the offline creator draws."""
    child_score: Literal["rollout", "parent"] = "rollout"
    """A rewrite's informativeness on entering the buffer: from rollouts of the policy as it is, or
    its parent's. Ours: the paper does not say."""
    rescore_every: int | None = Field(default=None, ge=1)
    """Steps between scoring the whole buffer anew; null: never. Ours: the paper does not say."""
    eviction: Literal["oldest", "least_informative"] = "oldest"
    """What leaves a full buffer, after the prompts trained on. Paper appendix A (the oldest)."""
    size: int = Field(default=1, ge=1)
    """Prompts trained on so far, in multiples of x. Paper table 1 (1x, 2x, 3x, 6x)."""
    passes: int = Field(default=1, ge=1)
    """How often a run without evolving goes over its prompts, in a new order each time. Ours: a
    control, as many steps on fewer prompts."""
    skip: int = Field(default=0, ge=0)
    """Human prompts passed over before the first, in multiples of x. Ours: a control, other prompts
    of the same kind."""
    oracle: Choice | None = None
    """Let the oracle value prompts in place of the metric: it says which of a mini-batch evolve
    and which are drawn from the buffer. Ours: a control, no method."""
    shuffled: bool = False
    """Permute the oracle's values over the prompts it values together; of a league's selector,
    carry its choice over to other prompts. Ours: a control."""
    league: League | None = None
    """What chooses out of a pool, and for how long. Ours: selectors on equal budgets."""

    @property
    def length(self) -> int:
        """Prompts trained on, repeated ones each time, in multiples of x."""
        return self.size * self.passes

    @model_validator(mode="after")
    def _consistent(self) -> Online:
        oracle, plain = self.oracle is not None, self.prompts in ("human", "matched")
        only = f"goes with `prompts: human` or `matched`, not `{self.prompts}`"
        refuse(
            (self.passes > 1 and not plain, f"`passes` {only}"),
            (self.skip and not plain, f"`skip` {only}"),
            ((self.league is None) == self.prompts.endswith("pool"),
             "a `league` and `prompts: pool` (or `matched_pool`) go together"),
            (self.shuffled and not oracle and self.league is None,
             "`shuffled` permutes the values of the `oracle`, and none is asked"),
            (oracle and self.prompts not in ("eva", "pool"),
             f"`oracle` goes with `prompts: eva` or `pool`, not `{self.prompts}`"),
            (oracle and self.metric == "uniform",
             "the `oracle` values prompts: leave `metric: uniform` out"),
        )  # fmt: skip
        for name in ("evolve_share", "ratio_evol"):
            share = getattr(self, name)
            count = share * self.minibatch
            if abs(count - round(count)) > 1e-9:
                raise ValueError(
                    f"`{name}` {share:g} of a mini-batch of {self.minibatch} is {count:g} prompts, "
                    "which is not a whole number"
                )
        return self

    def canonical(self) -> dict[str, Any]:
        """Return the settings that matter, without those of a buffer that is never filled."""
        data = self.model_dump(exclude={"passes", "skip", "oracle", "shuffled", "league"})
        if self.prompts != "eva":
            data = {name: data[name] for name in ("prompts", "minibatch", "size")}
        if self.league is not None:
            data["league"] = self.league.canonical()
            data |= {"n_new": self.n_new} if self.league.grows else {}
        # Named where they say something, so that no other recipe changes by their being there.
        if self.passes > 1:
            data["passes"] = self.passes
        named = {"skip": self.skip, "oracle": self.oracle, "shuffled": self.shuffled}
        return data | {name: value for name, value in named.items() if value}


class Recipe(Strict):
    """What is trained, on which prompts, and with which roles; every size in multiples of x."""

    algorithm: Algorithm | None = None
    """The preference optimiser, or null for the base model. Paper section 4.1."""
    chain: tuple[Arm, ...] = ()
    """Offline: where the prompts of each iteration come from, first to last. Paper appendix A."""
    size: int = Field(default=1, ge=1)
    """Offline: prompts of an iteration, in multiples of x. Paper tables 13 to 15 (1, 2 and 6)."""
    train: TrainMode = "incremental"
    """Last iteration: go on from the last checkpoint, or from the base model on the original and
    the evolved prompts. Paper section 4.2.4, table 6."""
    reward_model: RewardRole = "pointwise"
    """Annotates completions. Paper section 4.1 (ArmoRM-8B; PairRM-0.4B for SPPO), tables 10, 11."""
    reward_model_from: int = Field(default=1, ge=1)
    """Iteration, from 1, that `reward_model` starts with; earlier ones use the small model of its
    kind, so that rows which differ in the reward model start from one checkpoint. Paper tables 10
    and 11 print a single first row for both reward models."""
    informativeness_reward_model: RewardRole | None = None
    """Rewards behind the informativeness; null means `reward_model` if that is pointwise, else
    `pointwise`. Authors' code (SPPO's prompts are weighted by the gap of ArmoRM-8B)."""
    rewriter: bool = False
    """Let the solver improve the chosen answers of `eva` iterations. Paper appendix H.2.1."""
    step_matched: bool = False
    """Go over the pairs of `select` iterations until they are as many as an `eva` iteration trains
    on, so that both take the same number of gradient steps. Ours: a control for paper table 5,
    whose rows without evolving train on a quarter of eva's pairs."""
    passes: int = Field(default=1, ge=1)
    """Offline: how often each training goes over its pairs, in multiples of the profile's epochs.
    Ours: a control, as many gradient steps on fewer prompts."""
    pool: int | None = Field(default=None, ge=2)
    """Offline: human prompts, in multiples of x, of which the first iteration's are selected by the
    creator's metric and sampling, on the base model's rewards; null takes them as they come. Ours:
    a control, prompts chosen to teach nothing."""
    skip: int = Field(default=0, ge=0)
    """Offline: human prompts passed over before the first iteration, in multiples of x. Ours: a
    control, other prompts of the same kind."""
    creator: Creator = Creator()
    """Offline: how `eva` and `select` iterations make their prompts, and how a `pool` is drawn
    from."""
    online: Online | None = None
    """Online: how mini-batches are drawn and evolved."""

    @model_validator(mode="after")
    def _consistent(self) -> Recipe:
        if self.algorithm is None:
            other = self != Recipe.model_construct()
            refuse((other, "`algorithm: null` is the base model and takes no other setting"))
        elif self.is_online:
            self._check_online()
        else:
            self._check_offline()
        return self

    def _check_online(self) -> None:
        refuse(
            (self.online is None, f"`{self.algorithm}` trains online and needs an `online` block")
        )
        both = {"algorithm", "reward_model", "online", "informativeness_reward_model"}
        for name, field in Recipe.model_fields.items():
            if name not in both and getattr(self, name) != field.default:
                said = f"`{name}` belongs to offline training and `{self.algorithm}` trains online"
                raise ValueError(said)

    def _check_offline(self) -> None:
        chain, first = self.chain, self.chain[0] if self.chain else None
        pairwise = small(self.reward_model) == "pairwise"
        refuse(
            (self.online is not None,
             f"`{self.algorithm}` trains offline and takes no `online` block"),
            (not chain, f"`{self.algorithm}` needs a `chain` of at least one iteration"),
            (first not in FIRST_ARMS,
             f"the `chain` starts with `{first}`, which needs the prompts of an iteration before "
             "it; start with `human`"),
            (self.pool is not None and chain != ("human",),
             "`pool` needs a `chain` of one iteration, `human`"),
            (self.pool is not None and self.pool <= self.size,
             f"a `pool` of {self.pool} leaves no choice of `size` {self.size}"),
            ("off_target" in chain and (len(chain) > 1 or self.size < 2),
             "`off_target` is a `chain` of one iteration and needs a `size` of at least 2: the "
             "first x of its prompts are human ones"),
            (self.creator.parents is not None and "eva" not in chain,
             "`creator.parents` needs an `eva` iteration in the `chain`"),
            (self.skip and first != "human", "`skip` needs a `chain` that starts with `human`"),
            ("eva" in chain and self.creator.method is None,
             "an `eva` iteration needs a `creator.method`"),
            (self.train == "scratch" and chain[-1:] != ("eva",),
             "`train: scratch` needs a `chain` that ends in `eva`"),
            (self.step_matched and "select" not in chain,
             "`step_matched` needs a `select` iteration in the `chain`"),
            (self.rewriter and "eva" not in chain,
             "`rewriter` needs an `eva` iteration in the `chain`"),
            (self.rewriter and pairwise,
             "`rewriter` records the reward of each revision and needs a pointwise "
             f"`reward_model`, not `{self.reward_model}`"),
            (self.algorithm == "sppo" and not pairwise,
             "`sppo` learns from win probabilities and needs a pairwise `reward_model`, not "
             f"`{self.reward_model}`"),
            (self.reward_model_from > len(chain),
             f"`reward_model_from` {self.reward_model_from} lies beyond the {len(chain)} "
             "iterations of the `chain`"),
        )  # fmt: skip

    @property
    def is_base(self) -> bool:
        return self.algorithm is None

    @property
    def is_online(self) -> bool:
        """Whether prompts are chosen for each mini-batch."""
        return self.algorithm in ONLINE_ALGORITHMS

    def reward_model_at(self, iteration: int) -> RewardRole:
        """Return the role that annotates the completions of an iteration, counted from 1."""
        late = iteration >= self.reward_model_from
        return self.reward_model if late else small(self.reward_model)

    def informativeness_reward_model_at(self, iteration: int) -> RewardRole:
        if self.informativeness_reward_model is not None:
            return self.informativeness_reward_model
        role = self.reward_model_at(iteration)
        return role if small(role) == "pointwise" else "pointwise"

    def rewriter_at(self, iteration: int) -> bool:
        """Return whether the chosen answers of an iteration, counted from 1, are rewritten."""
        return self.rewriter and self.chain[iteration - 1] == "eva"

    def canonical(self) -> dict[str, Any]:
        """Return the settings that matter, as JSON data; equal exactly for the same run."""
        return dict(self._canonical)

    @cached_property
    def _canonical(self) -> dict[str, Any]:
        if self.algorithm is None:
            return {"algorithm": None}
        if self.online is not None:
            return self._canonical_online(self.online)
        default_role = self.reward_model == small(self.reward_model)
        data: dict[str, Any] = {
            "algorithm": self.algorithm,
            "chain": list(self.chain),
            "size": self.size,
            "train": self.train,
            "reward_model": self.reward_model,
            "reward_model_from": 1 if default_role else self.reward_model_from,
        }
        evolves, pooled = "eva" in self.chain, self.pool is not None
        if evolves:
            data["rewriter"] = self.rewriter
        if pooled:
            data["pool"] = self.pool
        if evolves or "select" in self.chain or pooled:
            data["creator"] = self.creator.canonical(evolves=evolves)
        if pooled:
            del data["creator"]["fraction"]  # the pool says it
        data |= {"step_matched": True} if self.step_matched else {}
        data |= {"passes": self.passes} if self.passes > 1 else {}
        data |= {"skip": self.skip} if self.skip else {}
        scored = [i for i, arm in enumerate(self.chain, start=1) if arm in ("eva", "select")]
        scored += [1] if pooled else []
        if scored and self.creator.metric != "uniform":
            data["informativeness_reward_model"] = [
                self.informativeness_reward_model_at(i) for i in scored
            ]
        return data

    def _canonical_online(self, online: Online) -> dict[str, Any]:
        data: dict[str, Any] = {
            "algorithm": self.algorithm,
            "reward_model": self.reward_model,
            "online": online.canonical(),
        }
        if online.prompts == "eva" and online.metric != "uniform":
            data["informativeness_reward_model"] = [self.informativeness_reward_model_at(1)]
        return data


def evolves_online(online: Online) -> bool:
    """Return whether an online run has prompts rewritten."""
    return online.prompts == "eva" or (online.league is not None and online.league.grows)


def chooses_prompts(recipe: Recipe) -> bool:
    """Return whether a recipe evolves, selects or repeats prompts, rather than taking new ones."""
    if recipe.online is not None:
        return recipe.online.prompts == "eva" or recipe.online.league is not None
    return any(arm not in FIRST_ARMS for arm in recipe.chain)


def choice(recipe: Recipe) -> tuple[object, ...] | None:
    """Return how a recipe chooses among prompts, None where it takes them as they come."""
    if recipe.online is not None:
        own = recipe.online
        if own.prompts != "eva":
            return None
        return (own.metric, own.oracle, own.shuffled, own.evolve_by, own.evolve_share)
    arms = {arm for arm in recipe.chain if arm in ("eva", "select")}
    by = recipe.creator
    if not arms and recipe.pool is None:
        return None
    chosen = (by.metric, by.oracle, by.shuffled, by.sampling, by.fraction, by.parents)
    return (*sorted(arms), recipe.pool, *chosen)


def small(role: RewardRole) -> RewardRole:
    """Return the small reward model of the same kind, the paper's default."""
    return "pairwise" if role.startswith("pairwise") else "pointwise"


def merge(defaults: Mapping[str, Any], override: Mapping[str, Any]) -> dict[str, Any]:
    """Return `defaults` with `override` laid over it: mappings merge, all else is replaced."""
    merged = dict(defaults)
    for key, value in override.items():
        below = merged.get(key)
        both = isinstance(below, Mapping) and isinstance(value, Mapping)
        merged[key] = merge(below, value) if both else value  # type: ignore[arg-type]
    return merged


def layered(
    defaults: Mapping[str, Any], row: Mapping[str, Any], column: Mapping[str, Any]
) -> dict[str, Any]:
    """Return a cell's settings: its column's over its row's over its table's.

    A row with `algorithm: null` is the base model; it takes nothing from table or column, since
    there is nothing left to set.
    """
    if row.get("algorithm", "") is None:
        return dict(row)
    below = merge(defaults, row)
    return merge(below, column) if column else below


def defaults() -> dict[str, Any]:
    """Return every setting of a recipe as it is where nothing is said."""
    return Recipe().model_dump() | {"online": Online().model_dump()}


_SAID = {"algorithm", "chain", "online.prompts", "creator.metric", "online.metric"}


def in_short(recipe: Recipe) -> str:
    """Return a recipe in one line: what always matters, then what is not the default."""
    if recipe.algorithm is None:
        return "base model"
    online = recipe.online
    path = " → ".join(recipe.chain) if online is None else f"online on {online.prompts} prompts"
    settings, usual = flattened(recipe.canonical()), flattened(defaults())
    words = [f"{recipe.algorithm}: {path}"]
    words += [str(value) for key, value in settings.items() if key.endswith(".metric")]
    if recipe.informativeness_reward_model is None:
        # Then it follows from the reward model, which is said.
        settings.pop("informativeness_reward_model", None)
    words += [
        f"{key.rpartition('.')[2].replace('_', ' ')} {as_text(value)}"
        for key, value in settings.items()
        if key not in _SAID and usual.get(key) != value
    ]
    return ", ".join(words)


def leaves(settings: Mapping[str, Any]) -> dict[tuple[str, ...], Any]:
    """Return what stands in nested settings, by the keys that lead to it."""
    found: dict[tuple[str, ...], Any] = {}
    for key, value in settings.items():
        if isinstance(value, Mapping):
            for rest, leaf in leaves(value).items():
                found[key, *rest] = leaf
        else:
            found[(key,)] = value
    return found


def flattened(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return nested settings with dotted keys, as in `creator.metric`."""
    return {".".join(keys): value for keys, value in leaves(settings).items()}


def as_text(value: Any) -> str:
    """Return a setting's value for people: texts as they are, all else as JSON."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
