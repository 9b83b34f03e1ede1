"""What `evaluate` prints: progress, the plan with its price, and scores."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from harness.cli.output import console, grid, note, print_json
from harness.words import counted

if TYPE_CHECKING:
    from harness.evaluation.benchmark_result import Evaluation
    from harness.evaluation.judging.estimate import Estimate
    from harness.evaluation.judging.ledger import Spending
    from harness.evaluation.judging.prices import Retirement


def progress() -> Any:
    """Return what prints how far a run is, at every tenth and only for people who watch."""
    said: dict[str, int] = {}

    def progress(what: str, count: int, total: int) -> None:
        tenth = 10 * count // total
        if tenth > said.get(what, 0):
            said[what] = tenth
            note(f"{count} of {total} {what}")

    return progress


def show_plan(
    benchmark: str,
    planned: Sequence[Estimate],
    origin: str,
    ending: Sequence[Retirement],
    as_json: bool,
) -> None:
    """Print what a run would ask and cost.

    Args:
        benchmark: Its name.
        planned: What is asked of each model.
        origin: When and from where the judge's price is.
        ending: Which of the models are retired, or will be.
        as_json: Print JSON and nothing else.
    """
    from dataclasses import asdict

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
            _dollars(line.usd),
            _dollars(line.usd_at_most),
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


def plan_line(line: Estimate) -> str:
    """Return in a line what is to be asked of one model, and its price."""
    new = line.requests - line.from_cache
    return (
        f"{new} of {line.requests} {line.what} to ask {line.model} for, about "
        f"{_dollars(line.usd)} (at most {_dollars(line.usd_at_most)})"
    )


def spending_line(spending: Spending) -> str:
    """Return in a line what was asked and paid."""
    text = (
        f"{counted(spending.requests, 'request')} answered, {spending.from_cache} from the cache, "
        f"{spending.prompt_tokens} + {spending.completion_tokens} tokens, {_dollars(spending.usd)}"
    )
    if spending.usd_unconfirmed:
        text += f", and at most {_dollars(spending.usd_unconfirmed)} for replies that never came"
    if spending.overstated:
        text += (
            f"; of these the endpoint claimed more tokens than a request allows for "
            f"{spending.overstated}, which are counted at what it allows"
        )
    return text


def _dollars(usd: float | None) -> str:
    return "price not known" if usd is None else f"${usd:.2f}" if usd >= 1 else f"${usd:.4f}"


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
