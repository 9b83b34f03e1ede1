"""Hostile and mistaken values of every option: an answer or one sentence, never a traceback.

Each verb of the command line has an example that works; one or two of its values are then replaced.
What a verb would start (training, a server, a sweep) is replaced by nothing, since what is tried is
how values are read; a verb or an option that is new is tried without being named here.
"""

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import pytest
import typer
from fuzzing import Fuzzer, forms
from hypothesis import strategies as st
from typer.testing import CliRunner

from harness import extensions
from harness.cli.main import app
from harness.errors import HarnessError

WITHIN_S = 60
"""Seconds that a verb may take with any value, first imports included."""

EXAMPLES: dict[str, tuple[str, ...]] = {
    "list": ("",),
    "show": ("table4",),
    "validate": ("",),
    "plan": ("table4", "table4 --profile paper --seeds 0"),
    "run": ("table4",),
    "report": ("table4",),
    "sync": ("",),
    "store": ("", "--verify"),
    "store path": ("table4 dpo-1",),
    "ui": ("",),
    "doctor": ("--profile micro",),
    "download": ("--profile micro",),
    "claims": ("table4",),
    "verify": ("",),
    "sweep list": ("",),
    "sweep run": ("offline-evolve",),
    "sweep show": ("offline-evolve",),
    "evaluate mt_bench": ("--judgments jsonl", "--data folder --answers jsonl"),
    "evaluate arena_hard": ("--judgments jsonl", "--data folder --answers jsonl"),
    "evaluate alpaca_eval": (
        "--judgments json",
        "--data folder --answers jsonl",
        "--calibrate --judge j --judgments jsonl",
    ),
    "evaluate fetch": ("mt_bench",),
}
"""Examples of each verb."""


def verbs(command: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, Any]]:
    """Yield every verb with its command."""
    if not hasattr(command, "list_commands"):
        yield " ".join(path), command
        return
    if path and command.invoke_without_command:
        yield " ".join(path), command
    for name in command.list_commands(None):
        yield from verbs(command.get_command(None, name), (*path, name))


VERBS = dict(verbs(typer.main.get_command(app)))

LONG = "9" * 5000
HUGE = "9" * 400

NUMBERS = [
    *("0", "-1", "1", "9" * 20, HUGE, f"-{HUGE}", LONG, str(2**31), str(2**63), "1.5", "-0.0"),
    *("1e3", "nan", "inf", "-inf", "1e400", "1e-400", "0x10", "1_0", "\u0663", " 1 ", "", "abc"),
]

WORDS = [
    *("", " ", ",", "a,,b", "a,a", "x" * 5000, LONG, "-", "=", "a=", "=b", "a=b", "%s{0}[b]"),
    *("../../x", "/", "table4/", "table4/eva-a_min/x", "table4", "figure5", "all", "all-offline"),
    *("\udcff", "\x1b[31m", f"0-{LONG}", "0-999999999999", "0--1", "1", "1,2", "-1,1", "nan,1"),
    *("1e999,1", f"{LONG},1", "auto", "paper", "single-gpu", "micro", "dpo-1", "eva-a_min", "hf"),
    *("plain", "json", "html", "mt_bench", "cuda:99", "PATH", "nothing://x", "://"),
    *("sqlite:///", "sqlite:////proc/x/y.db", "sqlite:///a\udcffb", "http://[", "http://\udcff"),
    *("http://localhost:999999", "http://127.0.0.1:1/v1"),
]

PATHS = [
    *("", ".", "..", "/", "/proc/x", "/proc/x/y", "/proc/self/mem", "/dev/null", "/dev/full"),
    *("x" * 300, "a/" * 2500, "~nobody-there/x", "\udcff", "\x1b[31m", "missing", "missing/x"),
    *("file", "file/x", "folder", "pipe", "loop", "broken", "json", "jsonl", "yaml"),
]


SAFE = [path for path in PATHS if path not in ("", ".", "..", "/") and "/dev/" not in path]
"""Where something may be written should a value be taken after all."""


class Waits(BaseException):
    """A verb waits for something, and nothing that it foresees."""


class Started(HarnessError):
    """The values were read, and what would take long begins."""


def start(*_: Any, **__: Any) -> Any:
    raise Started("started")


HEAVY = (
    "harness.runtime.engine.Engine.run",
    "harness.sweep.conduct.run_sweep",
    "harness.worlds.real.prompts.read_pool",
    "harness.evaluation.files.fetch",
    "harness.endpoint.client.Client.ask",
    "harness.evaluation.benchmarks.lm_eval.measure",
    "os.execv",
    "os.execve",
)
"""What verbs do that takes long, or reaches out."""


@pytest.fixture(autouse=True)
def nothing_heavy(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """Work in a folder of the test, start nothing, and stop what waits for ever."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HARNESS_WORK", str(tmp_path / "work"))
    monkeypatch.setenv(extensions.VARIABLE, "")
    for variable in ("MLFLOW_TRACKING_URI", "OPENAI_API_KEY", "GEMINI_API_KEY", "COLUMNS"):
        monkeypatch.delenv(variable, raising=False)
    results = tmp_path / "results"
    results.mkdir()
    monkeypatch.setattr("harness.project.publishing_dir", lambda: results)
    for target in HEAVY:
        monkeypatch.setattr(target, start)
    fill(tmp_path)

    def stop(*_: object) -> None:
        raise Waits(f"nothing was said within {WITHIN_S} s")

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
    if Path in kinds:
        return SAFE if parameter.name == "output" else PATHS
    return [*WORDS, *NUMBERS, *PATHS]


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


def parameters(verb: str) -> list[Any]:
    """Return the options and arguments of a verb that have a value."""
    return [p for p in VERBS[verb].params if not getattr(p, "is_flag", False) and p.name != "help"]


CASES = [
    (verb, example.split(), parameter)
    for verb, examples in EXAMPLES.items()
    for example in examples
    for parameter in parameters(verb)
]
"""Each option of each example."""


def test_every_verb_has_an_example_and_many_options_are_tried() -> None:
    assert set(EXAMPLES) == set(VERBS)
    assert len({(verb, parameter.name) for verb, _, parameter in CASES}) > 60


@forms(quick=60)
def test_any_values_of_options_are_an_answer_or_a_sentence(fuzzer: Fuzzer) -> None:
    def attempt(case: tuple[str, list[str], Any], data: st.DataObject) -> None:
        verb, arguments, parameter = case
        arguments = replaced(arguments, parameter, data.draw(st.sampled_from(values(parameter))))
        if data.draw(st.booleans()):
            other = data.draw(st.sampled_from(parameters(verb)))
            value = data.draw(st.sampled_from(values(other)) | WORD)
            arguments = replaced(arguments, other, value)
        tried(verb, arguments)

    fuzzer.fuzz(attempt, st.sampled_from(CASES), st.data())


WORD = st.text(st.characters(codec="utf-8", exclude_characters="\0/."), min_size=1, max_size=20)
"""What a shell can hand over, and leads nowhere else."""


@pytest.mark.parametrize(
    ("command", "said"),
    [
        (f"plan table4 --seeds {LONG}", "is not a list of seeds"),
        (f"run table4 --jobs {'9' * 20}", "give the number of processes, from 1 to 1024"),
        (f"plan table4 --jobs {HUGE}", "give the number of processes"),
        (f"sweep run offline-evolve --jobs {'9' * 20}", "give the number of processes"),
        ("report table4 --format json --output /proc/x", "`--output /proc/x` cannot be written"),
        ("report table4 --format json --output /", "has an empty name; name another"),
        ("report table4 --format json --output file/x", "`--output file/x` cannot be written"),
        (f"report table4 --format json --output {'x' * 300}", "cannot be written: File name too"),
        ("report table4 --format json --output pipe", "is a device or a pipe"),
        ("evaluate mt_bench --judgments pipe", "not a regular file"),
        ("evaluate mt_bench --judgments /dev/full", "not a regular file"),
        (f"evaluate mt_bench --answers jsonl --data {'x' * 300}", "File name too long"),
    ],
)
def test_what_was_a_traceback_or_never_ended_is_one_sentence(command: str, said: str) -> None:
    verb = next(name for name in VERBS if command.startswith(f"{name} "))
    sentence = tried(verb, command.removeprefix(verb).split())
    assert said in sentence
    assert sentence.startswith("harness: ")
    assert (sentence.count("\n"), len(sentence) < 500) == (1, True)


@pytest.mark.parametrize("verb", ["run", "plan", "sync", "sweep run"])
@pytest.mark.parametrize("folder", ["file/x", "loop", "x" * 300, "~nobody-there/x"])
def test_a_work_folder_that_cannot_be_is_one_sentence(
    monkeypatch: pytest.MonkeyPatch, verb: str, folder: str
) -> None:
    """A verb that writes says so; to one that reads, a folder that is not there is empty."""
    monkeypatch.setenv("HARNESS_WORK", folder)
    sentence = tried(verb, EXAMPLES[verb][0].split())
    assert "HARNESS_WORK" in sentence or (verb != "run" and sentence in ("", "harness: started\n"))


@pytest.mark.parametrize("value", PATHS)
def test_a_plugin_that_is_none_is_a_sentence(value: str) -> None:
    for name in (value, f"{value}.py"):
        tried("", ["--plugin", name, "list"])
