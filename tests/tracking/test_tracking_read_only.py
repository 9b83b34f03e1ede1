"""A work folder that can only be read is synced to where something can be written."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from mlflow import MlflowClient
from toy_table import SERVED, filled, toy_cells, toy_runs

from harness.runtime import Store
from harness.tracking import TableState, Tracker

RUNS = toy_runs((0,))
STATE = TableState(RUNS, toy_cells())
NOBODY = 65534


@pytest.fixture
def folder() -> Iterator[Path]:
    """Return an empty folder that other users may enter, as they may not enter pytest's."""
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o755)
        yield Path(name)


@pytest.fixture
def read_only(folder: Path) -> Iterator[Callable[[Path], None]]:
    """Return what takes the right to write in a folder from this process, root's as well."""

    def close(work: Path) -> None:
        for path in (work, *work.rglob("*")):
            path.chmod(0o555 if path.is_dir() else 0o444)
        if os.geteuid() == 0:
            os.seteuid(NOBODY)

    yield close
    os.seteuid(os.getuid())
    for path in (folder, *folder.rglob("*")):
        if path.is_dir():
            path.chmod(0o755)


def refuse(sentence: str) -> None:
    raise AssertionError(sentence)


def tracker(work: Path, uri: str | None = None) -> Tracker:
    return Tracker(work, Store(work / "store"), SERVED, uri=uri, warn=refuse)


def files(folder: Path) -> set[Path]:
    return set(folder.rglob("*"))


def test_a_folder_that_can_only_be_read_is_synced_to_another_place(
    folder: Path, read_only: Callable[[Path], None], empty_database: Path
) -> None:
    work, place = folder / "work", folder / "place"
    filled(work / "store", RUNS)
    place.mkdir()
    for path in (work, place):
        shutil.copyfile(empty_database, path / "mlflow.db")
    tracker(work).sync([STATE])
    place.chmod(0o777)
    (place / "mlflow.db").chmod(0o666)
    uri = f"sqlite:///{place / 'mlflow.db'}"
    # Opened once with all rights: MLflow reads its own folder, which may be closed to others.
    MlflowClient(uri).search_experiments()
    before = files(work)
    read_only(work)
    for change in ("created", "unchanged"):
        assert tracker(work, uri).sync([STATE]) == {change: 5}
    assert files(work) == before
    runs = MlflowClient(uri).get_experiment_by_name("runs/micro")
    found = MlflowClient(uri).search_runs([runs.experiment_id])
    assert [run.info.status for run in found] == ["FINISHED", "FINISHED"]
