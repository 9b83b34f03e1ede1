"""The declared claims: all of the paper's, and what follows from the printed values."""

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import yaml
from pydantic import BaseModel, ValidationError

from harness.registry.claims import (
    BestOf,
    Claim,
    Compare,
    CompareGains,
    Margin,
    Qualitative,
    Sum,
    Trend,
    difference,
    figure_claims,
)
from harness.registry.declared import all_profiles
from harness.registry.schema import Table


@pytest.fixture(scope="module")
def claims(tables: dict[str, Table]) -> dict[str, tuple[str, Claim]]:
    """Return each claim with its table or figure, by id."""
    found = [(claim.id, (table.id, claim)) for table in tables.values() for claim in table.claims]
    found += [(c.id, (figure.id, c)) for figure in figure_claims().figures for c in figure.claims]
    assert len(dict(found)) == len(found)
    return dict(found)


def test_the_paper_makes_146_claims_of_six_kinds(claims: dict[str, tuple[str, Claim]]) -> None:
    kinds = Counter(claim.test.kind for _, claim in claims.values())
    operators = Counter(c.test.op for _, c in claims.values() if isinstance(c.test, Compare))
    assert len(claims) == 146
    assert kinds["qualitative"] == 7
    assert set(kinds) == {"compare", "trend", "best_of", "compare_gains", "qualitative"}
    assert operators[">="] == 11
    assert operators["within"] == 16


def test_what_a_claim_names_is_declared(
    claims: dict[str, tuple[str, Claim]], tables: dict[str, Table]
) -> None:
    """The profiles of its marks and the reward models that it needs."""
    profiles = all_profiles()
    (studied,) = [table for table in tables.values() if table.reward_model_study]
    for _, claim in claims.values():
        for mark in claim.marks:
            assert {*mark.at} <= profiles.keys()
        if claim.needs is not None:
            assert studied.row(claim.needs.better)
            assert studied.row(claim.needs.than)


def test_a_claim_that_repeats_another_names_it(claims: dict[str, tuple[str, Claim]]) -> None:
    for _, claim in claims.values():
        for mark in claim.marks:
            if mark.word == "repeats":
                assert mark.because.partition(" ")[0].removesuffix(":") in claims


def test_every_table_has_one_primary_claim_and_no_figure_has_one(tables: dict[str, Table]) -> None:
    for table in tables.values():
        primary = sum(claim.primary for claim in table.claims)
        assert primary == (0 if table.is_ours else 1), table.id
    assert not any(c.primary for figure in figure_claims().figures for c in figure.claims)


def test_claims_are_those_of_the_paper(
    claims: dict[str, tuple[str, Claim]], shared_dir: Path
) -> None:
    """All but margins, which the paper does not state, and tests where either side has none."""
    text = (shared_dir / "paper/claims.yaml").read_text("utf-8")
    theirs: dict[str, Any] = {claim["id"]: claim for claim in yaml.safe_load(text)["claims"]}
    assert sorted(claims) == sorted(theirs)
    for name, (table, claim) in claims.items():
        their = theirs[name]
        assert (table, claim.statement, claim.source) == (
            their["table"], their["statement"], their["source"]
        ), name  # fmt: skip
        margin = their["paper_margin"]
        assert claim.paper_margin == (tuple(margin) if isinstance(margin, list) else margin)
        assert claim.holds_in_paper == their["holds_in_paper"]
        assert claim.within_noise == their.get("within_noise")
        if not isinstance(claim.test, Qualitative) and their["test"]["kind"] != "qualitative":
            ours = claim.test.model_dump(mode="json", exclude={"margin"}, exclude_none=True)
            assert ours == their["test"], name


def _printed(table: Table, total: Sum) -> float:
    """Return a weighted sum of the numbers as printed, at three decimals."""
    values = [w * table.row(row).values[column].value for w, (row, column) in total.terms]
    return round(sum(values), 3)


def test_printed_margins_follow_from_the_printed_values(tables: dict[str, Table]) -> None:
    """A best-of claim prints the margin over the runner-up, gains print both sides."""
    for table in tables.values():
        for claim in table.claims:
            if isinstance(claim.test, Qualitative) or claim.paper_margin is None:
                continue
            ours = [_printed(table, shown) for shown in claim.test.shown]
            if isinstance(claim.test, Trend):
                expected = [float(step) for step in claim.paper_margin]
            elif isinstance(claim.test, CompareGains):
                assert isinstance(claim.paper_margin, str)
                left, right = map(float, claim.paper_margin.split(" against "))
                expected = [round(left - right, 3)]
            else:
                assert isinstance(claim.paper_margin, str)
                expected = [float(claim.paper_margin)]
                ours = [min(ours)] if isinstance(claim.test, BestOf) else ours
            assert ours == expected, claim.id


def test_whether_a_claim_holds_follows_from_the_printed_values(tables: dict[str, Table]) -> None:
    """`>=` counts as holding from zero up, `within` by the tolerance of the statement."""
    failing = []
    for table in tables.values():
        for claim in table.claims:
            assert not isinstance(claim.test, Qualitative)
            ours = [claim.test.sign * _printed(table, shown) for shown in claim.test.shown]
            holds = min(ours) > 0
            if isinstance(claim.test, Compare) and claim.test.op == ">=":
                holds = ours[0] >= 0
            if isinstance(claim.test, Compare) and claim.test.tolerance is not None:
                holds = abs(ours[0]) <= claim.test.tolerance
            assert claim.holds_in_paper is holds, claim.id
            failing += [] if holds else [claim.id]
    assert len(failing) == 7


def test_within_noise_follows_from_the_bounds(tables: dict[str, Table]) -> None:
    noise = figure_claims().noise
    for table in tables.values():
        for claim in table.claims:
            if claim.within_noise is None:
                continue
            assert isinstance(claim.test, Compare | BestOf)
            assert isinstance(claim.paper_margin, str)
            bound = noise[table.column(claim.test.column).reads.split("_")[0]]
            expected = abs(float(claim.paper_margin)) <= bound.half_width_95
            assert claim.within_noise is expected, claim.id


def test_shares_are_the_tolerances_of_the_statements(tables: dict[str, Table]) -> None:
    """Table 1: 1.0 of 10.1, 0.1 of 0.39, 2.0 of 8.68; table 16: 20 tokens of 82. To a tenth."""
    compared = 0
    for table in tables.values():
        for claim in table.claims:
            if isinstance(claim.test, Compare) and claim.test.op == "within":
                margin = claim.test.margin
                assert margin is not None
                size = margin.points
                if margin.of is not None and margin.share is not None:
                    gain = difference(*margin.of, claim.test.column)
                    size = margin.share * _printed(table, gain)
                assert size == pytest.approx(claim.test.tolerance, rel=0.1), claim.id
                compared += 1
    assert compared == 16


COMPARE = {"kind": "compare", "left": "a", "op": ">", "right": "b", "column": "c"}


@pytest.mark.parametrize(
    ("model", "data", "words"),
    [
        (Margin, {"share": 0.5}, "as `share` and `of`, or as `points`"),
        (Margin, {"points": 1, "share": 0.5, "of": ["a", "b"]}, "or as `points`"),
        (Compare, COMPARE | {"op": ">="}, "`>=` and `within` need a `margin`"),
        (Compare, COMPARE | {"tolerance": 1}, "`within` needs a `tolerance`"),
        (BestOf, {"kind": "best_of", "row": "a", "among": ["b", "c"], "column": "d"}, "`a` itself"),
        (
            BestOf,
            {"kind": "best_of", "row": "a", "among": ["a", "a"], "column": "d"},
            "another row",
        ),
        (Qualitative, {"kind": "qualitative"}, "either the `reason`"),
    ],
)
def test_a_claim_that_says_too_little_or_too_much_is_refused(
    model: type[BaseModel], data: dict[str, Any], words: str
) -> None:
    with pytest.raises(ValidationError, match=words):
        model.model_validate(data)
