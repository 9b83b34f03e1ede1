"""The seeds that claims need, and when a run may stop."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from null_tables import evidence_of
from test_claims import PAPER, ROWS, around, cell_of, measured_by, verdict_in_words
from typer.testing import CliRunner

from harness.cli.main import app
from harness.cli.plan import power_line
from harness.registry.schema import Table
from harness.report.claims import looks_until, power_of, undecided
from harness.report.model import ClaimVerdict
from harness.report.verdicts import Evidence, judge


def evidence(a: float, b: float, c: float, noise: float) -> Evidence:
    table: Table = measured_by(PAPER)
    measured = around(a, b, noise, c=c, d=c)
    return evidence_of(table, [cell_of(table, row, (0, 1, 2)) for row in ROWS], measured)


def test_a_claim_needs_the_seeds_that_find_its_share_of_our_gain() -> None:
    """A quarter of our gain, 4, is 1. Seeds of variance 1 give a mean of n of variance 1 / n.

    With n = 10, (2.262 + 0.883) / sqrt(10) = 0.995 would be found; with n = 9,
    (2.306 + 0.889) / 3 = 1.065.
    """
    (found,) = power_of(evidence(44.0, 44.0, 40.0, 1.0))
    assert found.sought == pytest.approx(1.0)
    assert (found.claim, found.primary, found.seeds, found.needed) == ("it", True, 3, 10)
    assert power_line(found) == ("it *", "underpowered (toy)", "3", "3.10", "1.00", "10")


def test_a_plan_of_power_ends_with_the_seeds_of_the_primary_claims(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    known = [evidence(44.0, 44.0, 40.0, 1.0)]
    monkeypatch.setattr("harness.selection.selection.Selection.evidence", lambda _: known)
    said = CliRunner().invoke(app, ["plan", "table4", "--power"]).stdout
    assert said.rstrip().endswith("harness plan table4 --seeds 0-9")
    (line,) = (line for line in said.splitlines() if line.startswith("it *"))
    assert line.split()[-4:] == ["3", "3.10", "1.00", "10"]
    (found,) = json.loads(CliRunner().invoke(app, ["plan", "table4", "--power", "--json"]).stdout)[
        "items"
    ]
    assert (found["claim"], found["needed"]) == ("it", 10)


def test_a_decided_claim_needs_no_more_and_one_without_a_unit_has_no_number() -> None:
    (decided,) = power_of(evidence(44.0, 40.0, 30.0, 0.1))
    assert (decided.verdict, decided.needed) == ("supported (toy)", 3)
    (none,) = power_of(evidence(44.0, 44.0, 45.0, 1.0))
    assert (none.sought, none.needed) == (None, None)
    assert power_line(none)[-1] == "-"
    (never,) = power_of(evidence(44.0, 44.0, 43.9, 5.0))
    assert power_line(never)[-1] == "more than 200"


def test_a_run_looks_every_two_seeds_and_at_the_most() -> None:
    assert looks_until(3, 10) == (3, 5, 7, 9, 10)
    assert looks_until(3, 9) == (3, 5, 7, 9)


def test_what_one_look_decided_stays_decided_and_what_no_seed_decides_is_not_waited_for() -> None:

    def look(**words: str) -> list[ClaimVerdict]:
        return [verdict_in_words(word, id=name, primary=True) for name, word in words.items()]

    first = look(a="supported", b="inconclusive", c="underpowered", d="inadmissible",
                 e="not_testable")  # fmt: skip
    first.append(verdict_in_words("inconclusive", id="f"))
    assert undecided([first]) == ["b", "c"]
    second = look(a="inconclusive", b="contradicted", c="supported")
    assert undecided([first, second]) == []


def test_a_look_decides_at_its_own_level() -> None:
    """Margins 3.9, 4 and 4.1 have t = 4 / (0.1 / sqrt(3)) = 69.3 with 2 degrees: p = 0.00021."""
    at_5 = evidence(44.0, 40.0, 30.0, 0.1)
    judged: Any
    found: Any
    (judged,) = judge(at_5)
    assert judged.verdict == "supported"
    (found,) = judge(replace(at_5, level=judged.p))
    assert found.verdict in ("inconclusive", "underpowered")
    assert f"level {judged.p:.2g}" in found.reason
    assert found.detectable > judged.detectable
