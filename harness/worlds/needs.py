"""What a profile or stages need from outside, what of it is missing here, and its download.

Checking reads no weights, shows no key and sends nothing: whether the hub grants access to a model
or an endpoint has one shows only in `harness download` and the first request. Models come from the
hub at the commit the profile pins, only the files that loaders read: no pickled weights, no code.
Benchmarks come from their public homes, with known digests.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import cast

from harness.endpoint.access import model_of
from harness.errors import HarnessError, UserError
from harness.evaluation.benchmark import benchmark_class
from harness.evaluation.files import fetch
from harness.extensions import BENCHMARKS, benchmark_place
from harness.foreign import error_in_a_line
from harness.project import benchmarks_dir
from harness.registry.profile import (
    INSTRUCTIONS,
    REWARD_JUDGE,
    WORLD,
    Profile,
    benchmark_named,
)
from harness.registry.serving import Served, ServedRole, variable
from harness.runtime.crew import visible_gpus
from harness.runtime.stage import Json, Stage
from harness.serving.engines import SERVED, installed
from harness.strict import Strict
from harness.words import counted
from harness.worlds.embedded import files
from harness.worlds.real import benchmarks, models, prompts
from harness.worlds.real.benchmarks import DOWNSTREAM, LM_EVAL
from harness.worlds.real.rewards import models_behind
from harness.worlds.real.world import HubPrompts

TRAINING_KINDS = ("train", "online")
"""Kinds of stages that train a policy."""


class Missing(Strict):
    """Something that a run needs and this machine lacks."""

    what: str
    why: str
    do: str
    """What to do about it."""

    @property
    def line(self) -> str:
        return f"{self.what}: {self.why}" + (f"; {self.do}" if self.do else "")

    @property
    def short(self) -> str:
        """What to do first; why it is missing, where `harness download` gets it."""
        first = self.do.partition(" (")[0].partition(", or ")[0]
        return f"{self.what}: {self.why if self.is_downloaded else first or self.why}"

    @property
    def is_downloaded(self) -> bool:
        return self.what.partition(" ")[0] in ("model", "prompts", "benchmark")

    @classmethod
    def because(cls, what: str, error: HarnessError) -> Missing:
        """Build one from a message of the form `problem; what to do`."""
        why, _, do = str(error).partition("; ")
        return cls(what=what, why=why, do=do)


MODELS = ("policy", "reward_model", "ranker")
"""Stage settings that are model identities."""

Settings = Mapping[str, Json]


@dataclass
class Demand:
    """External inputs of stages, or of any stages a profile could have.

    Attributes:
        profile: The profile.
        stages: Number of stages by kind, or None for any that the profile could have.
        embedded: Whether files of the embedded world are read.
        models: Models to load, by profile name or identity.
        pools: Settings of stages that cut prompts from a pool.
        benchmarks: Benchmarks from outside the embedded world, by their names in the profile.
        endpoints: (role, model, required) of each model queried at an endpoint.
        servers: Those of the queried models that the harness serves itself.
        served: Whether the profile's engine generates answers.
    """

    profile: Profile
    stages: Mapping[str, int] | None = None
    embedded: bool = False
    models: dict[str, None] = field(default_factory=dict)
    pools: list[Settings] = field(default_factory=list)
    benchmarks: dict[str, None] = field(default_factory=dict)
    endpoints: list[tuple[ServedRole, str, bool]] = field(default_factory=list)
    servers: list[Served] = field(default_factory=list)
    served: bool = False

    @classmethod
    def of(
        cls, profile: Profile, stages: Iterable[Stage] | None = None, *, serves: bool = True
    ) -> Demand:
        """Return what `stages` (those still to compute) need, or without them all of a profile."""
        if stages is None:
            found = cls(profile, served=True)
            asked = found._add_profile()
        else:
            found, asked = cls(profile, Counter()), {}
            names = {_place(profile, name): name for name in profile.benchmarks}
            for stage in stages:
                found._add_stage(stage, names)
                asked |= dict.fromkeys(asked_by(stage), True)
        for (role, model), required in asked.items():
            here = served_here(profile, role, model) if serves else None
            if here is None:
                found.endpoints.append((role, model, required))
            else:
                found.servers.append(here)
                found.models[str(here.model)] = None
        return found

    def _add_profile(self) -> dict[tuple[ServedRole, str], bool]:
        """Add everything in the profile; return whether each (role, model) queried is required."""
        profile, is_embedded = self.profile, self.profile.policy == WORLD
        source, creator = profile.prompts.source, profile.creator
        own = {
            name: declared
            for name, declared in profile.benchmarks.items()
            if declared.judge != INSTRUCTIONS and (not is_embedded or BENCHMARKS.added(name))
        }
        judges = [declared.judge for declared in profile.benchmarks.values()]
        by_reward = [it.removeprefix(REWARD_JUDGE) for it in judges if it.startswith(REWARD_JUDGE)]
        rewards = [*profile.reward_models.values(), *by_reward]
        named = [profile.policy, *(model for name in rewards for model in models_behind(name))]
        self.models = dict.fromkeys(model for model in named if model != WORLD)
        self.benchmarks = dict.fromkeys(own)
        self.embedded = WORLD in (source, creator.source, *named)
        if source not in (WORLD, INSTRUCTIONS):
            count = profile.x * profile.prompts.available
            self.pools.append({"seed": 0, "first": 0, "count": count})
        asked: dict[tuple[ServedRole, str], bool] = {}
        if creator.source not in (WORLD, INSTRUCTIONS):
            asked["creator", creator.source] = True
        for name, declared in own.items():
            if name != DOWNSTREAM and not declared.judge.startswith(REWARD_JUDGE):
                asked["scorer" if declared.of_prompts else "judge", declared.judge] = True
        if profile.engine == "endpoint" and not is_embedded:
            asked["policy", profile.policy.partition("@")[0]] = True
        if creator.scorer is not None:
            # It sorts prompts by topic for figures, and scores the candidates of best-of-n trees.
            asked.setdefault(("scorer", creator.scorer), False)
        return asked

    def _add_stage(self, stage: Stage, names: Mapping[str, str]) -> None:
        """Add a stage's needs; `names` maps benchmark folders to names in the profile."""
        s, judge = stage.settings, str(stage.settings.get("judge", ""))
        assert isinstance(self.stages, Counter)
        self.stages[stage.kind] += 1
        self.embedded |= any(isinstance(v, str) and files.has(v) for v in s.values())
        named = [s.get(setting) for setting in MODELS]
        if judge.startswith(REWARD_JUDGE):
            named.append(judge.removeprefix(REWARD_JUDGE))
        for name in named:
            if isinstance(name, str) and not files.has(name):
                self.models |= dict.fromkeys(models_behind(name))
        cut = ("source", "first", "count")
        if "pool" in s and all(any(s[k] != it[k] for k in cut) for it in self.pools):
            self.pools.append(s)
        benchmark = names.get(str(s.get("benchmark", "")).partition("@")[0])
        if benchmark is not None:
            self.benchmarks[benchmark] = None
        self.served |= "engine" in s and benchmark != DOWNSTREAM

    @property
    def lacking_models(self) -> list[str]:
        return [model for model in self.models if any(_missing_model(model))]

    def missing(self, *, here: bool = True) -> list[Missing]:
        """Return everything that is missing, in the order in which a run would need it.

        `here`: whether this machine computes the stages, and needs GPUs and engines.
        """
        found = [*self._missing_gpus(), *self._missing_engines()] if here else []
        if self.embedded:
            found += _missing_world()
        for model in self.models:
            found += _missing_model(model)
        for settings in self.pools:
            found += _missing_pool(self.profile, settings)
        for name in self.benchmarks:
            found += _missing_benchmark(self.profile, name)
        for role, model, required in self.endpoints:
            found += _missing_endpoint(role, model) if required else ()
        return found

    def unavailable(self) -> list[str]:
        """Return the scores that a run will lack, and why."""
        return [
            f"{name}: {gap}"
            for name in self.benchmarks
            if name == DOWNSTREAM or benchmark_named(name) is not None
            if not any(_missing_benchmark(self.profile, name))
            for gap in benchmarks.gaps(name, self.profile.benchmarks[name])
        ]

    def _missing_gpus(self) -> Iterator[Missing]:
        hardware, there = self.profile.hardware, len(visible_gpus())
        if hardware is None or hardware.on_cpu or not self.models:
            return
        trains = self.stages is None or not self.stages.keys().isdisjoint(TRAINING_KINDS)
        needed = hardware.devices if trains else 1
        if there < needed:
            yield Missing(what="GPU", why=f"{there} here, {needed} needed", do="")

    def _missing_engines(self) -> Iterator[Missing]:
        engines = [self.profile.engine] if self.served else []
        for engine in dict.fromkeys([*engines, *(it.engine for it in self.servers)]):
            if engine in SERVED:
                yield from _missing_engine(engine)
        hardware = self.profile.hardware
        if hardware is not None and hardware.lora is not None and find_spec("peft") is None:
            do = "type `python -m pip install -e '.[lora]'`"
            yield Missing(what="package peft", why="not installed", do=do)


def refuse_missing(
    profile: Profile,
    stages: Sequence[Stage],
    name: str | None = None,
    *,
    here: bool,
    serves: bool = True,
) -> list[str]:
    """Refuse what stages lack before any is computed; return what will not be measured."""
    demand = Demand.of(profile, stages, serves=here and serves)
    if missing := demand.missing(here=here):
        listed = "".join(f"\n  {it.line}" for it in missing)
        raise UserError(
            f"nothing was started, because {counted(len(missing), 'thing')} that this run needs "
            f"{'is' if len(missing) == 1 else 'are'} missing:{listed}"
            f"{to_download(missing, profile.asked_as, name)}"
        )
    return demand.unavailable()


def to_download(missing: Iterable[Missing], profile: str, name: str | None) -> str:
    """Return a line with the command that downloads what is missing; empty if nothing can be."""
    if not any(it.is_downloaded for it in missing):
        return ""
    asked = f"{name or ''} --profile {profile}".lstrip()
    return f"\nDownload models, prompts and benchmarks: harness download {asked}"


def _place(profile: Profile, name: str) -> str:
    """Return the part before the `@` in the identity of a profile's benchmark."""
    known = benchmark_named(name)
    if known is None:
        return LM_EVAL if name == DOWNSTREAM else name
    return profile.benchmarks[name].files or benchmark_place(known)


def served_here(profile: Profile, role: ServedRole, model: str) -> Served | None:
    """Return how a run serves a role's model itself, or None if an endpoint does."""
    serving, elsewhere = profile.serving, os.environ.get(variable(role, "URL"))
    found = None if serving is None or elsewhere else serving.roles.get(role)
    return found if found is not None and found.name == model else None


def asked_by(stage: Stage) -> Iterator[tuple[ServedRole, str]]:
    """Yield (role, model) for every model that a stage queries."""
    s = stage.settings
    for setting, role in (("rewriting", "creator"), ("scorer", "scorer")):
        if setting in s:
            yield cast(ServedRole, role), str(cast(Settings, s[setting])["model"])
    judge = str(s.get("judge", ""))
    if stage.kind in ("rate", "topics") and not files.has(judge):
        yield "scorer", judge
    identity = str(s.get("benchmark", ""))
    elsewhere = stage.kind == "judge" and not files.has(identity)
    if elsewhere and not judge.startswith(REWARD_JUDGE) and benchmarks.is_asked(identity, s):
        yield "judge", judge
    if s.get("engine") == "endpoint":
        yield "policy", policy_of(stage)


def policy_of(stage: Stage) -> str:
    """Return the name, in requests, of the policy that a stage uses."""
    before = stage.inputs.get("policy")
    if before is None:
        return models.policy_name(str(stage.settings["policy"]), "")
    return models.policy_name(None, before.fingerprint)


def _missing_engine(engine: str) -> Iterator[Missing]:
    what, variable = f"engine {engine}", f"HARNESS_{engine.upper()}_PYTHON"
    try:
        found = installed(engine)
    except HarnessError as error:
        yield Missing(what=what, why=str(error), do=f"correct {variable}")
        return
    if found is None:
        do = f"set {variable} to the Python of an environment that has it"
        if engine == "vllm":
            do = f"type `python -m pip install -e '.[vllm]'`, or {do}"
        yield Missing(what=what, why="not installed here", do=do)


def _missing_world() -> Iterator[Missing]:
    try:
        files.check()
    except HarnessError as error:
        yield Missing(what="embedded world", why=str(error), do="type `harness micro build`")


def _missing_model(model: str) -> Iterator[Missing]:
    model = models.without_arguments(model)[0]
    name, at, commit = model.partition("@")
    if commit.startswith((models.NOT_DOWNLOADED, models.LOCAL)):  # of a model that is not pinned
        model, at = name, ""
    if models.place_of(model) is None:
        do = f"type {models.download_line(f'{name}@{commit if at else models.NOT_DOWNLOADED}')}"
        yield Missing(what=f"model {name}", why="not on this machine", do=do)


def _missing_pool(profile: Profile, settings: Settings) -> Iterator[Missing]:
    what = "matched prompts" if settings.get("matched") else "prompts"
    try:
        if "pool" not in settings:  # of a profile as a whole
            settings = {**HubPrompts(profile).identity(), **settings}
        size = prompts.size_of(settings)
        if size is None:
            do = f"type `harness download --profile {profile.asked_as}`"
            yield Missing(what=what, why=f"{settings['source']} is not on this machine", do=do)
        else:
            prompts.cut(settings, size)
    except HarnessError as error:
        yield Missing.because(what, error)


def _missing_benchmark(profile: Profile, name: str) -> Iterator[Missing]:
    if benchmark_named(name) is None:
        return
    what, place = f"benchmark {name}", _place(profile, name)
    folder = benchmarks.folder_of(place)
    if not folder.is_dir():
        do = f"type {benchmarks.fetch_line(place)}"
        yield Missing(what=what, why=f"no files at {folder}", do=do)
        return
    try:
        benchmarks.benchmark_identity(name, profile.benchmarks[name])
    except HarnessError as error:
        yield Missing.because(what, error)


def _missing_endpoint(role: ServedRole, model: str) -> Iterator[Missing]:
    """Yield a model that cannot be asked, as far as can be told without a request."""
    try:
        model_of(role, model)
    except HarnessError as error:
        yield Missing.because(f"{role} {model}", error)


def download(demand: Demand, say: Callable[[str], None]) -> list[str]:
    """Download missing models, prompts and benchmarks; return their names."""
    fetched = [_fetch_model(model, say) for model in demand.lacking_models]
    if demand.pools:
        settings = HubPrompts(demand.profile).identity()
        if prompts.size_of(settings) is None:
            say(f"{settings['source']}: {len(prompts.read_pool(settings))} prompts")
            fetched.append(str(settings["source"]))
    for name in demand.benchmarks:
        known, place = benchmark_named(name), _place(demand.profile, name)
        if known in BENCHMARKS.shipped and place == benchmark_place(str(known)):
            folder = benchmarks_dir() / place
            if not folder.is_dir():
                homes = benchmark_class(str(known)).homes
                fetch(homes, folder, lambda file, _: say(file.name))
                fetched.append(place)
    if not fetched:
        say("Everything that could be downloaded is here.")
    return fetched


def _fetch_model(identity: str, say: Callable[[str], None]) -> str:
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import GatedRepoError, RepositoryNotFoundError

    name, _, revision = models.without_arguments(identity)[0].partition("@")
    pinned = None if revision in ("", models.NOT_DOWNLOADED) else revision
    say(f"{name}{'' if pinned is None else f' at {pinned}'} ...")
    try:
        snapshot_download(name, revision=pinned, **models.FILES)
    except GatedRepoError as error:
        raise UserError(
            f"the license of {name} is not accepted by this account: accept it at "
            f"https://huggingface.co/{name}, and type `hf auth login`"
        ) from error
    except RepositoryNotFoundError as error:
        raise UserError(f"the hub has no {identity}; correct the profile") from error
    except Exception as error:  # of whichever library the hub's own sends requests with
        raise HarnessError(
            f"{name} cannot be downloaded ({error_in_a_line(error)}); connect this machine and run "
            "the same command again, or bring the hub's cache of a machine that has it"
        ) from error
    return name
