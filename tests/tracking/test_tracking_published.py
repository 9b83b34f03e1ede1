"""Published results as MLflow's runs, without a store."""

from __future__ import annotations

import json
import shutil

import pytest

from harness.project import results_dir
from harness.report.publication import read_index, write_index
from harness.report.render import escape
from harness.tracking.record import Record
from harness.tracking.tables import SUFFIX, published_records

TABLE = "table4"
SWEEP = "tune-dpo"


@pytest.fixture(scope="module")
def records(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Record]:
    """The records of one published table and one sweep, by experiment and name."""
    folder = tmp_path_factory.mktemp("results") / "micro"
    for place in (TABLE, f"sweeps/{SWEEP}"):
        shutil.copytree(results_dir() / "micro" / place, folder / place)
    write_index(folder.parent, {f"micro/{TABLE}": read_index(results_dir())[f"micro/{TABLE}"]})
    return {f"{r.experiment}/{r.name}": r for r in published_records(folder.parent)}


def test_rows_have_the_numbers_of_the_published_report(records: dict[str, Record]) -> None:
    report = json.loads((results_dir() / "micro" / TABLE / "report.json").read_text("utf-8"))
    rows = {record.params.get("row"): record for record in records.values()}
    assert report["cells"]
    for cell in report["cells"]:
        scores = rows[cell["row"]].scores
        for metric, name in (("ours", "mean"), ("gain", "gain"), ("paper", "paper")):
            value = None if cell[name] is None else float(f"{cell[name]:.4g}")
            assert scores.get(f"{metric}/{cell['column']}") == value
    values = rows["eva-a_min"].metrics()
    seeds = {value.step: value.value for value in values if value.name == "seeds/ah_wr"}
    assert sorted(seeds) == report["seeds"]
    (cell,) = [c for c in report["cells"] if (c["row"], c["column"]) == ("eva-a_min", "ah_wr")]
    assert sum(seeds.values()) / len(seeds) == pytest.approx(cell["mean"])


def test_our_numbers_come_before_the_papers(records: dict[str, Record]) -> None:
    """MLflow compares runs by what was logged first."""
    rows = [record for record in records.values() if "row" in record.params]
    assert rows
    for row in rows:
        are_papers = [name.startswith("paper/") for name in row.scores]
        assert are_papers == sorted(are_papers)
        assert True in are_papers


def test_trials_of_a_published_sweep_are_there(records: dict[str, Record]) -> None:
    trials = [name for name in records if name.startswith(f"sweeps/{SWEEP}/micro{SUFFIX}/")]
    report = json.loads(
        (results_dir() / "micro" / "sweeps" / SWEEP / "report.json").read_text("utf-8")
    )
    assert len(trials) == len(report["trials"])


def test_every_row_is_tagged_with_the_answer_that_heads_the_findings() -> None:
    text = (results_dir() / "README.md").read_text("utf-8")
    records = published_records(results_dir())
    (answer,) = {record.tags["answer"] for record in records if "row" in record.params}
    lines = answer.splitlines()
    assert len(lines) == 6
    assert all(escape(line) in text for line in lines)
