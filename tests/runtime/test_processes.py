"""Laws of other processes: they end with the block and with us, and so does what they started."""

import os
import select
import signal
import sys
import time
from pathlib import Path
from typing import Any

import psutil
import pytest

from harness.errors import HarnessError
from harness.runtime.processes import Program, free_port

SLEEP = "import time; time.sleep(600)"
FAMILY = f"""
import os, subprocess, sys, time
sleep = [sys.executable, '-c', {SLEEP!r}]
own = subprocess.Popen(sleep, start_new_session=True)
starts = 'import subprocess, sys; print(subprocess.Popen(sys.argv[1:], start_new_session=True, '
starts += 'stdout=subprocess.DEVNULL).pid)'
orphan = subprocess.check_output([sys.executable, '-c', starts, *sleep], text=True)
print(os.getpid(), own.pid, orphan.strip(), flush=True)
time.sleep(600)
"""
"""Starts a process in a session of its own, and one that has lost its parent."""


def family(log: Path) -> list[int]:
    """Return the processes of `FAMILY`, once they have started."""
    while not (said := log.read_text(encoding="utf-8")).endswith("\n"):
        time.sleep(0.05)
    return [int(word) for word in said.split()]


def wait_for_end(process: int) -> None:
    """Wait until a process that is not our child has ended."""
    try:
        descriptor = os.pidfd_open(process)
    except ProcessLookupError:
        return
    try:
        assert select.select([descriptor], [], [], 60)[0], "it did not end"
    finally:
        os.close(descriptor)


def test_a_program_ends_with_the_block_and_so_does_all_that_it_started(tmp_path: Path) -> None:
    with Program("it", [sys.executable, "-c", FAMILY], tmp_path / "log") as program:
        started = family(tmp_path / "log")
        assert program.exit_code is None
        assert len(started) == 3
    assert not [number for number in started if psutil.pid_exists(number)]


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_a_program_ends_with_all_that_it_started_when_we_are_killed(
    number: signal.Signals, tmp_path: Path, spawn: Any
) -> None:
    log = tmp_path / "log"
    killed = spawn(
        "-c",
        "import sys, time; from pathlib import Path\n"
        "from harness.runtime.processes import Program\n"
        f"with Program('it', [sys.executable, '-c', {FAMILY!r}], Path({str(log)!r})) as program:\n"
        "    print(program._process.pid, flush=True); time.sleep(600)\n",
    )
    supervisor = int(killed.stdout.readline())
    started = family(log)
    killed.send_signal(number)
    killed.wait(30)
    wait_for_end(supervisor)
    for process in started:
        wait_for_end(process)


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells a child of such a death")
def test_a_program_ends_even_when_its_supervisor_is_killed(tmp_path: Path) -> None:
    with Program("it", [sys.executable, "-c", FAMILY], tmp_path / "log") as program:
        [own, *others] = family(tmp_path / "log")
        psutil.Process(own).parent().kill()  # type: ignore[union-attr]
        wait_for_end(own)
        assert program.dies(60)
        for process in others:
            psutil.Process(process).kill()


def test_a_program_that_ends_by_itself_leaves_nothing_and_its_exit_code(tmp_path: Path) -> None:
    code = FAMILY.replace("time.sleep(600)\n", "raise SystemExit(3)\n")
    with Program("it", [sys.executable, "-c", code], tmp_path / "log") as program:
        assert program.dies(60)
        started = family(tmp_path / "log")
        assert not [number for number in started if psutil.pid_exists(number)]
    assert program.exit_code == 3
    assert str(program.died("early")).startswith("it died early (exit code 3); last log lines: ")


def test_temporary_files_of_a_program_go_with_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    code = (
        "import pathlib, tempfile; place = tempfile.mkdtemp()\n"
        "pathlib.Path(place, 'left').touch(); print(place, flush=True)"
    )
    with Program("it", [sys.executable, "-c", code], tmp_path / "log") as program:
        assert program.dies(60)
    place = Path((tmp_path / "log").read_text(encoding="utf-8").strip())
    assert place.is_relative_to(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["log"]


def test_a_program_that_does_not_listen_is_ended_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    deaf = (
        "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "print('deaf', flush=True); time.sleep(600)"
    )
    copy = tmp_path / "supervisor.py"
    text = Path(sys.modules["harness.runtime.supervisor"].__file__ or "").read_text("utf-8")
    assert text.count("GRACE_S = 10.0") == 1
    copy.write_text(text.replace("GRACE_S = 10.0", "GRACE_S = 0.5"), encoding="utf-8")
    monkeypatch.setattr("harness.runtime.supervisor.__file__", str(copy))
    with Program("it", [sys.executable, "-c", deaf], tmp_path / "log"):
        while "deaf" not in (tmp_path / "log").read_text(encoding="utf-8"):
            time.sleep(0.05)
        [child] = psutil.Process().children(recursive=False)[0].children()
    assert not child.is_running()


def test_a_program_that_cannot_be_started_says_so_in_its_log(tmp_path: Path) -> None:
    with Program("it", ["/no/such/program"], tmp_path / "log") as program:
        assert program.dies(60)
    assert "FileNotFoundError" in program.quoted()


def test_the_first_exception_is_quoted_or_else_the_last_lines(tmp_path: Path) -> None:
    log = tmp_path / "log"
    lines = [
        "INFO 11-21 starting; a ValueError: would be harmless here",
        "ConnectionResetError: [Errno 104] Connection reset by peer",
        "(Worker pid=1) ERROR 11-21 Traceback (most recent call last):",
        "(Worker pid=1) ERROR 11-21 torch.OutOfMemoryError: the GPU is full",
        "(EngineCore pid=2) ERROR 11-21 RuntimeError: a worker failed, see above",
        'INFO: "POST /v1/completions HTTP/1.1" 500 Internal Server Error',
        "",
    ]
    program = Program("it", ["true"], log)
    program.stop()
    for text, quoted in (
        ("\n".join(lines), "torch.OutOfMemoryError: the GPU is full"),
        ("0\none\ntwo\n\nthree\n", "one | two | three"),
        ("RuntimeError: \x1b]0;owned\x07", "RuntimeError: \\x1b]0;owned\\x07"),
        ("", "nothing"),
    ):
        log.write_text(text)
        assert program.quoted() == f"last log lines: {quoted} (all of them in {log})"


def test_a_server_that_never_becomes_ready_is_not_waited_for_longer_than_its_limit(
    tmp_path: Path,
) -> None:
    waits: list[float] = []

    def on_wait(seconds: float) -> None:
        waits.append(seconds)
        assert seconds < 30, "it is waited for without end"

    with (
        Program("it", [sys.executable, "-c", SLEEP], tmp_path / "log") as program,
        pytest.raises(HarnessError, match=r"it was not ready after 0\.3 s; last log lines"),
    ):
        program.wait_until_healthy(free_port(), 0.3, on_wait)
    assert waits
