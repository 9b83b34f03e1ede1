"""Profiles: the scale a recipe runs at, and what can run at that scale.

The YAML gives each hyperparameter's source (`{value: …, source: …}`), so that a report can separate
the paper's settings from assumptions.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from functools import cached_property
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, PrivateAttr, model_validator

from harness.extensions import CREATORS
from harness.project import profiles_dir
from harness.registry import documents
from harness.registry.recipe import (
    Algorithm,
    Arm,
    Method,
    Recipe,
    RewardRole,
    TrainMode,
    evolves_online,
)
from harness.registry.schema import PROMPT_SCORES, Column, Id, Row, ScoreId, Table
from harness.registry.serving import Served, ServedRole, Serving
from harness.registry.training import Count, Hardware, Nucleus, Positive, Training
from harness.strict import Strict

WORLD = "world"
"""What a profile names as model, prompts or creator to use the embedded world's."""

INSTRUCTIONS = "instructions"
"""What a profile names as prompts, creator, reward model or judge to use that world's."""


class PromptSettings(Strict):
    source: str
    """A dataset on the Hub (`owner/name`), or a path to a `.jsonl` file, each with a
    `prompt` column; or `world` for the embedded one's, or `instructions` for prompts with
    instructions that can be checked. A relative path is resolved against the current folder, then
    against the work folder."""
    revision: str | None = Field(default=None, pattern="^[0-9a-f]{40}$")
    """Commit of a Hub dataset; required for one."""
    splits: tuple[str, ...] = ()
    """Dataset splits to concatenate, in this order; empty for a single file."""
    available: Count
    """Number of prompts available, in multiples of x."""
    matched: Literal["world"] | None = None
    """Prompts that ask for what the hard benchmark asks, without being its own: the embedded
    world's, or null if there are none. They are the oracle's choice, a control that no method could
    produce."""


class RewardTraining(Strict):
    """A reward model without a checkpoint: a stage trains it on the world's noisy preferences."""

    steps: Count
    flipped: float = Field(ge=0, lt=0.5)
    """Fraction of its training labels that are flipped."""


class CreatorModel(Strict):
    source: str
    """The rewriting model, by its name at an endpoint, or `world` for the embedded rewriter, or
    `instructions` for the one by rule."""
    methods: tuple[Method, ...]
    online_method: Method = "evol_instruct"
    """Evolving method for online runs, whose recipes name none."""
    scorer: str | None = None
    """Model that sorts prompts by topic, by its name at an endpoint; null if none does."""
    retries: int = Field(ge=0)
    """Further attempts after an unusable rewrite."""
    temperature: float | None = Field(default=None, ge=0)
    """Sampling temperature; null if nothing is sampled from a model."""
    top_p: Nucleus | None = None
    max_new_tokens: Count | None = None
    """Longest rewrite, in tokens."""


class Pairing(Strict):
    """How a prompt's answers become a preference pair: best against worst."""

    drop_ties: bool
    """Whether to leave prompts whose rewards are all equal out of training."""
    open_cut: bool = False
    """Whether an answer that was cut off at the limit of tokens is trained on without the end of
    the turn, which the policy did not write; the policy's chat template must know `open`."""


class SelectionSettings(Strict):
    too_few: Literal["error", "uniform"]
    """What to do if fewer prompts than draws have positive weight: fail, or draw the rest
    uniformly."""
    oracle_answers: Count | None = None
    """Answers per prompt, apart from those trained on, by whose variance of reward the oracle
    chooses prompts; null where the oracle is the embedded world's or there is none."""


class Generation(Strict):
    n: int = Field(ge=2)
    """Answers per prompt; a pair takes two."""
    temperature: Positive
    top_p: Nucleus
    top_k: Literal[0]
    """Top-k sampling; 0 disables it."""
    max_new_tokens: Count
    """Longest answer, in tokens."""
    batch_size: Count
    """Answers generated at a time; changing it affects only rounding."""


REWARD_JUDGE = "reward:"
"""Prefix of a judge that is a reward model."""

BASE = "base"
"""A benchmark's `against` for comparing with the untrained policy's answers."""


class BenchmarkSettings(Strict):
    """How a benchmark is answered and judged, or what judges the prompts of an iteration."""

    columns: Annotated[tuple[ScoreId, ...], Field(min_length=1)]
    items: Count | dict[str, Count]
    """Number of prompts or conversations; by score if each score has its own items."""
    judge: str
    """What judges the answers or prompts; part of every result's key. `reward:` with a Hub model or
    a plug-in's reward means a reward model that compares answers on this machine."""
    against: str | None = None
    """Whose answers to compare with, `base` for the untrained policy's; null if answers are rated
    on their own."""
    temperature: float | dict[str, float] | None = None
    """Sampling temperature for answers, one or per category; null if nothing is sampled."""
    top_p: Nucleus | None = None
    """Nucleus sampling; null if nothing is sampled."""
    max_new_tokens: Count | None = None
    """Longest answer, in tokens; null if nothing is sampled."""
    called: str | dict[str, str] | None = None
    """Its name where it stands in for the paper's benchmark, for all scores or by score; null if it
    is the paper's benchmark."""

    @model_validator(mode="after")
    def _consistent(self) -> BenchmarkSettings:
        columns = set(self.columns)
        if self.of_prompts and not columns <= set(PROMPT_SCORES):
            raise ValueError("`columns` mixes scores of answers with scores of prompts")
        if not self.of_prompts and None in (self.temperature, self.top_p, self.max_new_tokens):
            raise ValueError("answers need `temperature`, `top_p` and `max_new_tokens`")
        for name, by_score in (("items", self.items), ("called", self.called)):
            if isinstance(by_score, dict) and set(by_score) != columns:
                raise ValueError(f"`{name}` by score must name each of the `columns`")
        return self

    @property
    def of_prompts(self) -> bool:
        """Whether it judges an iteration's prompts rather than a policy's answers."""
        return not set(PROMPT_SCORES).isdisjoint(self.columns)

    def items_of(self, score: str) -> int:
        return self.items if isinstance(self.items, int) else self.items[score]


class Profile(documents.Sourced):
    name: Id
    scale: Literal["toy", "reduced", "paper"]
    """What its numbers may be taken to show; only `paper` is compared with the paper's values."""
    description: str
    engine: Literal["transformers", "vllm", "sglang", "endpoint"]
    threads: Count
    dtype: Literal["float32", "bfloat16"]
    x: Count
    """Prompts per iteration."""
    prompts: PromptSettings
    policy: str
    """The base model, or `world` for the embedded one."""
    reward_models: dict[RewardRole, str]
    """The model or plug-in for each reward role it offers; `world` is the embedded world's, and
    `instructions` the rule."""
    trained_reward_models: dict[RewardRole, RewardTraining] = Field(default={})
    """How to train the model for each further reward role; embedded world only."""
    creator: CreatorModel
    algorithms: tuple[Algorithm, ...]
    arms: tuple[Arm, ...]
    train_modes: tuple[TrainMode, ...]
    rewriter: bool
    generation: Generation
    selection: SelectionSettings
    pairs: Pairing
    training: Training
    hardware: Hardware | None = None
    """What large models are trained on; null trains in the worker's own process, in float32."""
    serving: Serving | None = None
    """Servers that the harness starts; null if all run elsewhere."""
    benchmarks: dict[Id, BenchmarkSettings]
    columns: tuple[Column, ...] = ()
    """What every table shows at this profile, best first, if it measures none of the paper's
    columns; empty to show a table's own."""

    @model_validator(mode="after")
    def _consistent(self) -> Profile:
        for name in self.algorithms:
            if self.training.get(name) is None:
                raise ValueError(f"`{name}` is offered without hyperparameters in `training`")
        for score, times in Counter(self.scores).items():
            if times > 1:
                raise ValueError(f"`{score}` comes from two benchmarks; name it in one of them")
        for trained in self.reward_models.keys() & self.trained_reward_models.keys():
            raise ValueError(f"the reward model `{trained}` is named and trained; do one of them")
        if self.trained_reward_models and not self.in_embedded_world:
            raise ValueError(
                "`trained_reward_models` are the embedded world's only; name `reward_models`"
            )
        training = {model.partition("@")[0] for model in self.reward_models.values()}
        for name, benchmark in self.benchmarks.items():
            judge = benchmark.judge.removeprefix(REWARD_JUDGE)
            if benchmark.judge != judge and judge.partition("@")[0] in training:
                raise ValueError(
                    f"`benchmarks.{name}.judge` is the reward model `{judge}` that the policy is "
                    "trained on, which would judge its own work; name one of another lineage"
                )
            if benchmark.against == BASE and self.policy == WORLD:
                raise ValueError(
                    f"`benchmarks.{name}.against` is `{BASE}`, which the embedded world does not "
                    "have"
                )
        for role, served in self.served.items():
            self._check_served(role, served)
        return self

    def _check_served(self, role: ServedRole, served: Served) -> None:
        if served.model is None:
            if (self.engine, self.dtype) != (served.engine, served.dtype):
                raise ValueError("`serving.policy` must have the profile's `engine` and `dtype`")
            return
        judges = [(b.of_prompts, b.judge) for b in self.benchmarks.values()]
        asked: dict[ServedRole, list[str | None]] = {
            "creator": [self.creator.source],
            "scorer": [self.creator.scorer, *(judge for of_prompts, judge in judges if of_prompts)],
            "judge": [judge for of_prompts, judge in judges if not of_prompts],
        }
        if served.name not in asked[role]:
            raise ValueError(f"`serving.{role}` serves {served.name}, but no role uses it")

    _file: Path | None = PrivateAttr(default=None)

    @property
    def file(self) -> Path:
        """The file that declares it, including the source of each setting."""
        return self._file or profiles_dir() / f"{self.name}.yaml"

    @property
    def asked_as(self) -> str:
        """Its `--profile` argument: its name, or if it is the user's own its path from here."""
        shipped = self.file.parent == profiles_dir()
        return self.name if shipped else documents.display_path(self.file, Path.cwd())

    @property
    def on_gpus(self) -> bool:
        """Whether its stages run on GPUs."""
        return self.hardware is not None and not self.hardware.on_cpu

    @property
    def served(self) -> dict[ServedRole, Served]:
        """The servers that the harness starts, by role."""
        return {} if self.serving is None else self.serving.roles

    @property
    def in_embedded_world(self) -> bool:
        """Whether its prompts (and hence benchmarks and judges) are the embedded world's."""
        return self.prompts.source == WORLD

    @property
    def has_own_prompts(self) -> bool:
        """Whether its prompts are this project's, which may be published."""
        return self.prompts.source in (WORLD, INSTRUCTIONS)

    @cached_property
    def scores(self) -> tuple[str, ...]:
        return tuple(score for one in self.benchmarks.values() for score in one.columns)

    def called(self, column: Column) -> str:
        """Return the name of what a column measures here: the paper's benchmark or a stand-in."""
        name = benchmark_of(self, column.reads)
        called = None if name is None else self.benchmarks[name].called
        if isinstance(called, dict):
            called = called[column.reads]
        return called or column.benchmark


def benchmark_of(profile: Profile, score: str) -> str | None:
    return next((name for name, it in profile.benchmarks.items() if score in it.columns), None)


def unsupported(recipe: Recipe, columns: Iterable[Column], profile: Profile) -> list[str]:
    """Return why, in clauses, a profile cannot run a recipe and measure some columns."""
    reasons: list[str] = []
    name = f"`{profile.name}`"

    def need(kind: str, wanted: Iterable[str], offered: Iterable[str]) -> None:
        have = set(offered)
        for item in dict.fromkeys(wanted):
            if item not in have:
                reasons.append(f"{name} has no {kind} `{item}`")

    need("score", (column.reads for column in columns if not column.optional), profile.scores)
    if recipe.algorithm is None:
        return reasons
    need("algorithm", [recipe.algorithm], profile.algorithms)
    trained = profile.trained_reward_models
    need("reward model", roles_of(recipe), [*profile.reward_models, *trained])
    reasons += [
        f"{name} trains the reward model `{role}`, which no file holds"
        for role in dict.fromkeys(roles_of(recipe))
        if recipe.is_online and role in trained
    ]
    league = recipe.online is not None and recipe.online.league is not None and not reasons
    # A decaying schedule would have to know when the budget runs out.
    if league and profile.training.of(recipe.algorithm).lr_scheduler != "constant_with_warmup":
        reasons.append(f"{name} has a learning rate that falls, and a league has no last step")
    methods = _methods(recipe, profile)
    own = {method: added for method in methods if (added := CREATORS.added(method)) is not None}
    need("evolving method", methods, [*profile.creator.methods, *own])
    reasons += [
        f"{name} has no model for the evolving method `{method}` to ask"
        for method, added in own.items()
        if added.options["asks"] and profile.creator.source in (WORLD, INSTRUCTIONS)
    ]
    if not recipe.is_online:
        controls = ("matched", "off_target")
        need("iterations of the kind", (a for a in recipe.chain if a not in controls), profile.arms)
        need("training mode", [recipe.train], profile.train_modes)
    embedded, has_own = profile.in_embedded_world, profile.has_own_prompts
    online, answers = recipe.online, profile.selection.oracle_answers
    by_oracle = (recipe.creator if online is None else online).oracle is not None
    matched = online.prompts.startswith("matched") if online else "matched" in recipe.chain
    asked, available = human_prompts(recipe), profile.prompts.available
    lacks = {
        "no rewriter": recipe.rewriter and not profile.rewriter,
        "no prompts matched to the hard benchmark": matched and profile.prompts.matched is None,
        "no prompts that are off target": "off_target" in recipe.chain and not has_own,
        "no oracle to choose prompts online": by_oracle and online and not embedded,
        "no oracle to choose prompts": by_oracle and not (online or embedded or answers),
        "no creator whose reach can be set": recipe.creator.reach is not None and not embedded,
        f"{available}x human prompts and {asked}x are needed": asked > available,
    }
    return reasons + [f"{name} has {what}" for what, lacking in lacks.items() if lacking]


def table_at(table: Table, profile: Profile) -> Table:
    """Return a table as a profile shows it: with the profile's own columns, if it has any.

    The paper's values are of its own columns, so only the signs of its gains in the main one are
    left, and its claims cannot be judged. A column that changes the recipe keeps its place and
    reads the profile's main score.
    """
    if not profile.columns or table.columns[0].reads == profile.columns[0].reads:
        return table
    main, first = profile.columns[0], table.columns[0]
    columns = profile.columns
    if any(column.recipe for column in table.columns):
        read = main.model_dump(exclude={"id", "printed", "recipe"})
        columns = tuple(Column(**{**column.model_dump(), **read}) for column in table.columns)
    controls = [
        {**control.model_dump(), "column": columns[0].id}
        for control in table.controls
        if control.column == first.id
    ]
    told = table.model_dump(exclude={"columns", "controls", "reward_model_study"})
    signs = {row.id: _sign(table.paper_gain(row, table.main_column)) for row in table.rows}
    rows = [
        {**row, "values": {}, "printed_notes": {}, "paper_sign": signs[row["id"]]}
        for row in told["rows"]
    ]
    return Table.model_validate({**told, "rows": rows, "columns": columns, "controls": controls})


def _sign(gain: float | None) -> int | None:
    return None if gain is None else (gain > 0.0) - (gain < 0.0)


def table_unsupported(
    table: Table, profile: Profile, rows: Sequence[Row] | None = None
) -> list[str]:
    """Return why a profile cannot run a table, or some of its rows; empty if it can.

    Controls, and any table at a profile with its own columns, need only one row that it can run.
    """
    table = table_at(table, profile)
    if rows is None and (table.controls or profile.columns):
        each = [table_unsupported(table, profile, [row]) for row in table.rows]
        return [] if not all(each) else each[0]
    shown = table.rows if rows is None else rows
    reasons = [
        reason
        for row in shown
        for run_id, recipe in table.recipes(row).items()
        for reason in unsupported(recipe, table.read_of(row, run_id), profile)
    ]
    if profile.columns and any(row.kind == "prompts" for row in shown):
        reasons.append(f"`{profile.name}` scores answers and no prompts")
    studies = table.reward_model_study is not None and any(map(table.training_of, shown))
    if studies and not profile.in_embedded_world:
        lacks = "no held-out pairs and no oracle to measure reward models with"
        reasons.append(f"`{profile.name}` has {lacks}")
    return list(dict.fromkeys(reasons))


def lacking_rows(table: Table, profile: Profile) -> dict[str, str]:
    """Return why rows cannot run at a profile, because of themselves or their baseline row."""
    table = table_at(table, profile)  # once, not for each row
    own = {row.id: table_unsupported(table, profile, [row]) for row in table.rows}
    return {
        row.id: f"`{row.id}` cannot run: {reasons[0]}"
        for row in table.rows
        if (reasons := own[row.id] or own.get(row.baseline or "", []))
    }


def roles_of(recipe: Recipe) -> list[RewardRole]:
    """Return the reward roles a recipe needs; none for the base model."""
    if recipe.is_online:
        chosen = recipe.canonical().get("informativeness_reward_model", [])
        return [recipe.reward_model, *chosen]
    annotate = map(recipe.reward_model_at, range(1, len(recipe.chain) + 1))
    # Even draws are planned with rewards, which they ignore.
    return [*annotate, *map(recipe.informativeness_reward_model_at, recipe.choosing)]


def _methods(recipe: Recipe, profile: Profile) -> list[str]:
    if recipe.online is not None:
        return [profile.creator.online_method] if evolves_online(recipe.online) else []
    return [recipe.creator.method] if "eva" in recipe.chain and recipe.creator.method else []


def human_prompts(recipe: Recipe) -> int:
    """Return the human prompts a recipe consumes, in multiples of x."""
    online = recipe.online
    if online is not None:
        # An evolving run uses 1x and generates the rest itself.
        known = {"human": online.skip + online.size, "pool": online.size}
        return 0 if online.prompts.startswith("matched") else known.get(online.prompts, 1)
    human = recipe.skip + (recipe.pool or recipe.size) * recipe.chain.count("human")
    return max(human, recipe.creator.parents or 0)


def load_profiles(place: Path | None = None) -> dict[str, Profile]:
    """Read and check every profile in a folder, or a single profile file."""
    place = place or profiles_dir()
    found = [place] if place.is_file() else documents.yaml_files(place)
    files = documents.at_least_one(found, [place], "profile")
    profiles: dict[str, Profile] = {}
    problems: list[documents.Problem] = []
    for document, profile in documents.read_files(files, Profile, problems, "a profile"):
        if document.path != profile.file:  # shipped profiles are found by name
            profile._file = document.path
        profiles[profile.name] = profile
    if problems:
        raise documents.RegistryError(problems)
    return profiles
