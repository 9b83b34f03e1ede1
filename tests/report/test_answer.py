"""The answer: what was asked, what was seen, how sure, how to run it; one on every surface."""

from __future__ import annotations

import pytest

from harness.project import results_dir
from harness.registry.declared import all_tables, named_profile
from harness.registry.paper import the_paper
from harness.report.answer import Told, answer_to
from harness.report.model import Report
from harness.report.page.contents import from_results


def told(low: float, high: float) -> str:
    places = {"table": "t", "named": "table 9", "left": "a", "right": "b", "column": "c"}
    middle = (low + high) / 2
    return Told(says="a", over="b", **places, seeds=(0, 1), gain=middle, low=low, high=high).text


def test_a_comparison_is_a_gain_a_loss_or_neither() -> None:
    assert told(1.0, 3.0) == "gains 2.0 over b (table 9, 95%: +1.0 to +3.0)"
    assert told(-3.0, -1.0) == "loses 2.0 to b (table 9, 95%: -3.0 to -1.0)"
    assert told(-1.0, 1.0) == "is not significantly different from b (table 9, 95%: -1.0 to +1.0)"


def test_what_answers_the_paper_is_declared_in_its_tables() -> None:
    tables = all_tables()
    for asked in the_paper().answers:
        table = tables[asked.table]
        assert table.row(asked.left)
        assert table.row(asked.right)
        assert table.column(asked.column)


@pytest.fixture(scope="module")
def reports() -> tuple[Report, ...]:
    tables = [all_tables()[name] for name in ("table5", "choosing")]
    return from_results(tables, named_profile("micro"), results_dir()).reports


def test_several_tables_answer_the_papers_question(reports: tuple[Report, ...]) -> None:
    """A comparison over a row's baseline is the gain that the table shows."""
    verdicts = [verdict for report in reports for verdict in report.verdicts]
    answer = answer_to(reports, verdicts)
    assert answer.question == the_paper().question
    assert {it.table for it in answer.told} == {"choosing"}
    assert answer.result.startswith("At toy scale with ")
    assert sum(answer.claims.values()) == len(verdicts) == 10
    assert "of the paper's 10 claims" in answer.confidence.lower()


def test_a_comparison_has_the_interval_that_its_table_gives_the_claim() -> None:
    """Tables lend their rows a variance each, so the answer is that of the table it names."""
    tables = all_tables()
    shown = [tables[name] for name in ("table2", "table4")]
    reports = from_results(shown, named_profile("micro"), results_dir()).reports
    verdicts = {verdict.id: verdict for report in reports for verdict in report.verdicts}
    told = {it.named: it for it in answer_to(reports, list(verdicts.values())).told}
    assert told.keys() == {"table 2", "table 4"}
    for named, claim in (("table 2", "t2-dpo-eva-ah"), ("table 4", "t4-amin-uniform-ah")):
        ends = told[named].gain, told[named].low, told[named].high
        verdict = verdicts[claim]
        assert ends == pytest.approx((verdict.margin, verdict.ci_low, verdict.ci_high))


def test_one_table_answers_its_own(reports: tuple[Report, ...]) -> None:
    table5 = reports[0]
    answer = answer_to([table5], table5.verdicts)
    assert answer.question == table5.table.question
    assert answer.told == ()
    assert answer.result.startswith(("Supported", "Inconclusive", "Underpowered", "Contradicted"))


def test_what_the_controls_bar_is_not_told(reports: tuple[Report, ...]) -> None:
    barred = [report.model_copy(update={"inadmissible": "no"}) for report in reports]
    assert answer_to(barred, ()).told == ()
    few = [report.model_copy(update={"inadmissible_choosing": "no"}) for report in reports]
    assert [it.right for it in answer_to(few, ()).told] == ["same"]
