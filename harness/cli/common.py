"""Shared by commands: options, option groups, and printing.

Data goes to stdout and errors to stderr, as tables and sentences for people or JSON only for
programs. Text is never parsed as markup, because labels and messages contain brackets.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from typer.core import TyperGroup

from harness.errors import HarnessError, UserError
from harness.foreign import printable, reason_of
from harness.project import publishing_dir
from harness.selection import names
from harness.words import colored

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from harness.report.answer import Answer

UNBOUNDED_WIDTH = 160
"""Text width if stdout is not a terminal and `COLUMNS` is unset."""

LINE_EVERY_S = 5.0
"""Minimum seconds between two lines of progress that is not shown on a terminal."""


# Options.


def complete_table(incomplete: str) -> list[str]:
    from harness.registry.declared import all_figures, all_tables

    return _completed(incomplete, lambda: [*all_tables(), *all_figures()])


def complete_tables(incomplete: str) -> list[str]:
    from harness.registry.declared import GROUPS

    groups = [name for name in GROUPS if name.startswith(incomplete)]
    return [*complete_table(incomplete), *groups]


def complete_profile(incomplete: str) -> list[str]:
    from harness.registry.declared import all_profiles

    return _completed(incomplete, all_profiles)


def _completed(incomplete: str, declared: Callable[[], Iterable[str]]) -> list[str]:
    """Return the names with a prefix, or none if a plug-in or a declaration is broken."""
    from harness.extensions import load_plugins

    try:
        load_plugins()
        return [name for name in declared() if name.startswith(incomplete)]
    except HarnessError:
        return []


def option(
    flag: str, metavar: str | None, says: str, *, default: str | bool = True, **more: Any
) -> Any:
    """Return an option; `default` is what its help shows as the default."""
    return typer.Option(flag, metavar=metavar, help=says, show_default=default, **more)


def argument(metavar: str, says: str, *, default: str | bool = True, **more: Any) -> Any:
    """Return an argument; `default` as for `option`."""
    return typer.Argument(metavar=metavar, help=says, show_default=default, **more)


TableArgument = Annotated[
    str,
    argument(
        "TABLE",
        "A table or figure (`harness list` names them), or a YAML file.",
        autocompletion=complete_table,
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
    int | None, option("--jobs", "N", "Worker processes.", default="one per core or GPU")
]
PortOption = Annotated[int, option("--port", "N", "Where to listen.", min=1, max=65535)]
SeedsOption = Annotated[str, option("--seeds", "IDS", "Seeds, as `0`, `0,2` or `0-4`.")]
SettingsOption = Annotated[
    list[str] | None,
    option(
        "--set",
        "KEY=VALUE",
        "Override a setting, as in `profile.training.dpo.beta=0.5`; may be repeated.",
        default="none",
    ),
]
EngineOption = Annotated[
    Literal["local", "ray"],
    option("--engine", None, "Where stages run: this machine, or a Ray cluster."),
]
RayAddressOption = Annotated[
    str | None,
    option(
        "--ray-address",
        "HOST:PORT",
        "The Ray cluster, with `--engine ray`.",
        default="Ray is started on this machine",
    ),
]
PublishOption = Annotated[
    bool, option("--publish", None, "Also write it to results/, with the data behind it.")
]
AllowFewerOption = Annotated[
    bool,
    option(
        "--allow-fewer",
        None,
        "Publish even if it is incomplete, or has less than what is published.",
    ),
]
FullOption = Annotated[bool, option("--full", None, "Print everything, not only the summary.")]
BudgetOption = Annotated[
    float | None,
    option("--budget-usd", "USD", "Stop before this work folder has spent more than this in all."),
]
JsonOption = Annotated[bool, option("--json", None, "Print JSON and nothing else.")]


ANY_TABLE = argument(
    "TABLE",
    "A table or figure (`harness list` names them), a YAML file, `all-offline` or `all`.",
    default=False,
    autocompletion=complete_tables,
)
AnyTableArgument = Annotated[str, ANY_TABLE]


def publishing_folder(*, publish: bool, allow_fewer: bool) -> Path | None:
    """Return the folder to publish to, or None without `--publish`."""
    if allow_fewer and not publish:
        raise UserError("`--allow-fewer` goes with `--publish`; give both, or neither")
    return publishing_dir() if publish else None


# Printing.


def emit(found: Any, as_json: bool, text: Callable[[Any], Iterable[Any]]) -> None:
    """Print a verb's result: as JSON only, or as formatted by `text`."""
    print_json(found) if as_json else print_all(text(found))


def print_all(parts: Iterable[Any], out: Console | None = None) -> None:
    out = out or console()
    for part in parts:
        # Console.print ignores the `no_wrap` of a bare Text.
        out.print(part, crop=False, soft_wrap=bool(getattr(part, "no_wrap", False)))


class Verbs(TyperGroup):
    """A command group whose help does not truncate the descriptions of its commands."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        commands: list[Any] = [self.get_command(ctx, name) for name in self.list_commands(ctx)]
        with formatter.section("Commands"):
            formatter.write_dl([(it.name, it.get_short_help_str(limit=200)) for it in commands])


def unbroken(text: str) -> Text:
    """Return a line that is never wrapped: a command or path to copy."""
    from rich.text import Text

    return Text(text, no_wrap=True, overflow="ignore")


def bold(text: str) -> Text:
    from rich.text import Text

    return Text(text, style="bold")


def console(*, stderr: bool = False) -> Console:
    """Return a console that prints text verbatim, without markup, emoji or highlighting."""
    from rich.console import Console

    stream = sys.stderr if stderr else sys.stdout
    free = not stream.isatty() and "COLUMNS" not in os.environ
    width = UNBOUNDED_WIDTH if free else None
    redraws = os.environ.get("TERM", "").lower() not in ("dumb", "unknown")
    return Console(
        stderr=stderr,
        width=width,
        force_terminal=None if redraws else False,
        markup=False,
        emoji=False,
        highlight=False,
    )


@contextmanager
def watching(out: Console | None = None) -> Iterator[Callable[[str], None]]:
    """Yield a function that shows progress, redrawn on a terminal, else every few seconds."""
    from rich.live import Live
    from rich.text import Text

    out, last = out or console(stderr=True), time.monotonic()
    with ExitStack() as shown:
        live = Live(console=out, auto_refresh=False, transient=True)

        def show(words: str) -> None:
            nonlocal last
            if out.is_terminal:
                if not live.is_started:  # only one display at a time is possible
                    shown.enter_context(live)
                live.update(Text(words, no_wrap=True, overflow="ellipsis"), refresh=True)
            elif time.monotonic() - last >= LINE_EVERY_S:
                last = time.monotonic()
                note(words)

        yield show


def note(message: str) -> None:
    """Print a message on stderr."""
    sys.stderr.write(printable(f"harness: {message}\n"))


def save(text: str, output: Path) -> None:
    """Write a file atomically, and say where it is; OS errors become a UserError."""
    from harness.runtime.files import explained, write_whole

    try:
        path = output.expanduser().absolute()
        if path.exists() and not (path.is_file() or path.is_dir()):
            raise UserError(f"`--output {output}` is a device or a pipe; name a file or a folder")
        with explained(f"writing {path.name}", path.parent):
            write_whole(path, text)
    except (OSError, RuntimeError, ValueError) as error:  # no user behind `~`; `/` has no name
        why = reason_of(error)
        raise UserError(f"`--output {output}` cannot be written: {why}; name another") from error
    note(f"written to {path}")


def print_json(value: Any, answer: Answer | None = None) -> None:
    """Print JSON in the common form on stdout."""
    from harness.report.json_text import json_text

    sys.stdout.write(json_text(value, answer))


@contextmanager
def failure_as_json(as_json: bool, said: Callable[[str], Any]) -> Iterator[None]:
    """With `--json`, print an error as `said` formats it, and exit with the error's code."""
    try:
        yield
    except HarnessError as error:
        if not as_json:
            raise
        print_json(said(str(error)))
        raise typer.Exit(error.exit_code) from error


def text_table(
    headings: Sequence[str], rows: Iterable[Sequence[str]], right: Container[int] = ()
) -> Table:
    """Return a text table in which sentences wrap but identifiers do not.

    `right` lists the right-aligned columns, counted from 0.
    """
    from rich import box
    from rich.table import Table
    from rich.text import Text

    lines = [list(row) for row in rows]
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for at, (heading, *texts) in enumerate(zip(headings, *lines, strict=True)):
        table.add_column(
            Text(printable(heading)),
            justify="right" if at in right else "left",
            overflow="fold",
            no_wrap=not any(" " in text for text in (heading, *texts)),
        )
    for line in lines:
        table.add_row(*map(colored, line))
    return table
