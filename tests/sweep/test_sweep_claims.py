"""Who works on which trial: what is killed is done again, once, and nothing else is touched."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from optuna.trial import TrialState
from toy_sweep import SHARE, order_of, toy

from harness.errors import UserError
from harness.sweep.declaration import Sweep
from harness.sweep.study import (
    Claims,
    Note,
    counted,
    open_storage,
    point_of,
    sampler_for,
    tidy,
    trials_of,
)

HERE = Path(__file__).resolve().parent

TAKES_AND_WAITS = """
import sys, os, signal
from pathlib import Path
from toy_sweep import order_of, toy
claims = order_of(toy(), Path(sys.argv[1])).claims()
with claims.working() as mark:
    trial = claims.take(mark, 4)
    print(trial.number, flush=True)
    os.kill(os.getpid(), signal.SIGKILL) if sys.argv[2] == "dies" else sys.stdin.read()
"""


def other_process(work_dir: Path, fate: str) -> subprocess.Popen[str]:
    """Return a process that has taken a trial and then dies, or waits to be told."""
    process = subprocess.Popen(
        [sys.executable, "-c", TAKES_AND_WAITS, str(work_dir), fate],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(HERE), str(HERE.parents[1])])},
    )
    assert process.stdout is not None
    assert process.stdout.readline().strip().isdigit()
    return process


def claims_of(work_dir: Path, sweep: Sweep | None = None) -> Claims:
    return order_of(sweep or toy(), work_dir).claims()


def complete(claims: Claims, mark: str, target: int) -> dict[str, Any] | None:
    """Take a trial and complete it with its evolved share; return its point."""
    trial = claims.take(mark, target)
    if trial is None:
        return None
    point = point_of(trial)
    claims.study.tell(trial, float(point[SHARE] or 0))
    return point


def died(claims: Claims, target: int) -> int:
    """Take a trial and leave it; return its number.

    Marks are held by open files, so that leaving `working` is, for the trial, like being killed.
    """
    with claims.working() as mark:
        trial = claims.take(mark, target)
    assert trial is not None
    return trial.number


def suggested(claims: Claims, count: int) -> list[dict[str, Any]]:
    with claims.working() as mark:
        found = [complete(claims, mark, count) for _ in range(count)]
        assert complete(claims, mark, count) is None
    return [point for point in found if point is not None]


def test_a_study_gets_as_many_trials_as_it_was_asked_for(work_dir: Path) -> None:
    claims = claims_of(work_dir)
    assert len(suggested(claims, 3)) == 3
    with claims.working() as mark:
        assert claims.take(mark, 3) is None
        assert claims.take(mark, 4) is not None
    assert counted(trials_of(claims.study)) == 4


def test_the_trial_of_a_killed_process_is_done_again(work_dir: Path) -> None:
    process = other_process(work_dir, "dies")
    assert process.wait() == -signal.SIGKILL
    claims = claims_of(work_dir)
    assert claims.repair() == [0]
    assert claims.repair() == []
    killed, again = trials_of(claims.study)
    assert killed.state == TrialState.FAIL
    assert Note.DONE_AGAIN in killed.user_attrs
    with claims.working() as mark:
        trial = claims.take(mark, 4)
    assert trial is not None
    assert trial.number == again.number == 1
    assert point_of(trial) == point_of(killed)
    assert trial.user_attrs[Note.RETRY_OF] == 0
    assert counted(trials_of(claims.study)) == 1


def test_the_trial_of_a_process_that_lives_is_left_alone(work_dir: Path) -> None:
    process = other_process(work_dir, "waits")
    try:
        claims = claims_of(work_dir)
        assert claims.repair() == []
        assert trials_of(claims.study)[0].state == TrialState.RUNNING
    finally:
        process.kill()
        process.wait()
    assert claims.repair() == [0]


def test_a_point_that_kills_twice_is_given_up(work_dir: Path) -> None:
    claims = claims_of(work_dir)
    assert [died(claims, 4), claims.repair()] == [0, [0]]
    assert [died(claims, 4), claims.repair()] == [1, [1]]
    first, second = trials_of(claims.study)
    assert Note.DONE_AGAIN in first.user_attrs
    assert Note.DONE_AGAIN not in second.user_attrs
    assert second.user_attrs[Note.ATTEMPT] == 2
    assert "2 times" in second.user_attrs[Note.FAILURE]
    assert counted(trials_of(claims.study)) == 1


def test_a_trial_given_back_is_taken_next_however_often(work_dir: Path) -> None:
    claims = claims_of(work_dir)
    points = []
    for _ in range(3):
        with claims.working() as mark:
            trial = claims.take(mark, 1)
            assert trial is not None
            points.append(point_of(trial))
            claims.give_back(trial, "it was stopped")
    assert points[0] == points[1] == points[2]
    assert counted(trials_of(claims.study)) == 0


def test_the_trial_of_another_machine_is_left_alone(work_dir: Path) -> None:
    claims = claims_of(work_dir)
    assert claims.take("elsewhere/1", 4) is not None
    assert claims.repair() == []


@pytest.mark.parametrize("kind", ["tpe", "random", "grid"])
def test_a_sweep_that_was_killed_and_goes_on_suggests_what_one_left_alone_would(
    work_dir: Path, kind: str
) -> None:
    sweep = toy(sampler={"kind": kind, "seed": 3, "startup_trials": 2})
    alone = suggested(claims_of(work_dir / "alone", sweep), 6)
    claims = claims_of(work_dir / "killed", sweep)
    stopped = []
    with claims.working() as mark:
        stopped += [complete(claims, mark, 6) for _ in range(2)]
    assert died(claims, 6) == 2
    again = claims_of(work_dir / "killed", sweep)
    with again.working() as mark:
        stopped += [complete(again, mark, 6) for _ in range(4)]
        assert again.take(mark, 6) is None
    assert stopped == alone


def test_a_grid_gives_out_every_point_once(work_dir: Path) -> None:
    sweep = toy(sampler={"kind": "grid", "seed": 0}, trials=8)
    found = suggested(claims_of(work_dir, sweep), 8)
    assert len({repr(sorted(point.items())) for point in found}) == 8


def test_another_seed_suggests_other_points(work_dir: Path) -> None:
    one, other = (
        suggested(claims_of(work_dir / str(seed), toy(sampler={"kind": "random", "seed": seed})), 4)
        for seed in (0, 1)
    )
    assert one != other


def test_a_journal_with_an_unfinished_line_is_mended(work_dir: Path) -> None:
    claims = claims_of(work_dir)
    suggested(claims, 2)
    journal = work_dir / "sweeps" / "toy.log"
    with journal.open("ab") as file:
        file.write(b'{"op_code": 4, "wor')
    assert counted(trials_of(claims_of(work_dir).study)) == 2
    assert len(suggested(claims_of(work_dir), 3)) == 1


def test_a_database_holds_a_study_too(work_dir: Path) -> None:
    work_dir.mkdir()
    where = f"sqlite:///{work_dir / 'optuna.db'}"
    claims = order_of(toy(), work_dir, storage=where).claims()
    assert len(suggested(claims, 2)) == 2
    assert counted(trials_of(order_of(toy(), work_dir, storage=where).claims().study)) == 2


@pytest.mark.parametrize(
    "where",
    [
        "sqlite:////nowhere/at/all/optuna.db",
        "nonsense://host/name",
        "postgresql://someone:secret@127.0.0.1:1/optuna",
    ],
)
def test_a_storage_that_cannot_be_used_is_one_sentence_without_its_password(where: str) -> None:
    with pytest.raises(UserError, match="the storage") as raised:
        open_storage(where)
    assert "secret" not in str(raised.value)
    assert "\n" not in str(raised.value)


def test_a_stepped_float_has_no_rounding_error() -> None:
    assert tidy({"a": 0.1 + 0.2, "b": "x", "c": 1.25e-7}) == {"a": 0.3, "b": "x", "c": 1.25e-7}


def test_a_sampler_is_seeded_by_the_position() -> None:
    sampler = toy().sampler
    draws = [sampler_for(sampler, i)._rng.rng.random() for i in (0, 0, 1)]  # type: ignore[attr-defined]
    assert draws[0] == draws[1] != draws[2]
