"""The local engine with real workers and a real store."""

import errno
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from toy_stages import FUNCTIONS, toy

from harness.runtime import Engine, Event, Plan, RunOutcome, Stage, Store
from harness.runtime.manifest import collect_provenance
from harness.runtime.plan import (
    StageFailed,
    StageFinished,
    StageProgress,
    StageSkipped,
    StageStarted,
)
from harness.runtime.worker import StageWorker


def run(work: Path, targets: list[Stage], jobs: int | None = 1, **how: Any) -> RunOutcome:
    engine = Engine(Store(work / "store"), FUNCTIONS, work / "logs", jobs=jobs, **how)
    return engine.run(Plan(targets))


def outputs(work: Path) -> dict[str, bytes]:
    """Return every output file's bytes by path, manifests left out (they hold times)."""
    root = work / "store" / "stages"
    files = (path for path in root.rglob("*") if path.is_file() and path.name != "stage.json")
    return {path.relative_to(root).as_posix(): path.read_bytes() for path in files}


def leftovers(work: Path) -> list[Path]:
    return list((work / "store" / "tmp").iterdir())


def diamond() -> list[Stage]:
    top = toy("draw", number=1)
    return [toy("total", toy("total", top, side="left"), toy("total", top, side="right"))]


def test_a_shared_stage_is_computed_once_and_a_full_store_computes_nothing(tmp_path: Path) -> None:
    """Nor do numbers depend on the number of workers."""
    events: list[Event] = []
    first = run(tmp_path, diamond() + diamond(), jobs=2, on_event=events.append)
    assert first.ok
    assert len(first.finished) == 4
    assert sum(isinstance(event, StageStarted) for event in events) == 4
    assert sum(isinstance(event, StageFinished) for event in events) == 4
    again = run(tmp_path, diamond())
    assert again == RunOutcome()
    run(tmp_path / "alone", diamond(), jobs=1)
    assert outputs(tmp_path / "alone") == outputs(tmp_path) != {}


def test_a_worker_has_one_thread_and_its_own_log(tmp_path: Path) -> None:
    target = toy("total", toy("draw", number=1))
    run(tmp_path, [target, toy("raises")])
    store = Store(tmp_path / "store")
    assert (store.open(target.fingerprint) / "threads.txt").read_text() == "1"
    assert store.manifest(target.fingerprint)["provenance"]["threads"] == 1
    assert "ValueError" in (tmp_path / "logs" / "worker-0.log").read_text()


def test_curves_arrive_live_and_stay_in_the_store(tmp_path: Path) -> None:
    events: list[Event] = []
    stage = toy("curve")
    run(tmp_path, [stage], on_event=events.append)
    live = [(e.step, e.metrics) for e in events if isinstance(e, StageProgress)]
    kept = [(p.step, p.metrics) for p in Store(tmp_path / "store").progress(stage.fingerprint)]
    assert live == kept == [(0, {"loss": 0.5}), (1, {"loss": 0.25})]


def test_a_stage_that_was_killed_finds_its_unfinished_work_and_where_it_runs(
    tmp_path: Path,
) -> None:
    store, stage = Store(tmp_path / "store"), toy("keeps")
    assert not run(tmp_path, [stage], hardware={"devices": 8}).ok
    assert store.unfinished(stage.fingerprint).exists()
    assert run(tmp_path, [stage], hardware={"devices": 2}).ok
    whole = store.open(stage.fingerprint) / "whole.txt"
    assert whole.read_text() == "half on {'devices': 2}"
    assert not store.unfinished(stage.fingerprint).exists()


def test_a_failure_costs_its_dependants_only_and_is_tried_again(tmp_path: Path) -> None:
    """Six stages: four fail in four ways, one needs a failed one, one has no part in it."""
    bad = {kind: toy(kind) for kind in ("raises", "refuses", "dies", "leaves")}
    needs_bad, apart = toy("total", bad["raises"]), toy("draw", number=1)
    events: list[Event] = []
    outcome = run(tmp_path, [needs_bad, *bad.values(), apart], on_event=events.append)
    assert outcome.finished == [apart]
    assert outcome.failed == {
        bad["raises"]: "ValueError: the loss is not a number",
        bad["refuses"]: "the model is not there: build it first",
        bad["dies"]: "worker died: SIGKILL (out of memory?)",
        bad["leaves"]: "worker died: exit code 3",
    }
    assert outcome.skipped == {needs_bad: f"needs {bad['raises'].title}"}
    assert {e.stage for e in events if isinstance(e, StageFailed)} == set(bad.values())
    assert [e.stage for e in events if isinstance(e, StageSkipped)] == [needs_bad]

    store = Store(tmp_path / "store")
    assert store.status(bad["raises"].fingerprint) == "failed"
    assert store.status(needs_bad.fingerprint) == "missing"
    defect, death = store.failure(bad["raises"].fingerprint), store.failure(bad["dies"].fingerprint)
    assert defect is not None
    assert "toy_stages.py" in defect["traceback"]
    assert death is not None
    assert "last words" in death["traceback"]
    assert leftovers(tmp_path) == []

    again = run(tmp_path, [bad["refuses"], apart])
    assert list(again.failed) == [bad["refuses"]]


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """Mount a disk of 256 KiB for the test."""
    disk = tmp_path / "disk"
    disk.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=256k", "none", str(disk)]
    if shutil.which("mount") is None or subprocess.run(command, capture_output=True).returncode:
        pytest.skip("no small disk can be mounted here: that takes root")
    yield disk
    subprocess.run(["umount", str(disk)], check=True)


@pytest.mark.parametrize(
    ("file", "dies"), [("much", False), ("much", True), ("../../../filler", False)]
)
def test_a_disk_that_is_full_indeed_ends_the_run_with_its_name(
    small_disk: Path, file: str, dies: bool
) -> None:
    """The logs are on it, too. In the third case it stays full, and no failure can be recorded."""
    before, crams = toy("draw", number=0), toy("crams", file=file, dies=dies)
    assert run(small_disk, [before]).ok
    targets = [toy("total", toy("total", crams)), *(toy("draw", number=n) for n in range(1, 7))]
    outcome = run(small_disk, targets)
    reason = outcome.failed[crams]
    assert re.match(r"the disk is full while (storing|computing) 'crams' .*: free some", reason)
    assert reason.count("the disk is full") == 1
    assert set(outcome.skipped) == {*targets, targets[0].inputs["input0"]}
    assert set(outcome.skipped.values()) >= {"not started, since the disk is full"}
    assert outcome.finished == []
    assert outcome.disk_full
    assert leftovers(small_disk) == []
    assert Store(small_disk / "store").status(before.fingerprint) == "done"
    (small_disk / "filler").unlink(missing_ok=True)
    assert run(small_disk, targets[1:]).ok


def test_a_worker_that_cannot_write_its_log_still_says_why_a_stage_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Full:
        def write(self, text: str) -> int:
            raise OSError(errno.ENOSPC, "No space left on device")

    said: list[Any] = []
    setup: Any = {
        "root": str(tmp_path / "store"),
        "functions": FUNCTIONS,
        "preload": [],
        "provenance": collect_provenance(),
        "hardware": {},
    }
    monkeypatch.setattr(sys, "stderr", Full())
    StageWorker(setup, said.append).compute(toy("fills").record)
    assert [message["event"] for message in said] == ["started", "failed"]
    assert said[1]["reason"].startswith("the disk is full while storing 'fills'")
    assert said[1]["disk_full"]


def test_an_input_that_was_changed_is_named_and_fails_its_dependant(tmp_path: Path) -> None:
    first = toy("draw", number=1, label="first draw")
    run(tmp_path, [first])
    store = Store(tmp_path / "store")
    (store.path(first.fingerprint) / "number.txt").write_text("0.123456789")
    needs = toy("total", first)
    reason = run(tmp_path, [needs]).failed[needs]
    assert "'first draw'" in reason
    assert "number.txt" in reason
