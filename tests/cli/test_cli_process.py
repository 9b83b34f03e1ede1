"""The command line as a process: exit codes, what is imported, pipes and Ctrl-C."""

import ctypes
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

HEAVY = {"torch", "transformers", "trl", "mlflow", "datasets", "pandas", "matplotlib", "optuna"}
NUMERIC = {"numpy", "pyarrow", "scipy", "sklearn", "jinja2"}

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]

Process = Callable[..., "subprocess.CompletedProcess[str]"]


def python(*arguments: str, **how: Any) -> subprocess.CompletedProcess[str]:
    """Run Python with the harness on its path."""
    how = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, **how}
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.run([sys.executable, *arguments], check=False, env=environment, **how)


@pytest.mark.parametrize(
    ("command", "absent"),
    [
        ("--help", HEAVY | NUMERIC | {"yaml", "rich"}),
        ("run --help", HEAVY | NUMERIC | {"yaml", "rich"}),
        ("list", HEAVY | NUMERIC),
        ("show table4", HEAVY | NUMERIC),
        ("validate", HEAVY | NUMERIC),
        ("plan table4", HEAVY | {"scipy", "jinja2"}),
        ("report table4", HEAVY),
        ("report table4 --published --format markdown", HEAVY),
        ("verify", HEAVY),
    ],
)
def test_a_command_imports_only_what_it_needs(command: str, absent: set[str]) -> None:
    code = (
        "import atexit, sys\n"
        "from harness.cli.main import main\n"
        "atexit.register(lambda: print(*sys.modules, file=sys.stderr))\n"
        "main()"
    )
    done = python("-c", code, *command.split())
    assert done.returncode == 0, done.stderr
    assert done.stdout
    assert not absent & set(done.stderr.split())


def test_an_unchanged_rerun_imports_neither_mlflow_nor_torch(
    process: Process, tmp_path: Path
) -> None:
    asked = ("run", "table4", "--rows", "dpo-1", "--seeds", "0-1", "--jobs", "1")
    first = process(*asked)
    imported = tmp_path / "imported.txt"
    second = process(*asked, TOY_IMPORTED=str(imported))
    assert second.stderr == ""
    assert not {"torch", "transformers", "trl", "mlflow"} & set(imported.read_text().split())
    table = second.stdout.partition("Arena-Hard")[2]
    assert table
    assert table == first.stdout.partition("Arena-Hard")[2]


def test_a_run_that_fails_is_exit_code_1_without_a_traceback(process: Process) -> None:
    asked = ("run", "table4", "--rows", "dpo-1", "--seeds", "0", "--jobs", "1")
    away: Any = {"MLFLOW_TRACKING_URI": "http://127.0.0.1:9"}
    failed = process(*asked, code=1, TOY_FAILS="prompts", **away)
    assert "Traceback" not in failed.stderr
    assert "harness: MLflow at http://127.0.0.1:9" in failed.stderr


def test_what_was_not_foreseen_keeps_its_traceback() -> None:
    code = (
        "import harness.registry.declared as declared\n"
        "def broken(): raise ZeroDivisionError('ours')\n"
        "declared.all_tables = broken\n"
        "from harness.cli.main import main\n"
        "main()"
    )
    done = python("-c", code, "list")
    assert done.returncode == 1
    assert "Traceback" in done.stderr
    assert "ZeroDivisionError: ours" in done.stderr


def test_a_closed_pipe_is_no_traceback() -> None:
    reader, writer = os.pipe()
    os.close(reader)
    done = python("-m", "harness", "show", "table4", "--json", stdout=writer)
    os.close(writer)
    assert done.stderr == ""


@pytest.mark.parametrize("command", ["show table4", "show table4 --json", "list", "--help"])
@pytest.mark.parametrize(
    ("redirected", "why"), [(">&-", "it is closed"), (">/dev/full", "No space left on device")]
)
def test_standard_output_that_cannot_be_written_is_one_sentence(
    command: str, redirected: str, why: str
) -> None:
    shell = f"exec {sys.executable} -m harness {command} {redirected}"
    done = subprocess.run(
        shell, shell=True, check=False, stderr=subprocess.PIPE, text=True, cwd=ROOT
    )
    said = f"harness: standard output cannot be written: {why}; redirect it elsewhere\n"
    assert (done.returncode, done.stderr) == (1, said)


def test_closed_standard_error_hides_messages_only() -> None:
    shell = f"exec {sys.executable} -m harness show {{}} 2>&-"
    codes = [
        subprocess.run(
            shell.format(table), shell=True, check=False, stdout=subprocess.DEVNULL, cwd=ROOT
        ).returncode
        for table in ("table4", "table99")
    ]
    assert codes == [0, 2]


def test_a_work_folder_that_cannot_be_written_is_read(process: Process, folders: Path) -> None:
    asked = ("run", "table4", "--rows", "dpo-1", "--seeds", "0", "--jobs", "1")
    process(*asked)
    page = folders.parent / "page.html"
    paths = [folders, *folders.rglob("*")]
    for path in paths:
        path.chmod(path.stat().st_mode & ~0o222)
    reads = (
        "report table4",
        f"report table4 --format html --output {page}",
        "report --all",
        "claims table4",
        "plan table4",
        "store --verify",
    )
    writes = ("run table4", "report table4 --format html", "sync table4")
    try:
        ended = bounded(*reads, *writes)
    finally:
        for path in paths:
            path.chmod(path.stat().st_mode | 0o200)
    for code, said in ended[: len(reads)]:
        assert (code, said) in ((0, ""), (0, f"harness: written to {page}\n"))
    for code, said in ended[len(reads) :]:
        assert code in (1, 2), said
        assert said.count("\n") == 1, said
        assert str(folders) in said


CAP_DAC_OVERRIDE, PR_CAPBSET_DROP = 1, 24

IN_TURN = """
import io, json, sys
from contextlib import redirect_stderr, redirect_stdout
from harness.cli.main import main

ended = []
for command in sys.argv[1:]:
    sys.argv[1:] = command.split()
    with redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()) as said:
        try:
            main()
        except SystemExit as error:
            code = error.code
    ended.append((code or 0, said.getvalue()))
print(json.dumps(ended))
"""


def bounded(*commands: str) -> list[tuple[int, str]]:
    """Return exit codes of commands, and what they said, without the superuser's right to write."""

    def drop() -> None:
        if os.geteuid() == 0:
            ctypes.CDLL(None).prctl(PR_CAPBSET_DROP, CAP_DAC_OVERRIDE, 0, 0, 0)

    done = python("-c", IN_TURN, *commands, preexec_fn=drop)
    return [(code, said) for code, said in json.loads(done.stdout)]


def test_ctrl_c_ends_with_130_and_the_next_run_goes_on(
    process: Process, spawn: Any, folders: Path
) -> None:
    pipe = folders.parent / "pipe"
    os.mkfifo(pipe)
    asked = ("run", "table4", "--rows", "dpo-1", "--seeds", "0", "--jobs", "1", "--json")
    environment = {"MLFLOW_TRACKING_URI": "toy://", "TOY_WAITS": "train", "TOY_PIPE": str(pipe)}
    running = spawn(HERE / "toy_harness.py", *asked, **environment)
    half = folders / "store" / "tmp"
    pipe.open().close()
    assert list(half.glob("*/half.txt"))
    running.send_signal(signal.SIGINT)
    out, errors = running.communicate(timeout=60)
    assert running.returncode == 130, errors
    assert out == ""
    assert "run the same command again to go on from there" in errors
    assert "Traceback" not in errors
    assert not list(half.glob("*/half.txt"))
    cells: list[dict[str, Any]] = json.loads(process(*asked).stdout)["items"]
    assert {cell["state"] for cell in cells} == {"ok"}
