"""One working process: values by hand, pruning, reuse, failures, and what MLflow is told."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from toy_sweep import SHARE, InlineEngine, QuietMlflow, order_of, toy

from harness.report.sweep import SweepReport
from harness.runtime import Interrupted, Store
from harness.sweep.conduct import Conductor, stored_report
from harness.sweep.declaration import Sweep
from harness.sweep.study import open_study

SHARES = {SHARE: {"kind": "categorical", "choices": [0.2, 0.4, 0.6, 0.8]}}
GRID = {"kind": "grid", "seed": 0}


class Stopped(InlineEngine):
    """An engine in which Ctrl-C comes with the first stage."""

    def run(self, plan: Any) -> Any:
        raise Interrupted("stopped")


def worked(
    sweep: Sweep, work_dir: Path, engine: InlineEngine | None = None, **changes: Any
) -> tuple[list[str], list[Any]]:
    """Work on a sweep until it has its trials; return what was said, and what was tracked."""
    order = order_of(sweep, work_dir, **changes)
    said: list[str] = []
    mlflow = QuietMlflow()
    engine = engine or InlineEngine(Store(order.store_dir))
    study = open_study(sweep, order.study, order.journal)
    conductor: Any = Conductor(order, engine, study, mlflow, said.append)  # type: ignore[arg-type]
    conductor.work()
    return said, mlflow.records


def found(sweep: Sweep, work_dir: Path) -> SweepReport:
    return stored_report(order_of(sweep, work_dir))


def test_a_trial_is_worth_the_mean_over_its_seeds(work_dir: Path) -> None:
    """Skill 10 x share + seed, seeds 0 and 1: 10 x share + 0.5."""
    sweep = toy(space=SHARES, sampler=GRID)
    worked(sweep, work_dir)
    report = found(sweep, work_dir)
    assert [trial.state for trial in report.trials] == ["complete"] * 4
    for trial in report.trials:
        share = trial.params[SHARE]
        assert isinstance(share, float)
        assert trial.values == pytest.approx({"win_rate": 10 * share + 0.5})
    assert report.winner is not None
    assert report.trial(report.winner).params == {SHARE: 0.8}
    assert [trial.params[SHARE] for trial in report.best()] == [0.8, 0.6, 0.4, 0.2]


def test_trials_share_what_does_not_depend_on_their_point(work_dir: Path) -> None:
    """The first trial computes all. Others differ in mix, train, answer and judge: 4 a seed."""
    sweep = toy(space=SHARES, sampler=GRID)
    said, _ = worked(sweep, work_dir)
    first, *others = found(sweep, work_dir).trials
    total = first.computed
    assert first.reused == 0
    assert [(t.reused, t.computed) for t in others] == [(total - 8, 8)] * 3
    assert f"0 of {total} stages reused, {total} to compute" in said[0]
    assert f"{total - 8} of {total} stages reused, 8 to compute" in said[2]


def test_a_trial_worse_than_the_median_is_pruned_after_its_first_seed(work_dir: Path) -> None:
    """The grid's order is 0.8, 0.2, 0.6, 0.4, and a first seed is worth 10 x share.

    After the two startup trials 6 is above the median of 8 and 2, and 4 below that of 8, 2 and 6.
    """
    pruner = {"kind": "median", "startup_trials": 2}
    sweep = toy(space=SHARES, sampler={"kind": "grid", "seed": 3}, pruner=pruner)
    said, records = worked(sweep, work_dir)
    trials = found(sweep, work_dir).trials
    assert [10 * float(str(trial.params[SHARE])) for trial in trials] == [8, 2, 6, 4]
    assert [trial.so_far[1] for trial in trials] == pytest.approx([8, 2, 6, 4])
    assert [trial.state for trial in trials] == ["complete"] * 3 + ["pruned"]
    assert [set(trial.so_far) for trial in trials] == [{1, 2}] * 3 + [{1}]
    assert [record.tags["trial.state"] for record in records] == [trial.state for trial in trials]
    assert any("pruned at 4 after 1 of 2 seeds" in line for line in said)


def test_trials_of_a_batch_come_out_as_alone_and_share_their_stages(work_dir: Path) -> None:
    sweep = toy(space=SHARES, sampler=GRID)
    worked(sweep, work_dir / "alone")
    engine = InlineEngine(Store(work_dir / "batch" / "store"))
    worked(sweep, work_dir / "batch", engine, jobs=3)
    alone, batch = (found(sweep, work_dir / name).trials for name in ("alone", "batch"))
    assert [(t.params, t.values) for t in batch] == [(t.params, t.values) for t in alone]
    assert len({stage.fingerprint for stage in engine.computed}) == len(engine.computed)


def test_a_failed_stage_fails_its_trial_and_no_other(work_dir: Path) -> None:
    sweep = toy(space=SHARES, sampler=GRID)
    said, records = worked(sweep, work_dir, InlineEngine(Store(work_dir / "store"), "mix"))
    report = found(sweep, work_dir)
    assert [trial.state for trial in report.failed] == ["fail"] * 4
    assert all("the toy is broken" in str(trial.failure) for trial in report.failed)
    assert report.counted == 4
    assert report.winner is None
    assert any("failed: " in line and "the toy is broken" in line for line in said)
    assert [record.status for record in records] == ["FAILED"] * 4


def test_a_stopped_trial_is_finished(work_dir: Path) -> None:
    sweep = toy(space=SHARES, sampler=GRID)
    with pytest.raises(Interrupted, match="stopped in trial 0"):
        worked(sweep, work_dir, Stopped(Store(work_dir / "store")))
    worked(sweep, work_dir)
    report = found(sweep, work_dir)
    assert (report.counted, len(report.complete), report.failed) == (4, 4, [])
    assert [trial.number for trial in report.trials] == [0, 1, 2, 3]
    assert {trial.params[SHARE] for trial in report.complete} == {0.2, 0.4, 0.6, 0.8}


def test_other_settings_make_another_study(work_dir: Path) -> None:
    names = {
        order_of(sweep, work_dir).study
        for sweep in (
            toy(),
            toy(space=SHARES),
            toy(seeds=[0]),
            toy(sampler=GRID),
            toy(recipe={"algorithm": "dpo", "chain": ["human", "eva"], "size": 2}),
        )
    }
    assert len(names) == 5
    assert order_of(toy(trials=9, result={"seeds": [5]}), work_dir).study in names


def test_points_that_are_to_be_tried_first_are(work_dir: Path) -> None:
    first = {SHARE: 0.4, "recipe.creator.metric": "var"}
    sweep = toy(enqueue=[first], trials=2)
    worked(sweep, work_dir)
    assert found(sweep, work_dir).trials[0].params == first
