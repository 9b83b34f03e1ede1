"""The seeds that claims need, and when a run may stop."""

from __future__ import annotations

import pytest
from test_claims import PAPER, ROWS, around, cell_of, measured_by

from harness.registry.schema import Table
from harness.report.model import Verdict
from harness.report.power import looks_until, power_of, undecided
from harness.report.verdicts import Evidence
from harness.statistics.sequential import levels_of_looks


def evidence(a: float, b: float, c: float, noise: float) -> Evidence:
    table: Table = measured_by(PAPER)
    measured = around(a, b, noise) | {
        (f"run-{row}", s, "ah_wr"): {f"p{p}": c + p / 1000 for p in range(8)}
        for row in "cd"
        for s in range(3)
    }
    return Evidence.of(table, [cell_of(table, row, (0, 1, 2)) for row in ROWS], measured)


def test_a_claim_needs_the_seeds_that_find_its_share_of_our_gain() -> None:
    """A quarter of our gain, 4, is 1. Seeds of variance 1 give a mean of n of variance 1 / n.

    With n = 10, (2.262 + 0.883) / sqrt(10) = 0.995 would be found; with n = 9,
    (2.306 + 0.889) / 3 = 1.065.
    """
    (found,) = power_of(evidence(44.0, 44.0, 40.0, 1.0))
    assert found.sought == pytest.approx(1.0)
    assert (found.claim, found.primary, found.seeds, found.needed) == ("it", True, 3, 10)
    assert found.line == ("it *", "underpowered (toy)", "3", "3.10", "1.00", "10")


def test_a_decided_claim_needs_no_more_and_one_without_a_unit_has_no_number() -> None:
    (decided,) = power_of(evidence(44.0, 40.0, 30.0, 0.1))
    assert (decided.verdict, decided.needed) == ("supported (toy)", 3)
    (none,) = power_of(evidence(44.0, 44.0, 45.0, 1.0))
    assert (none.sought, none.needed) == (None, None)
    assert none.line[-1] == "-"
    (never,) = power_of(evidence(44.0, 44.0, 43.9, 5.0))
    assert never.line[-1] == "more than 200"


def test_a_run_looks_every_two_seeds_and_at_the_most() -> None:
    assert looks_until(3, 10) == (3, 5, 7, 9, 10)
    assert looks_until(3, 9) == (3, 5, 7, 9)


def verdict(name: str, p: float | None, *, primary: bool = True) -> Verdict:
    return Verdict(id=name, table="t", statement="s", verdict="inconclusive", scale="toy",
                   primary=primary, p=p)  # fmt: skip


def test_what_one_look_decided_stays_decided_and_5_percent_at_a_look_do_not() -> None:
    looks = (3, 5, 7, 9, 10)
    levels = levels_of_looks(looks, 10, 0.05)
    assert levels[0] < 0.001 < levels[2] < levels[-1] < 0.05
    first = [verdict("a", levels[0] / 2), verdict("b", 0.04), verdict("c", None),
             verdict("d", 0.9, primary=False)]  # fmt: skip
    assert undecided([first], looks) == {"b": 0.04, "c": None}
    second = [verdict("a", 0.9), verdict("b", levels[1] / 2), verdict("c", levels[1] * 2)]
    assert undecided([first, second], looks) == {"c": levels[1] * 2}
