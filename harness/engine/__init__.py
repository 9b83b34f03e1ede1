"""Where stages execute: plans of stages, and the engine that runs them on this machine."""

from harness.engine.events import (
    Event,
    Interrupted,
    Outcome,
    StageElsewhere,
    StageFailed,
    StageFinished,
    StageProgress,
    StageSkipped,
    StageStarted,
)
from harness.engine.local import LocalEngine
from harness.engine.plan import Plan
from harness.engine.tally import Tally

__all__ = [
    "Event",
    "Interrupted",
    "LocalEngine",
    "Outcome",
    "Plan",
    "StageElsewhere",
    "StageFailed",
    "StageFinished",
    "StageProgress",
    "StageSkipped",
    "StageStarted",
    "Tally",
]
