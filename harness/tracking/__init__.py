"""MLflow as a projection of the store: written by the parent process, and replayable.

The store is the truth. A *record* is what MLflow should hold of one run, row, table, trial or
evaluation, computed from what is stored alone (`runs`, `tables`, `trials`); a *server* brings
MLflow to hold it (`server`). The tracker does this while stages run and once more at the end, and
`harness sync` does it again on any other server: the result is the same. MLflow is imported by
`server` only, and `server` only when something has to be written, so that importing this package
costs nothing.
"""

from harness.tracking.connection import Mlflow
from harness.tracking.record import TrackingError
from harness.tracking.tables import TableState
from harness.tracking.tracker import Tracker, ui_command
from harness.tracking.trials import evaluation_records

__all__ = [
    "Mlflow",
    "TableState",
    "Tracker",
    "TrackingError",
    "evaluation_records",
    "ui_command",
]
