"""Results of a league of selectors: which beat uniform sampling on the same budget, if any.

A row's area is its mean score over the budget, by the trapezoidal rule over the marks at which it
was judged, minus the score before training: a weighted sum of per-prompt scores, so that it is
compared with that of uniform sampling like any score. The area up to the mark by which uniform
sampling has made 60% of its gain tells who learns sooner. Nothing is ranked unless the controls
hold: the oracle's choices are above uniform sampling and prompts that cannot teach below it, and
uniform sampling with other random numbers is neither.
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Collection, Mapping, Sequence

import numpy as np

from harness.registry.schema import LeagueRows, Table
from harness.report import view
from harness.report.controls import FEWEST_SEEDS
from harness.report.model import FoundLeague, LeagueMember, LeagueVerdict, WithInterval
from harness.report.plots import INK, MUTED, OURS, PAGE_WIDTH, Picture, Target, canvas, plain_frame
from harness.report.results import Results
from harness.report.scores import ALPHA, RunScores
from harness.report.view import APPLIES_NOT, Block, probability
from harness.statistics import Interval, Scores, conjunction, holm, mean_interval, weighted_sum
from harness.words import counted

EARLY = 0.6
"""Share of uniform sampling's gain that ends the early part of the budget."""


def leagues_of(table: Table, rows: Collection[str], scores: RunScores) -> tuple[FoundLeague, ...]:
    """Return the leagues of a table, restricted to some of its rows."""
    found = []
    for it in (league for league in table.leagues if league.uniform in rows):
        others = [row.id for row in table.rows if row.baseline == it.uniform]
        methods = [row for row in others if row not in it.no_methods]
        shown = [it.uniform, *(row for row in others if row in rows)]
        found.append(_found(it, shown, methods, scores))
    return tuple(found)


def area(start: Scores, marks: Sequence[Scores]) -> Scores:
    """Return the mean score over a budget, by the trapezoidal rule, minus the starting score."""
    parts = len(marks)
    inner = [(1.0 / parts, scores) for scores in marks[:-1]]
    return weighted_sum([(0.5 / parts - 1.0, start), *inner, (0.5 / parts, marks[-1])])


def early_mark(uniform: Sequence[Scores]) -> int | None:
    """Return the first mark of a curve at which most of its gain is made; None without a gain."""
    start, *heights = [own.mean for own in uniform]
    gain = heights[-1] - start
    if gain <= 0.0:
        return None
    return next(mark for mark, own in enumerate(heights, 1) if own - start >= EARLY * gain)


def _found(
    league: LeagueRows, rows: Sequence[str], methods: Sequence[str], scores: RunScores
) -> FoundLeague:
    marks: dict[str, list[Scores]] = {}
    for row in (league.start, *rows):
        whole = [own for column in scores.reads if (own := scores.of(row, column)) is not None]
        marks[row] = whole if len(whole) == len(scores.reads) else []
    start = marks[league.start][:1]
    areas = {row: area(start[0], marks[row]) for row in rows if start and marks[row]}
    early = early_mark([*start, *marks[league.uniform]]) if league.uniform in areas else None
    soon = {row: area(start[0], marks[row][:early]) for row in areas if early is not None}
    gains, early_gains = (_over(league.uniform, of, len(scores.seeds)) for of in (areas, soon))
    # The family is of all methods, run or not, so that running fewer makes nothing easier to tell.
    p_values = [conjunction([gains[it]]).p_value if it in gains else 1.0 for it in methods]
    adjusted = {it: p for it, p in zip(methods, holm(p_values), strict=True) if it in gains}
    why = _why_not(league, gains, len(scores.seeds))
    members = []
    for row in rows:
        gain, own = gains.get(row), areas.get(row)
        verdict: LeagueVerdict = "missing"
        if own is not None:
            verdict = "no method" if row in league.no_methods else "open"
        if why is None and row in adjusted:
            verdict = _verdict(gains[row], adjusted[row], league.margin)
        members.append(LeagueMember(
            row=row,
            verdict=verdict,
            area=None if own is None else own.mean,
            gain=_with_ends(gain),
            early=_with_ends(early_gains.get(row)),
            p_holm=adjusted.get(row),
            final=marks[row][-1].mean if marks[row] else None,
            detectable=None if gain is None else gain.detectable(ALPHA),
        ))  # fmt: skip
    said = _said(league, members, why)
    return FoundLeague(
        id=league.id, why_not=why, early_mark=early, said=said, members=tuple(members)
    )


def _over(uniform: str, areas: Mapping[str, Scores], seeds: int) -> dict[str, Interval]:
    if uniform not in areas or seeds == 1:
        return {}
    others = {row: own for row, own in areas.items() if row != uniform}
    return {row: mean_interval(own.minus(areas[uniform])) for row, own in others.items()}


def _with_ends(found: Interval | None) -> WithInterval | None:
    return None if found is None else (found.mean, found.low, found.high)


def _why_not(league: LeagueRows, gains: Mapping[str, Interval], seeds: int) -> str | None:
    missing = [r for r in (league.twin, *league.above, *league.below) if r not in gains]
    if seeds < FEWEST_SEEDS:
        return f"it needs {FEWEST_SEEDS} seeds and has {seeds}"
    if missing:
        return f"its controls {', '.join(missing)} have not run"
    wrong = [f"{row} is not above even draws" for row in league.above if gains[row].low <= 0]
    wrong += [f"{row} is not below even draws" for row in league.below if gains[row].high >= 0]
    twin = gains[league.twin]
    if twin.low > 0 or twin.high < 0:
        wrong.append(f"{league.twin}, which draws evenly too, differs from even draws")
    return "; ".join(wrong) or None


def _verdict(gain: Interval, p: float, margin: float) -> LeagueVerdict:
    if p < ALPHA:
        return "above" if gain.mean > 0 else "below"
    return "alike" if -margin < gain.low and gain.high < margin else "open"


def _said(league: LeagueRows, members: Sequence[LeagueMember], why: str | None) -> str:
    if why is not None:
        return f"Inadmissible, nothing is ranked: {why}."
    words = {"above": "above even draws", "below": "below",
             "alike": f"alike within {league.margin:g}"}  # fmt: skip
    verdicts, parts = [own.verdict for own in members], []
    for verdict, text in words.items():
        rows = [own.row for own in members if own.verdict == verdict]
        parts.append(f"{len(rows)} {text}" + (f" ({', '.join(rows)})" if rows else ""))
    parts.append(f"{verdicts.count('open')} that cannot be told from them")
    missing = verdicts.count("missing")
    lacking = f"; {missing} have not run" if missing else ""
    methods = len(members) - verdicts.count("no method")
    least = [own.detectable for own in members if own.detectable is not None]
    return (
        f"On equal budgets, of {counted(methods, 'selector')}: {', '.join(parts)}{lacking}; a "
        f"difference of {float(np.median(least)):.1f} would be found with a probability of 80% "
        "(before adjusting)."
    )


# --- Presentation ---

RANKED = (
    "Area: mean height of the score over the budget, less that of θ0. Over even draws: paired by "
    "seed and prompt, 95%; p by Holm over the league's methods."
)


def league_blocks(results: Results) -> list[Block]:
    blocks = []
    head = ("row", "verdict", "area", "over even\ndraws", "p", "over even\ndraws, early", "final")
    for found in results.report.leagues:
        names, title = _names(results), results.table.league(found.id).title
        notes = tuple(map(view.plain, (found.said, RANKED + _early_text(found, results))))
        rows = [(names[own.row], *_standing(found, own)) for own in found.members]
        blocks.append(Block(f"League: {title}", notes, head, tuple(rows)))
    return blocks


def _early_text(found: FoundLeague, results: Results) -> str:
    if found.early_mark is None:
        return ""
    mark = f"mark {found.early_mark} of {len(results.table.columns)}"
    made = f"where even draws have made {EARLY:.0%} of their gain"
    return f" Early: the same up to {mark}, {made}; no p."


def _names(results: Results) -> dict[str, str]:
    """Return the names of the rows, without the league's before the colon."""
    return {row: name.rpartition(": ")[2] for row, name in view.row_names(results.report).items()}


def over_even(gain: WithInterval | None) -> str:
    """Format a gain over even draws with its interval's half-width."""
    return APPLIES_NOT if gain is None else view.with_half(gain[0], gain[2], 1, "+")


def _standing(found: FoundLeague, own: LeagueMember) -> list[str]:
    if own.area is None or own.final is None:
        return [own.verdict, *[APPLIES_NOT] * 5]
    return [
        "not ranked" if found.why_not and own.verdict == "open" else own.verdict,
        f"{own.area:z.1f}",
        over_even(own.gain),
        APPLIES_NOT if own.p_holm is None else probability(own.p_holm),
        over_even(own.early),
        f"{own.final:.1f}",
    ]


AXES = {"tokens": "tokens generated", "rollouts": "rollouts", "gradient_steps": "gradient steps",
        "training_seconds": "seconds", "reward": "mean learned reward"}  # fmt: skip
"""The facts that scores are drawn against."""

STROKES: Mapping[LeagueVerdict, tuple[str, str]] = {
    "above": (OURS, "-"), "below": ("#D55E00", "--"), "alike": (MUTED, "-"),
    "open": ("#CC79A7", "-."), "no method": ("#009E73", ":"), "missing": (INK, ":"),
}  # fmt: skip
"""Color and dashes of a row's lines, by verdict."""

MARKERS = "os^DvPX<>*hd"
"""Markers of the rows with the same verdict, in order."""


def league_pictures(results: Results) -> list[Picture]:
    return [
        Picture(
            f"Score and reward over the budget: {results.table.league(found.id).title}",
            f"league-{found.id}.svg",
            "Score of each row against tokens, rollouts, steps and time, and against its reward",
            functools.partial(_draw, found, results),
        )
        for found in results.report.leagues
        if any(own.area is not None for own in found.members)
    ]


def _draw(found: FoundLeague, results: Results, target: Target) -> None:
    """Draw a line per row: color and dashes show its verdict, the marker tells rows apart."""
    names, report = _names(results), results.report
    facts = {it.run: it.values for it in results.facts}
    runs = {row.id: row.runs for row in report.rows}
    with canvas(target, "harness", (PAGE_WIDTH, 10.0), 3, 2) as (sheet, panels):
        for place, (axis, label) in zip(panels.flat, AXES.items(), strict=False):
            plain_frame(place, grid="both")
            place.set_xlabel(label)
            place.set_ylabel("score")
            of_verdict: Counter[LeagueVerdict] = Counter()
            for own in found.members:
                cells = [cell for cell in report.cells if cell.row == own.row]
                at = [facts.get(runs[own.row][cell.column], {}).get(axis) for cell in cells]
                if own.area is None or None in at:
                    continue
                marker = MARKERS[of_verdict[own.verdict] % len(MARKERS)]
                of_verdict[own.verdict] += 1
                colour, dashes = STROKES[own.verdict]
                name = names[own.row] + f": {own.verdict}" * (own.verdict != "no method")
                place.plot(at, [cell.mean for cell in cells], color=colour, marker=marker,
                           linestyle=dashes, markersize=4, linewidth=1.0, label=name)  # fmt: skip
        *_, curves, rest = panels.flat
        rest.axis("off")
        handles, labels = curves.get_legend_handles_labels()
        sheet.legend(handles, labels, loc="outside lower center", ncols=2, frameon=False)
