"""`why` names the setting that makes a stage new."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from toy_world import planned

from harness.runtime import Plan, Stage, Store, collect_provenance
from harness.selection.why import ABSENT, Cause, Comparison, Nodes


def _chain(beta: float = 0.1, seed: int = 0) -> Stage:
    prompts = Stage("prompts", 1, {"seed": seed}, {}, "prompts")
    train = Stage("train", 1, {"beta": beta, "seed": seed}, {"pairs": prompts}, "train")
    return Stage("judge", 1, {}, {"policy": train}, "judge")


def _causes(here: Stage, there: Stage, tmp_path: Path) -> tuple[Cause, ...]:
    nodes = Nodes(Store(tmp_path))
    return Comparison().causes(nodes.of(here), nodes.of(there))


def test_equal_stages_have_no_causes(tmp_path: Path) -> None:
    assert _causes(_chain(), _chain(), tmp_path) == ()


def test_a_difference_is_charged_to_the_stage_that_has_the_setting(tmp_path: Path) -> None:
    """The judges differ because the policies were trained with another beta."""
    assert _causes(_chain(beta=0.2), _chain(), tmp_path) == (Cause("beta", 0.2, 0.1, ("train",)),)


def test_one_setting_at_several_stages_is_one_cause(tmp_path: Path) -> None:
    causes = _causes(_chain(seed=1), _chain(), tmp_path)
    assert causes == (Cause("seed", 1, 0, ("prompts", "train")),)


def test_a_version_and_a_missing_setting_are_causes(tmp_path: Path) -> None:
    here = Stage("judge", 2, {"judge": "oracle"}, {})
    there = Stage("judge", 1, {}, {})
    assert _causes(here, there, tmp_path) == (
        Cause("version", 2, 1, ("judge",)),
        Cause("judge", "oracle", ABSENT, ("judge",)),
    )


def test_an_input_against_a_setting_of_that_name_is_one_cause(tmp_path: Path) -> None:
    """A trained policy is an input, the base policy a setting."""
    trained = Stage("answer", 1, {}, {"policy": Stage("train", 1, {}, {}, "train 1")})
    base = Stage("answer", 1, {"policy": "theta0"}, {})
    causes = _causes(trained, base, tmp_path)
    assert causes == (Cause("policy", "output of train 1", "theta0", ("answer",)),)


def test_the_nearest_stage_has_the_fewest_causes(tmp_path: Path) -> None:
    nodes = Nodes(Store(tmp_path))
    far, near = nodes.of(_chain(beta=0.3, seed=5)), nodes.of(_chain(seed=5))
    found = Comparison().nearest(nodes.of(_chain()), [far, near])
    assert found is not None
    assert found[0] is near


def test_a_stored_stage_is_compared_through_its_manifest(tmp_path: Path) -> None:
    store = Store(tmp_path)
    _store(store, _chain())
    stored = [node for node in Nodes(store).stored() if node.kind == "judge"]
    nodes = Nodes(store)
    found = Comparison().nearest(nodes.of(_chain(beta=0.2)), stored)
    assert found is not None
    assert found[1] == (Cause("beta", 0.2, 0.1, ("train",)),)


def test_rows_that_differ_in_the_metric_part_at_the_selection(says: Callable[..., Any]) -> None:
    why = says("why", "why", "table4/eva-a_min")
    assert why["baseline"]["row"] == "dpo-1"
    assert [(c["key"], c["here"]) for c in why["nearest"]["causes"]] == [
        ("creator.metric", "a_min")
    ]
    (run,) = why["runs"]
    assert {stage["label"].split(" · ")[1] for stage in run["stages"]} == {run["run"]}
    first_new = next(stage for stage in run["stages"] if not stage["shared_with"])
    assert first_new["kind"] == "select"
    for stage in run["stages"]:
        if stage["shared_with"]:
            assert stage["new_among_rows"] is None
        else:
            causes = stage["new_among_rows"]["causes"]
            assert [(c["key"], c["here"], c["kinds"]) for c in causes] == [
                ("metric", "a_min", ["select"])
            ]


def test_a_missing_stage_is_compared_with_what_is_stored(
    says: Callable[..., Any], call: Callable[..., Any], folders: Path
) -> None:
    store = Store(folders / "store")
    for target in planned("table4", "micro", (0,), ["dpo-1"]).targets:
        _store(store, target)
    stages = says("why", "why", "dpo-1", "--table", "table4")["runs"][0]["stages"]
    assert {stage["state"] for stage in stages} == {"done"}
    assert "All of its stages are in the store" in call("why", "table4/dpo-1").stdout
    for stage in says("why", "why", "table4/dpo-1", "--seed", "1")["runs"][0]["stages"]:
        causes = stage["new_in_store"]["causes"]
        assert [(c["key"], c["here"], c["there"]) for c in causes] == [("seed", 1, 0)]
    assert "seed 1 instead of 0" in call("why", "table4/dpo-1", "--seed", "1").stdout


def _store(store: Store, target: Stage) -> None:
    provenance = collect_provenance()
    for stage in Plan([target]):
        if store.status(stage.fingerprint) != "done":
            with store.writing(stage, provenance):
                pass
