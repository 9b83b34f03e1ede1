"""MLflow as a projection of the store, written by the parent process and replayable.

A *record* is what MLflow should hold for one row, run, trial or evaluation, computed from the store
alone (`runs`, `tables`, `trials`); a *server* writes it to MLflow. The tracker does this as stages
finish and once more at the end, and `harness sync` repeats it on any server.
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
