"""The stage store: a folder of finished outputs, each under its stage's fingerprint.

    <root>/stages/ab/ab12.../     a finished stage: its files, `stage.json`, `progress.jsonl`
    <root>/failures/ab12....json  why a stage failed the last time it ran
    <root>/tmp/                   outputs that are being written
    <root>/unfinished/ab12.../    checkpoints of a stage that was killed, until it is finished

An output is written in `tmp/`, digested, flushed and renamed: whoever looks sees all of it or
none. Any number of processes may share a store: one of them claims a stage and computes it, the
others wait for it. Should two finish the same stage all the same, the first wins and the second
throws its copy away, which is the same bytes anyway.
"""

from __future__ import annotations

import errno
import os
import shutil
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import Literal, TypeAlias, cast

from harness.store.digests import DigestCache, flush_folder, seal_files
from harness.store.faults import StoreError, explained
from harness.store.locks import hold, holder
from harness.store.manifest import (
    MANIFEST,
    Failure,
    Manifest,
    parse_manifest,
    parse_object,
    record_of,
    utc_now,
    write_json,
)
from harness.store.progress import Point, read_progress
from harness.store.provenance import Provenance, collect_provenance
from harness.store.scratch import scratch, sweep
from harness.store.stage import Stage, StageRecord
from harness.store.unfinished import lock_of

State: TypeAlias = Literal["done", "missing", "failed"]
STATES: tuple[State, ...] = ("done", "missing", "failed")

_OCCUPIED = {errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR}


class Store:
    """The stage outputs under one folder; nothing is created before something is written.

    Args:
        root: The store's folder.
    """

    def __init__(self, root: Path) -> None:
        self.root = root.resolve()
        self._manifests: dict[str, tuple[tuple[int, int], Manifest | None]] = {}
        self._digests = DigestCache()

    def status(self, fingerprint: str) -> State:
        """Return whether a stage is done, has failed the last time, or is missing.

        A done entry has a readable manifest; its files are verified when it is opened.
        """
        if self._find(fingerprint) is not None:
            return "done"
        return "failed" if self._failure_path(fingerprint).exists() else "missing"

    def path(self, fingerprint: str) -> Path:
        """Return the folder of a done stage without verifying its files.

        Raises:
            StoreError: The stage is not done.
        """
        self.manifest(fingerprint)
        return self._entry(fingerprint)

    def manifest(self, fingerprint: str) -> Manifest:
        """Return the manifest of a done stage.

        Raises:
            StoreError: The stage is not done.
        """
        manifest = self._find(fingerprint)
        if manifest is None:
            raise StoreError(
                f"stage {fingerprint[:12]} is not in the store {self.root}: run it first"
            )
        return manifest

    def open(self, fingerprint: str) -> Path:
        """Return the folder of a done stage, its files verified.

        Raises:
            StoreError: The stage is not done, or a file is not what was written.
        """
        self.verify(fingerprint)
        return self._entry(fingerprint)

    def verify(self, fingerprint: str) -> None:
        """Check a done stage's manifest and files; a file is read once per process.

        Raises:
            StoreError: The stage is not done, or a file is not what was written; the message
                names the first such file.
        """
        manifest = self.manifest(fingerprint)
        entry = self._entry(fingerprint)
        record = record_of(manifest)
        if record.fingerprint != fingerprint:
            raise self._broken(fingerprint, manifest, f"{MANIFEST} describes another stage")
        with explained(f"reading {record.title}", self.root):
            for name, file in manifest["files"].items():
                fault = self._digests.fault(entry / name, file)
                if fault is not None:
                    raise self._broken(fingerprint, manifest, f"{name} {fault}")

    def progress(self, fingerprint: str) -> list[Point]:
        """Return the points a done stage reported while it ran, in order.

        Raises:
            StoreError: The stage is not done, or a file is not what was written.
        """
        return read_progress(self.open(fingerprint))

    def stages(self) -> Iterator[Manifest]:
        """Yield the manifests of all done stages, in the order of their fingerprints."""
        for entry in sorted(self.root.glob("stages/??/*")):
            manifest = self._find(entry.name)
            if manifest is not None:
                yield manifest

    def claim(self, fingerprint: str, *, wait: bool = False) -> AbstractContextManager[bool]:
        """Return a block in which no other process works on a stage; it yields whether that is so.

        What this process has claimed it may claim again. A claim ends with its process.

        Args:
            fingerprint: The stage's.
            wait: Wait as long as another process works on the stage; True is yielded then.
        """
        return hold(lock_of(self.unfinished(fingerprint)), wait=wait, again=True)

    def claimed(self, fingerprint: str) -> bool:
        """Return whether any process works on a stage."""
        with explained(f"looking who computes {fingerprint[:12]}", self.root):
            return holder(lock_of(self.unfinished(fingerprint))) is not None

    @contextmanager
    def writing(
        self, stage: Stage | StageRecord, provenance: Provenance | None = None
    ) -> Iterator[Path]:
        """Yield an empty folder that becomes the stage's entry when the block succeeds.

        The stage is claimed meanwhile, after waiting for whoever else works on it.

        Args:
            stage: The stage whose output is written.
            provenance: Where and with what it is computed; collected where not given.

        Raises:
            StoreError: The disk is full, or the store's folder may not be written.
        """
        record = stage.record if isinstance(stage, Stage) else stage
        name = record.fingerprint[:12]
        with (
            explained(f"storing {record.title}", self.root),
            self.claim(record.fingerprint, wait=True),
            scratch(self._tmp, name) as output,
        ):
            started, wall, cpu = utc_now(), time.perf_counter(), time.process_time()
            yield output
            wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
            finished = utc_now()
            if (output / MANIFEST).exists():
                raise StoreError(f"{record.title} wrote {MANIFEST}, which is the store's own file")
            manifest: Manifest = {
                "fingerprint": record.fingerprint,
                "kind": record.kind,
                "version": record.version,
                "settings": record.settings,
                "inputs": record.inputs,
                "label": record.label,
                "files": seal_files(output),
                "started": started,
                "finished": finished,
                "wall_s": round(wall, 4),
                "cpu_s": round(cpu, 4),
                "provenance": provenance or collect_provenance(),
            }
            _write_flushed(output / MANIFEST, manifest)
            flush_folder(output)
            self._publish(output, record.fingerprint)
            self.clear_failure(record.fingerprint)
            shutil.rmtree(self.unfinished(record.fingerprint), ignore_errors=True)

    def record_failure(self, stage: Stage | StageRecord, reason: str, traceback_text: str) -> None:
        """Keep why a stage failed, until it runs again.

        Nothing is kept where another process has finished the stage since, or works on it: what
        it comes to there is what counts.

        Args:
            stage: The stage that failed.
            reason: One sentence.
            traceback_text: What a person needs to find the cause.

        Raises:
            StoreError: The disk is full, or the store's folder may not be written.
        """
        record = stage.record if isinstance(stage, Stage) else stage
        failure: Failure = {
            "fingerprint": record.fingerprint,
            "kind": record.kind,
            "label": record.label,
            "reason": reason,
            "traceback": traceback_text,
            "at": utc_now(),
        }
        path = self._failure_path(record.fingerprint)
        with (
            explained(f"recording the failure of {record.title}", self.root),
            self.claim(record.fingerprint) as mine,
            scratch(self._tmp, f"failure-{record.fingerprint[:12]}") as folder,
        ):
            if not mine or self._find(record.fingerprint) is not None:
                return
            write_json(folder / path.name, failure)
            path.parent.mkdir(parents=True, exist_ok=True)
            os.replace(folder / path.name, path)

    def failure(self, fingerprint: str) -> Failure | None:
        """Return why a stage failed the last time it ran; None where it did not, or is done."""
        path = self._failure_path(fingerprint)
        if self._find(fingerprint) is not None:
            return None
        with explained("reading a failure", self.root):
            try:
                text = path.read_text(encoding="utf-8")
            except FileNotFoundError:
                return None
        found = parse_object(text)
        if found is None or not Failure.__required_keys__ <= found.keys():
            raise StoreError(f"the failure record {path} is broken: delete it")
        return cast(Failure, found)

    def clear_failure(self, fingerprint: str) -> None:
        """Forget that a stage failed, for example because it is about to run again."""
        with explained("clearing a failure", self.root):
            self._failure_path(fingerprint).unlink(missing_ok=True)

    def discard(self, fingerprint: str) -> None:
        """Remove a stage's entry, whole or broken, its unfinished work and its failure record."""
        with (
            explained(f"removing stage {fingerprint[:12]}", self.root),
            self.claim(fingerprint, wait=True),
        ):
            self._set_aside(self._entry(fingerprint))
            shutil.rmtree(self.unfinished(fingerprint), ignore_errors=True)
            self.clear_failure(fingerprint)

    def unfinished(self, fingerprint: str) -> Path:
        """Return where a stage keeps what is to survive its death; the folder need not exist."""
        return self.root / "unfinished" / fingerprint

    def sweep(self) -> int:
        """Remove what killed processes left half-written; return how many outputs that were."""
        with explained("removing leftovers", self.root):
            return sweep(self._tmp)

    @property
    def _tmp(self) -> Path:
        return self.root / "tmp"

    def _entry(self, fingerprint: str) -> Path:
        return self.root / "stages" / fingerprint[:2] / fingerprint

    def _failure_path(self, fingerprint: str) -> Path:
        return self.root / "failures" / f"{fingerprint}.json"

    def _find(self, fingerprint: str) -> Manifest | None:
        """Return an entry's manifest, None where there is no whole one; parsed once per change."""
        path = self._entry(fingerprint) / MANIFEST
        with explained(f"reading stage {fingerprint[:12]}", self.root):
            try:
                found = path.stat()
                version = (found.st_mtime_ns, found.st_size)
                known = self._manifests.get(fingerprint)
                if known is None or known[0] != version:
                    text = path.read_text(encoding="utf-8", errors="replace")
                    known = self._manifests[fingerprint] = (version, parse_manifest(text))
            except (FileNotFoundError, NotADirectoryError):
                return None
        return known[1]

    def _publish(self, output: Path, fingerprint: str) -> None:
        """Rename a complete output to its place, unless a whole one is already there."""
        entry = self._entry(fingerprint)
        entry.parent.mkdir(parents=True, exist_ok=True)
        while True:
            try:
                os.rename(output, entry)
            except OSError as error:
                if error.errno not in _OCCUPIED:
                    raise
                if self._find(fingerprint) is not None:
                    return
                self._set_aside(entry)
            else:
                flush_folder(entry.parent)
                return

    def _set_aside(self, entry: Path) -> None:
        """Take an entry out of sight in one step, then remove it."""
        with scratch(self._tmp, f"old-{entry.name[:12]}") as folder, suppress(FileNotFoundError):
            os.rename(entry, folder / "entry")

    def _broken(self, fingerprint: str, manifest: Manifest, fault: str) -> StoreError:
        """Return the error for an entry that is not what was written."""
        title = f"'{manifest['label'] or manifest['kind']}' ({fingerprint[:12]})"
        return StoreError(
            f"the stored stage {title} is broken, {fault}: "
            f"delete {self._entry(fingerprint)} and run the same command again"
        )


def _write_flushed(path: Path, manifest: Manifest) -> None:
    """Write a manifest and flush it to the disk."""
    write_json(path, manifest)
    with path.open("rb") as file:
        os.fsync(file.fileno())
