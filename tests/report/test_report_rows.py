"""Beside the cells: what the creator did, and where prompts lie, whole or a state."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from toy_tables import DECLARATION, report_of, toy_runs, write_files, write_prompts

from harness.pipeline.runs import TableRuns
from harness.report.blocks import creation_block
from harness.report.parts import Creation
from harness.report.render import as_markdown, as_text
from harness.report.rows import StoreReader, creations, creator_stages, prompt_distances
from harness.runtime import Store
from harness.statistics.distance import bigrams, jensen_shannon

SELECT = {"selected": 4, "without_weight": 1, "without_spread": 0.25}
EVOLVE = {"calls": 20, "dropped": 2, "unusable": {"leftover": 1, "unchanged": 4}}
PAIR = {"pairs": 16, "ties": 4}


def write_creator(
    store: Store, runs: TableRuns, run_id: str, seed: int, **said: Mapping[str, object]
) -> None:
    """Write the creator's stages of a run that are named: `select={...}`, `evolve`, `pair`."""
    stages = creator_stages(runs.runs[run_id, seed])
    for name, summary in said.items():
        write_files(store, stages[name], summary=summary)


def by_row(runs: TableRuns, store: Store) -> dict[str, Creation]:
    return {found.row: found for found in creations(runs, store)}


def test_a_rows_facts_are_means_over_seeds_of_what_can_be_derived_by_hand(store: Store) -> None:
    """Seed 0: 1/4 without weight, ties 4/16, unusable 5/20. Seed 1: 3/4, 8/16, 15/30.

    Means: 1/2 without weight, (0.25 + 0.75) / 2 without spread, 0.375 ties, 25 calls, (0.25 +
    0.5) / 2 = 0.375 unusable, 3 dropped.
    """
    runs = toy_runs()
    write_creator(store, runs, "dpo-eva-a_min", 0, select=SELECT, evolve=EVOLVE, pair=PAIR)
    more: dict[str, dict[str, object]] = {
        "select": {"selected": 4, "without_weight": 3, "without_spread": 0.75},
        "evolve": {"calls": 30, "dropped": 4, "unusable": {"too long": 15}},
        "pair": {"pairs": 16, "ties": 8},
    }
    write_creator(store, runs, "dpo-eva-a_min", 1, **more)
    assert by_row(runs, store)["eva-a_min"] == Creation(
        row="eva-a_min", run="dpo-eva-a_min", state="ok", evolves=True, done=2,
        without_weight=0.5, without_spread=0.5, evolved_without_spread=0.375,
        calls=25.0, unusable=0.375, dropped=3.0,
    )  # fmt: skip
    rows = {row[0]: row[1:] for row in creation_block(report_of(runs, store)).rows}
    assert rows["θ_{1→1̄}: + eva [eva-a_min]"] == (
        "50.0%", "50.0%", "37.5%", "25", "37.5%", "3",
    )  # fmt: skip
    assert rows["θ_{0→1}: DPO"] == ("– no creator", "–", "–", "–", "–", "–")


def test_what_is_missing_is_a_state_and_not_averaged(store: Store) -> None:
    runs = toy_runs(seeds=[0, 1, 2])
    assert [found.state for found in creations(runs, store)] == [
        "not_available", "not_available", "not_run", "not_run",
    ]  # fmt: skip
    write_creator(store, runs, "dpo-eva-a_min", 1, select=SELECT, evolve=EVOLVE, pair=PAIR)
    write_creator(store, runs, "dpo-eva-a_min", 2, select=SELECT, evolve=EVOLVE)
    found = by_row(runs, store)["eva-a_min"]
    assert (found.state, found.done) == ("partial", 1)
    assert (found.without_weight, found.calls) == (None, None)
    uniform = creator_stages(runs.runs["dpo-eva-uniform", 0])["evolve"]
    store.record_failure(uniform, "the worker was killed", "")
    rows = creation_block(report_of(runs, store)).rows
    assert [row[1] for row in rows] == ["– no creator", "– no creator", "failed", "1/3 seeds"]


def test_a_number_that_a_stage_did_not_record_is_not_zero(store: Store) -> None:
    runs = toy_runs(seeds=[0])
    old = {"selected": 4, "without_spread": 0.25}
    write_creator(store, runs, "dpo-eva-a_min", 0, select=old, evolve=EVOLVE, pair={})
    found = by_row(runs, store)["eva-a_min"]
    assert (found.without_weight, found.without_spread) == (None, 0.25)
    figures = creation_block(report_of(runs, store)).rows[-1][1:]
    assert figures == ("not recorded", "25.0%", "not recorded", "20", "25.0%", "2")


def one_row(name: str, *chain: str) -> TableRuns:
    """Plan a table of one row, which goes through iterations of some kinds after the first."""
    row = {"id": name, "label": name, "run": f"dpo-{name}", "recipe": {"chain": ["human", *chain]}}
    return toy_runs(seeds=[0], table=DECLARATION | {"rows": [row]})


def test_prompts_selected_and_not_evolved_have_a_selection_only(store: Store) -> None:
    runs = one_row("select", "select")
    write_creator(store, runs, "dpo-select", 0, select=SELECT)
    (found,) = creations(runs, store)
    assert (found.state, found.evolves, found.without_weight) == ("ok", False, 0.25)
    assert (found.evolved_without_spread, found.calls, found.unusable) == (None, None, None)
    (row,) = creation_block(report_of(runs, store)).rows
    assert row == ("select", "25.0%", "25.0%", "–", "–", "–", "–")


def test_a_mix_that_lacks_evolved_pairs_is_named(store: Store) -> None:
    """795 of 800 in one seed, all of them in the other: 2.5 on average."""
    runs = toy_runs()
    report = report_of(runs, store)
    for seed, evolved in ((0, 795), (1, 800)):
        write_creator(store, runs, "dpo-eva-a_min", seed, select=SELECT, evolve=EVOLVE, pair=PAIR)
        mixed = runs.runs["dpo-eva-a_min", seed].iterations[-1].prompts
        write_files(store, mixed, summary={"asked": 800, "evolved": evolved})
    assert by_row(runs, store)["eva-a_min"].filled == 2.5
    report = report.model_copy(update={"creation": tuple(creations(runs, store))})
    (note,) = creation_block(report).notes[1:]
    assert "2.5 pairs of its training mix are original ones" in note


def test_the_same_prompts_again_have_no_creator(store: Store) -> None:
    """Whoever made them: the creator's work is that of the iteration before."""
    (found,) = creations(one_row("same", "eva", "same"), store)
    assert found.state == "not_available"


@pytest.mark.parametrize("seeds", [[0], list(range(10))])
def test_the_creator_is_in_every_form_of_the_report(store: Store, seeds: list[int]) -> None:
    runs = toy_runs(seeds=seeds)
    write_creator(store, runs, "dpo-eva-a_min", 0, select=SELECT, evolve=EVOLVE, pair=PAIR)
    report = report_of(runs, store)
    text, page = as_text(report), as_markdown(report)
    assert max(map(len, text.splitlines())) <= 80
    for words in ("Creator", "because fewer prompts than draws had a positive weight"):
        assert words in " ".join(text.split())
        assert words in page
    assert "without weight" not in " ".join(as_text(report, full=False).split())
    (row,) = [row for row in report.as_json()["creation"] if row["row"] == "eva-a_min"]
    assert row["calls"] == (20.0 if len(seeds) == 1 else None)


def prompt_distance(a: list[str], b: list[str]) -> float:
    return jensen_shannon(bigrams(a), bigrams(b))


def test_each_row_is_placed_against_its_seed_prompts_and_the_benchmarks(store: Store) -> None:
    """Bigrams, items masked: seed prompts and dpo-h1's pairs `sort # # #` (sort #, # #, # #).

    The benchmark's last turn `now sort # #` is also what the evolved pairs `now sort 3 1 2` are
    near to: (now sort, sort #, # #) against (now sort, sort #, # #, # #).
    """
    runs = toy_runs()
    before = {found.state for found in prompt_distances(runs, StoreReader(store))}
    assert before == {"not_available", "not_run"}
    write_prompts(store, runs)
    base, dpo, uniform, a_min = prompt_distances(runs, StoreReader(store))
    assert (base.state, base.to_seed) == ("not_available", None)
    assert (dpo.state, dpo.done, dpo.to_seed) == ("ok", 2, 0.0)
    assert uniform.to_seed == a_min.to_seed
    assert a_min.to_seed == pytest.approx(prompt_distance(["now sort 3 1 2"], ["sort 3 1 2"]))
    to_hard: Any = a_min.to_benchmarks["arena_hard"]
    assert to_hard == pytest.approx(prompt_distance(["now sort 3 1 2"], ["now sort 1 2"]))
    assert set(a_min.to_benchmarks) == {"arena_hard", "alpaca_eval"}
    assert to_hard < float(dpo.to_benchmarks["arena_hard"] or 0)


def test_training_prompts_of_some_seeds_are_not_averaged(store: Store) -> None:
    runs = toy_runs()
    write_prompts(store, runs)
    store.discard(runs.runs["dpo-h1", 1].iterations[0].pairs.fingerprint)
    dpo = prompt_distances(runs, StoreReader(store))[1]
    assert (dpo.state, dpo.done, dpo.to_seed) == ("partial", 1, None)
