"""The parts of a report beside its cells: what is said of each row, of leagues and of studies."""

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
    """A part of a report, immutable; its fields are its JSON form."""

    model_config = ConfigDict(
        serialize_by_alias=True,
        validate_by_name=True,
        validate_by_alias=True,
        json_schema_serialization_defaults_required=True,
    )

    def as_json(self) -> dict[str, Any]:
        return self.model_dump(mode="json")


class OfRow(Part):
    """What is said of one run of a row beside its cells; numbers are means over seeds.

    A number is null while the row is not whole, and where a stage does not record it.
    """

    row: str
    run: str
    """Id of the run; a row whose columns change the recipe has several."""
    state: State
    """As a cell's; `not_available` where the run has nothing of the kind."""
    done: Count
    """Seeds whose stages are all there."""


class PromptDistance(OfRow):
    """Where the training prompts of a run lie; `not_available` where nothing is trained."""

    to_seed: float | None = None
    """Mean distance to the human prompts of the first iteration, from 0 to 1."""
    to_benchmarks: Mapping[str, float | None]
    """Mean distance to each pairwise benchmark's prompts; null while nobody has answered it."""


class Creation(OfRow):
    """What the creator did in the last iteration of an offline run.

    `not_available` where the last iteration has no creator. A number is null as well where the run
    has no such stage.
    """

    evolves: bool
    """Whether selected prompts are evolved, rather than trained on as they are."""
    without_weight: float | None = None
    """Share of the selected prompts that had no weight, from 0 to 1."""
    without_spread: float | None = None
    """Share of the prompts selected from whose answers got equal rewards."""
    evolved_without_spread: float | None = None
    """The same share of the evolved prompts."""
    calls: float | None = None
    unusable: float | None = None
    """Share of the calls whose rewrite was unusable."""
    dropped: float | None = None
    """Children given up after all retries."""
    filled: float | None = None
    """Original pairs in the training mix in place of evolved ones that were lacking."""


class OnlineCost(OfRow):
    """What one online run cost, and what it was trained on."""

    rollouts: float | None = None
    """Rollouts, those of rewrites included."""
    tokens: float | None = None
    """Tokens generated for them."""
    gradient_steps: float | None = None
    creator_calls: float | None = None
    dropped: float | None = None
    """Share of the rewrites asked for that were given up after all retries; null where nothing
    evolves."""
    evolved_share: float | None = None
    """Share of the prompts trained on that were evolved."""
    buffer: float | None = None
    """Prompts left in the buffer at the end."""
    repeated: float | None = None
    """Prompts that went back into the buffer, because rewrites were lacking."""


class RowCost(OfRow):
    """What one run cost, as if it had been computed alone; `not_available` where nothing trains."""

    seconds: float | None = None
    """Time of all stages behind the policy."""
    judging_seconds: float | None = None
    """Time of answering the benchmarks and judging the answers; null while any is missing."""
    rollouts: float | None = None
    """Answers to training prompts."""
    tokens: float | None = None
    """Tokens generated for them, ends of turns included."""
    gradient_steps: float | None = None
    creator_calls: float | None = None


WithInterval = tuple[float, float, float]
"""A mean, and the lower and the upper end of its 95% interval."""


LeagueVerdict = Literal["above", "below", "alike", "open", "no method", "missing"]
"""How a row's area compares with that of even draws: above or below them, p by Holm under 5%;
within the margin with its whole interval; or none of these."""


class LeagueMark(Part):
    """A row at one part of its budget: means over seeds; the score is in the columns' unit."""

    score: float
    reward: float
    """Mean learned reward of what was trained on in this part."""
    rollouts: float
    tokens: float
    gradient_steps: float
    seconds: float
    """Time of the stages so far, where they ran."""


class LeagueCosts(Part):
    """What a row had cost when its budget was spent, and what it trained on: means over seeds."""

    trained: float
    screened: float
    insertion: float
    tokens: float
    scored_tokens: float
    creator_tokens: float
    gradient_steps: float
    read_prompts: float
    signal: float
    """Share of the groups trained on whose rewards differ."""
    prompts: float
    """Distinct prompts trained on."""
    topics: float | None
    """e to the entropy of their topics; null where their text does not say the topic."""
    foreseen: float | None
    """Spearman's correlation of predicted and realised spread; null where nothing is predicted."""


class LeagueMember(Part):
    """A row in a league; numbers are null while seeds are missing."""

    row: str
    verdict: LeagueVerdict
    area: float | None = None
    """Mean height of the score over the budget, less that at its start."""
    gain: WithInterval | None = None
    """The area less that of even draws; null of one seed, and of even draws themselves."""
    p_holm: float | None = None
    """Two-sided p-value, adjusted over all methods of the league."""
    final: float | None = None
    overtakes: float | None = None
    """The share of the budget after which the mean score is that of even draws at the end; null
    where it never is."""
    by_seed: tuple[float, ...] = ()
    """The area of each seed less that of even draws."""
    detectable: float | None = None
    """The gain that would be found with a probability of 80%, not adjusted."""
    curve: tuple[LeagueMark, ...] = ()
    costs: LeagueCosts | None = None


class FoundLeague(Part):
    id: str
    why_not: str | None
    """Why it ranks nothing; null where it does."""
    said: str
    """What can be said of it, in a sentence."""
    members: tuple[LeagueMember, ...]


class StudiedModel(Part):
    row: str
    """The row whose policy was trained on it."""
    model: str
    run: str
    baseline: str
    """The run that the gain is over."""
    state: State
    done: Count
    """Seeds whose gain and best of n are there."""
    measures: Mapping[str, WithInterval] | None = None
    """Accuracy, best of n and gain, each with the ends of its 95% interval; null while any is
    missing. The interval of the accuracy is over held-out pairs, those of the others are over seeds
    and prompts. The gain is in the unit of the study's column."""


class Agreement(Part):
    first: str
    second: str
    found: RankCorrelation | None = None


class Study(Part):
    column: str
    """The column whose gains are ranked."""
    score: str
    """The per-prompt score it reads."""
    n: Count
    """Answers that the best is chosen from."""
    seeds: tuple[Count, ...]
    models: tuple[StudiedModel, ...]
    agreements: tuple[Agreement, ...]
    mean_answer: float | None
    """Mean oracle score of all answers, where a reward model that chooses blindly would come out;
    null while it is not known."""
    best_by_oracle: float | None
    """Mean oracle score of the oracle's own best of n."""

    @property
    def whole(self) -> bool:
        return all(model.measures is not None for model in self.models)
