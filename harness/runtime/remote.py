"""The outputs of stages in a bucket (`HARNESS_STORE=s3://bucket/prefix`), which machines share.

    <url>/stages/ab/ab12....json        which attempt is the stage's output, and its manifest
    <url>/attempts/ab12.../<uuid>/...   the files of one attempt to store it
    <url>/leases/ab12....json           who computes it now

The files of an output are uploaded first. Then one conditional request writes the object in
`stages/`, if there is none: that makes the attempt the stage's output, and of rivals one wins. What
a killed client leaves is an attempt that nothing points to. A machine's own store is the cache of
the bucket: an output is fetched when somebody opens it, and its files are held against the digests
of its manifest. Checkpoints of unfinished stages stay on the file system.

Keys come from where AWS's own tools have them (`AWS_ACCESS_KEY_ID`, `~/.aws`, the machine's role),
another server's address from `AWS_ENDPOINT_URL`.
"""

from __future__ import annotations

import hashlib
import json
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cached_property
from pathlib import Path
from typing import Any

from harness.errors import UserError
from harness.foreign import in_a_line
from harness.runtime.files import BrokenEntry, StoreError
from harness.runtime.manifest import MANIFEST, Manifest, read_manifest

URL = "url"
"""The file in a store's folder that says what bucket it is the cache of."""

SCHEME = "s3://"

_FRESH_S = 1.0
"""Seconds for which it is not asked again whether one object is there."""


def url_of(root: Path) -> str | None:
    """Return the URL of the bucket that a store's folder is the cache of, if it is one."""
    with suppress(OSError, UnicodeDecodeError):
        return (root / URL).read_text(encoding="utf-8").strip()
    return None


class Remote:
    """The outputs in a bucket."""

    def __init__(self, url: str) -> None:
        if not url.startswith(SCHEME) or not url.removeprefix(SCHEME).strip("/"):
            raise UserError(
                f"HARNESS_STORE is {in_a_line(url, 80)}: give a folder, or a bucket with a prefix "
                "as s3://bucket/prefix"
            )
        self.url = url.rstrip("/")
        self._prefix = self.url.removeprefix(SCHEME)
        self._there: dict[str, float] | None = None
        self._asked: dict[str, float] = {}
        self._leases: dict[str, ObjectPost] = {}

    @cached_property
    def files(self) -> Any:
        """The bucket as a file system.

        Raises:
            UserError: The extra is not installed.
        """
        try:
            import s3fs
        except ImportError as error:
            raise UserError(
                f"HARNESS_STORE is {self.url} and the extra s3 is not installed: "
                "pip install 'eva-harness[s3]', or name a folder"
            ) from error
        return s3fs.S3FileSystem(use_listings_cache=False, skip_instance_cache=True)

    def has(self, fingerprint: str) -> bool:
        """Return whether there is an output of a stage.

        The first question lists all there are; later, what was not there is asked for again.
        """
        if self._there is None:
            self._there = dict.fromkeys(self.fingerprints(), 0.0)
            self._asked.clear()
            self._listed = time.monotonic()
        if fingerprint in self._there:
            return True
        now = time.monotonic()
        if now - self._asked.get(fingerprint, self._listed) < _FRESH_S:
            return False
        self._asked[fingerprint] = now
        with self._reached():
            if not self.files.exists(self._pointer(fingerprint)):
                return False
        self._there[fingerprint] = now
        return True

    def look_again(self, fingerprint: str) -> None:
        """Ask the bucket itself when `has` is next asked of a stage that was not there."""
        self._asked[fingerprint] = -_FRESH_S

    def fingerprints(self) -> list[str]:
        """Return the fingerprints of all outputs, sorted."""
        with self._reached():
            found = self.files.find(f"{self._prefix}/stages", refresh=True)
        return sorted(key.rpartition("/")[2].removesuffix(".json") for key in found)

    def fetch_manifest(self, fingerprint: str, folder: Path) -> Manifest:
        """Write a stage's manifest to a folder that has its fingerprint as its name; return it.

        Raises:
            BrokenEntry: It is not as it must be.
        """
        text = self._read(fingerprint)["manifest"]
        folder.mkdir(parents=True, exist_ok=True)
        (folder / MANIFEST).write_bytes(text.encode("utf-8"))
        try:
            return read_manifest(folder)
        except ValueError as error:
            raise self.broken(fingerprint, f"its manifest {error}") from error

    def fetch(self, fingerprint: str, folder: Path) -> None:
        """Write a stage's output, with its manifest, to a folder named by its fingerprint.

        Raises:
            BrokenEntry: A file is not what was written; its digest is checked as it arrives.
        """
        manifest = self.fetch_manifest(fingerprint, folder)
        attempt = self._attempt(fingerprint, self._read(fingerprint)["attempt"])
        names = list(manifest["files"])
        for parent in {(folder / name).parent for name in names}:
            parent.mkdir(parents=True, exist_ok=True)
        with self._reached():
            try:
                for name in names:
                    self.files.get_file(f"{attempt}/{name}", str(folder / name))
            except FileNotFoundError as error:
                raise self.broken(fingerprint, "a file is missing") from error

    def store(self, fingerprint: str, folder: Path) -> bool:
        """Upload an output with its manifest; return whether it became the stage's.

        Where it did not, another one was first, and what was uploaded is removed.
        """
        name = uuid.uuid4().hex
        attempt = self._attempt(fingerprint, name)
        files = [path for path in sorted(folder.rglob("*")) if path.is_file()]
        with self._reached():
            for path in files:
                relative = path.relative_to(folder).as_posix()
                if relative != MANIFEST:
                    self.files.put_file(str(path), f"{attempt}/{relative}")
            pointer = {"attempt": name, "manifest": (folder / MANIFEST).read_text("utf-8")}
            try:
                self._create(self._pointer(fingerprint), json.dumps(pointer).encode("utf-8"))
            except FileExistsError:
                self._remove(attempt)
                self.look_again(fingerprint)
                return False
        if self._there is not None:
            self._there[fingerprint] = time.monotonic()
        return True

    def fault(self, fingerprint: str) -> str | None:
        """Read all files of a stage's output; return what is wrong with them, None if nothing."""
        found = self._read(fingerprint)
        files = json.loads(found["manifest"])["files"]
        attempt = self._attempt(fingerprint, found["attempt"])
        with self._reached():
            for name, written in files.items():
                try:
                    with self.files.open(f"{attempt}/{name}", "rb") as file:
                        digest = hashlib.file_digest(file, "sha256").hexdigest()
                except FileNotFoundError:
                    return f"{in_a_line(name, 80)} is missing"
                if digest != written["sha256"]:
                    return f"{in_a_line(name, 80)} has other content than was written"
        return None

    def remove(self, fingerprint: str) -> None:
        """Remove a stage's output; the object that makes it one goes first."""
        with self._reached():
            self._remove(self._pointer(fingerprint))
            self._remove(f"{self._prefix}/attempts/{fingerprint}")
        (self._there or {}).pop(fingerprint, None)

    def leftovers(self) -> dict[str, list[str]]:
        """Return the attempts that are no stage's output, by fingerprint."""
        with self._reached():
            found = self.files.find(f"{self._prefix}/attempts", refresh=True)
        attempts: dict[str, set[str]] = {}
        for key in found:
            fingerprint, name, _ = key.removeprefix(f"{self._prefix}/attempts/").split("/", 2)
            attempts.setdefault(fingerprint, set()).add(name)
        left: dict[str, list[str]] = {}
        for fingerprint, names in attempts.items():
            whole = self._read(fingerprint)["attempt"] if self.has(fingerprint) else None
            others = sorted(self._attempt(fingerprint, name) for name in names - {whole})
            if others:
                left[fingerprint] = others
        return left

    def remove_leftovers(self, attempts: list[str]) -> None:
        """Remove attempts that `leftovers` returned."""
        with self._reached():
            for attempt in attempts:
                self._remove(attempt)

    def lease(self, fingerprint: str) -> ObjectPost:
        """Return where the lease of a stage is written."""
        key = f"{self._prefix}/leases/{fingerprint}.json"
        return self._leases.setdefault(fingerprint, ObjectPost(self, key))

    def _read(self, fingerprint: str) -> dict[str, str]:
        with self._reached():
            try:
                found = json.loads(self.files.cat_file(self._pointer(fingerprint)))
            except FileNotFoundError:
                raise StoreError(
                    f"stage {fingerprint[:12]} is not in the store {self.url} any more: run it "
                    "again"
                ) from None
            except ValueError as error:
                raise self.broken(fingerprint, "its object is not JSON") from error
        attempt = found.get("attempt") if isinstance(found, dict) else None
        whole = isinstance(attempt, str) and attempt.isalnum()
        if not whole or not isinstance(found.get("manifest"), str):
            raise self.broken(fingerprint, "its object has another form")
        return {"attempt": str(attempt), "manifest": found["manifest"]}

    def _create(self, key: str, content: bytes) -> None:
        """Write an object where there is none.

        Raises:
            FileExistsError: There is one.
        """
        self.files.pipe_file(key, content, mode="create")

    def _remove(self, key: str) -> None:
        with suppress(FileNotFoundError):
            self.files.rm(key, recursive=True)

    def _pointer(self, fingerprint: str) -> str:
        return f"{self._prefix}/stages/{fingerprint[:2]}/{fingerprint}.json"

    def _attempt(self, fingerprint: str, name: str) -> str:
        return f"{self._prefix}/attempts/{fingerprint}/{name}"

    def broken(self, fingerprint: str, fault: str) -> BrokenEntry:
        """Return the error for an output that is not what was written."""
        return BrokenEntry(
            f"the stage {fingerprint[:12]} in {self.url} is broken, {fault}: delete "
            f"{SCHEME}{self._pointer(fingerprint)} and run the same command again"
        )

    @contextmanager
    def _reached(self) -> Iterator[None]:
        """Turn what goes wrong with the bucket into a sentence.

        Raises:
            StoreError: It cannot be read or written.
        """
        try:
            yield
        except FileExistsError:
            raise
        except Exception as error:
            why = _why(error)
            if why is None:
                raise
            raise StoreError(
                f"the store {self.url} cannot be used, {why}: nothing stored is lost, run the same "
                "command again when it can"
            ) from error


class ObjectPost:
    """A lease in a bucket."""

    pause_s = 1.0

    def __init__(self, remote: Remote, key: str) -> None:
        self._remote = remote
        self._key = key
        self._read_at = -_FRESH_S
        self._content: bytes | None = None

    @property
    def key(self) -> str:
        """Its URL."""
        return f"{SCHEME}{self._key}"

    def create(self, content: bytes) -> bool:
        """Write it where there is none; return whether that was so."""
        self._forget()
        with self._remote._reached():
            try:
                self._remote._create(self._key, content)
            except FileExistsError:
                return False
        return True

    def read(self) -> bytes | None:
        """Return its content, None where there is none; asked for once a second at most."""
        if time.monotonic() - self._read_at >= _FRESH_S:
            with self._remote._reached():
                try:
                    self._content = self._remote.files.cat_file(self._key)
                except FileNotFoundError:
                    self._content = None
            self._read_at = time.monotonic()
        return self._content

    def replace(self, seen: bytes, content: bytes) -> bool:
        """Write it in the place of what was seen; return whether it was still there."""
        self._forget()
        files = self._remote.files
        with self._remote._reached():
            try:
                tag = files.info(self._key, refresh=True)["ETag"]  # asked for before the content
                if files.cat_file(self._key) != seen:
                    return False
                files.pipe_file(self._key, content, IfMatch=tag)
            except FileNotFoundError:
                return False
            except OSError as error:
                if "PreconditionFailed" in str(error) or error.errno == 22:  # EINVAL, s3fs's own
                    return False
                raise
        return True

    def remove(self) -> None:
        """Remove it."""
        self._forget()
        with self._remote._reached():
            self._remote._remove(self._key)

    def _forget(self) -> None:
        self._read_at = -_FRESH_S


def _why(error: Exception) -> str | None:
    """Return why a bucket could not be used; None where it is our own defect."""
    name = type(error).__name__
    if isinstance(error, (UserError, StoreError)):
        return None
    if "Credentials" in name or "Token" in name:
        return (
            "no credentials were found (set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or "
            "AWS_PROFILE)"
        )
    if isinstance(error, PermissionError):
        return "the credentials are refused"
    if isinstance(error, FileNotFoundError):
        return "there is no such bucket"
    module = type(error).__module__.partition(".")[0]
    if isinstance(error, OSError) or module in ("botocore", "aiobotocore", "aiohttp"):
        return f"it does not answer ({in_a_line(str(error) or name, 120)})"
    return None
