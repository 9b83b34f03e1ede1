"""The entry point `harness`: its verbs, its exit codes, and how failures look.

Exit codes: 0 all is well, 1 something failed, 2 the user's mistake, 130 stopped by Ctrl-C. What
was foreseen is one sentence on stderr; what was not keeps its traceback. Command modules import
what is heavy inside their functions, so that `harness --help` answers at once.
"""

from __future__ import annotations

import errno
import gc
import importlib
import io
import os
import sys
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

from harness.errors import HarnessError, UserError
from harness.project import work_dir
from harness.quiet import silence

COMMANDS = {
    "list": ("tables", "List tables and figures, and where each can run."),
    "show": ("tables", "Show what a table asks and what the paper found."),
    "validate": ("tables", "Check everything that is declared."),
    "plan": ("plan", "Show what a run would compute, and its cost."),
    "run": ("run", "Compute what is missing, then report."),
    "report": ("report", "Report what has been computed."),
    "why": ("plan", "Explain which stages rows share."),
    "sync": ("store", "Bring MLflow to the state of the store."),
    "store": ("store", "Show what the store holds, check it, prune it."),
    "ui": ("store", "Serve MLflow's pages on this machine."),
    "doctor": ("machine", "Say what this machine lacks for a profile."),
    "download": ("machine", "Fetch what a profile reads and this machine lacks."),
    "claims": ("report", "Judge the paper's claims by the runs."),
    "verify": ("report", "Compute all published numbers again."),
    "prompts": ("machine", "Count human prompts, and those left out."),
    "calibrate": ("evaluate", "Measure a judge against published judgments."),
    "export": ("store", "Write a trained policy for transformers."),
    "engine": ("machine", "Check what answers for a policy."),
    "micro": ("machine", "The embedded world of the profile `micro`."),
    "sweep": ("sweep", "Search over settings with Optuna."),
    "evaluate": ("evaluate", "Run the paper's benchmarks on any model."),
}
"""The module of each verb and a line of help, in the order of the help.

A module is imported when its verb is used, so that `harness --help` imports none.
"""

HELP = """Run the tables of the eva paper and report them beside the paper's numbers.

\b
    harness list              what there is
    harness show table4       what a table asks, and what the paper found
    harness plan table4       what a run would compute, and how long it takes
    harness run table4        compute what is missing, then report
    harness run all-offline   the same for all tables without online training, together
    harness report table4     report what is there, without computing anything
    harness ui                look at the runs in MLflow

Runs write to .harness/ in the current folder (in a checkout, at its top); HARNESS_WORK names
another one.
"""


PluginOption = Annotated[
    list[str] | None,
    typer.Option(
        "--plugin",
        metavar="PATH_OR_MODULE",
        help="A module that adds metrics, losses, benchmarks or judges; may be repeated, and stand "
        "after the verb.",
    ),
]


def _version(asked: bool) -> None:
    if asked:
        from importlib.metadata import version

        typer.echo(f"harness {version('eva-harness')}")
        raise typer.Exit


VersionOption = Annotated[
    bool,
    typer.Option("--version", callback=_version, is_eager=True, help="Print the version."),
]


class HarnessGroup(TyperGroup):
    """The group of all verbs: turns foreseen failures into a sentence and an exit code."""

    def __init__(self, **settings: Any) -> None:
        """Name the verbs, from which typer takes the nearest one to a mistyped one."""
        super().__init__(**settings)
        self.commands = {verb: TyperCommand(verb) for verb in COMMANDS}

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Read the arguments, all of which must be text that can be written down.

        A path of bytes that are no UTF-8 can be opened, but no library that writes it into a file
        can name it.
        """
        for arg in args:
            try:
                arg.encode()
            except UnicodeEncodeError as error:
                shown = _short(Path(arg.encode(errors="backslashreplace").decode()))
                sys.stderr.write(f"harness: `{shown}` is no UTF-8; name it otherwise\n")
                raise typer.Exit(UserError.exit_code) from error
        return list(super().parse_args(ctx, _plugins_first(args)))

    def list_commands(self, ctx: Any) -> list[str]:
        """Return the verbs."""
        return list(COMMANDS)

    def get_command(self, ctx: Any, name: str) -> Any:
        """Import the module of a verb, and return its command."""
        if name not in COMMANDS:
            return None
        module = importlib.import_module(f"harness.cli.{COMMANDS[name][0]}")
        verbs = typer.main.get_group(module.app)
        return verbs.commands[name]

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write the verbs with their lines of help."""
        with formatter.section("Commands"):
            formatter.write_dl([(verb, text) for verb, (_, text) in COMMANDS.items()])

    def invoke(self, ctx: Any) -> Any:
        """Run a verb."""
        try:
            return super().invoke(ctx)
        except HarnessError as error:
            sys.stdout.flush()
            sys.stderr.write(f"harness: {error}\n")
            raise typer.Exit(error.exit_code) from error
        except OSError as error:
            sentence = _of_a_path(error)
            if sentence is None:
                raise
            sys.stderr.write(f"harness: {sentence}\n")
            raise typer.Exit(UserError.exit_code) from error
        except KeyboardInterrupt as error:
            sys.stderr.write("harness: stopped\n")
            raise typer.Exit(130) from error


def _plugins_first(args: list[str]) -> list[str]:
    """Return the arguments with every `--plugin` before the verb, wherever a user has typed it.

    What plug-ins add is part of what a verb takes, so they are loaded before its options are read.
    """
    first, rest = list[str](), list[str]()
    left = iter(args)
    for arg in left:
        if arg == "--":
            rest += [arg, *left]
        elif arg == "--plugin":
            name = next(left, None)
            if name is None:  # then the sentence about that is the only one
                return [arg]
            first += [arg, name]
        else:
            (first if arg.startswith("--plugin=") else rest).append(arg)
    return [*first, *rest]


def _of_a_path(error: OSError) -> str | None:
    """Return what is wrong with a path that only a user can have named, None for other faults."""
    path, work = Path(os.fsdecode(error.filename or "")), work_dir()
    on_the_way = path.is_relative_to(work) or work.is_relative_to(path)
    if path.name and on_the_way and not os.path.isdir(work):
        why = f"cannot be made ({error.strerror})"
        return f"the work folder {_short(work)} {why}; name another with HARNESS_WORK"
    if path.is_relative_to(work) and error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        why = f"{_short(path)} cannot be read or written ({error.strerror})"
        return f"{why}; allow it, or name another work folder with HARNESS_WORK"
    if error.errno == errno.ENAMETOOLONG:
        return f"the path {_short(path)} is longer than a path can be; name a shorter one"
    if error.errno == errno.ELOOP:
        return f"the path {_short(path)} is a link that leads back to itself; name another one"
    return None


def _short(path: Path) -> str:
    return str(path) if len(str(path)) <= 80 else f"{str(path)[:80]}…"


app = typer.Typer(
    name="harness",
    cls=HarnessGroup,
    help=HELP,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)


@app.callback()
def _all(ctx: typer.Context, plugin: PluginOption = None, version: VersionOption = False) -> None:
    """Load the plug-ins before anything else, unless the verb only shows declarations."""
    from harness.extensions import name_plugins

    name_plugins(plugin or [], load=ctx.invoked_subcommand not in ("list", "show"))


class _UnwritableError(Exception):
    """stdout takes no more: its disk is full, or whoever read it has seen enough."""


class _Stream(io.FileIO):
    """stdout or stderr, whose faults are told from those of all other files."""

    def write(self, data: Any, /) -> int:
        try:
            return super().write(data) or 0
        except OSError as error:
            if self.fileno() == _STDERR:
                return len(data)  # there is nowhere to say so
            # The interpreter must not flush into it again.
            os.dup2(os.open(os.devnull, os.O_WRONLY), self.fileno())
            raise _UnwritableError(error.errno, error.strerror) from error


_STDOUT, _STDERR = 1, 2


def _open_streams() -> None:
    """Let stdout and stderr take whatever is written, and say in a sentence where they cannot.

    One that was closed (`>&-`) is the null device, or the next file that is opened would take its
    number, and what is printed.
    """
    while (opened := os.open(os.devnull, os.O_RDWR)) <= _STDERR:
        pass
    os.close(opened)
    for number, name in ((_STDOUT, "stdout"), (_STDERR, "stderr")):
        file = _Stream(number, "w", closefd=False)
        encoding = getattr(getattr(sys, name), "encoding", None)
        lines = number == _STDERR or file.isatty()
        # A terminal that cannot show a letter shows a question mark, not a traceback.
        stream = io.TextIOWrapper(
            io.BufferedWriter(file), encoding, errors="replace", line_buffering=lines
        )
        setattr(sys, name, stream)


def main() -> None:
    """Run the command line and leave with its exit code."""
    silence()
    # A command makes many objects and keeps most: looking for circles takes a tenth of its time.
    gc.set_threshold(100_000)
    _open_streams()
    try:
        try:
            app(prog_name="harness")
        finally:
            sys.stdout.flush()
    except _UnwritableError as error:
        number, why = error.args
        if number != errno.EPIPE:
            sys.stderr.write(f"harness: what was printed could not be written: {why}\n")
        sys.exit(1)


if __name__ == "__main__":
    main()
