"""A record: what MLflow should hold of one run or row, computed from the store and nothing else.

Everything cheap is in the record itself, and its digest is taken over that and the digests of the
stored files behind the rest. Scores and curves are read only when they have to be written, so
that finding out that nothing has changed opens no file but the manifests.

MLflow keeps a time with every point. The store has none (a curve is the same bytes in every run),
so a point's time is the run's start plus one second for each step: the same whoever writes it,
and whether it is written while the stage runs or afterwards. MLflow drops a point that it has.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Literal

from harness.errors import HarnessError
from harness.registry.documents import as_yaml
from harness.registry.recipe import flattened
from harness.runtime import CurvePoint, Json, canonical_json
from harness.runtime.stage import digest

VERSION = 6
"""Version of the projection; bumped when the same store should look different in MLflow."""

ID = "harness.id"
"""Tag that says which run or row this is; an MLflow run is found again by it."""

DIGEST = "harness.digest"
"""Tag with the digest of the record that was written last, and completely."""

MODEL = "harness.model"
"""Tag with the id of the logged model of a run's policy."""

COMPUTED_IN = "harness.computed_in"
"""Tag with the digest of the work folder in which a RUNNING run is computed."""

NOTE_TAG = "mlflow.note.content"
"""MLflow's tag for what a run is, in Markdown."""

LONGEST_TAG = 4000
"""Most characters of a tag; what is longer is cut off."""

Status = Literal["RUNNING", "FINISHED", "FAILED", "KILLED"]
"""RUNNING is what a command computes now; what is unfinished otherwise was KILLED."""

_UNUSABLE = re.compile(r"[^0-9A-Za-z_\-. :/]")


class TrackingError(HarnessError):
    """MLflow cannot be reached, or refuses what is written."""


@dataclass(frozen=True)
class Dataset:
    """A data set a run was trained on: its name in the run and the digest of its file.

    `locate` returns the Parquet file, checked; it is read for the schema and the number of rows.
    """

    name: str
    sha256: str
    locate: Callable[[], Path] = field(repr=False, compare=False)
    context: str = "training"

    @property
    def digest(self) -> str:
        """The digest as MLflow shows it; it allows 36 characters."""
        return self.sha256[:16]


@dataclass(frozen=True)
class Curves:
    """The curves of finished training stages: what identifies them, and how to read them."""

    digest: str
    read: Callable[[], Sequence[CurvePoint]]


Columns = Mapping[str, Sequence[object]]
"""A table that MLflow shows as such: its columns by name."""


@dataclass(frozen=True)
class Files:
    """Artifacts of a run: what identifies them, and how to make them, by path."""

    digest: str
    make: Callable[[], Mapping[str, bytes | Columns]] = field(repr=False)


@dataclass(frozen=True)
class Model:
    """A trained policy: metadata and where it lies, without a copy of its weights."""

    name: str
    location: str
    params: Mapping[str, str]
    tags: Mapping[str, str]


@dataclass(frozen=True)
class Record:
    """What MLflow should hold of one run or row.

    `note` is what its experiment is, and `view` has more tags of it: what its page opens on.
    `identity` is the value of the tag `ID`; times are milliseconds since 1970, the end None while
    running. `scores_digest` identifies what `read_scores` reads, metrics without steps; `costs` are
    among them. `by_step` has metrics by step, `curves` those of finished training stages, by the
    prefix of their metrics. Artifacts and the model are written once the run has ended. `describe`
    makes the description.
    """

    experiment: str
    note: str
    identity: str
    name: str
    status: Status
    start_ms: int
    end_ms: int | None
    params: Mapping[str, str]
    tags: Mapping[str, str]
    scores_digest: str = ""
    read_scores: Callable[[], Mapping[str, float]] = field(default=dict, repr=False)
    datasets: tuple[Dataset, ...] = ()
    curves: Mapping[str, Curves] = field(default_factory=dict)
    view: Mapping[str, str] = field(default_factory=dict)
    files: Files | None = None
    model: Model | None = None
    describe: Callable[[], str] | None = field(default=None, repr=False, compare=False)
    costs: Mapping[str, float] = field(default_factory=dict)
    by_step: Mapping[str, Mapping[int, float]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        # Not every database that MLflow may use can hold this one character.
        for name in ("params", "tags"):
            held = {key: text.replace("\0", "\ufffd") for key, text in getattr(self, name).items()}
            object.__setattr__(self, name, held)
        object.__setattr__(self, "note", self.note.replace("\0", "\ufffd"))

    @cached_property
    def digest(self) -> str:
        """Digest of all that the record says; equal digests look the same in MLflow."""
        content: dict[str, Json] = {
            "version": VERSION,
            "name": self.name,
            "status": self.status,
            "times": [self.start_ms, self.end_ms],
            "params": dict(self.params),
            "tags": dict(self.tags),
            "scores": self.scores_digest,
            "by_step": {
                n: {str(k): repr(v) for k, v in at.items()} for n, at in self.by_step.items()
            },
            "datasets": [[d.name, d.sha256, d.context] for d in self.datasets],
            "curves": {prefix: curves.digest for prefix, curves in self.curves.items()},
            "note": self.note,
            "view": dict(self.view),
            "described": self.describe is not None,
            "files": self.files.digest if self.files else None,
            "model": [self.model.name, dict(self.model.params)] if self.model else None,
        }
        return sha256(content)


def sha256(content: object) -> str:
    return digest(canonical_json(content))


def metric_name(name: str) -> str:
    """Return a name with the characters that MLflow refuses in metrics replaced by `_`."""
    return _UNUSABLE.sub("_", name)


def curve_prefix(iteration: int) -> str:
    """Return what the metrics of an iteration's training, counted from 1, begin with.

    Each iteration has curves of its own, so that those of different rows lie on one another from
    their first step, however long the iterations before were.
    """
    return f"iter{iteration}/"


ONLINE_PREFIX = "online/"
"""What the metrics of an online run begin with; its segments are one curve."""


def shown(value: float) -> float:
    """Return a number with the four digits that a page of MLflow's has room for."""
    return float(f"{value:.4g}") + 0.0


def point_ms(start_ms: int, step: int) -> int:
    """Return the time of a point: the run's start plus one second for each step."""
    return start_ms + 1000 * step


def milliseconds(iso: str) -> int:
    return round(datetime.fromisoformat(iso).timestamp() * 1000)


def flatten(settings: Mapping[str, object], name: str) -> dict[str, str]:
    """Return nested settings as parameters with dotted names.

    Lists become one text and null becomes `none`, because MLflow's parameters are texts.
    """
    return {f"{name}.{path}": _text(value) for path, value in flattened(settings).items()}


def recipe_file(recipes: Mapping[str, Json]) -> Files:
    text = _yaml_of(json.dumps(dict(recipes)))
    return Files(sha256(text), lambda: {"recipe.yaml": text.encode()})


@lru_cache(maxsize=256)
def _yaml_of(recipes: str) -> str:
    """Return some JSON as YAML: all seeds of a run have one recipe, and YAML is slow."""
    return as_yaml(json.loads(recipes))


def join(values: Iterable[object]) -> str:
    """Return the distinct values as one text in their order; `none` where there is none."""
    return ", ".join(dict.fromkeys(_text(value) for value in values)) or "none"


def _text(value: object) -> str:
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list | tuple):
        return ", ".join(_text(item) for item in value)
    return str(value)
