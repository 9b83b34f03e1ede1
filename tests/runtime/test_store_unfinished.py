"""Laws of unfinished work: it survives a death, has one user, and goes when the stage is whole."""

import fcntl
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from harness.runtime import Stage, Store
from harness.runtime.files import held, hold, is_held, lock_of

STAGE = Stage("train", 1, {"seed": 0}, {})
FP = STAGE.fingerprint
HOLD = (
    "import sys; from pathlib import Path; from harness.runtime.files import held\n"
    "with held(Path(sys.argv[1])) as folder:\n"
    "    (folder / 'half').write_text('done'); print('held', flush=True); sys.stdin.read()"
)


@pytest.fixture
def other(spawn: Callable[..., subprocess.Popen[str]]) -> Callable[[Path], subprocess.Popen[str]]:
    """Return a function that starts a process which holds a folder and says so."""
    return lambda folder: spawn("-c", HOLD, folder)


def says_held(process: subprocess.Popen[str]) -> bool:
    assert process.stdout is not None
    return process.stdout.readline() == "held\n"


def test_unfinished_work_survives_a_failure_and_goes_with_success(tmp_path: Path) -> None:
    store = Store(tmp_path)
    folder = store.unfinished(FP)
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


def test_a_folder_has_one_user_and_the_next_when_that_is_killed(
    tmp_path: Path, other: Callable[[Path], Any]
) -> None:
    folder = tmp_path / "work"
    assert not is_held(lock_of(folder))
    first = other(folder)
    assert says_held(first)
    assert is_held(lock_of(folder))
    with hold(lock_of(folder), wait=False, again=True) as mine:
        assert not mine
    second = other(folder)
    first.kill()
    assert says_held(second)
    assert is_held(lock_of(folder))
    second.communicate("")
    assert not is_held(lock_of(folder))
    with held(folder):
        assert (folder / "half").read_text() == "done"


def test_a_stage_is_its_writers_from_its_beginning_until_it_is_whole(
    tmp_path: Path, other: Callable[[Path], Any]
) -> None:
    """A rival has the lock open before the stage is whole; nobody else gets "it" beside the rival.

    The stage's function lets the folder go when it returns, and the store removes it afterwards.
    """
    store = Store(tmp_path)
    folder = store.unfinished(FP)
    with store.writing(STAGE) as output:
        with held(folder):
            (output / "model").write_text("whole")
        rival = os.open(lock_of(folder), os.O_RDWR)
        assert not filelock_takes(rival), "the function has returned, and the output is not stored"
        assert store.claimed(FP)
    assert store.status(FP) == "done"
    assert not store.claimed(FP)
    assert filelock_takes(rival)
    with store.claim(FP) as mine:
        assert not mine
    os.close(rival)
    assert says_held(other(folder))
    with store.claim(FP) as mine:
        assert not mine


def filelock_takes(descriptor: int) -> bool:
    """Lock an open file as a process does that waits for it; return whether that is possible."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def test_no_failure_is_recorded_of_what_another_computes_or_has_finished(
    tmp_path: Path, other: Callable[[Path], Any]
) -> None:
    store = Store(tmp_path)
    holding = other(store.unfinished(FP))
    assert says_held(holding)
    store.record_failure(STAGE, "worker died", "")
    assert store.status(FP) == "missing"
    holding.communicate("")
    store.record_failure(STAGE, "worker died", "")
    assert store.status(FP) == "failed"
    with store.writing(STAGE):
        pass
    store.record_failure(STAGE, "worker died", "")
    assert store.failure(FP) is None
    assert not list(tmp_path.glob("failures/*"))


def test_a_process_that_is_started_meanwhile_does_not_keep_the_folder(tmp_path: Path) -> None:
    """The lock belongs to an open file, which a child must not inherit."""
    with held(tmp_path / "work"):
        child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    assert os.path.exists(f"/proc/{child.pid}") or sys.platform != "linux"
    assert not is_held(lock_of(tmp_path / "work"))
    child.communicate(b"\n")
