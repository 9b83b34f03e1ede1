"""Other places that records can be written to: TensorBoard, and clients with wandb's interface.

The same records that MLflow gets, one run for each: parameters, scores at step 0, and curves by
step. A writer is asked for by name (`harness sync --to tensorboard`); nothing is written anywhere
else by default, and wandb stays offline unless `WANDB_MODE` says otherwise. A note in the work
folder says what a place has, so that writing twice writes once.
"""

from __future__ import annotations

import importlib
import os
import re
import shutil
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Literal

from harness.errors import UserError
from harness.tracking.connection import Notes, can_be_written
from harness.tracking.record import Record, metric_name

Place = Literal["tensorboard", "wandb", "trackio"]

PROJECT = "eva-harness"


def write_to(place: Place, records: Iterable[Record], work_dir: Path) -> Counter[str]:
    """Write the records that a place lacks; return how many were `written` and `unchanged`.

    Raises:
        UserError: The place's client is not installed, or the work folder cannot be written.
    """
    notes = Notes(work_dir, f"{place}:{work_dir.resolve()}")
    found = list(records)
    missing = [record for record in found if not notes.covers([record])]
    if missing and not can_be_written(work_dir / "tracking"):
        raise UserError(
            f"{work_dir} cannot be written, where `--to {place}` notes what it has: copy the "
            "folder, and name the copy with HARNESS_WORK"
        )
    if missing:
        writer = _WRITERS[place](work_dir / "tracking" / place)
        for record in missing:
            writer.write(record)
            notes.add([record])
    return Counter(written=len(missing), unchanged=len(found) - len(missing))


class TensorBoard:
    """Event files in a folder for each run: `tensorboard --logdir <folder>` shows them."""

    def __init__(self, folder: Path) -> None:
        _module("tensorboard")
        self._folder = folder

    def write(self, record: Record) -> None:
        """Write a record in place of what was written of it before."""
        event = importlib.import_module("tensorboard.compat.proto.event_pb2")
        summary = importlib.import_module("tensorboard.compat.proto.summary_pb2")
        files = importlib.import_module("tensorboard.summary.writer.event_file_writer")
        hparams = importlib.import_module("tensorboard.plugins.hparams.summary_v2")
        folder = self._folder.joinpath(
            *map(_file_name, [*record.experiment.split("/"), _folder_name(record)])
        )
        shutil.rmtree(folder, ignore_errors=True)
        out = files.EventFileWriter(str(folder))
        start = record.start_ms / 1000
        settings = hparams.hparams_pb(dict(record.params), start_time_secs=start)
        out.add_event(event.Event(wall_time=start, summary=settings))
        for step, values in _points(record):
            found = [summary.Summary.Value(tag=n, simple_value=v) for n, v in values.items()]
            shown = summary.Summary(value=found)
            out.add_event(event.Event(wall_time=start + step, step=step, summary=shown))
        out.close()


class WandbClient:
    """A client with wandb's interface: wandb, offline, or trackio, which keeps a local database."""

    def __init__(self, name: str, folder: Path) -> None:
        self._client = _module(name)
        self._more: dict[str, Any] = {}
        if name == "wandb":
            folder.mkdir(parents=True, exist_ok=True)
            self._more = {"mode": os.environ.get("WANDB_MODE", "offline"), "dir": str(folder)}

    def write(self, record: Record) -> None:
        """Write a record as a new run."""
        config = {**record.params, "harness.id": record.identity}
        run = self._client.init(
            project=PROJECT,
            name=record.name,
            group=record.experiment,
            config=config,
            **self._more,
        )
        for step, values in _points(record):
            run.log(values, step=step)
        run.finish()


_WRITERS: Mapping[Place, Callable[[Path], TensorBoard | WandbClient]] = {
    "tensorboard": TensorBoard,
    "wandb": lambda folder: WandbClient("wandb", folder),
    "trackio": lambda folder: WandbClient("trackio", folder),
}


def _points(record: Record) -> list[tuple[int, dict[str, float]]]:
    """Return the scores, at step 0, and all curves, by step in ascending order."""
    found: dict[int, dict[str, float]] = {0: dict(record.read_scores())}
    for prefix, curves in record.curves.items():
        for point in curves.read():
            values = {metric_name(prefix + name): v for name, v in point.metrics.items()}
            found.setdefault(point.step, {}).update(values)
    return [(step, values) for step, values in sorted(found.items()) if values]


def _folder_name(record: Record) -> str:
    """Return a name of a record's own: labels of rows may be alike."""
    return f"{record.name} {record.identity[:6]}"


def _file_name(text: str) -> str:
    return re.sub(r"[^\w.+-]+", "_", text)


def _module(name: str) -> Any:
    """Return a module; raise UserError where it is not installed."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise UserError(
            f"`{name}` is not installed: install the extra `{name}`, "
            f"`pip install 'eva-harness[{name}]'`"
        ) from error
