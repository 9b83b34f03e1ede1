"""Who has the GPU at which stage, and how often the servers of a run are started."""

from pathlib import Path

import pytest

from harness.pipeline.factory import Turns
from harness.registry.profile import Profile, load_profiles
from harness.runtime import Plan
from harness.runtime.stage import Stage

SERVED = {"engine": "vllm", "dtype": "bfloat16", "max_length": 4096, "gpu_memory": 0.9}


def served(**changes: object) -> Profile:
    """Return a profile whose policy and creator the harness serves."""
    said = load_profiles()["paper"].model_dump(mode="json", by_alias=True)
    creator = {**SERVED, "model": f"owner/creator@{'0' * 40}"}
    said["creator"]["source"] = "owner/creator"
    return Profile.model_validate(
        {**said, "serving": {"policy": SERVED, "creator": creator}, **changes}
    )


def stage(kind: str, **more: object) -> Stage:
    inputs = more.pop("inputs", {})
    return Stage(kind, 1, dict(more), inputs, kind)  # type: ignore[arg-type]


def two_runs() -> list[Stage]:
    """Return the stages of two runs, each: answers, rewards, rewrites, answers, training, test."""
    targets = []
    for seed in range(2):
        answers = stage("generate", policy="o/p@r", engine="vllm 1", max_length=9, seed=seed)
        rewards = stage("annotate", inputs={"completions": answers})
        rewrites = stage("evolve", rewriting={"model": "owner/creator"}, inputs={"of": rewards})
        more = stage(
            "generate", policy="o/p@r", engine="vllm 1", max_length=9, inputs={"prompts": rewrites}
        )
        trained = stage("train", inputs={"answers": more})
        targets.append(
            stage("answer", engine="vllm 1", max_length=9, inputs={"policy": trained}, seed=seed)
        )
    return list(Plan(targets))


def test_each_role_is_loaded_once_for_all_seeds() -> None:
    """The base policy is wanted twice, before and after the rewrites; each trained one once."""
    turns, stages = Turns(served()), two_runs()
    order = [turn.role for turn in turns.order(stages)]
    assert order[:5] == ["o/p", "annotate", "creator", "o/p", "train"]
    assert [str(name).startswith("policy-") for name in order[5:]] == [True, True]


def test_where_there_are_several_gpus_each_answering_stage_has_a_server() -> None:
    turns, stages = Turns(served(), gpus=2), two_runs()
    order = [turn.role for turn in turns.order(stages)]
    assert order == ["generate", "annotate", "creator", "generate", "train", "answer"]


def test_an_address_in_the_environment_wins(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HARNESS_CREATOR_URL", "http://127.0.0.1:9/v1")
    monkeypatch.setenv("HARNESS_SOLVER_URL", "http://127.0.0.1:9/v1")
    turns, stages = Turns(served()), two_runs()
    assert {turn.role for turn in turns.order(stages)} == {
        "generate", "annotate", None, "train", "answer",
    }  # fmt: skip


def test_an_empty_address_names_no_server(monkeypatch: pytest.MonkeyPatch) -> None:
    stages = two_runs()
    own = Turns(served()).order(stages)
    for role in ("CREATOR", "SOLVER"):
        monkeypatch.setenv(f"HARNESS_{role}_URL", "")
    assert Turns(served()).order(stages) == own


def test_what_nobody_asks_is_not_served(tmp_path: Path) -> None:
    other = {**SERVED, "model": f"owner/other@{'0' * 40}"}
    with pytest.raises(ValueError, match="serves owner/other, but no role uses it"):
        served(serving={"creator": other})
    with pytest.raises(ValueError, match="must have the profile's `engine` and `dtype`"):
        served(serving={"policy": {**SERVED, "dtype": "float32"}})


def test_stages_come_once_after_their_inputs_and_judgments_wait_for_each_other() -> None:
    """A run of answers and a judgment, and one that trains before: both are judged at the end."""
    creator = {"rewriting": {"model": "owner/creator"}}
    short = stage("evolve", **creator, inputs={"of": stage("annotate", number=1)})
    trained = stage("train", inputs={"of": stage("annotate", number=2)})
    long = stage("evolve", **creator, inputs={"of": trained})
    stages = list(Plan([short, long]))
    order = Turns(served()).order(stages)
    assert [turn.role for turn in order] == ["annotate", "train", "creator"]
    flat = [each for turn in order for each in turn.stages]
    assert sorted(map(stages.index, flat)) == list(range(len(stages)))
    assert all(flat.index(it) < flat.index(each) for each in flat for it in each.inputs.values())
