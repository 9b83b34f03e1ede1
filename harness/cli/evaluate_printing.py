"""What `evaluate` prints: progress, the plan with its price, and scores."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.cli.output import console, grid, note, print_json, warn
from harness.errors import HarnessError

if TYPE_CHECKING:
    from harness.benchmarking.live import Asking, Voice
    from harness.evaluation.benchmark_result import Evaluation


def progress() -> Any:
    """Return what prints how far a run is, at every tenth and only for people who watch."""
    said: dict[str, int] = {}

    def progress(what: str, count: int, total: int) -> None:
        tenth = 10 * count // total
        if tenth > said.get(what, 0):
            said[what] = tenth
            note(f"{count} of {total} {what}")

    return progress


def show_plan(asking: Asking, *, as_json: bool) -> None:
    """Print what a run would ask and cost, as JSON and nothing else where that is wanted."""
    benchmark, planned = asking.benchmark, asking.requests
    origin, ending = asking.prices, asking.retirements
    from dataclasses import asdict

    from harness.benchmarking.live import dollars

    if as_json:
        lines = [asdict(line) for line in planned]
        retirements = [retirement.as_json() for retirement in ending]
        print_json(
            {
                "benchmark": benchmark,
                "prices": origin,
                "retirements": retirements,
                "requests": lines,
            }
        )
        return
    rows = [
        (
            line.what,
            line.model,
            str(line.requests),
            str(line.from_cache),
            str(line.prompt_tokens),
            str(line.completion_tokens),
            dollars(line.usd),
            dollars(line.usd_at_most),
        )
        for line in planned
    ]
    headings = (
        "requests", "model", "all", "already there", "prompt tokens", "reply tokens", "about",
        "at most",
    )  # fmt: skip
    out = console()
    out.print(grid(headings, rows, right="234567"))
    for line in (origin, *(retirement.sentence for retirement in ending)):
        out.print(line, soft_wrap=True)


def show(found: Sequence[Evaluation], as_json: bool) -> None:
    """Print scores, a row for each model, and why some are missing."""
    notes = sorted({f"{name}: {text}" for e in found for name, text in e.score.notes.items()})
    if as_json:
        print_json([evaluation.as_json() for evaluation in found])
        for line in notes:
            note(line)
        return
    columns = list(dict.fromkeys(c for e in found for c in e.columns.values()))
    rows = []
    for evaluation in found:
        cells = {evaluation.columns[name]: _cell(evaluation, name) for name in evaluation.columns}
        score = evaluation.score
        row = [score.model, evaluation.judge or "not said", str(score.n), str(score.n_missing)]
        rows.append([*row, *(cells.get(column, "") for column in columns)])
    out = console()
    out.print(grid(["model", "judge", "n", "missing", *columns], rows, right="23456789"))
    for line in notes:
        out.print(line, soft_wrap=True)


def _cell(evaluation: Evaluation, name: str) -> str:
    value = evaluation.score.scores[name]
    if value is None:
        return "not_available"
    interval = evaluation.intervals.get(name)
    text = f"{value:.2f}"
    return text if interval is None else f"{text} ({interval[0]:.2f} to {interval[1]:.2f})"


def voice(*, as_json: bool) -> Voice:
    """Return what tells the terminal how a benchmark goes."""
    from harness.benchmarking.live import Voice

    return Voice(note, warn, progress(), partial(show_plan, as_json=as_json))


def show_kept(evaluation: Evaluation, folder: Path, *, track: bool, as_json: bool) -> None:
    """Print an evaluation and where it is, and track it."""
    from harness.benchmarking import live
    from harness.evaluation.benchmark_archive import FILE

    show([evaluation], as_json)
    note(f"judgments in {folder}")
    if track:
        live.track([folder / FILE], warn)


def show_published(found: Sequence[Evaluation], file: Path, *, track: bool, as_json: bool) -> None:
    """Print scores of a file, keep them, and track them.

    What cannot be kept or tracked is a warning: the scores are on the terminal.
    """
    from harness.benchmarking import benchmarks, live

    show(found, as_json)
    if not track:
        return
    try:
        paths = benchmarks.kept(found, file)
    except HarnessError as error:
        warn(str(error))
        return
    live.track(paths, warn)
