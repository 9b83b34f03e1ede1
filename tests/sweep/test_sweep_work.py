"""Trials: values by hand, reuse, failures, Ctrl-C, and what is queued again."""

import math
from pathlib import Path
from typing import Any

import optuna
import pytest
from optuna.samplers import RandomSampler, TPESampler
from optuna.trial import TrialState
from toy_sweep import METRIC, OFFLINE, SHARE, InlineEngine, choice, micro, order_of, toy

from harness.errors import HarnessError, UserError
from harness.report.sweep import SweepReport
from harness.runtime import Plan, Stage
from harness.runtime.plan import Interrupted
from harness.sweep.conduct import (
    Order,
    run_sweep,
    shared_stages,
    stored_report,
    trial_records,
)
from harness.sweep.declaration import Sweep
from harness.sweep.space import final_runs, grid
from harness.sweep.study import open_study, point_of, trials_of

SHARES = {SHARE: choice(0.2, 0.4, 0.6, 0.8)}
GRID = {"kind": "grid", "seed": 0}
SWEEP = toy(space=SHARES, sampler=GRID)


@pytest.fixture(autouse=True)
def _no_mlflow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "sqlite:////dev/null/mlflow.db")


@pytest.fixture
def worked(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return a function that works on a sweep until it has its trials, and returns what it said."""

    def work(
        sweep: Sweep, engine: InlineEngine | None = None, warn: Any = str, **changes: Any
    ) -> list[str]:
        said: list[str] = []
        monkeypatch.setattr(Order, "engine", lambda order: engine or InlineEngine())
        order = order_of(sweep, **{"final": False, **changes})
        run_sweep(order, shared_stages(sweep, order.profile), said.append, warn)
        return said

    return work


class Stopped(InlineEngine):
    """An engine in which Ctrl-C comes with the judge of the trial that is the `trial`-th."""

    def __init__(self, trial: int) -> None:
        super().__init__()
        self.left = trial

    def run(self, plan: Plan) -> Any:
        if any(stage.kind == "judge" for stage in plan):
            self.left -= 1
            if self.left == 0:
                raise Interrupted("stopped")
        return super().run(plan)


def found(sweep: Sweep) -> SweepReport:
    return stored_report(order_of(sweep))


def test_a_trial_is_worth_the_mean_over_its_seeds(worked: Any) -> None:
    """Skill 10 x share + seed, seeds 0 and 1: 10 x share + 0.5."""
    worked(SWEEP)
    report = found(SWEEP)
    assert [trial.state for trial in report.trials] == ["complete"] * 4
    for trial in report.trials:
        share = trial.params[SHARE]
        assert isinstance(share, float)
        assert trial.values == pytest.approx({"win_rate": 10 * share + 0.5})
    assert report.winner is not None
    (winner,) = (trial for trial in report.trials if trial.number == report.winner)
    assert winner.params == {SHARE: 0.8}
    assert [trial.params[SHARE] for trial in report.best()] == [0.8, 0.6, 0.4, 0.2]


def test_the_points_of_a_grid_are_computed_together_and_each_stage_once(worked: Any) -> None:
    """They share 26 stages; each has its own mix, train, answer and judge for each seed.

    A stage counts as computed in the first trial that has it.
    """
    engine = InlineEngine()
    said = worked(SWEEP, engine)
    assert len({stage.fingerprint for stage in engine.computed}) == len(engine.computed)
    (line,) = [line for line in said if "grid" in line]
    assert line == "all points of the grid: 26 of 58 stages reused, 32 to compute"
    assert [(trial.reused, trial.computed) for trial in found(SWEEP).trials] == [(26, 8)] * 4


def test_drawn_trials_share_what_does_not_depend_on_their_point(worked: Any) -> None:
    sweep = toy(space=SHARES, trials=3)
    worked(sweep)
    trials = found(sweep).trials
    assert len(trials) == 3
    for i, trial in enumerate(trials):
        again = trial.params in [other.params for other in trials[:i]]
        assert (trial.reused, trial.computed) == ((34, 0) if again else (26, 8))


def test_a_failed_stage_fails_its_trial_and_no_other(worked: Any) -> None:
    def fails(stage: Stage) -> bool:
        return stage.settings.get("evolved_share") == 0.6

    said = worked(SWEEP, InlineEngine(fails))
    report = found(SWEEP)
    (failed,) = report.failed
    assert failed.params == {SHARE: 0.6}
    assert "the toy is broken" in str(failed.failure)
    assert (report.counted, len(report.complete)) == (4, 3)
    assert any("failed: " in line and "the toy is broken" in line for line in said)


@pytest.mark.parametrize("kind", ["grid", "random"])
def test_a_failed_trial_is_tried_again_by_the_next_command(worked: Any, kind: str) -> None:
    """As `harness run` does with failed stages: the disk may have been full."""
    share = {"grid": SHARES[SHARE], "random": {"suggest_float": {"low": 0.2, "high": 0.8}}}[kind]
    sweep = toy(space={SHARE: share}, sampler={"kind": kind, "seed": 0})
    broken = InlineEngine(lambda stage: float(str(stage.settings.get("evolved_share", 0))) > 0.55)
    worked(sweep, broken)
    first = found(sweep)
    failed = [trial.params[SHARE] for trial in first.failed]
    assert (first.counted, 0 < len(failed) < 4) == (4, True)
    worked(sweep, broken)
    second = found(sweep)
    assert (second.counted, [trial.params[SHARE] for trial in second.failed]) == (4, failed)
    worked(sweep)
    third = found(sweep)
    assert (third.counted, third.failed) == (4, [])
    assert {*failed} < {trial.params[SHARE] for trial in third.complete}


def test_a_failed_point_of_a_part_of_a_grid_is_tried_again_before_any_other(worked: Any) -> None:
    """Of four points two are asked for, and the first fails."""
    sweep = toy(space=SHARES, sampler=GRID, trials=2)
    wrong = grid(sweep)[0][SHARE]
    worked(sweep, InlineEngine(lambda stage: stage.settings.get("evolved_share") == wrong))
    assert [trial.state for trial in found(sweep).trials] == ["fail", "complete"]
    worked(sweep)
    assert {trial.params[SHARE] for trial in found(sweep).complete} == {
        point[SHARE] for point in grid(sweep)[:2]
    }
    assert len(trial_records(order_of(sweep), opened(sweep))) == 3


def test_a_trial_that_was_stopped_and_then_fails_is_tried_again(worked: Any) -> None:
    sweep = toy(space={SHARE: {"suggest_float": {"low": 0.2, "high": 0.8}}})
    with pytest.raises(Interrupted):
        worked(sweep, Stopped(1))
    wrong = point_of(opened(sweep).trials[0])[SHARE]
    worked(sweep, InlineEngine(lambda stage: stage.settings.get("evolved_share") == wrong))
    assert [trial.params[SHARE] for trial in found(sweep).failed] == [wrong]
    worked(sweep)
    report = found(sweep)
    assert (report.counted, report.failed) == (4, [])
    assert wrong in [trial.params[SHARE] for trial in report.complete]


def test_of_a_part_of_a_grid_only_the_points_asked_first_are_computed(worked: Any) -> None:
    last = grid(SWEEP)[-1]
    shares: set[Any] = set()

    def note(stage: Stage) -> bool:
        shares.add(stage.settings.get("evolved_share"))
        return False

    worked(toy(space=SHARES, sampler=GRID, enqueue=[last], trials=1), InlineEngine(note))
    assert shares - {None} == {last[SHARE]}


def test_a_point_of_a_grid_that_was_killed_while_it_was_drawn_is_tried_again() -> None:
    sweep = toy(sampler=GRID)
    opened(sweep).ask()
    waiting = [t for t in opened(sweep).trials if t.state == TrialState.WAITING]
    points = [t.system_attrs["fixed_params"] for t in waiting]
    first, *others = grid(sweep)[: sweep.target()]
    assert points == [*others, first]


def test_a_stage_that_every_trial_needs_ends_the_sweep_before_a_trial_begins(worked: Any) -> None:
    with pytest.raises(HarnessError, match=r"the stage .* failed: the toy is broken"):
        worked(SWEEP, InlineEngine(lambda stage: stage.kind == "annotate"))
    assert found(SWEEP).trials == ()


@pytest.mark.parametrize("kind", ["grid", "random", "tpe"])
def test_a_stopped_trial_is_done_again_and_computes_only_what_is_missing(
    worked: Any, kind: str
) -> None:
    """Stopped in its third trial (on a grid, all points are computed first)."""
    sweep = toy(space=SHARES, sampler={"kind": kind, "seed": 0, "n_startup_trials": 2})
    stops = 4 if kind == "grid" else 3
    with pytest.raises(Interrupted):
        worked(sweep, Stopped(stops))
    (stopped,) = [trial.params for trial in opened(sweep).trials if trial.state == TrialState.FAIL]
    before = found(sweep)
    assert (before.counted, before.failed) == (2, [])
    worked(sweep)
    report = found(sweep)
    assert (report.counted, len(report.complete), report.failed) == (4, 4, [])
    assert stopped in [trial.params for trial in report.trials[2:]]
    if kind == "grid":
        assert {trial.params[SHARE] for trial in report.complete} == {0.2, 0.4, 0.6, 0.8}
    assert any("4 of 4 trials done" in line for line in worked(sweep))
    assert found(sweep) == report


def opened(sweep: Sweep) -> optuna.Study:
    order = order_of(sweep)
    return open_study(sweep, order.study, order.target)


def test_a_killed_trial_is_queued_once_however_often_the_study_is_opened() -> None:
    """One that was killed before it had a point is not."""
    sweep = toy(trials=9)
    killed = opened(sweep).ask()
    point: dict[str, Any] = {SHARE: killed.suggest_float(SHARE, 0.2, 0.8, step=0.2)}
    point |= {METRIC: killed.suggest_categorical(METRIC, ["a_min", "var"])}
    opened(sweep).ask()
    for _ in range(2):
        study = opened(sweep)
        waiting = [trial for trial in study.trials if trial.state == TrialState.WAITING]
        assert [trial.system_attrs["fixed_params"] for trial in waiting] == [point]
        assert trials_of(study) == []


def test_other_settings_make_another_study() -> None:
    names = {
        order_of(sweep).study
        for sweep in (
            toy(),
            toy(space=SHARES),
            toy(seeds=[0]),
            toy(sampler=GRID),
            toy(recipe={"algorithm": "dpo", "chain": ["human", "eva"], "size": 2}),
        )
    }
    assert len(names) == 5
    assert order_of(toy(trials=9, result={"seeds": [5]})).study in names


def test_points_that_are_to_be_tried_first_are(worked: Any) -> None:
    first = {SHARE: 0.4, METRIC: "var"}
    sweep = toy(enqueue=[first], trials=2)
    worked(sweep)
    assert found(sweep).trials[0].params == first


def test_more_trials_are_drawn_anew(worked: Any) -> None:
    """A resumed study with the same seed would draw the same points again."""
    space = {SHARE: {"suggest_float": {"low": 0.2, "high": 0.8}}}
    sweep = toy(space=space, sampler={"kind": "random", "seed": 0})
    worked(sweep, trials=2)
    worked(sweep, trials=4)
    assert len({trial.params[SHARE] for trial in found(sweep).trials}) == 4
    worked(sweep, trials=5)  # of the four that are declared
    assert (found(sweep).counted, found(sweep).target) == (5, 5)


def test_one_command_at_a_time_works_on_a_sweep(work_dir: Path) -> None:
    order = order_of(toy())
    busy = pytest.raises(UserError, match="is running in this work folder")
    with order.alone(), busy, order.alone():
        pass


def test_a_stepped_float_has_no_rounding_error() -> None:
    study = optuna.create_study()
    study.enqueue_trial({"a": 0.1 + 0.2})
    trial = study.ask()
    trial.suggest_float("a", 0.0, 1.0)
    assert point_of(trial) == {"a": 0.3}


def test_the_winner_is_run_with_seeds_that_no_trial_has_seen_beside_the_base_recipe(
    worked: Any,
) -> None:
    """The winner's skill is 8 plus its seed, 10 or 11, the base recipe's 6 plus it; gain 2."""
    recipe = {"algorithm": "dpo", "chain": ["human", "eva"], "creator": {"evolved_share": 0.6}}
    sweep = toy(space={SHARE: choice(0.2, 0.4, 0.8)}, sampler=GRID, trials=3, recipe=recipe)
    runs = final_runs(sweep, micro(), {SHARE: 0.8})
    assert {run.seed for run in runs} == {10, 11}
    assert {run.run_id for run in runs} == {"toy-winner", "toy-base"}
    answered = {name for name, b in micro().benchmarks.items() if not b.of_prompts}
    assert all(set(run.asked) == answered for run in runs)
    base = final_runs(sweep, micro(), {SHARE: 0.6})  # which the winner may be
    assert {run.run_id for run in base} == {"toy-winner"}

    worked(sweep, final=True)
    report, warned = found(sweep), list[str]()
    assert len(report.trials) == report.counted == 3
    assert report.benchmarks[0].score == "ah_wr"
    for score in report.benchmarks:
        assert score.gain == pytest.approx(2.0)
        assert score.mean == pytest.approx(8.0 + 10.5)
    assert any("0 to compute" in line for line in worked(sweep, None, warned.append, final=True))
    assert found(sweep) == report
    assert len(warned) == 1


@pytest.mark.parametrize(
    ("kind", "sampler"), [("random", RandomSampler), ("grid", RandomSampler), ("tpe", TPESampler)]
)
def test_trials_are_drawn_by_the_sampler_that_is_declared(kind: str, sampler: type) -> None:
    study = opened(toy(space=SHARES, sampler={"kind": kind, "seed": 0, "n_startup_trials": 2}))
    assert type(study.sampler) is sampler


def test_other_objectives_make_another_study() -> None:
    lengths = [{"name": "win_rate", "measure": "val_len", "direction": "maximize"}]
    assert order_of(toy(objectives=lengths)).study != order_of(toy()).study


def test_an_objective_is_measured_after_as_much_training_as_it_says(worked: Any) -> None:
    """After the first of two iterations no prompt is evolved: the seeds alone, 0 and 1."""
    early = {"name": "early", "measure": "val_wr", "direction": "maximize", "after": 1}
    objectives = [*OFFLINE["objectives"], early]
    sweep = toy(space=SHARES, sampler=GRID, objectives=objectives, trials=1)
    worked(sweep)
    (trial,) = found(sweep).trials
    late = 10 * float(trial.params[SHARE]) + 0.5  # type: ignore[arg-type]
    assert trial.values == pytest.approx({"win_rate": late, "early": 0.5})


def test_an_objective_that_is_no_number_fails_its_trial(worked: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr("harness.sweep.conduct.objective_value", lambda *_: math.nan)
    sweep = toy(space=SHARES, sampler=GRID, trials=1)
    worked(sweep)
    (failed,) = found(sweep).failed
    assert "an objective is not a number" in str(failed.failure)
