"""Several runs on one store: one computes a stage, the others wait for it and use it."""

import os
import subprocess
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from toy_stages import one_awaits

from harness.runtime import Plan, Store

HERE = Path(__file__).resolve().parent
Start = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def start(tmp_path: Path, spawn: Start) -> Start:
    """Return a function that starts a run of toys on the test's store."""
    path = os.pathsep.join([str(HERE), str(HERE.parents[1])])

    def run(*arguments: object, jobs: int = 1) -> subprocess.Popen[str]:
        return spawn(HERE / "run_toys.py", tmp_path, jobs, *arguments, PYTHONPATH=path)

    return run


def until(run: subprocess.Popen[str], beginning: str) -> str:
    """Read what a run prints up to a line that begins so; return that line, or an empty one."""
    assert run.stdout is not None
    return next((line for line in run.stdout if line.startswith(beginning)), "")


def whole(run: subprocess.Popen[str]) -> bool:
    """Wait for a run's end; say whether all its stages are done, else print why not."""
    _, errors = run.communicate(timeout=120)
    print(errors)
    return run.returncode == 0


def computed(log: Path) -> Counter[str]:
    """Return how often each counted stage was begun."""
    return Counter(log.read_text().splitlines())


def test_a_run_that_waits_goes_on_with_what_is_not_taken(start: Start, tmp_path: Path) -> None:
    """The second has one worker, which is free for the stage apart while the first holds."""
    pipe, log = tmp_path / "pipe", tmp_path / "log"
    os.mkfifo(pipe)
    first = start("one_awaits", pipe, log, "first's own")
    until(first, "progress")
    second = start("one_awaits", pipe, log, "second's own")
    assert until(second, "elsewhere") == "elsewhere awaits\n"
    assert until(second, "finished") == "finished second's own\n"
    pipe.write_text("")
    assert until(second, "finished") == "finished awaits\n"
    assert whole(second)
    assert whole(first)
    assert computed(log) == {"0 0": 1}


def test_a_run_that_waits_takes_over_from_one_that_is_killed(start: Start, tmp_path: Path) -> None:
    pipe, log = tmp_path / "pipe", tmp_path / "log"
    os.mkfifo(pipe)
    first = start("one_awaits", pipe, log, "first's own")
    until(first, "progress")
    second = start("one_awaits", pipe, log, "second's own")
    until(second, "elsewhere")
    first.kill()
    assert until(second, "started awaits")
    pipe.write_text("")
    assert whole(second)
    assert computed(log) == {"0 0": 1}
    states = Plan(one_awaits(str(pipe), str(log), "second's own")).states(Store(tmp_path / "store"))
    assert set(states.values()) == {"done"}


def test_runs_that_share_a_folder_of_logs_have_a_log_each(start: Start, tmp_path: Path) -> None:
    """A log is a worker's own as long as its run lives, and serves another afterwards."""
    pipe, log = tmp_path / "pipe", tmp_path / "log"
    os.mkfifo(pipe)
    for own in ("a", "b"):
        run = start("one_awaits", pipe, log, own, jobs=2)
        until(run, "progress" if own == "a" else "elsewhere")
    until(run, "finished b")
    assert {path.name for path in (tmp_path / "logs").glob("*.log")} == {
        *("worker-0.log", "worker-1.log", "worker-2.log")
    }
