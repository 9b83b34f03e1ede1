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
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from harness.registry.schema import LeagueRows, Table
from harness.report import view
from harness.report.model import Report
from harness.report.origin import stage_summary
from harness.report.parts import FoundLeague, LeagueCosts, LeagueMark, LeagueMember, LeagueVerdict
from harness.report.plots import INK, MUTED, OURS, PAGE_WIDTH, Picture, Target, canvas, plain_frame
from harness.report.rows import StoreReader
from harness.report.scores import ALPHA, TableScores
from harness.report.view import APPLIES_NOT, Block, probability, signed
from harness.statistics import (
    Interval,
    ScoreMatrix,
    Scores,
    holm,
    mean_interval,
    spearman,
    weighted_sum,
)
from harness.words import counted
from harness.worlds.stage_io import read_rows

if TYPE_CHECKING:
    from harness.pipeline.algorithm import Run
    from harness.pipeline.runs import TableRuns
    from harness.registry.profile import Profile

FEWEST_SEEDS = 3
"""Minimum number of seeds to rank anything; with fewer the standard error is a guess."""

Facts = Mapping[str, tuple[tuple[LeagueMark, ...], LeagueCosts | None]]
"""The curve and the costs of each row, from its stages."""


def leagues_of(
    runs: TableRuns, reader: StoreReader, scores: TableScores
) -> tuple[FoundLeague, ...]:
    table, asked = runs.table, set(runs.row_ids)
    leagues = {it.id: _rows(table, it) for it in table.leagues if it.uniform in asked}
    wanted = {row for rows in leagues.values() for row in rows} & asked
    facts = {row: _facts(runs, row, reader, scores) for row in wanted}
    return tuple(
        _found(table.league(name), [row for row in rows if row in asked], scores, facts)
        for name, rows in leagues.items()
    )


def found_again(report: Report, scores: TableScores) -> list[FoundLeague]:
    """Recompute the leagues of a report that was read back, from its scores."""
    return [
        _found(report.table.league(it.id), [own.row for own in it.members], scores,
               {own.row: (own.curve, own.costs) for own in it.members})
        for it in report.leagues
    ]  # fmt: skip


def _rows(table: Table, league: LeagueRows) -> list[str]:
    return [league.uniform, *(row.id for row in table.rows if row.baseline == league.uniform)]


def _marks(row: str, scores: TableScores) -> list[Scores]:
    """Return a row's scores at each mark; empty if any is missing a seed."""
    whole = [own for column in scores.reads if (own := scores.of(row, column)) is not None]
    return whole if len(whole) == len(scores.reads) else []


def area(start: Scores, marks: Sequence[Scores]) -> Scores:
    """Return the mean score over a budget, by the trapezoidal rule, minus the starting score."""
    parts = len(marks)
    inner = [(1.0 / parts, scores) for scores in marks[:-1]]
    return weighted_sum([(0.5 / parts - 1.0, start), *inner, (0.5 / parts, marks[-1])])


def _found(
    league: LeagueRows, rows: Sequence[str], scores: TableScores, facts: Facts
) -> FoundLeague:
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
    uniform = marks[league.uniform]
    members = []
    for row in rows:
        gain, own = gains.get(row), areas.get(row)
        curve, costs = facts.get(row, ((), None))
        members.append(
            LeagueMember(
                row=row,
                verdict=_verdict(league, row, own, gain, adjusted.get(row), why),
                area=None if own is None else own.mean,
                gain=None if gain is None else (gain.mean, gain.low, gain.high),
                p_holm=adjusted.get(row),
                final=marks[row][-1].mean if marks[row] else None,
                overtakes=_overtakes(start, marks[row], uniform),
                by_seed=_by_seed(own, base) if row != league.uniform else (),
                detectable=None if gain is None else gain.detectable(ALPHA),
                curve=curve,
                costs=costs,
            )
        )
    return FoundLeague(
        id=league.id, why_not=why, said=_said(league, members, why), members=tuple(members)
    )


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


# Facts from the stages.


def _facts(
    runs: TableRuns, row: str, reader: StoreReader, scores: TableScores
) -> tuple[tuple[LeagueMark, ...], LeagueCosts | None]:
    table = runs.table
    heights = _marks(row, scores)
    own = [runs.of(table.row(row).run_id(column)) for column in table.columns]
    stages = {s.fingerprint: s for of_mark in own for run in of_mark for s in run.training}
    if not heights or any(reader.store.status(name) != "done" for name in stages):
        return (), None
    curve = tuple(
        LeagueMark(score=height.mean, **_mean([_at_mark(run, reader) for run in of_mark]))  # type: ignore[arg-type]
        for height, of_mark in zip(heights, own, strict=True)
    )
    costs = _mean([_at_the_end(run, reader, runs.profile) for run in own[-1]])
    return curve, LeagueCosts(**costs)  # type: ignore[arg-type]


def _mean(numbers: Sequence[Mapping[str, float | None]]) -> dict[str, float | None]:
    """Return each number's mean over its known values, or None if there are none."""
    known = {name: [it for one in numbers if (it := one[name]) is not None] for name in numbers[0]}
    return {name: float(np.mean(values)) if values else None for name, values in known.items()}


def _at_mark(run: Run, reader: StoreReader) -> dict[str, float]:
    last = run.training[-1]
    file = reader.store.file(last.fingerprint, "trained.parquet")
    said = stage_summary(reader.store, last)
    return {
        "reward": float(np.mean([row["reward_mean"] for row in read_rows(file, "reward_mean")])),
        "seconds": reader.seconds(run.training) or 0.0,
        **{name: float(said[name]) for name in ("rollouts", "tokens", "gradient_steps")},
    }


def _at_the_end(run: Run, reader: StoreReader, profile: Profile) -> dict[str, float | None]:
    said = stage_summary(reader.store, run.training[-1])
    rows = [
        row
        for stage in run.training
        for row in read_rows(
            reader.store.file(stage.fingerprint, "trained.parquet"),
            *("prompt_id", "spread", "predicted"),
        )
    ]
    pairs = [(row["predicted"], row["spread"]) for row in rows if row["predicted"] is not None]
    names = ("tokens", "scored_tokens", "creator_tokens", "gradient_steps", "read_prompts")
    return {
        **{name: float(said[name]) for name in (*names, "trained", "insertion")},
        "screened": float(said["rollouts"] - said["trained"] - said["insertion"]),
        "signal": float(np.mean([row["spread"] > 0 for row in rows])),
        "prompts": float(len({row["prompt_id"] for row in rows})),
        "topics": _topics(run, reader, profile),
        "foreseen": spearman(*map(list, zip(*pairs, strict=True))) if pairs else None,
    }


def _topics(run: Run, reader: StoreReader, profile: Profile) -> float | None:
    """Return the exponential of the entropy of the topics trained on: k for k equal shares."""
    from harness.worlds.lookup import world_of

    topics = world_of(profile).prompts.topics()
    if topics is None or topics.settings is not None:  # a model would have to sort them
        return None
    folders = [reader.store.path(stage.fingerprint) for stage in run.training]
    told = Counter(topic for folder in folders for _, topic in topics.read(folder))
    shares = np.array(list(told.values())) / told.total()
    return float(np.exp(-(shares * np.log(shares)).sum()))


# Presentation.

RANKED = (
    "Area: mean height of the score over the budget, less that of θ0. Over even draws: paired by "
    "seed and prompt, 95%; p by Holm over the league's methods. Overtakes: share of the budget "
    "after which the score is what even draws end with."
)

SPENT = (
    "When the budget was spent, means over seeds. Rollouts that were trained on, made to choose, "
    "and made of rewrites that entered the pool; tokens generated, which the reward model reads, "
    "and written by the creator; prompts read by the policy to value them."
)

TRAINED_ON = (
    "Means over seeds. Signal: groups whose rewards differ. Prompts: distinct ones. Topics: e to "
    "the entropy of theirs, k where k topics are trained on alike. Foreseen: Spearman's "
    "correlation of the spread that the selector predicted and that of the rewards."
)

Part = tuple[str, Sequence[str], Callable[[LeagueMember], Sequence[str]], Sequence[str]]
"""Title and header of a block, the numbers of a row (none to leave it out), and notes."""


def league_blocks(report: Report) -> list[Block]:
    """Return the blocks of a report's leagues: standings, gains by seed, costs, training data."""
    names, blocks = view.row_names(report), []
    for found in report.leagues:
        parts: tuple[Part, ...] = (
            ("League",
             ("verdict", "area", "over even\ndraws", "p", "final", "overtakes"),
             functools.partial(_standing, found), (found.said, RANKED)),
            ("Area over even draws, seed by seed", [str(seed) for seed in report.seeds],
             lambda own: [signed(one, 1) for one in own.by_seed], ()),
            ("What each cost",
             ("steps", "trained\non", "to\nchoose", "on\nentering", "tokens", "creator", "read"),
             _spent, (SPENT,)),
            ("What each trained on", ("signal", "prompts", "topics", "foreseen"),
             _trained_on, (TRAINED_ON,)),
        )  # fmt: skip
        for what, head, figures, notes in parts:
            # A row's label names the league before the colon; the title already does.
            rows = [
                (names[own.row].rpartition(": ")[2], *shown)
                for own in found.members
                if (shown := figures(own))
            ]
            title = f"{what}: {report.table.league(found.id).title}"
            lines = tuple(map(view.plain, notes))
            blocks.append(Block(title, lines, ("row", *head), tuple(rows)))
    return blocks


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


def _spent(own: LeagueMember) -> list[str]:
    if (c := own.costs) is None:
        return [APPLIES_NOT] * 7
    rolled = (c.gradient_steps, c.trained, c.screened, c.insertion)
    return [f"{n:,.0f}" for n in (*rolled, c.tokens, c.creator_tokens, c.read_prompts)]


def _trained_on(own: LeagueMember) -> list[str]:
    if (c := own.costs) is None:
        return [APPLIES_NOT] * 4
    return [
        f"{100 * c.signal:.0f}%",
        f"{c.prompts:.0f}",
        APPLIES_NOT if c.topics is None else f"{c.topics:.1f}",
        APPLIES_NOT if c.foreseen is None else signed(c.foreseen, 2),
    ]


AXES = {
    "tokens": "tokens generated",
    "rollouts": "rollouts",
    "gradient_steps": "gradient steps",
    "seconds": "seconds",
}

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


def league_pictures(report: Report) -> list[Picture]:
    return [
        Picture(
            f"Score and reward over the budget: {report.table.league(found.id).title}",
            f"league-{found.id}.svg",
            "Score of each row against tokens, rollouts, steps and time, and against its reward",
            functools.partial(_draw, found, report),
        )
        for found in report.leagues
        if any(own.curve for own in found.members)
    ]


def _draw(found: FoundLeague, report: Report, target: Target) -> None:
    names = view.row_names(report)
    drawn = [own for own in found.members if own.curve]
    across = {**AXES, "reward": "mean learned reward"}
    with canvas(target, "harness", (PAGE_WIDTH, 10.0), 3, 2) as (sheet, panels):
        for place, (axis, label) in zip(panels.flat, across.items(), strict=False):
            _lines(place, drawn, axis, label, names)
        *_, curves, rest = panels.flat
        rest.axis("off")
        handles, labels = curves.get_legend_handles_labels()
        sheet.legend(handles, labels, loc="outside lower center", ncols=2, frameon=False)


def _lines(
    place: Any, drawn: Sequence[LeagueMember], axis: str, label: str, names: Mapping[str, str]
) -> None:
    """Draw a line per row: color and dashes show its verdict, the marker tells rows apart."""
    plain_frame(place, grid="both")
    place.set_xlabel(label)
    place.set_ylabel("score")
    of_verdict: Counter[LeagueVerdict] = Counter()
    for own in drawn:
        marker = MARKERS[of_verdict[own.verdict] % len(MARKERS)]
        of_verdict[own.verdict] += 1
        colour, dashes = STROKES[own.verdict]
        name, verdict = names[own.row].rpartition(": ")[2], own.verdict
        said = name if verdict == "no method" else f"{name}: {verdict}"
        place.plot([getattr(mark, axis) for mark in own.curve], [mark.score for mark in own.curve],
                   color=colour, marker=marker, linestyle=dashes, markersize=4, linewidth=1.0,
                   label=said)  # fmt: skip
