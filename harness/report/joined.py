"""Joining a store's seeds with published ones, whose stages may be gone or on another machine.

Scores, facts and provenance of a published seed are those of the publication; all numbers are
computed from the scores of all seeds.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from harness.errors import UserError
from harness.pipeline.runs import TableRuns
from harness.report.build import results_on
from harness.report.controls import KnownControls
from harness.report.model import Cell, Origin, Report, RowFacts
from harness.report.origin import distinct
from harness.report.publication import read_digests, read_published, restore
from harness.report.publish import steps_of
from harness.report.results import Results
from harness.report.scores import Numbers, RunScores
from harness.runtime import Plan


def joined(
    plan: Callable[[Sequence[int]], TableRuns],
    results: Results,
    folder: Path,
    known: KnownControls,
) -> Results:
    """Return stored results together with the published ones in a folder; `plan` takes all seeds.

    Raises `UserError` if a seed is in both, or if rows or settings differ.
    """
    restore(folder)
    (before, measured), own = read_published(folder), results.report
    runs = plan(sorted({*before.seeds, *own.seeds}))
    _check(runs, before, own, folder)
    scores = RunScores.of_table(runs.table, runs.rows, runs.seeds, measured | results.measured)
    cells = [_cell(*both, scores) for both in zip(before.cells, own.cells, strict=True)]
    origin = _origin(before.origin, own.origin, len(Plan(runs.targets)))

    def facts() -> list[RowFacts]:
        each = zip(before.facts, results.facts, strict=True)
        return [_facts(*both, (len(before.seeds), len(own.seeds))) for both in each]

    return results_on(runs, known, scores, cells, origin, facts)


def _check(runs: TableRuns, before: Report, own: Report, folder: Path) -> None:
    if runs.study is not None:
        raise UserError(f"`{own.table}` has a study over all its seeds, which need one store")
    if shared := [str(seed) for seed in own.seeds if seed in before.seeds]:
        raise UserError(f"{folder} has seed {', '.join(shared)} already; add others")
    if (before.rows, before.columns) != (own.rows, own.columns):
        raise UserError(f"{folder} has other rows or columns; name its rows with `--rows`")
    steps, published = steps_of(runs), read_digests(folder).stages or {}
    for run, known in published.items():
        now = {name: stage.fingerprint for name, stage in steps.get(run, {}).items()}
        if known != {name: now.get(name) for name in known}:
            raise UserError(f"{folder} has `{run}` with other settings; publish all seeds again")


def _cell(before: Cell, own: Cell, scores: RunScores) -> Cell:
    """Return a cell of all seeds; if a seed is incomplete, so is the cell."""
    numbers = scores.numbers(own.row, own.column)
    incomplete = before if own.state == "ok" else own
    said: dict[str, Any] = {"state": incomplete.state, "reason": incomplete.reason}
    if numbers != Numbers():
        said = {"state": "ok", "reason": None}
    made = {name: _both(before, own, name) for name in ("reward_models", "creators")}
    runs = sorted((*before.runs, *own.runs), key=_seed)
    return own.model_copy(
        update={**vars(numbers), **made, **said, "seeds": scores.seeds, "runs": tuple(runs)}
    )


def _seed(run: str) -> int:
    """Return the seed of a judged run, `run/profile/seed0@fingerprint`."""
    return int(run.rpartition("/seed")[2].partition("@")[0])


def _origin(before: Origin, own: Origin, stages: int) -> Origin:
    listed = [name for name, it in Origin.model_fields.items() if it.annotation == tuple[str, ...]]
    missing = before.stages - before.stages_done + own.stages - own.stages_done
    times = [it for it in (before.finished, own.finished) if it is not None]
    since = [it for it in (before.by_metric_since, own.by_metric_since) if it is not None]
    return Origin(
        judges={
            name: ", ".join(distinct((before.judges.get(name, judge), judge)))
            for name, judge in own.judges.items()
        },
        stages=stages,
        stages_done=stages - missing,
        finished=max(times, default=None),
        by_metric_since=min(since, default=None),
        **{name: _both(before, own, name) for name in listed},
    )


def _both(before: Cell | Origin, own: Cell | Origin, name: str) -> tuple[str, ...]:
    return distinct((*getattr(before, name), *getattr(own, name)))


def _facts(before: RowFacts, own: RowFacts, sizes: tuple[int, int]) -> RowFacts:
    """Return the facts of all seeds: means, weighted by the number of seeds."""
    state = before.state if own.state == "ok" else own.state
    values = {
        name: (sizes[0] * before.values[name] + sizes[1] * value) / sum(sizes)
        for name, value in own.values.items()
        if name in before.values and state in ("ok", "not_available")
    }
    return own.model_copy(update={"state": state, "done": before.done + own.done, "values": values})
