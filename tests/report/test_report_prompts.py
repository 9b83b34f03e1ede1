"""A table of prompts themselves: unpaired over prompts, from its cells to `verify`."""

import math
from collections.abc import Sequence
from pathlib import Path

import pytest
from null_tables import counted, simulated_nulls
from scipy import stats
from toy_identities import toy_planned
from toy_tables import by_place, score_rows, stored, write_files

from harness.pipeline.runs import TableRuns
from harness.registry.declared import load_tables
from harness.registry.profile import load_profiles
from harness.report.blocks import column_blocks
from harness.report.build import published_results
from harness.report.controls import KnownControls
from harness.report.facts import facts_of
from harness.report.model import Verdict
from harness.report.publish import publish
from harness.report.verify import verify
from harness.report.view import facts
from harness.runtime import Store

TABLE = load_tables()["table7"]
MICRO = load_profiles()["micro"]

LEVELS = {"prompts-seed": 1.0, "prompts-eva-1": 2.0, "prompts-eva-2": 3.0, "prompts-eva-3": 4.0}


def values(run_id: str, seed: int, quality: float) -> dict[str, list[float]]:
    """Two prompts, three in odd seeds, whose mean is the run's level plus a tenth for each seed.

    Quality falls by a step for each iteration, from `quality` down.
    """
    level = LEVELS[run_id] + 0.1 * seed
    around = [-0.01, 0.01] if seed % 2 == 0 else [-0.01, 0.0, 0.01]
    fallen = quality - LEVELS[run_id]
    return {
        "complexity": [level + part for part in around],
        "quality": [fallen + part for part in around],
    }


def filled(store: Store, seeds: tuple[int, ...] = (0, 1, 2), quality: float = 6.0) -> TableRuns:
    """Write the judge's stage of every run; prompts are named by run and seed."""
    runs = toy_planned(TABLE, MICRO, seeds)
    for (run_id, seed), run in runs.runs.items():
        rows = [
            row
            for column, found in values(run_id, seed, quality).items()
            for row in score_rows(column, {f"{run_id}-{seed}-{i}": v for i, v in enumerate(found)})
        ]
        write_files(store, run.judged["prompt_judge"], scores=rows)
    return runs


@pytest.fixture
def results(store: Store, tmp_path: Path) -> Path:
    runs = filled(store)
    publish(stored(runs, store), tmp_path / "results")
    return tmp_path / "results"


def test_rows_whose_prompts_differ_are_compared_by_the_means_of_their_seeds(store: Store) -> None:
    """Complexity by hand: seed means 1, 1.1, 1.2 and 2, 2.1, 2.2.

    Their variance is 0.01, that of the mean 0.01 / 3, with two degrees of freedom; every seed's
    difference is 1.
    """
    cells = by_place(stored(filled(store), store).report.cells)
    cell = cells["eva-iter-1", "complexity"]
    half = float(stats.t.ppf(0.975, 2)) * math.sqrt(0.01 / 3)
    assert cell.state == "ok"
    assert (cell.mean, cell.ci_high) == pytest.approx((2.1, 2.1 + half))
    assert cell.gain == pytest.approx(1.0)
    assert cell.gain_ci_low == pytest.approx(1.0, abs=0.02)
    assert (cell.gain_ci_low or 1.0) < 1.0 - 1e-3  # by the prompts: the seeds show no spread
    assert cells["seed", "complexity"].gain is None
    assert cells["eva-iter-3", "quality"].gain == pytest.approx(-3.0)


def test_one_seed_is_over_its_prompts(store: Store) -> None:
    """Prompts at 0.99 and 1.01: the mean's standard error is 0.01, with one degree of freedom."""
    cell = by_place(stored(filled(store, seeds=(0,)), store).report.cells)["seed", "complexity"]
    assert cell.mean == pytest.approx(1.0)
    assert cell.ci_high == pytest.approx(1.0 + 0.01 * math.tan(0.475 * math.pi))


def by_id(verdicts: Sequence[Verdict]) -> dict[str, Verdict]:
    return {verdict.claim: verdict for verdict in verdicts}


def test_a_trend_of_prompts_is_judged_step_by_step_and_says_what_is_by_construction(
    store: Store, results: Path
) -> None:
    """Complexity rises by 1 with each step and seed, quality falls by 1; of four rows each."""
    found = verify(results)
    assert (found.tables, found.cells) == (("micro/table7",), 8)
    runs = toy_planned(TABLE, MICRO, (0, 1, 2))
    verdicts = by_id(stored(runs, store).verdicts)
    folder, known = results / "micro" / "table7", KnownControls(MICRO, None, results)
    assert verdicts == by_id(list(published_results(TABLE, folder, known).verdicts))
    complexity, quality = verdicts["t7-complexity"], verdicts["t7-quality"]
    assert complexity.text == "supported (toy, by construction)"
    assert "count operations" in complexity.marks[0].because
    assert complexity.estimate is not None
    assert complexity.estimate.mean == pytest.approx(1.0)
    assert quality.text == "contradicted (toy, by construction)"


def test_the_report_says_how_prompts_are_compared(store: Store) -> None:
    report = stored(filled(store), store)
    assert "gains are paired by seed" in dict(facts(report))["Intervals"]
    complexity, _ = column_blocks(report)
    [caption] = complexity.notes
    assert caption.startswith("stand-in for prompt judge: mean complexity, in 1-5")
    assert "400 prompts a seed, judge toy-1/rules" in caption
    assert "the paper's is of 10K prompts" in caption


def test_a_report_shows_the_rest_if_the_first_prompts_of_a_run_are_gone(store: Store) -> None:
    runs = filled(store, (0,))
    for run in runs.runs.values():
        if run.last_prompts.kind == "mix":
            write_files(store, run.last_prompts, pairs=[{"prompt": "now sort 3 1 2"}])
    report = stored(runs, store).whole_report
    assert {cell.state for cell in report.cells} == {"ok"}
    assert {found.state for found in report.facts} == {"not_run"}


def test_equal_sets_of_prompts_lead_to_few_verdicts() -> None:
    """Simulated: no row differs, and the claims are judged as they are declared."""
    judged, decided = counted(simulated_nulls([TABLE], 300, seeds=3))["all"]
    assert judged == 600
    assert decided <= 0.05 * judged


def test_prompts_that_are_only_scored_have_facts_without_answers(store: Store) -> None:
    """The table asks for no benchmark whose prompts they could be compared with."""
    runs = filled(store, (0,))
    for run in runs.runs.values():
        if run.last_prompts.kind == "prompts":
            write_files(store, run.last_prompts, prompts=[{"prompt": "sort 3 1 2"}] * 2)
    found = {it.row: it for it in facts_of(runs, store)}
    seed = found["seed"]
    assert (seed.state, seed.values["to_seed"], seed.values["duplicates"]) == ("ok", 0.0, 0.5)
    assert not {name for name in seed.values if name.startswith("to_")} - {"to_seed"}
    assert "mixed" not in seed.values
    assert found["eva-iter-2"].state == "not_run"
