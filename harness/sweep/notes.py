"""What a trial notes of itself in the study: names of Optuna's user attributes."""

from __future__ import annotations

OWNER = "owner"
"""Mark of the process that works on the trial."""

ATTEMPT = "attempt"
"""How often the point was taken, those times included that its process was killed."""

RETRY_OF = "retry of"
"""Number of the trial whose point was queued again."""

DONE_AGAIN = "done again"
"""Why a failed trial's point was queued again; absent where it was not."""

FAILURE = "failure"
"""Why the trial failed."""

STARTED = "started"
"""When it was taken, ISO 8601 in UTC."""

ENDED = "ended"
"""When it ended, ISO 8601 in UTC."""

SECONDS = "seconds"
"""How long it took."""

REUSED = "stages reused"
"""Stages that were in the store when it began."""

COMPUTED = "stages computed"
"""Stages that were computed for it."""

MLFLOW_RUN = "mlflow run"
"""Id of its MLflow run; absent where MLflow could not be reached."""
