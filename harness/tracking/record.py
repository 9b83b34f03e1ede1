"""A record: what MLflow should hold for one row, run, trial or evaluation.

Its digest covers cheap values and the digests of the stored files behind the rest (`basis`), which
are read only when they must be written. MLflow needs a timestamp for every point, and the store
keeps none: a point's time is the run's start plus one second per step.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from datetime import datetime
from functools import cached_property
from typing import Any, Literal, NamedTuple

from harness.errors import HarnessError
from harness.registry.documents import as_yaml
from harness.registry.recipe import flattened
from harness.runtime.stage import fingerprint_of
from harness.words import setting_text

VERSION = 13
"""Version of the projection; bump it when the same store should look different in MLflow."""

ID = "harness.id"
"""Tag that identifies a record's run in MLflow."""

DIGEST = "harness.digest"
"""Tag with the digest of the last record that was written completely."""

COMMIT_TAG = "mlflow.source.git.commit"

LONGEST_TAG = 4000
"""Maximum length of a tag in characters; longer values are truncated."""

Status = Literal["SCHEDULED", "FINISHED", "FAILED", "KILLED"]
"""A run that lacks stages is SCHEDULED, a row that lacks runs KILLED."""

Files = Mapping[str, "bytes | Mapping[str, Sequence[object]]"]
"""Artifacts of a run by path: contents, or columns that MLflow displays as a table."""

_UNUSABLE = re.compile(r"[^0-9A-Za-z_\-. :/]")


class TrackingError(HarnessError):
    """MLflow cannot be reached, or rejects a write."""


class MetricValue(NamedTuple):
    """One metric value; scores have step 0, and times are in milliseconds since 1970."""

    name: str
    value: float
    ms: int
    step: int = 0


class Dataset(NamedTuple):
    """A Parquet file of the store that a run was trained on."""

    name: str
    sha256: str
    path: str


@dataclass(frozen=True)
class Record:
    """What MLflow should hold for one row, run, trial or evaluation.

    Attributes:
        note: The experiment's description.
        identity: The value of the tag `ID`.
        parent: The identity of the record that MLflow shows it under.
        start_ms: Milliseconds since 1970, as is `end_ms`.
        scores: Metrics already at hand, at step 0.
        files: Makes the artifacts.
        basis: What determines `metrics` and `files`; covered by the digest in their stead.
    """

    experiment: str
    note: str
    identity: str
    name: str
    status: Status
    start_ms: int
    end_ms: int
    params: Mapping[str, str]
    tags: Mapping[str, str]
    parent: str | None = None
    scores: Mapping[str, float] = field(default_factory=dict)
    datasets: tuple[Dataset, ...] = ()
    basis: object = None
    metrics: Callable[[], Iterable[MetricValue]] = field(default=tuple, compare=False)
    files: Callable[[], Files] = field(default=dict, compare=False)

    def __post_init__(self) -> None:
        # Some of MLflow's database backends cannot store NUL.
        for name, longest in (("params", None), ("tags", LONGEST_TAG)):
            given = getattr(self, name).items()
            held = {key: text.replace("\0", "\ufffd")[:longest] for key, text in given}
            object.__setattr__(self, name, held)
        object.__setattr__(self, "note", self.note.replace("\0", "\ufffd"))

    @cached_property
    def digest(self) -> str:
        """Digest of the whole record; a run with this digest needs no writing."""
        content = {it.name: getattr(self, it.name) for it in fields(self) if it.compare}
        content["scores"] = {name: repr(value) for name, value in self.scores.items()}
        content["datasets"] = [[it.name, it.sha256] for it in self.datasets]  # wherever they lie
        return fingerprint_of({**content, "version": VERSION})

    def all_metrics(self) -> Iterator[MetricValue]:
        yield from (MetricValue(name, value, self.start_ms) for name, value in self.scores.items())
        yield from self.metrics()


def metric_name(name: str) -> str:
    """Replace the characters that MLflow rejects in metric names with `_`."""
    return _UNUSABLE.sub("_", name)


def rounded(value: float) -> float:
    """Round to the four significant digits that MLflow's pages have room for."""
    return float(f"{value:.4g}") + 0.0


def milliseconds(iso: str) -> int:
    return round(datetime.fromisoformat(iso).timestamp() * 1000)


def flatten(settings: Mapping[str, object], name: str) -> dict[str, str]:
    """Flatten nested settings to dotted names and string values, as MLflow's parameters need."""
    return {f"{name}.{path}": setting_text(value) for path, value in flattened(settings).items()}


def recipe_file(recipes: Mapping[str, Any]) -> dict[str, bytes]:
    return {"recipe.yaml": as_yaml(dict(recipes)).encode()}


def join(values: Iterable[object]) -> str:
    """Join the distinct values in order; `none` if there are none."""
    return ", ".join(dict.fromkeys(map(setting_text, values))) or "none"
