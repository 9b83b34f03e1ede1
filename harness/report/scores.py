"""Per-prompt scores, the numbers computed from them, and their files."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from harness.errors import HarnessError
from harness.pipeline.algorithm import Run
from harness.pipeline.runs import TableRuns
from harness.registry.profile import Profile, benchmark_of
from harness.registry.schema import PROMPT_SCORES, Row, Table
from harness.report.model import ReportColumn, ReportRow
from harness.runtime import Store
from harness.statistics import NestedScores, ScoreMatrix, Scores, mean_interval, paired_difference

Key = tuple[str, int, str]
"""Run id, seed, and score."""

Measured = dict[Key, dict[str, float]]
"""The value of each prompt."""


@dataclass(frozen=True)
class Numbers:
    """A cell's numbers, in its column's unit; None if any seed is missing."""

    mean: float | None = None
    ci_low: float | None = None
    ci_high: float | None = None
    gain: float | None = None
    gain_ci_low: float | None = None
    gain_ci_high: float | None = None
    gain_detectable: float | None = None


ALPHA = 0.05
"""Two-sided level of a comparison: of a primary claim, and of all other claims as a family."""

POWER = 0.8
"""Power at which a difference counts as detectable."""


def read_scores(table_runs: TableRuns, store: Store) -> Measured:
    """Read the scores behind a table's columns from every finished judge stage."""
    columns, rows = table_runs.table.columns, table_runs.rows
    read = {(row.run_id(column), column.reads) for row in rows for column in columns}
    wanted = [(run, seed, score) for run, score in read for seed in table_runs.seeds]
    return read_wanted(table_runs.runs, wanted, table_runs.profile, store)


def read_wanted(
    runs: Mapping[tuple[str, int], Run], wanted: Iterable[Key], profile: Profile, store: Store
) -> Measured:
    # A judge stage can hold several scores; read it once.
    by_stage: dict[str, list[Key]] = defaultdict(list)
    for run_id, seed, score in sorted(set(wanted)):
        if (benchmark := benchmark_of(profile, score)) is not None:
            stage = runs[run_id, seed].judged[benchmark].fingerprint
            by_stage[stage].append((run_id, seed, score))
    measured: Measured = {}
    for stage, keys in by_stage.items():
        if store.status(stage) == "done":
            found = read_values(store.file(stage, "scores.parquet"), "column")
            # Same order as in a published file, so that results match to the last digit.
            known = (key for key in keys if (key[2],) in found)
            measured |= {key: dict(sorted(found[key[2],].items())) for key in known}
    return measured


class RunScores:
    """The scores of runs, or of a table's rows and columns, and numbers computed from them.

    Prompts that are scored themselves are nested in seeds; a benchmark's are crossed with them.
    """

    def __init__(
        self,
        measured: Measured,
        seeds: Sequence[int],
        rows: Iterable[ReportRow] = (),
        columns: Iterable[ReportColumn] = (),
    ) -> None:
        self.measured, self.seeds = measured, tuple(seeds)
        self._rows = {row.id: row for row in rows}
        self.reads = {column.id: column.score for column in columns}
        self._known: dict[tuple[str, str], Scores | None] = {}
        self._others: dict[tuple[int, ...], RunScores] = {}

    @classmethod
    def of_table(
        cls, table: Table, rows: Iterable[Row], seeds: Sequence[int], measured: Measured
    ) -> RunScores:
        columns = map(ReportColumn.of, table.columns)
        return cls(measured, seeds, [ReportRow.of(row, table) for row in rows], columns)

    def at(self, seeds: Sequence[int]) -> RunScores:
        """Return the same scores at other seeds."""
        own = tuple(seeds)
        if own == self.seeds:
            return self
        if own not in self._others:
            self._others[own] = found = RunScores(self.measured, own)
            found._rows, found.reads = self._rows, self.reads
        return self._others[own]

    def of_run(self, run: str | None, score: str) -> Scores | None:
        """Return a run's values of a score, or None if a seed is missing or there is none."""
        if run is None:
            return None
        if (run, score) not in self._known:
            kind = NestedScores if score in PROMPT_SCORES else ScoreMatrix
            values = {
                s: self.measured[it] for s in self.seeds if (it := (run, s, score)) in self.measured
            }
            whole = 0 < len(values) == len(self.seeds)
            self._known[run, score] = kind.from_seeds(values) if whole else None
        return self._known[run, score]

    def of_gain(self, run: str | None, baseline: str | None, score: str) -> Numbers:
        """Return a run's numbers, including its gain if the baseline has every seed."""
        own, base = self.of_run(run, score), self.of_run(baseline, score)
        if own is None:
            return Numbers()
        mean = mean_interval(own)
        if base is None:
            return Numbers(mean.mean, mean.low, mean.high)
        gain = paired_difference(own, base)
        least = None if len(self.seeds) == 1 else gain.detectable(ALPHA, POWER)
        return Numbers(mean.mean, mean.low, mean.high, gain.mean, gain.low, gain.high, least)

    def run(self, row: str | None, column: str) -> str | None:
        own = self._rows.get(row or "")
        return None if own is None else own.runs.get(column)

    def of(self, row: str, column: str) -> Scores | None:
        """Return the scores behind a cell, or None if a seed is missing."""
        return self.of_run(self.run(row, column), self.reads[column])

    def numbers(self, row: str, column: str) -> Numbers:
        base = self.run(self._rows[row].baseline, column)
        return self.of_gain(self.run(row, column), base, self.reads[column])


def shared_seeds(measured: Measured, runs: Iterable[str | None], score: str) -> tuple[int, ...]:
    """Return the seeds at which all runs have a score, in ascending order."""
    every: dict[str, set[int]] = defaultdict(set)
    for run, seed, own in measured:
        if own == score:
            every[run].add(seed)
    return tuple(sorted(set.intersection(*(every[run or ""] for run in runs))))


# --- Files ---


def write_scores(measured: Measured, path: Path) -> None:
    """Write per-prompt values by run, seed, and the score that columns read, in this order."""
    rows = [(*key, *row) for key in sorted(measured) for row in measured[key].items()]
    types = {"run_id": str, "seed": int, "column": str, "prompt_id": str, "value": float}
    write_columns(path, types, rows)


def write_columns(path: Path, types: Mapping[str, type], rows: Sequence[tuple[Any, ...]]) -> None:
    """Write rows as a Parquet file, given the columns' types: `str`, `int`, or `float`."""
    arrow = {str: pa.string(), int: pa.int64(), float: pa.float64()}
    columns = {
        name: pa.array([row[place] for row in rows], arrow[kind])
        for place, (name, kind) in enumerate(types.items())
    }
    pq.write_table(pa.table(columns), path, compression="zstd")


def read_score_file(path: Path) -> Measured:
    return read_values(path, "run_id", "seed", "column")


def read_values(path: Path, *keys: str) -> dict[Any, dict[str, float]]:
    """Read each prompt's value from a scores file, grouped by the columns `keys`."""
    names = [*keys, "prompt_id"]
    # Read text dictionary-encoded: there are a million rows but few distinct values. No threads:
    # a single stage's file has few rows, and they would make reading it five times slower.
    with pq.ParquetFile(path, read_dictionary=names, pre_buffer=False) as file:
        table = file.read(columns=[*names, "value"], use_threads=False)
    coded = [_coded(table.column(name)) for name in names]
    (*words, prompts), (*codes, prompt_codes) = zip(*coded, strict=True)
    # Not `to_numpy`, which imports pandas.
    values = np.from_dlpack(table.column("value").combine_chunks())
    changes = np.any([np.diff(code) != 0 for code in codes], axis=0)
    bounds = [0, *(np.flatnonzero(changes) + 1).tolist(), len(table)]
    found: dict[Any, dict[str, float]] = {}
    parts = list(itertools.pairwise(dict.fromkeys(bounds)))
    firsts = [first for first, _ in parts]
    named = (map(own.__getitem__, code[firsts]) for own, code in zip(words, codes, strict=True))
    for (first, end), key in zip(parts, zip(*named, strict=True), strict=True):
        own = found.setdefault(key, {})
        known, ids = len(own), map(prompts.__getitem__, prompt_codes[first:end].tolist())
        own.update(zip(ids, values[first:end].tolist(), strict=True))
        if len(own) < known + end - first:
            raise HarnessError(
                f"{path} gives a prompt of {key} twice: remove that judge's stage from the store "
                "and run it again"
            )
    return found


def _coded(column: pa.ChunkedArray) -> tuple[list[Any], NDArray[Any]]:
    """Return a column's distinct values and each row's index into them."""
    encoded = column.unify_dictionaries().combine_chunks().dictionary_encode()
    return encoded.dictionary.to_pylist(), np.from_dlpack(encoded.indices)
