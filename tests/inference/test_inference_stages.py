"""Laws of the stages that have a policy answer, whatever engine gives the answers."""

import json
import sys
from pathlib import Path

import pytest
from asked import CONVERSATIONS, TEXTS, Requests
from staging import given

from harness.errors import UserError
from harness.models.policy import generate
from harness.pipeline.runs import plan_table
from harness.pipeline.steps import generate_stage
from harness.registry.declared import load_tables
from harness.registry.profile import Profile
from harness.runtime import Plan, Stage, StageContext
from harness.runtime.stage import Json
from harness.serving import engines
from harness.serving.engines import identity, installed, needed
from harness.worlds.lookup import answering, world_of
from harness.worlds.stage_io import PROMPT_SCHEMA, read_rows

SAMPLING: dict[str, Json] = {
    "n": 3, "temperature": 0.7, "top_p": 0.9, "top_k": 0, "max_new_tokens": 12, "batch_size": 4
}  # fmt: skip


def context(folder: Path, policy: Path, **settings: Json) -> StageContext:
    """Return the context of a stage of a policy that another stage trained."""
    row = {**dict.fromkeys(PROMPT_SCHEMA.names), "source": "human", "generation": 0}
    rows = [{**row, "prompt_id": f"p{i}", "prompt": text} for i, text in enumerate(TEXTS)]
    prompts = given(folder / "prompts", "prompts", rows, PROMPT_SCHEMA)
    trained, output = folder / "a1b2c3d4e5f6a7", folder / "output"
    trained.mkdir()
    output.mkdir()
    (trained / "model").symlink_to(policy)
    inputs, settings = {"prompts": prompts, "policy": trained}, {**SAMPLING, **settings}
    return StageContext(settings, inputs, output, seed=5, unfinished=folder / "unfinished")


ENGINE: dict[str, Json] = {"engine": "vllm 0.30.0", "dtype": "float32"}


def test_a_stage_with_an_engine_gets_its_answers_there(
    policy_path: Path, fake_vllm: Requests, tmp_path: Path
) -> None:
    told: list[tuple[int, float]] = []
    ctx = context(tmp_path, policy_path, **ENGINE)
    ctx.report = lambda step, metrics: told.append((step, metrics["answered"]))
    generate_stage(ctx)
    rows = read_rows(ctx.output / "completions.parquet")
    assert [(row["prompt_id"], row["sample"]) for row in rows] == [
        (f"p{i}", sample) for i in range(8) for sample in range(3)
    ]
    assert len(fake_vllm()) == 24
    said = json.loads((ctx.output / "engine.json").read_text())
    assert said == {**ENGINE, "prompts": 8, "shortened": 0, "left_out": 0}
    assert told == [(done, done / 8) for done in range(1, 9)]


def test_a_stage_without_engine_answers_as_it_always_did(policy_path: Path, tmp_path: Path) -> None:
    """The embedded policies: the same numbers as `generate`, and no file more."""
    ctx = context(tmp_path, policy_path)
    generate_stage(ctx)
    expected = generate(
        policy_path, CONVERSATIONS, n=3, temperature=0.7, top_p=0.9, max_new_tokens=12,
        batch_size=4, seed=5,
    )  # fmt: skip
    rows = read_rows(ctx.output / "completions.parquet")
    assert [(row["completion"], row["n_tokens"]) for row in rows] == [
        (answer.text, answer.n_tokens) for own in expected for answer in own
    ]
    assert [path.name for path in ctx.output.iterdir()] == ["completions.parquet"]
    assert ctx.unfinished is not None
    assert not ctx.unfinished.exists()


def test_two_calls_of_a_stage_share_the_engine_and_keep_their_answers_apart(
    policy_path: Path, fake_vllm: Requests, tmp_path: Path
) -> None:
    ctx = context(tmp_path, policy_path, **ENGINE)
    two = CONVERSATIONS[:2]
    with answering(ctx) as ask:
        first = ask(two, n=1, seed=1)
        assert ask(two, n=1, seed=2, temperature=0.0) != first
        assert ask(two, n=1, seed=1) == first
    assert [sent["temperature"] for sent in fake_vllm()] == [0.7, 0.7, 0.0, 0.0]


def answering_stages(profile: Profile) -> list[Stage]:
    """Return the stages of table 4 in which the policy answers."""
    targets = plan_table(load_tables()["table4"], profile, (0,), ["dpo-1"]).targets
    return [stage for stage in Plan(targets) if stage.kind in ("generate", "answer", "rewrite")]


def test_engine_and_version_are_part_of_a_stages_identity(
    micro: Profile, fake_vllm: Requests, monkeypatch: pytest.MonkeyPatch
) -> None:
    served = micro.model_copy(update={"engine": "vllm"})
    stages = answering_stages(served)
    assert {stage.settings["engine"] for stage in stages} == {"vllm 0.30.0"}
    other = answering_stages(micro.model_copy(update={"engine": "endpoint"}))
    assert {stage.settings["engine"] for stage in other} == {"endpoint"}
    plain = answering_stages(micro)
    prints = [{stage.fingerprint for stage in some} for some in (stages, other, plain)]
    assert prints[0].isdisjoint(prints[1] | prints[2])
    assert prints[1].isdisjoint(prints[2])


def test_real_models_answer_by_transformers_of_a_version(micro: Profile) -> None:
    real = micro.model_copy(update={"policy": "google/gemma-2-9b-it", "dtype": "bfloat16"})
    said = world_of(real).engine()
    assert said == {"engine": identity("transformers"), "dtype": "bfloat16"}
    assert str(said["engine"]).split()[1].split(".")[0].isdigit()


def test_what_is_not_installed_can_be_planned_and_refuses_to_run(
    policy_path: Path, tmp_path: Path, micro: Profile, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("HARNESS_SGLANG_PYTHON", raising=False)
    said = world_of(micro.model_copy(update={"engine": "sglang"})).engine()
    assert said == {"engine": "sglang (unknown environment)", "dtype": "float32"}
    with pytest.raises(
        UserError, match=r"sglang is not installed: name the Python .*SGLANG_PYTHON"
    ):
        generate_stage(context(tmp_path, policy_path, **said))


def test_another_version_than_planned_refuses_to_run(
    policy_path: Path, fake_vllm: Requests, tmp_path: Path
) -> None:
    ctx = context(tmp_path, policy_path, engine="vllm 0.29.0", dtype="float32")
    with pytest.raises(UserError, match=r"planned with vllm 0.29.0, and here is vllm 0.30.0"):
        generate_stage(ctx)
    assert needed("vllm", "vllm 0.30.0").python == sys.executable


def test_a_python_may_be_named_from_the_home_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    python = Path(sys.executable)
    monkeypatch.setenv("HOME", str(python.parent))
    monkeypatch.setenv("HARNESS_VLLM_PYTHON", f"~/{python.name}")
    monkeypatch.setattr(engines, "_identity_in", lambda *named: "vllm 0.30.0")
    found = installed("vllm")
    assert found is not None
    assert found.python == sys.executable


def test_a_python_that_is_none_is_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HARNESS_SGLANG_PYTHON", str(tmp_path / "nowhere"))
    with pytest.raises(UserError, match=r"HARNESS_SGLANG_PYTHON names .*which does not run"):
        installed("sglang")
    monkeypatch.setenv("HARNESS_SGLANG_PYTHON", sys.executable)
    with pytest.raises(UserError, match="whose environment has no sglang"):
        installed("sglang")
