"""Leases: of all processes on all machines that share a folder, one at a time works on a thing.

A lease is a file that its holder creates exclusively, touches every 30 seconds (the heartbeat) and
removes. Two proofs say that its holder is gone:

- *On the holder's own machine* the operating system says so. A holder has a lock (`flock`) on the
  file beside the lease, which goes with its process, however that ends: nobody waits for the dead.
- *On another machine* its heartbeat says so. `flock` need not reach there, so the lease counts as
  abandoned when it has not changed for three heartbeats, by the clock of whoever watches. No time
  that another machine wrote is compared: a clock that is off by minutes changes nothing.

A lease saves work, it guards nothing: outputs are published in one step, and the first one stands.
That is why two machines that take over an abandoned lease in the same instant do no harm; the one
that finds another's name in its lease ends its work, with every process it has started (as does one
that was asleep for too long).

The file with the lock stays when it is let go: were it deleted, one process could hold the file
that others still have open, and another a new one.

`filelock.SoftFileLease` does the same, but takes over by exchanging two names in one step, which
network file systems refuse: there a lease whose holder is gone would be held for ever.

*Scratch folders*, in which an output grows before it is renamed to its place, belong to the process
that holds the lease beside them. A folder whose lease is free is a leftover of a process that was
killed, and `sweep` removes it. No process ids or ages are compared: ids are reused, and a long
stage is not a dead one. No name is used twice, so here a lock's file goes with the folder.

*Unfinished work* outlives its process. A stage that runs for hours keeps its checkpoints in a
folder under its fingerprint, and the store removes them once the stage's output is whole. One
process at a time holds such a folder.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import platform
import random
import shutil
import signal
import sys
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from harness.runtime.files import StoreError

BEAT_S = 30.0
"""Seconds between two heartbeats."""

MISSED = 3
"""Heartbeats that did not come before a lease counts as abandoned."""

TORN_S = 2.0
"""Seconds after which a lease without a holder's name is one whose writer was killed."""

LOST = 75
"""Exit code of a process that ends because its lease became another's (EX_TEMPFAIL)."""

SUFFIX = ".lease"

_NO_LOCKS = {errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP}
_BUSY = {errno.EAGAIN, errno.EACCES}
_LONGEST = 4096
_PAUSES_S = (0.001, 0.05)
"""Between two looks of whoever waits for a lease: the first, and the longest."""


@cache
def this_host() -> str:
    """Return what distinguishes this machine, until it is started again."""
    with suppress(OSError):
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    return f"{platform.node()}-{uuid.getnode():x}"


class _Seen(NamedTuple):
    """A lease as it was found: who holds it, and when the holder's clock touched it."""

    content: bytes
    touched_ns: int

    def says(self, field: str) -> Any:
        """Return what it says of its holder; None where it cannot be read."""
        with suppress(ValueError, AttributeError, RecursionError):
            return json.loads(self.content).get(field)
        return None


class _Lease:
    """A lease that this process holds: the lock on its file, and its name beside it."""

    def __init__(self, path: Path, guard: int, content: bytes, again: bool) -> None:
        self.path = path
        self.again = again
        self.holders = 1
        self._guard = guard
        self._content = content

    def beat(self) -> bool:
        """Renew it; return whether it is still ours.

        What cannot be written now is tried again at the next heartbeat: only another's name in its
        place makes it another's. It needs no room on a full disk.
        """
        with suppress(OSError):
            place = _beside(self.path)
            found = _look(place)
            if found is None:
                _create(place, self._content)
            elif found.content != self._content:
                return False
            os.utime(place)
        return True

    def release(self) -> None:
        """Let it go, unless it is another's."""
        try:
            with suppress(OSError):
                place = _beside(self.path)
                found = _look(place)
                if found is not None and found.content == self._content:
                    place.unlink()
        finally:
            os.close(self._guard)


class _Keeper:
    """The leases of this process, renewed by a thread of its own."""

    def __init__(self) -> None:
        self._mutex = threading.Lock()
        self._held: dict[str, _Lease] = {}
        self._thread: threading.Thread | None = None

    def keep(self, lease: _Lease) -> None:
        with self._mutex:
            self._held[str(lease.path)] = lease
            if self._thread is None or not self._thread.is_alive():
                self._thread = threading.Thread(target=self._beat, name="heartbeat", daemon=True)
                self._thread.start()

    def share(self, path: Path) -> _Lease | None:
        """Return a lease that this process holds and may hold again, held once more."""
        with self._mutex:
            lease = self._held.get(str(path))
            if lease is None or not lease.again:
                return None
            lease.holders += 1
            return lease

    def let_go(self, lease: _Lease) -> None:
        with self._mutex:
            lease.holders -= 1
            if not lease.holders:
                del self._held[str(lease.path)]
                lease.release()

    def _beat(self) -> None:
        while True:
            time.sleep(BEAT_S)
            with self._mutex:
                lost = next((lease for lease in self._held.values() if not lease.beat()), None)
            if lost is not None:
                _end_everything(lost.path)


_KEEPER = _Keeper()
os.register_at_fork(after_in_child=lambda: _KEEPER.__init__())  # type: ignore[misc]


def _end_everything(path: Path) -> None:
    """End this process with all it has started, because another one does its work."""
    with suppress(OSError):
        print(
            f"the lease {path} is another machine's now, because this process did not renew it for "
            f"{MISSED * BEAT_S:.0f} seconds (was it suspended, or cut off from the shared folder?):"
            " it ends, and what it has finished is stored",
            file=sys.stderr,
            flush=True,
        )
    import psutil

    with suppress(psutil.Error):
        for process in psutil.Process().children(recursive=True):
            with suppress(psutil.Error):
                process.terminate()
    if os.getpgrp() == os.getpid():
        os.killpg(os.getpgrp(), signal.SIGKILL)
    os._exit(LOST)


@contextmanager
def hold(path: Path, *, wait: bool = True, again: bool = False) -> Iterator[bool]:
    """Hold a lease while the block lasts; yield whether it is held.

    Unless it is told not to wait, the block is not entered while another process holds it. With
    `again` a process that holds it by `again` may hold it once more. The lease is written beside
    `path`, which has the lock of this machine.

    Raises:
        StoreError: The file system has no locks.
        OSError: The file cannot be created or written.
    """
    lease = _KEEPER.share(path) if again else None
    if lease is None:
        path.parent.mkdir(parents=True, exist_ok=True)
        lease = _acquired(path, again, wait)
        if lease is not None:
            _KEEPER.keep(lease)
    try:
        yield lease is not None
    finally:
        if lease is not None:
            _KEEPER.let_go(lease)


def is_held(path: Path) -> bool:
    """Return whether any process, this one too, holds a lease."""
    found = _look(_beside(path))
    if found is None:
        return False
    if not path.exists() or found.says("lock") != _lock(path):
        return not _is_silent(path, found)
    guard = _locked(path)
    if guard is None:
        return True
    os.close(guard)
    return False


def _acquired(path: Path, again: bool, wait: bool) -> _Lease | None:
    pause, longest = _PAUSES_S
    while True:
        guard = _locked(path)
        if guard is not None:
            try:
                content = _taken(path)
            except BaseException:
                os.close(guard)
                raise
            if content is not None:
                return _Lease(path, guard, content, again)
            os.close(guard)
        if not wait:
            return None
        time.sleep(pause * random.uniform(0.5, 1.0))
        pause = min(2 * pause, longest)


def _taken(path: Path) -> bytes | None:
    """Take a lease that is free, or whose holder is gone; return what is written there."""
    ours, place = _described(path), _beside(path)
    while not _create(place, ours):
        found = _look(place)
        if found is None:
            continue
        # We have the lock, so a holder that had this very one is no more.
        if found.says("lock") != _lock(path) and not _is_silent(path, found):
            return None
        if _look(place) == found:
            place.unlink(missing_ok=True)
    return ours


def _create(place: Path, content: bytes) -> bool:
    """Write a lease where there is none; return whether that was so."""
    try:
        file = place.open("xb")
    except FileExistsError:
        return False
    try:
        with file:
            file.write(content)
    except OSError:
        place.unlink(missing_ok=True)
        raise
    return True


def _look(place: Path) -> _Seen | None:
    """Return a lease; it is opened anew, so that a network file system looks again."""
    try:
        with place.open("rb") as file:
            return _Seen(file.read(_LONGEST), os.fstat(file.fileno()).st_mtime_ns)
    except FileNotFoundError:
        return None


def _beside(path: Path) -> Path:
    return path.with_name(f"{path.name}{SUFFIX}")


def _locked(path: Path) -> int | None:
    """Lock a file, created where absent, among the processes of this machine; None if taken."""
    guard = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        fcntl.flock(guard, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(guard)
        if error.errno in _BUSY:
            return None
        if error.errno in _NO_LOCKS:
            raise StoreError(
                f"the file system of {path.parent} has no file locks: choose a folder on another "
                "with HARNESS_WORK"
            ) from error
        raise
    return guard


def _lock(path: Path) -> str:
    """Return what distinguishes the lock on a file from those on all machines' other files."""
    found = path.stat()
    return f"{this_host()}:{found.st_dev}:{found.st_ino}"


def _described(path: Path) -> bytes:
    """Return what a lease says of its holder, who has the lock; name and time are for people."""
    fields = {
        "lock": _lock(path),
        "name": platform.node(),
        "pid": os.getpid(),
        "token": uuid.uuid4().hex,
        "since": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
    }
    return f"{json.dumps(fields)}\n".encode()


_SEEN: dict[str, tuple[_Seen, float]] = {}
"""Leases of other machines as they were last seen, and since when they have looked like that."""


def _is_silent(path: Path, found: _Seen) -> bool:
    """Return whether a lease of another machine has had no heartbeat for too long."""
    key, now = os.path.abspath(path), time.monotonic()
    seen, since = _SEEN.get(key, (None, now))
    if seen != found:
        since = now
    _SEEN[key] = (found, since)
    return now - since >= (MISSED * BEAT_S if found.says("lock") else TORN_S)


_LOCK = ".lock"
_LOCKS = "*.lock*"  # a lease may outlive its lock


@contextmanager
def scratch(parent: Path, name: str) -> Iterator[Path]:
    """Yield a new empty folder that is removed at the end, unless it was renamed away.

    Its name begins with `name`, for people who look.
    """
    folder = parent / f"{name}-{uuid.uuid4().hex[:12]}"
    with hold(_lock_of(folder)):
        try:
            folder.mkdir()
            yield folder
        finally:
            # What cannot be removed now is invisible to readers, and a later sweep tries again.
            _remove(folder)


def sweep(parent: Path) -> int:
    """Remove the scratch folders of processes that have ended; return how many there were."""
    locks = {path.with_name(path.name.partition(_LOCK)[0] + _LOCK) for path in parent.glob(_LOCKS)}
    return sum(map(_sweep_one, sorted(locks)))


def _sweep_one(lock: Path) -> bool:
    """Remove a scratch folder if no process holds its lock; return whether there was one."""
    folder = lock.with_suffix("")
    with hold(lock, wait=False) as mine:
        found = mine and folder.exists()
        if mine:
            _remove(folder)
    return found


def _remove(folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    if not folder.exists():
        _lock_of(folder).unlink(missing_ok=True)


def _lock_of(folder: Path) -> Path:
    return folder.with_name(f"{folder.name}{_LOCK}")


def lock_of(folder: Path) -> Path:
    """Return the file whose lock says that somebody works in the folder."""
    return folder.parent / ".locks" / folder.name


@contextmanager
def held(folder: Path) -> Iterator[Path]:
    """Yield the folder, created where absent, once no other process works in it.

    A process that holds it already, be it by its store's claim to the stage, holds it on.
    """
    with hold(lock_of(folder), again=True):
        folder.mkdir(parents=True, exist_ok=True)
        yield folder
