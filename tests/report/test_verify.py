"""What is published is checked as a whole, and the first difference is named."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from toy_tables import judge_of, scores_file, toy_runs, write_all, write_prompts

from harness.errors import HarnessError
from harness.project import PACKAGE, results_dir
from harness.report.cells import build_cells
from harness.report.publish import publish
from harness.report.verify import verify
from harness.store import Store


@pytest.fixture
def results(store: Store, tmp_path: Path) -> Path:
    runs = toy_runs()
    write_all(store, runs)
    write_prompts(store, runs)
    publish(runs, build_cells(runs, store), store, tmp_path / "results")
    return tmp_path / "results"


def change_score(folder: Path, run_id: str, by: float) -> None:
    """Change the first stored score of a run by hand."""
    path = scores_file(folder)
    table = pq.read_table(path)
    values = table.column("value").to_pylist()
    values[table.column("run_id").to_pylist().index(run_id)] += by
    place = table.schema.get_field_index("value")
    pq.write_table(table.set_column(place, "value", pa.array(values, pa.float64())), path)


def test_what_is_published_is_verified_with_and_without_the_store(
    results: Path, store: Store
) -> None:
    """Four rows in two columns with scores."""
    found = verify(results)
    assert found.as_json() == {
        "tables": ["micro/table90"], "sweeps": [], "cells": 8, "figures": [], "points": 0,
        "unchecked": [], "stages": None, "absent": None,
    }  # fmt: skip
    whole = verify(results, store)
    assert whole.stages == len(list(store.stages()))
    assert whole.absent == 0


def test_a_checkout_without_the_store_misses_the_stages_behind_the_tables(
    results: Path, tmp_path: Path
) -> None:
    found = verify(results, Store(tmp_path / "elsewhere"))
    assert found.stages == 0
    assert found.absent is not None
    assert found.absent > 0


def test_one_changed_score_is_named_with_the_first_number_it_changes(results: Path) -> None:
    """The score is a prompt's of `eva-a_min`, the last row, in the first column."""
    change_score(results / "micro" / "table90", "dpo-eva-a_min", 1.0)
    with pytest.raises(HarnessError, match=r"scores\.parquet is not what was published") as caught:
        verify(results)
    assert "the first number that changes is the mean of `eva-a_min` in `ah_wr`" in str(
        caught.value
    )


def test_one_changed_number_is_named(results: Path) -> None:
    path = results / "micro" / "table90" / "report.json"
    report = json.loads(path.read_text(encoding="utf-8"))
    cell = next(c for c in report["cells"] if c["row"] == "dpo-1" and c["column"] == "mt_avg")
    cell["ci_high"] += 0.001
    path.write_text(json.dumps(report), encoding="utf-8")
    with pytest.raises(HarnessError, match="ci_high of `dpo-1` in `mt_avg`"):
        verify(results)


def test_a_broken_file_is_named(results: Path) -> None:
    (results / "micro" / "table90" / "scores.parquet").write_bytes(b"PAR1 no more")
    with pytest.raises(HarnessError, match=r"scores\.parquet is not what was published"):
        verify(results)


def test_one_changed_file_of_the_store_is_named(results: Path, store: Store) -> None:
    stage = judge_of(toy_runs(), "dpo-h1", 0, "ah_wr")
    path = store.path(stage.fingerprint) / "scores.parquet"
    path.chmod(0o644)
    path.write_bytes(path.read_bytes() + b"x")
    assert verify(results).cells == 8
    with pytest.raises(HarnessError, match=r"scores\.parquet"):
        verify(results, Store(store.root))


def test_a_report_without_scores_is_named_as_unchecked(results: Path) -> None:
    folder = results / "micro" / "study"
    folder.mkdir(parents=True)
    (folder / "report.json").write_text("{}", encoding="utf-8")
    assert verify(results).unchecked == ("micro/study",)


def test_a_sweep_without_scores_is_not_as_it_was_published(results: Path) -> None:
    folder = results / "micro" / "sweeps" / "toy"
    folder.mkdir(parents=True)
    (folder / "report.json").write_text("{}", encoding="utf-8")
    with pytest.raises(HarnessError, match=r"sweeps/toy/digests\.json is missing"):
        verify(results)


@pytest.mark.parametrize("name", ["digests.json", "scores.parquet", "report.md"])
def test_a_table_does_not_pass_by_losing_a_file(results: Path, name: str) -> None:
    (results / "micro" / "table90" / name).unlink()
    with pytest.raises(HarnessError, match=f"{name} is missing"):
        verify(results)


def test_nothing_published_is_nothing_to_check(tmp_path: Path) -> None:
    assert verify(tmp_path / "results").tables == ()


def test_the_results_of_the_project_are_verified_in_ten_seconds_without_heavy_libraries() -> None:
    """Its own processor time counts, because a loaded machine is no failure."""
    code = (
        "import sys\n"
        "from harness.report.verify import verify\n"
        "from harness.project import results_dir\n"
        "verify(results_dir())\n"
        "heavy = {'torch', 'transformers', 'trl', 'mlflow', 'pandas'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
    )
    assert results_dir().is_dir()
    before = os.times()
    environment = {**os.environ, "PYTHONPATH": str(PACKAGE.parent), "OMP_NUM_THREADS": "1"}
    subprocess.run([sys.executable, "-c", code], check=True, env=environment)
    after = os.times()
    used = after.children_user + after.children_system
    assert used - before.children_user - before.children_system < 10.0
