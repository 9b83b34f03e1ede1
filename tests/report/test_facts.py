"""What is said of each row beside its scores: means over seeds, a state, or nothing at all."""

from dataclasses import replace
from typing import Any

import pytest
from toy_page import RUN, write_lineage, write_training
from toy_tables import DECLARATION, stored, toy_runs, write_files

from harness.pipeline.runs import TableRuns
from harness.registry.profile import load_profiles
from harness.registry.recipe import Online
from harness.report import facts
from harness.report.blocks import fact_blocks
from harness.report.build import online_settings
from harness.report.facts import creator_stages, facts_of
from harness.report.model import RowFacts
from harness.report.page.examples import Examples, examples_of
from harness.report.render import as_markdown, as_text
from harness.runtime import Stage, Store
from harness.statistics.distance import bigrams, jensen_shannon
from harness.worlds.embedded import files
from harness.worlds.embedded.language import parse, write_list
from harness.worlds.embedded.texts import read_prompts
from harness.worlds.embedded.world import EmbeddedPrompts
from harness.worlds.lookup import right_of, world_of


@pytest.fixture(autouse=True)
def _b_is_right(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the answers to a prompt, "b" is right."""
    monkeypatch.setattr(facts, "right_of", lambda profile: lambda prompt, answer: answer == "b")
    facts._right_shares.cache_clear()


def by_row(runs: TableRuns, store: Store) -> dict[str, RowFacts]:
    return {found.row: found for found in facts_of(runs, store)}


def write_creator(store: Store, runs: TableRuns, seed: int, calls: int = 20) -> None:
    """Write a creator that drew one of four prompts without weight, and dropped two children."""
    stages = creator_stages(runs.runs[RUN, seed])
    select = {"selected": 4, "without_weight": 1, "without_spread": 0.25}
    evolve = {"calls": calls, "dropped": 2, "unusable": {"leftover": 1, "unchanged": 4}}
    selected = [{"prompt_id": "p", "prompt": "sort 3 1 2"}]
    write_files(store, stages["select"], selected=selected, summary=select)
    write_files(store, stages["evolve"], summary=evolve)
    pair = {"prompt": "now sort 3 1 2", "reward_rejected": 0.0, "reward_chosen": 1.0}
    write_files(store, stages["pair"], pairs=[pair], summary={"pairs": 16, "ties": 4})
    mix = runs.runs[RUN, seed].iterations[-1].prompts
    said = {"asked": 800, "evolved": 800 - 5 * seed}
    tied = pair | {"reward_chosen": 0.0}
    write_files(store, mix, pairs=[pair, pair, tied], summary=said)


def test_facts_are_means_over_seeds_of_what_can_be_derived_by_hand(store: Store) -> None:
    """Two trainings of 63 steps, and three generations of two answers each; 20 and 30 calls.

    Of a generation, one answer of 3 tokens has ended and one of 14 has not: 3 + 1 + 14 = 18. Of 3
    pairs, two differ in their rewards, and all have one prompt. Of 800 evolved pairs 0 and 5 lack.
    """
    runs = toy_runs()
    for seed in runs.seeds:
        write_creator(store, runs, seed, calls=20 + 10 * seed)
    for seed in runs.seeds:
        write_training(store, runs, seed)
    found = by_row(runs, store)
    own = found["eva-a_min"]
    assert (own.state, own.done) == ("ok", 2)
    expected = {
        "gradient_steps": 126.0, "rollouts": 6.0, "tokens": 54.0, "creator_calls": 25.0,
        "calls": 25.0, "without_weight": 0.25, "without_spread": 0.25,
        "evolved_without_spread": 0.25, "unusable": (5 / 20 + 5 / 30) / 2, "dropped": 2.0,
        "filled": 2.5, "size": 3.0, "distinct": 1.0, "duplicates": 2 / 3, "signal": 2 / 3,
    }  # fmt: skip
    assert {name: own.values[name] for name in expected} == pytest.approx(expected)
    assert found["dpo-1"].values["gradient_steps"] == 63.0
    assert (found["base"].state, found["eva-uniform"].state) == ("not_available", "not_run")
    assert found["eva-uniform"].values == {}


def test_a_run_without_every_seed_has_a_state_and_no_facts(store: Store) -> None:
    runs = toy_runs(seeds=[0, 1, 2])
    write_creator(store, runs, 1)
    write_training(store, runs, 1)
    found = by_row(runs, store)["eva-a_min"]
    assert (found.state, found.done, found.values) == ("partial", 1, {})
    stage = creator_stages(runs.runs["dpo-eva-uniform", 0])["evolve"]
    store.record_failure(stage, "the worker was killed", "")
    assert by_row(runs, store)["eva-uniform"].state == "failed"


def test_groups_are_those_chosen_from_the_chosen_and_the_evolved(store: Store) -> None:
    """Each prompt has the answers of `text`, b, c and d: mixed, or all wrong in another text."""
    runs = toy_runs(seeds=[0])
    write_lineage(store, runs)
    write_training(store, runs)
    own = by_row(runs, store)["eva-a_min"].values
    assert (own["mixed"], own["right"], own["wrong"]) == (1.0, 0.0, 0.0)
    assert (own["chosen_mixed"], own["chosen_right"], own["evolved_mixed"]) == (1.0, 0.0, 1.0)
    blocks = {block.title: block for block in fact_blocks(stored(runs, store))}
    assert blocks["Groups"].rows[-1][1:4] == ("100.0%", "0.0%", "0.0%")
    assert [row[1] for row in blocks["Groups"].rows] == ["–", "0.0%", "not run", "100.0%"]


@pytest.mark.parametrize(("name", "right"), [("micro", True), ("paper", None)])
def test_an_answer_is_right_by_the_oracle_or_not_known_to_be(name: str, right: Any) -> None:
    profile = load_profiles()[name]
    told = right_of(profile)
    if right is None:
        assert told is None
        return
    assert told is not None
    source = world_of(profile).prompts.identity()["source"]
    prompt = read_prompts(files.resolve(str(source)))[0]
    task = parse(prompt)
    assert task is not None
    answer = write_list(task.answer())
    assert (told(prompt, answer), told(prompt, answer + " extra"), told("?", answer)) == (
        True, False, False,
    )  # fmt: skip


def test_times_of_several_kinds_of_processor_are_not_compared(store: Store) -> None:
    runs = toy_runs(seeds=[0])
    write_creator(store, runs, 0)
    write_training(store, runs)
    results = stored(runs, store)
    for processors in (("one",), ("one", "another")):
        origin = results.report.origin.model_copy(update={"processors": processors})
        report = results.report.model_copy(update={"origin": origin})
        blocks = {block.title: block for block in fact_blocks(replace(results, report=report))}
        assert ("cannot be compared" in blocks["Cost"].notes[0]) == (len(processors) > 1)


def prompt_distance(a: list[str], b: list[str]) -> float:
    shown = EmbeddedPrompts().shown_word
    return jensen_shannon(bigrams(a, shown), bigrams(b, shown))


def test_each_row_is_placed_against_its_seed_prompts_and_the_benchmarks(store: Store) -> None:
    """Bigrams, items masked: seed prompts and dpo-h1's pairs `sort # # #` (sort #, # #, # #)."""
    runs = toy_runs(seeds=[0])
    write_creator(store, runs, 0)
    write_training(store, runs)
    found = by_row(runs, store)
    own, dpo = found["eva-a_min"].values, found["dpo-1"].values
    assert dpo["to_seed"] == 0.0
    assert own["to_seed"] == pytest.approx(prompt_distance(["now sort 3 1 2"], ["sort 3 1 2"]))
    to_hard = own["to_arena_hard"]
    assert to_hard == pytest.approx(prompt_distance(["now sort 3 1 2"], ["now sort 1 2"]))
    assert to_hard < dpo["to_arena_hard"]
    assert "to_mt_bench" not in own


@pytest.mark.parametrize("seeds", [[0], list(range(10))])
def test_facts_are_in_every_full_form_of_the_report(store: Store, seeds: list[int]) -> None:
    runs = toy_runs(seeds=seeds)
    write_creator(store, runs, 0)
    write_training(store, runs)
    results = stored(runs, store)
    text, page = as_text(results), as_markdown(results)
    assert max(map(len, text.splitlines())) <= 80
    for words in ("Trained on", "Where rewards do not differ, nothing is learned."):
        assert (words in " ".join(text.split())) == (words in page) == (len(seeds) == 1)
        assert words not in as_text(results, full=False)
    (row,) = [it for it in results.whole_report.as_json()["facts"] if it["row"] == "eva-a_min"]
    assert row["values"].get("calls") == (20.0 if len(seeds) == 1 else None)


ONLINE: dict[str, Any] = DECLARATION | {
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
    row = {"prompt_id": "p", "prompt": "reverse-4 : 1 2", "reward_mean": 1.0}
    rows = [row | {"reward_best": 1.0 + i} for i in range(2)]
    write_files(store, stage, trained=rows, summary=said)


def write_run(store: Store, runs: TableRuns, run_id: str) -> None:
    for seed in runs.seeds:
        for stage in runs.runs[run_id, seed].training:
            write_segment(store, stage)


def test_costs_are_those_of_the_last_segment_and_shares_of_all(store: Store) -> None:
    """Two segments of 50 steps: 100 x 6 rollouts; (10 + 10) of (100 + 100) rewrites dropped.

    Each trains on one prompt twice; the rewards of its answers differ once.
    """
    runs = planned()
    write_run(store, runs, "eva-2x")
    found = by_row(runs, store)
    two, one = found["eva-2x"].values, found["eva-1x"].values
    expected = {
        "rollouts": 600.0, "tokens": 3000.0, "gradient_steps": 100.0, "creator_calls": 100.0,
        "buffer": 320.0, "dropped_share": 0.1, "evolved_share": 0.5, "size": 4.0,
        "duplicates": 0.75, "signal": 0.5, "reward": 1.0,
    }  # fmt: skip
    assert {name: two[name] for name in expected} == pytest.approx(expected)
    assert one["rollouts"] == 300.0
    assert (found["rloo-1x"].state, found["rloo-1x"].values) == ("not_run", {})


def test_every_online_setting_is_listed_with_who_says_so() -> None:
    """Passes, skipped prompts, the oracle and leagues only where a row has some."""
    found = {item.name: item for item in online_settings(planned())}
    listed = set(Online.model_fields) - {"passes", "skip", "oracle", "shuffled", "league"}
    assert set(found) == {f"online.{name}" for name in listed}
    assert found["online.prompts"].value == "human, eva"
    assert found["online.child_score"].group == "ours"
    assert found["online.n_new"].group == "paper"
    assert found["online.prompts"].source == "appendix A; matched prompts and pools are ours."
    assert all(item.source.strip() for item in found.values())


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
