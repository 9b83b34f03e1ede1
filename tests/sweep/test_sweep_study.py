"""Which trial comes next: what was left running is done again, and nothing is suggested twice."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import optuna
import pytest
from optuna.trial import TrialState
from toy_sweep import SHARE, order_of, toy

from harness.errors import UserError
from harness.project import results_dir
from harness.report.sweep import SWEEP
from harness.sweep.conduct import Order
from harness.sweep.declaration import Sweep
from harness.sweep.study import (
    open_study,
    point_of,
    sampler_for,
    study_of,
    take,
    tidy,
    trials_of,
)


def opened(order: Order) -> optuna.Study:
    return open_study(order.sweep, order.study, order.journal)


def suggested(sweep: Sweep, study: optuna.Study, target: int) -> list[dict[str, Any]]:
    """Complete trials with their evolved share until there are enough; return their points."""
    points = []
    while (trial := take(sweep, study, target)) is not None:
        points.append(point_of(trial))
        study.tell(trial, float(points[-1][SHARE] or 0))
    return points


def test_a_study_gets_as_many_trials_as_it_was_asked_for(work_dir: Path) -> None:
    sweep = toy()
    study = opened(order_of(sweep, work_dir))
    assert len(suggested(sweep, study, 3)) == 3
    assert take(sweep, study, 3) is None
    assert take(sweep, study, 4) is not None
    assert take(sweep, study, 4, held=[3]) is None
    assert len(trials_of(sweep, study)) == 4


@pytest.mark.parametrize("kind", ["tpe", "random", "grid"])
def test_a_sweep_that_was_killed_and_goes_on_suggests_what_one_left_alone_would(
    work_dir: Path, kind: str
) -> None:
    """Killed in its third trial, twice over; once while it got its point, which doesn't count."""
    sweep = toy(sampler={"kind": kind, "seed": 3, "startup_trials": 2})
    alone = suggested(sweep, opened(order_of(sweep, work_dir / "alone")), 6)
    order = order_of(sweep, work_dir / "killed")
    stopped = suggested(sweep, opened(order), 2)
    opened(order).ask()
    for _ in range(2):
        left = take(sweep, opened(order), 6)
        assert left is not None
        assert (left.number, point_of(left)) == (3, alone[2])
    assert stopped + suggested(sweep, opened(order), 6) == alone
    numbers = [trial.number for trial in trials_of(sweep, opened(order))]
    assert numbers == [0, 1, 3, 4, 5, 6]


def test_a_grid_gives_out_every_point_once(work_dir: Path) -> None:
    sweep = toy(sampler={"kind": "grid", "seed": 0}, trials=8)
    found = suggested(sweep, opened(order_of(sweep, work_dir)), 8)
    assert len({repr(sorted(point.items())) for point in found}) == 8


def test_one_command_at_a_time_works_on_a_sweep(work_dir: Path) -> None:
    order = order_of(toy(), work_dir)
    busy = pytest.raises(UserError, match="is running in this work folder")
    with order.alone(), busy, order.alone():
        pass


@pytest.mark.parametrize(
    "name", sorted(p.parent.name for p in results_dir().glob("micro/sweeps/*/report.json"))
)
def test_a_published_sweep_is_a_study_with_its_axes_named(name: str) -> None:
    report = SWEEP.read(results_dir() / "micro" / "sweeps" / name)
    study = study_of(report)
    assert study.metric_names == [objective.label for objective in report.objectives]
    assert [t.params for t in study.trials] == [t.params for t in report.trials]
    began = [t.datetime_start and t.datetime_start.astimezone(UTC) for t in study.trials]
    assert began == [t.started and datetime.fromisoformat(t.started) for t in report.trials]
    complete = [t for t in study.trials if t.state == TrialState.COMPLETE]
    assert [t.values for t in complete] == [
        list((t.values or {}).values()) for t in report.complete
    ]


def test_a_stepped_float_has_no_rounding_error() -> None:
    assert tidy({"a": 0.1 + 0.2, "b": "x", "c": 1.25e-7}) == {"a": 0.3, "b": "x", "c": 1.25e-7}


def test_a_sampler_is_seeded_by_the_position() -> None:
    sampler = toy().sampler
    draws = [sampler_for(sampler, i)._rng.rng.random() for i in (0, 0, 1)]  # type: ignore[attr-defined]
    assert draws[0] == draws[1] != draws[2]
