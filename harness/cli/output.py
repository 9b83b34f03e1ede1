"""What commands print: tables and sentences for people, or JSON alone for programs.

Data goes to stdout and errors to stderr. Text is never read as markup, because labels and
messages hold brackets of their own.
"""

from __future__ import annotations

import functools
import importlib
import json
import operator
import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.errors import UserError

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

OUTPUTS = {
    "list": ("harness.overview:Listed",),
    "show": ("harness.overview:ShownTable", "harness.overview:ShownFigure"),
    "validate": ("harness.overview:Validation",),
    "plan": ("harness.selection.planning:PlanSummary", "harness.selection.planning:GroupSummary"),
    "run": (
        "harness.report.model:Cells",
        "harness.report.figures.report:FigureReport",
        "harness.selection.planning:PlanSummary",
        "harness.selection.planning:GroupSummary",
    ),
    "sync": ("harness.cli.tracking:Syncs",),
    "export": ("harness.cli.export:Exported",),
    "evaluate fetch": ("harness.cli.evaluate:FetchedFiles",),
    "micro build": ("harness.cli.machine:Built",),
    "micro over-optimise": ("harness.cli.machine:Pushed",),
    "why": ("harness.selection.why:Explanation",),
    "report": ("harness.report.model:Cells", "harness.report.figures.report:FigureReport"),
    "claims": ("harness.report.model:Verdicts",),
    "store": ("harness.selection.stored:Stored",),
    "verify": ("harness.report.verify:Verified", "harness.report.verify:Different"),
    "doctor": ("harness.preflight:Doctor", "harness.preflight:Readiness"),
    "prompts": ("harness.preflight:PromptPool",),
    "evaluate": (
        "harness.evaluation.run:Summaries",
        "harness.evaluation.run:EvaluationPlan",
        "harness.evaluation.benchmarks.lm_eval:TaskPlan",
    ),
    "calibrate": ("harness.evaluation.calibration:Candidates",),
    "engine check": ("harness.preflight:EngineCheck",),
    "error-rates": ("harness.report.error_rates:ErrorRates",),
    "sweep": ("harness.report.sweep:SweepReport",),
}
"""The models of what each verb prints with `--json`, as `module:attribute`."""

VERSIONED = "schema_version"
"""The first key of everything that is printed as JSON."""

UNBOUNDED_WIDTH = 160
"""Columns of text where stdout is no terminal and `COLUMNS` does not say."""


def console(*, stderr: bool = False) -> Console:
    """Return a console that prints what it is given, without markup, emoji or highlighting."""
    from rich.console import Console

    stream = sys.stderr if stderr else sys.stdout
    free = not stream.isatty() and "COLUMNS" not in os.environ
    width = UNBOUNDED_WIDTH if free else None
    return Console(stderr=stderr, width=width, markup=False, emoji=False, highlight=False)


@contextmanager
def writing(option: str, given: Path) -> Iterator[Path]:
    """Yield where something is to be written; what the system has against it becomes a sentence.

    `option` is the one that names the path.

    Raises:
        UserError: Nothing can be written there.
    """
    path = given
    try:
        path = given.expanduser().resolve()
        if not path.name:
            raise UserError(f"`{option} {given}` names no file or folder of its own; name one")
        if path.exists() and not (path.is_file() or path.is_dir()):
            raise UserError(f"`{option} {given}` is a device or a pipe; name a file or a folder")
        yield path
    except (OSError, RuntimeError) as error:
        # Links in a circle and an unknown user behind `~` have no path of their own.
        at = Path(getattr(error, "filename", None) or path)
        if isinstance(error, RuntimeError) and path is not given:
            raise
        if not (at.is_relative_to(path.parent) or path.is_relative_to(at)):
            raise
        why = getattr(error, "strerror", None) or "it leads nowhere"
        shown = str(given) if len(str(given)) <= 80 else f"{str(given)[:80]}…"
        raise UserError(f"`{option} {shown}` cannot be written: {why}; name another") from error


def print_json(value: Any) -> None:
    """Print a model or plain data as JSON, and nothing else, on stdout."""
    data = value if isinstance(value, list | dict) else value.model_dump(mode="json")
    sys.stdout.write(json_text(data))


def json_text(data: Any) -> str:
    """Return plain data as every command writes JSON: an object that begins with a schema version.

    A list is the object's `items`. Text is read as JSON first.
    """
    read = json.loads(data) if isinstance(data, str) else data
    content = {"items": read} if isinstance(read, list) else read
    whole = {VERSIONED: 1} | content
    return json.dumps(whole, indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def json_schema(verb: str) -> dict[str, Any]:
    """Return the JSON Schema of what a verb prints with `--json`, made from its models.

    Raises:
        UserError: There is no such verb, or it prints no JSON.
    """
    from pydantic import TypeAdapter

    from harness.strict import with_version

    if verb not in OUTPUTS:
        names = ", ".join(f"`{name}`" for name in OUTPUTS)
        raise UserError(f"`{verb}` is no verb with a schema; it can be {names}")
    places = (place.partition(":") for place in OUTPUTS[verb])
    printed = [getattr(importlib.import_module(module), name) for module, _, name in places]
    models = [with_version(model) for model in printed]
    found = TypeAdapter(functools.reduce(operator.or_, models)).json_schema(mode="serialization")
    head = {"$schema": "https://json-schema.org/draft/2020-12/schema"}
    return head | found | {"title": f"harness {verb} --json"}


def warn(message: str) -> None:
    """Print one sentence on stderr that does not end the command."""
    sys.stderr.write(f"harness: warning: {message}\n")


def note(message: str) -> None:
    """Print one sentence on stderr, beside what a command prints on stdout."""
    sys.stderr.write(f"harness: {message}\n")


def grid(headings: Sequence[str], rows: Iterable[Sequence[str]], *, right: str = "") -> Table:
    """Return a table of text.

    `right` has the positions of the right-aligned columns, as digits: "23" for the third and
    fourth. Where it is wider than the console, the widest column breaks first, and no word breaks
    as long as another column can give way.
    """
    from rich import box
    from rich.text import Text

    from harness.cli.grid import Grid

    table = Grid(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for position, heading in enumerate(headings):
        justify = "right" if str(position) in right else "left"
        table.add_column(Text(heading), justify=justify, overflow="fold")  # type: ignore[arg-type]
    for row in rows:
        table.add_row(*(Text(cell) for cell in row))
    return table


def save(text: str, output: Path, option: str = "--output") -> None:
    """Write a file whole, and say where it is; `option` is the one that names it."""
    from harness.runtime.files import explained, write_whole

    with writing(option, output) as path, explained(f"writing {path.name}", path.parent):
        write_whole(path, text)
    note(f"written to {path}")
