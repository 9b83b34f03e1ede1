"""The answer: what the runs say, in a few lines; one on every surface."""

import re
from dataclasses import replace
from typing import Any

import pytest

from harness.project import project_root, results_dir
from harness.registry.declared import all_profiles, all_tables, named_profile
from harness.registry.paper import the_paper
from harness.registry.profile import table_at
from harness.report.answer import Answer, Compared, answer_to
from harness.report.build import published_tables, without_runs
from harness.report.controls import KnownControls
from harness.report.model import Estimate
from harness.report.render import escape
from harness.report.results import Results


@pytest.mark.parametrize(
    ("low", "high", "text"),
    [
        (1.0, 3.0, "+2.0 (+1.0 to +3.0) against b, better"),
        (-3.0, -1.0, "-2.0 (-3.0 to -1.0) against b, worse"),
        (-1.0, 1.0, "+0.0 (-1.0 to +1.0) against b, no difference seen"),
    ],
)
def test_a_comparison_is_better_or_worse_if_its_interval_excludes_zero(
    low: float, high: float, text: str
) -> None:
    own = Estimate(mean=(low + high) / 2, low=low, high=high)
    places: dict[str, Any] = {"over": "b", "left": ("t/a",), "right": "t/b", "seeds": (0, 1)}
    assert Compared(**places, estimate=own).text == text


def test_what_answers_the_paper_is_declared_in_its_tables() -> None:
    """The rows are checked when tables are loaded."""
    tables, profiles = all_tables(), all_profiles()
    for profile, answer in the_paper().answers.items():
        assert profile in profiles
        for line in answer.lines:
            for it in line.comparisons:
                for ref in (*it.left, it.right):
                    shown = table_at(tables[ref.partition("/")[0]], profiles[profile])
                    assert shown.column(answer.column).reads == answer.column


ANSWERED = [
    name
    for name in sorted(the_paper().answers)
    if any((results_dir() / name).glob("*/report.json"))
]
"""Profiles of which anything is published; an answer is declared before its rows are run."""


@pytest.fixture(scope="module", params=ANSWERED)
def published(request: pytest.FixtureRequest) -> tuple[Results, ...]:
    profile, results = named_profile(request.param), results_dir()
    needed = the_paper().answers[profile.name].tables
    tables = [table_at(all_tables()[name], profile) for name in needed]
    return published_tables(tables, profile, results)


@pytest.fixture(scope="module")
def answer(published: tuple[Results, ...]) -> Answer:
    return answer_to(published, ())


def test_the_answer_is_short_and_complete(answer: Answer, published: tuple[Results, ...]) -> None:
    """All of `micro` has a number; elsewhere all whose rows are published and admissible."""
    assert len(answer.answered) <= 5
    cells = [(it.table.id, cell) for it in published for cell in it.report.cells]
    there = {f"{table}/{cell.row}" for table, cell in cells if cell.mean is not None}
    for line in answer.answered:
        assert len(line.text) <= 200
        for it in line.comparisons:
            known = answer.profile == "micro" or {*it.left, it.right} <= there
            barred = answer.profile != "micro" and it.inadmissible
            assert (it.estimate is not None) == (known and not barred)


def test_the_answer_is_the_same_on_the_readme_and_in_the_findings(answer: Answer) -> None:
    first, terms, *others = map(escape, (answer.heading, answer.terms, *answer.points))
    wanted = "\n".join([f"**{first}**", "", terms, "", *(f"- {line}" for line in others)])
    for page in (project_root() / "README.md", results_dir() / "README.md"):
        assert wanted in page.read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def reports() -> tuple[Results, ...]:
    tables = [all_tables()[name] for name in ("table2", "table5", "choosing")]
    return published_tables(tables, named_profile("micro"), results_dir())


def barred(results: Results, name: str) -> Results:
    return replace(results, report=results.report.model_copy(update={name: "no"}))


def test_one_table_answers_for_itself_in_two_lines(reports: tuple[Results, ...]) -> None:
    table5 = reports[1]
    answer = answer_to([table5], table5.verdicts)
    assert answer.answered == ()
    finding, setting = answer.lines
    assert finding.startswith(("Supported", "Inconclusive", "Contradicted"))
    assert "stand-in A (hard lists)" in finding
    assert setting.startswith("An invented language")


def test_what_is_missing_or_barred_is_said_and_has_no_number(reports: tuple[Results, ...]) -> None:
    """Online rows and table 4 are not asked for; the rest is there, until the controls bar it."""
    words = {it.over: it.word for line in answer_to(reports, ()).answered
             for it in line.comparisons}  # fmt: skip
    assert words["as many new prompts (fewer rollouts)"] == "not in this report (table1, controls)"
    assert words["new prompts"] == "no difference seen"
    micro = named_profile("micro")
    unrun = without_runs(all_tables()["table2"], KnownControls(micro, None), "no", {})
    words = {it.over: it.word for line in answer_to([unrun, *reports[1:]], ()).answered
             for it in line.comparisons}  # fmt: skip
    assert words["new prompts"] == "not run (table2)"
    few = [barred(it, "inadmissible_choosing") for it in reports]
    for line in answer_to(few, ()).answered:
        for it in line.comparisons:
            about = "a random draw" in it.over and "choosing/" in it.right
            assert (it.word, it.reason) == ("inadmissible", "no") if about else not it.inadmissible
            assert it.estimate is None or not about
    said = "Some are inadmissible, because no."
    assert (said in answer_to(few, ()).terms, said in answer_to(reports, ()).terms) == (1, 0)
    twice = [it.report.model_copy(update={"inadmissible": "so; and so"}) for it in few]
    both = [replace(it, report=own) for it, own in zip(few, twice, strict=True)]
    assert (
        "Some are inadmissible, because so; and so; no."
        in answer_to([*reports[:1], *both[1:]], ()).terms
    )
    none = [barred(it, "inadmissible") for it in reports]
    found = [it.estimate for line in answer_to(none, ()).answered for it in line.comparisons]
    assert set(found) == {None}


def test_rows_without_a_seed_in_common_are_not_called_one_seed(
    reports: tuple[Results, ...],
) -> None:
    table2, *others = reports
    cells = [
        cell.model_copy(update={"seeds": (99, 100)}) if cell.row == "dpo-eva" else cell
        for cell in table2.report.cells
    ]
    report = table2.report.model_copy(update={"cells": tuple(cells)})
    apart = replace(table2, report=report)
    words = {it.over: it.word for line in answer_to([apart, *others], ()).answered
             for it in line.comparisons}  # fmt: skip
    assert words["new prompts"] == "no seed in common, no comparison"


def test_a_row_that_has_not_run_is_not_said_to_be_inadmissible() -> None:
    """Table 4 of `laptop` bars A_min over an even draw, but not without A_min's scores."""
    laptop = named_profile("laptop")
    wanted = [table_at(all_tables()[name], laptop) for name in ("table2", "table4")]
    tables = published_tables(wanted, laptop, results_dir())
    table4 = replace(tables[1], report=tables[1].report.model_copy(update={"inadmissible": "no"}))
    partly = replace(
        table4, measured={k: v for k, v in table4.measured.items() if "a_min" not in k[0]}
    )
    for shown, word, which in ((table4, "inadmissible", 1), (partly, "not run", 0)):
        found = answer_to([tables[0], shown], ())
        (own,) = (
            c
            for line in found.answered
            for c in line.comparisons
            if c.right == "table4/eva-uniform"
        )
        assert (own.word, own.inadmissible) == (word, bool(which))
        said = re.search(r"All that have run are inadmissible, because (.*; )?no;", found.terms)
        assert (said is not None) == bool(which)
