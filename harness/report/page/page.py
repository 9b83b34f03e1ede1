"""The page, written: one HTML file with its style and pictures in it, and one short script.

Every text goes through the template's escaping; the page forbids itself all requests, and all
scripts but its own, which it names by digest, so that a text which slipped through could not do
anything either. Nothing needs the script to be read: it sorts, filters, marks where the reader is,
and makes each table one stop of the keyboard. Every text of a number is the one of
`harness.report.view`, so that the page says what the terminal says.
"""

from __future__ import annotations

import base64
import functools
import hashlib
import itertools
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.registry.claims import Qualitative, places
from harness.registry.declared import Ambiguity, Discrepancy, deviations, natural, value_in
from harness.registry.paper import the_paper
from harness.registry.profile import Profile
from harness.registry.schema import Column
from harness.report import view
from harness.report.answer import answer_to, finding, primary_of
from harness.report.blocks import (
    column_blocks,
    control_blocks,
    cost_block,
    detail_blocks,
    summary_blocks,
    worth_blocks,
)
from harness.report.claims import PRIMARY, counts, line, share_tested
from harness.report.model import GROUPS, Cell, Report, ReportRow, Verdict
from harness.report.page.contents import Contents, Traces
from harness.report.page.drawing import axis_of, draw, overview
from harness.report.page.examples import JUDGED_RULE
from harness.report.render import environment, found_blocks
from harness.report.view import Part, label_parts, plain
from harness.words import seeds_text

if TYPE_CHECKING:
    from jinja2 import Environment

TEMPLATES = Path(__file__).resolve().parents[1] / "templates" / "page"

SCRIPT = "page.js"

LONGEST = 2000
"""Characters of a model's text that are shown."""

SHOWN = ("Question", "Source", "Inadmissible")
"""The facts that stand at the head of a table."""

SENSITIVITY = ("Inadmissible", "Power", "Controls")
"""The facts that stand before a table's numbers: what these can show."""


def as_html(contents: Contents) -> str:
    reports, profile = contents.reports, contents.profile
    tables = [_table(report, contents) for report in reports]
    origins = [report.origin for report in reports]
    script = hashlib.sha256((TEMPLATES / SCRIPT).read_bytes())
    finished = [origin.finished for origin in origins if origin.finished]
    known = deviations()
    return (
        _environment()
        .get_template("page.html.j2")
        .render(
            contents=contents,
            profile=profile,
            paper=the_paper(),
            links=links(),
            answer=answer_to(reports, contents.verdicts),
            script_digest=base64.b64encode(script.digest()).decode("ascii"),
            overview=overview(reports),
            tables=tables,
            commits=sorted({commit for origin in origins for commit in origin.commits}),
            finished=max(finished, default=None),
            groups=_claim_groups(contents),
            counts=counts(contents.verdicts),
            primary=PRIMARY,
            tested=share_tested(contents.verdicts),
            assumptions=_assumptions(reports),
            discrepancies=[_deviation(d, profile) for d in known.discrepancies],
            ambiguities=[_deviation(a, profile) for a in known.ambiguities],
            answers_rule=JUDGED_RULE,
        )
    )


def links() -> list[tuple[str, str]]:
    """Return where the project lives, by name; none where its build was told no address."""
    from importlib.metadata import PackageNotFoundError, metadata

    try:
        known = metadata("eva-harness").get_all("Project-URL") or []
    except PackageNotFoundError:  # run from its files alone
        return []
    found = [tuple(map(str.strip, line.split(",", 1))) for line in known]
    return [(name, address) for name, address in found if address != the_paper().address]


# --- A table ---


def _table(report: Report, contents: Contents) -> dict[str, Any]:
    table, primary = report.table, primary_of(report.verdicts)
    facts, seeds = view.facts(report), seeds_text(report.seeds)
    commits = ", ".join(report.origin.commits) or "none"
    done = len({cell.row for cell in report.cells if cell.mean is not None})
    several = f", seed{'s' * (len(report.seeds) > 1)} {seeds}" if done else ""
    return {
        "id": table.id,
        "name": "Ours" if table.source is None else f"Table {table.source.table}",
        "title": plain(table.title),
        "question": plain(table.question),
        "place": table.place,
        "finding": finding(report, report.verdicts),
        "word": "not_run" if primary is None else primary.verdict,
        "verdict": "no primary claim" if primary is None else primary.text,
        "progress": f"{done} of {len(report.rows)} rows{several}",
        "source": f"{table.id}: seeds {seeds} of its runs in the appendix, commit {commits}",
        "has_numbers": report.has_numbers,
        "matrix": _matrix(report, contents.traces),
        "blocks": list(_blocks(report)),
        "facts": [fact for fact in facts if fact[0] not in SHOWN],
        "sensitivity": [fact for fact in facts if fact[0] in SENSITIVITY],
        "worth": worth_blocks(report),
        "study": [*control_blocks(report), *found_blocks(report)],
        "summary": summary_blocks(report, intervals=True),
        "details": detail_blocks(report) if report.has_numbers else [],
        "cost": None if report.costs is None else cost_block(report, report.costs),
        "absent": _absent(report.absent),
        "pictures": contents.table_pictures.get(table.id, ()),
        "report": report,
    }


def _absent(absent: Mapping[str, str]) -> list[tuple[str, str]]:
    """Return why rows have no numbers, each reason once with the rows it is true of."""
    by_reason: dict[str, list[str]] = {}
    for row, reason in absent.items():
        by_reason.setdefault(plain(reason.removeprefix(f"`{row}` ")), []).append(row)
    return [(", ".join(rows), reason) for reason, rows in by_reason.items()]


def _matrix(report: Report, traces: Traces) -> dict[str, Any]:
    columns, names = report.table.columns, view.row_names(report)
    decimals = {column.id: view.our_decimals(report, column) for column in columns}
    lines = [
        {
            "row": row.id,
            "label": names[row.id],
            "places": [_place(report, row, c, decimals[c.id], traces) for c in columns],
        }
        for row in report.rows
    ]
    groups = itertools.groupby(plain(column.benchmark) for column in columns)
    heads = [plain(c.printed + (f" · {c.panel}" if c.panel else "")) for c in columns]
    alone = [plain(f"{c.benchmark} {head}") for c, head in zip(columns, heads, strict=True)]
    return {
        "groups": [(name, len(list(own))) for name, own in groups],
        "heads": heads,
        "alone": alone,
        "lines": lines,
    }


def _place(
    report: Report, row: ReportRow, column: Column, decimals: int, traces: Traces
) -> dict[str, Any]:
    cell = report.cell(row, column)
    return {
        "name": f"{cell.table}/{cell.row}/{cell.column}",
        "text": view.ours(cell, decimals),
        "paper": "" if report.table.is_ours else cell.paper_printed or view.NO_PAPER,
        "side": view.side(cell),
        "value": None if cell.mean is None else f"{cell.mean:.6g}",
        "card": _card(report, row, column, cell, traces),
    }


def _blocks(report: Report) -> Iterator[dict[str, Any]]:
    for column, block in zip(report.table.columns, column_blocks(report), strict=True):
        cells = [report.cell(row, column) for row in report.rows]
        axis, decimals = axis_of(cells), view.our_decimals(report, column)
        lines = []
        for row, cell, (name, *figures) in zip(report.rows, cells, block.rows, strict=True):
            drawn = axis is not None and (cell.gain is not None or cell.paper_gain is not None)
            lines.append({
                "row": row.id,
                "label": name,
                "reading": report.table.row(row.id).reading,
                "figures": figures,
                "has_number": cell.mean is not None,
                "drawing": draw(cell, axis, decimals) if axis and drawn else None,
            })  # fmt: skip
        ticks = f"x-{report.table.id}-{column.id}"
        yield {**vars(block), "column": column.id, "axis": axis, "ticks": ticks, "lines": lines}


def _card(
    report: Report, row: ReportRow, column: Column, cell: Cell, traces: Traces
) -> dict[str, Any]:
    run_id = row.runs[column.id]
    trace = traces.get(run_id)
    facts = [("state", view.state(cell))] if cell.mean is None else []
    if cell.mean is not None:
        facts.append(("mean", _exact(cell.mean, cell.ci_low, cell.ci_high)))
    if cell.gain is not None:
        gain = _exact(cell.gain, cell.gain_ci_low, cell.gain_ci_high)
        facts.append((f"gain over {cell.baseline_row}", gain))
    if cell.reason is not None:
        facts.append(("failed" if cell.state == "failed" else "why not", cell.reason))
    if not report.table.is_ours:
        facts.append(("paper", cell.paper_printed or view.NO_PAPER))
    facts += [("run", run_id), ("seeds", ", ".join(map(str, cell.seeds)) or view.APPLIES_NOT)]
    if trace is not None:
        facts += [
            ("judge", cell.judge or view.APPLIES_NOT),
            ("reward model", ", ".join(cell.reward_models) or "none"),
            ("creator", ", ".join(cell.creators) or "none"),
            ("commits of the table", ", ".join(report.origin.commits) or "none yet"),
        ]
    return {
        "name": f"c-{cell.table}-{cell.row}-{cell.column}",
        "title": f"{view.row_names(report)[row.id]} · {column.benchmark}, {column.printed}",
        "facts": [(name, plain(text)) for name, text in facts],
        "run": None if trace is None else run_id,
        "runs": [run.removeprefix(f"{run_id}/{cell.profile}/") for run in cell.runs],
    }


def _exact(mean: float, low: float | None, high: float | None) -> str:
    return f"{mean:.6g}, 95% from {low:.6g} to {high:.6g}"


# --- Claims, assumptions, deviations ---


def _claim_groups(contents: Contents) -> list[dict[str, Any]]:
    groups = [
        {
            "place": report.table.id,
            "title": plain(report.table.heading),
            "linked": True,
            "claims": [_claim(verdict, report) for verdict in report.verdicts],
        }
        for report in contents.reports
    ]
    figures: dict[str, list[dict[str, Any]]] = {}
    tables = {report.table.id for report in contents.reports}
    for verdict in contents.verdicts:
        if verdict.table not in tables:
            figures.setdefault(verdict.table, []).append(_claim(verdict, None))
    for place in sorted(figures, key=natural):
        title = place.replace("figure", "Figure ").capitalize()
        groups.append({"place": place, "title": title, "linked": False, "claims": figures[place]})
    return [group for group in groups if group["claims"]]


def _claim(verdict: Verdict, report: Report | None) -> dict[str, Any]:
    basis = None
    if verdict.margin is not None and report is not None:
        table = report.table
        test = next(claim.test for claim in table.claims if claim.id == verdict.id)
        assert not isinstance(test, Qualitative)
        cells = [
            f"{row} in {column} (run {table.row(row).run_id(table.column(column))})"
            for row, column in places(test)
        ]
        seeds = ", ".join(map(str, report.seeds))
        basis = plain(f"per-prompt scores of {', '.join(cells)}; seeds {seeds}")
    return {
        "id": verdict.id,
        "word": verdict.verdict,
        "line": line(verdict),
        "reason": None if verdict.reason is None else plain(verdict.reason),
        "basis": basis,
    }


def _assumptions(reports: Sequence[Report]) -> list[tuple[str, list[tuple[str, str, str]]]]:
    """Return the settings by who sets them: name and value, why, and the tables they matter to.

    A setting that all tables with numbers share is listed once, for all.
    """
    tables: dict[tuple[str, str, str, str], list[str]] = {}
    for report in reports:
        for item in report.assumptions:
            key = (item.group, item.name, item.value, item.source)
            tables.setdefault(key, []).append(report.table.id)
    planned = sum(bool(report.assumptions) for report in reports)
    groups: dict[str, list[tuple[str, str, str]]] = {name: [] for name in GROUPS}
    for (group, setting, value, source), where in tables.items():
        shared = "all" if len(where) == planned else ", ".join(where)
        groups[group].append((plain(f"{setting} = {value}"), plain(source), shared))
    return [(GROUPS[name], lines) for name, lines in groups.items() if lines]


def _deviation(entry: Discrepancy | Ambiguity, profile: Profile) -> dict[str, Any]:
    settings = [(name, _value(*value_in(profile, name), profile)) for name in entry.settings]
    return {"entry": entry, "settings": settings}


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


# --- Texts ---


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
    if _LONG_NUMBER.fullmatch(text):
        return f"{float(text):.4g}"
    shown = "".join(c if c.isprintable() or c in "\n\t" else "\ufffd" for c in text[:longest])
    rest = len(text) - longest
    return f"{shown} … ({rest:,} characters more)" if rest > 0 else shown


_LONG_NUMBER = re.compile(r"-?\d+\.\d{6,}")
"""What a judge that measures says; the last digits are nobody's."""


@functools.cache
def _environment() -> Environment:
    return environment(
        TEMPLATES,
        autoescape=True,
        finalize=_shown,
        filters={
            "parts": label_parts,
            "visible": visible,
            "ticked": ticked_parts,
            "time": lambda iso: f"{iso[:10]} {iso[11:16]} UTC",
            "words": lambda name: name.replace("_", " "),
        },
    )
