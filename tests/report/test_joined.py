"""Seeds or rows of another store beside published ones: as if all had been in one."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from toy_tables import (
    DECLARATION,
    stored,
    toy_runs,
    write_prompts,
    write_scores,
    write_whole,
)

from harness.errors import UserError
from harness.pipeline.runs import TableRuns
from harness.report.build import published_results
from harness.report.controls import Controls, KnownControls
from harness.report.joined import joined
from harness.report.model import RowFacts
from harness.report.publication import read_digests, read_published
from harness.report.publish import TABLE, publish
from harness.report.results import Results
from harness.report.view import fewer_seeds
from harness.runtime import Store


def written(folder: Path, seeds: Sequence[int], **declared: Any) -> Results:
    """Return what a new store has of the toy table with some seeds."""
    runs = toy_runs(seeds, table={**DECLARATION, **declared})
    write_whole(Store(folder), runs)
    return stored(runs, Store(folder))


def added(found: Results, folder: Path, **declared: Any) -> Path:
    """Publish results beside what is published; return the folder."""
    assert found.runs is not None
    known = KnownControls(found.profile, found.runs[1])

    def plan(seeds: Sequence[int], rows: Sequence[str]) -> TableRuns:
        table = {**DECLARATION, **declared}
        return toy_runs(
            seeds, table={**table, "rows": [r for r in table["rows"] if r["id"] in rows]}
        )

    return publish(joined(plan, found, folder, known), folder.parents[1], joined=folder)


@pytest.mark.parametrize(("first", "more"), [((0,), (1, 2)), ((0, 2), (1,))])
def test_seeds_of_two_stores_are_published_as_those_of_one(
    tmp_path: Path, first: tuple[int, ...], more: tuple[int, ...]
) -> None:
    at_once = publish(written(tmp_path / "one", (0, 1, 2)), tmp_path / "results1")
    folder = publish(written(tmp_path / "two", first), tmp_path / "results2")
    assert added(written(tmp_path / "three", more), folder) == folder
    the_same(folder, at_once)


@pytest.mark.parametrize(("first", "more"), [((0, 1, 2), (1, 3)), ((0, 1, 3), (1, 2))])
def test_rows_of_two_stores_are_published_as_those_of_one(
    tmp_path: Path, first: tuple[int, ...], more: tuple[int, ...]
) -> None:
    """The rows are base, dpo-1, eva-uniform and eva-a_min; dpo-1, the baseline, is in both."""
    at_once = publish(written(tmp_path / "one", (0, 1)), tmp_path / "results1")
    old, new = ([DECLARATION["rows"][at] for at in places] for places in (first, more))
    folder = publish(written(tmp_path / "two", (0, 1), rows=old), tmp_path / "results2")
    assert added(written(tmp_path / "three", (0, 1), rows=new), folder) == folder
    the_same(folder, at_once)


CONTROL = {
    "id": "rises", "statement": "It rises.", "training": "offline", "column": "ah_wr",
    "kind": "rising", "standard_errors": 3, "rows": ["base", "eva-a_min"],
}  # fmt: skip
CONTROLS: dict[str, Any] = {"controls": [CONTROL]}


def test_rows_of_controls_have_seeds_of_their_own_until_the_others_are_added(
    tmp_path: Path,
) -> None:
    """Seed 2 comes first for all rows but the last, then for that one and its baseline."""
    *others, last = DECLARATION["rows"]
    folder = publish(written(tmp_path / "one", (0, 1), **CONTROLS), tmp_path / "results")
    added(written(tmp_path / "two", (2,), rows=others, **CONTROLS), folder, **CONTROLS)
    TABLE.check(folder)
    found, _ = read_published(folder)
    two, three = (
        publish(written(tmp_path / f"at once {n}", range(n), **CONTROLS), tmp_path / f"results{n}")
        for n in (2, 3)
    )
    assert found.seeds == (0, 1, 2)
    for cell in found.cells:
        whole = three if cell.row != last["id"] else two
        assert cell == read_published(whole)[0].cell(cell.row, cell.column)
    assert [it.state for it in found.controls] == ["not_run"]
    stages = [read_published(it)[0].origin.stages for it in (two, folder, three)]
    assert stages == sorted({*stages})
    assert fewer_seeds(found) == " (eva-a_min: 0-1)"
    again = [others[1], last]
    added(written(tmp_path / "three", (2,), rows=again, **CONTROLS), folder, **CONTROLS)
    the_same(folder, three)
    assert [it.state for it in read_published(folder)[0].controls] == ["passed"]


@pytest.mark.parametrize(
    ("rows", "seeds", "message"),
    [
        ([0, 1, 2], (1, 2), "has seed 1, 2 already"),
        ([0, 1, 2], (2, 3), "has seed 2 already"),
        ([1, 2, 3], (2, 3), "has seed 2 already"),
        ([1, 3], (0,), "has other rows and other seeds"),
    ],
)
def test_rows_of_controls_share_all_of_some_seeds_or_none_and_have_two_at_least(
    tmp_path: Path, rows: list[int], seeds: tuple[int, ...], message: str
) -> None:
    """Published are three rows at seeds 0 to 2; 2 and 3 overlap them by half."""
    own = [DECLARATION["rows"][at] for at in rows]
    first = written(tmp_path / "one", (0, 1, 2), rows=DECLARATION["rows"][:3], **CONTROLS)
    folder = publish(first, tmp_path / "results")
    with pytest.raises(UserError, match=message):
        added(written(tmp_path / "two", seeds, rows=own, **CONTROLS), folder, **CONTROLS)


def the_same(folder: Path, at_once: Path) -> None:
    """Check that what was published in two steps is what was at once, but for the time."""
    found, scores = read_published(folder)
    expected, expected_scores = read_published(at_once)
    finished = {"finished": expected.origin.finished}
    origin = found.origin.model_copy(update=finished)
    assert origin.model_dump() == expected.origin.model_dump()
    assert found.model_copy(update={"origin": origin, "facts": ()}) == expected.model_copy(
        update={"facts": ()}
    )
    assert scores == expected_scores
    for own, other in zip(found.facts, expected.facts, strict=True):
        assert own.values == pytest.approx(other.values)
        assert (own.row, own.state, own.done) == (other.row, other.state, other.done)
    assert read_digests(folder).stages == read_digests(at_once).stages
    assert read_digests(folder).outputs == read_digests(at_once).outputs
    TABLE.check(folder)


def test_seeds_are_added_to_what_a_killed_publication_moved_away(tmp_path: Path) -> None:
    folder = publish(written(tmp_path / "one", (0, 1)), tmp_path / "results")
    scratch = folder.with_name(f".{folder.name}.part")
    scratch.mkdir()
    folder.rename(scratch / "old")
    added(written(tmp_path / "two", (2,)), folder)
    assert read_published(folder)[0].seeds == (0, 1, 2)
    assert not scratch.exists()


def test_an_incomplete_seed_leaves_its_cells_incomplete(tmp_path: Path) -> None:
    folder = publish(written(tmp_path / "one", (0, 1)), tmp_path / "results")
    runs, store = toy_runs((2,)), Store(tmp_path / "two")
    write_prompts(store, runs)
    write_scores(store, runs, "dpo-h1", 2, ah_wr={f"p{i}": 50.0 + i for i in range(4)})
    known = KnownControls(runs.profile, store)
    found = joined(lambda seeds, _: toy_runs(seeds), stored(runs, store), folder, known)
    states = {(it.row, it.column): it.state for it in found.report.cells}
    assert states["dpo-1", "ah_wr"] == "ok"
    assert states["dpo-1", "mt_avg"] == states["eva-a_min", "ah_wr"] == "partial"


def test_what_does_not_belong_together_is_not_joined(tmp_path: Path) -> None:
    folder = publish(written(tmp_path / "one", (0, 1)), tmp_path / "results")
    with pytest.raises(UserError, match="has seed 1 already; add others"):
        added(written(tmp_path / "two", (1, 2)), folder)
    fewer = {"rows": DECLARATION["rows"][:-1]}
    with pytest.raises(UserError, match="has seed 0, 1 already; add others"):
        added(written(tmp_path / "rows", (0, 1), **fewer), folder)
    with pytest.raises(UserError, match="has other rows and other seeds"):
        added(written(tmp_path / "three", (2,), **fewer), folder)
    changed = [*DECLARATION["rows"][:-1], DECLARATION["rows"][-1] | {
        "recipe": {"creator": {"metric": "a_avg"}}
    }]  # fmt: skip
    with pytest.raises(UserError, match="`dpo-eva-a_min/micro/seed0` with other settings"):
        added(written(tmp_path / "four", (2,), rows=changed), folder, rows=changed)
    rebased = [*DECLARATION["rows"][:-1], DECLARATION["rows"][-1] | {"baseline": "eva-uniform"}]
    with pytest.raises(UserError, match="was published before its rows or columns changed"):
        added(written(tmp_path / "five", (2,), rows=rebased), folder, rows=rebased)


def test_why_a_published_cell_has_no_number_is_still_said_beside_more_seeds(tmp_path: Path) -> None:
    found = written(tmp_path / "one", (0,))
    said = ("not available: base: the judge is away",)
    report = found.report.model_copy(update={"failures": said})
    folder = publish(replace(found, report=report), tmp_path / "results")
    added(written(tmp_path / "two", (1,)), folder)
    assert read_published(folder)[0].failures == said


def test_added_rows_complete_a_baseline_of_which_a_seed_was_lacking(tmp_path: Path) -> None:
    """Rows base and dpo-1, then dpo-1 and eva-a_min, at two seeds; dpo-1 had one at first."""
    old, new = ([DECLARATION["rows"][at] for at in places] for places in ((0, 1), (1, 3)))
    runs, store = toy_runs((0, 1), table={**DECLARATION, "rows": old}), Store(tmp_path / "one")
    write_whole(store, toy_runs((0,), table={**DECLARATION, "rows": old}))
    write_whole(store, toy_runs((0, 1), table={**DECLARATION, "rows": old[:1]}))
    folder = publish(stored(runs, store), tmp_path / "results", allow_fewer=True)
    assert read_published(folder)[0].cell("base", "ah_wr").gain is None
    added(written(tmp_path / "two", (0, 1), rows=new), folder)
    at_once = publish(
        written(tmp_path / "three", (0, 1), rows=[*old, new[1]]), tmp_path / "results1"
    )
    TABLE.check(folder)
    assert read_published(folder)[0].cells == read_published(at_once)[0].cells
    assert read_digests(folder).stages == read_digests(at_once).stages


def test_what_is_published_is_published_again_beside_the_controls_of_today(tmp_path: Path) -> None:
    """No stage is there any more. What tripling the prompts gains was not known before."""
    before = written(tmp_path / "one", (0, 1))
    failures = ("not available: base: the judge is away",)
    report = before.report.model_copy(update={"failures": failures})
    folder = publish(replace(before, report=report), tmp_path / "results")
    digests, (old, scores) = read_digests(folder), read_published(folder)
    assert [it.dose for it in old.power] == [None]
    known = KnownControls(before.profile, None, tmp_path / "results")
    found = published_results(before.table, folder, known, renewed=True)
    publish(found, tmp_path / "results", joined=folder)
    assert read_digests(folder) == digests
    tripled = Controls((), {("offline", "ah_wr"): 2.5})
    known.applying_to = lambda cells=(): tripled  # type: ignore[method-assign]
    found = published_results(before.table, folder, known, renewed=True)
    publish(found, tmp_path / "results", joined=folder)
    (now, again), (power,) = read_published(folder), old.power
    assert now.power == (power.model_copy(update={"dose": 2.5}),)
    assert now.inadmissible not in (None, old.inadmissible)
    changed = {"power": old.power, "inadmissible": old.inadmissible}
    assert now.model_copy(update=changed) == old
    assert (again, now.failures) == (scores, failures)
    kept = read_digests(folder)
    assert (kept.stages, kept.outputs) == (digests.stages, digests.outputs)
    known.applying_to = lambda cells=(): None  # type: ignore[method-assign]
    of_other_runs = published_results(before.table, folder, known, renewed=True)
    assert of_other_runs.report == now


def with_facts(found: Results, done: int, **values: float) -> Results:
    facts = RowFacts(row="dpo-1", run="dpo-h1", state="ok", done=done, values=values)
    return replace(found, read_facts=lambda: (facts,))


def test_a_fact_is_the_mean_of_all_seeds(tmp_path: Path) -> None:
    """(2 x 3 + 9) / 3 = 5; a fact that some seeds lack is left out, as of one store."""
    before = with_facts(written(tmp_path / "one", (0, 1)), 2, seconds=3.0, tokens=7.0)
    folder = publish(before, tmp_path / "results")
    added(with_facts(written(tmp_path / "two", (2,)), 1, seconds=9.0, rollouts=4.0), folder)
    (facts,) = read_published(folder)[0].facts
    assert (facts.done, facts.values) == (3, {"seconds": 5.0})


def test_seeds_that_have_not_run_leave_the_published_ones_there(tmp_path: Path) -> None:
    before = with_facts(written(tmp_path / "one", (0, 1)), 2, seconds=3.0)
    folder = publish(before, tmp_path / "results")
    runs, store = toy_runs((2,)), Store(tmp_path / "empty")
    known = KnownControls(runs.profile, store)
    unrun = with_facts(stored(runs, store), 0)
    (facts,) = unrun.facts
    unrun = replace(unrun, read_facts=lambda: (facts.model_copy(update={"state": "not_run"}),))
    found = joined(lambda seeds, _: toy_runs(seeds), unrun, folder, known)
    states = {it.state: (len(it.runs), len(it.seeds)) for it in found.report.cells}
    assert states == {"partial": (2, 3), "not_available": (0, 3)}
    assert [(it.state, it.done) for it in found.facts] == [("partial", 2)]
