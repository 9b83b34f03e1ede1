"""Published results: whole, in place of the old ones, and their numbers follow from the scores."""

import hashlib
import json
import shutil
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from forging import forge, seal
from toy_page import write_lineage, write_training
from toy_tables import (
    change_rows,
    judge_of,
    scores_file,
    stored,
    toy_runs,
    write_all,
    write_files,
    write_scores,
)

from harness.errors import HarnessError
from harness.report.build import published_tables
from harness.report.page.examples import FILE, examples_in, examples_of, read_examples
from harness.report.publication import IndexEntry, Publication, Refused, read_index, read_published
from harness.report.publish import TABLE, outputs_behind, publish, recomputed, table_extent
from harness.report.verify import verify
from harness.runtime import Store
from harness.strict import Strict


def numbers(folder: Path) -> int:
    return table_extent(TABLE.check(folder)).numbers


def test_what_is_published_is_computed_again_to_the_same_digits(folder: Path) -> None:
    report, _ = read_published(folder)
    assert recomputed(report, folder).cells == report.cells
    assert numbers(folder) == 8
    assert sorted(path.name for path in folder.iterdir()) == [
        "digests.json", "report.json", "report.md", "scores.parquet",
    ]  # fmt: skip
    assert folder.parts[-3:] == ("results", "micro", "table90")
    assert [*read_index(folder.parent.parent)] == ["micro/table90"]


def test_the_scores_are_one_row_for_each_run_seed_score_and_prompt(folder: Path) -> None:
    """4 runs x 2 seeds x (4 prompts of one score + 3 of the other) = 56."""
    table = pq.read_table(scores_file(folder))
    assert table.column_names == ["run_id", "seed", "column", "prompt_id", "value"]
    assert len(table) == 56
    rows = table.to_pylist()
    keys = [(r["run_id"], r["seed"], r["column"], r["prompt_id"]) for r in rows]
    assert keys == sorted(set(keys))
    values = dict(zip(keys, (r["value"] for r in rows), strict=True))
    assert values["dpo-h1", 1, "ah_wr", "p3"] == 50 + 2 * 3 + 2 * 1


def test_the_digests_of_weights_and_answers_are_published(tmp_path: Path) -> None:
    runs, store = toy_runs(), Store(tmp_path)
    run = runs.runs["dpo-h1", 1]
    with store.writing(run.training[0]) as output:
        (output / "model").mkdir()
        (output / "model" / "model.safetensors").write_bytes(b"weights")
        (output / "log.json").write_text("{}")
    answers = run.judged["arena_hard"].inputs["answers"]
    write_files(store, answers, answers=[{"prompt_id": "p0", "completion": "1 2 3"}])
    sha256 = store.manifest(answers.fingerprint)["files"]["answers.parquet"]["sha256"]
    assert outputs_behind(runs, store)["dpo-h1/micro/seed1"] == {
        "train 1 model/model.safetensors": hashlib.sha256(b"weights").hexdigest(),
        "answer arena_hard": sha256,
    }


def test_the_published_json_has_the_agreed_keys(folder: Path) -> None:
    data = json.loads((folder / "report.json").read_text(encoding="utf-8"))
    assert list(data) == [
        "table", "profile", "scale", "seeds", "columns", "rows", "cells", "summary", "facts",
        "inadmissible", "power", "failures", "origin",
        "assumptions", "notes",
    ]  # fmt: skip
    assert list(data["columns"][0]) == ["id", "score", "unit", "direction"]
    assert list(data["rows"][0]) == ["id", "label", "baseline", "runs"]
    assert data["origin"]["commits"] == ["0123456789ab"]
    digests = json.loads((folder / "digests.json").read_text())
    judge = judge_of(toy_runs(), "dpo-h1", 1, "ah_wr").fingerprint
    assert digests["stages"]["dpo-h1/micro/seed1"]["judge arena_hard"] == judge
    assert str(folder.parents[2]) not in (folder / "report.md").read_text(encoding="utf-8")


def test_prompts_are_published_where_they_are_the_embedded_world_s(
    store: Store, tmp_path: Path
) -> None:
    runs = toy_runs()
    write_lineage(store, runs)
    write_training(store, runs)
    folder = publish(stored(runs, store), tmp_path / "results", allow_fewer=True)
    assert read_examples(folder / FILE) == examples_of(runs, store)
    assert FILE in json.loads((folder / "digests.json").read_text())["files"]
    (found,) = published_tables([runs.table], runs.profile, tmp_path / "results")
    examples = examples_in(found)
    assert examples is not None
    assert [it.steps[0].name for it in examples.lineages] == ["h2", "h1", "h3"]
    (folder / FILE).write_text("[]")
    with pytest.raises(HarnessError, match="is not what was published"):
        read_published(folder)
    with pytest.raises(HarnessError, match=r"examples\.json was published in another form"):
        read_examples(folder / FILE)


def change_a_value(rows: list[dict[str, Any]]) -> None:
    rows[11]["value"] += 1e-6


def leave_a_run_out(rows: list[dict[str, Any]]) -> None:
    key = ("run_id", "seed", "column")
    rows[:] = [row for row in rows if [row[k] for k in key] != [rows[-1][k] for k in key]]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (change_a_value, r"cannot be recomputed from scores\.parquet"),
        (leave_a_run_out, "recomputed"),
    ],
)
def test_changed_scores_are_found_even_with_a_new_digest(
    folder: Path, change: Callable[[list[dict[str, Any]]], None], words: str
) -> None:
    change_rows(scores_file(folder), change)
    seal(folder)
    with pytest.raises(HarnessError, match=words):
        TABLE.check(folder)


@pytest.mark.parametrize(("part", "name"), [("cells", "mean"), ("summary", "spearman")])
def test_a_changed_number_is_found_even_with_a_new_digest(
    folder: Path, part: str, name: str
) -> None:
    forge(folder, lambda data: data[part][0].update({name: 0.5}))
    with pytest.raises(HarnessError, match=f"{name} .*cannot be recomputed"):
        TABLE.check(folder)


def test_what_is_missing_is_published_as_missing(store: Store, tmp_path: Path) -> None:
    runs = toy_runs()
    results = tmp_path / "results"
    folder = publish(stored(runs, store), results, allow_fewer=True)
    assert numbers(folder) == 0
    assert len(pq.read_table(scores_file(folder))) == 0
    write_scores(store, runs, "dpo-h1", 0, ah_wr={"p0": 50.0, "p1": 52.0})
    assert publish(stored(runs, store), results, allow_fewer=True) == folder
    assert numbers(folder) == 0
    assert {cell.state for cell in read_published(folder)[0].cells} == {
        "partial", "not_run", "not_available",
    }  # fmt: skip
    assert [path.name for path in folder.parent.iterdir()] == ["table90"]


def test_nothing_does_not_replace_what_stands_there(folder: Path, tmp_path: Path) -> None:
    """The store is another one and empty, as with another work folder."""
    runs, empty, results = toy_runs(), Store(tmp_path / "empty"), tmp_path / "results"
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    with pytest.raises(Refused) as refused:
        publish(stored(runs, empty), results)
    assert "it lacks base/ah_wr (not run), base/mt_avg (not run), " in str(refused.value)
    assert "the published result has more: 8 of 8 numbers" in str(refused.value)
    assert "`--allow-fewer`" in str(refused.value)
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before
    assert verify(results).cells == 8
    publish(stored(runs, empty), results, allow_fewer=True)
    assert (numbers(folder), verify(results).cells) == (0, 0)


@pytest.mark.parametrize(
    ("seeds", "rows", "words"),
    [((0,), 4, "seed 1"), ((0, 1), 2, "rows `eva-uniform`, `eva-a_min`, 4 of 8 numbers")],
)
def test_fewer_seeds_or_rows_do_not_replace_more(
    folder: Path, store: Store, seeds: tuple[int, ...], rows: int, words: str
) -> None:
    """Each is whole by itself; the index remembers what stood there when the folder is gone."""
    runs = toy_runs(seeds)
    fewer = replace(runs, rows=runs.rows[:rows])
    results, words = folder.parent.parent, f"the published result has more: {words}"
    with pytest.raises(Refused, match=words):
        publish(stored(fewer, store), results)
    shutil.rmtree(folder)
    with pytest.raises(Refused, match=words):
        publish(stored(fewer, store), results)
    publish(stored(fewer, store), results, allow_fewer=True)
    assert verify(results).cells == 2 * rows
    write_all(store, toy_runs((2,)))
    publish(stored(toy_runs((0, 1, 2)), store), results)  # more replaces fewer
    assert read_published(folder)[0].seeds == (0, 1, 2)


class Toy(Strict):
    number: int


def test_rivals_publish_one_after_the_other(tmp_path: Path) -> None:
    """Twelve publications, four at a time: the index names them all."""
    results = tmp_path / "results"

    def extent(report: Toy) -> IndexEntry:
        return IndexEntry(rows=(), seeds=(report.number,), counts={})

    def put(number: int) -> None:
        kind = Publication("toy", Toy, extent, lambda it, _: it)
        kind.publish(Toy(number=number), "", f"micro/toy{number}", results)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(put, range(12)))
    assert sorted(read_index(results)) == sorted(f"micro/toy{number}" for number in range(12))


@pytest.mark.parametrize("at", ["write", "rename"])
def test_a_publication_that_fails_leaves_the_one_before(
    folder: Path, store: Store, monkeypatch: pytest.MonkeyPatch, at: str
) -> None:
    """The disk is full while it is written, or when it would take the other's place."""
    rename = Path.rename

    def full_disk(*given: Any) -> Any:
        if at == "write" or given[0].name == "new":
            raise OSError(28, "No space left on device")
        return rename(*given)

    place = "harness.report.publish.write_scores" if at == "write" else "pathlib.Path.rename"
    monkeypatch.setattr(place, full_disk)
    with pytest.raises(HarnessError, match="the disk is full"):
        publish(stored(toy_runs(), store), folder.parent.parent)
    assert numbers(folder) == 8
    assert [path.name for path in folder.parent.iterdir()] == ["table90"]


def test_prompts_of_others_are_not_published(store: Store, tmp_path: Path) -> None:
    """Those of a data set of the hub may not be handed on."""
    runs = toy_runs()
    write_lineage(store, runs)
    write_training(store, runs)
    theirs = runs.profile.prompts.model_copy(update={"source": "owner/prompts"})
    profile = runs.profile.model_copy(update={"prompts": theirs})
    found = replace(stored(runs, store), profile=profile)
    folder = publish(found, tmp_path / "results", allow_fewer=True)
    assert not (folder / FILE).exists()
