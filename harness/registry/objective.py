"""What a sweep optimizes, as it is declared and as it is reported; imports nothing heavy."""

from __future__ import annotations

from typing import Literal, get_args

from pydantic import Field

from harness.registry.schema import Id
from harness.strict import Strict

Scalar = bool | int | float | str | None

Cost = Literal["rollouts", "tokens", "gradient_steps", "creator_calls"]
COSTS: tuple[str, ...] = get_args(Cost)
"""Costs since the start of a run: rollouts and their tokens (online including those for rewrites
and buffer scoring), optimizer steps, creator calls."""

Measure = Literal["val_wr", "val_len", "val_score", "val_exact"] | Cost
"""What an objective measures: a score of the validation answers (win rate, length, and the oracle's
mean partial credit and share of fully correct answers), or a count of an online run. Without
validation prompts, `val_wr` and `val_score` are of rewards (`harness.sweep.space`)."""


class SweepObjective(Strict):
    name: Id
    """Name in reports and MLflow."""
    measure: Measure
    direction: Literal["maximize", "minimize"]
    after: int | None = Field(default=None, ge=1)
    """Iterations (offline) or multiples of x (online) to measure after; null: at the end."""
    unit: str = ""

    @property
    def label(self) -> str:
        return f"{self.name} ({self.unit})" if self.unit else self.name

    def loss(self, value: float) -> float:
        """Return a value signed so that lower is better."""
        return -value if self.direction == "maximize" else value
