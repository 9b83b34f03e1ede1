"""The stage store: a folder of finished outputs, each under its stage's fingerprint.

    <root>/stages/ab/ab12.../     a finished stage: its files, `stage.json`, `progress.jsonl`
    <root>/failures/ab12....json  why a stage failed the last time it ran
    <root>/tmp/                   outputs that are being written
    <root>/unfinished/ab12.../    checkpoints of a stage that was killed, until it is finished
    <root>/released/ab12....json  files of a finished stage that were dropped, on demand

An output is written in `tmp/`, digested, flushed and renamed: whoever looks sees all of it or
none. Any number of processes, on any number of machines, may share a store: one of them claims a
stage and computes it (`harness.runtime.locks`), the others wait for it. Should two finish the same
stage all the same, the first wins and the second throws its copy away, which is the same bytes
anyway.
"""

from __future__ import annotations

import errno
import json
import os
import shutil
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Literal, TypeAlias

from harness.runtime.files import (
    BrokenEntry,
    DigestCache,
    StoreError,
    explained,
    flush_folder,
    seal_files,
    write_whole,
)
from harness.runtime.locks import hold, is_held, lock_of, scratch, sweep
from harness.runtime.manifest import (
    MANIFEST,
    FailureRecord,
    Manifest,
    Provenance,
    collect_provenance,
    read_failure,
    read_manifest,
    utc_now,
    write_json,
    write_manifest,
)
from harness.runtime.stage import PROGRESS, CurvePoint, Stage, StageRecord, point_of, titled

State: TypeAlias = Literal["done", "missing", "failed"]
STATES: tuple[State, ...] = ("done", "missing", "failed")

_FINGERPRINT = 64
"""Hexadecimal digits."""

_OCCUPIED = {errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR}


class Store:
    """The stage outputs under one folder; nothing is created before something is written.

    Whatever is asked, a `StoreError` says what cannot be had: a stage that is not done, an entry or
    a record that is not what was written, a disk that is full.
    """

    def __init__(self, root: Path) -> None:
        self.root = root.resolve()
        self._manifests: dict[str, tuple[tuple[int, int, int], Manifest]] = {}
        self._digests = DigestCache()

    def status(self, fingerprint: str) -> State:
        """Return whether a stage is done, has failed the last time, or is missing.

        A done entry has a whole manifest; its files are verified when it is opened.
        """
        if self.find(fingerprint) is not None:
            return "done"
        failed = os.path.exists(f"{self.root}/failures/{fingerprint}.json")
        return "failed" if failed else "missing"

    def path(self, fingerprint: str) -> Path:
        """Return the folder of a done stage without verifying its files."""
        self.manifest(fingerprint)
        return self._entry(fingerprint)

    def manifest(self, fingerprint: str) -> Manifest:
        manifest = self.find(fingerprint)
        if manifest is None:
            raise StoreError(
                f"stage {fingerprint[:12]} is not in the store {self.root}: run it first"
            )
        return manifest

    def open(self, fingerprint: str, *, whole: bool = False) -> Path:
        """Return the folder of a done stage, its files verified.

        With `whole` all of them must be there, else those need not be that were released.
        """
        self.verify(fingerprint)
        if whole and self.released(fingerprint):
            raise StoreError(
                f"the weights of {_title(self.manifest(fingerprint))} were dropped by "
                "`harness store --prune`: run the same command again, it computes them anew"
            )
        return self._entry(fingerprint)

    def file(self, fingerprint: str, name: str) -> Path:
        """Return where a file of a done stage lies, it alone verified.

        A file that the stage did not write is not there. The stage's other files are not read:
        those who want a summary should not wait for the weights beside it.
        """
        manifest = self.manifest(fingerprint)
        path = self._entry(fingerprint) / name
        written = manifest["files"].get(name)
        with explained(f"reading stage {fingerprint[:12]}", self.root):
            if written is None:
                fault = f"{name} was not written there" if os.path.lexists(path) else None
            else:
                fault = self._digests.file_fault(str(path), name, written)
        if fault is not None:
            raise self._broken(fingerprint, fault, _title(manifest))
        return path

    def verify(self, fingerprint: str) -> None:
        """Check a done stage's manifest and files; a file is read once per process."""
        manifest = self.manifest(fingerprint)
        with explained(f"reading stage {fingerprint[:12]}", self.root):
            released = self.released(fingerprint)
            entry = f"{self.root}/stages/{fingerprint[:2]}/{fingerprint}"
            fault = self._digests.fault(entry, manifest["files"], MANIFEST, released)
        if fault is not None:
            raise self._broken(fingerprint, fault, _title(manifest))

    def check(self) -> list[str]:
        """Verify every entry and every failure record; return the fingerprints of the entries."""
        held = self.fingerprints()
        with explained("reading the store", self.root):
            failed = sorted(path.stem for path in self.root.glob("failures/*"))
        broken = []
        for check, fingerprints in ((self.verify, held), (self._recorded_failure, failed)):
            for fingerprint in fingerprints:
                try:
                    check(fingerprint)
                except BrokenEntry as error:
                    broken.append(str(error))
        if len(broken) > 1:
            listed = "".join(f"\n  {line}" for line in broken)
            raise BrokenEntry(f"{len(broken)} things in the store are broken:{listed}")
        if broken:
            raise BrokenEntry(broken[0])
        return held

    def progress(self, fingerprint: str) -> list[CurvePoint]:
        path = self.file(fingerprint, PROGRESS)
        if not path.exists():  # it reported none
            return []
        return [point_of(line) for line in path.read_text(encoding="utf-8").splitlines()]

    def stages(self) -> Iterator[Manifest]:
        for fingerprint in self.fingerprints():
            yield self.manifest(fingerprint)

    def fingerprints(self) -> list[str]:
        return list(self._entries())

    @contextmanager
    def claim(self, fingerprint: str, *, wait: bool = False) -> Iterator[bool]:
        """Return a block in which no other process works on a stage; it yields whether that is so.

        What this process has claimed it may claim again. A claim ends with its process, at once on
        this machine, and after a minute and a half for others. With `wait` the block is entered
        when no other process works on the stage.
        """
        lock = lock_of(self.unfinished(fingerprint))
        with hold(lock, wait=wait, again=True) as mine:
            yield mine

    def claimed(self, fingerprint: str) -> bool:
        with explained(f"looking who computes {fingerprint[:12]}", self.root):
            return is_held(lock_of(self.unfinished(fingerprint)))

    @contextmanager
    def writing(
        self, stage: Stage | StageRecord, provenance: Provenance | None = None
    ) -> Iterator[Path]:
        """Yield an empty folder that becomes the stage's entry when the block succeeds.

        The stage is claimed meanwhile, after waiting for whoever else works on it. Provenance is
        collected where it is not given.
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
            if os.path.lexists(output / MANIFEST):
                raise StoreError(f"{record.title} wrote {MANIFEST}, which is the store's own file")
            manifest: Manifest = {
                "fingerprint": record.fingerprint,
                "kind": record.kind,
                "version": record.version,
                "settings": dict(record.settings),
                "inputs": dict(record.inputs),
                "label": record.label,
                "files": seal_files(output),
                "started": started,
                "finished": finished,
                "wall_s": round(wall, 4),
                "cpu_s": round(cpu, 4),
                "provenance": provenance or collect_provenance(),
            }
            try:
                write_manifest(output, manifest)
            except ValueError as error:
                raise StoreError(f"{record.title} cannot be stored: {MANIFEST} {error}") from error
            flush_folder(output)
            self._publish(output, record.fingerprint)
            self.clear_failure(record.fingerprint)
            shutil.rmtree(self.unfinished(record.fingerprint), ignore_errors=True)

    def record_failure(self, stage: Stage | StageRecord, reason: str, traceback_text: str) -> None:
        """Keep why a stage failed, until it runs again.

        Nothing is kept where another process has finished the stage since, or works on it: what
        it comes to there is what counts.
        """
        record = stage.record if isinstance(stage, Stage) else stage
        failure: FailureRecord = {
            "fingerprint": record.fingerprint,
            "kind": record.kind,
            "label": record.label,
            "reason": _writable(reason),
            "traceback": _writable(traceback_text),
            "at": utc_now(),
        }
        path = self._failure_path(record.fingerprint)
        with (
            explained(f"recording the failure of {record.title}", self.root),
            self.claim(record.fingerprint) as mine,
            scratch(self._tmp, f"failure-{record.fingerprint[:12]}") as folder,
        ):
            if not mine or self._is_whole(record.fingerprint):
                return
            write_json(folder / path.name, failure)
            path.parent.mkdir(parents=True, exist_ok=True)
            os.replace(folder / path.name, path)

    def failure(self, fingerprint: str) -> FailureRecord | None:
        """Return why a stage failed the last time it ran; None where it did not, or is done."""
        return None if self._is_whole(fingerprint) else self._recorded_failure(fingerprint)

    def _recorded_failure(self, fingerprint: str) -> FailureRecord | None:
        path = self._failure_path(fingerprint)
        with explained("reading a failure", self.root):
            try:
                return read_failure(path)
            except FileNotFoundError:
                return None
            except ValueError as error:
                raise BrokenEntry(
                    f"the failure record {path} is broken, it {error}: delete it"
                ) from error

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
            self._released_path(fingerprint).unlink(missing_ok=True)
            shutil.rmtree(self.unfinished(fingerprint), ignore_errors=True)
            self.clear_failure(fingerprint)

    def released(self, fingerprint: str) -> frozenset[str]:
        """Return the files of a done stage that were dropped, by their names in its manifest."""
        if not os.path.exists(f"{self.root}/released/{fingerprint}.json"):
            return frozenset()
        path = self._released_path(fingerprint)
        with explained("reading what was dropped", self.root):
            try:
                return frozenset(json.loads(path.read_text(encoding="utf-8"))["files"])
            except (ValueError, KeyError, TypeError) as error:
                raise BrokenEntry(
                    f"{path} is broken: delete it with {self._entry(fingerprint)} and run the "
                    "same command again"
                ) from error

    def release(self, fingerprint: str, names: Iterable[str]) -> None:
        """Drop files of a done stage that nothing reads any more; the others stay as they are."""
        kept = self.manifest(fingerprint)["files"]
        dropped = sorted(self.released(fingerprint) | (set(names) & kept.keys()))
        with (
            explained(f"dropping files of stage {fingerprint[:12]}", self.root),
            self.claim(fingerprint, wait=True),
        ):
            text = f"{json.dumps({'files': dropped})}\n"
            write_whole(self._released_path(fingerprint), text)
            for name in dropped:
                (self._entry(fingerprint) / name).unlink(missing_ok=True)

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

    def _released_path(self, fingerprint: str) -> Path:
        return self.root / "released" / f"{fingerprint}.json"

    def _failure_path(self, fingerprint: str) -> Path:
        return self.root / "failures" / f"{fingerprint}.json"

    def _entries(self) -> Iterator[str]:
        """Yield the names of all entries' folders, the fingerprints, in order."""
        with explained("reading the store", self.root):
            stages = f"{self.root}/stages"
            for start in sorted(os.listdir(stages)) if os.path.isdir(stages) else ():
                folder = f"{stages}/{start}"
                if not os.path.isdir(folder):
                    raise BrokenEntry(f"{folder} is no stage of the store: move it away")
                for name in sorted(os.listdir(folder)):
                    if name[:2] != start or len(name) != _FINGERPRINT:
                        raise BrokenEntry(f"{folder}/{name} is no stage of the store: move it away")
                    yield name

    def find(self, fingerprint: str) -> Manifest | None:
        """Return an entry's manifest, None where there is no entry; read once per change."""
        # Asked of every stage of a plan, several times: the path is a text while it can be one.
        entry = f"{self.root}/stages/{fingerprint[:2]}/{fingerprint}"
        known = self._manifests.get(fingerprint)
        if known is not None:
            with suppress(OSError):  # which is explained below
                found = os.lstat(f"{entry}/{MANIFEST}")
                if known[0] == (found.st_mtime_ns, found.st_ctime_ns, found.st_size):
                    return known[1]
        with explained(f"reading stage {fingerprint[:12]}", self.root):
            try:
                found = os.lstat(f"{entry}/{MANIFEST}")
                version = found.st_mtime_ns, found.st_ctime_ns, found.st_size
                if os.path.islink(entry):
                    raise self._broken(fingerprint, "it is a link")
                known = self._manifests[fingerprint] = (version, read_manifest(entry))
            except (FileNotFoundError, NotADirectoryError) as error:
                if not os.path.lexists(entry):
                    return None
                if os.path.lexists(f"{entry}/{MANIFEST}"):  # published since we looked
                    return self.find(fingerprint)
                raise self._broken(fingerprint, f"{MANIFEST} is missing") from error
            except ValueError as error:
                raise self._broken(fingerprint, f"{MANIFEST} {error}") from error
        return known[1]

    def _is_whole(self, fingerprint: str) -> bool:
        """Return whether there is an entry that need not be written again."""
        try:
            return self.find(fingerprint) is not None
        except BrokenEntry:
            return False

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
                if self._is_whole(fingerprint):
                    return
                self._set_aside(entry)
            else:
                flush_folder(entry.parent)
                return

    def _set_aside(self, entry: Path) -> None:
        """Take an entry out of sight in one step, then remove it."""
        with scratch(self._tmp, f"old-{entry.name[:12]}") as folder, suppress(FileNotFoundError):
            os.rename(entry, folder / "entry")

    def _broken(self, fingerprint: str, fault: str, title: str | None = None) -> BrokenEntry:
        return BrokenEntry(
            f"the stored stage {title or fingerprint[:12]} is broken, {fault}: "
            f"delete {self._entry(fingerprint)} and run the same command again"
        )


def _title(manifest: Manifest) -> str:
    return titled(manifest["label"] or manifest["kind"], manifest["fingerprint"])


def _writable(text: str) -> str:
    """Return a text that UTF-8 can hold: what names a file may hold halves of characters."""
    return text.encode("utf-8", "replace").decode("utf-8")
