"""The runtime: the store, which holds stage outputs, and the engine, which executes stages."""

from harness.runtime.engine import Engine, EngineOptions
from harness.runtime.plan import Event, Plan, RunOutcome
from harness.runtime.stage import Stage, StageContext
from harness.runtime.store import Store

__all__ = [
    "Engine",
    "EngineOptions",
    "Event",
    "Plan",
    "RunOutcome",
    "Stage",
    "StageContext",
    "Store",
]
