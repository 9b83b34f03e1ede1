"""A record: what MLflow should hold of one run or row, computed from the store and nothing else.

Everything cheap is in the record itself, and its digest is taken over that and the digests of the
stored files behind the rest. Scores and curves are read only when they have to be written, so
that finding out that nothing has changed opens no file but the manifests.

MLflow keeps a time with every point. The store has none (a curve is the same bytes in every run),
so a point's time is the run's start plus one second for each step: the same whoever writes it,
and whether it is written while the stage runs or afterwards.

What MLflow's page of an experiment opens on (columns, order, charts) is set beforehand: MLflow
keeps a view that somebody shares as an experiment's tag, and shows it at the address that names the
tag's key (`?viewStateShareKey=`). A `View` makes such a tag, so that nobody has to choose forty
columns before a table can be read. Its form is that of MLflow 3.17's own pages; another MLflow
leaves out what it does not understand, and shows its usual page.
"""

from __future__ import annotations

import base64
import json
import math
import re
import sys
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any, Literal
from uuid import NAMESPACE_URL, uuid5

from harness.registry.documents import as_yaml
from harness.registry.recipe import flattened
from harness.runtime import Json, Point, canonical_json
from harness.runtime.stage import digest

VERSION = 3
"""Version of the projection; bumped when the same store should look different in MLflow."""

ID = "harness.id"
"""Tag that says which run or row this is; an MLflow run is found again by it."""

DIGEST = "harness.digest"
"""Tag with the digest of the record that was written last, and completely."""

FOLDER = "harness.folder"
"""Tag with the number of the work folder that wrote a run."""

SEEN = "harness.seen"
"""Tag with the time, in seconds since 1970, at which what computes a run last gave a sign of it."""

CURVE = "harness.curve."
"""Tags with the digest of each curve that was written completely."""

FILES = "harness.files"
"""Tag with the digest of the artifacts that were written completely."""

MODEL = "harness.model"
"""Tag with the id of the logged model of a run's policy."""

NOTE_TAG = "mlflow.note.content"
"""MLflow's tag for what a run is, in Markdown."""

SYSTEM = "system/"
"""What MLflow's system metrics begin with; they are live only, and no record says them."""

LONGEST_TAG = 4000
"""Most characters of a tag; what is longer is cut off."""

Status = Literal["RUNNING", "FINISHED", "FAILED", "KILLED"]
"""RUNNING is what something computes now; what is unfinished and is not computed was KILLED."""

_UNUSABLE = re.compile(r"[^0-9A-Za-z_\-. :/]")
_LARGEST = sys.float_info.max


@dataclass(frozen=True)
class Dataset:
    """A data set a run was trained on: its name in the run and the digest of its file.

    `locate` returns the Parquet file, checked; it is read for the schema and the number of rows.
    """

    name: str
    sha256: str
    context: str = "training"
    locate: Callable[[], Path] | None = field(default=None, repr=False, compare=False)

    @property
    def digest(self) -> str:
        """The digest as MLflow shows it; it allows 36 characters."""
        return self.sha256[:16]


@dataclass(frozen=True)
class Curves:
    """The curves of finished training stages: what identifies them, and how to read them."""

    digest: str
    read: Callable[[], Sequence[Point]]


@dataclass(frozen=True)
class Files:
    """Artifacts of a run: what identifies them, and how to make them, by path.

    Those named in `tables` are JSON tables, which MLflow shows as such.
    """

    digest: str
    make: Callable[[], Mapping[str, bytes]] = field(repr=False)
    tables: tuple[str, ...] = ()


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

    `note` is what its experiment is, for the experiment's page, and `view` has more tags of it:
    what its page opens on. `identity` is the value of the tag `ID`; times are milliseconds since
    1970, the end None while running. `scores_digest` identifies what `read_scores` reads, metrics
    without steps. `costs` are among the scores as well.

    `curves` has the curves of finished training stages, by the prefix of their metrics, `open`
    the prefixes of those that are not finished; the first stages of an online run may be, and
    then its prefix is in both. Artifacts are written once the run has ended, the model once it is
    there. `describe` makes the description in Markdown; `{experiment:NAME}` in it becomes an
    experiment's id.

    Of a `reproducible` record all but times, costs and versions follows from the identity, so
    that what another work folder has written of it stands.
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
    scores_digest: str
    read_scores: Callable[[], Mapping[str, float]] = field(repr=False)
    datasets: tuple[Dataset, ...] = ()
    curves: Mapping[str, Curves] = field(default_factory=dict)
    open: tuple[str, ...] = ()
    view: Mapping[str, str] = field(default_factory=dict)
    files: Files | None = None
    model: Model | None = None
    describe: Callable[[], str] | None = field(default=None, repr=False, compare=False)
    costs: Mapping[str, float] = field(default_factory=dict)
    reproducible: bool = False

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
            "datasets": [[d.name, d.sha256, d.context] for d in self.datasets],
            "curves": {prefix: curves.digest for prefix, curves in self.curves.items()},
            "open": list(self.open),
            "note": self.note,
            "view": dict(self.view),
            "described": self.describe is not None,
            "files": self.files.digest if self.files else None,
            "model": [self.model.name, dict(self.model.params)] if self.model else None,
        }
        return sha256(content)


def sha256(content: object) -> str:
    """Return the sha256 of JSON data as 64 hexadecimal digits."""
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


def point_ms(start_ms: int, step: int) -> int:
    """Return the time of a point: the run's start plus one second for each step."""
    return start_ms + 1000 * step


def readable(value: float) -> float:
    """Return a value as MLflow reads it back: no infinities, and no negative zero."""
    return math.copysign(_LARGEST, value) if math.isinf(value) else value + 0.0


def milliseconds(iso: str) -> int:
    """Return an ISO 8601 time as milliseconds since 1970."""
    return round(datetime.fromisoformat(iso).timestamp() * 1000)


def flatten(settings: Mapping[str, object], name: str) -> dict[str, str]:
    """Return nested settings as parameters with dotted names.

    Lists become one text and null becomes `none`, because MLflow's parameters are texts.
    """
    return {f"{name}.{path}": _text(value) for path, value in flattened(settings).items()}


def recipe_file(recipes: Mapping[str, Json]) -> Files:
    """Return recipes, by run id, as the artifact `recipe.yaml`."""
    text = _yaml_of(json.dumps(dict(recipes)))
    return Files(sha256(text), lambda: {"recipe.yaml": text.encode()})


@lru_cache(maxsize=256)
def _yaml_of(recipes: str) -> str:
    """Return some JSON as YAML: all seeds of a run have one recipe, and YAML is slow."""
    return as_yaml(json.loads(recipes))


def both(first: Files, second: Files | None) -> Files:
    """Return the artifacts of both."""
    if second is None:
        return first
    return Files(
        sha256([first.digest, second.digest]),
        lambda: {**first.make(), **second.make()},
        (*first.tables, *second.tables),
    )


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


SHARED = "mlflow.sharedViewState."
"""What the tag of a shared view begins with; its key follows."""

FIRST_VIEW = "harness"
"""The key of the views made here."""

KIND_TAG = {"mlflow.experimentKind": "custom_model_development"}
"""Tells MLflow's pages that an experiment has training runs, and not traces of conversations."""

TRAINING = "workflowType=machine_learning"
"""What every address ends in, so that MLflow's pages are those of trainings and not of
conversations."""

_MOST_RUNS = 40
_WIDTHS = {"attributes": 170, "metrics": 100, "params": 190, "tags": 120}


@dataclass(frozen=True)
class Bars:
    """A bar chart of some metrics of every run, side by side."""

    title: str
    metrics: Sequence[str]


@dataclass(frozen=True)
class Parallel:
    """Parallel coordinates over parameters and metrics."""

    title: str
    params: Sequence[str]
    metrics: Sequence[str]


@dataclass(frozen=True)
class View:
    """A first view.

    Attributes:
        columns: What the list shows of each run, as `metrics.NAME`, `params.NAME`, `tags.NAME` or
            `attributes.NAME`, in order.
        order_by: What the runs are ordered by.
        charts: The charts that are open at first.
        title: Heading of these charts.
        folded: Groups of metrics (what stands before their last `/`) whose charts are folded away.
        ascending: Whether the least comes first.
    """

    columns: Sequence[str]
    order_by: str
    charts: Sequence[Bars | Parallel]
    title: str
    folded: Sequence[str] = ()
    ascending: bool = True

    @property
    def tags(self) -> dict[str, str]:
        """The experiment's tags that make the view."""
        return {**KIND_TAG, f"{SHARED}{FIRST_VIEW}": self._value()}

    def _value(self) -> str:
        """Return the state as MLflow keeps one: JSON, deflated, because tags are short."""
        packed = zlib.compress(json.dumps(self._state(), sort_keys=True).encode(), 9)
        return f"deflate;{base64.b64encode(packed).decode('ascii')}"

    def _state(self) -> dict[str, Any]:
        sections = [self.title, *self.folded]
        charts = [
            _chart(chart, _id(self.title), number) for number, chart in enumerate(self.charts)
        ]
        return {
            "searchFilter": "",
            "orderByKey": _column(self.order_by),
            "orderByAsc": self.ascending,
            "startTime": "ALL",
            "lifecycleFilter": "Active",
            "modelVersionFilter": "All Runs",
            "datasetsFilter": [],
            "selectedColumns": [_column(column) for column in self.columns],
            "columnOrder": [_column(column) for column in self.columns],
            "columnWidths": {_column(c): _WIDTHS[c.partition(".")[0]] for c in self.columns},
            "runsHiddenMode": "SHOW_ALL",
            "compareRunCharts": charts,
            "compareRunSections": [
                _section(name, shown=name == self.title, order=order)
                for order, name in enumerate(sections)
            ],
            "isAccordionReordered": True,
            "autoRefreshEnabled": True,
            "hideEmptyCharts": True,
            "viewMaximized": False,
            "runListHidden": False,
        }


def address(experiment_id: str) -> str:
    """Return where a server shows an experiment's first view, after its own address."""
    return f"/#/experiments/{experiment_id}/runs?viewStateShareKey={FIRST_VIEW}&{TRAINING}"


def _column(name: str) -> str:
    """Return a column as MLflow names it: ``metrics.`ours/ah_wr` ``."""
    kind, _, rest = name.partition(".")
    return f"{kind}.`{rest}`"


def _id(name: str) -> str:
    """Return the number of a chart or section, the same whenever the view is made."""
    return str(uuid5(NAMESPACE_URL, f"harness/{name}"))


def _section(name: str, *, shown: bool, order: int) -> dict[str, Any]:
    return {
        "uuid": _id(name),
        "name": name,
        "display": shown,
        "isReordered": True,
        "deleted": False,
        "isGenerated": not shown,
        "order": order,
        # One chart a line, so that ours and the paper's can be told apart on a small screen.
        "columns": 1 if shown else 3,
    }


def _chart(chart: Bars | Parallel, section: str, number: int) -> dict[str, Any]:
    common = {
        "uuid": _id(f"chart {number} {chart.title}"),
        "runsCountToCompare": _MOST_RUNS,
        "metricSectionId": section,
        "deleted": False,
        "isGenerated": False,
        "displayName": chart.title,
    }
    if isinstance(chart, Bars):
        return {
            **common,
            "type": "BAR",
            "metricKey": chart.metrics[0],
            "selectedMetricKeys": list(chart.metrics),
        }
    return {
        **common,
        "type": "PARALLEL",
        "selectedParams": list(chart.params),
        "selectedMetrics": list(chart.metrics),
        "showAllRuns": True,
    }


def groups(metrics: Iterable[str]) -> list[str]:
    """Return the groups of some metrics, in order."""
    return sorted({name.rpartition("/")[0] for name in metrics if "/" in name})
