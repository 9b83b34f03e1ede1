"""The runtime: the store, which holds stage outputs, and the engine, which executes stages."""

from harness.runtime.crew import Need, Needs
from harness.runtime.engine import LOCAL, Engine, EngineOptions
from harness.runtime.files import StoreError
from harness.runtime.manifest import (
    FailureRecord,
    Manifest,
    Provenance,
    available_cores,
    collect_provenance,
)
from harness.runtime.plan import (
    Awaited,
    Event,
    Interrupted,
    Plan,
    RunOutcome,
    StageElsewhere,
    StageFailed,
    StageFinished,
    StageProgress,
    StageSkipped,
    StageStarted,
    Tally,
)
from harness.runtime.stage import Json, Stage, StageContext
from harness.runtime.store import STATES, Store

__all__ = [
    "STATES",
    "LOCAL",
    "Awaited",
    "Engine",
    "EngineOptions",
    "Event",
    "FailureRecord",
    "Interrupted",
    "Json",
    "Manifest",
    "Need",
    "Needs",
    "RunOutcome",
    "Plan",
    "Provenance",
    "Stage",
    "StageContext",
    "StageElsewhere",
    "StageFailed",
    "StageFinished",
    "StageProgress",
    "StageSkipped",
    "StageStarted",
    "Store",
    "StoreError",
    "Tally",
    "available_cores",
    "collect_provenance",
]
