"""A full evaluation with failures and kills ends as an undisturbed one does."""

import json
from pathlib import Path

from full_size_data import JUDGMENTS
from running import ran

from harness.evaluation.benchmarks.alpaca_package import installed

ROOT = Path(__file__).resolve().parents[2]
CONCURRENCY = 16


def test_a_full_evaluation_with_failures_and_kills_ends_as_an_undisturbed_one() -> None:
    env = {"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin"}
    done = ran(ROOT / "benchmarks" / "judge_acceptance.py", CONCURRENCY, env=env)
    report = json.loads(done.stdout)
    run = [name for name in JUDGMENTS if name != "alpaca_eval" or installed()]
    for name in run:
        found = report[name]
        assert found["once_each"], name
        assert found["same_scores"], name
        assert found["kills"] == 1
        # What was under way when the command was killed is asked for again, and nothing else.
        assert found["answered_again"] <= CONCURRENCY
        assert found["requests"] >= 1.05 * JUDGMENTS[name]
