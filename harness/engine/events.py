"""What happens while stages run, told to a callback in the parent process.

Each stage of a plan that was not done gets exactly one of finished, failed or skipped. An
interrupted run ends with an exception instead.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

from harness.errors import HarnessError
from harness.store import Stage


@dataclass(frozen=True)
class StageStarted:
    """A worker has begun to compute a stage."""

    stage: Stage


@dataclass(frozen=True)
class StageElsewhere:
    """Another run computes a stage; this one waits, for its output or to do it after all."""

    stage: Stage


@dataclass(frozen=True)
class StageProgress:
    """A running stage has reported one point of its curves."""

    stage: Stage
    step: int
    metrics: Mapping[str, float]


@dataclass(frozen=True)
class StageFinished:
    """A stage's output is in the store; `wall_s` is the seconds its function took, anywhere."""

    stage: Stage
    wall_s: float


@dataclass(frozen=True)
class StageFailed:
    """A stage raised, or its worker died; `reason` is one sentence and is in the store."""

    stage: Stage
    reason: str


@dataclass(frozen=True)
class StageSkipped:
    """A stage was not computed; `because` says which failure kept it from being."""

    stage: Stage
    because: str


Event: TypeAlias = (
    StageStarted | StageElsewhere | StageProgress | StageFinished | StageFailed | StageSkipped
)


@dataclass(frozen=True)
class Outcome:
    """How a run ended: what was done in its time, what failed and why, what was skipped and why.

    What another run computed while this one waited for it is among what was done.
    """

    finished: tuple[Stage, ...]
    failed: Mapping[Stage, str]
    skipped: Mapping[Stage, str]

    @property
    def ok(self) -> bool:
        """Whether every stage of the plan is now done."""
        return not self.failed and not self.skipped


class Interrupted(HarnessError):
    """The user stopped the run (exit code 130, the shell's number for Ctrl-C)."""

    exit_code = 130
