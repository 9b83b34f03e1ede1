"""Benchmark answers before and after: the baseline row's and the row's, with their verdicts.

Which items are shown is fixed before anything is looked at: of each benchmark the first, the
middle and the last in the order of their names, answered by the run that `examples.shown_run`
names and by the run of its row's baseline, with the same seed.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from harness.errors import HarnessError
from harness.report.page.examples import Reader, Rows, shown_run
from harness.runtime import Stage, Store

if TYPE_CHECKING:
    from harness.trainer.plan import Run
    from harness.trainer.runs import TableRuns

RULE = (
    "Of each benchmark the first, the middle and the last item in the order of their names, from "
    "the first seed: the answers of the baseline row and of the row, with what the judge said."
)


@dataclass(frozen=True)
class Turn:
    """What a policy was asked and answered, and what the judge said.

    Attributes:
        asked: The prompt of the turn.
        answer: The answer.
        replies: What the judge wrote about it, as names and texts.
    """

    asked: str
    answer: str
    replies: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Judged:
    """One item of a benchmark, answered by two policies.

    Attributes:
        table: Id of the table.
        row: Id of the row.
        baseline: Id of its baseline row.
        benchmark: The benchmark.
        judge: What judged.
        item: The item.
        reference: The answer it is compared with; None where answers are rated alone, or where
            the reference is not at hand.
        before: The turns of the baseline row's run.
        after: The turns of the row's run.
        stages: Beginnings of the fingerprints of the two judges' stages.
    """

    table: str
    row: str
    baseline: str
    benchmark: str
    judge: str
    item: str
    reference: str | None
    before: tuple[Turn, ...]
    after: tuple[Turn, ...]
    stages: tuple[str, str]


def judged_answers(table_runs: TableRuns, store: Store, *, online: bool) -> list[Judged]:
    """Return the judged answers of a table that are shown; none where a run is not whole.

    Args:
        table_runs: The runs behind the table.
        store: The store.
        online: Whether an online run is wanted, or an offline one.

    Raises:
        StoreError: A stored file is not what was written.
    """
    found = shown_run(table_runs, store, online=online)
    if found is None:
        return []
    name, run = found
    row = table_runs.table.row(name)
    if row.baseline is None:
        return []
    first = table_runs.table.columns[0]
    before = table_runs.runs[table_runs.table.row(row.baseline).run_id(first), run.seed]
    return [
        judged
        for benchmark, judge in run.judged.items()
        if "answers" in judge.inputs and _both_done(store, before, run, benchmark)
        for judged in _of_benchmark(
            Reader(store), benchmark, before, run, (table_runs.table.id, row.id, row.baseline)
        )
    ]


def _both_done(store: Store, before: Run, after: Run, benchmark: str) -> bool:
    judges = (before.judged.get(benchmark), after.judged[benchmark])
    return all(judge and store.status(judge.fingerprint) == "done" for judge in judges)


def _of_benchmark(
    reader: Reader, benchmark: str, before: Run, after: Run, where: tuple[str, str, str]
) -> list[Judged]:
    judges = before.judged[benchmark], after.judged[benchmark]
    turns = [_turns(reader, judge) for judge in judges]
    if not all(turns):
        return []
    names = sorted(turns[0])
    references = _references(judges[1])
    return [
        Judged(
            *where,
            benchmark,
            str(judges[1].settings["judge"]),
            item,
            references.get(item),
            turns[0][item],
            turns[1][item],
            (judges[0].fingerprint[:12], judges[1].fingerprint[:12]),
        )
        for item in dict.fromkeys((names[0], names[len(names) // 2], names[-1]))
    ]


def _turns(reader: Reader, judge: Stage) -> dict[str, tuple[Turn, ...]]:
    """Return the turns of each item: what was asked, answered and said of it.

    Nothing where the judge did not say anything, but marked answers by a rule.
    """
    answers = reader.rows(judge.inputs["answers"], "answers.parquet")
    replies: dict[str, Rows] = {}
    for reply in reader.rows(judge, "judgments.parquet"):
        if "reply" not in reply:
            return {}
        replies.setdefault(reply["prompt_id"], []).append(reply)
    several = {answer["prompt_id"] for answer in answers if answer["turn"] > 1}
    found: dict[str, list[Turn]] = {}
    for answer in sorted(answers, key=lambda row: (row["prompt_id"], row["turn"])):
        item, turn = answer["prompt_id"], answer["turn"]
        # A judgment's number is its turn where there are several turns, and its game elsewhere.
        own = [r for r in replies.get(item, []) if item not in several or r["number"] == turn]
        games = item not in several and len(own) > 1
        said = tuple((_name(reply, games=games), str(reply["reply"])) for reply in own)
        asked = json.loads(answer["conversation"])[-1]["content"]
        found.setdefault(item, []).append(Turn(str(asked), answer["completion"], said))
    return {item: tuple(turns) for item, turns in found.items()}


def _name(reply: Mapping[str, Any], *, games: bool) -> str:
    """Return what a judgment is called; of two games the first has the reference as answer A."""
    return f"reference as {'AB'[int(reply['number']) - 1]}" if games else "verdict"


def _references(judge: Stage) -> dict[str, str]:
    """Return the answers that a benchmark compares with."""
    from harness.worlds.lookup import runtime_of

    try:
        items = runtime_of(str(judge.settings["benchmark"])).questions(
            str(judge.settings["benchmark"])
        )
    except HarnessError:  # the files that these answers came from are not those at hand
        return {}
    return {item.item_id: item.reference for item in items if item.reference is not None}
