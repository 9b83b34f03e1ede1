"""The stage store: a folder of finished outputs, each under its stage's fingerprint.

    <root>/stages/ab/ab12.../     a finished stage: its files, `stage.json`, `progress.jsonl`
    <root>/failures/ab12....json  why a stage last failed
    <root>/tmp/ab12.../           an output being written
    <root>/unfinished/ab12.../    checkpoints of a stage that was killed, until it finishes

An output is written in `tmp/`, hashed, flushed and renamed, so readers see all of it or nothing.
Any number of processes and machines may share a store: each stage has one lock, whose holder has
claimed the stage and its folders in `tmp/` and `unfinished/`; others wait. A folder in `tmp/` whose
lock is free was left behind by a killed process.
"""

from __future__ import annotations

import os
import re
import shutil
import stat
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Literal, TypeAlias

from harness.runtime.files import (
    BrokenEntry,
    DigestCache,
    StoreError,
    dumps,
    explained,
    flush_folder,
    hold,
    is_held,
    lock_of,
    seal_files,
    write_whole,
)
from harness.runtime.manifest import (
    MANIFEST,
    FailureRecord,
    Manifest,
    Provenance,
    collect_provenance,
    read_failure,
    read_manifest,
    utc_now,
    write_manifest,
)
from harness.runtime.stage import PROGRESS, CurvePoint, Stage, StageRecord, read_point, title_of

State: TypeAlias = Literal["done", "missing", "failed"]
STATES: tuple[State, ...] = ("done", "missing", "failed")

_FINGERPRINT = 64  # hex digits

_SEED = re.compile(rb'"seed": ?([0-9]{1,10})\b')


class Store:
    """The stage outputs under one folder; nothing is created before the first write."""

    def __init__(self, root: Path) -> None:
        self.root = root.resolve()
        self._manifests: dict[str, tuple[tuple[int, int, int], Manifest]] = {}
        self._digests = DigestCache()

    def status(self, fingerprint: str) -> State:
        """Return whether a stage is done, failed the last time, or is missing."""
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

    def file(self, fingerprint: str, name: str) -> Path:
        """Return the path of one file of a done stage after verifying that file only."""
        manifest = self.manifest(fingerprint)
        path = self._entry(fingerprint) / name
        written = manifest["files"].get(name)
        with explained(f"reading stage {fingerprint[:12]}", self.root):
            if written is None:
                fault = f"{name} was not written there" if os.path.lexists(path) else None
            else:
                fault = self._digests.file_fault(str(path), name, written)
        if fault is not None:
            raise self._broken(fingerprint, fault, title_of(manifest))
        return path

    def open(self, fingerprint: str) -> Path:
        """Return the folder of a done stage, verified; each file is read once per process."""
        manifest, entry = self.manifest(fingerprint), self._entry(fingerprint)
        with explained(f"reading stage {fingerprint[:12]}", self.root):
            fault = self._digests.fault(str(entry), manifest["files"], MANIFEST)
        if fault is not None:
            raise self._broken(fingerprint, fault, title_of(manifest))
        return entry

    def check(self) -> list[str]:
        """Verify every entry and failure record; return the entries' fingerprints."""
        held = self.fingerprints()
        with explained("reading the store", self.root):
            failed = sorted(path.stem for path in self.root.glob("failures/*.json"))
        broken = []
        for check, fingerprints in ((self.open, held), (self._recorded_failure, failed)):
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
        if not path.exists():  # the stage reported nothing
            return []
        return [read_point(line) for line in path.read_text(encoding="utf-8").splitlines()]

    def stages(self) -> Iterator[Manifest]:
        for fingerprint in self.fingerprints():
            yield self.manifest(fingerprint)

    def seeds(self) -> tuple[int, ...]:
        """Return the root seeds of all entries, in ascending order."""
        found: set[bytes] = set()
        with explained("reading the store", self.root):
            for name in self.fingerprints():
                path = self._entry(name) / MANIFEST
                # Whoever needs a stage without a manifest says that it is broken.
                found.update(_SEED.findall(path.read_bytes()) if path.is_file() else ())
        return tuple(sorted(map(int, found)))

    def fingerprints(self) -> list[str]:
        """Return the fingerprints of all entries, sorted."""
        found = []
        with explained("reading the store", self.root):
            stages = f"{self.root}/stages"
            for start in sorted(os.listdir(stages)) if os.path.isdir(stages) else ():
                folder = f"{stages}/{start}"
                if not os.path.isdir(folder):
                    raise BrokenEntry(f"{folder} is not a stage folder: move it away")
                for name in sorted(os.listdir(folder)):
                    if name[:2] != start or len(name) != _FINGERPRINT:
                        raise BrokenEntry(f"{folder}/{name} is not a stage folder: move it away")
                    found.append(name)
        return found

    def claim(self, fingerprint: str, *, wait: bool = False) -> AbstractContextManager[bool]:
        """Claim a stage for a block, again if it is ours; the block gets whether that succeeded."""
        return hold(self._lock(fingerprint), wait=wait, again=True)

    def claimed(self, fingerprint: str) -> bool:
        with explained(f"looking who computes {fingerprint[:12]}", self.root):
            return is_held(self._lock(fingerprint))

    @contextmanager
    def writing(
        self, stage: Stage | StageRecord, provenance: Provenance | None = None
    ) -> Iterator[Path]:
        """Yield an empty folder that becomes the claimed stage's entry if the block succeeds."""
        record = stage.record if isinstance(stage, Stage) else stage
        fingerprint, title = record["fingerprint"], title_of(record)
        with (
            explained(f"storing {title}", self.root),
            self.claim(fingerprint, wait=True),
            self._draft(fingerprint) as output,
        ):
            started, wall, cpu = utc_now(), time.perf_counter(), time.process_time()
            yield output
            wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
            finished = utc_now()
            if os.path.lexists(output / MANIFEST):
                raise StoreError(f"{title} wrote {MANIFEST}, which is the store's own file")
            manifest: Manifest = {
                **record,
                "files": seal_files(output),
                "started": started,
                "finished": finished,
                "wall_s": round(wall, 4),
                "cpu_s": round(cpu, 4),
                "provenance": provenance or collect_provenance(),
            }
            write_manifest(output, manifest)
            flush_folder(output)
            if not self._is_whole(fingerprint):
                entry = self._entry(fingerprint)
                self._set_aside(entry)
                entry.parent.mkdir(parents=True, exist_ok=True)
                os.rename(output, entry)
                flush_folder(entry.parent)
            self.clear_failure(fingerprint)
            shutil.rmtree(self.unfinished(fingerprint), ignore_errors=True)

    def record_failure(self, stage: Stage, reason: str, traceback_text: str) -> None:
        """Record why a stage failed until it runs again, unless it is done or claimed elsewhere."""
        failure: FailureRecord = {
            "fingerprint": stage.fingerprint,
            "kind": stage.kind,
            "label": stage.label,
            "reason": reason,
            "traceback": traceback_text,
            "at": utc_now(),
        }
        with (
            explained(f"recording the failure of {stage.title}", self.root),
            self.claim(stage.fingerprint) as mine,
        ):
            if mine and not self._is_whole(stage.fingerprint):
                # File names in messages may contain lone surrogates, which UTF-8 cannot encode.
                raw = dumps(failure).encode("utf-8", "replace")
                write_whole(self._failure_path(stage.fingerprint), raw)

    def failure(self, fingerprint: str) -> FailureRecord | None:
        """Return why a stage last failed, or None if it did not or is done."""
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
        """Delete a stage's failure record, for example because it is about to run again."""
        with explained("clearing a failure", self.root):
            self._failure_path(fingerprint).unlink(missing_ok=True)

    def unfinished(self, fingerprint: str) -> Path:
        """Return the folder for checkpoints that survive a crash; it need not exist."""
        return self.root / "unfinished" / fingerprint

    def sweep(self) -> int:
        """Remove partial outputs of killed processes; return how many."""
        swept = 0
        with explained("removing leftovers", self.root):
            for folder in sorted(self._tmp.glob("*")):
                with hold(self._lock(folder.name[:_FINGERPRINT]), wait=False) as is_nobodys:
                    if is_nobodys:
                        shutil.rmtree(folder, ignore_errors=True)
                        swept += 1
        return swept

    @property
    def _tmp(self) -> Path:
        return self.root / "tmp"

    @contextmanager
    def _draft(self, name: str) -> Iterator[Path]:
        """Yield a new empty folder for a claimed stage; it is removed unless renamed away."""
        folder = self._tmp / name
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def _lock(self, fingerprint: str) -> Path:
        return lock_of(self.unfinished(fingerprint))

    def _entry(self, fingerprint: str) -> Path:
        return self.root / "stages" / fingerprint[:2] / fingerprint

    def _failure_path(self, fingerprint: str) -> Path:
        return self.root / "failures" / f"{fingerprint}.json"

    def find(self, fingerprint: str) -> Manifest | None:
        """Return an entry's manifest, or None if there is no entry; cached until it changes."""
        # Called several times per stage of a plan: strings are faster than `Path`.
        entry = f"{self.root}/stages/{fingerprint[:2]}/{fingerprint}"
        file = f"{entry}/{MANIFEST}"
        with explained(f"reading stage {fingerprint[:12]}", self.root):
            try:
                found = os.lstat(file)
                if not stat.S_ISREG(found.st_mode):
                    raise self._broken(fingerprint, f"{MANIFEST} is not a regular file")
                version = found.st_mtime_ns, found.st_ctime_ns, found.st_size
                known = self._manifests.get(fingerprint)
                if known is not None and known[0] == version:
                    return known[1]
                self._manifests[fingerprint] = (version, read_manifest(entry))
            except (FileNotFoundError, NotADirectoryError) as error:
                if not os.path.lexists(entry):
                    return None
                if os.path.lexists(file):  # published since the first check
                    return self.find(fingerprint)
                raise self._broken(fingerprint, f"{MANIFEST} is missing") from error
            except ValueError as error:
                raise self._broken(fingerprint, f"{MANIFEST} {error}") from error
        return self._manifests[fingerprint][1]

    def _is_whole(self, fingerprint: str) -> bool:
        """Return whether there is an intact entry."""
        try:
            return self.find(fingerprint) is not None
        except BrokenEntry:
            return False

    def _set_aside(self, entry: Path) -> None:
        """Atomically move an entry away, then remove it; the stage must be claimed."""
        if os.path.lexists(entry):
            with self._draft(f"{entry.name}.old") as folder:
                os.rename(entry, folder / "entry")

    def _broken(self, fingerprint: str, fault: str, title: str | None = None) -> BrokenEntry:
        return BrokenEntry(
            f"the stored stage {title or fingerprint[:12]} is broken, {fault}: "
            f"delete {self._entry(fingerprint)} and run the same command again"
        )
