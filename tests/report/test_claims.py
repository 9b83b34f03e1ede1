"""Verdicts, each kind against an outcome worked out by hand."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from null_tables import (
    counted,
    judged_claims,
    null_scores,
    one_recipe_twice,
    results_of,
    simulated_nulls,
)
from scipy import stats
from toy_tables import DECLARATION

from harness.project import results_dir
from harness.registry.claims import Claim, FigureClaims, Qualitative
from harness.registry.declared import all_profiles
from harness.registry.schema import Table
from harness.report.build import without_runs
from harness.report.claims import tallies, totals
from harness.report.controls import KnownControls
from harness.report.model import Cell, Estimate, Verdict
from harness.report.publication import read_published
from harness.report.scores import Measured
from harness.report.verdicts import judge_all, judge_figures
from harness.statistics import ScoreMatrix, paired_difference

ROWS = ("a", "b", "c", "d")
CHANCE = {"a": 1, "b": 2, "c": 4, "d": 8}
SHARE = {"share": 0.25, "of": ["a", "c"]}


def claim(name: str, test: Mapping[str, Any], **fields: Any) -> dict[str, Any]:
    return {"id": name, "statement": f"{name}.", "source": "here", "test": dict(test), **fields}


def compare(left: str, op: str, right: str, **fields: Any) -> dict[str, Any]:
    if op == "within":
        fields = {"tolerance": 1.0, **fields}
    return {"kind": "compare", "left": left, "op": op, "right": right, "column": "ah_wr", **fields}


RUN = f"run-a/micro/seed0@{'0' * 12}"


def table_of(
    *claims: dict[str, Any],
    rows: Iterable[str] = ROWS,
    of_row: Callable[[str], dict[str, Any]] = lambda _: {},
    **column: Any,
) -> Table:
    """Return a table of some rows, with more fields of each, and one column, with more of its."""
    declared = [{"id": row, "label": row, "run": f"run-{row}", **of_row(row)} for row in rows]
    columns = [DECLARATION["columns"][0] | column]
    fields = {"columns": columns, "rows": declared, "claims": claims}
    return Table.model_validate(DECLARATION | fields)


def cell_of(table: Table, row: str, seeds: tuple[int, ...], **fields: Any) -> Cell:
    known = {"table": table.id, "row": row, "column": "ah_wr", "profile": "micro", "scale": "toy",
             "seeds": seeds, "state": "ok"}  # fmt: skip
    return Cell(**{**known, **fields})


def scored(
    value: Callable[[str, int, int], float],
    rows: Iterable[str] = ROWS,
    seeds: int = 3,
    prompts: int = 4,
    score: str = "ah_wr",
) -> Measured:
    """Return what a function says of each row, seed and prompt."""
    return {
        (f"run-{row}", seed, score): {f"p{p}": value(row, seed, p) for p in range(prompts)}
        for row in rows
        for seed in range(seeds)
    }


def scores_of(levels: Mapping[str, float], seeds: int = 3, scatter: float = 0.0) -> Measured:
    """Return scores of 4 prompts that all rows share but for their level, and hardly any chance.

    Each row moves up and down with the prompts by its own millionth, so that its mean stays. With a
    scatter, row b alone moves by it: up for even and down for odd seeds and prompts.
    """

    def value(row: str, seed: int, p: int) -> float:
        moved = scatter * ((-1) ** seed + (-1) ** p) if row == "b" else 0.0
        return float(levels[row] + p + 0.5 * seed + 1e-6 * CHANCE[row] * (-1) ** p + moved)

    return scored(value, levels, seeds)


def judged(
    table: Table, measured: Measured, rows: Iterable[str] = ROWS, seeds: int = 3, **more: Any
) -> list[Verdict]:
    """Judge claims of a table of which some rows were asked for; `cell` are fields of all cells."""
    fields = more.pop("cell", {})
    cells = [cell_of(table, row, tuple(range(seeds)), **fields) for row in rows]
    inadmissible = more.pop("inadmissible", {})
    return judged_claims(results_of(table, cells, measured, **more), inadmissible)


def verdicts_of(
    claims: Sequence[dict[str, Any]], measured: Measured, seeds: int = 3, **cell: Any
) -> dict[str, Verdict]:
    found = judged(table_of(*claims), measured, seeds=seeds, cell=cell)
    return {verdict.claim: verdict for verdict in found}


def of(verdict: Verdict) -> Estimate:
    assert verdict.estimate is not None
    return verdict.estimate


def verdict_of(test: Mapping[str, Any], measured: Measured, seeds: int = 3) -> Verdict:
    return verdicts_of([claim("it", test, primary=True)], measured, seeds)["it"]


def trend(*rows: str, op: str = "increasing") -> dict[str, Any]:
    return {"kind": "trend", "rows": rows, "column": "ah_wr", "op": op}


def best(row: str, among: str) -> dict[str, Any]:
    return {"kind": "best_of", "row": row, "among": list(among), "column": "ah_wr"}


RISES, FALLS, BEST = trend(*"abc"), trend(*"abc", op="decreasing"), best("b", "abc")
GAINS = {"kind": "compare_gains", "left": ["a", "b"], "right": ["c", "d"], "column": "ah_wr"}
SHARED = "the margin is 1, 0.25 of the gain of `a` over `c`"
NO_GAIN = "`a` gains nothing over `c` here, so that the margin is 0"


@pytest.mark.parametrize(
    ("test", "levels", "expected", "margins", "reason"),
    [
        # A comparison goes by the sign of the difference, as sure as can be.
        (compare("a", ">", "b"), (10.0, 9.0), "supported", [1.0], None),
        (compare("a", ">", "b"), (10.0, 11.0), "contradicted", [-1.0], None),
        (compare("a", ">", "b"), (10.0, 10.0), "inconclusive", [0.0], "not significant"),
        (compare("a", "<", "b"), (10.0, 11.0), "supported", [-1.0], None),
        (compare("a", "<", "b"), (10.0, 9.0), "contradicted", [1.0], None),
        # The gain of a (10) over c (6) is 4, a quarter of it 1: one apart or less.
        (compare("a", "within", "b", margin=SHARE), (10, 10.5, 6), "supported", [-0.5], SHARED),
        (compare("a", "within", "b", margin=SHARE), (10, 9.5, 6), "supported", [0.5], SHARED),
        (compare("a", "within", "b", margin=SHARE), (10, 11.5, 6), "contradicted", [-1.5], SHARED),
        (compare("a", "within", "b", margin=SHARE), (10, 8.5, 6), "contradicted", [1.5], SHARED),
        (compare("a", ">=", "b", margin=SHARE), (10, 10.5, 6), "supported", [-0.5], SHARED),
        (compare("a", ">=", "b", margin=SHARE), (10, 8.0, 6), "supported", [2.0], SHARED),
        (compare("a", ">=", "b", margin=SHARE), (10, 11.5, 6), "contradicted", [-1.5], SHARED),
        # A margin in points is the same at any gain.
        (compare("a", "within", "b", margin={"points": 2.0}), (10, 11.5), "supported", [-1.5],
         "the margin is 2"),
        (compare("a", "within", "b", margin={"points": 2.0}), (10, 12.5), "contradicted", [-2.5],
         "the margin is 2"),
        # A loses 2 to c: nothing may be lost, and no more than no loss is asked for.
        (compare("a", ">=", "b", margin=SHARE), (10, 10.1, 12), "contradicted", [-0.1], NO_GAIN),
        (compare("a", ">=", "b", margin=SHARE), (10, 9.7, 12), "supported", [0.3], NO_GAIN),
        # A trend needs every step; its margin is that of a weakest one, of which there can be two.
        (RISES, (1.0, 2.0, 4.0), "supported", [1.0, 2.0], "the weakest of 2"),
        (RISES, (1.0, 3.0, 2.5), "contradicted", [-0.5], "the weakest of 2"),
        (FALLS, (4.0, 2.0, 1.0), "supported", [-1.0, -2.0], "the weakest of 2"),
        (FALLS, (4.0, 2.0, 2.0), "inconclusive", [0.0], "the weakest of 2"),
        # The best is above every other.
        (BEST, (2.0, 3.0, 1.0), "supported", [1.0, 2.0], "the weakest of 2: `b` over `"),
        (BEST, (2.0, 1.5, 1.0), "contradicted", [-0.5], "the weakest of 2: `b` over `a`"),
        # Gains are compared by the difference of differences: (10 - 6) - (9 - 8) = 3.
        (GAINS | {"op": ">"}, (10.0, 6.0, 9.0, 8.0), "supported", [3.0], None),
        (GAINS | {"op": "<"}, (10.0, 6.0, 9.0, 8.0), "contradicted", [3.0], None),
    ],
)  # fmt: skip
def test_a_claim_is_decided_by_what_it_states(
    test: dict[str, Any],
    levels: Sequence[float],
    expected: str,
    margins: list[float],
    reason: str | None,
) -> None:
    verdict = verdict_of(test, scores_of(dict(zip("abcd", levels, strict=False))))
    assert verdict.word == expected
    assert any(of(verdict).mean == pytest.approx(margin, abs=1e-5) for margin in margins)
    assert (of(verdict).low, of(verdict).high) == pytest.approx((of(verdict).mean,) * 2, abs=1e-4)
    assert (verdict.reason or "").startswith(reason or "")
    assert (verdict.reason is None) == (reason is None)
    decided = verdict.word != "inconclusive"
    assert verdict.p == pytest.approx(0.0 if decided else 1.0, abs=1e-4)


def test_the_numbers_of_a_comparison_by_hand() -> None:
    """Two seeds, four prompts, row b moved by {+1, -1} over seeds and {+1, -1} over prompts.

    The difference b - a is 5 + s + p. MS_seed = 4 (1 + 1) / 1 = 8, MS_prompt = 2 * 4 / 3 = 8/3,
    MS_error = 0, so the variance is (8 + 8/3) / 8 = 4/3. The seeds' share is 3/4, and
    df = 1 / (0.75 / 1 + 0.25 / 3) = 1.2.
    """
    measured = scores_of({"a": 10.0, "b": 15.0}, seeds=2, scatter=1.0)
    verdict = verdict_of(compare("b", ">", "a"), measured, seeds=2)
    error = math.sqrt(4.0 / 3.0)
    assert of(verdict).mean == pytest.approx(5.0)
    assert verdict.p == pytest.approx(2.0 * stats.t.sf(5.0 / error, 1.2))
    assert verdict.p_adjusted == verdict.p
    assert of(verdict).low == pytest.approx(5.0 - stats.t.ppf(0.975, 1.2) * error)
    quantiles = stats.t.ppf(0.975, 1.2) + stats.t.ppf(0.8, 1.2)
    assert of(verdict).detectable == pytest.approx(quantiles * error)
    assert verdict.word == "inconclusive"
    assert verdict.reason is not None
    assert verdict.reason.startswith("not significant (p = ")
    found = f"{quantiles * error:.3g} would have been found"
    assert verdict.reason.endswith(f"; level 0.05); {found}")


def test_equivalence_is_two_one_sided_tests() -> None:
    """The same scatter, b 5 above a, and a margin of 6 points: the closer side is 1 away."""
    measured = scores_of({"a": 10.0, "b": 15.0}, seeds=2, scatter=1.0)
    verdict = verdict_of(compare("b", "within", "a", margin={"points": 6.0}), measured, seeds=2)
    error = math.sqrt(4.0 / 3.0)
    assert of(verdict).mean == pytest.approx(5.0)
    assert verdict.p == pytest.approx(2.0 * stats.t.sf(1.0 / error, 1.2))
    quantiles = stats.t.ppf(0.975, 1.2) + stats.t.ppf(0.9, 1.2)
    assert of(verdict).detectable == pytest.approx(quantiles * error)


def test_the_primary_claim_stands_alone_and_the_others_share_one_level() -> None:
    """Holm over three claims, of which one has not run and counts as 1.

    One p-value p for b - a in either direction; the smaller of the two equal ones is taken times
    three, the next times two and no less than that.
    """
    claims = [
        claim("first", compare("b", ">", "a"), primary=True),
        claim("second", compare("b", ">", "a")),
        claim("third", compare("a", "<", "b")),
        claim("absent", compare("c", ">", "a")),
    ]
    measured = scores_of({"a": 10.0, "b": 25.0}, seeds=3, scatter=1.0)
    found = {v.claim: v for v in judged(table_of(*claims), measured, "ab")}
    p: Any = found["first"].p
    assert found["first"].p_adjusted == p
    assert found["second"].p == found["third"].p == pytest.approx(p)
    assert found["second"].p_adjusted == found["third"].p_adjusted == pytest.approx(3.0 * p)
    assert found["absent"].word == "not_run"
    assert found["absent"].p_adjusted is None
    first, second = of(found["first"]).detectable, of(found["second"]).detectable
    assert (second or 0.0) > (first or 0.0) > 0.0


def test_a_p_value_that_was_corrected_is_called_adjusted() -> None:
    test = compare("a", ">", "b")
    claims = [claim("first", test, primary=True), claim("second", test)]
    found = verdicts_of(claims, scores_of({"a": 10.0, "b": 10.0}))
    first, second = (found[name].reason or "" for name in ("first", "second"))
    assert first.startswith("not significant (p = 1; level 0.05); ")
    assert second.startswith("not significant (adjusted p = 1; level 0.05); ")


def test_one_seed_decides_nothing() -> None:
    """A less b is 7, 9, 7, 9: the interval is over prompts, 2 / sqrt(3) / sqrt(4) = 0.577 wide."""
    measured = scores_of({"a": 10.0, "b": 1.0}, seeds=1, scatter=1.0)
    verdict = verdict_of(compare("a", ">", "b"), measured, seeds=1)
    assert verdict.word == "inconclusive"
    assert verdict.reason == "one seed: how much seeds differ is unknown"
    half = stats.t.ppf(0.975, 3) / math.sqrt(3.0)
    numbers = (of(verdict).mean, of(verdict).low, of(verdict).high)
    assert numbers == pytest.approx((8.0, 8.0 - half, 8.0 + half), abs=1e-5)
    assert (verdict.p, of(verdict).detectable) == (None, None)


def test_a_claim_of_several_statements_needs_what_the_least_sure_of_them_needs() -> None:
    """B less c is as sure as can be, b less a scatters as in the comparison by hand above."""
    measured = scores_of({"a": 10.0, "b": 15.0}, seeds=2, scatter=1.0)
    scores = {f"p{p}": value - 99.0 for p, value in enumerate((17.0, 15.0) * 2)}
    for seed in (0, 1):
        of_b = measured["run-b", seed, "ah_wr"]
        measured["run-c", seed, "ah_wr"] = {p: v - 9.0 + 1e-6 * scores[p] for p, v in of_b.items()}
    declared = claim("it", BEST, primary=True, paper_margin=("+1.0", "+1.0"))
    verdict = verdicts_of([declared], measured, seeds=2)["it"]
    quantiles = stats.t.ppf(0.975, 1.2) + stats.t.ppf(0.8, 1.2)
    assert of(verdict).detectable == pytest.approx(quantiles * math.sqrt(4.0 / 3.0))
    assert verdict.word == "inconclusive"
    assert (verdict.reason or "").startswith("the weakest of 2: `b` over `a`; not significant (")


def test_what_no_score_decides_says_why_or_where_it_is_measured() -> None:
    claims = [
        claim("drawn", {"kind": "qualitative", "reason": "A drawing."}),
        claim("elsewhere", {"kind": "qualitative", "measured_by": ["other"]}),
    ]
    found = verdicts_of(claims, {})
    assert [(it.word, it.reason) for it in found.values()] == [
        ("not_run", "A drawing."),
        ("not_run", "the claims that measure it belong to other tables"),
    ]


@pytest.mark.parametrize(
    ("unit", "mean", "end"),
    [
        ("%", 1.0, "bottom"), ("%", 1.125, None), ("%", 98.875, None), ("%", 99.0, "top"),
        ("1-10", 1.0625, "bottom"), ("1-10", 1.09375, None),
        ("1-10", 9.90625, None), ("1-10", 9.9375, "top"), ("words", 0.0, None),
    ],
)  # fmt: skip
def test_the_end_of_a_scale_is_a_hundredth_of_it(unit: str, mean: float, end: str | None) -> None:
    """Of 0 to 100 the ends are 0 to 1 and 99 to 100, of 1 to 10 they are 1 to 1.09 and 9.91 to 10.

    Two rows swing about one mean, a the other way round than b.
    """
    table = table_of(claim("it", compare("a", ">", "b"), primary=True), unit=unit)
    sign = {"a": 1, "b": -1}
    measured = scored(lambda row, _, p: mean + sign[row] * (-1) ** p / 32, sign, seeds=2)
    (verdict,) = judged(table, measured, "ab", seeds=2)
    said = f"the rows compared all stand at the {end} of the scale"
    assert (verdict.word == "inadmissible") == (end is not None)
    assert (verdict.reason == said) == (end is not None)


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"state": "not_run"}, "`a` in `ah_wr` has not run"),
        ({"state": "partial", "runs": (RUN,)}, "`a` in `ah_wr` has 1 of 3 seeds"),
        ({"state": "failed", "reason": "no disk"}, "`a` in `ah_wr` failed: no disk"),
        ({"state": "failed"}, "`a` in `ah_wr` failed"),
        ({"state": "not_available", "reason": "no key"}, "`a` in `ah_wr` is not available: no key"),
        ({"state": "not_available"}, "`a` in `ah_wr` is not available"),  # as published
    ],
)
def test_what_is_missing_is_said(fields: dict[str, Any], reason: str) -> None:
    claims = [claim("it", compare("a", ">", "b"), primary=True, paper_margin="+1.0")]
    verdict = verdicts_of(claims, {}, **fields)["it"]
    assert (verdict.word, verdict.reason) == ("not_run", reason)
    assert verdict.paper_margin == "+1.0"
    assert verdict.estimate is None


def test_a_score_that_no_benchmark_yields_is_missing_at_the_profile() -> None:
    table = table_of(claim("it", compare("a", ">", "b"), primary=True), score="if_soft")
    (verdict,) = judged(table, {}, cell={"state": "not_available"})
    assert verdict.reason == "the profile has no benchmark that yields `ah_wr`"


def test_rows_that_cannot_run_say_why() -> None:
    drawn = claim("drawn", {"kind": "qualitative", "reason": "A drawing."})
    table = table_of(claim("it", compare("a", ">", "b"), primary=True), drawn)
    known = KnownControls(all_profiles()["micro"], None)
    it, other = without_runs(table, known, "no such model", {}).verdicts
    assert (it.word, it.scale, it.reason) == ("not_run", "toy", "no such model")
    assert (other.word, other.reason) == ("not_run", "A drawing.")


def verdict_in_words(word: str, scale: str = "toy", **fields: Any) -> Verdict:
    known = {"claim": "it", "place": "table90", "statement": "s", "primary": False, "word": word}
    return Verdict.model_validate(known | {"scale": scale} | fields)


OURS = {"mean": 1.0, "low": 0.5, "high": 1.5}


@pytest.mark.parametrize(
    ("word", "scale", "fields", "text"),
    [
        ("supported", "toy", {"estimate": OURS}, "supported (toy)"),
        ("contradicted", "reduced", {"estimate": OURS}, "contradicted (reduced)"),
        ("supported", "paper", {"estimate": OURS}, "supported"),
        ("not_run", "toy", {}, "not run"),
        ("supported", "paper", {"marks": [{"word": "trivial", "because": "so"}]},
         "supported (trivial)"),
        ("inconclusive", "toy", {"estimate": OURS, "excludes": "the claim"},
         "inconclusive (toy, excludes the claim)"),
    ],
)  # fmt: skip
def test_a_verdict_names_the_scale_what_is_excluded_and_its_marks(
    word: str, scale: str, fields: dict[str, Any], text: str
) -> None:
    assert verdict_in_words(word, scale, **fields).text == text


MARK = {"word": "tuned against", "because": "so", "at": ["micro"]}


def test_a_mark_holds_at_its_profiles_and_what_the_paper_prints_otherwise_is_one() -> None:
    marked = claim("it", compare("a", ">", "b"), marks=[MARK], primary=True)
    (it,) = table_of(marked).claims
    assert [mark.word for mark in it.marks_at("micro")] == ["tuned against"]
    assert it.marks_at("other") == ()
    (it,) = table_of(marked | {"paper_margin": "-0.5", "holds_in_paper": False}).claims
    assert [mark.because for mark in it.marks_at("other")] == ["the paper prints -0.5"]


def test_marked_claims_are_counted_apart_and_once() -> None:
    marks = [{"word": "trivial", "because": "so"}, {"word": "repeats", "because": "so"}]
    verdicts = [
        verdict_in_words("supported"),
        verdict_in_words("inconclusive", excludes="an effect of the paper's size"),
        verdict_in_words("inconclusive"),
        verdict_in_words("supported", marks=marks),
        verdict_in_words("contradicted", marks=marks[1:]),
    ]
    free, trivial, repeats = tallies(verdicts)
    assert (free.mark, trivial.mark, repeats.mark) == (None, "trivial", "repeats")
    assert (free.words["supported"], free.words["inconclusive"], free.excludes_size) == (1, 2, 1)
    assert totals(verdicts) == [
        "3 claims of 5 without a mark: 1 supported, 0 contradicted, 2 inconclusive (1 excludes an "
        "effect of the paper's size)",
        "1 trivial: 1 supported, 0 contradicted",
        "1 repeats: 0 supported, 1 contradicted",
    ]


class Judged:
    """The results of a table with some verdicts, as the claims about figures read them."""

    table = SimpleNamespace(id="table90")

    def __init__(self, *verdicts: Verdict) -> None:
        self.verdicts = verdicts


def test_a_figure_is_judged_by_the_claims_that_measure_it() -> None:
    declared = FigureClaims.model_validate({
        "noise": {},
        "figures": [{"id": "figure90", "claims": [
            claim("both", {"kind": "qualitative", "measured_by": ["x", "y"]}),
            claim("none", {"kind": "qualitative", "reason": "A drawing."}),
        ]}],
    })  # fmt: skip
    x = verdict_in_words("supported", claim="x")
    for word in ("supported", "inconclusive", "not_run", "contradicted", "inadmissible"):
        report: Any = Judged(x, verdict_in_words(word, claim="y"))
        both, none = judge_figures(declared, [report], "micro", "toy")
        assert (both.word, both.place) == (word, "figure90")
        assert (none.word, none.reason) == ("not_run", "A drawing.")


def test_a_figure_can_compare_the_rows_of_a_table() -> None:
    """That a is above b and c, judged as a table's claims are; without the table it has not run."""
    it = claim("it", best("a", "abc"))
    declared = FigureClaims.model_validate(
        {"figures": [{"id": "figure90", "table": "table90", "claims": [it]}]}
    )
    table, measured = table_of(), scores_of({"a": 9.0, "b": 8.0, "c": 7.0})

    class Compared(Judged):
        def judge(self, claims: Sequence[Claim], place: str) -> Sequence[Verdict]:
            cells = [cell_of(table, row, (0, 1, 2)) for row in "abc"]
            return judge_all(results_of(table, cells, measured), claims, place, {})

    report: Any = Compared()
    (verdict,) = judge_figures(declared, [report], "micro", "toy")
    assert (verdict.word, verdict.place, of(verdict).mean > 0.9) == ("supported", "figure90", True)
    (verdict,) = judge_figures(declared, [], "micro", "toy")
    assert (verdict.word, verdict.reason) == ("not_run", "`table90` has not run")


levels = st.lists(st.floats(10.0, 90.0), min_size=4, max_size=4)
noise = st.lists(st.floats(-3.0, 3.0), min_size=48, max_size=48)


def noisy(levels: Sequence[float], noise: Sequence[float]) -> Measured:
    values, level = iter(noise), dict(zip(ROWS, levels, strict=True))
    return scored(lambda row, _, p: level[row] + next(values) + CHANCE[row] * (-1) ** p / 100)


@settings(max_examples=15)
@given(levels, noise)
def test_a_claim_and_its_mirror_image_agree(levels: list[float], noise: list[float]) -> None:
    """`a > b` and `b < a` are one claim, and `b > a` is its opposite."""
    measured = noisy(levels, noise)
    one = verdict_of(compare("a", ">", "b"), measured)
    same = verdict_of(compare("b", "<", "a"), measured)
    other = verdict_of(compare("b", ">", "a"), measured)
    assert one.word == same.word
    assert of(same).mean == -of(one).mean
    assert one.p == same.p == other.p
    swapped = {"supported": "contradicted", "contradicted": "supported"}
    assert other.word == swapped.get(one.word, one.word)


@settings(max_examples=15)
@given(levels, noise)
def test_a_wider_margin_never_makes_rows_less_alike(
    levels: list[float], noise: list[float]
) -> None:
    measured = noisy(levels, noise)
    words = [
        verdict_of(compare("a", "within", "b", margin={"points": points}), measured).word
        for points in (0.5, 2.0, 8.0, 200.0)
    ]
    order = {"contradicted": 0, "inconclusive": 1, "supported": 2}
    assert [order[word] for word in words] == sorted(order[word] for word in words)


@settings(max_examples=15)
@given(levels, noise)
def test_correction_never_helps_and_stays_a_probability(
    levels: list[float], noise: list[float]
) -> None:
    verdict: Any
    for verdict in verdicts_of(KINDS, noisy(levels, noise)).values():
        assert 0.0 <= verdict.p <= verdict.p_adjusted <= 1.0
        assert (verdict.word == "inconclusive") == (verdict.p_adjusted >= 0.05)
        assert (of(verdict).detectable or 0.0) >= 0.0


@pytest.mark.parametrize("nested", [False, True])
@pytest.mark.parametrize("seeds", [1, 2, 3])
@pytest.mark.parametrize("op", [">", "within"])
def test_where_nothing_varies_nothing_is_tested(op: str, seeds: int, nested: bool) -> None:
    """Each row has one score for every prompt and seed, 0.1 apart: chance was not measured."""
    score = "complexity" if nested else "ah_wr"
    margin = {"margin": {"points": 1.0}} if op == "within" else {}
    table = table_of(claim("it", compare("a", op, "b", **margin), primary=True), score=score)
    levels = {"a": 30.3, "b": 30.2}
    measured = scored(lambda row, *_: levels[row], levels, seeds, score=score)
    (verdict,) = judged(table, measured, "ab", seeds)
    assert (verdict.word, verdict.estimate, verdict.p) == ("inadmissible", None, None)
    assert verdict.reason == (
        "the difference is the same for every prompt and seed, so that chance was not measured: it "
        "is 0.1"
    )


KINDS = [
    claim("compare", compare("a", ">", "b"), primary=True),
    claim("gains", GAINS | {"op": "<"}),
    claim("trend", RISES),
    claim("best", best("a", "abcd")),
    claim("not-below", compare("a", ">=", "b", margin=SHARE)),
    claim("alike", compare("c", "within", "d", margin=SHARE)),
]


@settings(max_examples=30)
@given(
    st.sampled_from([0.0, 0.1, 100.0 / 3.0, 100.0]), st.sampled_from(KINDS), st.integers(1, 4),
    st.booleans(), st.data(),
)  # fmt: skip
def test_rows_at_the_end_of_a_scale_are_not_told_apart(
    end: float, kind: dict[str, Any], seeds: int, nested: bool, data: st.DataObject
) -> None:
    """Every score that a claim compares is one number: nothing is shown, whatever it says.

    One other score among them makes it a claim like any other again, if it is in every margin. What
    a margin is a share of is not compared, and may be anything.
    """
    score = "complexity" if nested else "ah_wr"
    table = table_of(claim("it", kind["test"], primary=True), score=score)
    measured = scored(lambda *_: end, ROWS, seeds, 7, score)
    (verdict,) = judged(table, measured, seeds=seeds)
    assert (verdict.word, verdict.text) == ("inadmissible", "inadmissible")
    assert (verdict.estimate, verdict.p, verdict.p_adjusted) == (None, None, None)
    assert verdict.reason is not None
    assert f"it is {end:g} for every prompt and seed" in verdict.reason

    declared = table.claims[0].test
    assert not isinstance(declared, Qualitative)
    compared = {row for shown in declared.shown for _, (row, _) in shown.terms}
    away = 50.0 if end < 50.0 else -50.0
    for row in sorted({*ROWS} - compared):
        measured[f"run-{row}", 0, score]["p3"] += away
    assert judged(table, measured, seeds=seeds) == [verdict]
    row = data.draw(st.sampled_from(sorted(compared)))
    measured[f"run-{row}", data.draw(st.integers(0, seeds - 1)), score]["p3"] += away
    (verdict,) = judged(table, measured, seeds=seeds)
    if all(row in {name for _, (name, _) in shown.terms} for shown in declared.shown):
        assert verdict.word not in ("inadmissible", "not_run")
    else:
        assert verdict.word == "inadmissible"


def around(a: float, b: float, noise: float, step: float = 1e-3, **others: float) -> Measured:
    """Return three seeds of 8 prompts; those of row a lie so far below, at and above its level.

    The prompts of the other rows are a step apart.
    """
    level = {"a": a, "b": b} | others

    def value(row: str, seed: int, p: int) -> float:
        moved = noise * (seed - 1) if row == "a" else 0.0
        return level[row] + moved + p * (step if row in others else 1e-3)

    return scored(value, level, prompts=8)


IN_UNITS = claim("it", compare("a", ">", "b"), primary=True, paper_margin="+2.0")
"""That a, which is over c, beats b, by 2 points in the paper."""


def measured_by(paper: Mapping[str, str], it: Mapping[str, Any] = IN_UNITS) -> Table:
    """Return a table of rows over c with one claim."""

    def of_row(row: str) -> dict[str, Any]:
        printed = {"ah_wr": paper[row]} if row in paper else {}
        return {"baseline": None if row == "c" else "c", "values": printed}

    return table_of(dict(it), of_row=of_row)


PAPER = {"a": "58.0", "b": "56.0", "c": "50.0"}
"""The margin, 2.0, is a quarter of the gain of a over c, 8.0."""


def judged_in_units(
    a: float, b: float, c: float, noise: float, paper: Mapping[str, str] = PAPER, **more: Any
) -> Verdict:
    scores = {} if more.pop("nothing", False) else around(a, b, noise, c=c)
    (found,) = judged(measured_by(paper), scores, "abc", **more)
    return found


@settings(max_examples=25)
@given(st.floats(30.0, 70.0), st.floats(4.0, 20.0))
def test_each_verdict_can_come_out_each_way(level: float, gain: float) -> None:
    """One claim, that a is above b; what there is decides which verdict.

    The difference of the seeds is -n, 0 and n, so that its standard error is n / sqrt(3) with two
    degrees of freedom, and its interval 4.30 / sqrt(3) = 2.48 n wide on either side. The paper's
    size is a quarter of our gain: with n = gain / 10.1 it is excluded, with n = gain / 9.8 it is
    not.
    """

    def verdict(a: float, b: float, noise: float, **more: Any) -> Verdict:
        return judged_in_units(a, b, level - gain, noise, **more)

    small = gain / 50.0
    assert verdict(level + gain, level, small).word == "supported"
    assert verdict(level - gain / 2, level, small).word == "contradicted"
    for noise, excludes in ((gain / 10.1, "an effect of the paper's size"), (gain / 9.8, None)):
        found = verdict(level, level, noise)
        assert (found.word, found.excludes) == ("inconclusive", excludes)
    ran = {"state": "not_run"}
    assert verdict(level, level, small, nothing=True, cell=ran).word == "not_run"
    for end in (0.2, 99.8):
        assert verdict(end, end, 1e-3).word == "inadmissible"
    same = {"runs": (RUN,)}
    assert verdict(level + gain, level, small, cell=same).word == "inadmissible"
    # A claim is admissible or not whatever its scores say.
    for a in (level + gain, level - gain, level):
        barred = verdict(a, level, small, inadmissible={"it": "no controls have run"})
        assert (barred.word, barred.reason) == ("inadmissible", "no controls have run")
        assert barred.p is not None
        assert barred.text == "inadmissible"
        other = verdict(a, level, small, inadmissible={"another": "no controls have run"})
        assert other.word not in ("inadmissible", "not_run")


def test_the_paper_s_margin_is_a_share_of_its_gain_and_sought_of_ours() -> None:
    """2.0 of 8.0 is a quarter; our gain is 4, so 1 is sought; with n = 1 3.1 would be found."""
    verdict = judged_in_units(44.0, 44.0, 40.0, 1.0)
    assert (verdict.word, verdict.excludes, verdict.sought) == ("inconclusive", None, 1.0)
    assert of(verdict).detectable == pytest.approx((4.3027 + 1.0607) / math.sqrt(3.0), rel=1e-4)
    assert verdict.reason == (
        "not significant (p = 1; level 0.05); 3.1 would have been found; the paper's margin is "
        "0.25 of the gain of `a` over `c`, and as much of ours (+4) is 1"
    )
    small = judged_in_units(44.0, 44.0, 43.5, 1.0)
    assert "as much of ours (+0.5) is 0.125" in (small.reason or "")
    excluded = judged_in_units(44.0, 44.0, 30.0, 1.0)
    assert "not adjusted, excludes an effect of the paper's size" in (excluded.reason or "")


def test_an_interval_that_excludes_the_claim_says_so_though_it_is_not_decided() -> None:
    """Three claims share one level; one below zero by 3 standard errors is not enough for Holm."""
    claims = [claim(f"it-{i}", compare("a", ">", "b")) for i in range(20)]
    claims.append(claim("first", compare("b", ">", "a"), primary=True))
    measured = around(44.0, 46.6, 1.0)
    found = {v.claim: v for v in judged(table_of(*claims), measured, "ab")}
    it = found["it-0"]
    assert (it.word, it.excludes, of(it).high < 0.0) == ("inconclusive", "the claim", True)
    alike = compare("a", "within", "b", margin={"points": 0.1})
    claims = [claim(f"it-{i}", alike) for i in range(20)] + claims[-1:]
    it = {v.claim: v for v in judged(table_of(*claims), measured, "ab")}["it-0"]
    assert (it.word, it.excludes) == ("inconclusive", "the claim")


def test_an_effect_that_the_paper_prints_the_other_way_has_no_size() -> None:
    it = IN_UNITS | {"paper_margin": "-2.0", "holds_in_paper": False}
    (verdict,) = judged(measured_by(PAPER, it), around(44.0, 44.0, 1.0, c=40.0), "abc")
    assert verdict.sought is None
    assert "the paper's own numbers go the other way" in (verdict.reason or "")
    assert [mark.word for mark in verdict.marks] == ["printed otherwise"]


def test_without_the_baseline_s_score_there_is_no_unit_and_the_reason_is_said() -> None:
    table = measured_by(PAPER)
    cells = [cell_of(table, row, (0, 1, 2)) for row in "ab"]
    cells.append(cell_of(table, "c", (0, 1, 2), state="not_run"))
    (verdict,) = judged_claims(results_of(table, cells, around(44.0, 44.0, 1.0)))
    assert verdict.word == "inconclusive"
    assert "a share of the gain of `a` over `c`: " in (verdict.reason or "")


def test_without_another_gain_the_paper_s_margin_has_no_size() -> None:
    declared = claim("it", compare("b", ">", "a"), primary=True, paper_margin="+1.7")
    measured = scores_of({"a": 10.0, "b": 10.0}, seeds=2, scatter=1.0)
    verdict = verdicts_of([declared], measured, seeds=2)["it"]
    assert (verdict.word, verdict.sought) == ("inconclusive", None)
    said = "the paper prints no other gain that its margin is a share of"
    assert said in (verdict.reason or "")


def test_one_seed_of_a_claim_that_is_inadmissible_is_inadmissible() -> None:
    table = table_of(claim("it", compare("a", ">", "b"), primary=True))
    scores = scores_of({"a": 10.0, "b": 9.0}, seeds=1)
    (verdict,) = judged(table, scores, seeds=1, inadmissible={"it": "no controls"})
    assert verdict.word == "inadmissible"
    assert verdict.reason == "no controls"


@pytest.mark.parametrize("asked", ["abcde", "ac"])
def test_a_pair_has_one_interval_whatever_rows_stand_beside_it(asked: str) -> None:
    rng = np.random.default_rng(3)
    table = table_of(
        claim("it", compare("a", ">", "c"), primary=True),
        rows="abcde",
        of_row=lambda row: {"baseline": "c" if row in "abe" else None},
    )
    matrices = {row: ScoreMatrix.of(50.0 + rng.normal(size=(3, 1)) + rng.normal(size=(3, 20)))
                for row in "abcde"}  # fmt: skip
    scores = scored(lambda *at: float(matrices[at[0]].values[at[1:]]), matrices, prompts=20)
    (verdict,) = judged(table, scores, asked)
    shown = paired_difference(matrices["a"], matrices["c"])
    assert (of(verdict).low, of(verdict).high) == pytest.approx((shown.low, shown.high))


@pytest.mark.parametrize(
    ("c", "paper", "why"),
    [
        (44.0, {}, "which is not above zero here (+0)"),
        (45.0, {}, "which is not above zero here (-1)"),
        (4.0, {"a": "50.0"}, "in the paper is not above zero, and nothing is a share of it"),
        (4.0, {"a": "49.0"}, "in the paper is not above zero, and nothing is a share of it"),
        (4.0, {"a": "50.1"}, "in the paper is not above zero, and nothing is a share of it"),
    ],
)
def test_without_a_gain_to_take_a_share_of_the_paper_s_effect_has_no_size(
    c: float, paper: dict[str, str], why: str
) -> None:
    """Two numbers rounded to 0.1 may be 0.1 apart by their rounding alone.

    With n = 0.01 and a gain of 40 any share would be found.
    """
    verdict = judged_in_units(44.0, 44.0, c, 0.01, PAPER | paper)
    assert (verdict.word, verdict.sought) == ("inconclusive", None)
    assert why in (verdict.reason or "")
    assert judged_in_units(44.0, 44.0, 4.0, 0.01, PAPER | {"a": "50.2"}).sought is not None


@pytest.mark.parametrize(
    ("test", "margin", "printed", "said"),
    [
        # That a beats c, its baseline, is measured by the larger of the others' gains: b's 6, not
        # d's, which is 1, or which the paper does not print. C as a baseline has none either.
        (compare("a", ">", "c"), "+8.0", {"d": "51.0"}, "1.3 of the gain of `b` over `c`"),
        (compare("a", ">", "c"), "+8.0", {}, "1.3 of the gain of `b` over `c`"),
        (compare("c", "<", "a"), "-8.0", {}, "1.3 of the gain of `b` over `c`"),
        (compare("c", ">", "a"), "+8.0", {"d": "51.0"}, "1.3 of the gain of `b` over `c`"),
        # Two gains are measured by the one said to be larger, a's 8.0: (1.9 - 0.2) / 8 = 0.21.
        (GAINS | {"left": ["a", "c"], "op": ">", "right": ["b", "c"]}, "+1.9 against +0.2", {},
         "0.21 of the gain of `a` over `c`"),
        (GAINS | {"left": ["b", "c"], "op": "<", "right": ["a", "c"]}, "+0.2 against +1.9", {},
         "0.21 of the gain of `a` over `c`"),
        # Of several printed margins the smallest has to be found: 2 of a's 8.0.
        (trend("d", "b", "a"), ("+5.0", "+2.0"), {}, "0.25 of the gain of `a` over `c`"),
    ],
)  # fmt: skip
def test_what_the_paper_s_margin_is_a_share_of(
    test: dict[str, Any], margin: str | tuple[str, ...], printed: dict[str, str], said: str
) -> None:
    it = claim("it", test, primary=True, paper_margin=margin)
    measured = around(44.0, 50.0, 20.0, 1 / 7, c=40.0, d=40.0)
    (verdict,) = judged(measured_by(PAPER | printed, it), measured)
    assert f"margin is {said}" in (verdict.reason or "")


def test_where_nothing_differs_at_most_one_verdict_in_twenty_is_reached() -> None:
    """A table with a claim of each kind, simulated 80 times; the primary one is not corrected."""
    found = simulated_nulls([table_of(*KINDS)], 80, root=11)
    (judged, decided), (primary, of_primary) = counted(found).values()
    assert judged == len(found) == 480
    assert decided <= 0.05 * judged
    assert of_primary <= 0.1 * primary


@pytest.mark.parametrize("each", [2, 3])
def test_one_recipe_under_two_names_is_rarely_told_apart(each: int) -> None:
    """The published scores of table 4: ten seeds of each run, dealt six times to two names.

    54 primary claims of which 5% are decided come to 7 or more in 2% of cases.
    """
    report, measured = read_published(results_dir() / "micro" / "table4")
    found = one_recipe_twice(measured, report.seeds, each, deals=6)
    (judged, decided), (_, of_primary) = counted(found).values()
    assert judged == 9 * 5 * 6
    assert decided <= 0.05 * judged
    assert of_primary <= 6


def test_a_difference_that_is_there_is_found_by_the_same_code() -> None:
    """A control: the same simulation with one row above the others is not inconclusive."""
    table = table_of(claim("it", compare("a", ">", "b"), primary=True))
    measured = null_scores(table, 5, 40, np.random.default_rng(4))
    for seed in range(5):
        for prompt in measured["run-a", seed, "ah_wr"]:
            measured["run-a", seed, "ah_wr"][prompt] += 2.0
    assert verdict_of(compare("a", ">", "b"), measured, seeds=5).word == "supported"
