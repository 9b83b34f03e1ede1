"""Laws of the worlds as commands and stages ask them, in this process and of nobody outside."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from judge_stand_in import client_of
from staging import given, read_json, run_stage, scores_in

from harness.endpoint.client import ServedModel
from harness.errors import HarnessError, UserError
from harness.eva.evolving import NoReplyError
from harness.pipeline.algorithm import Planner
from harness.registry.profile import Profile, load_profiles
from harness.worlds.embedded import files
from harness.worlds.embedded.judge import complexity, quality
from harness.worlds.instructions.creator import BY_POLICY, PolicyCreator
from harness.worlds.instructions.tasks import VERSION
from harness.worlds.lookup import runtime_of, world_of
from harness.worlds.needs import Demand, Missing
from harness.worlds.real import models, prompts
from harness.worlds.real.creator import CUT, REFUSED, Written, evolve_concurrently, write_for_plugin
from harness.worlds.real.models import resolve
from harness.worlds.real.world import HubRuntime

PROFILES = load_profiles()
COMMIT = "0123456789abcdef0123456789abcdef01234567"
READABLE = "take a b c 1 and reverse-1 , then sort_up-2"


def real(**changes: Any) -> Profile:
    return PROFILES["paper"].model_copy(update=changes)


def with_prompts(**changes: Any) -> Profile:
    declared = PROFILES["paper"].prompts.model_copy(update={"splits": (), **changes})
    return real(prompts=declared)


def prompts_in(path: Path, count: int) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f'{{"prompt": "p{i}"}}\n' for i in range(count)))
    return path


def missing_of(profile: Profile) -> dict[str, Missing]:
    """Return what is missing for all of a profile's human prompts."""
    planner = Planner(world_of(profile))
    settings = planner.new_prompts("human", 0, 0, profile.prompts.available)
    demand = Demand(profile, [planner.stage("prompts", settings, {}, "")])
    return {it.what: it for it in demand.missing()}


def test_the_embedded_world_asks_nobody_and_has_prompts_words_and_accuracies() -> None:
    world = world_of(PROFILES["micro"])
    source = files.card().identity("prompts")
    assert world.prompts.identity() == {"source": source}
    everything: Any = {"source": source, "seed": 0, "first": 0, "count": 2400}
    pool = runtime_of(source).human_prompts(everything)
    assert len(pool) == len(set(pool.values())) == 2400
    assert world.prompts.shown_word("reverse-1") == "reverse-1"
    assert world.prompts.shown_word("a") == world.prompts.shown_word("7") != "a"
    assert world.reward_model_accuracy("pointwise") == pytest.approx(0.9, abs=0.1)
    assert world_of(PROFILES["paper"]).reward_model_accuracy("pointwise") is None
    assert world_of(PROFILES["paper"]).prompts.shown_word("a") == "a"


def test_the_embedded_judge_of_prompts_reads_their_text(tmp_path: Path) -> None:
    rows = [{"prompt_id": "p0", "prompt": READABLE}, {"prompt_id": "p1", "prompt": "what?"}]
    inputs = {"prompts": given(tmp_path, "prompts", rows)}
    rate = runtime_of("micro-3/rules").rate
    found = scores_in(run_stage(rate, tmp_path / "out", {"judge": "micro-3/rules"}, inputs))
    assert read_json(tmp_path / "out" / "summary.json") == {"judge": "micro-3/rules", "n": 2}
    assert found["p0", "complexity"] == complexity(READABLE) == 2.0
    assert found["p0", "quality"] == quality(READABLE) > found["p1", "quality"] == 1.0


@pytest.mark.parametrize(
    ("name", "known"),
    [("arena_hard", "oracle"), ("downstream", "exact_match"), ("prompt_judge", "rules")],
)
def test_a_judge_that_the_embedded_world_lacks_is_refused_when_planned(
    name: str, known: str
) -> None:
    micro = PROFILES["micro"]
    declared = micro.benchmarks[name].model_copy(update={"judge": "gpt-6-sol"})
    world = world_of(micro.model_copy(update={"benchmarks": micro.benchmarks | {name: declared}}))
    planned = world.rating if declared.of_prompts else world.judging
    with pytest.raises(UserError, match=f"no such judge .*/gpt-6-sol`; use `{known}`"):
        planned(name)


@pytest.mark.parametrize("part", ["prompts", "creator"])
def test_the_embedded_policy_takes_nothing_of_the_instructions(part: str) -> None:
    micro = PROFILES["micro"]
    mixed = getattr(micro, part).model_copy(update={"source": "instructions"})
    with pytest.raises(UserError, match="take neither from `instructions`"):
        world_of(micro.model_copy(update={part: mixed}))


def test_the_embedded_runtime_reads_what_settings_mean() -> None:
    runtime = runtime_of("micro-3/theta0@0")
    model = runtime.rewards(files.card().identity("rm_pointwise"), "one answer", "float32")
    assert model.weights == "embedded"
    assert runtime.prompt_metrics()["complexity"](READABLE) == 2.0
    assert HubRuntime().prompt_metrics() == {}
    source = files.card().identity("prompts")
    asked: Any = {"source": source, "seed": 0, "first": 2300, "count": 200}
    with pytest.raises(HarnessError, match="too few prompts for 200 from position 2300"):
        runtime.human_prompts(asked)
    with pytest.raises(HarnessError, match="has no creator `micro-3/other`; use one of evol_"):
        runtime.evolver({"creator": "micro-3/other"})


def test_a_work_folder_that_cannot_be_written_is_read(
    machine: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Digests and copies are kept for the next time; identities do without."""

    def refused(*_: Any) -> None:
        raise OSError(30, "Read-only file system")

    folder = machine / "models" / "o" / "m"
    folder.mkdir(parents=True)
    (folder / "config.json").write_text("{}")
    (folder / "model.safetensors").write_bytes(b"weights")
    profile = with_prompts(source=str(prompts_in(machine / "prompts.jsonl", 1)), revision=None)
    with monkeypatch.context() as read_only:
        read_only.setattr(models, "write_whole", refused)
        read_only.setattr(prompts, "write_whole", refused)
        identity, settings = models.identity_of("o/m"), world_of(profile).prompts.identity()
        assert not (machine / "work" / "digests").exists()
        assert "HARNESS_WORK" in missing_of(profile)["prompts"].do
    assert (models.identity_of("o/m"), world_of(profile).prompts.identity()) == (identity, settings)
    assert folder == resolve(identity)


def test_prompts_of_a_file_are_looked_for_where_a_run_reads_them(machine: Path) -> None:
    """Two pieces of three prompts; a relative path may start in the work folder."""
    prompts_in(machine / "work" / "mine" / "prompts.jsonl", 6)
    named = with_prompts(source="mine/prompts.jsonl", revision=None, available=2)
    profile = named.model_copy(update={"x": 3})
    assert "prompts" not in missing_of(profile)
    assert len(prompts.read_pool(world_of(profile).prompts.identity())) == 6
    few = missing_of(named.model_copy(update={"x": 4}))["prompts"]
    assert few.why == "6 prompts are too few for 2 pieces of 4"
    assert "`prompts.available`" in few.do
    lost = with_prompts(source=str(machine / "lost.jsonl"), revision=None)
    with pytest.raises(UserError, match=r"correct `prompts\.source`"):
        missing_of(lost)


def test_the_size_of_a_data_set_is_read_from_its_copy_and_nobody_is_asked(
    machine: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_DATASETS_CACHE", str(machine / "datasets"))
    profile = with_prompts(splits=("a", "b"), revision=COMMIT, source="o/data", available=2)
    assert missing_of(profile)["prompts"].do.startswith("type `harness download --profile paper`")
    info = machine / "datasets" / "o___data" / "default" / "0.0.0" / COMMIT / "dataset_info.json"
    info.parent.mkdir(parents=True)
    for sizes, lacks in (((profile.x, profile.x), False), ((profile.x, 1), True)):
        splits = {name: {"num_examples": size} for name, size in zip("ab", sizes, strict=True)}
        info.write_text(json.dumps({"splits": splits}))
        assert ("prompts" in missing_of(profile)) == lacks


@pytest.mark.parametrize(
    ("written", "reason"),
    [(Written("", REFUSED), "refusal"), (Written("half", CUT), "cut off")],
)
def test_a_plug_in_is_told_why_there_is_no_reply(written: Written, reason: str) -> None:
    generator: Any = SimpleNamespace(write=lambda *_: written)
    with pytest.raises(NoReplyError, match=reason):
        write_for_plugin(generator, "rewrite this", np.random.default_rng(0))
    generator.write = lambda *_: Written("whole")
    assert write_for_plugin(generator, "rewrite this", np.random.default_rng(0)) == "whole"


def test_prompts_evolved_at_once_are_counted_and_none_is_lost(tmp_path: Path) -> None:
    counted: list[tuple[int, int]] = []
    served = ServedModel(client_of("http://127.0.0.1:9/v1", tmp_path), "m")
    over: Any = evolve_concurrently(served, lambda *done: counted.append(done))
    assert over(lambda prompt: prompt * 2, [1, 2, 3]) == [2, 4, 6]
    assert sorted(counted) == [(1, 3), (2, 3), (3, 3)]
    with pytest.raises(HarnessError, match="evolving a prompt gave no result"):
        over(lambda prompt: None, [1])


def test_a_policy_that_rewrites_instructions_may_be_of_another_world() -> None:
    writer = files.card().identity("theta0")
    settings = {"creator": f"{VERSION}/{BY_POLICY}", "writer": writer}
    creator = runtime_of(settings["creator"]).evolver(settings).creator
    assert creator == PolicyCreator(resolve(writer))
