"""Requirements of a profile or of stages, and their downloads.

Checking reads no weights, shows no key and sends nothing: whether the hub grants access to a model
or an endpoint has one shows only in `harness download` and the first request. Models come from the
hub at the commit the profile pins, only the files that loaders read: no pickled weights, no code.
Benchmarks come from their public homes, with known digests.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from importlib import metadata
from typing import Literal, cast

from harness.endpoint.access import model_of
from harness.endpoint.connection import Endpoint
from harness.errors import HarnessError, UserError
from harness.evaluation.benchmark import benchmark_class
from harness.evaluation.calibration import states
from harness.evaluation.files import fetch
from harness.extensions import BENCHMARKS, benchmark_place
from harness.foreign import error_in_a_line
from harness.project import benchmarks_dir, calibrations_dir
from harness.registry.profile import REWARD_JUDGE, WORLD, Profile, benchmark_named
from harness.registry.serving import Served, ServedRole, variable
from harness.runtime.stage import Json, Stage
from harness.worlds.embedded import files
from harness.worlds.real import benchmarks, models, prompts
from harness.worlds.real.benchmarks import DOWNSTREAM, LM_EVAL
from harness.worlds.real.rewards import models_behind
from harness.worlds.real.world import PromptSource

State = Literal["met", "missing", "advised"]


@dataclass(frozen=True)
class Requirement:
    what: str
    state: State
    """`met`, `missing` (blocks a run) or `advised` (does not)."""
    found: str
    """What was found, or why it is not enough."""
    do: str = ""
    """What to do about it; empty if met."""

    @property
    def line(self) -> str:
        return f"{self.what}: {self.found}" + (f"; {self.do}" if self.do else "")

    @classmethod
    def wrong(cls, what: str, sentence: str, *, state: State = "missing") -> Requirement:
        """Build one from a sentence of the form `problem; what to do`."""
        found, _, do = sentence.partition("; ")
        return cls(what, state, found, do)


def package(name: str, why: str, extra: str | None = None) -> Requirement:
    """Return the requirement of a package; `extra` is this project's extra that installs it."""
    try:
        return Requirement(f"package {name}", "met", metadata.version(name))
    except metadata.PackageNotFoundError:
        brings = f"-e '.[{extra}]'" if extra else "-e . -c constraints.txt"
        do = f"type `python -m pip install {brings}`"
        return Requirement(f"package {name}", "missing", f"not installed, and needed {why}", do)


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
        """Return what `stages` (those still to compute) need, or without them all of a profile.

        `serves`: whether the harness serves the models that the profile lets it serve.
        """
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
            if not is_embedded or BENCHMARKS.added(name)
        }
        judges = [declared.judge for declared in profile.benchmarks.values()]
        by_reward = [it.removeprefix(REWARD_JUDGE) for it in judges if it.startswith(REWARD_JUDGE)]
        rewards = [*profile.reward_models.values(), *by_reward]
        named = [profile.policy, *(model for name in rewards for model in models_behind(name))]
        self.models = dict.fromkeys(model for model in named if model != WORLD)
        self.benchmarks = dict.fromkeys(own)
        self.embedded = WORLD in (source, creator.source, *named)
        if source != WORLD:
            count = profile.x * profile.prompts.available
            self.pools.append({"seed": 0, "first": 0, "count": count})
        asked: dict[tuple[ServedRole, str], bool] = {}
        if creator.source != WORLD:
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
        return [model for model in self.models if _model(model).state != "met"]

    def requirements(self) -> Iterator[Requirement]:
        """Yield all requirements, in the order in which a run would need them."""
        if self.embedded:
            yield _embedded()
        yield from map(_model, self.models)
        yield from (_pool(self.profile, settings) for settings in self.pools)
        for name in self.benchmarks:
            yield from _benchmark(self.profile, name)
        for role, model, required in self.endpoints:
            yield _endpoint(role, model, required=required)

    def calibrations(self) -> Iterator[Requirement]:
        """Yield whether each judge has been calibrated against published judgments."""
        for name, done in states(self.profile, calibrations_dir()).items():
            what = f"calibration of {name}"
            if name in self.benchmarks and done is not None:
                yield Requirement(what, "met", done.text)
            elif name in self.benchmarks:
                do = f"type `harness calibrate {self.profile.benchmarks[name].judge}`"
                not_done = "not done, so scores are reported as not calibrated"
                yield Requirement(what, "advised", not_done, do)


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


def _embedded() -> Requirement:
    try:
        files.check()
    except HarnessError as error:
        return Requirement("embedded world", "missing", str(error), "type `harness micro build`")
    return Requirement("embedded world", "met", f"{files.VERSION}: all digests are right")


def _model(model: str) -> Requirement:
    model = models.without_arguments(model)[0]
    name, at, commit = model.partition("@")
    if commit.startswith((models.NOT_DOWNLOADED, models.LOCAL)):  # of a model that is not pinned
        model, at = name, ""
    place = models.place_of(model)
    if place is not None:
        return Requirement(f"model {name}", "met", str(place))
    do = f"type {models.download_line(f'{name}@{commit if at else models.NOT_DOWNLOADED}')}"
    return Requirement(f"model {name}", "missing", "not on this machine", do)


def _pool(profile: Profile, settings: Settings) -> Requirement:
    what = "matched prompts" if settings.get("matched") else "prompts"
    try:
        if "pool" not in settings:  # of a profile as a whole
            settings = {**PromptSource(profile).identity(), **settings}
        size = prompts.size_of(settings)
        if size is None:
            do = f"type `harness download --profile {profile.asked_as}`"
            found = f"{settings['source']} is not on this machine"
            return Requirement(what, "missing", found, do)
        prompts.cut(settings, size)
    except HarnessError as error:
        return Requirement.wrong(what, str(error))
    return Requirement(what, "met", f"{size} of {settings['source']}")


def _benchmark(profile: Profile, name: str) -> Iterator[Requirement]:
    """Yield the requirement of a benchmark's files, and one per score that will be unavailable."""
    declared, what = profile.benchmarks[name], f"benchmark {name}"
    if benchmark_named(name) is not None:
        place = _place(profile, name)
        folder = benchmarks.folder_of(place)
        if not folder.is_dir():
            do = f"type {benchmarks.fetch_line(place)}"
            yield Requirement(what, "missing", f"no files at {folder}", do)
            return
        try:
            benchmarks.benchmark_identity(name, declared)
        except HarnessError as error:
            yield Requirement.wrong(what, str(error))
            return
        yield Requirement(what, "met", str(folder))
    elif name != DOWNSTREAM:
        return
    for gap in benchmarks.gaps(name, declared):
        found, _, do = gap.partition(": ")
        yield Requirement(f"scores of {name}", "advised", found, do)


def _endpoint(role: ServedRole, model: str, *, required: bool) -> Requirement:
    """Return whether a model is reachable, as far as can be told without a request."""
    what = f"{role} {model}"
    try:
        client = model_of(role, model).client
    except HarnessError as error:
        return Requirement.wrong(what, str(error), state="missing" if required else "advised")
    server, known = client.endpoint, client.price
    if not isinstance(server, Endpoint):
        return Requirement(what, "met", server.address)
    key = "with" if os.environ.get(str(server.key_variable)) else "without"
    price = "price unknown"
    if known is not None:
        price = f"${known.prompt:g} and ${known.completion:g} a million tokens"
    found = f"{server.address}, {key} a key in {server.key_variable}; {price}"
    return Requirement(what, "met", found)


def download(demand: Demand, say: Callable[[str], None]) -> list[str]:
    """Download missing models, prompts and benchmarks; return their names.

    Raises:
        HarnessError: The hub or a benchmark's home cannot be reached, or does not have it.
    """
    fetched = [_fetch_model(model, say) for model in demand.lacking_models]
    if demand.pools:
        settings = PromptSource(demand.profile).identity()
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
