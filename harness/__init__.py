"""`harness`: a reproduction harness for eva (Evolving Alignment via Asymmetric Self-Play).

    import harness

    table = harness.load("table4")            # a table, a figure, `all-offline`, or ./mine.yaml
    table.plan(seeds=range(10))               # what would be computed, and for how long
    report = table.run(seeds=[0, 1, 2])       # compute what is missing, track it, report it
    report.to_frame()                         # the cells as a pandas data frame

Everything below is imported on first use, so importing the package is cheap.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.2.0"

__all__ = [
    "Experiment",
    "Format",
    "HarnessError",
    "Reports",
    "UserError",
    "benchmark",
    "creator",
    "evaluate",
    "judge",
    "list_profiles",
    "list_tables",
    "load",
    "loss",
    "metric",
    "reward",
    "selector",
    "verify",
]

_HOMES = {
    "Experiment": "harness.selection.experiment",
    "Format": "harness.selection.names",
    "HarnessError": "harness.errors",
    "Reports": "harness.selection.reporting",
    "UserError": "harness.errors",
    "benchmark": "harness.extensions",
    "creator": "harness.extensions",
    "judge": "harness.extensions",
    "loss": "harness.extensions",
    "metric": "harness.extensions",
    "reward": "harness.extensions",
    "selector": "harness.extensions",
}
"""Modules of the public names that are not in `harness.api`."""

if TYPE_CHECKING:
    from harness.api import evaluate, list_profiles, list_tables, load, verify
    from harness.errors import HarnessError, UserError
    from harness.extensions import benchmark, creator, judge, loss, metric, reward, selector
    from harness.selection.experiment import Experiment
    from harness.selection.names import Format
    from harness.selection.reporting import Reports


def __getattr__(name: str) -> Any:
    """Import a public name on first use."""
    if name not in __all__:
        raise AttributeError(f"module `harness` has no attribute `{name}`")
    return getattr(importlib.import_module(_HOMES.get(name, "harness.api")), name)


def __dir__() -> list[str]:
    """Return the public names."""
    return [*__all__, "__version__"]
