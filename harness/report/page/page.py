"""The page as HTML: one file that contains its style, pictures and one short script.

The templates escape all text. As a second line of defense, the page's content security policy
forbids all requests and all scripts but its own, identified by digest. The page can be read without
the script, which filters and sorts the claims. Numbers are formatted by `harness.report.view`, as
on the terminal.
"""

from __future__ import annotations

import base64
import functools
import hashlib
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.registry.claims import Claim, Qualitative, figure_claims, places
from harness.registry.declared import Deviation, deviations, value_in
from harness.registry.paper import the_paper
from harness.registry.profile import Profile
from harness.report import view
from harness.report.answer import answer_to, finding
from harness.report.blocks import (
    column_blocks,
    control_blocks,
    fact_blocks,
    found_blocks,
    summary_blocks,
)
from harness.report.claims import PRIMARY, all_verdicts, measures, tally, totals
from harness.report.model import GROUPS, Cell, Estimate, Verdict
from harness.report.page.examples import examples_in, first_of
from harness.report.page.marks import axis_of, draw, holding
from harness.report.page.pictures import table_pictures
from harness.report.plots import Picture
from harness.report.render import environment
from harness.report.results import Results
from harness.report.verdicts import printed_margin
from harness.report.view import Block, Piece, label_parts, plain, signed
from harness.words import seeds_text

if TYPE_CHECKING:
    from jinja2 import Environment

TEMPLATES = Path(__file__).resolve().parents[1] / "templates" / "page"

SCRIPT = "page.js"

LONGEST = 2000
"""Maximum number of characters shown of a model's text."""

SHOWN = ("Question", "Source", "Inadmissible")
"""The facts shown at the head of a table."""


def as_html(tables: Sequence[Results], pictures: Sequence[Picture]) -> str:
    """Return the page of tables, with the pictures that belong to none of them."""
    profile = tables[0].profile
    origins = [it.report.origin for it in tables]
    verdicts = all_verdicts(tables, figure_claims(), profile)
    script = hashlib.sha256((TEMPLATES / SCRIPT).read_bytes())
    finished = [origin.finished for origin in origins if origin.finished]
    return (
        _environment()
        .get_template("page.html.j2")
        .render(
            profile=profile,
            published=any(it.folder for it in tables),
            paper=the_paper(),
            answer=answer_to(tables, verdicts),
            script_digest=base64.b64encode(script.digest()).decode("ascii"),
            tables=[_table(it) for it in tables],
            pictures=pictures,
            examples=first_of(filter(None, map(examples_in, tables))),
            commits=sorted({commit for origin in origins for commit in origin.commits}),
            finished=max(finished, default=None),
            claims=_claims(tables, verdicts),
            counts=tally(verdicts).words,
            primary=PRIMARY,
            totals=totals(verdicts),
            appendix=[*_assumptions(tables), *_deviations(profile), run_block(tables)],
        )
    )


# --- A table ---


def _table(results: Results) -> dict[str, Any]:
    table, report = results.table, results.report
    facts, seeds = view.facts(results), seeds_text(report.seeds)
    done = len({cell.row for cell in report.cells if cell.mean is not None})
    several = f", seed{'s' * (len(report.seeds) > 1)} {seeds}" if done else ""
    by_reason: dict[str, list[str]] = {}
    for row, reason in results.absent.items():
        by_reason.setdefault(plain(reason.removeprefix(f"`{row}` ")), []).append(row)
    return {
        "id": table.id,
        "table": table,
        "report": report,
        "verdicts": results.verdicts,
        "name": _name(results),
        "finding": finding(results, results.verdicts),
        "progress": f"{done} of {len(report.rows)} rows{several}",
        "blocks": list(_blocks(results)),
        "facts": [fact for fact in facts if fact[0] not in SHOWN],
        "inadmissible": view.inadmissible_reason(report),
        "found": [*control_blocks(results), *found_blocks(results)],
        "summary": summary_blocks(results),
        "details": fact_blocks(results) if report.has_numbers else [],
        "absent": [(", ".join(rows), reason) for reason, rows in by_reason.items()],
        "pictures": table_pictures(results),
    }


def _blocks(results: Results) -> Iterator[dict[str, Any]]:
    table, report = results.table, results.report
    for column, block in zip(table.columns, column_blocks(results), strict=True):
        cells = [report.cell(row.id, column.id) for row in report.rows]
        axis, decimals = axis_of(map(_gain, cells)), view.our_decimals(results, column)
        lines = []
        for row, cell, (name, *figures) in zip(report.rows, cells, block.rows, strict=True):
            drawn = axis is not None and (cell.gain is not None or cell.paper_gain is not None)
            lines.append({
                "row": row.id,
                "label": name,
                "reading": table.row(row.id).reading,
                "figures": figures,
                "has_number": cell.mean is not None,
                "drawing": draw(_gain(cell), cell.paper_gain, axis, decimals)
                if axis and drawn else None,
            })  # fmt: skip
        ticks = f"x-{table.id}-{column.id}"
        main = column is table.columns[0]
        yield {**vars(block), "column": column.id, "axis": axis, "ticks": ticks, "lines": lines,
               "main": main}  # fmt: skip


def _gain(cell: Cell) -> Estimate | None:
    mean, low, high = cell.gain, cell.gain_ci_low, cell.gain_ci_high
    if mean is None or low is None or high is None:
        return None
    return Estimate(mean=mean, low=low, high=high)


def run_block(tables: Iterable[Results]) -> Block:
    """Return what stands behind each run: the rows that it serves, seeds, models and judges."""
    runs: dict[str, list[dict[str, None]]] = {}
    for found in tables:
        of_row = {row.id: row.runs for row in found.report.rows}
        for cell in found.report.cells:
            run = runs.setdefault(of_row[cell.row][cell.column], [{} for _ in range(5)])
            judges = [cell.judge] if cell.judge else []
            seeds = map(str, cell.seeds if cell.runs else ())
            own = (
                (f"{found.table.id}/{cell.row}",),
                seeds,
                cell.reward_models,
                cell.creators,
                judges,
            )
            for known, names in zip(run, own, strict=True):
                known |= dict.fromkeys(names)
    rows = [(name, *(", ".join(names) or view.APPLIES_NOT for names in own))
            for name, own in runs.items()]  # fmt: skip
    head = ("run", "rows", "seeds", "reward model", "creator", "judge")
    return Block(f"{len(rows)} runs", (), head, tuple(rows))


# --- Claims, assumptions, deviations ---


def _claims(tables: Sequence[Results], verdicts: Iterable[Verdict]) -> list[dict[str, Any]]:
    """Return the claims of the tables, then of the figures; gains in one unit share an axis."""
    known, verdicts = {it.table.id: it for it in tables}, list(verdicts)
    declared: dict[str, tuple[Claim, Results | None]] = {
        claim.id: (claim, it) for it in tables for claim in it.table.claims
    }
    declared |= {
        claim.id: (claim, known.get(place.table or ""))
        for place in figure_claims().figures
        for claim in place.claims
    }
    units = {name: _unit(*found) for name, found in declared.items()}
    axes = {
        unit: axis_of(it.estimate for it in verdicts if units[it.claim] == unit)
        for unit in {*units.values()}
    }
    lines = []
    for verdict in verdicts:
        claim, results = declared[verdict.claim]
        unit, own = units[claim.id], verdict.estimate
        axis, drawing = axes[unit], None
        if axis is not None and own is not None and not isinstance(claim.test, Qualitative):
            holds = holding(claim.test, verdict.margin)
            drawing = draw(own, printed_margin(claim, claim.test), axis, 2, holds)
        found = known.get(verdict.place)
        lines.append({
            "verdict": verdict,
            "place": verdict.place.replace("figure", "figure ") if found is None
            else _name(found).lower(),
            "linked": found is not None,
            "unit": "" if unit in ("%", "") else f"of {unit}",
            "ours": "–" if own is None else signed(own.mean, 2),
            "interval": "" if own is None else f"{signed(own.low, 2)} to {signed(own.high, 2)}",
            "axis": axis,
            "drawing": drawing,
            "measures": measures(verdict),
            "basis": None if own is None or results is None else _basis(claim, results),
        })  # fmt: skip
    return lines


def _unit(claim: Claim, results: Results | None) -> str:
    if results is None or isinstance(claim.test, Qualitative):
        return ""
    column = places(claim.test)[0][1]
    return next((it.unit for it in results.table.columns if it.id == column), "")


def _name(results: Results) -> str:
    table = results.table
    return table.id if table.source is None else f"Table {table.source.table}"


def _basis(claim: Claim, results: Results) -> str | None:
    """Return which scores a claim's margin is computed from."""
    table = results.table
    if isinstance(claim.test, Qualitative):
        return None
    cells = [
        f"{row} in {column} (run {table.row(row).run_id(table.column(column))})"
        for row, column in places(claim.test)
    ]
    seeds = ", ".join(map(str, results.report.seeds))
    return f"per-prompt scores of {', '.join(cells)}; seeds {seeds}"


def _assumptions(shown: Sequence[Results]) -> list[Block]:
    """Return the settings by who sets them, each with its source and the tables it affects."""
    tables: dict[tuple[str, str, str, str], list[str]] = {}
    for found in shown:
        for item in found.report.assumptions:
            key = (item.group, item.name, item.value, item.source)
            tables.setdefault(key, []).append(found.table.id)
    planned = sum(bool(it.report.assumptions) for it in shown)
    groups: dict[str, list[tuple[str, ...]]] = {name: [] for name in GROUPS}
    for (group, setting, value, source), where in tables.items():
        shared = "all" if len(where) == planned else ", ".join(where)
        groups[group].append((plain(f"{setting} = {value}"), plain(source), shared))
    head = ("setting", "why", "tables")
    return [
        Block(f"{GROUPS[name]}: {len(rows)} settings", (), head, tuple(rows))
        for name, rows in groups.items()
        if rows
    ]


def _deviations(profile: Profile) -> list[Block]:
    """Return where paper and code differ, what is open, and where the profile departs."""
    known, blocks = deviations(), []
    departures = [it for it in known.departures if it.at == profile.name]
    for title, entries, says in (
        ("discrepancies between the paper and the code", known.discrepancies, ("paper", "code")),
        ("ambiguities of online training", known.ambiguities, ("open",)),
        ("departures of the profile from the paper", departures, ("paper",)),
    ):
        rows = [
            (it.topic, *(getattr(it, name) for name in says), it.choice, _where(it, profile))
            for it in entries
        ]
        if rows:
            head = ("topic", *says, "here", "where")
            blocks.append(Block(f"{len(rows)} {title}", (), head, tuple(rows)))
    return blocks


def _where(entry: Deviation, profile: Profile) -> str:
    found = [f"`{name}` {_value(*value_in(profile, name), profile)}" for name in entry.settings]
    return "; ".join([*found, *(f"`{module}`" for module in entry.modules)])


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
    """Make a template expression's value printable, unless it is already markup (`visible`)."""
    if isinstance(value, str) and not hasattr(value, "__html__"):
        return visible(value, longest=len(value))
    return value


def ticked_parts(text: str) -> list[Piece]:
    """Split a sentence at its backticks into text and code pieces."""
    pieces = re.split(r"`([^`]*)`", text)
    return [Piece(piece, code=i % 2 == 1) for i, piece in enumerate(pieces) if piece]


def visible(text: str, longest: int = LONGEST) -> str:
    """Make a model's text printable, and truncate it.

    Line breaks and tabs stay; other unprintable characters, including bidirectional controls,
    become U+FFFD. Long numbers are rounded to four digits.
    """
    if _LONG_NUMBER.fullmatch(text):
        return f"{float(text):.4g}"
    shown = "".join(c if c.isprintable() or c in "\n\t" else "\ufffd" for c in text[:longest])
    rest = len(text) - longest
    return f"{shown} … ({rest:,} characters more)" if rest > 0 else shown


_LONG_NUMBER = re.compile(r"-?\d+\.\d{6,}")
"""A reply of a judge that measures; the last digits are meaningless."""


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
            "slug": lambda unit: re.sub(r"\W", "-", unit),
            "plain": plain,
        },
        view=view,
    )
