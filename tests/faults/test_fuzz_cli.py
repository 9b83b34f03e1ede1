"""Hostile and mistaken values of every option: an answer or one sentence, never a traceback.

Each verb of the command line has an example that works; one or two of its values are then replaced.
What a verb would start (training, a server, a sweep) is replaced by nothing, since what is tried is
how values are read; a verb or an option that is new is tried without being named here.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, get_args

import pytest
import typer
from fuzzing import Fuzzer, forms
from hypothesis import strategies as st
from typer.testing import CliRunner

from harness.cli.main import app
from harness.errors import HarnessError

WITHIN_S = 60
"""Seconds that a verb may take with any value, first imports included."""

EXAMPLES: dict[str, list[str]] = {
    "list": [],
    "show": ["table4"],
    "validate": [],
    "plan": ["table4"],
    "run": ["table4", "--dry-run"],
    "report": ["table4"],
    "why": ["table4/eva-a_min"],
    "sync": [],
    "ui": [],
    "doctor": ["--profile", "micro"],
    "claims": ["table4"],
    "verify": [],
    "error-rates": ["--repetitions", "1", "--deals", "1"],
    "prompts": ["--profile", "micro"],
    "calibrate": [],
    "export": ["dpo-1", "--output", "exported"],
    "engine check": [],
    "micro build": ["--output", "built"],
    "micro gates": [],
    "micro offline-gates": [],
    "micro online-gates": [],
    "sweep list": [],
    "sweep run": ["offline-evolve"],
    "sweep show": ["offline-evolve"],
    "evaluate mt-bench": ["--dry-run"],
    "evaluate arena-hard": ["--dry-run"],
    "evaluate alpaca-eval": ["--dry-run"],
    "evaluate fetch": ["mt-bench"],
    "evaluate lm-eval": ["--dry-run"],
}
"""An example of each verb."""


def verbs(command: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, Any]]:
    """Yield every verb with its command."""
    for name, inner in getattr(command, "commands", {}).items():
        yield from verbs(inner, (*path, name))
    if not hasattr(command, "commands"):
        yield " ".join(path), command


VERBS = dict(verbs(typer.main.get_command(app)))

LONG = "9" * 5000
NUMBERS = ["0", "-1", "1", "9" * 20, LONG, "1e3", "nan", "inf", "-inf", "1e400", "1e-400", "0x10",
           "1_0", "\u0663", " 1 ", "", "abc", str(2**31), str(2**63), "1.5", "-0.0"]  # fmt: skip
WORDS = ["", " ", ",", "a,,b", "a,a", "x" * 5000, "../../x", "table4/", "/", "table4/eva-a_min/x",
         "table4", "figure5", "all", "all-offline", "\udcff", "\x1b[31m", "%s{0}[b]", LONG,
         f"0-{LONG}", "0-999999999999", "0--1", "-", "=", "a=", "=b", "a=b", "auto", "paper",
         "single-gpu", "micro", "dpo-1", "eva-a_min", "sqlite:///", "sqlite:////proc/x/y.db",
         "sqlite:///a\udcffb", "nothing://x", "://", "http://[", "http://localhost:999999",
         "http://\udcff", "http://127.0.0.1:1/v1", "cuda:99", "1,2", "-1,1", "nan,1", "1e999,1",
         f"{LONG},1", "1", "mt_bench", "hf", "plain", "json", "html", "csv", "latex", "PATH"]  # fmt: skip
PATHS = ["", ".", "..", "/", "/proc/x", "/proc/x/y", "/proc/self/mem", "/dev/null", "/dev/full",
         "x" * 300, "a/" * 2500, "~nobody-there/x", "\udcff", "file", "file/x", "folder", "pipe",
         "loop", "broken", "missing", "missing/x", "\x1b[31m", "json", "jsonl", "yaml"]  # fmt: skip


class Started(HarnessError):
    """The values were read, and what would take long begins."""


def start(*_: Any, **__: Any) -> Any:
    raise Started("started")


HEAVY = (
    "harness.engine.local.LocalEngine.run",
    "harness.sweep.conduct.run_sweep",
    "harness.micro.build.build_policy",
    "harness.report.error_rates.measure",
    "harness.solver.parity.measure",
    "harness.evaluation.benchmark_homes.fetch",
    "harness.evaluation.judging.client.Client.ask",
    "harness.evaluation.lm_eval_run.measure",
    "harness.cli.evaluate_local.answer",
    "os.execve",
)
"""What verbs do that takes long, or reaches out."""


@pytest.fixture(autouse=True)
def nothing_heavy(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """Work in a folder of the test, start nothing, and stop what waits for ever."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HARNESS_WORK", str(tmp_path / "work"))
    for variable in ("MLFLOW_TRACKING_URI", "OPENAI_API_KEY", "GEMINI_API_KEY", "COLUMNS"):
        monkeypatch.delenv(variable, raising=False)
    results = tmp_path / "results"
    results.mkdir()
    monkeypatch.setattr("harness.project.publishing_dir", lambda: results)
    for target in HEAVY:
        monkeypatch.setattr(target, start)
    fill(tmp_path)

    def stop(*_: object) -> None:
        raise TimeoutError(f"nothing was said within {WITHIN_S} s")

    before = signal.signal(signal.SIGALRM, stop)
    yield
    signal.signal(signal.SIGALRM, before)


def fill(folder: Path) -> None:
    """Make files of each kind that a path can lead to."""
    (folder / "file").write_text("x")
    (folder / "folder").mkdir()
    (folder / "folder" / "file").write_text("x")
    os.mkfifo(folder / "pipe")
    (folder / "loop").symlink_to("loop")
    (folder / "broken").symlink_to("nowhere")
    (folder / "json").write_text('{"a": [1]}')
    (folder / "jsonl").write_text('{"a": 1}\n[]\n')
    (folder / "yaml").write_text("a: [1, {b: 2}]\n")


def values(parameter: Any) -> list[str]:
    """Return what is tried as a parameter's value."""
    kind = parameter.type_descriptor.annotation
    kinds = {kind, *get_args(kind)}
    if kinds & {int, float}:
        return NUMBERS
    return PATHS if Path in kinds else [*WORDS, *NUMBERS, *PATHS]


def replaced(example: list[str], parameter: Any, value: str) -> list[str]:
    """Return the arguments with another value of a parameter."""
    flag = next((name for name in parameter.opts if name.startswith("--")), None)
    if flag is None:
        return [value, *example[1:]] if example else [value]
    if flag in example:
        at = example.index(flag)
        return [*example[: at + 1], value, *example[at + 2 :]]
    return [*example, flag, value]


def tried(verb: str, arguments: list[str]) -> str:
    """Run the command line in this process; return what it said on stderr."""
    signal.alarm(WITHIN_S)
    try:
        result = CliRunner().invoke(app, [*verb.split(), *arguments])
    finally:
        signal.alarm(0)
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code in (0, 1, 2), (verb, arguments)
    assert "Traceback" not in result.stderr
    assert result.exit_code == 0 or result.stderr.strip() or result.stdout.strip()
    assert len(result.stderr) < 30_000, "a value of any length is quoted in full"
    return result.stderr


def test_every_verb_has_an_example() -> None:
    assert set(EXAMPLES) == set(VERBS)
