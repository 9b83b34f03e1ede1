"""Evaluations of real models in MLflow: read from what is kept, and the same on any server."""

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from mlflow import MlflowClient
from typer.testing import CliRunner
from world_of_names import in_folders_of_its_own

from harness.cli.main import app
from harness.errors import HarnessError
from harness.evaluation.benchmarks.mt_bench import MtBench
from harness.evaluation.files import Question
from harness.evaluation.scores import all_kept, folder_of, keep, load
from harness.tracking import Mlflow, evaluation_records
from harness.tracking.connection import default_uri
from harness.tracking.record import Record, metric_name

SOURCE = {"kind": "judged", "data": "d" * 64, "answers": "a" * 64}
COST = {"replies": 4, "prompt_tokens": 400, "completion_tokens": 40, "usd": None}


def kept(work: Path, judge: str = "gpt-4o-mini", score: float = 7.0) -> Path:
    """Keep ratings of two prompts: `score` and one point more."""
    records = [
        {"question_id": q, "model": "m/1", "judge": [judge], "turn": turn, "score": score + q}
        for q in (0, 1)
        for turn in (1, 2)
    ]
    questions = [Question("0", "math", ()), Question("1", "coding", ())]
    (found,) = MtBench.evaluations(records, questions)
    folder = folder_of(work / "evaluations", "mt_bench", "m/1", judge)
    return keep(folder, found, SOURCE, COST)


def record_of(path: Path) -> Record:
    (record,) = evaluation_records([path])
    return record


def test_a_record_holds_what_was_scored_and_by_whom(tmp_path: Path) -> None:
    path = kept(tmp_path)
    record = record_of(path)
    assert record.experiment == "evaluations/mt_bench"
    assert record.params == {
        "benchmark": "mt_bench",
        "model": "m/1",
        "judge": "gpt-4o-mini",
        "source.kind": "judged",
        "source.data": "d" * 64,
        "source.answers": "a" * 64,
    }
    metrics = {metric_name(name): value for name, value in record.scores.items()}
    assert metrics["average_gpt-4o-mini"] == 7.5
    assert metrics["average_gpt-4o-mini_low"] < 7.5 < metrics["average_gpt-4o-mini_high"]
    assert metrics["cost/prompt_tokens"] == 400.0
    assert "cost/usd" not in metrics
    assert record.tags["folder"] == str(path.parent)


def test_what_is_evaluated_again_keeps_its_time_and_other_data_are_another_run(
    tmp_path: Path,
) -> None:
    first = record_of(kept(tmp_path))
    assert record_of(kept(tmp_path)).digest == first.digest
    assert record_of(kept(tmp_path, score=5.0)).identity == first.identity
    path = kept(tmp_path)
    entry = load(path) | {"source": {**SOURCE, "answers": "b" * 64}}
    path.write_text(json.dumps(entry))
    assert record_of(path).identity != first.identity


def test_a_sync_brings_another_server_to_the_same_state(
    new_work_dir: Callable[[str], Path],
) -> None:
    work, other = new_work_dir("work"), new_work_dir("other")
    files = [kept(work), kept(work, "gpt-4")]
    mlflow = Mlflow(work, pytest.fail)
    mlflow.attempt(lambda: evaluation_records(files))
    assert mlflow.write(lambda: evaluation_records(files)) == Counter(unchanged=2)
    client = MlflowClient(tracking_uri=default_uri(work))
    experiment = client.get_experiment_by_name("evaluations/mt_bench")
    runs = client.search_runs([experiment.experiment_id])
    assert {run.data.metrics.get("average") for run in runs} == {None, 7.5}
    assert {run.info.status for run in runs} == {"FINISHED"}
    elsewhere = Mlflow(work, pytest.fail, default_uri(other))
    assert elsewhere.write(lambda: evaluation_records(files)) == Counter(created=2)
    kept(work, "gpt-4", score=5.0)
    assert elsewhere.write(lambda: evaluation_records(files)) == Counter(unchanged=1, replaced=1)


@pytest.mark.parametrize(
    ("part", "instead"),
    [("source", "sourse"), ("notes", "note"), ("", ""), ("", "{"), ("", "[]"), ("", '{"a": 5}')],
)
def test_a_file_that_is_no_evaluation_is_one_sentence(
    tmp_path: Path, part: str, instead: str
) -> None:
    path = kept(tmp_path)
    whole = path.read_text("utf-8")
    path.write_text(whole.replace(part or whole, instead, 1), encoding="utf-8")
    assert all_kept(tmp_path) == [path]
    with pytest.raises(HarnessError, match="delete it and evaluate again"):
        record_of(path)


def test_a_sync_writes_the_evaluations_that_were_kept(
    new_work_dir: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch, world_folder: Path
) -> None:
    work = in_folders_of_its_own(monkeypatch, new_work_dir("there").parent, world_folder)
    new_work_dir("work")
    kept(work)
    for change in ("created", "unchanged"):
        said = CliRunner().invoke(app, ["sync", "--json"]).stdout
        synced = {"what": "evaluations", "runs": 1, "changes": {change: 1}}
        assert json.loads(said)["items"] == [synced]
