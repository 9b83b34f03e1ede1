"""A table's study of reward models: three measures of quality, and how their rankings agree.

    accuracy    share of held-out pairs that it orders as the oracle does
    best of n   mean oracle score of the answer it ranks first among n of the base policy
    gain        gain over the baseline of the policy trained on it, in one column of the table

All are means of per-prompt values, which are published with the scores. Rank correlations need all
reward models and more than one seed, as a single seed says nothing about gains.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import TYPE_CHECKING

from harness.pipeline.factory import SEED
from harness.registry.profile import benchmark_of
from harness.report import view
from harness.report.cells import Failures
from harness.report.model import Report
from harness.report.origin import stage_summary
from harness.report.parts import Agreement, StudiedModel, Study
from harness.report.plots import Picture, Target, canvas, plain_frame
from harness.report.rows import mean_if_whole
from harness.report.scores import Measured, RunScores, read_values
from harness.report.view import APPLIES_NOT, NO_COMPARISON, Block, signed
from harness.runtime import Store
from harness.statistics import ScoreMatrix, mean_interval, rank_correlation
from harness.worlds import ACCURACY, BEST_OF_N

if TYPE_CHECKING:
    from harness.pipeline.runs import TableRuns

MEASURES = ("accuracy", "best_of_n", "gain")
CALLED = {"accuracy": "accuracy", "best_of_n": "best of {n}", "gain": "gain"}
"""Display names of the measures."""

_AXES = {"accuracy": "accuracy on held-out pairs", "best_of_n": "best of {n} (oracle score)"}

FILE = "study.svg"
"""File of a study's picture in a published report."""

PAIRS = (("accuracy", "gain"), ("accuracy", "best_of_n"), ("best_of_n", "gain"))
"""The measures that are correlated."""


def read_study(table_runs: TableRuns, store: Store) -> Measured:
    """Read the available values of a table's study; empty without a study.

    They are keyed by the run trained on the reward model. Accuracy has the reward model's seed, the
    best of n that of the run.
    """
    study = table_runs.study
    if study is None:
        return {}
    measured: Measured = {}
    for model in studied(table_runs):
        run, role = model.run, study.roles[model.row]
        stages = [((run, SEED, ACCURACY), study.held_out[role])]
        stages += [((run, s, BEST_OF_N), study.best_of_n[role, s]) for s in table_runs.seeds]
        for key, stage in stages:
            if store.status(stage.fingerprint) == "done":
                file = store.file(stage.fingerprint, "scores.parquet")
                (values,) = read_values(file, "column").values()
                measured[key] = dict(sorted(values.items()))
    return measured


def studied(table_runs: TableRuns) -> list[StudiedModel]:
    study, table = table_runs.study, table_runs.table
    if study is None or table.study is None:
        return []
    column = table.column(table.study.column)
    return [
        StudiedModel(
            row=row.id,
            model=study.roles[row.id],
            run=row.run_id(column),
            baseline=table.row(row.baseline).run_id(column),
            state="not_run",
            done=0,
        )
        for row in table_runs.rows
        if row.id in study.roles and row.baseline is not None
    ]


def study_of(table_runs: TableRuns, store: Store, measured: Measured) -> Study | None:
    study, table = table_runs.study, table_runs.table
    if study is None or table.study is None:
        return None
    column, failures = table.column(table.study.column), Failures(store)
    benchmark = benchmark_of(table_runs.profile, column.reads)

    def with_state(model: StudiedModel) -> StudiedModel:
        role = study.roles[model.row]
        needed = [
            [study.best_of_n[role, seed], *(table_runs.runs[run, seed].judged[benchmark]
                                            for run in (model.run, model.baseline))]
            for seed in table_runs.seeds
            if benchmark is not None
        ]  # fmt: skip
        state, done = failures.state(needed or [[]])
        accuracy, _ = failures.state([[study.held_out[role]]])
        if state != "not_available" and "failed" in (state, accuracy):
            state = "failed"
        elif state == "ok" and accuracy != "ok":
            state = "partial"
        return model.model_copy(update={"state": state, "done": done})

    stages = (s for s in study.best_of_n.values() if store.status(s.fingerprint) == "done")
    said = [stage_summary(store, stage) for stage in stages]
    average, best = (
        mean_if_whole([summary.get(name) for summary in said]) if said else None
        for name in ("mean_answer", "best_by_judge")
    )
    found = Study(
        column=column.id, score=column.reads, n=study.n, seeds=table_runs.seeds,
        models=tuple(map(with_state, studied(table_runs))), agreements=(), mean_answer=average,
        best_by_oracle=best,
    )  # fmt: skip
    return recomputed(found, measured | read_study(table_runs, store))


def recomputed(study: Study, measured: Measured) -> Study:
    """Recompute a study's numbers from per-prompt values alone.

    A reward model that lacks values keeps its state and has no numbers.
    """
    models: list[StudiedModel] = []
    matrices: dict[str, list[ScoreMatrix]] = {measure: [] for measure in MEASURES}
    for model in study.models:
        values = _matrices(measured, model, study.seeds, study.score)
        if values is None:
            models.append(model.model_copy(update={"measures": None}))
            continue
        numbers = {}
        for measure in MEASURES:
            it = mean_interval(values[measure])
            numbers[measure] = (it.mean, it.low, it.high)
            matrices[measure].append(values[measure])
        whole = {"state": "ok", "done": len(study.seeds), "measures": numbers}
        models.append(model.model_copy(update=whole))
    ranked = len(matrices["gain"]) == len(models) and len(study.seeds) > 1
    agreements = []
    for first, second in PAIRS:
        found = rank_correlation(matrices[first], matrices[second]) if ranked else None
        agreements.append(Agreement(first=first, second=second, found=found))
    return study.model_copy(update={"models": tuple(models), "agreements": tuple(agreements)})


def _matrices(
    measured: Measured, model: StudiedModel, seeds: Sequence[int], score: str
) -> dict[str, ScoreMatrix] | None:
    scores = RunScores(measured, seeds)
    found = [
        RunScores(measured, [SEED]).of_run(model.run, ACCURACY),
        scores.of_run(model.run, BEST_OF_N),
        *(scores.of_run(run, score) for run in (model.run, model.baseline)),
    ]
    whole = [own for own in found if isinstance(own, ScoreMatrix)]
    if len(whole) < len(found):
        return None
    accuracy, chosen, ours, base = whole
    return {"accuracy": accuracy, "best_of_n": chosen, "gain": ours.minus(base)}


def study_blocks(report: Report) -> list[Block]:
    study = report.study
    return [] if study is None else [_models_block(report, study), _agreement_block(study)]


def _models_block(report: Report, study: Study) -> Block:
    names = view.row_names(report)
    rows = []
    for model in study.models:
        if model.measures is None:
            words = view.state_words(model.state, model.done, len(study.seeds))
            rows.append((names[model.row], words, words, words))
            continue
        (accuracy, of_accuracy, _), (chosen, of_chosen, _), (gain, of_gain, _) = (
            model.measures[measure] for measure in MEASURES
        )
        rows.append((
            names[model.row], f"{accuracy:.3f} ±{accuracy - of_accuracy:.3f}",
            f"{chosen:.3f} ±{chosen - of_chosen:.3f}", f"{signed(gain, 2)} ±{gain - of_gain:.2f}",
        ))  # fmt: skip
    between = ""
    if study.mean_answer is not None and study.best_by_oracle is not None:
        between = (
            f" All answers score {study.mean_answer:.3f} on average, the oracle's own best "
            f"{study.best_by_oracle:.3f}."
        )
    column = report.table.column(study.column)
    notes = (
        "Accuracy: share of held-out pairs that the reward model orders as the oracle does. "
        f"Best of {study.n}: mean oracle score of the answer it ranks first among {study.n} of the "
        f"base policy to each validation prompt.{between} Gain: that of the policy trained on it, "
        f"in {report.profile.called(column)}, {column.printed}.",
    )
    head = ("row", "accuracy\n± 95%", f"best of {study.n}\n± 95%", "gain\n± 95%")
    return Block("Reward models", tuple(map(view.plain, notes)), head, tuple(rows))


def _agreement_block(study: Study) -> Block:
    done = sum(model.measures is not None for model in study.models)
    rows = []
    for agreement in study.agreements:
        measures = (agreement.first, agreement.second)
        name = " and ".join(CALLED[measure].format(n=study.n) for measure in measures)
        found = agreement.found
        if found is None:
            words = f"{done}/{len(study.models)} reward models"
            if study.whole:
                words = NO_COMPARISON if len(study.seeds) == 1 else "undefined"
            rows.append((name, words, *[APPLIES_NOT] * 3))
            continue
        rows.append((
            name, signed(found.rho, 2), f"{signed(found.low, 2)} to {signed(found.high, 2)}",
            f"{signed(found.things_low, 2)} to {signed(found.things_high, 2)}",
            view.probability(found.p_value),
        ))  # fmt: skip
    notes = (
        f"Spearman's rank correlation over the {len(study.models)} reward models. The first "
        "interval (95%) is over seeds and prompts: these reward models, measured again. The second "
        "is over reward models, drawn anew from these: crude with so few, rather too narrow, and "
        "no statement about other reward models, since some of these were graded on purpose. p: "
        "how often a random pairing of the two measures gives as large a correlation.",
    )
    head = ("measures", "ρ", "over seeds\nand prompts", "over reward\nmodels", "p")
    return Block("Does one measure predict another?", notes, head, tuple(rows))


def study_picture(study: Study) -> Picture:
    alt = "Accuracy, best of n and gain of each reward model, pair by pair, with 95% intervals"
    return Picture("The reward models", FILE, alt, functools.partial(_draw, study))


def _draw(study: Study, target: Target) -> None:
    size = (4.2 * len(PAIRS), 3.8)
    with canvas(target, "harness", size, 1, len(PAIRS)) as (sheet, panels):
        for place, (first, second) in zip(panels.flat, PAIRS, strict=True):
            plain_frame(place, grid="both")
            for number, model in enumerate(study.models):
                measures = model.measures or {}
                (x, x_low, x_high), (y, y_low, y_high) = measures[first], measures[second]
                errors = {"xerr": [[x - x_low], [x_high - x]], "yerr": [[y - y_low], [y_high - y]]}
                place.errorbar(x, y, **errors, fmt="o" if number < 10 else "s", markersize=4,
                               linewidth=0.8, color=f"C{number % 10}",
                               label=model.row)  # fmt: skip
            axes = _AXES | {"gain": f"gain in {study.column}"}
            place.set_xlabel(axes[first].format(n=study.n))
            place.set_ylabel(axes[second].format(n=study.n))
        handles, labels = panels.flat[0].get_legend_handles_labels()
        sheet.legend(handles, labels, loc="outside lower center", ncols=6)
