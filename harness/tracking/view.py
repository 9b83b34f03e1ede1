"""The first view: what MLflow's page of an experiment opens on.

MLflow keeps a view that somebody shares as an experiment's tag, and shows it at the address that
names the tag's key (`?viewStateShareKey=`). A `View` makes such a tag, so that nobody has to choose
forty columns before a table can be read. Its form is that of MLflow 3.17's own pages; another
MLflow leaves out what it does not understand, and shows its usual page.
"""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from uuid import NAMESPACE_URL, uuid5

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
_WIDTHS = {"attributes": 170, "metrics": 100, "params": 190, "tags": 140}


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
