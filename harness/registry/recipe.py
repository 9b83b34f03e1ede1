"""Recipes: everything that changes a run's numbers and does not depend on scale.

A recipe names an algorithm and where its prompts come from. Offline (DPO, SPPO, SimPO, ORPO) that
is a *chain*, one entry per iteration: `human` trains on new human prompts, `eva` on the previous
iteration's prompts with an informative subset evolved, `select` on that subset as is, and `same` on
all of the previous iteration's prompts again; `matched` trains on new prompts that ask for what the
hard benchmark asks, which no method could know. Online (RLOO, OAIF), prompts are chosen per
mini-batch, as the `online` block specifies. No algorithm means the base model. Sizes are multiples
of x, the prompts per iteration, and models are roles; the profile defines both.

Two recipes are the same run if and only if their canonical forms are equal: `Recipe.canonical`
drops whatever the rest of the recipe makes irrelevant, such as the creator of a chain that never
evolves.

Sources: paper sections 3 and 4.2, appendices A, B and H; the authors' code where noted.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from functools import cached_property
from itertools import chain
from typing import Annotated, Any, Final, Literal

from pydantic import AfterValidator, ConfigDict, Field, model_validator
from pydantic_core import PydanticCustomError

from harness.extensions import CREATORS, LOSSES, METRICS, ONLINE_ALGORITHMS, SELECTORS
from harness.strict import Strict
from harness.words import setting_text


def one_of(*names: Collection[str]) -> AfterValidator:
    """Return the check that a string is a registered name, also a plug-in's; looked up lazily."""

    def check(value: str) -> str:
        if any(value in known for known in names):
            return value
        expected = ", ".join(f"'{name}'" for name in chain.from_iterable(names))
        raise PydanticCustomError(
            "literal_error", "Input should be {expected}", {"expected": expected}
        )

    return AfterValidator(check)


Algorithm = Annotated[str, one_of(LOSSES, ONLINE_ALGORITHMS)]
Arm = Literal["human", "eva", "select", "same", "matched", "off_target"]
FIRST_ARMS: Final[tuple[Arm, ...]] = ("human", "matched", "off_target")
"""Arms with new prompts, which a chain can start with."""
TrainMode = Literal["incremental", "scratch"]
RewardRole = Literal[
    "pointwise", "pointwise_large", "pairwise", "pairwise_large",
    "pointwise_brief_1", "pointwise_brief_2", "pointwise_brief_3", "pointwise_brief_4",
    "pointwise_noisy_1", "pointwise_noisy_2",
]  # fmt: skip
"""The paper's four reward models, and pointwise ones made worse by brief training or noisier
preferences, with the first of each the worst."""
Metric = Annotated[str, one_of(METRICS)]
Sampling = Literal["weighted", "greedy"]
Choice = Literal["best", "worst"]
"""What the oracle chooses: the prompts the policy can learn most, or least, from."""
Reach = Literal["parent", "topic", "people", "even"]
"""Where the embedded creator takes the names it adds from: the parent only, the topic, the human
distribution, or uniformly all it knows."""
Method = Annotated[str, one_of(CREATORS)]


class Creator(Strict):
    """How an `eva` or `select` iteration makes its prompts from the previous iteration's."""

    metric: Metric = "a_min"
    """Informativeness of a prompt over its rewards. Paper table 3 and section 4.2.1."""
    sampling: Sampling = "weighted"
    """Draw by weight without replacement, or take the top. Paper section 4.2.2."""
    fraction: float = Field(default=0.25, gt=0, le=1)
    """Fraction of prompts sampled. Paper appendix A (25%)."""
    method: Method | None = "evol_instruct"
    """How a sampled prompt is rewritten; null if nothing evolves. Paper appendix H.1."""
    evolutions: int = Field(default=4, ge=1)
    """Rewrites per sampled prompt, all kept. Paper appendix A (4)."""
    evolved_share: float = Field(default=0.8, ge=0, le=1)
    """Fraction of evolved pairs in the training mix; the rest is replayed. Paper appendix A
    (80%)."""
    shuffled: bool = False
    """Permute the metric's values across prompts before weighting, so that weights carry no
    information; with the oracle, permute the prompts it sees. Ours: a control, the same weights
    without their signal."""
    oracle: Choice | None = None
    """Let the oracle choose instead of the metric. Ours: a control, not a method."""
    parents: int | None = Field(default=None, ge=2)
    """Human prompts, in multiples of x, that `eva` iterations choose parents from; null for the
    previous iteration's prompts. The number chosen is the same. Ours: a pool several times as large
    as an iteration leaves something to choose from; all of it is answered and scored."""
    reach: Reach | None = None
    """Where the creator takes what it adds to a prompt; null for its default. Ours: a factor of the
    embedded creator only."""

    @model_validator(mode="after")
    def _something_to_shuffle(self) -> Creator:
        uniform, oracle = self.metric == "uniform", self.oracle is not None
        if oracle and not uniform:
            raise ValueError("the `oracle` chooses in place of a metric: say `metric: uniform`")
        if self.shuffled and uniform and not oracle:
            raise ValueError("`shuffled` permutes the values of a metric, and `uniform` has none")
        return self

    def canonical(self, *, evolves: bool) -> dict[str, Any]:
        """Return the settings that matter: only those of the selection if nothing evolves."""
        selection, ours = {"metric", "sampling", "fraction"}, {"shuffled", "oracle"}
        of_evolving = {"parents", "reach"}
        data = self.model_dump(
            include=None if evolves else selection, exclude={*ours, *of_evolving}
        )
        # Included only when set, so that adding them left other recipes' identities unchanged.
        matter = ours | of_evolving if evolves else ours
        return data | self.model_dump(include=matter, exclude_defaults=True)


SelectorName = Annotated[str, one_of(SELECTORS)]
Budget = Literal["steps", "rollouts", "tokens"]


class League(Strict):
    """How one of several selectors chooses prompts from a shared pool, until a budget is spent."""

    selector: SelectorName = "uniform"
    options: dict[str, bool | int | float | str] = Field(default={})
    """The selector's non-default settings."""
    grows: bool = False
    """Whether the creator rewrites the better half of each mini-batch, `n_new` times each, into the
    pool. Ours: the same creator for all, so that only the choice of parents differs."""
    visits: int = Field(default=3, ge=1)
    """How often each pool prompt could be trained on: the pool is the budget's prompts divided by
    this."""
    budget: Budget = "tokens"
    """What is held equal: gradient steps, rollouts of any kind, or generated tokens including the
    creator's."""
    marks: int = Field(default=4, ge=1)
    """Number of equal parts of the budget; the policy can be judged after each."""
    mark: int | None = Field(default=None, ge=1)
    """The part after which this run ends; null for the last."""

    @model_validator(mode="after")
    def _a_mark_there_is(self) -> League:
        if self.ends > self.marks:
            raise ValueError(f"`mark` {self.mark} lies beyond the {self.marks} `marks`")
        return self

    @property
    def ends(self) -> int:
        return self.mark or self.marks

    def canonical(self) -> dict[str, Any]:
        return self.model_dump(exclude={"mark"}) | {"seen": None, "mark": self.ends}


WEIGHT_FLOOR = 0.01
"""Minimum min-max weight in the buffer. Ours: without one, the least informative prompt is never
drawn."""

BUFFER_RULES: Mapping[str, Any] = {
    "method": "independent",
    "tree_depth": 2,
    "human_order": "one_pass",
    "buffer_holds": "evolved",
    "weight_floor": WEIGHT_FLOOR,
    "replacement": False,
    "rescore_every": None,
    "eviction": "oldest",
}
"""How the buffer works in every online run with eva, as part of the identity of its stages.

Paper appendix A, and ours where it is silent."""


class Online(Strict):
    """How mini-batches are drawn and evolved in one continual online run (paper appendix A).

    A report lists its settings with their sources, which are read from the fields' docstrings.
    """

    model_config = ConfigDict(use_attribute_docstrings=True)

    prompts: Literal["human", "eva", "matched", "pool", "matched_pool"] = "eva"
    """Human prompts only, human prompts and a buffer of evolved ones, or only prompts matched to
    the hard benchmark, or a pool of human or of matched prompts for a `league`. Paper appendix A;
    matched prompts and pools are ours."""
    metric: Metric = "a_avg"
    """Informativeness of a prompt over its rewards. Paper section 3.2 (average-based online)."""
    n_new: int = Field(default=4, ge=1)
    """Rewrites per evolved prompt while human prompts last. Paper appendix A (4), table 8."""
    n_new_bootstrap: int = Field(default=2, ge=1)
    """Rewrites per evolved prompt once human prompts run out. Paper appendix A (2)."""
    ratio_evol: float = Field(default=0.5, ge=0, le=1)
    """Fraction of a mini-batch drawn from the buffer in mix-up. Paper appendix A, table 8."""
    evolve_share: float = Field(default=0.5, gt=0, le=1)
    """Most informative fraction of a mini-batch that is evolved. Paper appendix A (top 50%)."""
    minibatch: int = Field(default=8, ge=1)
    """Prompts per mini-batch. Paper appendix A (8)."""
    buffer: float = Field(default=0.32, gt=0)
    """Buffer size in multiples of x. Paper appendix A (3,200 prompts at x = 10,000)."""
    warm_up: float | None = Field(default=None, gt=0)
    """Human prompts in the warm-up, in multiples of x; null: until the buffer is full. Ours: paper
    appendix A says "3200, i.e. 400 iterations", but 16 rewrites a step fill 3,200 in 200."""
    evolve_by: Literal["rank", "draw"] = "rank"
    """Evolve the most informative (ties by position; the lowest hundredth of the range is one tie),
    or draw by weight. Ours: "top 50%" in paper appendix A says rank, the offline creator draws."""
    child_score: Literal["rollout", "parent"] = "rollout"
    """A rewrite's informativeness on entering the buffer: from the current policy's rollouts, or
    its parent's. Ours: the paper does not say."""
    size: int = Field(default=1, ge=1)
    """Prompts trained on so far, in multiples of x. Paper table 1 (1x, 2x, 3x, 6x)."""
    passes: int = Field(default=1, ge=1)
    """Passes over the prompts in a run without evolving, reshuffled each time. Ours: a
    control, as many steps on fewer prompts."""
    skip: int = Field(default=0, ge=0)
    """Human prompts to skip at the start, in multiples of x. Ours: a control, other prompts
    of the same kind."""
    oracle: Choice | None = None
    """Let the oracle value prompts instead of the metric: it decides which of a mini-batch evolve
    and which are drawn from the buffer. Ours: a control, no method."""
    shuffled: bool = False
    """Permute the oracle's values among the prompts valued together; for a league's selector, move
    its choice to other prompts. Ours: a control."""
    league: League | None = None
    """What chooses from a pool, and for how long. Ours: selectors on equal budgets."""

    @property
    def length(self) -> int:
        """Prompts trained on, counting repeats, in multiples of x."""
        return self.size * self.passes

    @model_validator(mode="after")
    def _consistent(self) -> Online:
        oracle, plain = self.oracle is not None, self.prompts in ("human", "matched")
        only = f"goes with `prompts: human` or `matched`, not `{self.prompts}`"
        if self.passes > 1 and not plain:
            raise ValueError(f"`passes` {only}")
        if self.skip and not plain:
            raise ValueError(f"`skip` {only}")
        if (self.league is None) == self.prompts.endswith("pool"):
            raise ValueError("a `league` and `prompts: pool` (or `matched_pool`) go together")
        if self.shuffled and not oracle and self.league is None:
            raise ValueError("`shuffled` permutes the values of the `oracle`, and none is asked")
        if oracle and self.prompts not in ("eva", "pool"):
            raise ValueError(f"`oracle` goes with `prompts: eva` or `pool`, not `{self.prompts}`")
        if oracle and self.metric == "uniform":
            raise ValueError("the `oracle` values prompts: leave `metric: uniform` out")
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
        """Return the settings that matter, dropping the buffer's if there is none."""
        later = {"passes", "skip", "oracle", "shuffled"}
        data = {**BUFFER_RULES, **self.model_dump(exclude={*later, "league"})}
        if self.prompts != "eva":
            data = {name: data[name] for name in ("prompts", "minibatch", "size")}
        if self.league is not None:
            data["league"] = self.league.canonical()
            data |= {"n_new": self.n_new} if self.league.grows else {}
        # Included only when set, so that adding them left other recipes' identities unchanged.
        return data | self.model_dump(include=later, exclude_defaults=True)


class Recipe(Strict):
    """What is trained, on which prompts, and with which roles; all sizes in multiples of x."""

    algorithm: Algorithm | None = None
    """The preference optimizer, or null for the base model. Paper section 4."""
    chain: tuple[Arm, ...] = ()
    """Offline: where each iteration's prompts come from, first to last. Paper appendix A."""
    size: int = Field(default=1, ge=1)
    """Offline: prompts per iteration, in multiples of x. Paper tables 13 to 15 (1, 2 and 6)."""
    train: TrainMode = "incremental"
    """Last iteration: continue from the last checkpoint, or start from the base model on the
    original and evolved prompts. Paper section 4.2.4, table 6."""
    reward_model: RewardRole = "pointwise"
    """Annotates completions. Paper section 4 (ArmoRM-8B; PairRM-0.4B for SPPO), tables 10, 11."""
    reward_model_from: int = Field(default=1, ge=1)
    """First iteration (from 1) to use `reward_model`; earlier ones use the small model of its kind,
    so that rows that differ in the reward model share their first checkpoint. Paper tables 10 and
    11 print a single first row for both reward models."""
    rewriter: bool = False
    """Let the solver improve the chosen answers of `eva` iterations. Paper appendix H.2.1."""
    step_matched: bool = False
    """Repeat the pairs of `select` iterations until there are as many as an `eva` iteration trains
    on, so that both take the same number of gradient steps. Ours: a control for paper table 5,
    whose rows without evolving train on a quarter of eva's pairs."""
    passes: int = Field(default=1, ge=1)
    """Offline: passes of each training over its pairs, in multiples of the profile's epochs. Ours:
    a control, as many gradient steps on fewer prompts."""
    pool: int | None = Field(default=None, ge=2)
    """Offline: human prompts, in multiples of x, from which the first iteration's are selected by
    the creator's metric and sampling, on the base model's rewards; null takes the first. Ours: a
    control, prompts chosen to teach nothing."""
    skip: int = Field(default=0, ge=0)
    """Offline: human prompts to skip before the first iteration, in multiples of x. Ours: a
    control, other prompts of the same kind."""
    creator: Creator = Creator()
    """Offline: how `eva` and `select` iterations make their prompts, and how to draw from a
    `pool`."""
    online: Online | None = None
    """Online: how mini-batches are drawn and evolved."""

    @model_validator(mode="after")
    def _consistent(self) -> Recipe:
        if self.algorithm is None:
            if self != Recipe.model_construct():
                raise ValueError("`algorithm: null` is the base model and takes no other setting")
        elif self.is_online:
            self._check_online()
        else:
            self._check_offline()
        return self

    def _check_online(self) -> None:
        if self.online is None:
            raise ValueError(f"`{self.algorithm}` trains online and needs an `online` block")
        both = {"algorithm", "reward_model", "online"}
        for name, field in Recipe.model_fields.items():
            if name not in both and getattr(self, name) != field.default:
                raise ValueError(f"`{name}` belongs to offline training, and this trains online")

    def _check_offline(self) -> None:
        chain, first = self.chain, self.chain[0] if self.chain else None
        pairwise = small(self.reward_model) == "pairwise"
        if self.online is not None:
            raise ValueError(f"`{self.algorithm}` trains offline and takes no `online` block")
        if not chain:
            raise ValueError(f"`{self.algorithm}` needs a `chain` of at least one iteration")
        if first not in FIRST_ARMS:
            raise ValueError(
                f"the `chain` starts with `{first}`, which needs the prompts of an iteration "
                "before it; start with `human`"
            )
        if self.pool is not None and chain != ("human",):
            raise ValueError("`pool` needs a `chain` of one iteration, `human`")
        if self.pool is not None and self.pool <= self.size:
            raise ValueError(f"a `pool` of {self.pool} leaves no choice of `size` {self.size}")
        if "off_target" in chain and (len(chain) > 1 or self.size < 2):
            raise ValueError(
                "`off_target` is a `chain` of one iteration and needs a `size` of at least 2: the "
                "first x of its prompts are human ones"
            )
        if self.creator.parents is not None and "eva" not in chain:
            raise ValueError("`creator.parents` needs an `eva` iteration in the `chain`")
        if self.skip and first != "human":
            raise ValueError("`skip` needs a `chain` that starts with `human`")
        if "eva" in chain and self.creator.method is None:
            raise ValueError("an `eva` iteration needs a `creator.method`")
        if self.train == "scratch" and chain[-1:] != ("eva",):
            raise ValueError("`train: scratch` needs a `chain` that ends in `eva`")
        if self.step_matched and "select" not in chain:
            raise ValueError("`step_matched` needs a `select` iteration in the `chain`")
        if self.rewriter and "eva" not in chain:
            raise ValueError("`rewriter` needs an `eva` iteration in the `chain`")
        if self.rewriter and self.train == "scratch":
            raise ValueError("`train: scratch` revises no pairs: take `rewriter` out")
        if self.rewriter and pairwise:
            raise ValueError(
                "`rewriter` records the reward of each revision and needs a pointwise "
                f"`reward_model`, not `{self.reward_model}`"
            )
        if self.algorithm == "sppo" and not pairwise:
            raise ValueError(
                "`sppo` learns from win probabilities and needs a pairwise `reward_model`, not "
                f"`{self.reward_model}`"
            )
        if self.reward_model_from > len(chain):
            raise ValueError(
                f"`reward_model_from` {self.reward_model_from} lies beyond the {len(chain)} "
                "iterations of the `chain`"
            )

    @property
    def is_base(self) -> bool:
        return self.algorithm is None

    @property
    def is_online(self) -> bool:
        """Whether prompts are chosen for each mini-batch."""
        return self.algorithm in ONLINE_ALGORITHMS

    @property
    def choosing(self) -> list[int]:
        """The offline iterations, counted from 1, whose prompts the creator chooses."""
        chain = enumerate(self.chain, start=1)
        return [i for i, arm in chain if arm in ("eva", "select") or self.pool is not None]

    def reward_model_at(self, iteration: int) -> RewardRole:
        """Return the role that annotates the completions of an iteration, counted from 1."""
        late = iteration >= self.reward_model_from
        return self.reward_model if late else small(self.reward_model)

    def informativeness_reward_model_at(self, iteration: int) -> RewardRole:
        """Return the role behind the informativeness: the annotating one if that is pointwise.

        Authors' code: SPPO's prompts are weighted by the gap of ArmoRM-8B.
        """
        role = self.reward_model_at(iteration)
        return role if small(role) == "pointwise" else "pointwise"

    def canonical(self) -> dict[str, Any]:
        """Return the settings that matter, as JSON data; equal if and only if the run is."""
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
        if self.choosing:
            data["creator"] = self.creator.canonical(evolves=evolves)
        if pooled:
            del data["creator"]["fraction"]  # the pool implies it
        data |= self.model_dump(include={"step_matched", "passes", "skip"}, exclude_defaults=True)
        if self.choosing and self.creator.metric != "uniform":
            data["informativeness_reward_model"] = [
                self.informativeness_reward_model_at(i) for i in self.choosing
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
    return online.prompts == "eva" or (online.league is not None and online.league.grows)


def chooses_prompts(recipe: Recipe) -> bool:
    """Return whether a recipe evolves, selects or repeats prompts, rather than only taking new."""
    if recipe.online is not None:
        return recipe.online.prompts == "eva" or recipe.online.league is not None
    return any(arm not in FIRST_ARMS for arm in recipe.chain)


def choice(recipe: Recipe) -> tuple[object, ...] | None:
    """Return how a recipe chooses among prompts, or None if it takes them as they come."""
    if recipe.online is not None:
        own = recipe.online
        if own.prompts != "eva":
            return None
        return (own.metric, own.oracle, own.shuffled, own.evolve_by, own.evolve_share)
    if not recipe.choosing:
        return None
    arms, by = {recipe.chain[i - 1] for i in recipe.choosing}, recipe.creator
    chosen = (by.metric, by.oracle, by.shuffled, by.sampling, by.fraction, by.parents)
    return (*sorted(arms), recipe.pool, *chosen)


def small(role: RewardRole) -> RewardRole:
    """Return the small reward model of the same kind, the paper's default."""
    return "pairwise" if role.startswith("pairwise") else "pointwise"


def merge(defaults: Mapping[str, Any], override: Mapping[str, Any]) -> dict[str, Any]:
    """Return `defaults` with `override` merged over it: mappings merge, anything else replaces."""
    merged = dict(defaults)
    for key, value in override.items():
        below = merged.get(key)
        both = isinstance(below, Mapping) and isinstance(value, Mapping)
        merged[key] = merge(below, value) if both else value  # type: ignore[arg-type]
    return merged


def layered(
    defaults: Mapping[str, Any], row: Mapping[str, Any], column: Mapping[str, Any]
) -> dict[str, Any]:
    """Return a cell's settings: its column's over its row's over its table's."""
    if row.get("algorithm", "") is None:
        return dict(row)
    return merge(merge(defaults, row), column)


def defaults() -> dict[str, Any]:
    return Recipe().model_dump() | {"online": Online().model_dump()}


_SAID = {
    "algorithm", "chain", "online.prompts", "creator.metric", "online.metric",
    "informativeness_reward_model",
}  # fmt: skip
"""What a summary says in its first words, and what follows from the reward model."""


def in_short(recipe: Recipe) -> str:
    """Return a one-line summary: what always matters, then non-default settings."""
    if recipe.algorithm is None:
        return "base model"
    online = recipe.online
    path = " → ".join(recipe.chain) if online is None else f"online on {online.prompts} prompts"
    settings = flattened(recipe.canonical())
    usual = flattened(merge(defaults(), {"online": BUFFER_RULES}))
    words = [f"{recipe.algorithm}: {path}"]
    words += [str(value) for key, value in settings.items() if key.endswith(".metric")]
    words += [
        f"{key.rpartition('.')[2].replace('_', ' ')} {setting_text(value)}"
        for key, value in settings.items()
        if key not in _SAID and usual.get(key) != value
    ]
    return ", ".join(words)


def leaves(settings: Mapping[str, Any]) -> dict[tuple[str, ...], Any]:
    """Return the leaf values of nested settings, by key path."""
    found: dict[tuple[str, ...], Any] = {}
    for key, value in settings.items():
        if isinstance(value, Mapping):
            found |= {(key, *rest): leaf for rest, leaf in leaves(value).items()}
        else:
            found[(key,)] = value
    return found


def flattened(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Flatten nested settings to dotted keys such as `creator.metric`."""
    return {".".join(keys): value for keys, value in leaves(settings).items()}
