"""A reward model as judge: the same cells from comparisons with an anchor, and who may not judge.

The reward is a function that likes long answers; answers are written by hand.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError
from small_checkpoints import write_armo
from staging import given, read_json, run_stage, scores_in

from harness.errors import UserError
from harness.extensions import reward
from harness.pipeline.runs import plan_table
from harness.pipeline.steps import judge_stage
from harness.registry.declared import load_tables
from harness.registry.profile import Profile
from harness.runtime import Plan
from harness.worlds.lookup import world_of
from harness.worlds.needs import Demand
from harness.worlds.real.benchmarks import benchmark_identity

Turns = Mapping[tuple[str, int], str]

JUDGE = f"reward:length@{__name__}-1"


@pytest.fixture(autouse=True)
def length(benchmarks: Path, registries: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """The benchmarks, and a reward of these tests."""
    monkeypatch.setenv("HARNESS_BENCHMARKS", str(benchmarks))

    @reward("length", version="1")
    def length(prompt: str, answers: list[str]) -> list[float] | None:
        return None if "mute" in answers[0] else [float(len(answer)) for answer in answers]


def by_reward(paper: Profile, judge: str = "reward:length", **more: Any) -> Profile:
    """The paper's profile with a reward model as the judge of its three benchmarks."""
    changed = {
        name: paper.benchmarks[name].model_copy(update={"judge": judge, "against": "base", **more})
        for name in ("arena_hard", "alpaca_eval", "mt_bench")
    }
    return paper.model_copy(update={"benchmarks": {**paper.benchmarks, **changed}})


def judged(
    tmp_path: Path, profile: Profile, name: str, ours: Turns, anchor: Turns
) -> tuple[dict[str, Any], dict[tuple[str, str], float]]:
    """Judge answers; return the summary and the values by question and column."""
    inputs = {}
    for of, turns in (("answers", ours), ("anchor", anchor)):
        rows = [
            {"prompt_id": prompt, "turn": turn, "completion": text, "n_tokens": 1}
            for (prompt, turn), text in turns.items()
        ]
        inputs[of] = given(tmp_path / of, "answers", rows)
    out = run_stage(judge_stage, tmp_path / "out", world_of(profile).judging(name), inputs)
    return read_json(out / "summary.json"), scores_in(out)


def test_arena_hard_is_the_share_of_answers_that_are_better_than_the_anchor_s(
    paper: Profile, tmp_path: Path
) -> None:
    """Of 500: one wins, one ties, one cannot be read, all others lose: 1.5 of 499."""
    anchor = {(f"q{i}", 1): "bb" for i in range(500)}
    ours = dict.fromkeys(anchor, "a") | {("q0", 1): "longer", ("q1", 1): "bb", ("q2", 1): "mute"}
    summary, values = judged(tmp_path, by_reward(paper), "arena_hard", ours, anchor)
    assert summary["scores"]["ah_wr"] == pytest.approx(100 * 1.5 / 499)
    assert (summary["judge"], summary["n"], summary["n_missing"]) == (JUDGE, 499, 2)
    assert values["q0", "ah_wr"] > values["q1", "ah_wr"] > values["q3", "ah_wr"]
    assert summary["cost"]["replies"] == 0


def test_mt_bench_is_rated_on_its_own_scale_turn_by_turn(paper: Profile, tmp_path: Path) -> None:
    """A first turn that always wins is 10, a second that always loses 1; equal ones are 5.5."""
    anchor = {(str(i), turn): "bb" for i in range(80) for turn in (1, 2)}
    ours = {(i, turn): "long" if turn == 1 else "b" for i, turn in anchor}
    summary, _ = judged(tmp_path, by_reward(paper), "mt_bench", ours, anchor)
    assert summary["scores"] == {"mt_avg": 5.5, "mt_t1": 10.0, "mt_t2": 1.0}


def test_alpaca_eval_needs_no_package_and_has_both_rates(paper: Profile, tmp_path: Path) -> None:
    """Every third answer wins, being longer; then no finite fit exists at equal lengths."""
    anchor = {(str(i), 1): "bb" for i in range(805)}
    ours = {(i, 1): "longer" if int(i) % 3 == 0 else "a" for i, _ in anchor}
    summary, values = judged(tmp_path, by_reward(paper), "alpaca_eval", ours, anchor)
    assert summary["scores"]["ae_wr"] == pytest.approx(100 * 269 / 805)
    assert summary["scores"]["ae_lc"] is None
    assert values["0", "ae_wr"] == 100.0


def test_the_plan_compares_with_the_base_policy_and_asks_no_endpoint(
    paper: Profile, tmp_path: Path
) -> None:
    write_armo(tmp_path / "models" / "me" / "judge")
    profile = by_reward(paper, "reward:me/judge")
    table = load_tables()["table4"]
    runs = plan_table(table, profile, [0], ["dpo-1"])
    stages = list(Plan(runs.targets))
    judges = [s for s in stages if s.kind == "judge" and "anchor" in s.inputs]
    assert judges
    for stage in judges:
        assert str(stage.settings["judge"]).startswith("reward:me/judge@files-")
        assert stage.settings["dtype"] == profile.dtype
        base = stage.inputs["anchor"]
        assert "policy" not in base.inputs
        assert base.settings["benchmark"] == stage.inputs["answers"].settings["benchmark"]
    demand = Demand(profile, stages)
    assert any(model.startswith("me/judge@") for model in demand.models)
    assert "judge" not in {role for role, _ in demand.endpoints}


def test_who_trains_may_not_judge(paper: Profile) -> None:
    own = paper.reward_models["pointwise"]
    with pytest.raises(ValidationError, match="trained on, which would judge its own work"):
        Profile.model_validate(by_reward(paper, f"reward:{own}").model_dump(by_alias=True))


def test_a_comparison_needs_somebody_to_compare_with(paper: Profile) -> None:
    alone = by_reward(paper, against=None).benchmarks["mt_bench"]
    with pytest.raises(UserError, match="compares with base and the profile says nobody"):
        benchmark_identity("mt_bench", alone)
    rated = by_reward(paper, judge="gpt-4").benchmarks["mt_bench"]
    with pytest.raises(UserError, match="compares with nobody and the profile says base"):
        benchmark_identity("mt_bench", rated)
