"""What commands share: options and groups of them, and how they print.

Data goes to stdout and errors to stderr, for people as tables and sentences, for programs as JSON
alone. Text is never read as markup, because labels and messages hold brackets of their own.
"""

from __future__ import annotations

import functools
import inspect
import json
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from harness.errors import UserError
from harness.project import publishing_dir
from harness.selection import names
from harness.selection.names import DEFAULT_PROFILE, DEFAULT_SEEDS

if TYPE_CHECKING:
    from pydantic.fields import FieldInfo
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from harness.cost.price import Limits
    from harness.report.answer import ReportAnswer
    from harness.runtime import EngineOptions
    from harness.selection.selection import Selection

VERSIONED = "schema_version"
"""The first key of everything that is printed as JSON."""

UNBOUNDED_WIDTH = 160
"""Columns of text where stdout is no terminal and `COLUMNS` does not say."""


# Options.


def complete_table(incomplete: str) -> list[str]:
    from harness.registry.declared import all_figures, all_tables

    return [name for name in (*all_tables(), *all_figures()) if name.startswith(incomplete)]


def complete_tables(incomplete: str) -> list[str]:
    from harness.registry.declared import GROUPS

    groups = [name for name in GROUPS if name.startswith(incomplete)]
    return [*complete_table(incomplete), *groups]


def complete_profile(incomplete: str) -> list[str]:
    from harness.registry.declared import all_profiles

    return [name for name in all_profiles() if name.startswith(incomplete)]


def option(
    flag: str, metavar: str | None, says: str, *, default: str | bool = True, **more: Any
) -> Any:
    """Return an option; `default` says in its help what it is where it is not given."""
    return typer.Option(flag, metavar=metavar, help=says, show_default=default, **more)


def argument(metavar: str, says: str, *, default: str | bool = True, **more: Any) -> Any:
    """Return an argument, likewise."""
    return typer.Argument(metavar=metavar, help=says, show_default=default, **more)


TableArgument = Annotated[
    str,
    argument(
        "TABLE", "A table or figure; `harness list` names them.", autocompletion=complete_table
    ),
]
ProfileOption = Annotated[
    str, option("--profile", "NAME", "The scale to run at.", autocompletion=complete_profile)
]
RowsOption = Annotated[str | None, option("--rows", "A,B", "Only these rows and their baselines.")]
SeedOption = Annotated[int, option("--seed", "ID", "The seed.", min=0, max=names.LARGEST_SEED)]
AskedSeedsOption = Annotated[
    str | None,
    option("--seeds", "IDS", "Seeds, as `0`, `0,2` or `0-4`.", default="the most complete"),
]
JobsOption = Annotated[
    int | None, option("--jobs", "N", "Worker processes.", default="one per core")
]
PortOption = Annotated[int, option("--port", "N", "Where to listen.", min=1, max=65535)]
AllowFewerOption = Annotated[
    bool,
    option(
        "--allow-fewer",
        None,
        "Publish even what is incomplete, or has less than what is published.",
    ),
]
FullOption = Annotated[
    bool, option("--full", None, "Print every column, claim and setting, not the summary alone.")
]
JsonOption = Annotated[bool, option("--json", None, "Print JSON and nothing else.")]


@dataclass(frozen=True)
class RunArguments:
    """What is to be planned or run."""

    table: Annotated[
        str,
        argument(
            "TABLE",
            "A table (`harness list` names them), `all-offline` or `all`.",
            autocompletion=complete_tables,
        ),
    ]
    profile: ProfileOption = DEFAULT_PROFILE
    rows: RowsOption = None
    seeds: Annotated[str, option("--seeds", "IDS", "Seeds, as `0`, `0,2` or `0-4`.")] = (
        DEFAULT_SEEDS
    )
    jobs: JobsOption = None
    settings: Annotated[
        list[str] | None,
        option(
            "--set",
            "KEY=VALUE",
            "Override a setting, as in `profile.training.dpo.beta=0.5`; may be repeated.",
            default="none",
        ),
    ] = None

    @property
    def selection(self) -> Selection:
        from harness.selection.selection import select

        return select(self.table, self.profile, self.rows, self.seeds, self.settings)


@dataclass(frozen=True)
class LimitOptions:
    """What a plan may cost at most."""

    max_gpu_hours: Annotated[
        float | None,
        option("--max-gpu-hours", "H", "Fail if what is left is estimated to take more GPU hours."),
    ] = None
    budget_usd: Annotated[
        float | None,
        option(
            "--budget-usd", "B", "Fail if judge and creator are estimated to cost more dollars."
        ),
    ] = None

    @property
    def checked(self) -> Limits:
        from harness.cost.price import Limits

        return Limits(self.max_gpu_hours, self.budget_usd)


@dataclass(frozen=True)
class EngineChoice:
    """Where stages are computed."""

    engine: Annotated[
        Literal["local", "ray", "slurm"],
        option("--engine", None, "What computes: this machine, or a cluster."),
    ] = "local"
    ray_address: Annotated[
        str | None,
        option(
            "--ray-address",
            "HOST:PORT",
            "The Ray cluster, with `--engine ray`.",
            default="Ray is started on this machine",
        ),
    ] = None
    sbatch: Annotated[
        str | None,
        option(
            "--sbatch",
            "ARGS",
            "More arguments of `sbatch`, with `--engine slurm`, as `--partition=gpu --time=9:00`.",
            default="none",
        ),
    ] = None

    @property
    def options(self) -> EngineOptions:
        from harness.runtime import EngineOptions

        return EngineOptions(**vars(self))


@dataclass(frozen=True)
class PublishOptions:
    """Whether to publish what is shown."""

    publish: Annotated[
        bool, option("--publish", None, "Also write it to results/, with what it follows from.")
    ] = False
    allow_fewer: AllowFewerOption = False

    @property
    def folder(self) -> Path | None:
        """The folder to publish in; None where that is not asked for."""
        if self.allow_fewer and not self.publish:
            raise UserError("`--allow-fewer` goes with `--publish`; give both, or neither")
        return publishing_dir() if self.publish else None


def takes(*groups: type[Any]) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Let a command take the fields of groups as options, and the groups as its first arguments.

    A group is a dataclass whose fields say what their options are, or a pydantic model, where a
    field's text is the option's help, and `OptionHelp` how its value and default are called in it.
    """
    fields = [{p.name: p for p in _parameters(group)} for group in groups]

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        own = list(inspect.signature(command, eval_str=True).parameters.values())[len(groups) :]
        taken = [list(group.values()) for group in fields]
        # A group with an argument comes first, and how it is printed last, as everywhere.
        taken.insert(sum(any(p.default is p.empty for p in group) for group in taken), own)
        ordered = sorted((p for group in taken for p in group), key=lambda p: p.name == "as_json")
        together = [p.replace(kind=inspect.Parameter.KEYWORD_ONLY) for p in ordered]

        @functools.wraps(command)
        def run(**given: Any) -> None:
            made = [
                group(**{name: given.pop(name) for name in known})
                for group, known in zip(groups, fields, strict=True)
            ]
            command(*made, **given)

        run.__signature__ = inspect.Signature(together)  # type: ignore[attr-defined]
        run.__annotations__ = {p.name: p.annotation for p in together}
        return run

    return decorate


def _parameters(group: type[Any]) -> list[inspect.Parameter]:
    if not hasattr(group, "model_fields"):
        return list(inspect.signature(group, eval_str=True).parameters.values())
    return [
        inspect.Parameter(
            name,
            inspect.Parameter.KEYWORD_ONLY,
            default=field.default,
            annotation=Annotated[field.annotation, _option(name, field)],
        )
        for name, field in group.model_fields.items()
    ]


def _option(name: str, field: FieldInfo) -> Any:
    """Return the option that a field of a model is on the command line."""
    from harness.evaluation.options import OptionHelp

    shown = next(
        (found for found in field.metadata if isinstance(found, OptionHelp)), OptionHelp("")
    )
    flag = f"--{name.replace('_', '-')}"
    if field.annotation is bool and field.default:
        flag = f"{flag}/--no-{name.replace('_', '-')}"
    return option(
        flag,
        shown.value or None,
        field.description or "",
        default=shown.default or True,
        min=shown.least,
    )


# Printing.


def emit(found: Any, as_json: bool, text: Callable[[Any], Iterable[Any]]) -> None:
    """Print what a verb has found: as JSON alone, or as `text` tells it to people."""
    print_json(found) if as_json else print_all(text(found))


def print_all(parts: Iterable[Any], out: Console | None = None) -> None:
    """Print texts and tables one after the other."""
    out = out or console()
    for part in parts:
        out.print(part, crop=False)


def unbroken(text: str) -> Text:
    """Return a line that no terminal's width breaks: a command or a path, to be copied."""
    from rich.text import Text

    return Text(text, no_wrap=True, overflow="ignore")


def bold(text: str) -> Text:
    from rich.text import Text

    return Text(text, style="bold")


def console(*, stderr: bool = False) -> Console:
    """Return a console that prints what it is given, without markup, emoji or highlighting."""
    from rich.console import Console

    stream = sys.stderr if stderr else sys.stdout
    free = not stream.isatty() and "COLUMNS" not in os.environ
    width = UNBOUNDED_WIDTH if free else None
    return Console(stderr=stderr, width=width, markup=False, emoji=False, highlight=False)


def saying(out: Console) -> Callable[[str], None]:
    """Return what prints a line at once: a pipe is read while a command goes on."""

    def say(line: str) -> None:
        out.print(line, soft_wrap=True)
        out.file.flush()

    return say


def note(message: str) -> None:
    """Print one sentence on stderr, beside what a command prints on stdout."""
    sys.stderr.write(f"harness: {message}\n")


@contextmanager
def writing(output: Path) -> Iterator[Path]:
    """Yield where something is to be written; what the system has against it becomes a sentence."""
    try:
        path = output.expanduser().absolute()
        if path.exists() and not (path.is_file() or path.is_dir()):
            raise UserError(f"`--output {output}` is a device or a pipe; name a file or a folder")
        yield path
    except (OSError, RuntimeError, ValueError) as error:  # no user behind `~`; `/` has no name
        why = getattr(error, "strerror", None) or error
        raise UserError(f"`--output {output}` cannot be written: {why}; name another") from error


def save(text: str, output: Path) -> None:
    """Write a file whole, and say where it is."""
    from harness.runtime.files import explained, write_whole

    with writing(output) as path, explained(f"writing {path.name}", path.parent):
        write_whole(path, text)
    note(f"written to {path}")


def print_json(value: Any, answer: ReportAnswer | None = None) -> None:
    """Print a model, models, plain data or JSON as every command writes it, on stdout.

    It is an object that begins with a schema version. A list is the object's `items`, below the
    answer that they are the evidence of.
    """
    read = json.loads(value) if isinstance(value, str) else _plain(value)
    content = {"items": read} if isinstance(read, list) else read
    whole = {VERSIONED: 1} | ({"answer": answer.as_json()} if answer else {}) | content
    sys.stdout.write(json.dumps(whole, indent=2, ensure_ascii=False, allow_nan=False) + "\n")


def _plain(value: Any) -> Any:
    if isinstance(value, list):
        return [_plain(one) for one in value]
    return value.model_dump(mode="json") if hasattr(value, "model_dump") else value


def text_table(headings: Sequence[str], rows: Iterable[Sequence[str]], right: str = "") -> Table:
    """Return a table of text, in which sentences break before identifiers do.

    `right` has the positions of the right-aligned columns, as digits: "23" for the third and
    fourth.
    """
    from rich import box
    from rich.table import Table
    from rich.text import Text

    from harness.words import coloured

    lines = [list(row) for row in rows]
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for at, (heading, *texts) in enumerate(zip(headings, *lines, strict=True)):
        table.add_column(
            Text(heading),
            justify="right" if str(at) in right else "left",
            overflow="fold",
            no_wrap=not any(" " in text for text in (heading, *texts)),
        )
    for line in lines:
        table.add_row(*map(coloured, line))
    return table
