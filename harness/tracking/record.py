"""A record: what MLflow should hold for one run, row, table, trial or evaluation.

It is computed from the store alone. Cheap values are in the record itself; its digest covers them
and the digests of the stored files behind the rest (`basis`). These files are read only when they
must be written, so detecting that nothing has changed opens only the manifests.

MLflow needs a timestamp for every point, and the store keeps none (a curve is the same bytes in
every run). A point's time is therefore the run's start plus one second per step, whether it is
written live or afterwards. MLflow ignores points that it already has.

An experiment's page opens on a *first view*: MLflow stores a shared view as a tag and shows it at
the URL that names the tag's key. The format is that of MLflow 3.17's own pages.
"""

from __future__ import annotations

import base64
import json
import re
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, NamedTuple
from uuid import NAMESPACE_URL, uuid5

from harness.errors import HarnessError
from harness.registry.documents import as_yaml
from harness.registry.recipe import flattened
from harness.runtime import CurvePoint
from harness.runtime.stage import fingerprint_of

VERSION = 8
"""Version of the projection; bump it when the same store should look different in MLflow."""

ID = "harness.id"
"""Tag that identifies a record's run in MLflow."""

DIGEST = "harness.digest"
"""Tag with the digest of the last record that was written completely."""

MODEL = "harness.model"
"""Tag with the id of the logged model of a run's policy."""

COMPUTED_IN = "harness.computed_in"
"""Tag with the digest of the work folder that is computing a RUNNING run."""

NOTE_TAG = "mlflow.note.content"
"""MLflow's tag for a run's description, in Markdown."""

COMMIT_TAG = "mlflow.source.git.commit"

LONGEST_TAG = 4000
"""Maximum length of a tag in characters; longer values are truncated."""

Status = Literal["RUNNING", "FINISHED", "FAILED", "KILLED"]
"""RUNNING only while a command computes it; other unfinished runs are KILLED."""

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
    """A data set that a run was trained on; `locate` returns its verified Parquet file."""

    name: str
    sha256: str
    locate: Callable[[], Path]

    @property
    def digest(self) -> str:
        """The digest shown in MLflow, which allows 36 characters."""
        return self.sha256[:16]


class LoggedPolicy(NamedTuple):
    """A trained policy's metadata and location, without its weights."""

    name: str
    params: Mapping[str, str]
    tags: Mapping[str, str]


@dataclass(frozen=True)
class Record:
    """What MLflow should hold for one run, row, table, trial or evaluation.

    Attributes:
        note: The experiment's description.
        view: The experiment's other tags, such as its first view.
        identity: The value of the tag `ID`.
        start_ms: Milliseconds since 1970, as is `end_ms`, which is None while running.
        scores: Metrics already at hand, at step 0.
        metrics: Reads the remaining metrics: scores and curves.
        files: Makes the artifacts; these and the policy are written once the run has ended.
        describe: Makes the description, in place of the one in `tags`.
        basis: What determines the three above; covered by the digest in their stead.
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
    view: Mapping[str, str] = field(default_factory=dict)
    scores: Mapping[str, float] = field(default_factory=dict)
    datasets: tuple[Dataset, ...] = ()
    policy: LoggedPolicy | None = None
    basis: object = None
    metrics: Callable[[], Iterable[MetricValue]] = field(default=tuple, compare=False)
    files: Callable[[], Files] = field(default=dict, compare=False)
    describe: Callable[[], str] | None = field(default=None, compare=False)

    def __post_init__(self) -> None:
        # Some of MLflow's database backends cannot store NUL.
        for name in ("params", "tags"):
            held = {key: text.replace("\0", "\ufffd") for key, text in getattr(self, name).items()}
            object.__setattr__(self, name, held)
        object.__setattr__(self, "note", self.note.replace("\0", "\ufffd"))

    @cached_property
    def digest(self) -> str:
        """Digest of the whole record; records with equal digests look the same in MLflow."""
        content = {
            "version": VERSION,
            "name": self.name,
            "status": self.status,
            "times": [self.start_ms, self.end_ms],
            "params": dict(self.params),
            "tags": dict(self.tags),
            "scores": {name: repr(value) for name, value in self.scores.items()},
            "datasets": [[d.name, d.sha256] for d in self.datasets],
            "note": self.note,
            "view": dict(self.view),
            "policy": [self.policy.name, dict(self.policy.params)] if self.policy else None,
            "basis": self.basis,
        }
        return fingerprint_of(content)

    def all_metrics(self) -> Iterator[MetricValue]:
        yield from (MetricValue(name, value, self.start_ms) for name, value in self.scores.items())
        yield from self.metrics()


def metric_name(name: str) -> str:
    """Replace the characters that MLflow rejects in metric names with `_`."""
    return _UNUSABLE.sub("_", name)


def rounded(value: float) -> float:
    """Round to the four significant digits that MLflow's pages have room for."""
    return float(f"{value:.4g}") + 0.0


def curve_metrics(prefix: str, start_ms: int, point: CurvePoint) -> Iterator[MetricValue]:
    """Yield one point of a run's curves, timed at the run's start plus one second per step."""
    for name, value in point.metrics.items():
        yield MetricValue(prefix + name, value, start_ms + 1000 * point.step, point.step)


def milliseconds(iso: str) -> int:
    return round(datetime.fromisoformat(iso).timestamp() * 1000)


def flatten(settings: Mapping[str, object], name: str) -> dict[str, str]:
    """Flatten nested settings to dotted names and string values, as MLflow's parameters need."""
    return {f"{name}.{path}": _text(value) for path, value in flattened(settings).items()}


def recipe_file(recipes: Mapping[str, Any]) -> dict[str, bytes]:
    return {"recipe.yaml": as_yaml(dict(recipes)).encode()}


def join(values: Iterable[object]) -> str:
    """Join the distinct values in order; `none` if there are none."""
    return ", ".join(dict.fromkeys(map(_text, values))) or "none"


def _text(value: object) -> str:
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list | tuple):
        return ", ".join(_text(item) for item in value)
    return str(value)


# --- First views ---

VIEW_TAG = "mlflow.sharedViewState.harness"
"""The tag that holds an experiment's first view."""

KIND_TAG = {"mlflow.experimentKind": "custom_model_development"}
"""Tells MLflow's pages that an experiment has training runs, not LLM traces."""

_MOST_RUNS = 40
_WIDTHS = {"attributes": 170, "metrics": 100, "params": 190, "tags": 140}


class Chart(NamedTuple):
    """Metrics of every run: a bar chart, or with parameters a parallel coordinates plot."""

    title: str
    metrics: Sequence[str]
    params: Sequence[str] | None = None


def first_view(
    title: str,
    columns: Sequence[str],
    charts: Sequence[Chart],
    *,
    order_by: str,
    ascending: bool = True,
    folded: Sequence[str] = (),
) -> dict[str, str]:
    """Return the tags of an experiment whose page opens on the given columns and charts.

    `columns` and `order_by` are `metrics.NAME`, `params.NAME` or `tags.NAME`. The charts appear
    under the title; `folded` lists the metric groups (the part before the last `/`) whose charts
    are collapsed.
    """
    state = {
        "searchFilter": "",
        "orderByKey": _column(order_by),
        "orderByAsc": ascending,
        "startTime": "ALL",
        "lifecycleFilter": "Active",
        "modelVersionFilter": "All Runs",
        "datasetsFilter": [],
        "selectedColumns": [_column(column) for column in columns],
        "columnOrder": [_column(column) for column in columns],
        "columnWidths": {_column(c): _WIDTHS[c.partition(".")[0]] for c in columns},
        "runsHiddenMode": "SHOW_ALL",
        "compareRunCharts": [
            _chart(chart, _id(title), number) for number, chart in enumerate(charts)
        ],
        "compareRunSections": [
            {
                "uuid": _id(name),
                "name": name,
                "display": name == title,
                "isReordered": True,
                "deleted": False,
                "isGenerated": name != title,
                "order": order,
                # One per line, so that ours and the paper's stay legible on a small screen.
                "columns": 1 if name == title else 3,
            }
            for order, name in enumerate((title, *folded))
        ],
        "isAccordionReordered": True,
        "autoRefreshEnabled": True,
        "hideEmptyCharts": True,
        "viewMaximized": False,
        "runListHidden": False,
    }
    # Deflated, because tags are limited in length.
    packed = zlib.compress(json.dumps(state, sort_keys=True).encode(), 9)
    return {**KIND_TAG, VIEW_TAG: f"deflate;{base64.b64encode(packed).decode('ascii')}"}


def _column(name: str) -> str:
    """Return MLflow's name of a column: ``metrics.`ours/ah_wr` ``."""
    kind, _, rest = name.partition(".")
    return f"{kind}.`{rest}`"


def _id(name: str) -> str:
    return str(uuid5(NAMESPACE_URL, f"harness/{name}"))


def _chart(chart: Chart, section: str, number: int) -> dict[str, Any]:
    shown: dict[str, Any] = {
        "type": "BAR",
        "metricKey": chart.metrics[0],
        "selectedMetricKeys": list(chart.metrics),
    }
    if chart.params is not None:
        shown = {
            "type": "PARALLEL",
            "selectedParams": list(chart.params),
            "selectedMetrics": list(chart.metrics),
            "showAllRuns": True,
        }
    return {
        "uuid": _id(f"chart {number} {chart.title}"),
        "runsCountToCompare": _MOST_RUNS,
        "metricSectionId": section,
        "deleted": False,
        "isGenerated": False,
        "displayName": chart.title,
        **shown,
    }
