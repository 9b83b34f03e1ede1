"""A table's study of reward models: three measures of each, and how their rankings agree.

    accuracy    share of held-out pairs that it orders as the oracle does
    best of n   mean oracle score of the answer it ranks first among n of the base policy
    gain        gain over the baseline of the policy trained on it, in one column of the table

All are means of per-prompt values, which are published with the scores.
"""

from __future__ import annotations

from harness.pipeline.factory import SEED
from harness.pipeline.runs import TableRuns
from harness.registry.profile import benchmark_of
from harness.report import view
from harness.report.cells import Failures
from harness.report.model import Agreement, StudiedModel, Study
from harness.report.results import Results
from harness.report.scores import Measured, RunScores, read_values
from harness.report.view import Block, between, signed, with_half
from harness.runtime import Store
from harness.statistics import ScoreMatrix, mean_interval, rank_correlation
from harness.worlds import ACCURACY, BEST_OF_N

CALLED = {"accuracy": "accuracy", "best_of_n": "best of {n}", "gain": "gain"}
PAIRS = (("accuracy", "gain"), ("accuracy", "best_of_n"), ("best_of_n", "gain"))


def read_study(runs: TableRuns, store: Store) -> Measured:
    """Read a study's values by the run trained on the model; accuracy has the model's own seed."""
    if (study := runs.study) is None:
        return {}
    measured: Measured = {}
    for row in runs.rows:
        if (role := study.roles.get(row.id)) is None:
            continue
        run = row.run_id(runs.table.columns[0])
        stages = {(run, SEED, ACCURACY): study.held_out[role]}
        stages |= {(run, seed, BEST_OF_N): study.best_of_n[role, seed] for seed in runs.seeds}
        for key, stage in stages.items():
            if store.status(stage.fingerprint) == "done":
                file = store.file(stage.fingerprint, "scores.parquet")
                (values,) = read_values(file, "column").values()
                measured[key] = dict(sorted(values.items()))
    return measured


def study_of(runs: TableRuns, store: Store, measured: Measured) -> Study | None:
    study, table = runs.study, runs.table
    if study is None or table.reward_model_study is None:
        return None
    column, failures, models = table.column(table.reward_model_study), Failures(store), []
    benchmark = benchmark_of(runs.profile, column.reads) or ""
    for row in runs.rows:
        if (role := study.roles.get(row.id)) is None or row.baseline is None:
            continue
        run, baseline = row.run_id(column), table.row(row.baseline).run_id(column)
        state, done, _ = failures.state([
            [study.held_out[role], study.best_of_n[role, seed],
             *(runs.runs[name, seed].judged[benchmark] for name in (run, baseline))]
            for seed in runs.seeds
        ])  # fmt: skip
        models.append(StudiedModel(row=row.id, model=role, run=run, baseline=baseline,
                                   state=state, done=done))  # fmt: skip
    found = Study(
        column=column.id, score=column.reads, n=study.n, seeds=runs.seeds, models=tuple(models),
        agreements=(),
    )  # fmt: skip
    return recomputed(found, measured | read_study(runs, store))


def recomputed(study: Study, measured: Measured) -> Study:
    """Recompute a study's numbers from per-prompt values; models that lack any keep their state."""
    found = {model.row: _values(measured, model, study) for model in study.models}
    models = []
    for model in study.models:
        numbers = {name: mean_interval(own) for name, own in (found[model.row] or {}).items()}
        measures = {name: (it.mean, it.low, it.high) for name, it in numbers.items()} or None
        models.append(model.model_copy(update={"measures": measures}))
    whole = [own for own in found.values() if own is not None]
    ranked = len(whole) == len(models) and len(study.seeds) > 1
    agreements = [
        Agreement(first=first, second=second, found=rank_correlation(
            [own[first] for own in whole], [own[second] for own in whole]) if ranked else None)
        for first, second in PAIRS
    ]  # fmt: skip
    return study.model_copy(update={"models": tuple(models), "agreements": tuple(agreements)})


def _values(measured: Measured, model: StudiedModel, study: Study) -> dict[str, ScoreMatrix] | None:
    scores = RunScores(measured, study.seeds)
    accuracy = RunScores(measured, [SEED]).of_run(model.run, ACCURACY)
    best = scores.of_run(model.run, BEST_OF_N)
    ours, base = (scores.of_run(run, study.score) for run in (model.run, model.baseline))
    if accuracy is None or best is None or ours is None or base is None:
        return None
    return {"accuracy": accuracy, "best_of_n": best, "gain": ours.minus(base)}  # type: ignore[dict-item]


def agreements(study: Study, full: bool = False) -> list[str]:
    """Return the rank correlations as text; `full` adds p and the interval over models."""
    said = []
    for it in study.agreements:
        if (found := it.found) is None:
            continue
        names = " and ".join(CALLED[name].format(n=study.n) for name in (it.first, it.second))
        text = f"{names}: ρ = {signed(found.rho, 2)}, 95% from {between(found.low, found.high, 2)}"
        if full:
            things = between(found.things_low, found.things_high, 2)
            text += f"; over reward models {things}, p {view.probability(found.p_value)}"
        said.append(text)
    return said


def study_blocks(results: Results) -> list[Block]:
    """Return one table of a study's reward models, with the rank correlations below it."""
    report = results.report
    if (study := report.study) is None:
        return []
    names, rows = view.row_names(report), []
    for model in study.models:
        figures = [view.state_words(model.state, model.done, len(study.seeds))] * 3
        if model.measures is not None:
            figures = [
                with_half(mean, high, 2, "+") if name == "gain" else with_half(mean, high, 3)
                for name, (mean, _, high) in model.measures.items()
            ]
        rows.append((names[model.row], *figures))
    column = results.table.column(study.column)
    notes = (
        "Accuracy: share of held-out pairs that the reward model orders as the oracle does. "
        f"Best of {study.n}: mean oracle score of the answer it ranks first among {study.n} of the "
        "base policy to each validation prompt. Gain: that of the policy trained on it, in "
        f"{results.profile.called(column)}, {column.printed}. Below, Spearman's rank correlations: "
        "the first interval is over seeds and prompts, the second over reward models, crude with "
        "so few; p is how often a random pairing gives as large a correlation.",
    )
    head = ("row", *(f"{CALLED[name].format(n=study.n)}\n± 95%" for name in CALLED))
    items = agreements(study, full=True)
    return [Block("Reward models", tuple(map(view.plain, notes)), head, tuple(rows), tuple(items))]
