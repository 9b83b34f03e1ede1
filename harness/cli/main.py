"""The `harness` entry point: verbs, exit codes, and error output.

Exit codes: 0 success, 1 failure, 2 user error, 130 stopped by Ctrl-C. Expected failures are one
sentence on stderr; unexpected ones keep their traceback. Command modules import heavy dependencies
inside their functions, so that `harness --help` is fast.
"""

from __future__ import annotations

import errno
import gc
import importlib
import io
import os
import sys
from typing import Annotated, Any, NoReturn

import typer
from typer.core import TyperCommand, TyperGroup

import harness
from harness.errors import HarnessError, UserError
from harness.foreign import printable
from harness.quiet import silence

COMMANDS = {
    "list": ("tables", "List tables and figures, and where each can run."),
    "show": ("tables", "Show what a table asks and what the paper found."),
    "validate": ("tables", "Check all declarations."),
    "plan": ("plan", "Show what a run would compute and what it costs."),
    "run": ("run", "Run what is missing, then report."),
    "report": ("report", "Report the results so far."),
    "sync": ("store", "Update MLflow from the store."),
    "store": ("store", "Inspect and check the store."),
    "ui": ("store", "Serve MLflow's pages on this machine."),
    "doctor": ("machine", "Check what a profile needs on this machine."),
    "download": ("machine", "Download the models and data a profile needs."),
    "claims": ("report", "Judge the paper's claims from our runs."),
    "verify": ("report", "Recompute all published numbers."),
    "sweep": ("sweep", "Search over settings with Optuna."),
    "evaluate": ("evaluate", "Judge answers to the paper's benchmarks, or score judgments."),
}
"""Module and one-line help of each verb, in help order.

A module is imported only when its verb is used, so that `harness --help` imports none.
"""

HELP = """Run the tables of the eva paper and report them beside the paper's numbers.

\b
    harness list              list tables and figures
    harness show table4       show what a table asks and what the paper found
    harness plan table4       show what a run would compute and how long it takes
    harness run table4        run what is missing, then report
    harness run all-offline   do so for every table without online training
    harness report table4     report the results so far, without running anything
    harness ui                browse the runs in MLflow

Runs write to .harness/ in the current folder (in a checkout, at its top); HARNESS_WORK names
another one.
"""


PluginOption = Annotated[
    list[str] | None,
    typer.Option(
        "--plugin",
        metavar="PATH_OR_MODULE",
        help="A file or module that adds metrics, rewards, creators, selectors, losses, benchmarks "
        "or judges; may be repeated, also after the command.",
    ),
]


def _version(asked: bool) -> None:
    if asked:
        typer.echo(f"harness {harness.__version__}")
        raise typer.Exit


VersionOption = Annotated[
    bool,
    typer.Option("--version", callback=_version, is_eager=True, help="Print the version."),
]


_OF_A_PATH = (
    errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR, errno.EEXIST, errno.ENAMETOOLONG,
    errno.ELOOP,
)  # fmt: skip
"""OS errors about a path that only the user can have named."""


class HarnessGroup(TyperGroup):
    """The group of all verbs: turns expected failures into a sentence and an exit code."""

    def __init__(self, **settings: Any) -> None:
        """Register the verbs' names, for typer's suggestions on typos."""
        super().__init__(**settings)
        self.commands = {verb: TyperCommand(verb) for verb in COMMANDS}

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the arguments, plug-ins first; one that is not UTF-8 is a usage error."""
        for arg in args:
            if arg != arg.encode(errors="replace").decode():
                ctx.fail(f"the argument {arg!a} is not UTF-8")
        return list(super().parse_args(ctx, _plugins_first(args)))

    def get_command(self, ctx: Any, name: str) -> Any:
        """Import a verb's module and return its command."""
        if name not in COMMANDS:
            return None
        module = importlib.import_module(f"harness.cli.{COMMANDS[name][0]}")
        verbs = typer.main.get_group(module.app)
        return verbs.commands[name]

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(verb, text) for verb, (_, text) in COMMANDS.items()])

    def invoke(self, ctx: Any) -> Any:
        try:
            done = super().invoke(ctx)
            sys.stdout.flush()  # here, where click handles a closed pipe
            return done
        except HarnessError as error:
            sys.stdout.flush()
            sys.stderr.write(printable(f"harness: {error}\n"))
            raise typer.Exit(error.exit_code) from error
        except OSError as error:
            if error.errno not in _OF_A_PATH:
                raise
            path = os.fsdecode(error.filename or "")[:80]
            sys.stderr.write(
                f"harness: `{path}`: {error.strerror}; name another path, or another work folder "
                "with HARNESS_WORK\n"
            )
            raise typer.Exit(UserError.exit_code) from error
        except KeyboardInterrupt as error:
            sys.stderr.write("harness: stopped\n")
            raise typer.Exit(130) from error


def _plugins_first(args: list[str]) -> list[str]:
    """Return the arguments with every `--plugin` moved before the verb.

    Plug-ins extend the values a verb accepts, so they must be loaded before its options are parsed.
    """
    first, rest = list[str](), list[str]()
    left = iter(args)
    for arg in left:
        if arg == "--":
            rest += [arg, *left]
        elif arg == "--plugin":
            name = next(left, None)
            if name is None:  # so that only this error is reported
                return [arg]
            first += [arg, name]
        else:
            (first if arg.startswith("--plugin=") else rest).append(arg)
    return [*first, *rest]


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
def _all(plugin: PluginOption = None, version: VersionOption = False) -> None:
    """Load the plug-ins before anything else."""
    from harness.extensions import load_plugins

    load_plugins(plugin or [])


def main() -> None:
    silence()
    # Commands create many objects and keep most of them; cycle collection takes 10% of the time.
    gc.set_threshold(100_000)
    # Python sets streams that the caller has closed to None.
    sys.stderr = sys.stderr or open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115
    if not sys.stdout:
        _refuse_output("it is closed")
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            # Print `?` for characters the terminal cannot encode, instead of failing.
            stream.reconfigure(errors="replace")
    try:
        app(prog_name="harness")
    except OSError:
        try:
            print(flush=True)  # fails again if standard output is what failed
        except OSError as error:
            # Python flushes once more when it exits.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            _refuse_output(str(error.strerror))
        raise


def _refuse_output(why: str) -> NoReturn:
    sys.stderr.write(f"harness: standard output cannot be written: {why}; redirect it elsewhere\n")
    sys.exit(1)
