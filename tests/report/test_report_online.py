"""What a report says of online rows: costs and the settings the paper leaves open."""

from __future__ import annotations

from typing import Any

import pytest
from toy_tables import DECLARATION, stored, toy_runs, write_files

from harness.pipeline.runs import TableRuns
from harness.registry.recipe import Online
from harness.report.blocks import detail_blocks
from harness.report.build import online_settings
from harness.report.page.examples import Examples, examples_of
from harness.report.rows import online_costs
from harness.runtime import Stage, Store

ONLINE = DECLARATION | {
    "id": "table91",
    "source": {"section": "4", "table": 91, "caption": "Toy."},
    "columns": DECLARATION["columns"][:1],
    "recipe": {"algorithm": "rloo", "online": {"prompts": "eva"}},
    "rows": [
        {"id": "base", "label": "θ_0: SFT", "run": "base", "baseline": "rloo-1x",
         "recipe": {"algorithm": None}, "values": {"ah_wr": "41.3"}},
        {"id": "rloo-1x", "label": "RLOO", "run": "rloo-1x",
         "recipe": {"online": {"prompts": "human"}}, "values": {"ah_wr": "51.6"}},
        {"id": "eva-1x", "label": "eva (1x)", "run": "eva-1x", "baseline": "rloo-1x",
         "values": {"ah_wr": "57.5"}},
        {"id": "eva-2x", "label": "eva (2x)", "run": "eva-2x", "baseline": "rloo-1x",
         "recipe": {"online": {"size": 2}}, "values": {"ah_wr": "60.1"}},
    ],
}  # fmt: skip


def planned(seeds: tuple[int, ...] = (0, 1)) -> TableRuns:
    return toy_runs(seeds, table=ONLINE)


def write_segment(store: Store, stage: Stage) -> None:
    """Write a segment which evolved half of its prompts."""
    settings: Any = stage.settings
    first, last = settings["first_step"], settings["last_step"]
    said = {
        "rollouts": 6 * last, "tokens": 30 * last, "gradient_steps": last, "creator_calls": last,
        "children": 90, "dropped": 10, "unusable": 3, "phases": {"mix-up": 8 * (last - first + 1)},
        "evolved_share": 0.5, "buffer": 320,
    }  # fmt: skip
    write_files(store, stage.inputs["prompts"], prompts=[{"prompt": "reverse-3 : 1 2"}])
    write_files(store, stage, trained=[{"prompt": "reverse-4 : 1 2"}], summary=said)


def write_run(store: Store, runs: TableRuns, run_id: str) -> None:
    for seed in runs.seeds:
        for stage in runs.runs[run_id, seed].training:
            write_segment(store, stage)


def test_costs_are_those_of_the_last_segment_and_shares_of_all(store: Store) -> None:
    """Two segments of 50 steps: 100 x 6 rollouts; (10 + 10) of (100 + 100) rewrites dropped."""
    runs = planned()
    write_run(store, runs, "eva-2x")
    found = {cost.row: cost for cost in online_costs(runs, store)}
    assert list(found) == ["rloo-1x", "eva-1x", "eva-2x"]
    two, one = found["eva-2x"], found["eva-1x"]
    assert (two.state, two.rollouts, two.tokens) == ("ok", 600.0, 3000.0)
    assert (two.gradient_steps, two.creator_calls, two.buffer) == (100.0, 100.0, 320.0)
    assert two.dropped == pytest.approx(0.1)
    assert two.evolved_share == pytest.approx(0.5)
    assert (one.state, one.rollouts) == ("ok", 300.0)
    assert (found["rloo-1x"].state, found["rloo-1x"].rollouts) == ("not_run", None)


def test_a_row_without_every_seed_has_no_costs(store: Store) -> None:
    runs = planned()
    write_segment(store, runs.runs["eva-1x", 0].training[0])
    eva = {cost.row: cost for cost in online_costs(runs, store)}["eva-1x"]
    assert (eva.state, eva.done, eva.tokens) == ("partial", 1, None)


def test_every_online_setting_is_listed_with_who_says_so() -> None:
    """Passes, skipped prompts, the oracle and leagues only where a row has some."""
    found = {item.name: item for item in online_settings(planned())}
    listed = set(Online.model_fields) - {"passes", "skip", "oracle", "shuffled", "league"}
    assert set(found) == {f"online.{name}" for name in listed}
    assert found["online.prompts"].value == "human, eva"
    assert found["online.child_score"].group == "ours"
    assert found["online.n_new"].group == "paper"
    assert all(item.source.strip() for name, item in found.items() if name != "online.prompts")


def test_an_online_table_has_a_block_of_costs_and_none_of_a_creator(store: Store) -> None:
    runs = planned()
    write_run(store, runs, "eva-2x")
    report = stored(runs, store).report
    titles = [block.title for block in detail_blocks(report)]
    assert titles == ["Training prompts", "Online training"]
    rows = {row[0]: row[1:] for row in detail_blocks(report)[-1].rows}
    assert rows["eva (2x)"] == ("600", "3,000", "100", "100", "50.0%", "10.0%", "320")
    assert rows["RLOO"][0] == "not run"


@pytest.mark.parametrize(("evolved", "shown"), [(True, ["h0", "h0.1", "h0.1.1"]), (False, None)])
def test_the_last_evolved_prompt_is_followed_back_to_its_human_one(
    store: Store, evolved: bool, shown: list[str] | None
) -> None:
    runs = planned((0,))
    (stage,) = runs.runs["eva-1x", 0].training
    names = ["h0", "h0.1", "h1", "h0.1.1", "h2"] if evolved else ["h0", "h1"]
    rows = [
        {"prompt_id": name, "prompt": f"prompt {name}", "source": "human", "step": step,
         "method": "deepening" if "." in name else None, "phase": "mix-up",
         "parent_id": name.rpartition(".")[0] or None, "generation": name.count("."),
         "informativeness": 1.5, "reward_mean": 0.25, "reward_best": 2.0}
        for step, name in enumerate(names)
    ]  # fmt: skip
    write_files(store, stage.inputs["prompts"], prompts=[{"prompt": "sort 1 2"}])
    write_files(store, stage, trained=rows)
    found = examples_of(runs, store)
    if shown is None:
        assert found == Examples()
        return
    (lineage,) = found.online
    assert (lineage.table, lineage.row, lineage.run) == ("table91", "eva-1x", "eva-1x/micro/seed0")
    assert [step.name for step in lineage.steps] == shown
    assert [step.how for step in lineage.steps] == ["human", "deepening", "deepening"]
    assert dict(lineage.steps[-1].facts)["step"] == "3, mix-up"
    assert lineage.stages == (stage.fingerprint[:12],)
