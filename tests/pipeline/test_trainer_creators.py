"""Laws of runs whose prompts or creator come from outside the embedded world.

The policy, the rewards and the benchmarks stay embedded, so that a run takes seconds; a file gives
the human prompts, and a stand-in endpoint rewrites them.
"""

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from computing import compute, given, rows, run_stage, small, summary, tried
from judge_stand_in import StandIn, completion, digest

from harness.errors import HarnessError
from harness.eva.evolving import Prompt
from harness.pipeline.algorithm import Planner, Run
from harness.pipeline.steps import evolve_stage
from harness.registry.profile import Profile
from harness.registry.recipe import Recipe
from harness.runtime import Plan, Stage, Store
from harness.runtime.stage import fingerprint_of
from harness.worlds.embedded import files
from harness.worlds.embedded.creator import EmbeddedCreator
from harness.worlds.embedded.texts import read_prompts
from harness.worlds.lookup import world_of
from harness.worlds.real.creator import load_method

X, POOL = 16, 93
"""Prompts of an iteration, and in the file: six pieces, three of 15 and three of 16 prompts."""

pytestmark = pytest.mark.usefixtures("shipped_world")


@pytest.fixture(scope="module")
def work(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A work folder, and endpoints named in the environment that nobody serves."""
    folder = tmp_path_factory.mktemp("creators")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HARNESS_WORK", str(folder / "work"))
        patch.setenv("HARNESS_CREATOR_URL", "http://127.0.0.1:9/v1")
        for name in ("KEY", "PRICE", "CONCURRENCY"):
            patch.delenv(f"HARNESS_CREATOR_{name}", raising=False)
        yield folder / "work"


@pytest.fixture(scope="module")
def profile(work: Path, micro: Profile) -> Profile:
    """The embedded profile with prompts from a file and a creator at an endpoint."""
    pool = read_prompts(files.resolve(files.card().identity("prompts")))[:POOL]
    path = work.parent / "prompts.jsonl"
    path.write_text("".join(json.dumps({"prompt": text}) + "\n" for text in pool))
    creator = {
        "source": "stand-in/writer",
        "methods": ("evol_instruct", "self_instruct", "appendix_f"),
        "online_method": "appendix_f",
        "temperature": 0.9,
        "max_new_tokens": 99,
    }
    prompts = micro.prompts.model_copy(update={"source": str(path)})
    return small(micro, X, prompts=prompts, creator=micro.creator.model_copy(update=creator))


def with_creator(profile: Profile, **changes: Any) -> Profile:
    return profile.model_copy(update={"creator": profile.creator.model_copy(update=changes)})


def planned(profile: Profile, seed: int = 0, **creator: Any) -> Run:
    recipe = Recipe.model_validate(
        {"algorithm": "dpo", "chain": ["human", "eva"], "creator": {"fraction": 0.5, **creator}}
    )
    return Planner(world_of(profile)).run("run", recipe, seed)


def online(profile: Profile) -> Run:
    block = {"minibatch": 4, "buffer": 0.5, "n_new": 2, "n_new_bootstrap": 1}
    recipe = Recipe.model_validate({"algorithm": "rloo", "online": block})
    return Planner(world_of(profile)).run("run", recipe, 0)


def stage_of(run: Run, kind: str) -> Stage:
    (found,) = [stage for stage in Plan(run.targets) if stage.kind == kind]
    return found


def rewrite(body: Any) -> Any:
    """What the embedded creator makes of the prompt in a message; a refusal where it fails."""
    message = body["messages"][-1]["content"]
    prompt = message.partition("<prompt>\n")[2].partition("\n</prompt>")[0]
    made = EmbeddedCreator().rewrite(prompt, np.random.default_rng(digest(body)))
    if made.prompt is None:
        return completion("I'm sorry, but I can't help with that.")
    return completion(f"<new_prompt>\n{made.prompt}\n</new_prompt>")


def test_a_creator_at_an_endpoint_is_identified_by_model_method_and_words(profile: Profile) -> None:
    settings: Any = stage_of(planned(profile), "evolve").settings
    templates = load_method("evol_instruct")
    digest = fingerprint_of(templates, "templates")
    assert settings["creator"] == f"stand-in/writer/evol_instruct@{digest[:16]}"
    spelled = settings["rewriting"]
    assert spelled["templates"] == templates
    assert spelled["model"] == "stand-in/writer"
    assert spelled["sampling"] == {"temperature": 0.9, "max_tokens": 99}


def test_where_the_endpoint_is_changes_no_stage(
    profile: Profile, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = stage_of(planned(profile), "evolve").fingerprint
    monkeypatch.setenv("HARNESS_CREATOR_URL", "http://127.0.0.1:10/v1")
    monkeypatch.setenv("HARNESS_CREATOR_KEY", "another-key")
    assert stage_of(planned(profile), "evolve").fingerprint == here


def test_model_sampling_and_method_are_each_part_of_the_fingerprint(profile: Profile) -> None:
    profiles = [
        profile,
        with_creator(profile, source="another"),
        with_creator(profile, temperature=0.5),
    ]
    runs = [planned(p) for p in profiles]
    runs += [planned(profile, method="appendix_f"), planned(profile, method="self_instruct")]
    stages = [stage_of(run, "evolve") for run in runs]
    assert len({stage.fingerprint for stage in stages}) == len(stages)


@dataclass(frozen=True)
class Finished:
    """A run up to its mix of pairs whose creator `broke` off once, `before` all was `answered`."""

    run: Run
    store: Store
    broke: str
    before: int
    answered: int


@pytest.fixture(scope="module")
def finished(profile: Profile, work: Path) -> Finished:
    """The endpoint loses its model after 9 rewrites, and has it again for the second attempt."""
    run, gone = planned(profile), {"after": 9}
    evolve, mix = (stage_of(run, kind) for kind in ("evolve", "mix"))

    def reply(body: Any) -> Any:
        if sum(server.answered.values()) >= gone["after"]:
            return 404, {"error": {"message": "no such model"}}, {}
        return rewrite(body)

    with StandIn(reply, failing=0.1) as server, pytest.MonkeyPatch.context() as patch:
        patch.setenv("HARNESS_CREATOR_URL", server.url)
        patch.setenv("HARNESS_CREATOR_CONCURRENCY", "1")
        store, failure = tried(work, mix)
        assert failure is not None
        assert store.status(evolve.fingerprint) != "done"
        before, gone["after"] = sum(server.answered.values()), 10**6
        patch.setenv("HARNESS_CREATOR_CONCURRENCY", "5")
        compute(work, mix)
        return Finished(run, store, failure, before, sum(server.answered.values()))


def test_every_call_of_an_endpoint_is_counted_and_its_lineage_kept(finished: Finished) -> None:
    store = finished.store
    evolve, select = (stage_of(finished.run, kind) for kind in ("evolve", "select"))
    said, made = summary(store, evolve), rows(store, evolve, "prompts")
    chosen = {row["prompt_id"] for row in rows(store, select, "selected")}
    assert said["seeds"] == len(chosen) == 7
    assert said["prompts"] + said["dropped"] == 4 * len(chosen)
    assert said["calls"] == said["prompts"] + sum(said["unusable"].values())
    assert {row["source"] for row in made} == {"evolved"}
    tried = rows(store, evolve, "attempts")
    assert len(tried) == said["calls"]
    assert {row["creator"] for row in tried} == {evolve.settings["creator"]}
    by_child = {row["child_id"]: row for row in tried if row["reason"] is None}
    assert set(by_child) == {row["prompt_id"] for row in made}
    for row in made:
        attempt = by_child[row["prompt_id"]]
        assert (attempt["parent_id"], attempt["method"]) == (row["parent_id"], row["method"])
        assert attempt["written"] == f"<new_prompt>\n{row['prompt']}\n</new_prompt>"
    assert Counter(r["reason"] for r in tried if r["reason"]) == said["unusable"]
    points = store.progress(evolve.fingerprint)
    assert [(p.step, p.metrics) for p in points] == [(i, {"evolved": i / 7}) for i in range(1, 8)]


def test_a_stage_that_broke_off_asked_only_for_what_was_missing(finished: Finished) -> None:
    """Each call was answered once over both attempts, at 100 and 10 tokens."""
    said = summary(finished.store, stage_of(finished.run, "evolve"))
    assert "has no model stand-in/writer" in finished.broke
    assert 0 < finished.before < finished.answered == said["calls"]
    calls = said["calls"]
    cost = said["cost"]
    assert (cost["prompt_tokens"], cost["completion_tokens"]) == (100 * calls, 10 * calls)


def test_online_rewrites_come_through_endpoints(
    profile: Profile, work: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = online(profile)
    (segment,) = run.training
    assert str(segment.settings["creator"]).startswith("stand-in/writer/appendix_f@")
    with StandIn(rewrite) as server:
        monkeypatch.setenv("HARNESS_CREATOR_URL", server.url)
        store = compute(work, segment)
        asked = Counter(body["model"] for body in server.bodies)
    said = summary(store, segment)
    assert said["creator_calls"] == asked["stand-in/writer"]
    assert said["children"] > 0
    methods = {r["method"] for r in rows(store, segment, "trained") if r["generation"] > 0}
    assert set() < methods <= set(load_method("appendix_f")["messages"])


def test_rewrites_of_which_none_can_be_used_are_one_sentence(tmp_path: Path) -> None:
    """The embedded creator hands back what is no task: three tries for each of two prompts."""
    chosen = [
        vars(Prompt(f"h{i}", text)) for i, text in enumerate(("tell me a joke", "what is it"))
    ]
    inputs = {"selected": given(tmp_path / "selected", "selected", chosen)}
    settings = {
        "creator": f"{files.VERSION}/evol_instruct", "evolutions": 1, "retries": 2, "iteration": 1
    }  # fmt: skip
    with pytest.raises(HarnessError, match=r"none of 6 rewrites .* \(6 unchanged\): look at"):
        run_stage(evolve_stage, tmp_path / "out", settings, inputs)
