"""Resolves a profile's names: to identities while runs are planned, to objects while stages run.

Identities say what is on this machine, e.g. `google/gemma-2-9b-it@<commit>`; without the files they
end in `not-downloaded`, so a run can be planned and priced first. A model at an endpoint is
identified by its name there; a creator is spelled out in the settings, with its messages verbatim.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from harness.endpoint.access import model_of
from harness.errors import UserError
from harness.eva.evolving import OwnCreator, own_method, plugin_settings
from harness.extensions import CREATORS, REWARDS
from harness.registry.profile import INSTRUCTIONS, REWARD_JUDGE, WORLD, Profile
from harness.registry.recipe import RewardRole
from harness.registry.serving import ServedRole
from harness.runtime.stage import Json, StageContext, fingerprint_of
from harness.serving.engines import identity as engine_identity
from harness.words import ignore
from harness.worlds import NO_TOPIC, Evolver, Item, Prompts, Runtime, Settings, Topics, World
from harness.worlds.instructions import tasks as instructions
from harness.worlds.real import benchmarks, creator, prompts, rewards, scoring
from harness.worlds.real.creator import RULES_VERSION, why_unusable
from harness.worlds.real.models import DIGITS, identity_of, with_arguments
from harness.worlds.stage_io import read_rows

if TYPE_CHECKING:
    from harness.endpoint.client import Done
    from harness.models.reward_model import Reads, Rewards

INSTRUCTION = """Rewrite your answer to my message above so that it is better: more helpful, more \
relevant to what I asked, deeper, more creative and more detailed where that helps. Correct \
whatever is wrong. Keep it about as long as it is now.

Write the new answer and nothing else: no remarks about the old one or about what you changed."""
"""The user message that asks for a revision of the answer before it. It asks to keep the length, so
that training on revisions is not just training on longer answers. The wording is ours; what it asks
for is from the paper (appendix H.2.1)."""


@dataclass
class HubPrompts(Prompts):
    """The source of a profile's human prompts: a dataset on the hub, or a file."""

    profile: Profile

    def identity(self) -> Settings:
        _refuse_embedded(self.profile, "prompts.source", self.profile.prompts.source)
        cut: Settings = {"x": self.profile.x, "pieces": self.profile.prompts.available}
        return {**prompts.pool_settings(self.profile.prompts), **cut}

    def topics(self) -> Topics | None:
        scorer = self.profile.creator.scorer
        if scorer is None:
            return None
        asked = scoring.topic_settings(scorer)
        settings = {**asked, **_served_as(self.profile, "scorer", scorer)}
        return Topics(tuple(scoring.TOPICS), settings, _read_topics)


def creator_settings(profile: Profile, method: str) -> Settings:
    """Return the model at an endpoint with its sampling and messages, or the plug-in."""
    model, own, plugin = profile.creator, CREATORS.added(method), plugin_settings(method)
    if own is not None and not own.options["asks"]:
        return {"creator": f"plugin/{method}", "rules": RULES_VERSION, **plugin}
    _refuse_embedded(profile, "creator.source", model.source)
    rewriting: Settings = {
        "model": model.source,
        "sampling": scoring.sampling_of(model),
        "rules": RULES_VERSION,
        **_served_as(profile, "creator", model.source),
    }
    if own is not None:
        return {"creator": f"{model.source}/{method}", "rewriting": rewriting, **plugin}
    templates = creator.load_method(method)
    digest = fingerprint_of(templates, "templates")
    return {
        "creator": f"{model.source}/{method}@{digest[:DIGITS]}",
        "rewriting": {**rewriting, "templates": templates},
    }


class HubWorld(World):
    """Hub models, and benchmarks that are published or of the world `instructions`."""

    def __init__(
        self, profile: Profile, prompts: Prompts, creator: Callable[[str], Settings]
    ) -> None:
        self.profile, self.prompts, self.creator = profile, prompts, creator
        self._identity_of = cache(identity_of)
        self._benchmark_of = cache(partial(_benchmark_of, profile))

    def policy(self) -> str:
        served = self.profile.served.get("policy")
        told = {} if served is None else served.template
        return with_arguments(self._model(self.profile.policy), told)

    def reward_model(self, role: RewardRole) -> str:
        return self._reward(self.profile.reward_models[role])

    def engine(self) -> Settings:
        engine = engine_identity(self.profile.engine)
        said: Settings = {"engine": engine, "dtype": self.profile.dtype}
        served = self.profile.served.get("policy")
        return said if served is None else {**said, "max_length": served.max_length}

    def rewriter(self) -> Settings:
        return {"instruction": INSTRUCTION}

    def benchmark(self, name: str) -> str:
        return self._benchmark_of(name)

    def judge(self, name: str) -> str:
        if not name.startswith(REWARD_JUDGE):
            return name
        return f"{REWARD_JUDGE}{self._reward(name.removeprefix(REWARD_JUDGE))}"

    def answering(self, name: str, seed: int) -> Settings:
        if benchmarks.are_tasks(identity := self.benchmark(name)):
            return benchmarks.task_settings(identity, self.profile)
        return super().answering(name, seed)

    def judging(self, name: str) -> Settings:
        declared = self.profile.benchmarks[name]
        if declared.judge == INSTRUCTIONS:
            own: Settings = {"benchmark": self.benchmark(name), "judge": instructions.JUDGE}
            guarded = "if_logp" in declared.columns
            return {**own, "base": self.policy()} if guarded else own
        judge = self.judge(declared.judge)
        settings = benchmarks.judging_settings(self.benchmark(name), judge)
        by_reward = judge.startswith(REWARD_JUDGE) and self.profile.dtype != "float32"
        more: Settings = {"dtype": self.profile.dtype} if by_reward else {}
        return {**settings, **more, **_served_as(self.profile, "judge", judge)}

    def rating(self, name: str) -> Settings:
        benchmark = self.profile.benchmarks[name]
        return {
            "judge": self.judge(benchmark.judge),
            **scoring.rating_settings(benchmark),
            **_served_as(self.profile, "scorer", benchmark.judge),
        }

    def _reward(self, named: str) -> str:
        return rewards.identity_of(named) if named in REWARDS else self._model(named)

    def _model(self, model: str) -> str:
        _refuse_embedded(self.profile, "reward_models", model)
        return self._identity_of(model)


def _benchmark_of(profile: Profile, name: str) -> str:
    declared = profile.benchmarks[name]
    if declared.judge == INSTRUCTIONS:
        return instructions.benchmark_identity(name, declared)
    return benchmarks.benchmark_identity(name, declared)


def _served_as(profile: Profile, role: ServedRole, model: str) -> Settings:
    """Return the stage settings of a role's model if the profile serves it itself, else {}."""
    served = profile.served.get(role)
    if served is None or served.model is None or served.name != model:
        return {}
    return {"served": {**served.numerics(), "model": identity_of(served.model)}}


def _refuse_embedded(profile: Profile, setting: str, source: str) -> None:
    if source == WORLD:
        raise UserError(
            f"the profile `{profile.name}` takes `{setting}` from the embedded world, which only "
            "its own policy can read; name one from outside"
        )


def _read_topics(folder: Path) -> list[tuple[str, str]]:
    rows = read_rows(folder / "topics.parquet")
    return [(row["prompt_id"], row["topic"] or NO_TOPIC) for row in rows]


class HubRuntime(Runtime):
    """Loads hub models, and queries those at endpoints."""

    def rewards(self, identity: str, reads: Reads, dtype: str) -> Rewards:
        return rewards.load(identity, reads, dtype)

    def human_prompts(self, settings: Mapping[str, Json]) -> dict[int, str]:
        """Return a stage's human prompts by their positions in the pool.

        The seed only shuffles the pool before it is cut, so pieces of one seed never overlap.
        """
        pool = prompts.read_pool(settings)
        return {at: pool[at] for at in prompts.cut(settings, len(pool))}

    def evolver(self, settings: Mapping[str, Json], done: Done = ignore) -> Evolver:
        own = own_method(settings)
        spelled = cast(dict[str, Any], settings.get("rewriting", settings))
        if own is not None and "model" not in spelled:
            return Evolver(OwnCreator(own, why_unusable))
        served = model_of("creator", str(spelled["model"]), spelled["sampling"])
        generator = creator.EndpointGenerator(served)
        writer = (
            creator.ModelCreator(generator, spelled["templates"]["messages"])
            if own is None
            else OwnCreator(own, why_unusable, partial(creator.write_for_plugin, generator))
        )
        return Evolver(writer, creator.evolve_concurrently(served, done), served.client)

    def questions(self, identity: str) -> Sequence[Item]:
        return benchmarks.questions_of(identity)

    def own_answering(self, identity: str) -> Callable[[StageContext], None] | None:
        return benchmarks.run_tasks if benchmarks.are_tasks(identity) else None

    def judge(self, ctx: StageContext) -> None:
        benchmarks.judge_answers(ctx)

    def rate(self, ctx: StageContext) -> None:
        scoring.rate_prompts(ctx)
