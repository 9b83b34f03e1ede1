"""Records in TensorBoard's files and in a client with wandb's interface."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from toy_table import LABELS, SERVED, filled, toy_cells, toy_runs

from harness.errors import UserError
from harness.tracking import TableState, Tracker
from harness.tracking.record import Record
from harness.tracking.writers import write_to

RUNS = toy_runs((0,))


@pytest.fixture(scope="module")
def records(tmp_path_factory: pytest.TempPathFactory) -> list[Record]:
    work = tmp_path_factory.mktemp("work")
    store = filled(work / "store", RUNS)
    return Tracker(work, store, SERVED).records([TableState(RUNS, toy_cells())])


class FakeClient:
    """Takes what a client with wandb's interface takes."""

    def __init__(self) -> None:
        self.runs: list[dict[str, Any]] = []

    def init(self, **settings: Any) -> Any:
        run = {**settings, "points": {}}
        self.runs.append(run)
        points = run["points"]
        return SimpleNamespace(
            log=lambda values, step: points.setdefault(step, {}).update(values),
            finish=lambda: run.update(finished=True),
        )


def test_a_client_with_wandbs_interface_gets_each_run_once_and_offline(
    records: list[Record], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The eva run has two trainings of three steps, and its scores at step 0."""
    client = FakeClient()
    monkeypatch.setitem(sys.modules, "wandb", client)  # type: ignore[arg-type]
    monkeypatch.delenv("WANDB_MODE", raising=False)
    assert write_to("wandb", records, tmp_path) == {"written": 5, "unchanged": 0}
    assert write_to("wandb", records, tmp_path) == {"written": 0, "unchanged": 5}
    assert {run["mode"] for run in client.runs} == {"offline"}
    found = {run["name"]: run for run in client.runs}
    run = found["dpo-eva-a_min · seed 0"]
    assert (run["group"], run["finished"]) == ("runs/micro", True)
    assert run["config"]["recipe.creator.metric"] == "a_min"
    assert sorted(run["points"]) == [0, 1, 2, 3]
    assert {"iter1/loss", "iter2/loss"} <= run["points"][1].keys()
    assert found[LABELS["eva-a_min"]]["points"][0]["gain/ah_wr"] == 1.5


def test_a_client_that_is_missing_says_what_to_install(
    records: list[Record], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "trackio", None)
    with pytest.raises(UserError, match=r"`trackio` is not installed: .*eva-harness\[trackio\]"):
        write_to("trackio", records, tmp_path)


def test_tensorboard_reads_back_what_was_written(records: list[Record], tmp_path: Path) -> None:
    pytest.importorskip("tensorboard", reason="tensorboard is not installed")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    write_to("tensorboard", records, tmp_path)
    rows = tmp_path / "tracking" / "tensorboard" / "table4" / "micro"
    (folder,) = rows.glob("*our_default*")
    found = EventAccumulator(str(folder))
    found.Reload()
    assert [point.value for point in found.Scalars("gain/ah_wr")] == [1.5]
