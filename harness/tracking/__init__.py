"""MLflow as a projection of the store: written by the parent process, and replayable.

The store is the truth. A *record* is what MLflow should hold of one run or one row, computed from
the store alone (`record`, `runs`, `rows`); a *server* brings MLflow to hold it (`server`). The
`Tracker` does this while stages run and once more at the end, and `harness sync` does it again on
any other server: the result is the same. MLflow is imported by `server` only, and `server` only
when something has to be written, so that importing this package costs nothing.
"""

from harness.tracking.evaluations import EvaluationTracker
from harness.tracking.patience import TrackingError
from harness.tracking.rows import CellLike
from harness.tracking.tracker import TableState, Tracker
from harness.tracking.ui import ui_command

__all__ = ["CellLike", "EvaluationTracker", "TableState", "Tracker", "TrackingError", "ui_command"]
