"""Strict base models for declarations and JSON output: unknown keys are errors.

Each model is the in-memory type, the file format and the schema.
"""

from __future__ import annotations

from typing import Any, get_args

from pydantic import BaseModel, ConfigDict


class Strict(BaseModel):
    """An immutable declaration; unknown keys and non-finite numbers are errors."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


def models_in(annotation: Any) -> list[type[BaseModel]]:
    """Return the models in an annotation: itself, or those in a union or container."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [model for part in get_args(annotation) for model in models_in(part)]
