"""What figures read from a store: scores, rewards and topics, whole, partial, failed or not run."""

from collections import Counter
from pathlib import Path

import pytest
from toy_figures import (
    PROMPTS,
    declared,
    toy_figure,
    toy_profile,
    write_judges,
    write_stage,
    write_stages,
)
from toy_tables import by_place, stored, write_files

from harness.pipeline.runs import FigureRuns, plan_figure
from harness.registry.profile import Profile
from harness.report.figures.data import ScoreData, stored_prompts
from harness.report.figures.points import Point
from harness.report.figures.report import FigureReport, assemble_figure
from harness.runtime import Stage, Store
from harness.worlds.embedded.language import CATEGORIES, OPERATIONS
from harness.worlds.stage_io import read_rows

pytestmark = pytest.mark.usefixtures("toy_world")


def states(report: FigureReport) -> Counter[str]:
    return Counter(point.state for point in report.points)


def ratings(store: Store, judge: Stage) -> dict[str, float]:
    """Return the rating of each prompt as its judge's stage holds it."""
    path = store.open(judge.fingerprint) / "scores.parquet"
    rows = read_rows(path, "prompt_id", "column", "value")
    return {row["prompt_id"]: row["value"] for row in rows if row["column"] == "mt_avg"}


def one(report: FigureReport, **place: str) -> Point:
    (point,) = (
        p for p in report.points if all(getattr(p, name) == at for name, at in place.items())
    )
    return point


@pytest.fixture
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Profile:
    """Return a profile whose prompts are of no embedded world: a model tells their topics."""
    monkeypatch.setenv("HARNESS_WORK", str(tmp_path / "work"))  # a copy of them is kept there
    file = tmp_path / "prompts.jsonl"
    file.write_text('{"prompt": "What is a mean?"}\n', encoding="utf-8")
    prompts = toy_profile().prompts.model_copy(update={"source": str(file)})
    return toy_profile().model_copy(update={"prompts": prompts})


def test_a_gain_is_the_cell_s_of_its_table(store: Store) -> None:
    """A figure computes nothing of its own where a table has the number."""
    runs = toy_figure("figure4")
    write_judges(store, runs, "arena_hard", "alpaca_eval")
    report = assemble_figure(runs, store)
    assert states(report) == {"ok": 8}
    cells = by_place(stored(runs.parts["table11"], store).report.cells)
    for column, panel in (("ae_lc", "AlpacaEval 2.0 · length-controlled win rate"),
                          ("ah_wr", "Arena-Hard v0.1 · win rate")):  # fmt: skip
        cell = cells["eva-pairrm8b", column]
        point = one(report, panel=panel, at="large: PairRM-8B")
        assert (point.value, point.low, point.high) == (
            cell.gain, cell.gain_ci_low, cell.gain_ci_high,
        )  # fmt: skip
        assert point.paper == cell.paper_gain
    # 52.71 - 51.58, and 60.2 - 55.7, at the printed precision.
    printed = [p.paper_printed for p in report.points if p.at == "large: PairRM-8B"]
    assert printed == ["+1.13", "+4.5"]


def test_the_accuracy_of_a_reward_model_is_named_where_its_card_says_it(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "harness.worlds.embedded.world.EmbeddedWorld.reward_model_accuracy",
        lambda world, role: 0.9 if role == "pairwise" else None,
    )
    report = assemble_figure(toy_figure("figure4"), store)
    bars = list(dict.fromkeys(point.at for point in report.points))
    assert bars[1:3] == ["large: Skywork-27B", "small: PairRM-0.4B (accuracy 0.900)"]


def test_a_line_has_the_means_of_its_rows_and_the_paper_s(store: Store) -> None:
    runs = toy_figure("figure5")
    write_judges(store, runs, "arena_hard")
    report = assemble_figure(runs, store)
    cells = by_place(stored(runs.parts["table14"], store).report.cells)
    panel = "2x prompts an iteration (table 14)"
    for row, iteration in (("base", 0), ("dpo-1", 1), ("eva-1", 2), ("eva-2", 3), ("eva-3", 4)):
        point = one(report, panel=panel, series="eva", at=str(iteration))
        cell = cells[row, "ah_wr"]
        assert (point.value, point.paper_printed) == (cell.mean, cell.paper_printed)


def test_what_is_not_computed_says_what_it_is(store: Store) -> None:
    """Nothing is run; one seed of the first row; a failed judge."""
    runs = toy_figure("figure5")
    empty = assemble_figure(runs, store)
    assert states(empty)["ok"] == 0
    table = runs.parts["table13"]
    write_stage(store, table.runs["dpo-h1", 0].judged["arena_hard"])
    store.record_failure(table.runs["dpo-h2", 0].training[-1], "no memory", "")
    report = assemble_figure(runs, store)
    panel = "1x prompts an iteration (table 13)"
    assert one(report, panel=panel, series="eva", at="1").state == "partial"
    failed = one(report, panel=panel, series="new human prompts", at="2")
    assert failed.state == "failed"
    assert "no memory" in (failed.reason or "")
    texts = [text for block in report.blocks for row in block.rows for text in row]
    assert "" not in texts
    assert "1/2 seeds" in texts
    assert "not run" in texts
    assert any("no memory" in reason for reason in report.missing)


def test_ratings_are_parted_by_category_and_lose_nothing(store: Store) -> None:
    """Two prompts of each of the eight categories: the mean over categories is the whole mean."""
    runs = toy_figure("figure7")
    write_judges(store, runs, "mt_bench")
    report = assemble_figure(runs, store)
    assert list(dict.fromkeys(point.at for point in report.points)) == list(CATEGORIES)
    assert isinstance(report.data, ScoreData)
    judge = runs.runs["base", 0].judged["mt_bench"]
    whole = ratings(store, judge)
    parts = [v for k, v in report.data.measured.items() if k[:2] == ("base", 0)]
    assert {k: v for part in parts for k, v in part.items()} == whole
    assert all(len(part) == 2 for part in parts)


def test_a_category_by_hand(store: Store) -> None:
    """Category `writing` holds the items 0 and 8 of 16; one seed, so the mean of two values."""
    runs = toy_figure("figure7", (0,))
    write_judges(store, runs, "mt_bench")
    judge = runs.runs["dpo-h1", 0].judged["mt_bench"]
    first = [ratings(store, judge)[item] for item in ("mt_bench-00", "mt_bench-08")]
    point = one(assemble_figure(runs, store), series="iteration 1: human prompts", at="writing")
    assert point.value == pytest.approx(sum(first) / 2)


def test_ratings_without_any_judge_have_a_place_for_every_row(store: Store) -> None:
    report = assemble_figure(toy_figure("figure7"), store)
    assert [(p.at, p.state) for p in report.points] == [("all categories", "not_run")] * 5


def test_rewards_are_those_the_selection_rests_on(store: Store) -> None:
    """The second iteration selects among the first's prompts by the trained policy's answers."""
    runs = toy_figure("figure10")
    run = runs.runs["dpo-eva-a_min", 0]
    stage = run.iterations[1].rewards
    answers = stage.inputs["completions"]
    assert stage.kind == "annotate"
    assert answers.inputs["policy"] == run.iterations[0].policy
    assert answers.inputs["prompts"] == run.iterations[0].prompts
    first = run.iterations[0].rewards
    assert "policy" not in first.inputs["completions"].inputs
    select = runs.parts["table4"].runs["dpo-eva-a_min", 0].iterations[1]
    assert select.rewards == stage


def test_rewards_of_a_selection_without_evolving_are_those_it_selects_by(store: Store) -> None:
    tables, figures = declared()
    figure = figures["figure10"].model_copy(update={"row": "table5/select-sample"})
    run = plan_figure(figure, tables, toy_profile(), (0,)).runs["dpo-select-sample", 0]
    assert run.iterations[1].rewards == run.iterations[1].prompts.inputs["rewards"]


def test_rewards_and_topics_are_read_prompt_by_prompt(store: Store) -> None:
    runs = toy_figure("figure12")
    write_stages(store, runs, ["generate", "annotate"])
    data = stored_prompts(runs, store)
    assert data.found[0].state == "ok"
    assert data.topics == CATEGORIES
    part = data.of()[1]
    assert [row["prompt_id"] for row in data.rows[1, 1]][::6] == [*PROMPTS]
    assert part.rewards.shape == (30, 6)
    # The prompts go through the operations in order; the first is writing's, the second roleplay's.
    assert part.topics[:3] == ("writing", "roleplay", "extraction")
    assert list(data.stages) == ["dpo-h1/micro/seed0", "dpo-h1/micro/seed1"]


def test_shares_by_hand(store: Store) -> None:
    """The share of a topic is a count over the 40 prompts of a seed's pairs.

    The toy prompts ask for the operations in turn, so that their topics are known by position.
    """
    runs = toy_figure("figure6", (0,))
    write_stages(store, runs, ["pair", "mix"])
    report = assemble_figure(runs, store)
    assert states(report) == {"ok": 32}
    pairs = runs.runs["dpo-eva-round3", 0].iterations[2].pairs
    rows = read_rows(store.open(pairs.fingerprint) / "pairs.parquet", "prompt_id")
    counted = Counter(
        OPERATIONS[int(prompt[1:]) % 12].category for prompt in (row["prompt_id"] for row in rows)
    )
    assert sum(counted.values()) == 40
    for topic in CATEGORIES:
        assert one(report, panel=topic, at="3").value == counted[topic] / 40
    for iteration in "1234":
        shares = [p.value or 0.0 for p in report.points if p.at == iteration]
        assert sum(shares) == pytest.approx(1.0)


def test_each_iteration_s_prompts_are_missing_for_themselves(store: Store) -> None:
    runs = toy_figure("figure6")
    for seed in (0, 1):
        write_stage(store, runs.runs["dpo-eva-round3", seed].iterations[0].pairs)
    write_stage(store, runs.runs["dpo-eva-round3", 0].iterations[1].pairs)
    data = stored_prompts(runs, store)
    assert [found.state for found in data.found] == ["ok", "partial", "not_run", "not_run"]


def not_available(runs: FigureRuns, store: Store, reason: str) -> None:
    report = assemble_figure(runs, store)
    assert states(report).keys() == {"not_available"}
    assert report.missing == [f"not available: {reason}"]


@pytest.mark.parametrize("name", ["figure6", "figure12"])
def test_a_profile_without_a_scorer_has_no_topics_and_one_with_it_waits_for_them(
    name: str, store: Store, elsewhere: Profile
) -> None:
    alone = elsewhere.creator.model_copy(update={"scorer": None})
    bare = toy_figure(name, (0,), elsewhere.model_copy(update={"creator": alone}))
    not_available(bare, store, "`micro` has no scorer that sorts prompts by topic")
    waiting = assemble_figure(toy_figure(name, (0,), elsewhere), store)
    assert states(waiting).keys() == {"not_run"}


def test_topics_told_by_a_model_are_of_the_prompts_and_need_the_rewards_beside_them(
    store: Store, elsewhere: Profile
) -> None:
    """The stage of topics is done first: without rewards there is nothing to show of it."""
    runs = toy_figure("figure12", (0,), elsewhere)
    (telling,) = (stage for stage in runs.targets if stage.kind == "topics")
    assert {stage.kind for stage in telling.inputs.values()} == {"prompts"}
    topics = [{"prompt_id": prompt, "topic": "math"} for prompt in PROMPTS]
    write_files(store, telling, topics=topics)
    assert states(assemble_figure(runs, store)) == {"not_run": 27}
    write_stages(store, runs, ["annotate"])
    data = stored_prompts(runs, store)
    assert set(data.of()[0].topics) == {"math"}
    (behind,) = data.stages.values()
    assert store.manifest(behind["annotate 1"])["kind"] == "annotate"


@pytest.mark.parametrize("name", ["figure6", "figure9", "figure10", "figure12"])
def test_a_row_that_cannot_run_leaves_its_figure_without_numbers(name: str, store: Store) -> None:
    bare = toy_profile().model_copy(update={"algorithms": ("rloo",)})
    not_available(toy_figure(name, (0,), bare), store, "`micro` has no algorithm `dpo`")
