"""Table 4 from nothing to its report by the real command line, on stand-ins; killed, and resumed.

This is the code that a real profile runs, with small random models, made-up benchmarks, and creator
and judge behind HTTP. What is held here is that it completes, says what its numbers are worth, and
loses nothing when it is disturbed; the numbers mean nothing.
"""

import json
import subprocess
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from running import bare, ran

from harness.runtime import Store
from stand_in.profiles import write_profile

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
ONE_ROW = ("run", "--rows", "dpo-1", "--seeds", "0", "--jobs", "1")

# A minute and a half of processor time in all; the limit leaves room for a machine that is busy.
pytestmark = pytest.mark.timeout(900)


def environment(work: Path, **more: str) -> dict[str, str]:
    """Return an environment of a user who has set nothing but the work folder."""
    own = {"PYTHONPATH": str(ROOT), "HARNESS_WORK": str(work)}
    return bare("HARNESS_", "MLFLOW_") | own | more


def on_table4(work: Path, verb: str, *more: str) -> list[str]:
    """Return the arguments of a command whose profile is in its work folder."""
    return [verb, "table4", "--profile", str(write_profile(work)), *more]


def harness(
    work: Path, *arguments: str, code: int = 0, **more: str
) -> subprocess.CompletedProcess[str]:
    command = (HERE / "command.py", *on_table4(work, *arguments))
    return ran(*command, code=code, env=environment(work, **more))


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the work folder of an undisturbed run of table 4 that found nothing there."""
    work = tmp_path_factory.mktemp("whole") / "work"
    harness(work, "run", "--seeds", "0")
    return work


@pytest.fixture
def shared(whole: Path) -> dict[str, str]:
    """Return the variables by which another work folder has the same models, benchmarks, MLflow."""
    return {
        "HARNESS_MODELS": str(whole / "models"),
        "HARNESS_BENCHMARKS": str(whole / "benchmarks"),
        "MLFLOW_TRACKING_URI": f"sqlite:///{whole}/mlflow.db",
    }


def stages(work: Path) -> dict[str, Any]:
    """Return the manifests of the stages that are done, by fingerprint."""
    return {manifest["fingerprint"]: manifest for manifest in Store(work / "store").stages()}


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


def test_every_cell_of_table4_has_a_number(whole: Path) -> None:
    """Nine rows in five columns; the run again computes nothing."""
    before = stages(whole)
    again = harness(whole, "run", "--seeds", "0", "--json")
    cells = json.loads(again.stdout)["items"]
    assert len(cells) == 9 * 5
    assert Counter(cell["state"] for cell in cells) == {"ok": 45}
    assert all(cell["mean"] is not None and len(cell["runs"]) == 1 for cell in cells)
    assert {cell["scale"] for cell in cells} == {"toy"}
    assert stages(whole) == before


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


def test_a_judge_that_is_lost_in_the_middle_is_one_sentence_and_costs_no_work(
    whole: Path, shared: dict[str, str], tmp_path: Path
) -> None:
    """MT-Bench asks for 16 ratings, of which 5 arrive; all else of the row is computed."""
    lost = harness(tmp_path, *ONE_ROW, code=1, STAND_IN_RATINGS="5", **shared)
    assert "Traceback" not in lost.stdout + lost.stderr
    assert "has no model stand-in/judge" in lost.stderr
    assert "run the same command to try again" in lost.stderr
    assert len(stages(tmp_path)) == 10
    harness(tmp_path, *ONE_ROW, code=0, **shared)
    found = scores(tmp_path)
    assert {key: scores(whole)[key] for key in found} == found != {}
