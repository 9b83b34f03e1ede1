"""What a study of reward models says: derived by hand, whole or a state, published and checked."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from forging import forge
from toy_identities import ToyWorld
from toy_tables import (
    DECLARATION,
    score_rows,
    stored,
    toy_runs,
    write_files,
    write_prompts,
    write_scores,
)

from harness.errors import HarnessError
from harness.pipeline.algorithm import Planner
from harness.pipeline.runs import TableRuns
from harness.pipeline.studies import plan_study
from harness.report.answer import finding
from harness.report.model import Agreement, Report, Study
from harness.report.publication import DIGESTS, REPORT
from harness.report.publish import TABLE as PUBLISHED_TABLE
from harness.report.publish import publish, table_extent
from harness.report.render import as_markdown, as_text
from harness.report.reward_study import study_blocks, study_of
from harness.report.scores import read_scores
from harness.runtime import Stage, Store

ROLES = ("pointwise_brief_1", "pointwise_noisy_1", "pointwise", "pairwise", "pointwise_large")
"""The reward models; in this order their gains rise, and best of n with them."""

ORACLE = {"mean_answer": 0.25, "best_by_judge": 0.75}
"""What the oracle gives to all answers, and to the best by itself."""

RIGHT = (1, 3, 2, 4, 4)
"""Of four held-out pairs, how many each orders rightly."""

TABLE = DECLARATION | {
    "id": "rewards",
    "source": "ours",
    "reward_model_study": "ah_wr",
    "columns": DECLARATION["columns"][:1],
    "recipe": {"algorithm": "dpo", "chain": ["human"]},
    "rows": [
        {"id": "base", "label": "θ_0", "run": "base", "recipe": {"algorithm": None}},
        *({"id": role, "label": role, "run": f"dpo-{role}", "baseline": "base",
           "recipe": {"reward_model": role}} for role in ROLES),
    ],
}  # fmt: skip


def planned(seeds: Sequence[int] = (0, 1)) -> TableRuns:
    runs = toy_runs(seeds=seeds, table=TABLE)
    planner = Planner(ToyWorld(runs.profile))
    study = plan_study(planner, runs.table, runs.rows, seeds)
    return TableRuns(runs.table, runs.profile, runs.seeds, runs.rows, runs.runs, study)


def write_values(
    store: Store, stage: Stage, column: str, values: Sequence[float], **files: Any
) -> None:
    rows = score_rows(column, {f"v{i}": value for i, value in enumerate(values)})
    write_files(store, stage, scores=rows, **files)


def write_study(store: Store, runs: TableRuns, without: Sequence[Stage] = ()) -> None:
    """Write all stages but some: model k gains 2k points, and its best of n scores 0.4 + k / 20."""
    assert runs.study is not None
    for seed in runs.seeds:
        base = {f"p{i}": 30.0 + i + seed for i in range(4)}
        write_scores(store, runs, "base", seed, ah_wr=base)
        for k, role in enumerate(ROLES):
            own = {prompt: value + 2 * k for prompt, value in base.items()}
            write_scores(store, runs, f"dpo-{role}", seed, ah_wr=own)
            stage = runs.study.best_of_n[role, seed]  # type: ignore[index]
            if stage not in without:
                best = 0.4 + k / 20
                values = [best - 0.1, best, best + 0.1]
                write_values(store, stage, "best_of_n", values, summary=ORACLE)
    for right, role in zip(RIGHT, ROLES, strict=True):
        stage = runs.study.held_out[role]  # type: ignore[index]
        if stage not in without:
            write_values(store, stage, "rm_accuracy", [1.0] * right + [0.0] * (4 - right))


def found(runs: TableRuns, store: Store) -> Study:
    study = study_of(runs, store, read_scores(runs, store))
    assert study is not None
    return study


@pytest.fixture
def runs(store: Store) -> TableRuns:
    of_two_seeds = planned()
    write_study(store, of_two_seeds)
    return of_two_seeds


def test_the_numbers_are_those_derived_by_hand(runs: TableRuns, store: Store) -> None:
    """Accuracies 1/4, 3/4, 2/4, 4/4, 4/4; gains 0, 2, 4, 6, 8; best of six 0.4 to 0.6.

    Gains and best of six rank alike. Accuracy ranks 1, 3, 2, 4.5, 4.5 against 1 to 5: deviations
    from 3 are -2, 0, -1, 1.5, 1.5 and -2, -1, 0, 1, 2, whose products sum to 8.5; the squares sum
    to 9.5 and 10. rho = 8.5 / sqrt(95).
    """
    study = found(runs, store)
    assert (study.column, study.n, study.seeds) == ("ah_wr", 6, (0, 1))
    measures = [model.measures for model in study.models]
    assert [m and m["accuracy"][0] for m in measures] == [0.25, 0.75, 0.5, 1.0, 1.0]
    assert [m and m["gain"] for m in measures] == [(2.0 * k,) * 3 for k in range(5)]
    assert [m and round(m["best_of_n"][0], 9) for m in measures] == [0.4, 0.45, 0.5, 0.55, 0.6]
    assert {model.state for model in study.models} == {"ok"}
    rhos = {(a.first, a.second): a.found and a.found.rho for a in study.agreements}
    assert rhos["accuracy", "gain"] == pytest.approx(8.5 / 95**0.5)
    assert rhos["accuracy", "best_of_n"] == pytest.approx(8.5 / 95**0.5)
    assert rhos["best_of_n", "gain"] == pytest.approx(1.0)


def test_a_table_without_a_study_has_none(store: Store) -> None:
    runs = toy_runs()
    assert study_of(runs, store, read_scores(runs, store)) is None
    report = stored(runs, store)
    assert study_blocks(report) == []


def test_while_a_reward_model_lacks_numbers_there_is_no_correlation(store: Store) -> None:
    runs = planned()
    assert runs.study is not None
    lacking = [runs.study.held_out["pairwise"], runs.study.best_of_n["pointwise", 1]]
    write_study(store, runs, without=lacking)
    study = found(runs, store)
    states = {model.row: (model.state, model.done, model.measures) for model in study.models}
    assert states["pairwise"] == ("not_run", 0, None)
    assert states["pointwise"] == ("partial", 1, None)
    assert states["pointwise_large"][0] == "ok"
    assert [a.found for a in study.agreements] == [None] * 3
    (block,) = study_blocks(stored(runs, store))
    assert block.items == ()
    assert dict(zip([r[0] for r in block.rows], block.rows, strict=True))["pointwise"][1:] == (
        "1/2 seeds", "1/2 seeds", "1/2 seeds",
    )  # fmt: skip
    store.record_failure(lacking[0], "the worker was killed", "")
    assert {m.row: m.state for m in found(runs, store).models}["pairwise"] == "failed"


def test_one_seed_is_not_compared(store: Store) -> None:
    runs = planned((0,))
    write_study(store, runs)
    study = found(runs, store)
    assert study.whole
    assert study.agreements[0] == Agreement(first="accuracy", second="gain")
    (block,) = study_blocks(stored(runs, store))
    assert block.items == ()


def test_the_report_says_what_the_numbers_are(runs: TableRuns, store: Store) -> None:
    write_prompts(store, runs)
    report = stored(runs, store)
    (block,) = study_blocks(report)
    rows = {row[0]: row[1:] for row in block.rows}
    assert rows["pairwise"][0].startswith("1.000 ±")
    assert rows["pairwise"][2] == "+6.00 ±0.00"
    assert block.items[2].startswith("best of 6 and gain: ρ = +1.00, 95% from +1.00 to +1.00; over")
    text = as_text(report, full=False)
    assert "best of 6 and gain" in text
    assert max(map(len, text.splitlines())) <= 80
    assert "| accuracy ± 95% | best of 6 ± 95% | gain ± 95% |" in as_markdown(report)


@pytest.fixture
def folder(runs: TableRuns, store: Store, tmp_path: Path) -> Path:
    write_prompts(store, runs)
    return publish(stored(runs, store), tmp_path / "results")


def test_what_is_published_is_computed_again(folder: Path) -> None:
    published = Report.model_validate_json((folder / REPORT).read_text(encoding="utf-8"))
    assert published.study is not None
    assert published.study.whole
    stages = json.loads((folder / DIGESTS).read_text(encoding="utf-8"))["stages"]["study"]
    assert len(stages) == 5 + 2 * 5
    assert table_extent(PUBLISHED_TABLE.check(folder)).numbers == 6


@pytest.mark.parametrize(
    "place", [("models", 1, "measures", "accuracy", 0), ("agreements", 0, "found", "rho")]
)
def test_a_changed_number_is_found(folder: Path, place: tuple[Any, ...]) -> None:
    def change(published: dict[str, Any]) -> None:
        at = published["study"]
        for key in place[:-1]:
            at = at[key]
        at[place[-1]] -= 0.01

    forge(folder, change)
    with pytest.raises(HarnessError, match=r"study / .* cannot be recomputed"):
        PUBLISHED_TABLE.check(folder)


def test_a_finding_waits_for_every_reward_model(store: Store) -> None:
    runs = planned()
    assert runs.study is not None
    write_study(store, runs, without=[runs.study.held_out["pointwise"]])
    assert finding(stored(runs, store), []).startswith(
        "Not every reward model has its numbers; in "
    )
