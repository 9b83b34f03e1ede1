"""The parts of a report other than its cells: per-row statistics, leagues, and studies."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal, get_args

from pydantic import ConfigDict, Field

from harness.statistics.comparisons import RankCorrelation
from harness.strict import Strict

Scale = Literal["toy", "reduced", "paper"]
State = Literal["ok", "partial", "not_run", "failed", "not_available"]
STATES: tuple[State, ...] = get_args(State)

Count = Annotated[int, Field(ge=0)]


class Part(Strict):
    """An immutable part of a report; its fields are its JSON form."""

    model_config = ConfigDict(
        serialize_by_alias=True,
        validate_by_name=True,
        validate_by_alias=True,
        json_schema_serialization_defaults_required=True,
    )

    def as_json(self) -> dict[str, Any]:
        return self.model_dump(mode="json")


class OfRow(Part):
    """Statistics of one run of a row other than its cells; numbers are means over seeds.

    A number is null while the row is incomplete or if a stage does not record it.
    """

    row: str
    run: str
    """Run id; a row whose columns change the recipe has several."""
    state: State
    """As for a cell; `not_available` if this does not apply to the run."""
    done: Count
    """Number of seeds whose stages are all done."""


class PromptDistance(OfRow):
    """Distances of a run's training prompts; `not_available` if nothing is trained."""

    to_seed: float | None = None
    """Mean distance to the first iteration's human prompts, from 0 to 1."""
    to_benchmarks: Mapping[str, float | None]
    """Mean distance to each pairwise benchmark's prompts; null until it has been answered."""


class Creation(OfRow):
    """The creator's statistics in the last iteration of an offline run.

    `not_available` if that iteration has no creator. A number is also null if the run has no such
    stage.
    """

    evolves: bool
    """Whether selected prompts are evolved rather than trained on directly."""
    without_weight: float | None = None
    """Share of the selected prompts that had zero weight, from 0 to 1."""
    without_spread: float | None = None
    """Share of the candidate prompts whose answers all got the same reward."""
    evolved_without_spread: float | None = None
    """The same share among the evolved prompts."""
    calls: float | None = None
    unusable: float | None = None
    """Share of calls that gave an unusable rewrite."""
    dropped: float | None = None
    """Children given up after all retries."""
    filled: float | None = None
    """Original pairs in the training mix that replace missing evolved ones."""


class OnlineCost(OfRow):
    """Cost and training data of one online run."""

    rollouts: float | None = None
    """Rollouts, including those of rewrites."""
    tokens: float | None = None
    """Tokens generated in rollouts."""
    gradient_steps: float | None = None
    creator_calls: float | None = None
    dropped: float | None = None
    """Share of requested rewrites dropped after all retries; null if nothing evolves."""
    evolved_share: float | None = None
    """Share of the training prompts that were evolved."""
    buffer: float | None = None
    """Prompts left in the buffer at the end."""
    repeated: float | None = None
    """Prompts returned to the buffer for lack of rewrites."""


class RowCost(OfRow):
    """Cost of one run as if computed alone; `not_available` if nothing is trained."""

    seconds: float | None = None
    """Total time of all stages behind the policy."""
    judging_seconds: float | None = None
    """Time to answer the benchmarks and judge the answers; null while any is missing."""
    rollouts: float | None = None
    """Answers to training prompts."""
    tokens: float | None = None
    """Tokens generated for these answers, including end-of-turn tokens."""
    gradient_steps: float | None = None
    creator_calls: float | None = None


WithInterval = tuple[float, float, float]
"""A mean with the lower and upper ends of its 95% interval."""


LeagueVerdict = Literal["above", "below", "alike", "open", "no method", "missing"]
"""How a row's area compares with even draws: above or below (Holm-adjusted p under 5%), alike if
its whole interval is within the margin, else open. Only complete methods are compared."""


class LeagueMark(Part):
    """A row at one point of its budget: means over seeds, the score in the column's unit."""

    score: float
    reward: float
    """Mean learned reward of the training data in this part of the budget."""
    rollouts: float
    tokens: float
    gradient_steps: float
    seconds: float
    """Time of the stages so far, on the machine where they ran."""


class LeagueCosts(Part):
    """A row's cost at the end of its budget, and its training data: means over seeds."""

    trained: float
    screened: float
    insertion: float
    tokens: float
    scored_tokens: float
    creator_tokens: float
    gradient_steps: float
    read_prompts: float
    signal: float
    """Share of the training groups whose rewards differ."""
    prompts: float
    """Number of distinct training prompts."""
    topics: float | None
    """exp(entropy) of their topics; null if the topic cannot be read from the text."""
    foreseen: float | None
    """Spearman's correlation of predicted and realized spread; null if nothing is predicted."""


class LeagueMember(Part):
    """A row in a league; numbers are null while seeds are missing."""

    row: str
    verdict: LeagueVerdict
    area: float | None = None
    """Mean score over the budget minus the score at its start."""
    gain: WithInterval | None = None
    """The area minus that of even draws; null with one seed and for even draws themselves."""
    p_holm: float | None = None
    """Two-sided p-value, Holm-adjusted over the league's methods."""
    final: float | None = None
    overtakes: float | None = None
    """Share of the budget at which the mean score reaches the final one of even draws; null if it
    never does."""
    by_seed: tuple[float, ...] = ()
    """Each seed's area minus that of even draws."""
    detectable: float | None = None
    """Gain detectable with 80% power, unadjusted."""
    curve: tuple[LeagueMark, ...] = ()
    costs: LeagueCosts | None = None


class FoundLeague(Part):
    id: str
    why_not: str | None
    """Why it has no ranking; null if it has one."""
    said: str
    """One-sentence summary."""
    members: tuple[LeagueMember, ...]


class StudiedModel(Part):
    row: str
    """The row whose policy was trained on this reward model."""
    model: str
    run: str
    baseline: str
    """The run that the gain is measured against."""
    state: State
    done: Count
    """Number of seeds whose gain and best of n are known."""
    measures: Mapping[str, WithInterval] | None = None
    """Accuracy, best of n, and gain (in the study column's unit) with 95% intervals, the accuracy's
    over held-out pairs, the others' over seeds and prompts; null while any is missing."""


class Agreement(Part):
    first: str
    second: str
    found: RankCorrelation | None = None


class Study(Part):
    column: str
    """The column whose gains are ranked."""
    score: str
    """The per-prompt score that the column reads."""
    n: Count
    """Answers per prompt in best of n."""
    seeds: tuple[Count, ...]
    models: tuple[StudiedModel, ...]
    agreements: tuple[Agreement, ...]
    mean_answer: float | None
    """Mean oracle score of all answers, as random choice would give; null while unknown."""
    best_by_oracle: float | None
    """Mean oracle score when the oracle itself picks the best of n."""

    @property
    def whole(self) -> bool:
        return all(model.measures is not None for model in self.models)
