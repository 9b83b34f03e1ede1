"""`claims` and `verify`: the ledger and the check, as commands."""

import re
from pathlib import Path
from typing import Any

import pytest
from forging import copy_published

from harness.registry.declared import named_profile
from harness.report.claims import tallies
from harness.selection.reporting import judged_claims


@pytest.mark.parametrize("profile", ["micro", "laptop"])
def test_the_ledger_counts_146(says: Any, profile: str) -> None:
    ledger = says("claims", "--profile", profile)
    assert len({claim["claim"] for claim in ledger}) == len(ledger) == 146
    assert {claim["word"] for claim in ledger} == {"not_run"}
    if profile == "micro":
        assert {claim["scale"] for claim in ledger} == {"toy"}


def test_some_tables_and_figures_alone(says: Any) -> None:
    """A figure's claim is measured by tables that are judged for it, and not shown."""
    ledger = says("claims", "table6", "figure4")
    assert [claim["place"] for claim in ledger] == ["table6"] * 4 + ["figure4"]
    assert "`t10-rm-lc` is not run" in ledger[-1]["reason"]


def test_a_figure_that_no_claim_is_about_has_none(says: Any, call: Any) -> None:
    assert says("claims", "figure3") == []
    assert "The paper claims nothing there." in call("claims", "figure3").stdout


def test_a_profile_with_columns_of_its_own_has_published_no_claim(says: Any) -> None:
    ledger = says("claims", "--published", "--profile", "laptop")
    assert {(claim["word"], claim["reason"]) for claim in ledger if claim["place"] == "table4"} == {
        ("not_run", f"the profile does not measure `{score}`")
        for score in ("ah_wr", "mt_avg", "ae_lc", "mt_t1", "mt_t2")
    }


def test_published_scores_are_judged_in_place_of_the_store(says: Any) -> None:
    ledger = says("claims", "table4", "--published")
    assert len(ledger) == 25
    assert "not_run" not in {claim["word"] for claim in ledger}
    (primary,) = (claim for claim in ledger if claim["primary"])
    assert primary["claim"] == "t4-amin-uniform-ah"
    assert primary["p_adjusted"] == primary["p"]
    own = primary["estimate"]
    assert own["low"] <= own["mean"] <= own["high"]


def test_the_counts_come_first_marks_apart_and_then_a_line_for_each_claim(call: Any) -> None:
    """Of table 5, four claims compare a quarter of the steps, three a shorter round with none."""
    lines = call("claims", "table5", "--published").stdout.splitlines()
    assert lines[1].split()[:3] == ["claims", "mark", "trivial"]
    assert [line.split()[:3] for line in lines[3:5]] == [["all", "3", "7"], ["supported", "0", "4"]]
    (head,) = (at for at, line in enumerate(lines) if line.startswith("verdict"))
    claims = lines[head + 2 : lines.index("", head)]
    assert len(claims) == 10
    assert sum(" * " in f"{line} " for line in claims) == 1


def test_the_lines_of_all_tables_add_up_to_the_counts(call: Any) -> None:
    said = call("claims", "all", "--published").stdout.splitlines()
    rows = [line.split() for line in said if re.match(r"(table|figure)\d|abstract", line)]
    numbers = [[int(it) for it in row[-6:]] for row in rows]
    assert all(sum(verdicts) == claims for claims, *verdicts in numbers)
    apart = [sum(map(int, re.findall(r" (\d+)", line))) for line in said[3:9]]
    assert apart == [sum(column) for column in zip(*numbers, strict=True)]
    assert apart[0] == 146
    found = judged_claims([], named_profile("micro"), None, published=True, on_note=print)
    marks = tallies(found.judged or ())
    (line,) = (it for it in said if it.startswith("excluding"))
    assert [int(it) for it in line.split()[1:]] == [
        it.excludes_claim + it.excludes_size for it in marks
    ]
    assert any(it.excludes_claim and it.excludes_size for it in marks)


def test_verify_checks_what_is_published(says: Any, call: Any, results: Path) -> None:
    """Of a table, a figure and an archive; `tests/report/test_verify.py` verifies everything."""
    for place in ("table5", "figure6", "over-optimisation"):
        copy_published(f"micro/{place}", results)
    found = says("verify")
    assert found["ok"]
    assert (found["tables"], found["figures"]) == (["micro/table5"], ["micro/figure6"])
    text = call("verify").stdout
    assert "were recomputed from their per-prompt scores" in " ".join(text.split())
    assert "Only digests checked" in " ".join(text.split())


def test_verify_fails_with_the_difference(says: Any, call: Any, results: Path) -> None:
    results.mkdir()
    assert "index.json is missing" in call("verify", code=1).stderr
    (results / "index.json").write_text("{", encoding="utf-8")
    assert "index.json cannot be read as JSON" in call("list", code=1).stderr
    found = says("verify", code=1)
    assert not found["ok"]
    assert "index.json cannot be read as JSON" in found["difference"]


def test_claims_are_judged_with_the_seeds_that_are_named(call: Any) -> None:
    assert "table4, seeds 7\n" in call("claims", "table4", "--full", "--seeds", "7").stdout
