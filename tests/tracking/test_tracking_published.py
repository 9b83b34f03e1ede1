"""Published results as MLflow's runs, without a store."""

from __future__ import annotations

import json
import shutil

import pytest

from harness.project import results_dir
from harness.tracking.published import SUFFIX, published_records
from harness.tracking.record import Record

TABLE = "table4"
SWEEP = "offline-evolve"


@pytest.fixture(scope="module")
def records(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Record]:
    """The records of one published table and one sweep, by experiment and name."""
    folder = tmp_path_factory.mktemp("results") / "micro"
    for place in (TABLE, f"sweeps/{SWEEP}"):
        shutil.copytree(results_dir() / "micro" / place, folder / place)
    return {f"{r.experiment}/{r.name}": r for r in published_records(folder.parent)}


def test_rows_have_the_numbers_of_the_published_report(records: dict[str, Record]) -> None:
    report = json.loads((results_dir() / "micro" / TABLE / "report.json").read_text("utf-8"))
    assert report["cells"]
    for cell in report["cells"]:
        scores = records[f"{TABLE}/micro{SUFFIX}/{cell['row']}"].read_scores()
        assert scores.get(f"ours/{cell['column']}") == cell["mean"]
        assert scores.get(f"gain/{cell['column']}") == cell["gain"]
        assert scores.get(f"paper/{cell['column']}") == cell["paper"]
    assert f"{TABLE}/micro{SUFFIX}/ours" in records
    assert f"{TABLE}/micro{SUFFIX}/paper" in records


def test_a_table_has_its_report_in_every_form(records: dict[str, Record]) -> None:
    files = records[f"{TABLE}/micro{SUFFIX}/ours"].files
    assert files is not None
    made = files.make()
    page = made["report.html"].decode()
    assert f'id="{TABLE}"' in page
    published = results_dir() / "micro" / TABLE
    assert json.loads(made["report.json"]) == json.loads((published / "report.json").read_text())
    assert made["report.md"].decode() in (published / "report.md").read_text("utf-8")


def test_every_run_behind_it_is_there_with_its_scores_by_prompt(
    records: dict[str, Record],
) -> None:
    digests = json.loads((results_dir() / "micro" / TABLE / "digests.json").read_text("utf-8"))
    runs = [record for name, record in records.items() if name.startswith(f"runs/micro{SUFFIX}")]
    assert len(runs) == len(digests["stages"])
    run = runs[0]
    assert run.status == "FINISHED"
    assert run.files is not None
    made = run.files.make()
    assert "recipe.yaml" in made
    table = json.loads(made[run.files.tables[0]])
    name = run.files.tables[0].removeprefix("scores/").removesuffix(".json")
    mean = sum(value for _, value in table["data"]) / len(table["data"])
    assert run.read_scores()[f"ours/{name}"] == pytest.approx(mean)


def test_trials_of_a_published_sweep_are_there(records: dict[str, Record]) -> None:
    trials = [name for name in records if name.startswith(f"sweeps/{SWEEP}/micro{SUFFIX}/")]
    report = json.loads(
        (results_dir() / "micro" / "sweeps" / SWEEP / "report.json").read_text("utf-8")
    )
    assert len(trials) == len(report["trials"])
