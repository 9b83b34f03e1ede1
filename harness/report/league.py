"""Results of a league of selectors: which beat uniform sampling on the same budget, if any.

A row's area is its mean score over the budget, by the trapezoidal rule over the marks at which it
was judged, minus the score before training. It is a weighted sum of per-prompt scores, so it is
compared with that of uniform sampling like any score: paired by seed and prompt, with p-values
Holm-adjusted over the league's methods; rows are alike if the whole 95% interval lies within the
declared margin.

A league ranks nothing unless its controls hold: the oracle's choices must be above uniform sampling
and prompts that cannot teach below it, both intervals excluding zero, and uniform sampling with
other random numbers must be neither. With one seed nothing is compared.
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from harness.registry.schema import LeagueRows, Table
from harness.report import view
from harness.report.model import FoundLeague, LeagueMember, LeagueVerdict
from harness.report.plots import INK, MUTED, OURS, PAGE_WIDTH, Picture, Target, canvas, plain_frame
from harness.report.results import Results
from harness.report.scores import ALPHA, RunScores
from harness.report.view import APPLIES_NOT, Block, probability, signed
from harness.statistics import Interval, ScoreMatrix, Scores, holm, mean_interval, weighted_sum
from harness.words import counted

FEWEST_SEEDS = 3
"""Minimum number of seeds to rank anything; with fewer the standard error is a guess."""


def leagues_of(table: Table, rows: Collection[str], scores: RunScores) -> tuple[FoundLeague, ...]:
    """Return the leagues of a table, over those of its rows that are given."""
    return tuple(_found(it, _rows(table, it, rows), scores)
                 for it in table.leagues if it.uniform in rows)  # fmt: skip


def _rows(table: Table, league: LeagueRows, asked: Collection[str]) -> list[str]:
    rows = [league.uniform, *(row.id for row in table.rows if row.baseline == league.uniform)]
    return [row for row in rows if row in asked]


def _marks(row: str, scores: RunScores) -> list[Scores]:
    """Return a row's scores at each mark; empty if any is missing a seed."""
    whole = [own for column in scores.reads if (own := scores.of(row, column)) is not None]
    return whole if len(whole) == len(scores.reads) else []


def area(start: Scores, marks: Sequence[Scores]) -> Scores:
    """Return the mean score over a budget, by the trapezoidal rule, minus the starting score."""
    parts = len(marks)
    inner = [(1.0 / parts, scores) for scores in marks[:-1]]
    return weighted_sum([(0.5 / parts - 1.0, start), *inner, (0.5 / parts, marks[-1])])


def _found(league: LeagueRows, rows: Sequence[str], scores: RunScores) -> FoundLeague:
    seeds = scores.seeds
    marks = {row: _marks(row, scores) for row in rows}
    start = _marks(league.start, scores)
    areas = {row: area(start[0], own) for row, own in marks.items() if own and start}
    base = areas.get(league.uniform)
    gains: dict[str, Interval] = {}
    if base is not None and len(seeds) > 1:
        others = [row for row in areas if row != league.uniform]
        gains = {row: mean_interval(areas[row].minus(base)) for row in others}
    methods = [row for row in gains if row not in league.no_methods]
    p_values = [min(1.0, 2 * min(p, 1 - p)) for p in (gains[m].p_above_zero() for m in methods)]
    adjusted = dict(zip(methods, holm(p_values), strict=True)) if methods else {}
    why = why_not(league, gains, seeds)
    members = []
    for row in rows:
        gain, own = gains.get(row), areas.get(row)
        members.append(LeagueMember(
            row=row,
            verdict=_verdict(league, row, own, gain, adjusted.get(row), why),
            area=None if own is None else own.mean,
            gain=None if gain is None else (gain.mean, gain.low, gain.high),
            p_holm=adjusted.get(row),
            final=marks[row][-1].mean if marks[row] else None,
            overtakes=_overtakes(start, marks[row], marks[league.uniform]),
            by_seed=_by_seed(own, base) if row != league.uniform else (),
            detectable=None if gain is None else gain.detectable(ALPHA),
        ))  # fmt: skip
    said = _said(league, members, why)
    return FoundLeague(id=league.id, why_not=why, said=said, members=tuple(members))


def why_not(league: LeagueRows, gains: Mapping[str, Interval], seeds: Sequence[int]) -> str | None:
    missing = [r for r in (league.twin, *league.above, *league.below) if r not in gains]
    if len(seeds) < FEWEST_SEEDS:
        return f"it needs {FEWEST_SEEDS} seeds and has {len(seeds)}"
    if missing:
        return f"its controls {', '.join(missing)} have not run"
    wrong = [f"{row} is not above even draws" for row in league.above if gains[row].low <= 0]
    wrong += [f"{row} is not below even draws" for row in league.below if gains[row].high >= 0]
    twin = gains[league.twin]
    if twin.low > 0 or twin.high < 0:
        wrong.append(f"{league.twin}, which draws evenly too, differs from even draws")
    return "; ".join(wrong) or None


def _verdict(
    league: LeagueRows,
    row: str,
    own: Scores | None,
    gain: Interval | None,
    adjusted: float | None,
    why: str | None,
) -> LeagueVerdict:
    if own is None:
        return "missing"
    if row in league.no_methods:
        return "no method"
    if why is not None or gain is None or adjusted is None:
        return "open"
    if adjusted < ALPHA:
        return "above" if gain.mean > 0 else "below"
    return "alike" if -league.margin < gain.low and gain.high < league.margin else "open"


def _overtakes(
    start: Sequence[Scores], marks: Sequence[Scores], uniform: Sequence[Scores]
) -> float | None:
    """Return the fraction of the budget at which a row's curve first reaches uniform's end."""
    if not (start and marks and uniform):
        return None
    heights, goal = [start[0].mean, *(own.mean for own in marks)], uniform[-1].mean
    for number, (before, after) in enumerate(pairwise(heights)):
        if before >= goal:
            return number / len(marks)
        if after >= goal:
            return (number + (goal - before) / (after - before)) / len(marks)
    return None


def _by_seed(own: Scores | None, base: Scores | None) -> tuple[float, ...]:
    if own is None or base is None:
        return ()
    gained = own.minus(base)
    assert isinstance(gained, ScoreMatrix)
    return tuple(gained.values.mean(axis=1).tolist())


def _said(league: LeagueRows, members: Sequence[LeagueMember], why: str | None) -> str:
    if why is not None:
        return f"Inadmissible, nothing is ranked: {why}."
    of = {
        name: [m.row for m in members if m.verdict == name]
        for name in ("above", "below", "alike", "open", "missing")
    }
    methods = sum(map(len, of.values()))
    least = [m.detectable for m in members if m.detectable is not None]
    parts = [f"{len(of['above'])} above even draws{_named(of['above'])}"]
    parts += [f"{len(of['below'])} below{_named(of['below'])}"]
    parts += [f"{len(of['alike'])} alike within {league.margin:g}{_named(of['alike'])}"]
    parts += [f"{len(of['open'])} that cannot be told from them"]
    lacking = f"; {len(of['missing'])} have not run" if of["missing"] else ""
    return (
        f"On equal budgets, of {counted(methods, 'selector')}: {', '.join(parts)}{lacking}; a "
        f"difference of {float(np.median(least)):.1f} would be found with a probability of 80% "
        "(before adjusting)."
    )


def _named(rows: Sequence[str]) -> str:
    return f" ({', '.join(rows)})" if rows else ""


# Presentation.

RANKED = (
    "Area: mean height of the score over the budget, less that of θ0. Over even draws: paired by "
    "seed and prompt, 95%; p by Holm over the league's methods. Overtakes: share of the budget "
    "after which the score is what even draws end with."
)


def league_blocks(results: Results) -> list[Block]:
    """Return the standings of each league, and its gains seed by seed."""
    blocks = []
    for found in results.report.leagues:
        names, title = _names(results, found), results.table.league(found.id).title
        notes = tuple(map(view.plain, (found.said, RANKED)))
        head: tuple[str, ...]
        head = ("row", "verdict", "area", "over even\ndraws", "p", "final", "overtakes")
        rows = [(names[own.row], *_standing(found, own)) for own in found.members]
        blocks.append(Block(f"League: {title}", notes, head, tuple(rows)))
        head = ("row", *map(str, results.report.seeds))
        rows = [(names[own.row], *(signed(one, 1) for one in own.by_seed))
                for own in found.members if own.by_seed]  # fmt: skip
        blocks.append(Block(f"Area over even draws, seed by seed: {title}", (), head, tuple(rows)))
    return blocks


def _names(results: Results, found: FoundLeague) -> dict[str, str]:
    """Return the names of the rows, without the league's before the colon."""
    names = view.row_names(results.report)
    return {own.row: names[own.row].rpartition(": ")[2] for own in found.members}


def _standing(found: FoundLeague, own: LeagueMember) -> list[str]:
    if own.area is None or own.final is None:
        return [own.verdict, *[APPLIES_NOT] * 5]
    return [
        "not ranked" if found.why_not and own.verdict == "open" else own.verdict,
        f"{own.area:.1f}",
        view.area(own),
        APPLIES_NOT if own.p_holm is None else probability(own.p_holm),
        f"{own.final:.1f}",
        "never" if own.overtakes is None else f"{own.overtakes:.2f}",
    ]


AXES = {
    "tokens": "tokens generated",
    "rollouts": "rollouts",
    "gradient_steps": "gradient steps",
    "training_seconds": "seconds",
    "reward": "mean learned reward",
}
"""The facts that scores are drawn against."""

STROKES: Mapping[LeagueVerdict, tuple[str, str]] = {
    "above": (OURS, "-"),
    "below": ("#D55E00", "--"),
    "alike": (MUTED, "-"),
    "open": ("#CC79A7", "-."),
    "no method": ("#009E73", ":"),
    "missing": (INK, ":"),
}
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
    with canvas(target, "harness", (PAGE_WIDTH, 10.0), 3, 2) as (sheet, panels):
        for place, (axis, label) in zip(panels.flat, AXES.items(), strict=False):
            plain_frame(place, grid="both")
            place.set_xlabel(label)
            place.set_ylabel("score")
            _lines(place, found, results, axis)
        *_, curves, rest = panels.flat
        rest.axis("off")
        handles, labels = curves.get_legend_handles_labels()
        sheet.legend(handles, labels, loc="outside lower center", ncols=2, frameon=False)


def _lines(place: Any, found: FoundLeague, results: Results, axis: str) -> None:
    """Draw a line per row: color and dashes show its verdict, the marker tells rows apart."""
    names, report = _names(results, found), results.report
    facts = {it.run: it.values for it in results.facts}
    runs = {row.id: row.runs for row in report.rows}
    of_verdict: Counter[LeagueVerdict] = Counter()
    for own in found.members:
        cells = [cell for cell in report.cells if cell.row == own.row]
        at = [facts.get(runs[own.row][cell.column], {}).get(axis) for cell in cells]
        if own.area is None or None in at:
            continue
        marker = MARKERS[of_verdict[own.verdict] % len(MARKERS)]
        of_verdict[own.verdict] += 1
        colour, dashes = STROKES[own.verdict]
        name, verdict = names[own.row], own.verdict
        place.plot(at, [cell.mean for cell in cells], color=colour, marker=marker,
                   linestyle=dashes, markersize=4, linewidth=1.0,
                   label=name if verdict == "no method" else f"{name}: {verdict}")  # fmt: skip
