"""The JSON Schema of what each verb prints with `--json`, made from its models."""

from __future__ import annotations

import functools
import importlib
import operator
from typing import Any, Literal

from pydantic import BaseModel, TypeAdapter, create_model

from harness.report.answer import Answer
from harness.report.model import Cell, RowFacts, Verdict
from harness.strict import Output

OUTPUTS = {
    "list": ("harness.overview:Listed",),
    "show": ("harness.overview:ShownTable", "harness.overview:ShownFigure"),
    "validate": ("harness.overview:Validation",),
    "plan": ("harness.selection.planning:PlanSummary",),
    "run": ("harness.report.model:Cell[]", "harness.report.figures.report:FigureReport"),
    "sync": ("harness.cli.store:Synced[]",),
    "store path": ("harness.cli.store:Checkpoint",),
    "evaluate fetch": ("harness.cli.evaluate:FetchedFile[]",),
    "micro build": ("harness.cli.machine:Built",),
    "micro freeze": ("harness.cli.machine:Frozen",),
    "download": ("harness.cli.machine:Downloaded",),
    "report": ("harness.report.model:Cell[]", "harness.report.figures.report:FigureReport"),
    "claims": ("harness.report.model:Verdict[]",),
    "store": ("harness.selection.stored:Stored",),
    "verify": ("harness.report.verify:Verified", "harness.report.verify:Different"),
    "doctor": ("harness.cli.machine:Doctor",),
    "evaluate": (
        "harness.evaluation.scores:EvaluationSummary[]",
        "harness.evaluation.calibration:Calibration",
    ),
    "sweep list": ("harness.sweep.declaration:Sweep[]",),
    "sweep": ("harness.report.sweep:SweepReport",),
}
"""The models of what each verb prints with `--json`, as `module:attribute`, `[]` for a list."""


def json_schema(verb: str) -> dict[str, Any]:
    """Return the JSON Schema of what a verb prints."""
    models = [with_version(_printed(place)) for place in OUTPUTS[verb]]
    return TypeAdapter(functools.reduce(operator.or_, models)).json_schema(mode="serialization")


def _printed(place: str) -> Any:
    module, _, name = place.partition(":")
    model = getattr(importlib.import_module(module), name.removesuffix("[]"))
    return list.__class_getitem__(model) if name.endswith("[]") else model


TableFacts: Any = create_model("TableFacts", __base__=RowFacts, table=(str, ...))
"""Facts of a row beside the table that it is of."""


def with_version(printed: Any) -> type[BaseModel]:
    """Return the model of what is printed for a model or a list: it has a schema version.

    Above cells and verdicts stands the answer that they are the evidence of.
    """
    if not (isinstance(printed, type) and issubclass(printed, BaseModel)):
        more: Any = {"answer": (Answer, None)} if printed in (list[Cell], list[Verdict]) else {}
        more |= {"facts": (list.__class_getitem__(TableFacts), [])} if printed == list[Cell] else {}
        return create_model("Listed", __base__=Output, items=(printed, ...), **more)
    if "schema_version" in printed.model_fields:
        return printed
    version: Any = (Literal[1], 1)
    return create_model(printed.__name__, __base__=printed, schema_version=version)
