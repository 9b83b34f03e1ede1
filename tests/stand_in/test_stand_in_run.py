"""Table 4 from nothing to its report by the real command line, on stand-ins; killed, and resumed.

This is the code that a real profile runs, with small random models, made-up benchmarks, and creator
and judge behind HTTP. What is held here is that it completes, says what its numbers are worth, and
loses nothing when it is disturbed; the numbers mean nothing.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from harness.registry.declared import load_tables, named_profile
from harness.registry.profile import load_profiles, table_unsupported
from stand_in import build
from stand_in.profiles import write_profile

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
COMMAND = [sys.executable, str(HERE / "command.py")]
ONE_ROW = ("run", "--rows", "dpo-1", "--seeds", "0", "--jobs", "1")

# A minute and a half of processor time in all; the limit leaves room for a machine that is busy.
pytestmark = pytest.mark.timeout(900)


def environment(work: Path, **more: str) -> dict[str, str]:
    """Return an environment of a user who has set nothing but the work folder."""
    bare = {k: v for k, v in os.environ.items() if not k.startswith(("HARNESS_", "MLFLOW_"))}
    return {**bare, "PYTHONPATH": str(ROOT), "HARNESS_WORK": str(work), **more}


def on_table4(work: Path, verb: str, *more: str) -> list[str]:
    """Return the arguments of a command whose profile is in its work folder."""
    return [verb, "table4", "--profile", str(write_profile(work)), *more]


def harness(work: Path, *arguments: str, **more: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*COMMAND, *on_table4(work, *arguments)],
        capture_output=True,
        text=True,
        check=False,
        env=environment(work, **more),
    )


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the work folder of an undisturbed run of table 4 that found nothing there."""
    work = tmp_path_factory.mktemp("whole") / "work"
    done = harness(work, "run", "--seeds", "0")
    assert done.returncode == 0, done.stderr
    return work


@pytest.fixture
def shared(whole: Path) -> dict[str, str]:
    """Return the variables by which another work folder has the same models, benchmarks, MLflow."""
    return {
        "HARNESS_MODELS": str(whole / "models"),
        "HARNESS_BENCHMARKS": str(whole / "benchmarks"),
        "MLFLOW_TRACKING_URI": f"sqlite:///{whole}/mlflow.db",
    }


def stages(work: Path) -> dict[str, dict[str, Any]]:
    """Return the manifests of the stages that are done, by fingerprint."""
    found = [json.loads(p.read_text()) for p in (work / "store" / "stages").glob("*/*/stage.json")]
    return {manifest["fingerprint"]: manifest for manifest in found}


def rows(work: Path, kind: str, file: str) -> dict[str, list[dict[str, Any]]]:
    """Return what a file has in each stage of a kind, by fingerprint."""
    return {
        name: pq.read_table(work / "store" / "stages" / name[:2] / name / file).to_pylist()
        for name, manifest in stages(work).items()
        if manifest["kind"] == kind
    }


def scores(work: Path) -> dict[str, list[dict[str, Any]]]:
    """Return the per-prompt values of the judges' stages, by fingerprint."""
    return rows(work, "judge", "scores.parquet")


def test_the_profile_offers_what_the_papers_does_but_for_table_9(
    registries: None, tmp_path: Path
) -> None:
    """Table 9's tasks are lm-evaluation-harness's own and cannot be made up."""
    build.learn_benchmark()
    paper, tables = load_profiles()["paper"], load_tables()
    stand_in = named_profile(str(write_profile(tmp_path)))
    same = ("algorithms", "arms", "train_modes", "rewriter", "selection", "pairs")
    assert all(getattr(paper, name) == getattr(stand_in, name) for name in same)
    assert set(paper.reward_models) == set(stand_in.reward_models)
    assert paper.creator.methods == stand_in.creator.methods
    assert set(paper.benchmarks) - set(stand_in.benchmarks) == {"downstream", "alpaca_eval"}
    assert set(paper.scores) - set(stand_in.scores) == set(paper.benchmarks["downstream"].columns)
    lacking = {name for name, table in tables.items() if table_unsupported(table, stand_in)}
    assert lacking == {"table9", "reward-models", "choosing", "selectors"}


def test_every_cell_of_table4_has_a_number(whole: Path) -> None:
    """Nine rows in five columns; the run again computes nothing."""
    before = stages(whole)
    again = harness(whole, "run", "--seeds", "0", "--json")
    assert again.returncode == 0, again.stderr
    cells = json.loads(again.stdout)["items"]
    assert len(cells) == 9 * 5
    assert Counter(cell["state"] for cell in cells) == {"ok": 45}
    assert all(cell["mean"] is not None and len(cell["runs"]) == 1 for cell in cells)
    assert {cell["scale"] for cell in cells} == {"toy"}
    assert stages(whole) == before


def test_the_head_of_the_report_names_the_models(whole: Path) -> None:
    for form in ("terminal", "markdown"):
        report = harness(whole, "report", "--format", form, "--full")
        assert report.returncode == 0, report.stderr
        head = " ".join(report.stdout.split())
        assert "scale: toy" in head
        assert "stand-in/gemma-2@files-" in head
        assert "stand-in/ArmoRM@files-" in head


def test_the_policy_is_trained_and_unusable_rewrites_are_counted(whole: Path) -> None:
    found = stages(whole)
    kinds = Counter(manifest["kind"] for manifest in found.values())
    assert kinds["train"] == 9
    assert kinds["judge"] == kinds["answer"] == 9 * 3
    evolved = rows(whole, "evolve", "attempts.parquet").values()
    assert {"unmarked", "unchanged"} <= {row["reason"] for tried in evolved for row in tried}
    answers = {
        json.dumps([row["completion"] for row in said])
        for name, said in rows(whole, "answer", "answers.parquet").items()
        if "ranked" in found[name]["settings"]["benchmark"]
    }
    assert len(answers) > 4, "training has to change what the policy says"


def test_a_killed_run_goes_on_to_the_same_numbers(
    whole: Path, shared: dict[str, str], tmp_path: Path
) -> None:
    running = subprocess.Popen(
        [*COMMAND, *on_table4(tmp_path, *ONE_ROW)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env=environment(tmp_path, **shared),
    )
    while not stages(tmp_path):
        with suppress(subprocess.TimeoutExpired):
            running.wait(0.05)
            pytest.fail("the run ended before any stage was done")
    running.kill()
    assert running.wait() == -signal.SIGKILL
    kept = stages(tmp_path)
    assert 0 < len(kept) < 11
    done = harness(tmp_path, *ONE_ROW, **shared)
    assert done.returncode == 0, done.stderr
    after = stages(tmp_path)
    assert {f: after[f]["finished"] for f in kept} == {f: m["finished"] for f, m in kept.items()}
    assert len(after) == 11
    undisturbed, resumed = scores(whole), scores(tmp_path)
    assert len(resumed) == 3
    assert all(undisturbed[fingerprint] == rows for fingerprint, rows in resumed.items())


def test_a_judge_that_is_lost_in_the_middle_is_one_sentence_and_costs_no_work(
    whole: Path, shared: dict[str, str], tmp_path: Path
) -> None:
    """MT-Bench asks for 16 ratings, of which 5 arrive; all else of the row is computed."""
    lost = harness(tmp_path, *ONE_ROW, STAND_IN_RATINGS="5", **shared)
    assert lost.returncode == 1, lost.stderr
    assert "Traceback" not in lost.stdout + lost.stderr
    assert "has no model stand-in/judge" in lost.stderr
    assert "run the same command to try again" in lost.stderr
    assert len(stages(tmp_path)) == 10
    done = harness(tmp_path, *ONE_ROW, **shared)
    assert done.returncode == 0, done.stderr
    found = scores(tmp_path)
    assert {key: scores(whole)[key] for key in found} == found != {}


def test_a_run_without_its_endpoints_is_refused_before_anything_is_computed(
    shared: dict[str, str], tmp_path: Path
) -> None:
    """The models and benchmarks are there, the prompts are not made here, and nobody serves."""
    refused = subprocess.run(
        [sys.executable, "-m", "harness.cli.main", *on_table4(tmp_path, "plan")],
        capture_output=True,
        text=True,
        check=False,
        env=environment(tmp_path, **shared),
    )
    assert refused.returncode == 2
    assert "stand-in-prompts/prompts.jsonl" in refused.stderr
    assert "Traceback" not in refused.stderr
