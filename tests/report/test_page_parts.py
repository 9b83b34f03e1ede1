"""The parts of the page, each against an outcome worked out by hand."""

import math
from collections.abc import Callable
from dataclasses import replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import pytest
from forging import copy_published
from null_tables import judged_claims
from toy_identities import toy_planned
from toy_page import RUN, prompt, write_lineage, write_training
from toy_tables import (
    CLAIM,
    DECLARATION,
    stored,
    toy_runs,
    write_all,
    write_files,
    write_luck,
    write_prompts,
    write_scores,
)

from harness.pipeline.runs import TableRuns
from harness.project import results_dir
from harness.registry.claims import Compare
from harness.report.answer import finding
from harness.report.figures.published import published_pictures
from harness.report.model import Estimate
from harness.report.page.examples import Examples, examples_of
from harness.report.page.page import (
    LONGEST,
    axis_of,
    code,
    described,
    holding,
    label,
    printable,
    run_block,
    truncated,
)
from harness.runtime import Store

CLAIMED = DECLARATION | {"claims": [CLAIM | {"paper_margin": "+8.5"}]}
ROWS = [row | {"baseline": None} for row in DECLARATION["rows"]]
WITHOUT_BASELINE = DECLARATION | {"rows": ROWS}
AGAINST_A_MIN = DECLARATION | {
    "rows": [*(row | {"baseline": "eva-a_min"} for row in ROWS[:3]), ROWS[3]],
    "claims": [CLAIM | {"paper_margin": "+8.5", "within_noise": True}],
}
CHAINED = DECLARATION | {
    "rows": [*DECLARATION["rows"][:2], DECLARATION["rows"][2] | {"baseline": "eva-a_min"},
             DECLARATION["rows"][3]],
}  # fmt: skip
ALL_BETTER = (
    "n stand-in A (hard lists), by unadjusted intervals, 3 of 3 rows are better than the baseline."
)


def all_with_luck(store: Store, runs: TableRuns) -> None:
    write_luck(store, runs)
    write_all(store, runs)


def baseline_alone(store: Store, runs: TableRuns) -> None:
    for seed in runs.seeds:
        write_scores(store, runs, "dpo-h1", seed, ah_wr={"p0": 50.0, "p1": 52.0})


def all_but_a_min(store: Store, runs: TableRuns) -> None:
    for run_id, level in (("dpo-h1", 50.0), ("base", 51.0), ("dpo-eva-uniform", 53.0)):
        for seed in runs.seeds:
            write_scores(store, runs, run_id, seed, ah_wr={"p0": level, "p1": level + 2})


@pytest.mark.parametrize(
    ("table", "seeds", "write", "said"),
    [
        pytest.param(
            CLAIMED, 3, all_with_luck, "Supported (toy): “A_min beats DPO” (ours +4.5, 95% from "
            "+4.*; the paper's size would be 4.3 here; the paper's +8.5); i" + ALL_BETTER,
            id="the claim first, then the rows"),
        pytest.param(
            CLAIMED, 3, write_all, "Inadmissible, because the difference is the same for every "
            "prompt and seed, so that chance was not measured: it is 4.5: “A_min beats DPO”; i"
            + ALL_BETTER, id="without any chance"),
        pytest.param(
            AGAINST_A_MIN, 3, all_with_luck, "*; the paper's +8.5, within its own noise)*by "
            "unadjusted intervals, none of 3 rows is better than the baseline and 3 are worse than "
            "it.", id="losses"),
        pytest.param(
            CLAIMED, 2, lambda *_: None, "No result yet, because `eva-a_min` in `ah_wr` has "
            "not run: “A_min beats DPO” is its primary claim.", id="nothing has run"),
        pytest.param(
            CLAIMED, 2, baseline_alone, "In stand-in A (hard lists), none of the 3 rows with a "
            "baseline has a gain yet; not run: “A_min beats DPO”, because `eva-a_min` in `ah_wr` "
            "has not run.", id="the claim's row has not run"),
        pytest.param(
            WITHOUT_BASELINE, 2, baseline_alone, "In stand-in A (hard lists), no row has a "
            "baseline.", id="no baseline"),
        pytest.param(
            CLAIMED, 1, all_with_luck, "Inconclusive (toy)*one seed: how much seeds differ is "
            "unknown*one seed is too few to compare 3 rows with the baseline*", id="one seed"),
        pytest.param(DECLARATION, 3, write_all, "I" + ALL_BETTER, id="no claim"),
        pytest.param(
            CHAINED, 3, all_but_a_min, "In stand-in A (hard lists), the one row with a gain is "
            "better than the baseline, 1 row has numbers but no baseline and 1 row has no numbers.",
            id="a baseline has no numbers"),
    ],
)  # fmt: skip
def test_a_finding_is_the_primary_claim_and_how_rows_fare(
    store: Store, table: dict[str, Any], seeds: int, write: Callable[..., None], said: str
) -> None:
    """Levels 51, 50, 53 and 54.5: gains +1 (base), +3 and +4.5; over a_min all are losses."""
    runs = toy_runs(range(seeds), table=table)
    write(store, runs)
    found = stored(runs, store)
    verdicts = judged_claims(found)
    assert fnmatchcase(finding(found, verdicts), said)


BY = "by unadjusted intervals, "


@pytest.mark.parametrize(
    ("sides", "direction", "said"),
    [
        ((1, 0, 0), "higher", f"{BY}1 of 3 rows is better than the baseline and 2 are not "
                              "significantly different."),
        ((1, 0, None, None), "higher", f"{BY}1 of 2 rows is better than the baseline, 1 is not "
                                       "significantly different and 2 rows have no numbers."),
        ((1, -1, 0), "lower", f"{BY}1 of 3 rows is better than the baseline, 1 is worse than it "
                              "and 1 is not significantly different."),
        ((1, 1, -1), "none", f"{BY}2 of 3 rows are above the baseline and 1 is below it."),
        ((-1, None, None), "higher", "the one row with a gain is worse than the baseline and 2 "
                                     "rows have no numbers."),
        ((0, None, 1), "higher", f"{BY}1 of 2 rows is better than the baseline, 1 is not "
                                 "significantly different and 1 row has no numbers."),
    ],
)  # fmt: skip
def test_a_finding_tells_better_from_worse_by_the_column(
    store: Store, sides: tuple[int | None, ...], direction: str, said: str
) -> None:
    """Gains of 2 ± 1, 0 ± 1 and -2 ± 1; where lower is better, a side is the other way round.

    A fourth side is that of the baseline row, which has a number where none is given.
    """
    wins, *others = DECLARATION["columns"]
    columns = [wins | {"direction": direction}, *others]
    runs = toy_runs(table=DECLARATION | {"columns": columns})
    results = stored(runs, store)
    sign = -1 if direction == "lower" else 1
    gains = dict(zip(("base", "eva-uniform", "eva-a_min", "dpo-1"), (*sides, 0), strict=False))
    cells = []
    for known in results.report.cells:
        side = gains.get(known.row)
        if known.column == "ah_wr" and side is not None:
            gain = 2.0 * side * sign
            numbers = {"gain": gain, "gain_ci_low": gain - 1, "gain_ci_high": gain + 1}
            known = known.model_copy(update={"mean": 50.0, **numbers})
        cells.append(known)
    report = results.report.model_copy(update={"cells": tuple(cells)})
    found = finding(replace(results, report=report), [])
    assert found == f"In stand-in A (hard lists), {said}"


def gain(mean: float, half: float = 0.0) -> Estimate:
    return Estimate(mean=mean, low=mean - half, high=mean + half)


def test_an_axis_holds_every_end_and_zero() -> None:
    """From 0 to 10 is a span of 10; 6% more at either end; steps of 2 make 5.6 parts, so 5."""
    axis = axis_of([gain(9.0, 1.0), None, gain(1.0, 0.5)])
    assert axis is not None
    assert (axis.low, axis.high) == (-0.6, 10.6)
    assert axis.ticks == (0.0, 5.0, 10.0)
    assert [axis.label(tick) for tick in axis.ticks] == ["0", "+5", "+10"]
    assert (axis.at(5.0), axis.at(-math.inf), axis.at(math.inf)) == (50.0, 0.0, 100.0)
    assert axis_of([None, None]) is None


def test_an_axis_of_losses_ends_at_zero_and_one_of_nothing_has_a_width() -> None:
    losses: Any = axis_of([gain(-2.0, 1.0)])
    assert (losses.low, losses.high) == pytest.approx((-3.18, 0.18))
    flat: Any = axis_of([gain(0.0)])
    assert flat.at(0.0) == 50.0
    assert flat.ticks == (-1.0, -0.5, 0.0, 0.5, 1.0)


@pytest.mark.parametrize(
    ("own", "paper", "words"),
    [
        (gain(2.0, 1.0), -500.0,
         "our gain +2.0, 95% from +1.0 to +3.0; the paper's is below zero"),
        (gain(0.5, 1.0), None, "our gain +0.5, 95% from -0.5 to +1.5; the paper's is not printed"),
        (None, 1.5, "no gain of ours; the paper's is above zero"),
    ],
)  # fmt: skip
def test_a_drawing_is_described(own: Estimate | None, paper: float | None, words: str) -> None:
    """Of the paper's gain nothing but the sign is drawn."""
    assert described(own, paper, 1) == words


@pytest.mark.parametrize(
    ("op", "margin", "ends"),
    [
        (">", None, (0.0, math.inf)), ("<", None, (-math.inf, 0.0)),
        (">=", 2.0, (-2.0, math.inf)), ("within", 2.0, (-2.0, 2.0)),
    ],
)  # fmt: skip
def test_a_claim_holds_on_its_side_of_zero_or_within_its_margin(
    op: Any, margin: float | None, ends: tuple[float, float]
) -> None:
    test = Compare.model_construct(kind="compare", left="a", right="b", column="c", op=op)
    assert holding(test, margin) == ends


@pytest.mark.parametrize(
    ("text", "marked"),
    [("θ_{1→1̄}: + eva", "θ<sub>1→1̄</sub>: + eva"), ("(A*_min)", "(A*<sub>min</sub>)"),
     ("θ_0: SFT", "θ<sub>0</sub>: SFT"), ("ratio_evol = 50%", "ratio_evol = 50%"), ("_x", "_x"),
     ("a<b_c", "a&lt;b_c")],
)  # fmt: skip
def test_indices_of_labels_are_set_low(text: str, marked: str) -> None:
    assert label(text) == marked


@pytest.mark.parametrize(
    ("text", "marked"),
    [("`a` over `b`.", "<code>a</code> over <code>b</code>."), ("a ` b", "a ` b"),
     ("`<b>`\u202e", "<code>&lt;b&gt;</code>\ufffd")],
)  # fmt: skip
def test_names_between_backticks_become_code(text: str, marked: str) -> None:
    assert code(text) == marked


def test_what_cannot_be_seen_is_made_visible_and_long_texts_are_cut() -> None:
    assert printable("a\n\tb\x1b\u202e\u200bc") == "a\n\tb\ufffd\ufffd\ufffdc"
    assert truncated("x" * (LONGEST + 2)) == "x" * LONGEST + " … (2 characters more)"
    assert truncated("x" * LONGEST) == "x" * LONGEST


def test_what_is_written_with_other_spaces_and_joined_emoji_is_shown_as_it_is() -> None:
    for text in ("a\u00a0b", "\u4f60\u597d\u3000\u4e16\u754c", "\U0001f468\u200d\U0001f469"):
        assert printable(text) == text
    assert printable("a\r\nb") == "a\nb"


@pytest.mark.parametrize(
    ("recipe", "reward_model"),
    [
        ({"reward_model": "pointwise_brief_1"}, "trained from toy-1/theta0@aa in 60 steps on "),
        ({"chain": ["human", "eva", "eva"], "train": "scratch"}, "toy-1/rm_pointwise@bb"),
    ],
)
def test_examples_of_other_trainings(
    store: Store, recipe: dict[str, Any], reward_model: str
) -> None:
    """With a reward model that is trained, and on the pairs of all rounds at once."""
    *others, last = DECLARATION["rows"]
    own = {**last, "recipe": {**last["recipe"], **recipe}}
    runs = toy_runs(seeds=[0], table={**DECLARATION, "rows": [*others, own]})
    write_lineage(store, runs)
    write_training(store, runs)
    found = examples_of(runs, store).offline
    assert [lineage.steps[0].name for lineage in found] == ["h2", "h1", "h3"]
    assert found[0].steps[0].answers
    assert found[0].reward_model.startswith(reward_model)


def test_examples_are_the_first_the_middle_and_the_last_drawn(store: Store) -> None:
    """Drawn are h2, h0, h1 and h3; of four the middle is the third. h0 was rewritten twice."""
    runs = toy_runs(seeds=[0, 1])
    write_lineage(store, runs)
    assert examples_of(runs, store) == Examples()
    write_training(store, runs)
    found = examples_of(runs, store).offline
    assert [lineage.steps[0].name for lineage in found] == ["h2", "h1", "h3"]
    whose = {(lineage.row, lineage.run) for lineage in found}
    assert whose == {("eva-a_min", f"{RUN}/micro/seed0")}
    first = found[0]
    assert [(it.name, it.how) for it in first.steps] == [("h2", "human"), ("h2.2.1", "breadth")]
    assert dict(first.steps[0].facts)["informativeness"] == "3.000"
    assert first.reward_model == "toy-1/rm_pointwise@bb"
    trained = {step.name: dict(step.facts)["trained on"] for f in found for step in f.steps}
    assert trained["h3"] == "yes"
    assert trained["h2.2.1"].startswith("no")
    answers = first.steps[1].answers
    assert [(a.text, a.reward, a.role) for a in answers] == [
        ("7 5", 1.0, ""), ("b", 3.0, "chosen"), ("c", 3.0, ""), ("d", 0.0, "rejected"),
    ]  # fmt: skip


def test_a_prompt_whose_pair_is_a_dropped_tie_was_not_trained_on(store: Store) -> None:
    toy = toy_runs(seeds=[0])
    pairs = toy.profile.pairs.model_copy(update={"drop_ties": True})
    profile = toy.profile.model_copy(update={"pairs": pairs})
    runs = toy_planned(toy.table, profile, (0,))
    tie, pair = {"reward_rejected": 1.0, "reward_chosen": 1.0}, {"reward_rejected": 0.0}
    mixed = [prompt("h2.2.1", "rewrite 2") | tie, prompt("h3", "prompt 3") | tie | pair]
    write_files(store, runs.runs[RUN, 0].iterations[-1].prompts, pairs=mixed)
    write_lineage(store, runs)
    write_training(store, runs)
    steps = [step for found in examples_of(runs, store).offline for step in found.steps]
    trained = {step.name: dict(step.facts)["trained on"] for step in steps}
    assert trained["h3"] == "yes"
    assert trained["h2.2.1"] == "no, all its answers got one reward"
    assert trained["h2"] == "no, it was left out of the mix"


def test_pictures_published_beside_tables_are_taken_over(tmp_path: Path) -> None:
    """What a folder holds is told by its report; nothing is drawn of an archive."""
    for name in ("figure12", "over-optimisation", "table4"):
        copy_published(f"micro/{name}", tmp_path)
    (tmp_path / "micro" / "figure12" / "report.md").write_text("# Another\n\n![x](../x.svg)\n")
    (figure,) = published_pictures(tmp_path / "micro", {"table4"})
    assert figure.title.startswith("Figure 12: ")
    assert figure.alt.startswith("Dots for each topic of the seed prompts")
    assert figure.findings[0].startswith("The topic with the lowest mean reward is")
    assert figure.origin == "published in results/micro/figure12/figure.svg"
    svg = (tmp_path / "micro" / "figure12" / "figure.svg").read_bytes()
    assert figure.svg() == svg
    assert figure.data.startswith("data:image/svg+xml;base64,")


def test_a_page_of_one_table_has_the_figures_of_its_rows_alone() -> None:
    """Figure 12 is drawn from table 4; what is said of the whole profile is not of one table."""
    files = {shown.origin for shown in published_pictures(results_dir() / "micro", {"table4"})}
    assert "published in results/micro/figure12/figure.svg" in files
    assert not any("over-optimisation" in file for file in files)
    none = published_pictures(results_dir() / "micro", {"table8"})
    assert not any("figure12" in shown.origin for shown in none)


def test_the_runs_in_the_appendix_have_the_seeds_that_are_there(store: Store) -> None:
    runs = toy_runs((0, 1))
    write_prompts(store, runs)
    write_scores(store, runs, "dpo-h1", 1, ah_wr={"p": 50.0, "q": 51.0})
    rows = {name: seeds for name, _, seeds, *_ in run_block([stored(runs, store)]).rows}
    assert rows["dpo-h1"] == "1"
