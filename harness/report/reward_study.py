"""What a table's study of reward models found: how good each is by three measures, and their ranks.

    accuracy    share of held-out pairs that it orders as the oracle does
    best of n   mean oracle score of the answer it ranks first among n of the base policy
    gain        what the policy trained on it gains over the base policy, in one column of the table

The first two are read from stages of their own, the third from the table's scores. All are means of
per-prompt values, so they are published with the scores and computed again from them. The rank
correlations are those of all reward models or there are none; and none of one seed, which says
nothing about the gains.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from harness.registry.profile import benchmark_of
from harness.report.cells import Failures
from harness.report.model import Agreement, Correlation, State, StudiedModel, Study, WithInterval
from harness.report.origin import stage_summary
from harness.report.rows import mean_if_whole
from harness.report.scores import (
    Measured,
    grouped,
    read_rows,
    read_scores,
)
from harness.runtime import Stage, Store
from harness.trainer.factory import SEED
from harness.worlds.protocol import ACCURACY, BEST_OF_N

if TYPE_CHECKING:
    from harness.statistics import ScoreMatrix
    from harness.trainer.runs import TableRuns

MEASURES = ("accuracy", "best_of_n", "gain")
PAIRS = (("accuracy", "gain"), ("accuracy", "best_of_n"), ("best_of_n", "gain"))
"""The measures that are correlated."""


@dataclass(frozen=True)
class Place:
    """Where a reward model stands in a table.

    Attributes:
        row: Id of the row.
        model: Role of the reward model.
        run: Id of the run trained on it.
        baseline: Id of the run that its gain is over.
    """

    row: str
    model: str
    run: str
    baseline: str


def read_study(table_runs: TableRuns, store: Store) -> Measured:
    """Read the values of a table's study that are there; empty where it has none.

    They are kept under the run trained on the reward model. Accuracy has the reward model's seed,
    the best of n that of the run.

    Raises:
        StoreError: A stored file is not what was written.
    """
    study = table_runs.study
    if study is None:
        return {}
    rows: list[tuple[tuple[str, int, str], str, float]] = []
    for place in places(table_runs):
        role = study.roles[place.row]
        stages = [((place.run, SEED, ACCURACY), study.held_out[role])]
        stages += [
            ((place.run, seed, BEST_OF_N), study.best_of_n[role, seed]) for seed in table_runs.seeds
        ]
        for key, stage in stages:
            if store.status(stage.fingerprint) == "done":
                file = store.open(stage.fingerprint) / "scores.parquet"
                rows += [(key, *row) for row in read_rows(file, "prompt_id", "value")]
    return grouped(rows)


def places(table_runs: TableRuns) -> list[Place]:
    """Return where the reward models of a table's study stand: its rows that have a baseline."""
    study, table = table_runs.study, table_runs.table
    if study is None or table.study is None:
        return []
    column = table.column(table.study.column)
    return [
        Place(
            row.id, study.roles[row.id], row.run_id(column), table.row(row.baseline).run_id(column)
        )
        for row in table_runs.rows
        if row.id in study.roles and row.baseline is not None
    ]


def study_of(table_runs: TableRuns, store: Store) -> Study | None:
    """Return what a table's study found, None where it has none.

    Raises:
        StoreError: A stored file is not what was written.
    """
    study, table = table_runs.study, table_runs.table
    if study is None or table.study is None:
        return None
    column = table.column(table.study.column)
    measured = read_scores(table_runs, store) | read_study(table_runs, store)
    failures = Failures(store)
    states = {
        place.row: _state(table_runs, place, column.reads, measured, failures)
        for place in places(table_runs)
    }
    said = [
        stage_summary(store, stage)
        for stage in study.best_of_n.values()
        if store.status(stage.fingerprint) == "done"
    ]
    bounds = {
        name: mean_if_whole([summary.get(name) for summary in said]) if said else None
        for name in ("mean_answer", "best_by_judge")
    }
    found = computed(measured, places(table_runs), states, table_runs.seeds, column.reads)
    return Study(
        column=column.id,
        score=column.reads,
        n=study.n,
        seeds=table_runs.seeds,
        models=found[0],
        agreements=found[1],
        mean_answer=bounds["mean_answer"],
        best_by_oracle=bounds["best_by_judge"],
    )


def computed(
    measured: Measured,
    places: Sequence[Place],
    states: Mapping[str, tuple[State, int]],
    seeds: Sequence[int],
    score: str,
) -> tuple[tuple[StudiedModel, ...], tuple[Agreement, ...]]:
    """Return the numbers of a study, from per-prompt values alone.

    Args:
        measured: The values.
        places: The reward models.
        states: State and finished seeds of each row that may lack numbers.
        seeds: Root seeds asked for.
        score: The score whose gains are ranked.
    """
    models: list[StudiedModel] = []
    matrices: dict[str, list[ScoreMatrix]] = {measure: [] for measure in MEASURES}
    for place in places:
        values = _matrices(measured, place, seeds, score)
        if values is None:
            state, done = states[place.row]
            models.append(StudiedModel(**asdict(place), state=state, done=done))
            continue
        numbers = {measure: _numbers(values[measure]) for measure in MEASURES}
        models.append(StudiedModel(**asdict(place), state="ok", done=len(seeds), measures=numbers))
        for measure in MEASURES:
            matrices[measure].append(values[measure])
    if len(matrices["gain"]) < len(places) or len(seeds) == 1:
        nothing = (Agreement(first=first, second=second) for first, second in PAIRS)
        return tuple(models), tuple(nothing)
    return tuple(models), tuple(_agreements(matrices))


def recomputed(published: Study, measured: Measured) -> Study:
    """Return a published study with its numbers computed again from the published values."""
    known = [Place(m.row, m.model, m.run, m.baseline) for m in published.models]
    states = {model.row: (model.state, model.done) for model in published.models}
    models, agreements = computed(measured, known, states, published.seeds, published.score)
    return published.model_copy(update={"models": models, "agreements": agreements})


def _matrices(
    measured: Measured, place: Place, seeds: Sequence[int], score: str
) -> dict[str, ScoreMatrix] | None:
    """Return the values of each measure, None where any is missing."""
    accuracy = _matrix(measured, place.run, [SEED], ACCURACY)
    chosen = _matrix(measured, place.run, seeds, BEST_OF_N)
    ours = _matrix(measured, place.run, seeds, score)
    base = _matrix(measured, place.baseline, seeds, score)
    if accuracy is None or chosen is None or ours is None or base is None:
        return None
    return {"accuracy": accuracy, "best_of_n": chosen, "gain": ours.minus(base)}


def _matrix(
    measured: Measured, run_id: str, seeds: Sequence[int], score: str
) -> ScoreMatrix | None:
    """Return the values of all seeds, or None where a seed is missing."""
    if any((run_id, seed, score) not in measured for seed in seeds):
        return None
    from harness.statistics import ScoreMatrix

    return ScoreMatrix.from_seeds({seed: measured[run_id, seed, score] for seed in seeds})


def _numbers(values: ScoreMatrix) -> WithInterval:
    """Return a mean with the ends of its interval."""
    from harness.statistics import mean_interval

    found = mean_interval(values)
    return found.mean, found.low, found.high


def _agreements(matrices: Mapping[str, Sequence[ScoreMatrix]]) -> list[Agreement]:
    from harness.statistics.rank_correlation import rank_correlation

    agreements = []
    for first, second in PAIRS:
        found = rank_correlation(matrices[first], matrices[second])
        correlation = None if found is None else Correlation(**vars(found))
        agreements.append(Agreement(first=first, second=second, found=correlation))
    return agreements


def _state(
    table_runs: TableRuns, place: Place, score: str, measured: Measured, failures: Failures
) -> tuple[State, int]:
    """Return what state a reward model's numbers are in, and of how many seeds they are there."""
    study, benchmark = table_runs.study, benchmark_of(table_runs.profile, score)
    if study is None or benchmark is None:
        return "not_available", 0
    role = study.roles[place.row]
    accurate = (place.run, SEED, ACCURACY) in measured
    missing: list[Stage] = [] if accurate else [study.held_out[role]]
    done = 0
    for seed in table_runs.seeds:
        lacking = [
            table_runs.runs[run, seed].judged[benchmark]
            for run in (place.run, place.baseline)
            if (run, seed, score) not in measured
        ]
        if (place.run, seed, BEST_OF_N) not in measured:
            lacking.append(study.best_of_n[role, seed])
        done += not lacking
        missing += lacking
    if not missing:
        return "ok", done
    if any(failures.behind(stage) for stage in missing):
        return "failed", done
    return ("partial" if done or accurate else "not_run"), done
