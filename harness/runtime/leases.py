"""Leases: of all processes on all machines that share a folder, one at a time works on a thing.

A lease is a file that its holder creates exclusively, renews every 30 seconds (the heartbeat) and
removes. Two proofs say that its holder is gone:

- *On the holder's own machine* the operating system says so. A holder has a lock (`flock`) on the
  file beside the lease, which goes with its process, however that ends: nobody waits for the dead.
- *On another machine* its heartbeat says so. `flock` need not reach there, so the lease counts as
  abandoned when its content has not changed for three heartbeats, by the clock of whoever watches.
  No time that another machine wrote is compared: a clock that is off by minutes changes nothing.
  What was seen is kept in the machine's temporary folder, so that a command which looks once and
  ends is judged together with the next one.

A lease saves work, it guards nothing: outputs are published in one step, and the first one stands.
That is why two machines that take over an abandoned lease in the same instant do no harm; the one
that finds another's name in its lease ends its work, with every process it has started (as does one
that was asleep for too long).

The file with the lock stays when it is let go: were it deleted, one process could hold the file
that others still have open, and another a new one. Where leases are kept elsewhere than in a file,
their place is a `Post` of another kind.

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
import hashlib
import json
import os
import platform
import random
import shutil
import signal
import sys
import tempfile
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Any, Protocol

import psutil

from harness.runtime.files import StoreError

BEAT_S = 30.0
"""Seconds between two heartbeats; a lease says those of its holder."""

MISSED = 3
"""Heartbeats that did not come before a lease counts as abandoned."""

LOST = 75
"""Exit code of a process that ends because its lease became another's (EX_TEMPFAIL)."""

_NO_LOCKS = {errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP}
_NO_LINKS = {errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK}
_BUSY = {errno.EAGAIN, errno.EACCES}
_COUNT = 12
"""Digits of a heartbeat's number, the first line of a lease."""

_LONGEST = 4096
_LEAST_PAUSE_S = 0.001


@cache
def this_host() -> str:
    """Return what distinguishes this machine, until it is started again."""
    with suppress(OSError):
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    return f"{platform.node()}-{uuid.getnode():x}"


class Post(Protocol):
    """Where one lease is written: a file, or an object of a remote store."""

    pause_s: float
    """Seconds between two looks of whoever waits for it, at most."""

    @property
    def key(self) -> str:
        """What distinguishes it from all others."""
        ...

    def create(self, content: bytes) -> bool:
        """Write it where there is none; return whether that was so."""
        ...

    def read(self) -> bytes | None:
        """Return its content, None where there is none."""
        ...

    def replace(self, seen: bytes, content: bytes) -> bool:
        """Write it in the place of what was seen; return whether it was still there."""
        ...

    def remove(self) -> None:
        """Remove it."""
        ...


class FilePost:
    """A lease in a file."""

    pause_s = 0.05

    def __init__(self, path: Path) -> None:
        self._path = path

    @property
    def key(self) -> str:
        """Its absolute path."""
        return os.path.abspath(self._path)

    def create(self, content: bytes) -> bool:
        """Write it where there is none, whole from the beginning; return whether that was so."""
        draft = self._draft()
        try:
            draft.write_bytes(content)
            os.link(draft, self._path)
        except FileExistsError:
            return False
        except OSError as error:
            if error.errno not in _NO_LINKS:
                raise
            return self._create_open(content)
        finally:
            draft.unlink(missing_ok=True)
        return True

    def _create_open(self, content: bytes) -> bool:
        """Do the same where a file can have one name only."""
        try:
            with self._path.open("xb") as file:
                file.write(content)
        except FileExistsError:
            return False
        return True

    def read(self) -> bytes | None:
        """Return its content; it is opened anew, so that a network file system looks again."""
        try:
            with self._path.open("rb") as file:
                return file.read(_LONGEST)
        except FileNotFoundError:
            return None

    def replace(self, seen: bytes, content: bytes) -> bool:
        """Write it in the place of what was seen, if it is still there."""
        if self.read() != seen:
            return False
        if seen[_COUNT:] == content[_COUNT:]:  # a heartbeat needs no room on a full disk
            with self._path.open("r+b") as file:
                file.write(content[:_COUNT])
                file.flush()
                os.fsync(file.fileno())
            return True
        draft = self._draft()
        try:
            draft.write_bytes(content)
            os.replace(draft, self._path)
        finally:
            draft.unlink(missing_ok=True)
        return self.read() == content

    def remove(self) -> None:
        """Remove it."""
        self._path.unlink(missing_ok=True)

    def _draft(self) -> Path:
        return self._path.with_name(f"{self._path.name}.{uuid.uuid4().hex[:12]}")


def post_of(path: Path) -> FilePost:
    """Return where the lease that belongs to a lock's file is written."""
    return FilePost(path.with_name(f"{path.name}{SUFFIX}"))


SUFFIX = ".lease"


class _Lease:
    """A lease that this process holds: the lock on its file, and what is written in its post."""

    def __init__(self, path: Path, guard: int, post: Post, content: bytes) -> None:
        self.path = path
        self.holders = 1
        self.post = post
        self.content = content
        self._guard = guard
        self._writing = threading.Lock()
        self._ended = False

    def beat(self) -> bool:
        """Renew it; return whether it is still ours.

        What cannot be written now is tried again at the next heartbeat: only another's name in its
        place makes it another's.
        """
        with self._writing, suppress(OSError, StoreError):
            if self._ended:
                return True
            found = self.post.read()
            if found is not None and found[_COUNT:] != self.content[_COUNT:]:
                return False
            renewed = _numbered(int(self.content[:_COUNT]) + 1) + self.content[_COUNT:]
            if self.post.create(renewed) if found is None else self.post.replace(found, renewed):
                self.content = renewed
        return True

    def is_ours(self) -> bool:
        """Return whether nobody else has taken it."""
        found = self.post.read()
        return found is None or found[_COUNT:] == self.content[_COUNT:]

    def release(self) -> None:
        """Let it go."""
        with self._writing:
            self._ended = True
            try:
                with suppress(OSError, StoreError):
                    if self.is_ours():
                        self.post.remove()
            finally:
                os.close(self._guard)


class _Keeper:
    """Renews all leases of this process, from a thread of its own."""

    def __init__(self) -> None:
        self._mutex = threading.Lock()
        self._held: set[_Lease] = set()
        self._again: dict[str, _Lease] = {}
        self._thread: threading.Thread | None = None

    def keep(self, lease: _Lease, again: bool) -> None:
        with self._mutex:
            self._held.add(lease)
            if again:
                self._again[str(lease.path)] = lease
            if self._thread is None or not self._thread.is_alive():
                self._thread = threading.Thread(target=self._beat, name="heartbeat", daemon=True)
                self._thread.start()

    def share(self, path: Path) -> _Lease | None:
        """Return a lease that this process holds and may hold again, held once more."""
        with self._mutex:
            lease = self._again.get(str(path))
            if lease is not None:
                lease.holders += 1
            return lease

    def let_go(self, lease: _Lease) -> None:
        with self._mutex:
            lease.holders -= 1
            if lease.holders:
                return
            self._held.discard(lease)
            if self._again.get(str(lease.path)) is lease:
                del self._again[str(lease.path)]
        lease.release()

    def _beat(self) -> None:
        while True:
            time.sleep(BEAT_S)
            with self._mutex:
                held = list(self._held)
            for lease in held:
                if not lease.beat():
                    _end_everything(lease.path)


_KEEPER = _Keeper()
os.register_at_fork(after_in_child=lambda: _KEEPER.__init__())  # type: ignore[misc]

on_lost: list[Callable[[], None]] = []
"""Called when this process has lost a lease, before it ends."""


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
    for tell in on_lost:
        with suppress(Exception):
            tell()
    with suppress(psutil.Error):
        for process in psutil.Process().children(recursive=True):
            with suppress(psutil.Error):
                process.terminate()
    if os.getpgrp() == os.getpid():
        os.killpg(os.getpgrp(), signal.SIGKILL)
    os._exit(LOST)


@contextmanager
def hold(
    path: Path, *, wait: bool = True, again: bool = False, post: Post | None = None
) -> Iterator[bool]:
    """Hold a lease while the block lasts; yield whether it is held.

    Unless it is told not to wait, the block is not entered while another process holds it. With
    `again` a process that holds it by `again` may hold it once more. The lease is written beside
    `path`, which has the lock of this machine, unless `post` says where.

    Raises:
        StoreError: The file system has no locks.
        OSError: The file cannot be created or written.
    """
    lease = _KEEPER.share(path) if again else None
    if lease is None:
        path.parent.mkdir(parents=True, exist_ok=True)
        lease = _acquired(path, post or post_of(path), wait)
        if lease is not None:
            _KEEPER.keep(lease, again)
    try:
        yield lease is not None
    finally:
        if lease is not None:
            _KEEPER.let_go(lease)


def is_held(path: Path, post: Post | None = None) -> bool:
    """Return whether any process, this one too, holds a lease."""
    post = post or post_of(path)
    found = post.read()
    if found is None:
        return False
    if not path.exists() or not _is_of(found, path):
        return not _silent(post, found)
    guard = _locked(path)
    if guard is None:
        return True
    os.close(guard)
    return False


def _acquired(path: Path, post: Post, wait: bool) -> _Lease | None:
    pause = _LEAST_PAUSE_S
    while True:
        guard = _locked(path)
        if guard is not None:
            try:
                content = _taken(post, path)
            except BaseException:
                os.close(guard)
                raise
            if content is not None:
                return _Lease(path, guard, post, content)
            os.close(guard)
        if not wait:
            return None
        time.sleep(pause * random.uniform(0.5, 1.0))
        pause = min(2 * pause, post.pause_s)


def _taken(post: Post, path: Path) -> bytes | None:
    """Take a lease that is free, or whose holder is gone; return what is written there."""
    ours = _numbered(0) + _described(path)
    while not post.create(ours):
        found = post.read()
        if found is None:
            continue
        # We have the lock, so a holder that had this very one is no more.
        if not _is_of(found, path) and not _silent(post, found):
            return None
        if not post.replace(found, ours):
            return None
        _sighting(post).unlink(missing_ok=True)
        return ours
    return ours


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


def _numbered(count: int) -> bytes:
    return f"{count:0{_COUNT - 1}d}\n".encode()


def _lock(path: Path) -> str:
    """Return what distinguishes the lock on a file from those on all machines' other files."""
    found = path.stat()
    return f"{this_host()}:{found.st_dev}:{found.st_ino}"


def _is_of(content: bytes, path: Path) -> bool:
    """Return whether the holder of a lease has, or had, the lock on this file."""
    return _holder(content).get("lock") == _lock(path)


def _described(path: Path) -> bytes:
    """Return what a lease says of its holder, who has the lock; name and time are for people."""
    fields = {
        "lock": _lock(path),
        "name": platform.node(),
        "pid": os.getpid(),
        "token": uuid.uuid4().hex,
        "beat_s": BEAT_S,
        "since": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
    }
    return f"{json.dumps(fields)}\n".encode()


def _holder(content: bytes) -> dict[str, Any]:
    """Return what a lease says of its holder; nothing, where it cannot be read."""
    with suppress(ValueError):
        found = json.loads(content[_COUNT:])
        if isinstance(found, dict):
            return found
    return {}


_SEEN: dict[str, tuple[str, float]] = {}
"""What was last read in a lease of another machine, as a digest, and when that was first seen."""


def _silent(post: Post, found: bytes) -> bool:
    """Return whether a lease of another machine has had no heartbeat for too long."""
    said = _holder(found).get("beat_s")
    limit_s = MISSED * (said if isinstance(said, int | float) and 0 < said < 3600 else BEAT_S)
    content, now = hashlib.sha256(found).hexdigest(), time.monotonic()
    known = _SEEN.get(post.key) or _noted(post)
    if known is None or known[0] != content or known[1] > now:
        known = (content, now)
        with suppress(OSError):
            _sighting(post).parent.mkdir(mode=0o700, exist_ok=True)
            _sighting(post).write_text(f"{this_host()} {content} {now}\n", encoding="ascii")
    _SEEN[post.key] = known
    return now - known[1] >= limit_s


def _noted(post: Post) -> tuple[str, float] | None:
    """Return what another process of this machine has seen in a lease."""
    with suppress(OSError, ValueError):
        host, content, since = _sighting(post).read_text(encoding="ascii").split()
        if host == this_host():
            return content, float(since)
    return None


def _sighting(post: Post) -> Path:
    folder = Path(tempfile.gettempdir()) / f"harness-leases-{os.getuid()}"
    return folder / hashlib.sha256(post.key.encode()).hexdigest()[:32]


_LOCK = ".lock"
_LOCKS = "*.lock*"  # a lease may outlive its lock


@contextmanager
def scratch(parent: Path, name: str) -> Iterator[Path]:
    """Yield a new empty folder that is removed at the end, unless it was renamed away.

    Its name begins with `name`, for people who look.

    Raises:
        StoreError: The file system has no locks.
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

    Raises:
        StoreError: The file system has no locks.
    """
    with hold(lock_of(folder), again=True):
        folder.mkdir(parents=True, exist_ok=True)
        yield folder
