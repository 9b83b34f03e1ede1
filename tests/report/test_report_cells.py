"""Cells: numbers by hand, one state for everything that is missing, nothing averaged in part."""

import math
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest
from toy_identities import ToyWorld
from toy_tables import (
    CLAIM,
    DECLARATION,
    by_place,
    judge_of,
    score_rows,
    stored,
    toy_runs,
    write_all,
    write_files,
    write_scores,
)

from harness.errors import HarnessError
from harness.pipeline.runs import TableRuns
from harness.report.blocks import summary_blocks
from harness.report.build import with_all_rows
from harness.report.model import Cell, ColumnSummary
from harness.report.origin import origin_of
from harness.report.view import facts
from harness.runtime import Plan, Store
from harness.runtime.files import StoreError

T_1 = math.tan(math.pi * 0.475)
"""97.5% quantile of t with one degree of freedom (a Cauchy distribution): 12.7062."""

JSON_KEYS = [
    "table", "row", "column", "profile", "scale", "seeds", "mean", "ci_low", "ci_high",
    "baseline_row", "gain", "gain_ci_low", "gain_ci_high", "gain_detectable", "paper",
    "paper_printed", "paper_gain", "state", "runs", "judge", "reward_models", "creators",
]  # fmt: skip


def test_a_cell_is_what_can_be_derived_by_hand(store: Store) -> None:
    """Two seeds, two prompts, no interaction.

    dpo-h1 is (50, 52), (52, 54): mean 52, seed and prompt effects of ±1 each, so both mean
    squares are 2 (1 + 1) / 1 = 4 and the error's is 0. Variance (4 + 4) / 4 = 2, both shares one
    half with one degree of freedom each: half width t_1 sqrt(2).
    dpo-eva-a_min is higher by (2, 4), (2, 4): gain 3, prompt mean square 4, seed and error 0.
    Variance 4 / 4 = 1, half width t_1.
    """
    runs = toy_runs()
    write_scores(store, runs, "dpo-h1", 0, ah_wr={"p0": 50.0, "p1": 52.0})
    write_scores(store, runs, "dpo-h1", 1, ah_wr={"p0": 52.0, "p1": 54.0})
    write_scores(store, runs, "dpo-eva-a_min", 0, ah_wr={"p1": 56.0, "p0": 52.0})
    write_scores(store, runs, "dpo-eva-a_min", 1, ah_wr={"p1": 58.0, "p0": 54.0})
    cells = by_place(stored(runs, store).report.cells)

    base = cells["dpo-1", "ah_wr"]
    assert (base.state, base.mean, base.seeds) == ("ok", 52.0, (0, 1))
    assert base.ci_low == pytest.approx(52 - T_1 * math.sqrt(2))
    assert base.ci_high == pytest.approx(52 + T_1 * math.sqrt(2))
    assert (base.baseline_row, base.gain, base.gain_ci_low, base.paper_gain) == (None,) * 4

    eva = cells["eva-a_min", "ah_wr"]
    assert (eva.mean, eva.gain, eva.baseline_row) == (55.0, 3.0, "dpo-1")
    assert eva.gain_ci_low == pytest.approx(3 - T_1)
    assert eva.gain_ci_high == pytest.approx(3 + T_1)
    assert (eva.paper, eva.paper_printed, eva.paper_gain) == (60.1, "60.1", 8.5)
    stages = [judge_of(runs, "dpo-eva-a_min", seed, "ah_wr").fingerprint for seed in (0, 1)]
    assert eva.runs == tuple(
        f"dpo-eva-a_min/micro/seed{seed}@{stage[:12]}" for seed, stage in enumerate(stages)
    )


def test_one_seed_has_an_interval_over_prompts(store: Store) -> None:
    """Values 50 and 52: variance 2, of the mean 2 / 2 = 1; one degree of freedom."""
    runs = toy_runs(seeds=[7])
    write_scores(store, runs, "dpo-h1", 7, ah_wr={"p0": 50.0, "p1": 52.0})
    cell = by_place(stored(runs, store).report.cells)["dpo-1", "ah_wr"]
    assert (cell.mean, cell.ci_high) == pytest.approx((51.0, 51 + T_1))


def test_an_empty_store_has_no_numbers_and_says_so(store: Store) -> None:
    cells = stored(toy_runs(), store).report.cells
    assert [cell.state for cell in cells] == ["not_run", "not_run", "not_available"] * 4
    assert {cell.mean for cell in cells} | {cell.gain for cell in cells} == {None}
    assert {cell.runs for cell in cells} == {()}


def test_a_cell_that_lacks_a_seed_has_no_mean(store: Store) -> None:
    runs = toy_runs(seeds=[0, 1, 2])
    for seed in (0, 2):
        write_scores(store, runs, "dpo-h1", seed, ah_wr={"p0": 50.0, "p1": 52.0})
    cell = by_place(stored(runs, store).report.cells)["dpo-1", "ah_wr"]
    assert (cell.state, cell.mean, cell.ci_low, cell.ci_high) == ("partial", None, None, None)
    assert [run.split("@")[0] for run in cell.runs] == ["dpo-h1/micro/seed0", "dpo-h1/micro/seed2"]


def test_a_whole_cell_without_a_whole_baseline_has_no_gain(store: Store) -> None:
    runs = toy_runs()
    for seed in (0, 1):
        write_scores(store, runs, "dpo-eva-a_min", seed, ah_wr={"p0": 50.0, "p1": 52.0})
    write_scores(store, runs, "dpo-h1", 0, ah_wr={"p0": 50.0, "p1": 52.0})
    cell = by_place(stored(runs, store).report.cells)["eva-a_min", "ah_wr"]
    assert (cell.state, cell.mean, cell.gain) == ("ok", 51.0, None)


def test_a_failure_upstream_of_a_missing_seed_outranks_partial(store: Store) -> None:
    runs = toy_runs()
    training = runs.runs["dpo-eva-a_min", 1].training
    store.record_failure(training[0], "the worker was killed", "")
    for run_id in ("dpo-eva-a_min", "dpo-h1"):
        write_scores(store, runs, run_id, 0, ah_wr={"p0": 50.0, "p1": 52.0})
    cells = by_place(stored(runs, store).report.cells)
    # The first training is the one of dpo-h1, which every chain shares.
    for row in ("dpo-1", "eva-a_min", "eva-uniform"):
        cell = cells[row, "ah_wr"]
        assert (cell.state, cell.mean) == ("failed", None)
        assert cell.reason == f"{training[0].title}: the worker was killed"
        assert set(cell.as_json()) == set(JSON_KEYS)
    assert cells["base", "ah_wr"].state == "not_run"


def test_a_failure_that_nothing_missing_needs_is_not_a_cells(store: Store) -> None:
    """The judge of seed 0 is done; that its policy is lost and failed since does not matter."""
    runs = toy_runs(seeds=[0])
    store.record_failure(runs.runs["dpo-h1", 0].training[0], "the disk was full", "")
    write_scores(store, runs, "dpo-h1", 0, ah_wr={"p0": 50.0, "p1": 52.0})
    cells = by_place(stored(runs, store).report.cells)
    assert cells["dpo-1", "ah_wr"].state == "ok"
    assert cells["dpo-1", "mt_avg"].state == "failed"


def test_a_judge_without_values_of_a_column_is_a_failure(store: Store) -> None:
    runs = toy_runs(seeds=[0])
    stage = judge_of(runs, "dpo-h1", 0, "ah_wr")
    write_files(store, stage, scores=score_rows("ah_len", {"p0": 3.0}))
    cell = by_place(stored(runs, store).report.cells)["dpo-1", "ah_wr"]
    assert cell.state == "failed"
    assert "gave no values of `ah_wr`" in str(cell.reason)


def test_broken_scores_are_refused(store: Store) -> None:
    runs = toy_runs(seeds=[0])
    write_scores(store, runs, "dpo-h1", 0, ah_wr={"p0": 50.0, "p1": 52.0})
    file = store.path(judge_of(runs, "dpo-h1", 0, "ah_wr").fingerprint) / "scores.parquet"
    whole = file.read_bytes()
    file.write_bytes(whole[:-9] + b"x" + whole[-8:])
    with pytest.raises(StoreError, match=r"scores\.parquet has other content"):
        stored(runs, store)


def test_a_prompt_that_is_scored_twice_is_an_error(store: Store) -> None:
    runs = toy_runs(seeds=[0])
    scores = score_rows("ah_wr", {"p0": 1.0, "p1": 2.0})
    write_files(store, judge_of(runs, "dpo-h1", 0, "ah_wr"), scores=[*scores, scores[0]])
    with pytest.raises(HarnessError, match="twice"):
        _ = stored(runs, store).report.cells


def test_json_has_exactly_the_agreed_fields_in_order_and_comes_back(store: Store) -> None:
    runs = toy_runs()
    write_all(store, runs)
    for cell in stored(runs, store).report.cells:
        assert list(cell.as_json()) == JSON_KEYS
        assert Cell.model_validate(cell.as_json()) == cell
    # The sign stands only where a profile has columns of its own.
    place = JSON_KEYS.index("state")
    fields = [*JSON_KEYS[:place], "paper_sign", *JSON_KEYS[place:], "reason"]
    assert [*Cell.model_fields] == fields


def test_columns_that_change_the_run_have_cells_of_their_own(store: Store) -> None:
    """A row may stand for several runs, one by column, that read one score."""
    wins = DECLARATION["columns"][0]
    other = {"id": "greedy", "score": "ah_wr", "recipe": {"creator": {"sampling": "greedy"}}}
    row = {"id": "eva", "label": "eva", "run_by_column": {"ah_wr": "eva-w", "greedy": "eva-g"}}
    table = DECLARATION | {"columns": [wins, wins | other], "rows": [row]}
    runs = toy_runs(seeds=[0], table=table)
    write_scores(store, runs, "eva-w", 0, ah_wr={"p0": 1.0, "p1": 3.0})
    write_scores(store, runs, "eva-g", 0, ah_wr={"p0": 5.0, "p1": 7.0})
    cells = by_place(stored(runs, store).report.cells)
    assert (cells["eva", "ah_wr"].mean, cells["eva", "greedy"].mean) == (2.0, 6.0)


def summaries(runs: TableRuns, store: Store) -> list[ColumnSummary]:
    return list(stored(runs, store).report.summary)


def test_a_column_is_summarised_whole_or_not_at_all(store: Store) -> None:
    """Ours orders dpo-1 < base < uniform < a_min, the paper base < dpo-1 < uniform < a_min.

    Of the three gains, base's is positive for us and negative in the paper: 2 of 3 agree.
    MT-Bench prints three rows, in our order: both gains agree. Three and two rows but the baseline
    are too few for an order.
    """
    runs = toy_runs()
    write_all(store, runs)
    wins, ratings, missing = summaries(runs, store)
    assert wins == ColumnSummary(
        column="ah_wr", scale="toy", rows=4, done=4, signs_agree=2, signs=3, ranked=3
    )
    assert ratings == ColumnSummary(
        column="mt_avg", scale="toy", rows=3, done=3, signs_agree=2, signs=2, ranked=2
    )
    assert missing == ColumnSummary(column="gsm8k", scale="toy", rows=0, done=0)

    shutil.rmtree(store.path(judge_of(runs, "base", 1, "ah_wr").fingerprint))
    wins, *_ = summaries(runs, store)
    assert wins == ColumnSummary(column="ah_wr", scale="toy", rows=4, done=3)


METRICS = ("uniform", "var", "a_avg", "a_min")


def ordered(printed: Sequence[str], baseline: str) -> TableRuns:
    """Plan a baseline row and four rows over it, with the values that the paper prints."""
    first = {"id": "dpo-1", "label": "DPO", "run": "dpo-h1", "recipe": {"chain": ["human"]}}
    rows = [first | {"values": {"ah_wr": baseline}}]
    rows += [
        {"id": name, "label": name, "run": name, "baseline": "dpo-1",
         "recipe": {"creator": {"metric": name}}, "values": {"ah_wr": value}}
        for name, value in zip(METRICS, printed, strict=True)
    ]  # fmt: skip
    return toy_runs(table=DECLARATION | {"columns": DECLARATION["columns"][:1], "rows": rows})


def write_levels(store: Store, runs: TableRuns, levels: Mapping[str, float], **by: float) -> None:
    """Write four prompts a run; row `var` alone moves by `seed` from one seed to the other."""
    for run_id, seed in runs.runs:
        moved = by.get("seed", 0.0) * (-1) ** seed if run_id == "var" else 0.0
        wins = {f"p{i}": levels[run_id] + 3.0 * i + moved for i in range(4)}
        write_scores(store, runs, run_id, seed, ah_wr=wins)


@pytest.mark.parametrize(("baseline", "printed"), [(0.0, "90.0"), (52.5, "57.1"), (100.0, "10.0")])
def test_the_baseline_row_has_no_part_in_the_order(
    store: Store, baseline: float, printed: str
) -> None:
    """Ours 1 2 3 4 against the paper's 2 1 3 4: rho = 1 - 6 * 2 / (4 * 15) = 0.8.

    Without any scatter every resample has the same order, and the interval no width.
    """
    runs = ordered(["58.0", "57.0", "59.0", "60.0"], printed)
    levels = {"dpo-h1": baseline, "uniform": 51.0, "var": 52.0, "a_avg": 53.0, "a_min": 54.0}
    write_levels(store, runs, levels)
    (summary,) = summaries(runs, store)
    assert (summary.rows, summary.ranked) == (5, 4)
    assert summary.spearman == pytest.approx(0.8)
    assert (summary.spearman_low, summary.spearman_high) == pytest.approx((0.8, 0.8))
    assert summary_blocks(stored(runs, store))[0].rows[0][2:4] == (
        "+0.80 (4 rows)", "+0.80 to +0.80"
    )  # fmt: skip


def test_an_order_that_hangs_on_a_seed_has_a_wide_interval(store: Store) -> None:
    """The second row moves by 1.5 up with one seed and by 1.5 down with the other.

    With both seeds it lies between the first and the third, with the first seed alone (a quarter
    of the resamples) above the third, with the other alone below the first. The orders 1 2 3 4,
    1 3 2 4 and 2 1 3 4 against the paper's 1 2 3 4 are 1, 0.8 and 0.8.
    """
    runs = ordered(["57.0", "58.0", "59.0", "60.0"], "50.0")
    levels = {"dpo-h1": 0.0, "uniform": 51.0, "var": 52.0, "a_avg": 53.0, "a_min": 54.0}
    write_levels(store, runs, levels, seed=1.5)
    (summary,) = summaries(runs, store)
    assert summary.spearman == pytest.approx(1.0)
    assert (summary.spearman_low, summary.spearman_high) == pytest.approx((0.8, 1.0))


def test_one_seed_is_not_compared_with_the_paper(store: Store) -> None:
    """Every row is judged, and yet one seed says nothing about the recipes."""
    runs = toy_runs(seeds=[0])
    write_all(store, runs)
    wins, ratings, missing = summaries(runs, store)
    assert wins == ColumnSummary(column="ah_wr", scale="toy", rows=4, done=4)
    assert ratings == ColumnSummary(column="mt_avg", scale="toy", rows=3, done=3)
    assert missing == ColumnSummary(column="gsm8k", scale="toy", rows=0, done=0)


def test_the_report_says_whether_a_published_models_weights_were_verified(store: Store) -> None:
    """Known once it has annotated; of embedded models and of functions nothing needs to be said."""
    runs = toy_runs((0,))
    name = ToyWorld(runs.profile).reward_model("pointwise")
    asked = ["arena_hard"]
    assert origin_of(runs, store, asked).reward_models == (name,)
    (stage, other, *_) = [s for s in Plan(runs.targets) if s.kind == "annotate"]
    write_files(store, other, summary={"weights": "none"})
    assert origin_of(runs, store, asked).reward_models == (name,)
    write_files(store, stage, summary={"weights": "unverified"})
    assert origin_of(runs, store, asked).reward_models == (f"{name} (weights: unverified)",)
    said = dict(facts(stored(runs, store)))["Reward model"]
    assert said == f"{name} (weights: unverified) (dpo-1, eva-uniform, eva-a_min)"


def test_so_does_the_report_of_an_online_run(store: Store) -> None:
    row = {"id": "rloo", "label": "RLOO", "run": "rloo", "recipe": {"online": {"prompts": "human"}}}
    recipe = {"algorithm": "rloo", "reward_model": "pointwise"}
    runs = toy_runs((0,), table={**DECLARATION, "recipe": recipe, "rows": [row]})
    name = ToyWorld(runs.profile).reward_model("pointwise")
    (stage, *_) = [s for s in Plan(runs.targets) if s.kind == "online"]
    write_files(store, stage, summary={"weights": "unverified"})
    (named,) = origin_of(runs, store, ["arena_hard"]).reward_models
    assert named == f"{name} (weights: unverified)"


def test_a_verdict_says_that_a_row_was_left_out_though_the_report_shows_it(store: Store) -> None:
    runs = toy_runs(table=DECLARATION | {"claims": [CLAIM]})
    few = stored(replace(runs, rows=runs.rows[:2]), store)
    shown = with_all_rows(few)
    assert [cell.row for cell in shown.report.of_column("ah_wr")] == runs.row_ids
    (verdict,) = shown.verdicts
    assert (verdict.word, verdict.reason) == ("not_run", "`eva-a_min` was not requested")
