"""The page as HTML: one file that contains its style, pictures and one short script.

The templates escape all text. As a second line of defense, the page's content security policy
forbids all requests and all scripts but its own, identified by digest.
"""

from __future__ import annotations

import base64
import functools
import hashlib
import math
import re
import unicodedata
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from markupsafe import Markup, escape

from harness.registry.claims import Claim, Compare, Measurable, Qualitative, figure_claims, places
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
from harness.report.claims import (
    PRIMARY,
    all_verdicts,
    judged_by,
    measures,
    tally,
    totals,
    why_unjudged,
)
from harness.report.league import league_pictures
from harness.report.model import GROUPS, Estimate, Verdict, seed_of
from harness.report.page.examples import examples_in, first_of
from harness.report.plots import Picture
from harness.report.render import environment
from harness.report.results import Results
from harness.report.verdicts import printed_margin
from harness.report.view import Block, between, grouped, plain, signed
from harness.words import seeds_text, setting_text

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
    verdicts = all_verdicts(tables, judged_by(tables, figure_claims()), profile)
    script = hashlib.sha256((TEMPLATES / SCRIPT).read_bytes())
    finished = [origin.finished for origin in origins if origin.finished]
    page = _environment().get_template("page.html.j2")
    return page.render(
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
        unjudged=why_unjudged(verdicts, profile),
        totals=totals(verdicts),
        appendix=[*_assumptions(tables), *_deviations(profile), run_block(tables)],
    )


# --- A table ---


def _table(results: Results) -> dict[str, Any]:
    table, report = results.table, results.report
    facts, seeds = view.facts(results), seeds_text(report.seeds) + view.fewer_seeds(report)
    done = len({cell.row for cell in report.cells if cell.mean is not None})
    drawn = league_pictures(results)
    several = f", seed{'s' * (len(report.seeds) > 1)} {seeds}" if done else ""
    by_reason = grouped(
        (plain(reason.removeprefix(f"`{row}` ")), row) for row, reason in results.absent.items()
    )
    return {
        "id": table.id,
        "table": table,
        "report": report,
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
        "pictures": [it.published(results.folder) if results.folder else it for it in drawn],
    }


def _blocks(results: Results) -> Iterator[dict[str, Any]]:
    table, report = results.table, results.report
    for column, block in zip(table.columns, column_blocks(results), strict=True):
        decimals, lines = view.our_decimals(results, column), list[dict[str, Any]]()
        for row, (name, *figures) in zip(report.rows, block.rows, strict=True):
            cell = report.cell(row.id, column.id)
            line = {"cell": cell, "label": name, "reading": table.row(row.id).reading}
            gain, words = cell.gain_estimate, ""
            paper = cell.paper_sign if cell.paper_gain is None else cell.paper_gain
            if gain is not None or paper is not None:
                words = described(gain, paper, decimals)
            line |= {"figures": figures, "gain": gain, "paper": paper, "words": words}
            lines.append(line)
        axis = axis_of(line["gain"] for line in lines)
        yield {**vars(block), "column": column.id, "axis": axis, "lines": lines}


def run_block(tables: Iterable[Results]) -> Block:
    """Return a table of the runs: the rows that each serves, its seeds, models and judges."""
    runs: dict[str, list[dict[str, None]]] = defaultdict(lambda: [{} for _ in range(5)])
    for found in tables:
        of_row = {row.id: row.runs for row in found.report.rows}
        for cell in found.report.cells:
            rows, seeds, models, creators, judges = runs[of_row[cell.row][cell.column]]
            rows[f"{found.table.id}/{cell.row}"] = None
            seeds |= dict.fromkeys(str(seed_of(run)) for run in cell.runs)
            models |= dict.fromkeys(cell.reward_models)
            creators |= dict.fromkeys(cell.creators)
            judges |= dict.fromkeys(filter(None, [cell.judge]))
    rows_of_runs = [(name, *(", ".join(names) or view.APPLIES_NOT for names in own))
                    for name, own in runs.items()]  # fmt: skip
    head = ("run", "rows", "seeds", "reward model", "creator", "judge")
    return Block(f"{len(runs)} runs", (), head, tuple(rows_of_runs))


# --- Gains on an axis, in percent of the width, so that drawings stretch ---

MARGIN = 0.06
"""Padding at either end of an axis, as a fraction of its span."""

MOST_TICKS = 5


class Axis(NamedTuple):
    low: float
    high: float
    ticks: tuple[float, ...]
    decimals: int

    def at(self, value: float) -> float:
        """Return a value's position, in percent of the width; beyond an end, that of the end."""
        inside = min(max(value, self.low), self.high)
        return round(100.0 * (inside - self.low) / (self.high - self.low), 2)

    def label(self, tick: float) -> str:
        return "0" if tick == 0.0 else signed(tick, self.decimals)


def axis_of(gains: Iterable[Estimate | None]) -> Axis | None:
    """Return an axis that holds zero and every interval, or None if there is none."""
    known = [end for it in gains if it is not None for end in (it.low, it.high)]
    if not known:
        return None
    low, high = min(0.0, *known), max(0.0, *known)
    if low == high:
        low, high = low - 1.0, high + 1.0
    free = MARGIN * (high - low)
    low, high = low - free, high + free
    # The smallest step of 1, 2 or 5 times a power of ten that gives at most MOST_TICKS intervals.
    power = 10.0 ** math.floor(math.log10((high - low) / MOST_TICKS))
    step = next(k * power for k in (1, 2, 5, 10) if high - low <= k * power * MOST_TICKS)
    first, last = math.ceil(low / step), math.floor(high / step)
    ticks = tuple(round(k * step, 10) + 0.0 for k in range(first, last + 1))
    return Axis(low, high, ticks, max(0, -math.floor(math.log10(step))))


def described(gain: Estimate | None, paper: float | None, decimals: int) -> str:
    """Describe a drawing for screen readers."""
    ours = "no gain of ours"
    if gain is not None:
        ends = between(gain.low, gain.high, decimals)
        ours = f"our gain {signed(gain.mean, decimals)}, 95% from {ends}"
    sign = None if paper is None else (paper > 0) - (paper < 0)
    side = {None: view.NO_PAPER, 1: "above zero", 0: "zero", -1: "below zero"}[sign]
    return f"{ours}; the paper's is {side}"


def holding(test: Measurable, margin: float | None) -> tuple[float, float]:
    """Return the range of gains for which a claim holds; a margin lets rows be that far apart."""
    if isinstance(test, Compare) and test.op == "within":
        return -(margin or 0.0), margin or 0.0
    return (-(margin or 0.0), math.inf) if test.sign > 0 else (-math.inf, 0.0)


# --- Claims, assumptions, deviations ---


def _claims(tables: Sequence[Results], verdicts: Iterable[Verdict]) -> list[dict[str, Any]]:
    """Return the claims of the tables, then of the figures; gains in one unit share an axis."""
    known = {it.table.id: it for it in tables}
    own = [(it.table.id, it.table.claims) for it in tables]
    own += [(figure.table or "", figure.claims) for figure in figure_claims().figures]
    declared = {claim.id: (claim, table) for table, claims in own for claim in claims}
    lines: list[dict[str, Any]] = []
    of_unit: dict[str, list[Estimate]] = defaultdict(list)
    for verdict in verdicts:
        found = known.get(verdict.place)
        place = _name(found).lower() if found else verdict.place.replace("figure", "figure ")
        line: dict[str, Any] = {"verdict": verdict, "place": place, "linked": found is not None,
                                "measures": measures(verdict), "unit": None}  # fmt: skip
        if verdict.estimate is not None:
            claim, table = declared[verdict.claim]
            line |= _drawn(claim, known[table], verdict)
            of_unit[line["unit"]].append(verdict.estimate)
        lines.append(line)
    axes = {unit: axis_of(gains) for unit, gains in of_unit.items()}
    return [line | {"axis": axes.get(line["unit"])} for line in lines]


def _drawn(claim: Claim, results: Results, verdict: Verdict) -> dict[str, Any]:
    """Return how a claim's gain is drawn, and which scores it is computed from."""
    test, table = claim.test, results.table
    assert not isinstance(test, Qualitative)
    paper = printed_margin(claim, test)
    cells = [
        f"{row} in {column} (run {table.row(row).run_id(table.column(column))})"
        for row, column in places(test)
    ]
    seeds = ", ".join(map(str, results.report.seeds))
    return {
        "unit": table.column(places(test)[0][1]).unit,
        "holds": holding(test, verdict.margin),
        "paper": paper,
        "words": described(verdict.estimate, paper, 2),
        "basis": f"per-prompt scores of {', '.join(cells)}; seeds {seeds}",
    }


def _name(results: Results) -> str:
    table = results.table
    return table.id if table.source is None else f"Table {table.source.table}"


def _assumptions(shown: Sequence[Results]) -> list[Block]:
    """Return the settings by who sets them, each with its source and the tables it affects."""
    tables = grouped((item, it.table.id) for it in shown for item in it.report.assumptions)
    planned = sum(bool(it.report.assumptions) for it in shown)
    blocks = []
    for group, title in GROUPS.items():
        rows = [
            (
                plain(f"{item.name} = {item.value}"),
                plain(item.source),
                "all" if len(where) == planned else ", ".join(where),
            )
            for item, where in tables.items()
            if item.group == group
        ]
        if rows:
            head = ("setting", "why", "tables")
            blocks.append(Block(f"{title}: {len(rows)} settings", (), head, tuple(rows)))
    return blocks


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
    found = []
    for name in entry.settings:
        kind, value = value_in(profile, name)
        said = setting_text(value) + " by default" * (kind == "default")
        if kind == "absent":
            said = f"not part of {profile.name}"
        elif value in ((), []):
            said = "set by each row"
        found.append(f"`{name}` {said}")
    return "; ".join([*found, *(f"`{module}`" for module in entry.modules)])


# --- Texts ---


def printable(value: Any) -> Any:
    """Replace what cannot be printed, bidirectional controls included, in text without markup.

    Spaces of any width and the joiner of emoji stay.
    """
    if not isinstance(value, str) or hasattr(value, "__html__"):
        return value
    return "".join(
        c if c.isprintable() or c in "\n\t\u200d" or unicodedata.category(c) == "Zs" else "\ufffd"
        for c in value.replace("\r\n", "\n")
    )


def truncated(text: str) -> str:
    rest = len(text) - LONGEST
    return f"{text[:LONGEST]} … ({rest:,} characters more)" if rest > 0 else text


_INDEX = re.compile(r"_\{([^{}]*)\}|(?<=[*\u0080-\U0010ffff])_([A-Za-z]+|\d+)")
"""An index in braces, or a bare one behind a star or a symbol: `ratio_evol` has none."""


def label(text: str) -> Markup:
    """Set the indices of a label low, as in `θ_{0→1}` and `A*_min`."""
    return Markup(_INDEX.sub(r"<sub>\1\2</sub>", str(escape(printable(text)))))


def code(text: str) -> Markup:
    """Set names between backticks as code."""
    return Markup(re.sub(r"`([^`]*)`", r"<code>\1</code>", str(escape(printable(text)))))


@functools.cache
def _environment() -> Environment:
    return environment(
        TEMPLATES,
        {
            "label": label,
            "code": code,
            "truncated": truncated,
            "time": lambda iso: f"{iso[:10]} {iso[11:16]} UTC",
            "words": lambda name: name.replace("_", " "),
            "plain": plain,
        },
        autoescape=True,
        finalize=printable,
    )
