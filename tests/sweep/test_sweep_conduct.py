"""A whole sweep with real processes: the same numbers, whoever computes them and who is killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from toy_sweep import SHARE, micro, order_of, toy

from harness.errors import HarnessError
from harness.report.sweep import SweepReport
from harness.sweep.conduct import run_sweep, shared_stages, stored_report
from harness.sweep.declaration import Sweep
from harness.sweep.space import final_runs

SWEEP = toy(
    space={SHARE: {"kind": "categorical", "choices": [0.2, 0.4, 0.8]}},
    sampler={"kind": "grid", "seed": 0},
    trials=3,
    recipe={"algorithm": "dpo", "chain": ["human", "eva"], "creator": {"evolved_share": 0.6}},
)
NO_MLFLOW = "sqlite:////dev/null/mlflow.db"
CONDUCT = """
import sys
from pathlib import Path
from test_sweep_conduct import SWEEP, conducted
conducted(SWEEP, Path(sys.argv[1]), jobs=2)
"""


def conducted(sweep: Sweep, work_dir: Path, jobs: int) -> tuple[SweepReport, list[str], list[str]]:
    said: list[str] = []
    warned: list[str] = []
    shared = shared_stages(sweep, micro())
    order = order_of(sweep, work_dir, jobs=jobs)
    report = run_sweep(order, shared, said.append, warned.append)
    return report, said, warned


def values(report: SweepReport) -> dict[object, object]:
    return {trial.params[SHARE]: trial.values for trial in report.complete}


@pytest.fixture(autouse=True)
def _no_mlflow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", NO_MLFLOW)


def test_a_sweep_whose_command_was_killed_ends_with_the_numbers_of_one_left_alone(
    work_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The command is killed in its first two trials, which the next one does again.

    Values are 10 x share + 0.5. On the benchmarks the winner's skill is 8 plus its seed and the
    base recipe's 6 plus it, so the gain is 2.
    """
    monkeypatch.setenv("TOY_KILLS_ONCE", str(work_dir.parent / "killed"))
    here = Path(__file__).resolve().parent
    killed = subprocess.run(
        [sys.executable, "-c", CONDUCT, str(work_dir)],
        check=False,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(here), str(here.parents[1])])},
    )
    assert killed.returncode == -signal.SIGKILL
    report, said, _ = conducted(SWEEP, work_dir, jobs=1)
    expected = {share: {"win_rate": pytest.approx(10 * share + 0.5)} for share in (0.2, 0.4, 0.8)}
    assert values(report) == expected
    assert len(report.trials) == report.counted == 3
    assert report.benchmarks[0].score == "ah_wr"
    for score in report.benchmarks:
        assert score.gain == pytest.approx(2.0)
        assert score.mean == pytest.approx(8.0 + 10.5)
    again, said, warned = conducted(SWEEP, work_dir, jobs=2)
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


def test_a_stage_that_every_trial_needs_ends_the_sweep_before_a_trial_begins(
    work_dir: Path,
) -> None:
    order = order_of(SWEEP, work_dir)
    broken = replace(order, functions={**order.functions, "annotate": "toy_sweep:nothing"})
    with pytest.raises(HarnessError, match=r"shared by all trials: the stage .* failed"):
        run_sweep(broken, shared_stages(SWEEP, micro()), lambda line: None, lambda line: None)
    assert stored_report(order).trials == ()
