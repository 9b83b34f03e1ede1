"""What a profile's names stand for: on this machine while runs are planned, then at work in stages.

Identities say what lies on this machine, as `google/gemma-2-9b-it@<commit>`. On a bare machine they
end in `not-downloaded`, so that a run can be planned and priced before anything is fetched.

A model at an endpoint is known by its name there. What a judge is told stands in the benchmark's
own files and so in its identity. What a creator is told is spelled out in the settings: the model's
name, how it samples, the scheme's messages word for word, and the number of the rules by which
rewrites are unusable. So the templates file is read once, while a run is planned.

What is the embedded world's own, `harness.worlds.embedded.world` puts in the place of this.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from harness.endpoint.access import model_of
from harness.errors import HarnessError, UserError
from harness.eva.evolving import OwnCreator, own_method, plugin_settings
from harness.extensions import CREATORS, REWARDS
from harness.project import work_dir
from harness.registry.profile import REWARD_JUDGE, WORLD, Profile, PromptSettings
from harness.registry.recipe import Online, RewardRole
from harness.registry.serving import Served, ServedRole
from harness.runtime.stage import Json, StageContext, fingerprint_of
from harness.serving.engines import identity as engine_identity
from harness.worlds import NO_TOPIC, Evolver, Item, Topics
from harness.worlds.real import benchmarks, creator, prompts, rewards, scoring
from harness.worlds.real.creator import RULES_VERSION, why_unusable
from harness.worlds.real.models import (
    DIGITS,
    folder_of,
    identity_of,
    with_arguments,
    without_arguments,
)
from harness.worlds.stage_io import read_rows

if TYPE_CHECKING:
    from harness.models.reward_model import Reads, Rewards

Settings = dict[str, Json]
"""Those of a stage that identify something."""

INSTRUCTION = """Rewrite your answer to my message above so that it is better: more helpful, more \
relevant to what I asked, deeper, more creative and more detailed where that helps. Correct \
whatever is wrong. Keep it about as long as it is now.

Write the new answer and nothing else: no remarks about the old one or about what you changed."""
"""The user's message after the answer that is revised. It asks to keep the length, so that training
on revisions does not come down to training on longer answers. The wording is this project's own;
what it asks for is the paper's (appendix H.2.1)."""


@dataclass
class PromptSource:
    """Where a profile's human prompts come from: a data set of the hub, or a file."""

    profile: Profile

    def identity(self) -> Settings:
        cut: Settings = {"x": self.profile.x, "pieces": self.profile.prompts.available}
        return {**self._pool(), **cut}

    def matched(self) -> Settings | None:
        """Return what identifies prompts matched to the hard benchmark's skills, None without any.

        They are a control that shows whether prompts matter here, and no method. `matched` is among
        the settings.
        """
        source = self.profile.prompts.matched
        if source is None:
            return None
        _refuse_embedded(self.profile, "prompts.matched", source)
        settings = prompts.pool_settings(PromptSettings(source=source, available=1))
        return {**settings, "matched": True}

    def off_target(self) -> str:
        """Return what identifies prompts that can hardly help on the hard benchmark.

        They are a control, and only worlds that have an oracle have them.
        """
        raise NotImplementedError

    def topics(self) -> Topics | None:
        """Return what sorts prompts by topic, the profile's scorer; None where nothing does."""
        scorer = self.profile.creator.scorer
        if scorer is None:
            return None
        asked = scoring.topic_settings(scorer)
        settings = {**asked, **_served_as(self.profile, "scorer", scorer)}
        return Topics(tuple(scoring.TOPICS), settings, _read_topics)

    def pool(self) -> tuple[list[str], str]:
        """Return every human prompt, and what identifies them."""
        settings = self._pool()
        return prompts.read_pool(settings), str(settings["source"])

    def shown_word(self, word: str) -> str:
        """Return a word of a prompt as it counts for the distance between prompts."""
        return word

    def _pool(self) -> Settings:
        _refuse_embedded(self.profile, "prompts.source", self.profile.prompts.source)
        return prompts.pool_settings(self.profile.prompts)


@dataclass
class CreatorSource:
    """What rewrites a profile's prompts, and scores those of best-of-n trees."""

    profile: Profile

    def identity(self, scheme: str) -> Settings:
        """Return the model at an endpoint, how it samples and what it is told, or a plug-in."""
        model, own = self.profile.creator, CREATORS.added(scheme)
        if own is not None and not own.options["asks"]:
            said: Settings = {"creator": f"plugin/{scheme}", "rules": RULES_VERSION}
            return {**said, **plugin_settings(scheme)}
        _refuse_embedded(self.profile, "creator.source", model.source)
        rewriting: Settings = {
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

    def tree_scorer(self, online: Online) -> Settings:
        """Return the model that scores prompts and what it is asked, if best-of-n trees grow."""
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


class World:
    """What a profile's names stand for; each is looked for once."""

    self_contained = False
    """Whether all it needs is shipped or made on this machine: nothing has a price, nothing is
    downloaded, and no model is known outside."""

    has_validation_prompts = False
    """Whether it has prompts that no benchmark asks, with an oracle to score answers to them."""

    def __init__(
        self,
        profile: Profile,
        prompts: PromptSource | None = None,
        creator: CreatorSource | None = None,
    ) -> None:
        self.profile = profile
        self.prompts = prompts or PromptSource(profile)
        self.creator = creator or CreatorSource(profile)
        self._identity_of = cache(identity_of)
        self._benchmarks: dict[str, str] = {}

    def policy(self) -> str:
        served = self._served("policy")
        told = {} if served is None else served.template
        return with_arguments(self._model(self.profile.policy), told)

    def reward_model(self, role: str) -> str:
        models = {str(known): model for known, model in self.profile.reward_models.items()}
        return self._reward(models[role])

    def reward_model_accuracy(self, role: RewardRole) -> float | None:
        """Return the share of held-out pairs, from 0 to 1, that a reward model orders rightly.

        It is None where there is no such model, or where nobody has measured it.
        """
        return None

    def engine(self) -> Settings:
        """Return what stages in which the policy answers say of the engine."""
        engine = engine_identity(self.profile.engine)
        said: Settings = {"engine": engine, "dtype": self.profile.dtype}
        served = self._served("policy")
        return said if served is None else {**said, "max_length": served.max_length}

    def rewriter(self) -> Settings:
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

    def answering(self, name: str, seed: int) -> Settings:
        """Return the settings of the stage that answers a benchmark, except for the policy.

        How table 9's tasks sample is their package's.
        """
        identity, benchmark = self.benchmark(name), self.profile.benchmarks[name]
        if benchmarks.are_tasks(identity):
            return benchmarks.task_settings(identity, self.profile)
        return {
            "benchmark": identity,
            "temperature": benchmark.temperature,  # type: ignore[dict-item]
            "top_p": benchmark.top_p,
            "max_new_tokens": benchmark.max_new_tokens,
            "batch_size": self.profile.generation.batch_size,
            "seed": seed,
            **self.engine(),
        }

    def judging(self, name: str) -> Settings:
        """Return who judges the answers to a benchmark, and what else decides its scores."""
        judge = self.judge(self.profile.benchmarks[name].judge)
        settings = benchmarks.judging_settings(self.benchmark(name), judge)
        by_reward = judge.startswith(REWARD_JUDGE) and self.profile.dtype != "float32"
        more: Settings = {"dtype": self.profile.dtype} if by_reward else {}
        return {**settings, **more, **_served_as(self.profile, "judge", judge)}

    def rating(self, name: str) -> Settings:
        """Return the settings of the stage that rates prompts, by its name among benchmarks."""
        benchmark = self.profile.benchmarks[name]
        return {
            "judge": self.judge(benchmark.judge),
            **scoring.rating_settings(benchmark),
            **_served_as(self.profile, "scorer", benchmark.judge),
        }

    def _served(self, role: ServedRole) -> Served | None:
        serving = self.profile.serving
        return None if serving is None else serving.roles.get(role)

    def _reward(self, named: str) -> str:
        return rewards.identity_of(named) if named in REWARDS else self._model(named)

    def _model(self, model: str) -> str:
        _refuse_embedded(self.profile, "reward_models", model)
        return self._identity_of(model)


def _served_as(profile: Profile, role: ServedRole, model: str) -> Settings:
    """Return what a stage says of a role's model that the profile serves itself."""
    served = None if profile.serving is None else profile.serving.roles.get(role)
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


class Runtime:
    """What the settings of stages stand for: loads models, and asks those behind endpoints.

    A UserError says that something is not on this machine, or that nothing says where a model is
    served; a HarnessError that files or settings are not what an identity means, or that a model
    does not answer.
    """

    def resolve(self, identity: str) -> Path:
        """Return where the files of a model lie, after checking that they are those it means.

        Those of one whose chat template is given arguments are linked to, beside that template.
        """
        plain, told = without_arguments(identity)
        if not told:
            return folder_of(plain)
        from harness.models.loading import with_template_arguments

        out = work_dir() / "templates" / fingerprint_of(identity)[:DIGITS]
        out.parent.mkdir(parents=True, exist_ok=True)
        return with_template_arguments(folder_of(plain), told, out)

    def rewards(self, identity: str, reads: Reads, dtype: str) -> Rewards:
        """Return the reward model of an identity: a function, or a model on the GPU if any."""
        return rewards.load(identity, reads, dtype)

    def human_prompts(self, settings: Mapping[str, Json]) -> dict[int, str]:
        """Return a stage's human prompts, or those matched to them, by their places in the pool.

        The pool is the same for every seed; the seed decides the order it is cut in, so that
        pieces of one seed never overlap (authors' code, `shuffle_ds.py`).
        """
        pool = prompts.read_pool(settings)
        return {at: pool[at] for at in prompts.cut(settings, len(pool))}

    def evolver(
        self, settings: Mapping[str, Json], done: Callable[[int], None] | None = None
    ) -> Evolver:
        """Return the creator that a stage's settings mean, told what they spell out.

        `done` is told how many prompts are evolved, where they are many at once.
        """
        own = own_method(settings)
        spelled = cast(dict[str, Any], settings.get("rewriting", settings))
        if spelled["rules"] != RULES_VERSION:
            raise HarnessError(
                f"the stage asks for version {spelled['rules']} of the rules for unusable rewrites "
                f"and this is version {RULES_VERSION}; plan the run again"
            )
        if own is not None and "model" not in spelled:
            return Evolver(OwnCreator(own, why_unusable))
        served = model_of("creator", str(spelled["model"]), spelled["sampling"])
        generator = creator.EndpointGenerator(served)
        writer = (
            creator.ModelCreator(generator, creator.Scheme.model_validate(spelled["templates"]))
            if own is None
            else OwnCreator(own, why_unusable, partial(creator.replied, generator))
        )
        return Evolver(writer, creator.at_once(served, done), served.client)

    def tree_score(self, settings: Mapping[str, Json]) -> Callable[[str], float] | None:
        """Return what scores prompts for best-of-n trees; None where no tree grows."""
        if "scorer" not in settings:
            return None
        named = cast(dict[str, Any], settings["scorer"])
        scorer = scoring.scorer_of(
            str(named["model"]), scoring.SETTINGS, named["asked"], scoring.SCORES
        )
        return scoring.tree_score(scorer)

    def prompt_metrics(self) -> Mapping[str, Callable[[str], float]]:
        """Return what is read from the text of prompts while a policy is trained, by name."""
        return {}

    def questions(self, identity: str) -> Sequence[Item]:
        """Return the items of a benchmark, after checking that they are those it means."""
        return benchmarks.questions_of(identity)

    def own_answering(
        self, identity: str
    ) -> Callable[[StageContext, Callable[[], Path]], None] | None:
        """Return what answers a benchmark whose package asks the questions; None for others.

        It takes what returns the policy's folder, and writes what the stage writes.
        """
        return benchmarks.run_tasks if benchmarks.are_tasks(identity) else None

    def judge(self, ctx: StageContext) -> None:
        """Judge answers; writes `judgments.parquet`, `scores.parquet` and `summary.json`."""
        benchmarks.judge_answers(ctx)

    def rate(self, ctx: StageContext) -> None:
        """Score prompts; writes `scores.parquet` and `summary.json`."""
        scoring.rate_prompts(ctx)
