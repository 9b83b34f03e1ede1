"""What real models answer: from this machine while runs are planned, then from the models.

Identities say what lies on this machine, as `google/gemma-2-9b-it@<commit>`. On a bare machine they
end in `not-downloaded`, so that a run can be planned and priced before anything is fetched.

A model at an endpoint is known by its name there. What a judge is told stands in the benchmark's
own files and so in its identity. What a creator is told is spelled out in the settings: the model's
name, how it samples, the scheme's messages word for word, and the number of the rules by which
rewrites are unusable. So the templates file is read once, while a run is planned.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from harness import worlds
from harness.errors import HarnessError, UserError
from harness.eva.evolving import OwnCreator, own_method, plugin_settings
from harness.extensions import CREATORS, REWARDS
from harness.project import work_dir
from harness.registry.profile import REWARD_JUDGE, WORLD, Profile, PromptSettings
from harness.registry.recipe import Online
from harness.registry.serving import Role, Served
from harness.runtime.stage import Json, StageContext, canonical_json, digest
from harness.serving.engines import identity as engine_identity
from harness.worlds import Evolver, HumanPrompts, Item, Topics
from harness.worlds.real import benchmarks, creator, prompts, rewards, scoring
from harness.worlds.real.models import (
    DIGITS,
    access_to,
    folder_of,
    identity_of,
    with_arguments,
    without_arguments,
)
from harness.worlds.real.unusable import RULES_VERSION, why_unusable

if TYPE_CHECKING:
    from harness.models.reward_model import Reads, Rewards

INSTRUCTION = """Rewrite your answer to my message above so that it is better: more helpful, more \
relevant to what I asked, deeper, more creative and more detailed where that helps. Correct \
whatever is wrong. Keep it about as long as it is now.

Write the new answer and nothing else: no remarks about the old one or about what you changed."""
"""The user's message after the answer that is revised. It asks to keep the length, so that training
on revisions does not come down to training on longer answers. The wording is this project's own;
what it asks for is the paper's (appendix H.2.1)."""


class RealPrompts(worlds.PromptSource):
    """A data set of the hub, or a file."""

    def identity(self) -> dict[str, Json]:
        _refuse_embedded(self.profile, "prompts.source", self.profile.prompts.source)
        cut: dict[str, Json] = {"x": self.profile.x, "pieces": self.profile.prompts.available}
        return {**prompts.pool_settings(self.profile.prompts), **cut}

    def matched(self) -> dict[str, Json] | None:
        source = self.profile.prompts.matched
        if source is None:
            return None
        _refuse_embedded(self.profile, "prompts.matched", source)
        return {
            **prompts.pool_settings(PromptSettings(source=source, available=1)),
            "matched": True,
        }

    def topics(self) -> Topics | None:
        """Return what the profile's scorer sorts prompts into."""
        scorer = self.profile.creator.scorer
        if scorer is None:
            return None
        settings = {
            **scoring.topic_settings(scorer),
            **_served_as(self.profile, "scorer", scorer),
        }
        return Topics(tuple(scoring.TOPICS), settings, _read_topics)

    def pool(self) -> tuple[list[str], str]:
        """Return every human prompt, and what identifies them."""
        _refuse_embedded(self.profile, "prompts.source", self.profile.prompts.source)
        settings = prompts.pool_settings(self.profile.prompts)
        return prompts.read_pool(settings), str(settings["source"])


class RealCreator(worlds.CreatorSource):
    """A model at an endpoint, or a plug-in's method."""

    def identity(self, scheme: str) -> dict[str, Json]:
        """Return the model at an endpoint, how it samples and what it is told."""
        model, own = self.profile.creator, CREATORS.added(scheme)
        if own is not None and not own.options["asks"]:
            said: dict[str, Json] = {"creator": f"plugin/{scheme}", "rules": RULES_VERSION}
            return {**said, **plugin_settings(scheme)}
        _refuse_embedded(self.profile, "creator.source", model.source)
        rewriting: dict[str, Json] = {
            "model": model.source,
            "sampling": scoring.sampling_of(model),
            "rules": RULES_VERSION,
            **_served_as(self.profile, "creator", model.source),
        }
        if own is not None:
            said = {"creator": f"{model.source}/{scheme}", "rewriting": rewriting}
            return {**said, **plugin_settings(scheme)}
        own_words = Path(model.templates) if model.templates else None
        templates = creator.load_scheme(scheme, own_words)
        return {
            "creator": f"{model.source}/{scheme}@{templates.digest[:DIGITS]}",
            "rewriting": {**rewriting, "templates": templates.model_dump()},
        }

    def tree_scorer(self, online: Online) -> dict[str, Json]:
        """Return the model that scores prompts and what it is asked, if trees grow."""
        grows = online.prompts == "eva" and online.method == "tree_bon" and online.tree_depth > 1
        if not grows:
            return {}
        model = self.profile.creator.scorer
        if model is None:
            raise UserError(
                f"the profile `{self.profile.name}` has no model that scores prompts, by which "
                "best-of-n trees grow; name one in `creator.scorer`"
            )
        asked: Json = [question.identity(model) for question in scoring.SCORES.values()]
        return {
            "scorer": {"model": model, "asked": asked, **_served_as(self.profile, "scorer", model)}
        }


def _served_as(profile: Profile, role: Role, model: str) -> dict[str, Json]:
    """Return what a stage says of a role's model that the profile serves itself."""
    served = None if profile.serving is None else profile.serving.roles.get(role)
    if served is None or served.model is None or served.name != model:
        return {}
    return {"served": {**served.numerics(), "model": identity_of(served.model)}}


class RealWorld(worlds.World):
    """Models of the hub, endpoints and published benchmarks; each is looked for once."""

    self_contained = False

    def __init__(self, profile: Profile) -> None:
        super().__init__(profile, RealPrompts(profile), RealCreator(profile))
        self._models: dict[str, str] = {}
        self._benchmarks: dict[str, str] = {}

    def policy(self) -> str:
        served = self._served("policy")
        told = {} if served is None else served.template
        return with_arguments(self._model(self.profile.policy), told)

    def reward_model(self, role: str) -> str:
        models = {str(known): model for known, model in self.profile.reward_models.items()}
        return self._reward(models[role])

    def _reward(self, named: str) -> str:
        return rewards.identity_of(named) if named in REWARDS else self._model(named)

    def engine(self) -> dict[str, Json]:
        said: dict[str, Json] = {
            "engine": engine_identity(self.profile.engine),
            "dtype": self.profile.dtype,
        }
        served = self._served("policy")
        return said if served is None else {**said, "max_length": served.max_length}

    def rewriter(self) -> dict[str, Json]:
        return {"instruction": INSTRUCTION}

    def benchmark(self, name: str) -> str:
        if name not in self._benchmarks:
            declared = self.profile.benchmarks[name]
            self._benchmarks[name] = benchmarks.benchmark_identity(name, declared)
        return self._benchmarks[name]

    def judge(self, name: str) -> str:
        """Return a judge's name at its endpoint, or the identity of a reward model."""
        if not name.startswith(REWARD_JUDGE):
            return name
        return f"{REWARD_JUDGE}{self._reward(name.removeprefix(REWARD_JUDGE))}"

    def answering(self, name: str, seed: int) -> dict[str, Json]:
        """Return how a benchmark is answered; how table 9's tasks sample is their package's."""
        identity = self.benchmark(name)
        if benchmarks.are_tasks(identity):
            return benchmarks.task_settings(identity, self.profile)
        return super().answering(name, seed)

    def judging(self, name: str) -> dict[str, Json]:
        """Return who judges, and what else decides which scores there are."""
        judge = self.judge(self.profile.benchmarks[name].judge)
        settings = benchmarks.judging_settings(self.benchmark(name), judge)
        by_reward = judge.startswith(REWARD_JUDGE) and self.profile.dtype != "float32"
        more: dict[str, Json] = {"dtype": self.profile.dtype} if by_reward else {}
        return {**settings, **more, **_served_as(self.profile, "judge", judge)}

    def rating(self, name: str) -> dict[str, Json]:
        benchmark = self.profile.benchmarks[name]
        return {
            **super().rating(name),
            **scoring.rating_settings(benchmark),
            **_served_as(self.profile, "scorer", benchmark.judge),
        }

    def _served(self, role: Role) -> Served | None:
        serving = self.profile.serving
        return None if serving is None else serving.roles.get(role)

    def _model(self, model: str) -> str:
        _refuse_embedded(self.profile, "reward_models", model)
        if model not in self._models:
            self._models[model] = identity_of(model)
        return self._models[model]


def _refuse_embedded(profile: Profile, setting: str, source: str) -> None:
    if source == WORLD:
        raise UserError(
            f"the profile `{profile.name}` takes `{setting}` from the embedded world, which only "
            "its own policy can read; name one from outside"
        )


def _read_topics(folder: Path) -> list[tuple[str, str]]:
    from harness.worlds.stage_io import read_rows

    rows = read_rows(folder / "topics.parquet")
    return [(row["prompt_id"], row["topic"] or worlds.NO_TOPIC) for row in rows]


class RealRuntime(worlds.Runtime):
    """Loads models, and asks those behind endpoints."""

    def resolve(self, identity: str) -> Path:
        """Return where the files of a model lie, after checking that they are those it means.

        Those of one whose chat template is given arguments are linked to, beside that template.
        """
        plain, told = without_arguments(identity)
        if not told:
            return folder_of(plain)
        from harness.models.loading import with_template_arguments

        out = work_dir() / "templates" / digest(canonical_json(identity))[:DIGITS]
        out.parent.mkdir(parents=True, exist_ok=True)
        return with_template_arguments(folder_of(plain), told, out)

    def rewards(self, identity: str, reads: Reads, dtype: str) -> Rewards:
        """Return a function, or a model on the GPU if there is one."""
        return rewards.load(identity, reads, dtype)

    def human_prompts(self, settings: Mapping[str, Json]) -> HumanPrompts:
        """Return pieces of a pool, or of a file of matched prompts some."""
        pool = prompts.read_pool(settings)
        chosen = prompts.cut(settings, len(pool))
        if settings.get("matched"):
            return HumanPrompts(pool, chosen)
        summary = {
            "source": settings["source"],
            "pool": asdict(prompts.duplicates(pool)),
            "cut": asdict(prompts.duplicates([pool[i] for i in chosen])),
        }
        return HumanPrompts(pool, chosen, summary)

    def evolver(
        self, settings: Mapping[str, Json], done: Callable[[int], None] | None = None
    ) -> Evolver:
        """Return the model at an endpoint, told what the settings spell out."""
        own = own_method(settings)
        spelled = cast(dict[str, Any], settings.get("rewriting", settings))
        if spelled["rules"] != RULES_VERSION:
            raise HarnessError(
                f"the stage asks for version {spelled['rules']} of the rules for unusable rewrites "
                f"and this is version {RULES_VERSION}; plan the run again"
            )
        if own is not None and "model" not in spelled:
            return Evolver(OwnCreator(own, why_unusable))
        model = str(spelled["model"])
        access = access_to("CREATOR", model)
        client = access.client()
        generator = creator.EndpointGenerator(client, model, spelled["sampling"])
        writer = (
            creator.ModelCreator(generator, creator.Scheme.model_validate(spelled["templates"]))
            if own is None
            else OwnCreator(own, why_unusable, partial(creator.replied, generator))
        )
        over = creator.at_once(client, access.concurrency, done)
        return Evolver(writer, over, client)

    def tree_score(self, settings: Mapping[str, Json]) -> Callable[[str], float] | None:
        """Return the model that scores prompts, if the settings name one."""
        if "scorer" not in settings:
            return None
        named = cast(dict[str, Any], settings["scorer"])
        scorer = scoring.scorer_of(
            str(named["model"]), scoring.SETTINGS, named["asked"], scoring.SCORES
        )
        return scoring.tree_score(scorer)

    def questions(self, identity: str) -> Sequence[Item]:
        return benchmarks.questions_of(identity)

    def own_answering(self, identity: str) -> worlds.OwnAnswering | None:
        """Return what runs table 9's tasks, whose package asks the questions."""
        return benchmarks.run_tasks if benchmarks.are_tasks(identity) else None

    def judge(self, ctx: StageContext) -> None:
        """Judge answers through the benchmark's own code, or read the package's scores."""
        benchmarks.judge_answers(ctx)

    def rate(self, ctx: StageContext) -> None:
        scoring.rate_prompts(ctx)
