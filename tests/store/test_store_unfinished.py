"""Laws of unfinished work: it survives a death, has one user, and goes when the stage is whole."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from harness.store import Stage, Store, StoreError, unfinished
from harness.store.unfinished import abandoned, held, lock_of

STAGE = Stage("train", 1, {"seed": 0}, {})
HOLD = (
    "import sys, time; from pathlib import Path; from harness.store.unfinished import held\n"
    "with held(Path(sys.argv[1])) as folder:\n"
    "    (folder / 'half').write_text('done'); print('held', flush=True); time.sleep(200)"
)


def test_unfinished_work_survives_a_failure_and_goes_with_success(tmp_path: Path) -> None:
    store = Store(tmp_path)
    folder = store.unfinished(STAGE.fingerprint)
    assert not folder.exists()
    with held(folder):
        (folder / "checkpoint").write_text("half")
    with pytest.raises(RuntimeError), store.writing(STAGE):
        raise RuntimeError("crashed")
    store.sweep()
    assert (folder / "checkpoint").read_text() == "half"
    with store.writing(STAGE) as output:
        (output / "model").write_text("whole")
    assert not folder.exists()
    assert not lock_of(folder).exists()


def test_discarding_a_stage_discards_its_unfinished_work(tmp_path: Path) -> None:
    store = Store(tmp_path)
    with held(store.unfinished(STAGE.fingerprint)) as folder:
        pass
    store.discard(STAGE.fingerprint)
    assert not folder.exists()


def test_a_folder_has_one_user_until_that_is_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(unfinished, "_PATIENCE_S", 0.0)
    folder = tmp_path / "work"
    assert abandoned(folder)
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(folder)], stdout=subprocess.PIPE, text=True
    )
    assert holder.stdout is not None
    assert holder.stdout.readline() == "held\n"
    assert not abandoned(folder)
    with pytest.raises(StoreError, match=r"another process is working in .*work"), held(folder):
        pass
    holder.kill()
    holder.wait()
    holder.stdout.close()
    assert abandoned(folder)
    with held(folder):
        assert (folder / "half").read_text() == "done"
        assert not abandoned(folder)


def test_a_process_that_is_started_meanwhile_does_not_keep_the_folder(tmp_path: Path) -> None:
    """The lock belongs to an open file, which a child must not inherit."""
    with held(tmp_path / "work"):
        child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    assert os.path.exists(f"/proc/{child.pid}") or sys.platform != "linux"
    assert abandoned(tmp_path / "work")
    child.communicate(b"\n")
