"""Laws of leases across machines: a heartbeat keeps one, silence ends it, and no clock is believed.

Another machine is a lease with another host's name in it: the lock of this machine says nothing
of it, as where `flock` is local to a node.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from harness.runtime import Stage, Store, leases
from harness.runtime.leases import hold, is_held, lock_of, sweep

STAGE = Stage("train", 1, {"seed": 0}, {})
LIMIT_S = leases.MISSED * leases.BEAT_S

HOLD = """
import subprocess, sys
from pathlib import Path
from harness.runtime import leases
leases.BEAT_S = 0.02
with leases.hold(Path(sys.argv[1])):
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    print(child.pid, flush=True)
    sys.stdin.read()
"""


class Elsewhere:
    """A machine that holds a lease."""

    def __init__(self, lock_file: Path, **said: object) -> None:
        lock_file.parent.mkdir(parents=True, exist_ok=True)
        self.file = lock_file.with_name(f"{lock_file.name}.lease")
        self.said = {"lock": "another:1:2", "name": "node-7", "pid": 1, **said}
        self.file.write_text(f"{json.dumps(self.said)}\n")
        self.beats = 0

    def beat(self) -> None:
        self.beats += 1
        os.utime(self.file, (self.beats, self.beats))


@pytest.fixture(autouse=True)
def pass_time(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[[float], None]:
    """Return a function that lets seconds pass on this machine's clock."""
    now = [1000.0]

    def later(seconds: float) -> None:
        now[0] += seconds

    monkeypatch.setattr(leases.time, "monotonic", lambda: now[0])
    monkeypatch.setattr(leases, "_SEEN", {})
    return later


def free(lock: Path) -> bool:
    """Return whether the lease can be had now."""
    with hold(lock, wait=False) as mine:
        assert is_held(lock)
        return mine


def test_a_heartbeat_keeps_a_lease_and_silence_ends_it(
    tmp_path: Path, pass_time: Callable[[float], None]
) -> None:
    lock = tmp_path / "work"
    holder = Elsewhere(lock)
    for _ in range(5):
        assert not free(lock)
        pass_time(LIMIT_S - 1)
        assert is_held(lock)
        holder.beat()
    assert not free(lock)
    pass_time(LIMIT_S - 1)
    assert not free(lock)
    pass_time(1)
    assert not is_held(lock)
    with hold(lock, wait=False) as mine:
        assert mine
    assert not holder.file.exists()


@pytest.mark.parametrize("since", ["1999-01-01T00:00:00Z", "2999-01-01T00:00:00Z", "?", None, 7])
def test_no_clock_but_our_own_is_believed(
    tmp_path: Path, pass_time: Callable[[float], None], since: object
) -> None:
    """A holder whose clock is off by minutes or centuries is as alive as any."""
    lock = tmp_path / "work"
    holder = Elsewhere(lock, since=since)
    os.utime(holder.file, (0, 0) if since == 7 else (1e10, 1e10))
    assert is_held(lock)
    pass_time(LIMIT_S - 1)
    assert is_held(lock)
    pass_time(1)
    assert free(lock)


def test_what_was_seen_is_written_nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A neighbour's link in the shared temporary folder leads to nothing that is overwritten."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "shared"))
    lock, own = tmp_path / "work", tmp_path / "own"
    Elsewhere(lock)
    for folder in (own, tmp_path / "shared"):
        folder.mkdir()
    name = hashlib.sha256(f"{lock}.lease".encode()).hexdigest()[:32]
    (own / name).write_text("precious")
    (tmp_path / "shared" / f"harness-leases-{os.getuid()}").symlink_to(own)
    assert is_held(lock)
    assert not free(lock)
    assert (own / name).read_text() == "precious"
    assert len(list((tmp_path / "shared").iterdir())) == len(list(own.iterdir())) == 1


@pytest.mark.parametrize("text", ["", "0", "no lease\n{", "[]", "null", "[" * 4096])
def test_a_lease_that_cannot_be_read_is_somebodys_who_may_be_writing_it(
    tmp_path: Path, pass_time: Callable[[float], None], text: str
) -> None:
    lock = tmp_path / "work"
    (tmp_path / "work.lease").write_text(text)
    assert not free(lock)
    pass_time(leases.TORN_S)
    assert free(lock)


def test_a_holder_of_this_machine_that_was_killed_is_not_waited_for(tmp_path: Path) -> None:
    """Its lock went with it, whatever its heartbeat says."""
    lock = tmp_path / "work"
    lock.touch()
    Elsewhere(lock, lock=leases._lock(lock))
    assert not is_held(lock)
    assert free(lock)


def test_another_machines_unfinished_output_is_not_swept_away(
    tmp_path: Path, pass_time: Callable[[float], None]
) -> None:
    folder = tmp_path / "train-0123456789ab"
    folder.mkdir()
    (folder / "half").write_text("half")
    holder = Elsewhere(folder.with_name(f"{folder.name}.lock"))
    assert sweep(tmp_path) == 0
    pass_time(LIMIT_S - 1)
    holder.beat()
    assert sweep(tmp_path) == 0
    assert (folder / "half").read_text() == "half"
    pass_time(LIMIT_S)
    assert sweep(tmp_path) == 1
    assert not folder.exists()
    assert not list(tmp_path.glob("train*"))


def test_a_stage_that_another_machine_computes_is_claimed(
    tmp_path: Path, pass_time: Callable[[float], None]
) -> None:
    store = Store(tmp_path)
    holder = Elsewhere(lock_of(store.unfinished(STAGE.fingerprint)))
    assert store.claimed(STAGE.fingerprint)
    store.record_failure(STAGE, "worker died", "")
    assert store.status(STAGE.fingerprint) == "missing"
    with store.claim(STAGE.fingerprint) as mine:
        assert not mine
    pass_time(LIMIT_S)
    with store.claim(STAGE.fingerprint) as mine:
        assert mine
        holder.beat()  # it was asleep, and wakes


def test_whoever_finds_anothers_name_in_its_lease_ends_with_all_it_has_started(
    tmp_path: Path,
) -> None:
    lock = tmp_path / "work"
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(lock)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        process_group=0,
    )
    assert process.stdout is not None
    child = psutil.Process(int(process.stdout.readline()))
    draft = tmp_path / "draft"
    draft.write_text(json.dumps({"lock": "another:1:2"}))
    os.replace(draft, tmp_path / "work.lease")
    assert process.wait(60) in (-9, leases.LOST)
    _, errors = process.communicate()
    assert f"the lease {lock} is another machine's now" in errors
    assert not psutil.wait_procs([child], timeout=30)[1]
    assert "another" in (tmp_path / "work.lease").read_text()


def test_a_heartbeat_is_seen_by_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with hold(tmp_path / "work"):
        lease, place = leases._KEEPER._held[str(tmp_path / "work")], tmp_path / "work.lease"
        os.utime(place, (1, 1))
        before = leases._look(place)
        assert lease.beat()
        after = leases._look(place)
        assert before is not None
        assert after is not None
        assert (before.content, before.touched_ns < after.touched_ns) == (after.content, True)
        place.unlink()  # somebody tidies up
        assert lease.beat()
        assert is_held(tmp_path / "work")

        def away(*_: object) -> None:
            raise OSError(5, "Input/output error")

        monkeypatch.setattr(os, "utime", away)
        assert lease.beat(), "what cannot be written now is written later"
    assert not place.exists()
