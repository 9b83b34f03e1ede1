"""MLflow as a projection of the store: written by the parent process, and replayable.

The store is the truth. A *record* is what MLflow should hold of one run, row, trial or evaluation,
computed from what is stored alone (`runs`, `projection`); a *server* brings MLflow to hold it
(`server`). The trackers do this while stages run and once more at the end, and `harness sync` does
it again on any other server: the result is the same. MLflow is imported by `server` only, and
`server` only when something has to be written, so that importing this package costs nothing.
"""

from harness.tracking.record import TrackingError
from harness.tracking.tables import Details
from harness.tracking.tracker import EvaluationTracker, Mlflow, TableState, Tracker, ui_command

__all__ = [
    "Details",
    "EvaluationTracker",
    "Mlflow",
    "TableState",
    "Tracker",
    "TrackingError",
    "ui_command",
]
