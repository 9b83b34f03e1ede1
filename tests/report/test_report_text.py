"""What a reader sees: every place says something, nothing obeys or breaks, 80 columns suffice."""

import json
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from page_reader import Page
from toy_page import page_of
from toy_tables import DECLARATION, judge_of, stored, toy_runs, write_scores, write_whole

from harness.evaluation.calibration import Calibration, record_path
from harness.report import view
from harness.report.blocks import column_blocks, fact_blocks, number_blocks, summary_blocks
from harness.report.model import Report
from harness.report.render import as_markdown, as_text, escape
from harness.report.results import Results
from harness.report.view import facts, signed
from harness.runtime import Store
from harness.selection.reporting import Reports


def full(store: Store, scale: str = "toy", table: Any = DECLARATION) -> Results:
    runs = toy_runs(scale=scale, table=table)
    write_whole(store, runs)
    return stored(runs, store)


def test_no_place_is_blank_and_no_missing_number_is_zero(store: Store) -> None:
    for report in (stored(toy_runs(), store), full(store)):
        blocks = [*column_blocks(report), summary_blocks(report)[0], *fact_blocks(report)]
        places = [place for block in blocks for row in block.rows for place in row]
        assert all(place.strip() for place in places)
    empty = column_blocks(stored(toy_runs(seeds=[5]), store))[0]
    assert {row[1] for row in empty.rows} == {"not run"}
    assert "0.0" not in {place for row in empty.rows for place in row}


def test_a_row_shows_ours_and_the_papers_side_by_side(store: Store) -> None:
    """The last row of the toy table: 54.5 + mean(0, 2, 4, 6) + mean(0, 2) = 58.5; gain 4.5.

    Every prompt gains 4.5 under every seed, so the interval of the gain has no width.
    """
    rows = {row[0]: row[1:] for row in column_blocks(full(store))[0].rows}
    ours, gain, paper, paper_gain = rows["θ_{1→1̄}: + eva [eva-a_min]"]
    assert ours.startswith("58.5 ±")
    assert (gain, paper, paper_gain) == ("+4.5 ±0.0", "60.1", "+8.5")
    assert rows["θ_{0→1}: DPO"][1:] == ("baseline", "51.6", "–")
    ratings = {row[0]: row[1:] for row in column_blocks(full(store))[1].rows}
    assert ratings["θ_{1→1̄}: + eva [eva-a_min]"][2:] == ("8.90", "+0.24")
    assert ratings["θ_0: SFT"][2:] == ("not printed", "not printed")


@pytest.mark.parametrize("scale", ["toy", "paper"])
def test_a_table_of_ours_stands_beside_nothing(store: Store, scale: str) -> None:
    """The same numbers as in the row above, without places for the paper's."""
    rows = [
        {name: it for name, it in row.items() if name != "values"} for row in DECLARATION["rows"]
    ]
    report = full(store, scale, DECLARATION | {"source": "ours", "rows": rows})
    first = number_blocks(report)[0]
    assert first.head == ("row", "ours\n± 95%", "gain\n± 95%")
    shown = {row[0]: row[1:] for row in first.rows}
    assert shown["θ_{1→1̄}: + eva [eva-a_min]"][1] == "+4.5 ±0.0"
    assert len(number_blocks(report)) == len(report.table.columns)
    assert dict(facts(report))["Source"] == "ours, beyond the paper's tables"
    for text in (as_text(report), as_markdown(report)):
        assert "Beside the paper" not in text
        assert "On this table" in text
        assert "A toy (micro, scale:" in text


def test_states_are_words(store: Store) -> None:
    runs = toy_runs(seeds=[0, 1, 2])
    write_scores(store, runs, "dpo-h1", 0, ah_wr={"p0": 50.0, "p1": 52.0})
    store.record_failure(judge_of(runs, "base", 0, "ah_wr"), "the judge broke", "")
    shown = as_text(stored(runs, store)), Page(page_of(runs, store)).text
    for words in ("1/3 seeds", "not run", "not available", "failed: base: ", "the judge broke"):
        for text in shown:
            assert words in " ".join(text.split())


def test_ours_less_the_papers_exists_at_the_papers_scale_only(store: Store) -> None:
    """Row eva-a_min: 58.5 - 60.1 = -1.6."""
    toy = full(store)
    assert "paper" in as_text(toy)
    for text in (as_text(toy), as_markdown(toy), Reports((toy,)).text("json")):
        assert "ours −" not in text
        assert "-1.6" not in text
    paper = stored(toy_runs(scale="paper"), store)
    assert "-1.6" in as_text(paper)
    assert "-1.6" in as_markdown(paper)


@pytest.mark.parametrize("scale", ["toy", "paper"])
@pytest.mark.parametrize("done", [True, False])
def test_no_line_is_longer_than_80_characters_and_nothing_is_cut_off(
    store: Store, scale: str, done: bool
) -> None:
    report = full(store, scale) if done else stored(toy_runs(scale=scale), store)
    text = as_text(report, width=80)
    assert max(map(len, text.splitlines())) <= 80
    assert "…" not in text


def test_models_are_named_for_the_rows_that_have_run(store: Store) -> None:
    """Of the three rows with a reward model two have run, and one of these evolves."""
    runs = toy_runs()
    for seed in (0, 1):
        for row in ("base", "dpo-h1", "dpo-eva-uniform"):
            write_scores(store, runs, row, seed, ah_wr={"p0": 50.0, "p1": 52.0})
    found = dict(facts(stored(runs, store)))
    assert found["Reward model"] == "toy-1/rm_pointwise@bb (dpo-1, eva-uniform)"
    assert found["Creator"] == "micro-4/evol_instruct (eva-uniform)"


def test_the_report_says_what_stands_behind_it(store: Store) -> None:
    found = dict(facts(full(store)))
    assert found["Judge"] == "toy-1/oracle (arena_hard, mt_bench)"
    assert found["Reward model"] == "toy-1/rm_pointwise@bb (dpo-1, eva-uniform, eva-a_min)"
    assert found["Creator"] == "micro-4/evol_instruct (eva-uniform, eva-a_min)"
    assert found["Policy"] == "toy-1/theta0@aa"
    assert found["Seeds"] == "0, 1"
    assert "Columns" not in found
    assert found["Commit"] == "0123456789ab"
    assert found["Computed with"] == "python 3.11.9, torch 2.13.0"
    assert found["Scale"].startswith("toy")
    one = dict(facts(stored(toy_runs(seeds=[4]), store)))
    assert one["Intervals"].startswith("95%, over prompts only")
    assert one["Commit"] == "nothing is computed yet"


def test_a_report_of_real_judges_says_whether_they_are_calibrated(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HARNESS_WORK", str(tmp_path))
    runs = toy_runs()
    names = [name for name, _ in facts(stored(runs, store))]
    assert not any("Calibration" in name for name in names)
    prompts = runs.profile.prompts.model_copy(update={"source": "real"})
    real = replace(runs, profile=runs.profile.model_copy(update={"prompts": prompts}))
    found = dict(facts(stored(real, store)))
    assert found["Calibration of arena_hard"] == view.NOT_CALIBRATED
    assert "Calibration of alpaca_eval" not in found
    judge = real.profile.benchmarks["mt_bench"].judge
    record = Calibration(
        judge=judge, identity="m@1", published_judge="people", comparisons=80, missing=0,
        agreement=67.5, low=60.0, high=75.0, one_side=55.0, consistent=90.0, first=52.0,
        longer=66.0, longer_published=61.0, finished="2026-01-02T03:04:05.000+00:00", digest="d",
    )  # fmt: skip
    path = record_path(tmp_path / "calibrations", judge)
    path.parent.mkdir(parents=True)
    path.write_text(record.model_dump_json())
    found = dict(facts(stored(real, store)))
    assert found["Calibration of mt_bench"] == (
        "agrees with people in 67.5% (60.0 to 75.0) of 80 comparisons, where one side always would "
        "in 55.0%; same verdict in both orders 90.0%, for the first shown 52.0%; for the longer "
        "66.0%, published 61.0%; 2026-01-02"
    )
    text = " ".join(as_text(stored(real, store)).split())
    assert "which agrees with people in 68%" in text


def test_assumptions_are_grouped_by_who_makes_them_and_leave_out_what_is_not_used(
    store: Store,
) -> None:
    report = stored(toy_runs(), store)
    groups = {item.name: item.group for item in report.report.assumptions}
    assert groups["generation.n"] == "paper"
    assert groups["threads"] == "ours"
    assert "training.dpo.beta" in groups
    assert not any(name.startswith("benchmarks.alpaca_eval") for name in groups)
    text = as_text(report)
    for words in ("From the paper", "Ours", "A note."):
        assert words in text


@pytest.mark.parametrize(
    ("text", "shown"),
    [("- a", r"\- a"), ("1. a", r"1\. a"), ("-1.6", "-1.6"), ("a_b", r"a\_b"), ("a\nb", "a b"),
     ("&lt;", r"\&lt;"), ("====", r"\====")],
)  # fmt: skip
def test_markdown_escapes(text: str, shown: str) -> None:
    assert escape(text) == shown


def against_gpt4() -> dict[str, Any]:
    table = deepcopy(DECLARATION)
    table["columns"][0]["metric"] = "win rate against gpt-4-0314"
    return table


def test_the_embedded_world_does_not_pass_its_numbers_off_as_the_papers(store: Store) -> None:
    report = stored(toy_runs(table=against_gpt4()), store)
    wins, ratings, missing = column_blocks(report)
    assert wins.title == "stand-in A (hard lists) · WR (%)"
    items = {name: found.items for name, found in report.profile.benchmarks.items()}
    assert wins.notes == (
        "stand-in for Arena-Hard v0.1: win rate against the profile's fixed answers, in % "
        f"({items['arena_hard']} items, judge toy-1/oracle); the paper's is against gpt-4-0314; "
        "higher is better",
    )
    assert ratings.notes == (
        f"stand-in for MT-Bench: mean rating, in 1-10 ({items['mt_bench']} items, "
        "judge toy-1/oracle); higher is better",
    )
    assert missing.notes == (
        "the paper's: accuracy, in %; higher is better; the profile `micro` has no such benchmark",
    )
    text = as_text(report)
    assert wins.notes[0] in " ".join(text.split())
    assert max(map(len, text.splitlines())) <= 80
    assert escape(wins.notes[0]) in as_markdown(report)


@pytest.mark.parametrize(
    ("scale", "said"),
    [
        ("paper", "win rate against gpt-4-0314, in % ("),
        ("reduced", "at scale reduced: win rate against someone, in % ("),
    ],
)
def test_other_profiles_name_their_own_opponent(store: Store, scale: str, said: str) -> None:
    runs = toy_runs(scale=scale, table=against_gpt4())
    profile = runs.profile
    hard = profile.benchmarks["arena_hard"].model_copy(update={"against": "someone"})
    change = {
        "prompts": profile.prompts.model_copy(update={"source": "a data set"}),
        "benchmarks": {**profile.benchmarks, "arena_hard": hard},
    }
    runs = replace(runs, profile=profile.model_copy(update=change))
    (note,) = column_blocks(stored(runs, store))[0].notes
    assert note.startswith(said)
    assert ("the paper's is against gpt-4-0314" in note) == (scale == "reduced")


def test_signs_are_kept() -> None:
    assert [signed(x, 1) for x in (-0.04, 0.0, -0.0, 2.0)] == ["+0.0", "+0.0", "+0.0", "+2.0"]


def test_the_json_form_obeys_the_schema_of_the_model_and_comes_back(store: Store) -> None:
    check = Draft202012Validator(Report.model_json_schema(mode="serialization"))
    for report in (stored(toy_runs(), store), full(store)):
        data = json.loads(json.dumps(report.whole_report.as_json()))
        assert data["cells"] == Reports((report,)).data
        assert len(data["cells"]) == 12
        check.validate(data)
        assert Report.model_validate(data).as_json() == data
