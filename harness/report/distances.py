"""How far each row's training prompts lie from the seed prompts and from the benchmarks.

A creator could win by walking to the test distribution; these distances let a reader see it or
rule it out. Measured are the prompts of the last iteration's pairs (or, where prompts themselves
are scored, its prompts), against the human prompts of the first iteration of the same run and
against each benchmark of the table that compares two answers. The
distance (`harness.statistics.distance`) is taken for each seed and averaged over the seeds.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from harness.registry.schema import Row
from harness.report.cells import Failures, State
from harness.report.scores import read_rows
from harness.runtime import Stage, Store

if TYPE_CHECKING:
    from harness.statistics.distance import Bigrams
    from harness.trainer.plan import Run
    from harness.trainer.runs import TableRuns


@dataclass(frozen=True)
class PromptDistance:
    """Where the training prompts of one run of a row lie.

    Attributes:
        row: Id of the row.
        run: Id of the run; a row whose columns change the recipe has several.
        state: As a cell's; `not_available` where nothing is trained.
        done: Seeds whose training prompts are there.
        to_seed: Mean distance to the human prompts of the first iteration, from 0 to 1.
        to_benchmarks: Mean distance to each pairwise benchmark's prompts; None while nobody has
            answered it.
    """

    row: str
    run: str
    state: State
    done: int
    to_seed: float | None
    to_benchmarks: Mapping[str, float | None]

    def as_json(self) -> dict[str, Any]:
        """Return the distances as JSON data."""
        return asdict(self)


def pairwise_benchmarks(table_runs: TableRuns) -> list[str]:
    """Return the benchmarks a table asks for that compare answers with somebody else's."""
    asked = {name for run in table_runs.runs.values() for name in run.asked}
    benchmarks = table_runs.profile.benchmarks.items()
    return [name for name, b in benchmarks if b.against is not None and name in asked]


def prompt_distances(table_runs: TableRuns, store: Store) -> list[PromptDistance]:
    """Return the distances of every run of every row, in printed order.

    Raises:
        StoreError: A stored file is not what was written.
    """
    reader = _Reader(table_runs, store)
    return [
        _distance(table_runs, row, run_id, reader)
        for row in table_runs.rows
        for run_id in dict.fromkeys(row.run_id(column) for column in table_runs.table.columns)
    ]


def _distance(table_runs: TableRuns, row: Row, run_id: str, reader: _Reader) -> PromptDistance:
    runs = [table_runs.runs[run_id, seed] for seed in table_runs.seeds]
    benchmarks: dict[str, float | None] = dict.fromkeys(pairwise_benchmarks(table_runs))
    state, done = reader.state(runs)
    if state != "ok":
        return PromptDistance(row.id, run_id, state, done, None, benchmarks)
    from harness.statistics.distance import jensen_shannon

    trained = [reader.prompts(run.last_prompts) for run in runs]
    seeds = [reader.prompts(run.iterations[0].prompts) for run in runs]
    to_seed = _mean([jensen_shannon(a, b) for a, b in zip(trained, seeds, strict=True)])
    for name in benchmarks:
        test = reader.benchmark(name)
        if test is not None:
            benchmarks[name] = _mean([jensen_shannon(bag, test) for bag in trained])
    return PromptDistance(row.id, run_id, state, done, to_seed, benchmarks)


def _mean(values: list[float]) -> float:
    return sum(values) / len(values)


_FILES = {
    "prompts": "prompts.parquet", "select": "selected.parquet", "online": "trained.parquet"
}  # fmt: skip
"""The file with the prompts of each kind of stage; of others it is that of their pairs."""


class _Reader:
    """Bigrams of stored prompts, each set read once."""

    def __init__(self, table_runs: TableRuns, store: Store) -> None:
        self._table_runs = table_runs
        self._store = store
        self._failures = Failures(store)
        self._bags: dict[str, Bigrams] = {}
        self._benchmarks: dict[str, Bigrams | None] = {}

    def state(self, runs: list[Run]) -> tuple[State, int]:
        """Return the state of a row's training prompts, and how many seeds have them."""
        if any(not run.iterations for run in runs):
            return "not_available", 0
        prompts = [run.last_prompts for run in runs]
        missing = [s for s in prompts if self._store.status(s.fingerprint) != "done"]
        done = len(prompts) - len(missing)
        if not missing:
            return "ok", done
        if any(self._failures.behind(stage) for stage in missing):
            return "failed", done
        return ("partial" if done else "not_run"), done

    def prompts(self, stage: Stage) -> Bigrams:
        """Return the bigrams of the prompts a stage makes, draws, pairs, or trains on online."""
        return self._bag(stage, _FILES.get(stage.kind, "pairs.parquet"), "prompt", str)

    def benchmark(self, name: str) -> Bigrams | None:
        """Return the bigrams of a benchmark's prompts, from the first run that answered it."""
        if name not in self._benchmarks:
            judges = [run.judged.get(name) for run in self._table_runs.runs.values()]
            answers = (judge.inputs["answers"] for judge in judges if judge is not None)
            done = (s for s in answers if self._store.status(s.fingerprint) == "done")
            stage = next(done, None)
            self._benchmarks[name] = None if stage is None else self._bag(
                stage, "answers.parquet", "conversation", last_asked
            )  # fmt: skip
        return self._benchmarks[name]

    def _bag(self, stage: Stage, file: str, column: str, text: Callable[[str], str]) -> Bigrams:
        from harness.statistics.distance import bigrams
        from harness.worlds.lookup import world_of

        if stage.fingerprint not in self._bags:
            rows = read_rows(self._store.open(stage.fingerprint) / file, column)
            mask = world_of(self._table_runs.profile).shown_word
            self._bags[stage.fingerprint] = bigrams((text(value) for (value,) in rows), mask)
        return self._bags[stage.fingerprint]


def last_asked(conversation: str) -> str:
    """Return what the user asked last in a conversation kept as a JSON list of messages."""
    asked = [str(m["content"]) for m in json.loads(conversation) if m["role"] == "user"]
    return asked[-1]
