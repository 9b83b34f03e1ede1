"""The engine on Slurm, with a real Slurm of one node that the tests start."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import slurm_cluster
from test_engine_local import diamond, leftovers, outputs
from test_engine_local import run as run_locally
from toy_stages import FUNCTIONS, toy

from harness.errors import UserError
from harness.runtime import (
    Engine,
    EngineOptions,
    Event,
    Interrupted,
    Need,
    Needs,
    Plan,
    RunOutcome,
    Stage,
    StageProgress,
    StageStarted,
    Store,
)

WHY_NOT = slurm_cluster.why_not()


@pytest.fixture(scope="module")
def slurm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Run a Slurm, to which the commands of this process speak."""
    if WHY_NOT is not None:
        pytest.skip(WHY_NOT)
    folder, here = tmp_path_factory.mktemp("slurm"), Path(__file__).parent
    with slurm_cluster.running(folder) as conf, pytest.MonkeyPatch.context() as patch:
        patch.setenv("SLURM_CONF", str(conf))
        patch.setenv("HARNESS_WORK", str(folder))
        patch.setenv("PYTHONPATH", f"{here}:{os.environ.get('PYTHONPATH', '')}")
        yield


def run(
    work: Path,
    targets: list[Stage],
    on_event: Callable[[Event], None] = lambda event: None,
    needs: Needs | None = None,
) -> RunOutcome:
    """Run toy stages as jobs, into the store under a folder."""
    asked = EngineOptions(engine="slurm", sbatch="--partition=low")
    where: Any = {"on_event": on_event, "needs": needs, "where": asked}
    return Engine(Store(work / "store"), FUNCTIONS, work / "logs", **where).run(Plan(targets))


def test_jobs_compute_the_bytes_that_this_machine_does(slurm: None, tmp_path: Path) -> None:
    events: list[Event] = []
    targets = [*diamond(), toy("curve"), toy("dies"), toy("raises")]
    found = run(tmp_path / "slurm", targets, events.append)
    expected = run_locally(tmp_path / "local", targets)
    assert found.failed == expected.failed
    assert outputs(tmp_path / "slurm") == outputs(tmp_path / "local") != {}
    shown = [(e.step, e.metrics) for e in events if isinstance(e, StageProgress)]
    assert shown == [(0, {"loss": 0.5}), (1, {"loss": 0.25})]


def test_ctrl_c_cancels_all_jobs(slurm: None, tmp_path: Path) -> None:
    def interrupt(event: Event) -> None:
        if isinstance(event, StageProgress):
            signal.raise_signal(signal.SIGINT)

    with pytest.raises(Interrupted, match="stopped with 0 of 1"):
        run(tmp_path, [toy("gated", gate=str(tmp_path / "none"))], interrupt)
    assert leftovers(tmp_path) == []
    listed = ["squeue", "--noheader", "--states=PENDING,RUNNING"]
    assert subprocess.run(listed, capture_output=True, text=True, check=True).stdout == ""


def test_what_no_node_has_room_for_is_refused_at_once(slurm: None, tmp_path: Path) -> None:
    needs = Needs({"draw": Need(cpus=5)})
    with pytest.raises(
        UserError,
        match=r"needs 5 cores, and Slurm refuses that .* not available",
    ):
        run(tmp_path, [toy("draw", number=1)], needs=needs)


@pytest.mark.slow
def test_a_preempted_job_is_queued_again_and_done(slurm: None, tmp_path: Path) -> None:
    pipe, log = tmp_path / "pipe", tmp_path / "log"
    os.mkfifo(pipe)
    stage = toy("awaits", pipe=str(pipe), log=str(log), number=0, step=0)
    started: list[Stage] = []

    def preempt(event: Event) -> None:
        if isinstance(event, StageStarted):
            started.append(event.stage)
        if isinstance(event, StageProgress) and len(started) == 1:
            subprocess.run(
                ["sbatch", "--partition=high", "--exclusive", "--wrap", "true", "-o", "/dev/null"],
                check=True, capture_output=True,
            )  # fmt: skip
        if isinstance(event, StageProgress) and len(started) == 2:
            threading.Thread(target=pipe.write_text, args=("go on",), daemon=True).start()

    assert run(tmp_path, [stage], preempt).ok
    assert len(started) == 2
    assert log.read_text() == "0 0\n"


def test_batch_scripts_hold_what_the_user_says_and_no_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HARNESS_JUDGE_KEY", "sk-very-secret")
    asked = EngineOptions(engine="slurm", sbatch="--partition=gpu --time=1-00:00:00")
    needs = Needs({"draw": Need(cpus=8, gpus=2)})
    logs = tmp_path / "logs"
    engine = Engine(Store(tmp_path), FUNCTIONS, logs, jobs=3, needs=needs, where=asked)
    first = [toy("draw", number=number) for number in range(5)]
    [script] = engine.batch_scripts(Plan([toy("total", *first)]))
    command, shebang, *_ = script.splitlines()
    asked_for = shlex.split(command.removeprefix("# "))
    options = {"--array=0-4%3", "--cpus-per-task=8", "--gpus-per-node=2", "--requeue"}
    assert options < set(asked_for)
    assert asked_for.index("--partition=gpu") > asked_for.index("--requeue")
    assert shebang == "#!/bin/bash"
    assert "secret" not in script
    assert not logs.exists()


@pytest.mark.parametrize(
    "name", ["a b", "50%A", 'say "it"', "don't", "$(touch x)", "a\ntouch x\n#"]
)
def test_every_name_is_one_argument_and_no_command(tmp_path: Path, name: str) -> None:
    """What would be run is run, with a program that prints its arguments in place of Python."""
    asked = EngineOptions(engine="slurm", sbatch=f"--comment={shlex.quote(name)}")
    engine = Engine(Store(tmp_path / "store"), FUNCTIONS, tmp_path / name, where=asked)
    [text] = engine.batch_scripts(Plan([toy("draw", number=1)]))
    (tmp_path / "python").write_text('#!/bin/sh\nprintf "%s\\0" "$@"')
    (tmp_path / "python").chmod(0o755)

    def arguments(script: str) -> list[str]:
        done = subprocess.run(
            ["bash", "-c", script], env={"SLURM_ARRAY_TASK_ID": "0", "PATH": os.defpath},
            capture_output=True, text=True, cwd=tmp_path, check=True,
        )  # fmt: skip
        return done.stdout.split("\0")

    ran = arguments(text.replace(shlex.quote(sys.executable), "./python", 1))
    assert ran[:2] == ["-m", "harness.runtime.host"]
    assert ran[2].startswith(f"{tmp_path / name}/slurm/")
    submits = arguments(text.splitlines()[0].replace("# sbatch", "./python", 1))
    assert f"--comment={name}" in submits
    assert not (tmp_path / "x").exists()


def test_a_machine_without_slurm_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UserError, match="needs Slurm's command `sbatch`, which is not on this"):
        run(tmp_path, [toy("draw", number=1)])


def test_a_slurm_that_does_not_answer_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if WHY_NOT is not None:
        pytest.skip(WHY_NOT)
    (tmp_path / "slurm.conf").write_text("")
    monkeypatch.setenv("SLURM_CONF", str(tmp_path / "slurm.conf"))
    with pytest.raises(UserError, match="Slurm cannot be reached: "):
        run(tmp_path, [toy("draw", number=1)])
