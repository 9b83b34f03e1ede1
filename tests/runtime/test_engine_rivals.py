"""Several runs on one store: one computes a stage, the others wait for it and use it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from toy_stages import one_awaits, overlapping

from harness.runtime import Plan, Store

HERE = Path(__file__).resolve().parent
Start = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Return a function that starts a run of toys on the test's store."""
    runs: list[subprocess.Popen[str]] = []

    def run(*arguments: object, jobs: int = 1, **more: str) -> subprocess.Popen[str]:
        program = [sys.executable, HERE / "run_toys.py", tmp_path, jobs, *arguments]
        path = os.pathsep.join([str(HERE), str(HERE.parents[1])])
        runs.append(
            subprocess.Popen(
                list(map(str, program)),
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                env=os.environ | {"PYTHONPATH": path} | more,
            )
        )
        return runs[-1]

    yield run
    for process in runs:
        process.kill()
        process.communicate()


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


def everything(tmp_path: Path, rivals: int, log: Path) -> list[str]:
    """Return the states of all that some rivals were to compute."""
    plan = Plan(stage for rival in range(rivals) for stage in overlapping(str(rival), str(log)))
    return list(plan.states(Store(tmp_path / "store")).values())


MANY = pytest.param(16, marks=pytest.mark.faults)


@pytest.mark.parametrize("rivals", [2, 4, 8, MANY])
def test_rivals_compute_each_stage_once_and_all_succeed(
    start: Start, tmp_path: Path, rivals: int
) -> None:
    """Rival r has chains r to r + 5 of three counted stages: 3 (5 + rivals) in all."""
    log = tmp_path / "log"
    runs = [start("overlapping", rival, log) for rival in range(rivals)]
    assert all(whole(run) for run in runs)
    assert list(computed(log).values()) == [1] * (3 * (5 + rivals))
    assert set(everything(tmp_path, rivals, log)) == {"done"}
    assert not list((tmp_path / "store" / "tmp").iterdir())
    assert not list((tmp_path / "store").glob("failures/*"))


@pytest.mark.parametrize("rivals", [8, MANY])
def test_what_killed_rivals_held_is_computed_by_the_others(
    start: Start, tmp_path: Path, rivals: int
) -> None:
    """Every third is killed when it has begun its first, second, ... stage."""
    log = tmp_path / "log"
    runs = [start("overlapping", rival, log) for rival in range(rivals)]
    killed = runs[: rivals - 1 : 3]
    for stages, run in enumerate(killed, start=1):
        for _ in range(stages):
            until(run, "started")
        run.kill()
    assert all(whole(run) for run in runs if run not in killed)
    # The first rival is dead, and nobody else wants its chain 0.
    again = sum(times - 1 for times in computed(log).values())
    assert again <= len(killed), "each of the killed had one stage in hand"
    assert everything(tmp_path, rivals, log)[4:] == ["done"] * 4 * (rivals + 4)
    store = Store(tmp_path / "store")
    store.sweep()
    assert not list((tmp_path / "store" / "tmp").iterdir())


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
