"""A whole sweep with real processes."""

from __future__ import annotations

import pytest
from toy_sweep import FUNCTIONS, SHARE, choice, micro, order_of, toy

from harness.report.sweep import SweepReport
from harness.sweep.conduct import run_sweep, shared_stages
from harness.sweep.declaration import Sweep
from harness.sweep.space import final_runs

SWEEP = toy(
    space={SHARE: choice(0.2, 0.4, 0.8)},
    sampler={"kind": "grid", "seed": 0},
    trials=3,
    recipe={"algorithm": "dpo", "chain": ["human", "eva"], "creator": {"evolved_share": 0.6}},
)
NO_MLFLOW = "sqlite:////dev/null/mlflow.db"


def conducted(sweep: Sweep, jobs: int) -> tuple[SweepReport, list[str], list[str]]:
    said: list[str] = []
    warned: list[str] = []
    shared = shared_stages(sweep, micro())
    order = order_of(sweep, jobs=jobs)
    report = run_sweep(order, shared, said.append, warned.append)
    return report, said, warned


def values(report: SweepReport) -> dict[object, object]:
    return {trial.params[SHARE]: trial.values for trial in report.complete}


@pytest.fixture(autouse=True)
def _toys_without_mlflow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", NO_MLFLOW)
    monkeypatch.setattr("harness.pipeline.steps.FUNCTIONS", FUNCTIONS)
    monkeypatch.setattr("harness.pipeline.factory.needed_modules", lambda stages: [])


def test_a_whole_sweep_ends_with_the_numbers_known_by_hand_and_again_computes_nothing() -> None:
    """Values are 10 x share + 0.5. What kills do to a sweep is among the faults.

    On the benchmarks the winner's skill is 8 plus its seed and the base recipe's 6 plus it, so the
    gain is 2.
    """
    report, _, _ = conducted(SWEEP, jobs=1)
    expected = {share: {"win_rate": pytest.approx(10 * share + 0.5)} for share in (0.2, 0.4, 0.8)}
    assert values(report) == expected
    assert len(report.trials) == report.counted == 3
    assert report.benchmarks[0].score == "ah_wr"
    for score in report.benchmarks:
        assert score.gain == pytest.approx(2.0)
        assert score.mean == pytest.approx(8.0 + 10.5)
    again, said, warned = conducted(SWEEP, jobs=2)
    assert again == report
    assert any("0 to compute" in line for line in said)
    assert len(warned) == 1


def test_the_winner_s_runs_have_seeds_that_no_trial_has_seen() -> None:
    runs = final_runs(SWEEP, micro(), {SHARE: 0.8})
    assert {run.seed for run in runs} == {10, 11}
    assert {run.run_id for run in runs} == {"toy-winner", "toy-base"}
    answered = {name for name, b in micro().benchmarks.items() if not b.of_prompts}
    assert all(set(run.asked) == answered for run in runs)
    base = final_runs(SWEEP, micro(), {SHARE: 0.6})  # which the winner may be
    assert {run.run_id for run in base} == {"toy-winner"}
