"""The models of declarations and of what commands print as JSON: what they do not name is an error.

One model is memory, file and schema at once. What a command prints with `--json` is an `Output`.
"""

from __future__ import annotations

from typing import Any, Literal, get_args

from pydantic import BaseModel, ConfigDict


class Strict(BaseModel):
    """A declaration: immutable; an unknown key or a number without end is an error."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", allow_inf_nan=False, use_attribute_docstrings=True
    )


class Output(Strict):
    """What a command prints with `--json`."""

    schema_version: Literal[1] = 1
    """Changes when a field is taken away or means something else."""


def refuse(*rules: tuple[object, str]) -> None:
    """Raise ValueError with the message of the first rule that holds."""
    for wrong, message in rules:
        if wrong:
            raise ValueError(message)


def models_in(annotation: Any) -> list[type[BaseModel]]:
    """Return the models that an annotation speaks of: itself, or those of a union or container."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [model for part in get_args(annotation) for model in models_in(part)]
