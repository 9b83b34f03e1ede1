"""The page, written: one HTML file with its style and pictures in it, and one short script.

Every text goes through the template's escaping; the page forbids itself all requests, and all
scripts but its own, which it names by digest, so that a text which slipped through could not do
anything either. Nothing needs the script to be read: it sorts, filters, marks where the reader is,
and makes each table one stop of the keyboard.
"""

from __future__ import annotations

import base64
import functools
import hashlib
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.registry.claims import Claim, Compare, Qualitative, places
from harness.registry.declared import Ambiguity, Discrepancy, value_in
from harness.registry.profile import Profile
from harness.report import error_rates, view
from harness.report.claims import PRIMARY, counts, line, share_tested
from harness.report.model import GROUPS, Report, Verdict
from harness.report.page.contents import Contents, in_order
from harness.report.page.examples import JUDGED_RULE
from harness.report.page.layout import table_layout
from harness.report.page.overview import overview
from harness.report.view import Part, label_parts

if TYPE_CHECKING:
    from jinja2 import Environment

TEMPLATES = Path(__file__).resolve().parents[1] / "templates" / "page"

SCRIPT = "page.js"

PAPER = "https://arxiv.org/abs/2411.00062"
"""The paper, the one address the page links to."""

LONGEST = 2000
"""Characters of a model's text that are shown."""

_BREAKS = ("\n", "\t")


def as_html(contents: Contents) -> str:
    """Return the page."""
    tables = [table_layout(section, contents.traces) for section in contents.sections]
    rates = contents.error_rates
    script = (TEMPLATES / SCRIPT).read_text(encoding="utf-8")
    return (
        _environment()
        .get_template("page.html.j2")
        .render(
            contents=contents,
            profile=contents.profile,
            paper=PAPER,
            script_digest=_digest(script),
            overview=overview(contents.sections),
            scale=view.SCALES[contents.profile.scale],
            tables=tables,
            state=_state(tables),
            totals=_totals(contents, tables),
            commits=_commits(contents),
            finished=_finished(contents),
            groups=claim_groups(contents),
            counts=counts(contents.verdicts),
            primary=PRIMARY,
            tested=share_tested(contents.verdicts),
            margins=margins(
                c for section in contents.sections for c in section.report.table.claims
            ),
            rates=rates,
            rate_head=error_rates.HEAD,
            rate_lines=[] if rates is None else rates.lines,
            assumptions=_assumptions(contents),
            discrepancies=[
                _deviation(d, contents.profile) for d in contents.deviations.discrepancies
            ],
            ambiguities=[_deviation(a, contents.profile) for a in contents.deviations.ambiguities],
            answers_rule=JUDGED_RULE,
        )
    )


def _digest(script: str) -> str:
    """Return what a script is known by to those who forbid all others."""
    return base64.b64encode(hashlib.sha256(script.encode("utf-8")).digest()).decode("ascii")


def _state(tables: Sequence[Mapping[str, Any]]) -> str:
    """Return in words which tables have numbers."""
    whole: list[str] = []
    part: list[str] = []
    none: list[str] = []
    for table in tables:
        without = any(cell.mean is None for cell in table["section"].report.cells)
        into = none if not table["has_numbers"] else part if without else whole
        name = table["name"]
        into.append(name.removeprefix("Table ") if name != "Ours" else table["id"])
    said = [
        f"{_tables(numbers)} {'has' if len(numbers) == 1 else 'have'} {what}"
        for numbers, what in (
            (whole, "numbers in every row and column"),
            (part, "numbers in some"),
            (none, "none, for the reasons given with each"),
        )
        if numbers
    ]
    text = "; ".join(said)
    return f"{text[:1].upper()}{text[1:]}." if text else "No table is on this page."


def _tables(numbers: Sequence[str]) -> str:
    if len(numbers) == 1:
        return f"table {numbers[0]}"
    return f"tables {', '.join(numbers[:-1])} and {numbers[-1]}"


def _totals(contents: Contents, tables: Sequence[Mapping[str, Any]]) -> dict[str, int]:
    """Return how much of the paper has numbers here."""
    cells = [cell for section in contents.sections for cell in section.report.cells]
    seeds = [seed for trace in contents.traces.values() for seed in trace.seeds.values()]
    return {
        "tables": sum(table["has_numbers"] for table in tables),
        "tables_in_all": len(tables),
        "cells": sum(cell.mean is not None for cell in cells),
        "cells_in_all": len(cells),
        "runs": sum(seed.whole for seed in seeds),
        "runs_in_all": len(seeds),
        "recipes": len(contents.traces),
    }


def _commits(contents: Contents) -> list[str]:
    found = (commit for section in contents.sections for commit in section.report.origin.commits)
    return sorted(dict.fromkeys(found))


def _finished(contents: Contents) -> str | None:
    """Return when the last stage behind the page was finished."""
    found = [s.report.origin.finished for s in contents.sections if s.report.origin.finished]
    return max(found, default=None)


def claim_groups(contents: Contents) -> list[dict[str, Any]]:
    """Return the claims on the page by their table, which has a section, or figure."""
    groups = []
    for section in contents.sections:
        table = section.report.table
        declared = {claim.id: claim for claim in table.claims}
        found = [_claim(v, declared, section.report) for v in section.verdicts]
        title = view.plain(table.heading)
        groups.append({"place": table.id, "title": title, "linked": True, "claims": found})
    figures = {verdict.table for verdict in contents.figure_verdicts}
    for place in sorted(figures, key=in_order):
        own = [verdict for verdict in contents.figure_verdicts if verdict.table == place]
        found = [_claim(verdict, {}, None) for verdict in own]
        title = place.replace("figure", "Figure ").capitalize()
        groups.append({"place": place, "title": title, "linked": False, "claims": found})
    return [group for group in groups if group["claims"]]


def _claim(
    verdict: Verdict, declared: Mapping[str, Claim], report: Report | None
) -> dict[str, Any]:
    """Return a claim of the ledger, with the cells, runs and seeds behind its numbers if any."""
    basis = None
    if verdict.margin is not None and report is not None:
        test = declared[verdict.id].test
        assert not isinstance(test, Qualitative)
        cells = [
            f"{row} in {column} (run {report.table.row(row).run_id(report.table.column(column))})"
            for row, column in places(test)
        ]
        seeds = ", ".join(map(str, report.seeds))
        basis = view.plain(f"per-prompt scores of {', '.join(cells)}; seeds {seeds}")
    return {
        "id": verdict.id,
        "word": verdict.verdict,
        "line": line(verdict),
        "reason": None if verdict.reason is None else view.plain(verdict.reason),
        "basis": basis,
    }


def margins(declared: Iterable[Claim]) -> str:
    """Return in a sentence how far apart rows may be and count as alike; empty if none may.

    The paper says of rows that they are level, or that one is not behind, and names no margin: each
    is an assumption of ours, declared beside the claim.
    """
    found: Counter[str] = Counter()
    for claim in declared:
        margin = claim.test.margin if isinstance(claim.test, Compare) else None
        if margin is not None:
            share = f"{margin.share:.0%} of a declared gain" if margin.share else ""
            found[share or f"{margin.points:g} of the column's unit"] += 1
    if not found:
        return ""
    counted = ", ".join(f"{margin} ({number})" for margin, number in found.most_common())
    return (
        f"{found.total()} claims say that rows are level, or that one is not behind, and the paper "
        f"says not by how much; the margins are ours, declared with the claims: {counted}."
    )


def _assumptions(contents: Contents) -> list[tuple[str, list[tuple[str, str, str]]]]:
    """Return the settings by who sets them: name and value, why, and the tables they matter to.

    A setting that all tables with numbers share is listed once, for all.
    """
    tables: dict[tuple[str, str, str, str], list[str]] = {}
    for section in contents.sections:
        for item in section.report.assumptions:
            key = (item.group, item.name, item.value, item.source)
            tables.setdefault(key, []).append(section.report.table.id)
    planned = sum(bool(section.report.assumptions) for section in contents.sections)
    groups = []
    for name, title in GROUPS.items():
        lines = [
            (
                view.plain(f"{setting} = {value}"),
                view.plain(source),
                "all" if len(where) == planned else ", ".join(where),
            )
            for (group, setting, value, source), where in tables.items()
            if group == name
        ]
        if lines:
            groups.append((title, lines))
    return groups


def _deviation(entry: Discrepancy | Ambiguity, profile: Profile) -> dict[str, Any]:
    """Return a deviation with the values that its settings have here."""
    settings = [(setting, *value_in(profile, setting)) for setting in entry.settings]
    return {
        "entry": entry,
        "settings": [(name, _value(kind, value, profile)) for name, kind, value in settings],
    }


def _value(kind: str, value: Any, profile: Profile) -> str:
    if kind == "absent":
        return f"not part of {profile.name}"
    if isinstance(value, tuple | list):
        if not value:
            return "set by each row"
        value = ", ".join(map(str, value))
    if value is None or isinstance(value, bool):
        value = {True: "yes", False: "no", None: "none"}[value]
    return f"{value} by default" if kind == "default" else str(value)


def _shown(value: Any) -> Any:
    """Return what an expression of the template prints, with nothing in it that has no shape."""
    if isinstance(value, str) and not hasattr(value, "__html__"):
        return visible(value, longest=len(value))
    return value


def ticked_parts(text: str) -> list[Part]:
    """Return a sentence whose names stand between backticks as pieces without them."""
    pieces = re.split(r"`([^`]*)`", text)
    return [Part(piece, code=i % 2 == 1) for i, piece in enumerate(pieces) if piece]


def visible(text: str, longest: int = LONGEST) -> str:
    """Return a model's text with what cannot be seen made visible.

    Line breaks and tabs stay. Other characters without a shape of their own, among them those
    that change the direction of writing, become U+FFFD.
    """
    shown = "".join(c if c.isprintable() or c in _BREAKS else "\ufffd" for c in text[:longest])
    rest = len(text) - longest
    return f"{shown} … ({rest:,} characters more)" if rest > 0 else shown


@functools.cache
def _environment() -> Environment:
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    environment = Environment(
        loader=FileSystemLoader(TEMPLATES),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=True,
        finalize=_shown,
    )
    environment.filters["parts"] = label_parts
    environment.filters["visible"] = visible
    environment.filters["ticked"] = ticked_parts
    environment.filters["time"] = lambda iso: f"{iso[:10]} {iso[11:16]} UTC"
    environment.filters["words"] = lambda name: name.replace("_", " ")
    return environment
