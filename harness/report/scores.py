"""Per-prompt scores, the numbers computed from them, and the files that hold them.

The data of every number is `Measured`: for a run id, a seed and a score, the value of each
prompt. It is read from the judges' stages of a store, or from a published file of scores; either
way the same functions turn it into the same digits, because prompts are always in order of their
ids.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from harness.errors import HarnessError
from harness.registry.profile import Profile, benchmark_of
from harness.registry.schema import PROMPT_SCORES, Row, Table
from harness.report.model import Report
from harness.runtime import Store
from harness.statistics import (
    NestedScores,
    Prior,
    ScoreMatrix,
    Scores,
    mean_interval,
    paired_difference,
    seed_prior,
)

if TYPE_CHECKING:
    import pyarrow as pa

    from harness.pipeline.algorithm import Run
    from harness.pipeline.runs import TableRuns


Key = tuple[str, int, str]
"""Run id, seed and score."""

Measured = dict[Key, dict[str, float]]
"""The value of each prompt, in order of prompt ids."""


class AsRead(Measured):
    """Values as they were read, which change no more, with what was made of them.

    Attributes:
        matrices: The scores of some seeds, by run id, seeds and score, each made once.
    """

    def __init__(self, values: Measured | None = None) -> None:
        super().__init__(values or {})
        self.matrices: dict[tuple[str, tuple[int, ...], str], Scores] = {}


@dataclass(frozen=True)
class Numbers:
    """A cell's numbers, in the unit of its column; None where any seed is missing."""

    mean: float | None = None
    ci_low: float | None = None
    ci_high: float | None = None
    gain: float | None = None
    gain_ci_low: float | None = None
    gain_ci_high: float | None = None
    gain_detectable: float | None = None


ALPHA = 0.05
"""Two-sided level of a comparison; of claims, that of a primary one and of the others together."""

POWER = 0.8
"""Probability with which a detectable difference would have been found."""


def read_scores(table_runs: TableRuns, store: Store) -> Measured:
    """Read the scores behind a table's columns from every judge's stage that is done."""
    columns, rows = table_runs.table.columns, table_runs.rows
    wanted = itertools.product({(r.run_id(c), c.reads) for r in rows for c in columns},
                               table_runs.seeds)  # fmt: skip
    keys = [(run, seed, score) for (run, score), seed in wanted]
    return read_wanted(table_runs.runs, keys, table_runs.profile, store)


def read_wanted(
    runs: Mapping[tuple[str, int], Run], wanted: Iterable[Key], profile: Profile, store: Store
) -> Measured:
    """Read some scores of runs from every judge's stage that is done.

    Raises:
        StoreError: A stored file is not what was written.
        HarnessError: A judge's scores give a prompt twice.
    """
    # Several scores come from one judge's stage, which is read once.
    by_stage: dict[str, list[Key]] = {}
    for key in sorted(set(wanted)):
        run_id, seed, score = key
        benchmark = benchmark_of(profile, score)
        if benchmark is not None:
            stage = runs[run_id, seed].judged[benchmark].fingerprint
            by_stage.setdefault(stage, []).append(key)
    measured = AsRead()
    for stage, keys in by_stage.items():
        if store.status(stage) == "done":
            path = store.file(stage, "scores.parquet")
            # One stage has few rows: threads would cost five times what they read.
            found = {score: own for (score,), own in _parts(path, ("column",), use_threads=False)}
            measured |= {key: _by_prompt(key, *found[key[2]]) for key in keys if key[2] in found}
    return measured


def read_rows(path: Path, *columns: str) -> list[tuple[Any, ...]]:
    """Read some columns of a Parquet file as rows.

    Raises:
        HarnessError: The file is damaged.
    """
    # A file of one stage has few rows: threads would cost five times what they read.
    table = _read_columns(path, columns, use_threads=False)
    return list(zip(*(table.column(name).to_pylist() for name in columns), strict=True))


def _read_columns(
    path: Path, columns: Sequence[str], *, use_threads: bool = True, repeated: Sequence[str] = ()
) -> Any:
    """Read some columns of a Parquet file as an Arrow table, `repeated` texts as dictionaries."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        # Reading ahead would be a thread's, which is waited for on a machine that is busy.
        with pq.ParquetFile(path, read_dictionary=list(repeated), pre_buffer=use_threads) as file:
            found = file.read(columns=list(columns), use_threads=use_threads).select(columns)
            # The numbers of words are read as they stand, those of no word included.
            found.validate(full=True)
            return found
    except (pa.ArrowException, KeyError, OSError, UnicodeDecodeError) as error:
        # Damage shows as an error of any kind, one that is no `ValueError` included.
        raise HarnessError(f"{path} cannot be read; restore it from version control") from error


def grouped(rows: Iterable[tuple[Key, str, float]]) -> Measured:
    """Collect (key, prompt id, value) by key, prompts in order of their ids.

    Raises:
        HarnessError: A prompt appears twice under one key.
    """
    parts = itertools.groupby(sorted(rows), lambda row: row[0])
    measured = AsRead()
    for key, part in parts:
        _, prompts, values = zip(*part, strict=True)
        measured[key] = _by_prompt(key, prompts, values)
    return measured


def _by_prompt(key: Key, prompts: Sequence[str], values: Sequence[float]) -> dict[str, float]:
    found = dict(zip(prompts, values, strict=True))
    if len(found) < len(prompts):
        raise _twice(key, prompts)
    return found


def _twice(key: Key, prompts: Sequence[str]) -> HarnessError:
    run_id, seed, score = key
    ((prompt, _),) = Counter(prompts).most_common(1)
    return HarnessError(
        f"the `{score}` scores of `{run_id}`, seed {seed}, give the prompt `{prompt}` twice: "
        "remove that judge's stage from the store and run it again"
    )


Priors = Mapping[str, Prior]
"""What the gains over a run say of the variance between seeds, by that run."""


def gain_priors(
    measured: Measured, pairs: Iterable[tuple[str, str]], seeds: Sequence[int], score: str
) -> Priors:
    """Return what the gains of a column say of each other's variance between seeds.

    `pairs` are the run and the baseline run of each row that has a gain.

    Returns:
        The prior of the gains over each baseline run that has one
        (`harness.statistics.seed_prior`); scores of prompts have none.
    """
    rows: dict[str, dict[str, None]] = {}
    for run, baseline in pairs:
        if run != baseline:
            rows.setdefault(baseline, {})[run] = None
    found: dict[str, Prior] = {}
    for baseline, runs in rows.items():
        base = scores_of(measured, baseline, seeds, score)
        own = [own for run in runs if (own := scores_of(measured, run, seeds, score)) is not None]
        prior = None if base is None else seed_prior(own, base)
        if prior is not None:
            found[baseline] = prior
    return found


def numbers(
    measured: Measured,
    run_id: str,
    baseline: str | None,
    seeds: Sequence[int],
    score: str,
    priors: Priors | None = None,
) -> Numbers:
    """Return the numbers of a cell.

    Returns:
        Mean and 95% interval where every seed is there, and the gain over the baseline, paired
        by seed and prompt (by seed alone where prompts are scored), where every seed of the
        baseline is there too.
    """
    own = scores_of(measured, run_id, seeds, score)
    if own is None:
        return Numbers()
    mean = mean_interval(own)
    base = None if baseline is None else scores_of(measured, baseline, seeds, score)
    if base is None:
        return Numbers(mean.mean, mean.low, mean.high)
    gain = paired_difference(own, base, prior=(priors or {}).get(baseline or ""))
    least = None if len(seeds) == 1 else gain.detectable(ALPHA, POWER)
    return Numbers(mean.mean, mean.low, mean.high, gain.mean, gain.low, gain.high, least)


@dataclass(frozen=True)
class TableScores:
    """The scores of some rows of a table in its columns.

    Attributes:
        runs: The run behind each row, by column.
        baselines: The row that each row's gains are over.
        reads: The score that each column reads.
        measured: The scores of all runs.
    """

    runs: Mapping[str, Mapping[str, str]]
    baselines: Mapping[str, str | None]
    reads: Mapping[str, str]
    seeds: tuple[int, ...]
    measured: Measured
    _priors: dict[str, Priors] = field(default_factory=dict, init=False, repr=False)

    @classmethod
    def of_table(
        cls, table: Table, rows: Iterable[Row], seeds: Sequence[int], measured: Measured
    ) -> TableScores:
        rows, reads = list(rows), {column.id: column.reads for column in table.columns}
        runs = {row.id: {c.id: row.run_id(c) for c in table.columns} for row in rows}
        return cls(runs, {row.id: row.baseline for row in rows}, reads, tuple(seeds), measured)

    @classmethod
    def of_report(cls, report: Report, measured: Measured) -> TableScores:
        """Return those of a published table, whose declaration may have changed since."""
        reads = {column.id: column.score for column in report.columns}
        runs = {row.id: row.runs for row in report.rows}
        bases = {row.id: row.baseline for row in report.rows}
        return cls(runs, bases, reads, report.seeds, measured)

    def run(self, row: str | None, column: str) -> str | None:
        return None if row is None else self.runs.get(row, {}).get(column)

    def of(self, row: str, column: str) -> Scores | None:
        """Return the scores behind a cell, None where a seed is missing."""
        run = self.run(row, column)
        if run is None:
            return None
        return scores_of(self.measured, run, self.seeds, self.reads[column])

    def priors(self, column: str) -> Priors:
        if column not in self._priors:
            pairs = [
                (own[column], base)
                for row, own in self.runs.items()
                if (base := self.run(self.baselines[row], column)) is not None
            ]
            found = gain_priors(self.measured, pairs, self.seeds, self.reads[column])
            self._priors[column] = found
        return self._priors[column]

    def numbers(self, row: str, column: str) -> Numbers:
        """Return the numbers of a cell, the gain over its row's baseline included."""
        run = self.run(row, column)
        if run is None:
            return Numbers()
        base, score = self.run(self.baselines[row], column), self.reads[column]
        return numbers(self.measured, run, base, self.seeds, score, self.priors(column))


def scores_of(measured: Measured, run_id: str, seeds: Sequence[int], score: str) -> Scores | None:
    """Return the values of all seeds as statistics take them, or None where a seed is missing.

    Prompts that are scored themselves are each seed's own, and nested in it; a benchmark's prompts
    are the same for every seed, and crossed.
    """
    for seed in seeds:
        if (run_id, seed, score) not in measured:
            return None
    known = measured.matrices if isinstance(measured, AsRead) else {}
    key = run_id, tuple(seeds), score
    if key not in known:
        kind = NestedScores if score in PROMPT_SCORES else ScoreMatrix
        known[key] = kind.from_seeds({seed: measured[run_id, seed, score] for seed in seeds})
    return known[key]


def write_scores(measured: Measured, path: Path) -> None:
    """Write per-prompt values as Parquet: run_id, seed, column, prompt_id, value.

    `column` is the score that a table's column reads. Rows are in order of the other columns.
    """
    rows = [(*key, *row) for key in sorted(measured) for row in measured[key].items()]
    types = {"run_id": str, "seed": int, "column": str, "prompt_id": str, "value": float}
    write_rows(path, types, rows)


def write_rows(path: Path, types: Mapping[str, type], rows: Sequence[tuple[Any, ...]]) -> None:
    """Write rows as a Parquet file, given the columns' types: `str`, `int` or `float`.

    What a row has beyond the columns is left out. pyarrow's own conversion of Python lists imports
    pandas, which takes a second and is not needed.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    arrays = [_array(kind, [row[i] for row in rows]) for i, kind in enumerate(types.values())]
    table = pa.Table.from_arrays(arrays, names=list(types))
    pq.write_table(table, path, compression="zstd")


def _array(kind: type, values: Sequence[Any]) -> pa.Array:
    import pyarrow as pa

    if kind is str:
        builder = pa.lib.StringBuilder()
        builder.append_values(values)
        return builder.finish()
    numbers = np.array(values, dtype=np.int64 if kind is int else np.float64)
    stored = pa.int64() if kind is int else pa.float64()
    return pa.Array.from_buffers(stored, len(values), [None, pa.py_buffer(numbers)])


def read_score_file(path: Path) -> Measured:
    """Read what `write_scores` wrote."""
    measured = AsRead()
    for key, (prompts, values) in _parts(path, ("run_id", "seed", "column")):
        measured[key] = dict(zip(prompts, values, strict=True))
        if len(measured[key]) < len(prompts):
            raise _twice(key, prompts)
    return measured


def _parts(
    path: Path, names: Sequence[str], *, use_threads: bool = True
) -> list[tuple[Any, tuple[list[str], list[float]]]]:
    """Return, of each key in a file of scores, prompts in order of their ids, and their values.

    `names` are the columns that make the key, and keys are in order. Texts are read as numbers of
    the words they repeat: there are a million rows, and few words.
    """
    words = (*names, "prompt_id")
    table = _read_columns(path, (*words, "value"), use_threads=use_threads, repeated=words)
    if not len(table):
        return []
    if any(column.null_count for column in table.columns):
        raise HarnessError(f"{path} has a row without a value; restore it from version control")
    known, codes = zip(*(_coded(table.column(name)) for name in words), strict=True)
    # Not `to_numpy`, which loads pandas.
    values = np.from_dlpack(table.column("value").combine_chunks())
    place = np.asarray(np.ravel_multi_index(codes, [len(own) for own in known]))
    if (np.diff(place) < 0).any():
        order = np.argsort(place, kind="stable")
        place, values, codes = place[order], values[order], [code[order] for code in codes]
    part = place // len(known[-1])
    bounds = [0, *(np.flatnonzero(np.diff(part)) + 1).tolist(), len(part)]
    starts = zip(known[:-1], codes[:-1], strict=True)
    keys = zip(*([own[i] for i in code[bounds[:-1]].tolist()] for own, code in starts), strict=True)
    parts = []
    for key, (first, end) in zip(keys, itertools.pairwise(bounds), strict=True):
        prompts = list(map(known[-1].__getitem__, codes[-1][first:end].tolist()))
        parts.append((key, (prompts, values[first:end].tolist())))
    return parts


def _coded(column: pa.ChunkedArray) -> tuple[list[Any], NDArray[np.int64]]:
    """Return the distinct values of a column in order, and which of them each row has."""
    encoded = column.unify_dictionaries().combine_chunks().dictionary_encode()
    words = encoded.dictionary.to_pylist()
    order = sorted(range(len(words)), key=words.__getitem__)
    ranks = np.empty(len(words), dtype=np.int64)
    ranks[order] = np.arange(len(words))
    return [words[i] for i in order], ranks[np.from_dlpack(encoded.indices)]
