"""What is needed from outside the embedded world, by a profile or by stages, and what to type.

Nothing here reads weights, shows a key or asks anybody: whether the hub hands out a model and an
endpoint has one, `harness download` and the first request say.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import metadata
from typing import Literal, cast

from harness.endpoint.connection import Endpoint
from harness.endpoint.prices import read_prices
from harness.errors import HarnessError
from harness.extensions import BENCHMARKS, benchmark_place
from harness.registry.profile import REWARD_JUDGE, WORLD, Profile, benchmark_named
from harness.registry.serving import Role as ServedRole
from harness.registry.serving import Served
from harness.runtime.stage import Json, Stage
from harness.worlds.embedded import files
from harness.worlds.real import benchmarks, models, prompts
from harness.worlds.real.benchmarks import DOWNSTREAM, LM_EVAL
from harness.worlds.real.models import Role
from harness.worlds.real.rewards import models_behind
from harness.worlds.real.world import Prompts

State = Literal["met", "missing", "advised"]


@dataclass(frozen=True)
class Requirement:
    """One thing that is needed."""

    what: str
    state: State
    """`met`; `missing`, so that nothing can run; or `advised`, so that it can."""
    found: str
    """What is there, or why it is not enough."""
    do: str = ""
    """What to do about it; empty where it is met."""

    @property
    def line(self) -> str:
        """What is there and what to do, in one line."""
        return f"{self.what}: {self.found}" + (f"; {self.do}" if self.do else "")


def package(name: str, why: str, extra: str | None = None) -> Requirement:
    """Return the requirement of a package, with the extra of this project that brings it."""
    try:
        return Requirement(f"package {name}", "met", metadata.version(name))
    except metadata.PackageNotFoundError:
        brings = f"-e '.[{extra}]'" if extra else "-e . -c constraints.txt"
        return Requirement(
            f"package {name}", "missing", f"not installed, and needed {why}",
            f"type `python -m pip install {brings}`",
        )  # fmt: skip


MODELS = ("policy", "reward_model", "ranker")
"""Settings of stages that are the identities of models."""

Settings = Mapping[str, Json]


@dataclass(frozen=True)
class Demand:
    """What stages take from outside the paper's algorithm, or a profile could have them take.

    Attributes:
        profile: The profile.
        stages: Numbers of stages by kind; None for any that the profile could have.
        embedded: Whether files of the embedded world are read.
        models: Models that are loaded, as profiles name them or by their identities.
        pools: Settings of stages that cut prompts from a pool.
        benchmarks: Benchmarks from outside the embedded world, by their names in the profile.
        endpoints: Role and model of everybody who is asked, and whether all else rests on it.
        servers: What the harness serves itself of those who are asked.
        served: Whether the profile's engine answers.
    """

    profile: Profile
    stages: Mapping[str, int] | None
    embedded: bool
    models: tuple[str, ...]
    pools: tuple[Settings, ...]
    benchmarks: tuple[str, ...]
    endpoints: tuple[tuple[Role, str, bool], ...]
    servers: tuple[Served, ...]
    served: bool

    @classmethod
    def of_profile(cls, profile: Profile) -> Demand:
        """Return all that a profile could need."""
        by_reward = [
            declared.judge.removeprefix(REWARD_JUDGE)
            for declared in profile.benchmarks.values()
            if declared.judge.startswith(REWARD_JUDGE)
        ]
        named = [
            profile.policy,
            *(m for name in profile.reward_models.values() for m in models_behind(name)),
            *(m for name in by_reward for m in models_behind(name)),
        ]
        source, creator = profile.prompts.source, profile.creator.source
        own = [n for n in profile.benchmarks if profile.policy != WORLD or BENCHMARKS.added(n)]
        asked: dict[tuple[Role, str], bool] = {}
        if creator != WORLD:
            asked["CREATOR", creator] = True
        for name in own:
            declared = profile.benchmarks[name]
            if name != DOWNSTREAM and not declared.judge.startswith(REWARD_JUDGE):
                asked["SCORER" if declared.of_prompts else "JUDGE", declared.judge] = True
        if profile.engine == "endpoint" and profile.policy != WORLD:
            asked["SOLVER", profile.policy.partition("@")[0]] = True
        if profile.creator.scorer is not None:
            # It sorts prompts by topic for figures, and reads the candidates of best-of-n trees.
            asked.setdefault(("SCORER", profile.creator.scorer), False)
        here = [it for role, model in asked if (it := served_here(profile, role, model))]
        named += [str(it.model) for it in here]
        count: Settings = {"seed": 0, "first": 0, "count": profile.x * profile.prompts.available}
        return cls(
            profile=profile,
            stages=None,
            embedded=WORLD in (source, creator, *named),
            models=tuple(dict.fromkeys(model for model in named if model != WORLD)),
            pools=() if source == WORLD else (count,),
            benchmarks=tuple(own),
            endpoints=tuple(
                (role, model, must)
                for (role, model), must in asked.items()
                if served_here(profile, role, model) is None
            ),
            servers=tuple(here),
            served=True,
        )

    @classmethod
    def of_stages(cls, profile: Profile, stages: Iterable[Stage], *, serves: bool = True) -> Demand:
        """Return what stages need that are still to be computed; `serves` what a profile may."""
        names = {_place(profile, name): name for name in profile.benchmarks}
        kinds: dict[str, int] = {}
        models_, benchmarks_ = dict[str, None](), dict[str, None]()
        pools, asked = dict[str, Settings](), dict[tuple[Role, str], None]()
        embedded = served = False
        for stage in stages:
            s = stage.settings
            kinds[stage.kind] = kinds.get(stage.kind, 0) + 1
            embedded = embedded or any(isinstance(v, str) and files.has(v) for v in s.values())
            found = [s.get(setting) for setting in MODELS]
            judge = str(s.get("judge", ""))
            if judge.startswith(REWARD_JUDGE):
                found.append(judge.removeprefix(REWARD_JUDGE))
            named = (m for m in found if isinstance(m, str) and not files.has(m))
            models_ |= dict.fromkeys(model for name in named for model in models_behind(name))
            if "pool" in s:
                pools[f"{s['source']} {s['first']} {s['count']}"] = s
            name = names.get(str(s.get("benchmark", "")).partition("@")[0])
            benchmarks_ |= {} if name is None else {name: None}
            asked |= dict.fromkeys(asked_by(stage))
            served = served or ("engine" in s and name != DOWNSTREAM)
        here = {it: served_here(profile, *it) for it in asked} if serves else {}
        servers = tuple(it for it in here.values() if it is not None)
        models_ |= dict.fromkeys(str(it.model) for it in servers)
        return cls(
            profile=profile,
            stages=kinds,
            embedded=embedded,
            models=tuple(models_),
            pools=tuple(pools.values()),
            benchmarks=tuple(benchmarks_),
            endpoints=tuple((*it, True) for it in asked if here.get(it) is None),
            servers=servers,
            served=served,
        )

    @property
    def lacking_models(self) -> list[str]:
        """The models that are not on this machine."""
        return [model for model in self.models if _model(model).state != "met"]

    def requirements(self) -> Iterator[Requirement]:
        """Yield everything that is needed, in the order in which a run would ask for it."""
        if self.embedded:
            yield _embedded()
        yield from map(_model, self.models)
        yield from (_pool(self.profile, settings) for settings in self.pools)
        for name in self.benchmarks:
            yield from _benchmark(self.profile, name)
        for role, model, required in self.endpoints:
            yield _endpoint(role, model, required=required)
        yield from self._retirements()

    def calibrations(self) -> Iterator[Requirement]:
        """Yield which judges were held against published judgments; scores say so themselves."""
        from harness.evaluation.calibration import states
        from harness.project import calibrations_dir

        for name, done in states(self.profile, calibrations_dir()).items():
            what = f"calibration of {name}"
            if name in self.benchmarks and done is not None:
                yield Requirement(what, "met", done.text)
            elif name in self.benchmarks:
                judge = self.profile.benchmarks[name].judge
                yield Requirement(
                    what, "advised", "not done, so that scores are reported as not calibrated",
                    f"type `harness calibrate {judge}`",
                )  # fmt: skip

    def _retirements(self) -> Iterator[Requirement]:
        """Yield what is retired by its seller.

        A retired model is missing, unless an endpoint is named that may serve it.
        """
        known = read_prices().retirements
        for role, model, required in self.endpoints:
            if model not in known:
                continue
            variable = f"HARNESS_{role}_URL"
            gone = not os.environ.get(variable)
            yield Requirement(
                f"retirement of the {role.lower()} {model}",
                "missing" if gone and required else "advised",
                known[model].sentence,
                _way_out(variable, self._named_by(role, model), known[model].successor),
            )

    def _named_by(self, role: Role, model: str) -> list[str]:
        """Return the keys of a profile by which a model has a role."""
        judges = {name: self.profile.benchmarks[name].judge for name in self.benchmarks}
        keys = [f"benchmarks.{name}.judge" for name, judge in judges.items() if judge == model]
        creator = self.profile.creator
        keys += ["creator.source"] * (role == "CREATOR")
        return keys + ["creator.scorer"] * (role == "SCORER" and creator.scorer == model)


def _place(profile: Profile, name: str) -> str:
    """Return what stands before the `@` of the identity of a profile's benchmark."""
    known = benchmark_named(name)
    if known is None:
        return LM_EVAL if name == DOWNSTREAM else name
    return profile.benchmarks[name].files or benchmark_place(known)


def served_here(profile: Profile, role: Role, model: str) -> Served | None:
    """Return how a run serves a role's model itself; None where an endpoint has it."""
    name = "policy" if role == "SOLVER" else role.lower()
    serving, elsewhere = profile.serving, os.environ.get(f"HARNESS_{role}_URL")
    found = None if serving is None or elsewhere else serving.roles.get(cast(ServedRole, name))
    return found if found is not None and found.name == model else None


def asked_by(stage: Stage) -> Iterator[tuple[Role, str]]:
    """Yield role and model of everybody whom a stage asks."""
    s = stage.settings
    for setting, role in (("rewriting", "CREATOR"), ("scorer", "SCORER")):
        if setting in s:
            yield cast(Role, role), str(cast(Settings, s[setting])["model"])
    judge = str(s.get("judge", ""))
    if stage.kind in ("rate", "topics") and not files.has(judge):
        yield "SCORER", judge
    identity = str(s.get("benchmark", ""))
    elsewhere = stage.kind == "judge" and not files.has(identity)
    if elsewhere and not judge.startswith(REWARD_JUDGE) and benchmarks.is_asked(identity, s):
        yield "JUDGE", judge
    if s.get("engine") == "endpoint":
        yield "SOLVER", policy_of(stage)


def policy_of(stage: Stage) -> str:
    """Return what requests call the policy that answers in a stage."""
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
    try:
        place = models.place_of(model)
    except HarnessError as error:
        return Requirement(f"model {model}", "missing", str(error), "correct the profile")
    if place is not None:
        return Requirement(f"model {name}", "met", str(place))
    do = f"type {models.download_line(f'{name}@{commit if at else models.NOT_DOWNLOADED}')}"
    return Requirement(f"model {name}", "missing", "not on this machine", do)


def _pool(profile: Profile, settings: Settings) -> Requirement:
    """Return whether a pool is here and large enough for what a stage cuts from it."""
    what = "matched prompts" if settings.get("matched") else "prompts"
    try:
        if "pool" not in settings:  # of a profile as a whole
            settings = {**Prompts(profile).identity(), **settings}
        named = str(settings["source"])
        size = prompts.size_of(settings)
        if size is None:
            do = f"type `harness download --profile {profile.asked_as}`, which fetches them"
            return Requirement(what, "missing", f"{named} is not on this machine", do)
        prompts.cut(settings, size)
    except HarnessError as error:
        return Requirement(what, "missing", *two_parts(str(error)))
    return Requirement(what, "met", f"{size} of {named}")


def _benchmark(profile: Profile, name: str) -> Iterator[Requirement]:
    """Yield a benchmark's files, and which of its scores there will not be."""
    declared, known = profile.benchmarks[name], benchmark_named(name)
    if known is not None:
        folder = benchmarks.folder_of(_place(profile, name))
        what = f"benchmark {name}"
        if not folder.is_dir():
            do = f"type {benchmarks.fetch_line(_place(profile, name))}"
            yield Requirement(what, "missing", f"no files at {folder}", do)
            return
        try:
            benchmarks.benchmark_identity(name, declared)
        except HarnessError as error:
            yield Requirement(what, "missing", *two_parts(str(error)))
            return
        yield Requirement(what, "met", str(folder))
    elif name != DOWNSTREAM:
        return
    for gap in benchmarks.gaps(name, declared):
        yield Requirement(f"scores of {name}", "advised", *two_parts(gap, ": "))


def _endpoint(role: Role, model: str, *, required: bool) -> Requirement:
    """Return whether a model can be asked, as far as can be told without asking."""
    what = f"{role.lower()} {model}"
    try:
        access = models.access_to(role, model)
    except HarnessError as error:
        return Requirement(what, "missing" if required else "advised", *two_parts(str(error)))
    server = access.server
    if not isinstance(server, Endpoint):
        return Requirement(what, "met", server.address)
    key = "with" if os.environ.get(str(server.key_variable)) else "without"
    price = "price unknown"
    if access.price is not None:
        price = f"${access.price.prompt:g} and ${access.price.completion:g} a million tokens"
    found = f"{server.address}, {key} a key in {server.key_variable}; {price}"
    return Requirement(what, "met", found)


def _way_out(variable: str, keys: Sequence[str], successor: str | None) -> str:
    """Return what can be done where a role's model is retired."""
    served = f"name an endpoint that still serves it in {variable}"
    if successor is None or not keys:
        return served
    asked = " ".join(f"--set profile.{key}={successor}" for key in keys)
    return (
        f"{served}, or let its successor stand in: `harness run` with `{asked}` makes a profile of "
        "its own, so that its scores stand apart"
    )


def two_parts(sentence: str, between: str = "; ") -> tuple[str, str]:
    """Return what is wrong, and what to do, of a sentence that says both."""
    what, _, do = sentence.partition(between)
    return what, do
