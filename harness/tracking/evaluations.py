"""Evaluations of real models: experiment `evaluations/<benchmark>`, one MLflow run for each.

What MLflow holds is read from the evaluations kept in the work folder, so that any server can be
brought to the same state. The data that were scored are part of a run's identity: other answers of
the same model are another run, and the old one stays as history.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from harness.evaluation import archive
from harness.tracking.database import chosen_uri, open_server, reached, write_lock
from harness.tracking.notes import Notes
from harness.tracking.patience import attempt
from harness.tracking.record import Record, join, metric_name, milliseconds, sha256

NOTE = (
    "One run for each model, judge and data that `harness evaluate` scored on {}. A score under "
    "another judge than the benchmark's own has the judge in its name."
)
LONGEST_TAG = 4000


def evaluation_record(path: Path) -> Record:
    """Return what MLflow should hold of an evaluation.

    Args:
        path: Its file, as `harness.evaluation.archive` keeps it.

    Raises:
        HarnessError: The file cannot be read.
    """
    found = archive.load(path)
    source, finished = found.source, milliseconds(found.finished)
    metrics = _metrics(found)
    benchmark, judge = found.benchmark, found.judge or "not said"
    identity = ["evaluation", benchmark, found.model, judge, *sorted(source.items())]
    return Record(
        experiment=f"evaluations/{benchmark}",
        note=NOTE.format(benchmark),
        identity=sha256([list(part) if isinstance(part, tuple) else part for part in identity]),
        name=f"{found.model} · {judge}",
        status="FINISHED",
        start_ms=finished,
        end_ms=finished,
        params={
            "benchmark": benchmark,
            "model": found.model,
            "judge": judge,
            **{f"source.{name}": join([value]) for name, value in source.items()},
            **_task_params(found.tasks),
        },
        tags={
            "folder": str(path.parent),
            "replies": _replies(path.parent),
            "n": str(found.n),
            "n_missing": str(found.n_missing),
            **{f"note.{name}": text[:LONGEST_TAG] for name, text in found.notes.items()},
        },
        scores_digest=sha256({name: repr(value) for name, value in metrics.items()}),
        read_scores=lambda: metrics,
    )


class EvaluationTracker:
    """Projects kept evaluations to MLflow.

    Args:
        work_dir: Folder of the evaluations, the default database and the locks.
        warn: Takes the one sentence that says MLflow is not available.
        uri: Tracking URI; `MLFLOW_TRACKING_URI` where not given, else the default database.
    """

    def __init__(self, work_dir: Path, warn: Callable[[str], None], uri: str | None = None) -> None:
        self.uri = chosen_uri(work_dir, uri)
        self._work_dir = work_dir
        self._warn = warn
        self._notes = Notes(work_dir, self.uri)

    def write(self, files: Iterable[Path]) -> None:
        """Write some evaluations; at worst there is a warning."""
        attempt(self._work_dir, self.uri, self._warn, lambda: self._catch_up(files))

    def _catch_up(self, files: Iterable[Path]) -> None:
        records = [evaluation_record(path) for path in files]
        if not self._notes.covers(records):
            self._apply(records)

    def sync(self) -> Counter[str]:
        """Bring MLflow to the state of all kept evaluations.

        Returns:
            How many MLflow runs were `created`, `updated`, `replaced`, and left `unchanged`.

        Raises:
            TrackingError: MLflow cannot be reached, or refuses what is written.
            HarnessError: An evaluation cannot be read.
        """
        files = archive.all_kept(self._work_dir / "evaluations")
        return self._apply([evaluation_record(path) for path in files])

    def _apply(self, records: list[Record]) -> Counter[str]:
        changes: Counter[str] = Counter()
        if not records:
            return changes
        server = open_server(self.uri, self._work_dir)
        with reached(self.uri), write_lock(self._work_dir, self.uri):
            for record in records:
                held = server.runs(record).get(record.identity, [])
                changes[server.apply(record, held, settle=False)[0]] += 1
            self._notes.add(records)
        return changes


def _metrics(found: archive.Kept) -> dict[str, float]:
    """Return scores, intervals, categories and costs by metric name."""
    numbers: dict[str, float | None] = {}
    for score, column in found.columns.items():
        numbers[column] = found.scores[score]
        low, high = found.intervals.get(score) or (None, None)
        numbers[f"{column}.ci_low"], numbers[f"{column}.ci_high"] = low, high
    numbers |= {f"category/{name}": value for name, value in found.per_category.items()}
    numbers |= {f"cost/{name}": value for name, value in (found.cost or {}).items()}
    return {metric_name(n): float(value) for n, value in numbers.items() if value is not None}


def _task_params(tasks: Mapping[str, Mapping[str, Any]]) -> dict[str, str]:
    return {
        f"task.{column}.{name}": join([value])
        for column, facts in tasks.items()
        for name, value in facts.items()
    }


def _replies(folder: Path) -> str:
    """Return the file that says where the raw replies are; `none` where nobody was asked."""
    path = folder / archive.REPLIES
    return str(path) if path.is_file() else "none"
