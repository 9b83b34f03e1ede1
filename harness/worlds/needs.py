"""What stages need from outside, what of it is missing here, and its download.

Checking reads no weights and sends nothing: whether the hub grants access to a model shows only in
the download. From the hub come only the files that loaders read: no pickled weights, no code.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from importlib.util import find_spec

from harness.endpoint.access import model_of
from harness.errors import HarnessError, UserError
from harness.evaluation.files import fetch
from harness.extensions import BENCHMARKS
from harness.foreign import error_in_a_line
from harness.registry.profile import REWARD_JUDGE, Profile
from harness.registry.serving import Served, ServedRole, address
from harness.runtime.crew import visible_gpus
from harness.runtime.stage import Json, Stage
from harness.serving.engines import SERVED, installed
from harness.strict import Strict
from harness.words import counted
from harness.worlds.embedded import files
from harness.worlds.instructions import weights
from harness.worlds.instructions.rules import task_of
from harness.worlds.real import benchmarks, models, prompts
from harness.worlds.real.rewards import models_behind

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

    @classmethod
    def because(cls, what: str, error: HarnessError) -> Missing:
        """Build one from a message of the form `problem; what to do`."""
        why, _, do = str(error).partition("; ")
        return cls(what=what, why=why, do=do)


class Demand:
    """What stages need from outside: models, prompts, benchmarks, servers and endpoints."""

    def __init__(self, profile: Profile, stages: Iterable[Stage], *, serves: bool = True) -> None:
        self.profile = profile
        self.stages = list(stages)
        asked = dict.fromkeys(pair for stage in self.stages for pair in asked_by(stage))
        here = {pair: served_here(profile, *pair) if serves else None for pair in asked}
        self.endpoints = [pair for pair, served in here.items() if served is None]
        self.servers = [served for served in here.values() if served is not None]
        own = (str(served.model) for served in self.servers)
        named = (name for stage in self.stages for name in _models_of(stage))
        self.models = dict.fromkeys(models.without_arguments(it)[0] for it in (*named, *own))

    @property
    def pools(self) -> list[Mapping[str, Json]]:
        """The settings of stages that cut prompts from a pool, one for each cut."""
        cuts = ("source", "first", "count")
        found = [stage.settings for stage in self.stages if "pool" in stage.settings]
        return list({tuple(s[name] for name in cuts): s for s in found}.values())  # type: ignore[misc]

    @property
    def benchmarks(self) -> dict[str, Mapping[str, Json]]:
        """The judging of each benchmark from outside this project, by its identity."""
        return {
            identity: stage.settings
            for stage in self.stages
            if stage.kind == "judge" and not files.has(identity := str(stage.settings["benchmark"]))
            if benchmarks.is_benchmark(identity) or benchmarks.are_tasks(identity)
        }

    def missing(self, *, here: bool = True) -> list[Missing]:
        """Return everything that is missing, in the order in which a run would need it."""
        found = [*self._missing_gpus(), *self._missing_engines()] if here else []
        if any(
            isinstance(v, str) and files.has(v) for s in self.stages for v in s.settings.values()
        ):
            found += _checked("embedded world", files.check)
        for model in self.models:
            found += _missing_model(model)
        rewards = (str(stage.settings.get("reward_model", "")) for stage in self.stages)
        by_rule = any(name.startswith("instructions@") for name in rewards)
        for pool in self.pools:
            check = partial(_check_pool, self.profile, pool, by_rule=by_rule)
            found += _checked("prompts", check)
        for identity in self.benchmarks:
            found += _missing_benchmark(identity)
        for role, model in self.endpoints:
            # As far as can be told without a request.
            found += _checked(f"{role} {model}", partial(model_of, role, model))
        return list(dict.fromkeys(found))

    def unavailable(self) -> list[str]:
        """Return the scores that a run will lack, and why."""
        return [
            gap
            for identity, settings in self.benchmarks.items()
            if not any(_missing_benchmark(identity))
            for gap in benchmarks.gaps(identity, settings)
        ]

    def _missing_gpus(self) -> Iterator[Missing]:
        hardware, there = self.profile.hardware, len(visible_gpus())
        if hardware is None or hardware.on_cpu or not self.models:
            return
        trains = any(stage.kind in TRAINING_KINDS for stage in self.stages)
        needed = hardware.devices if trains else 1
        if there < needed:
            yield Missing(what="GPU", why=f"{there} here, {needed} needed", do="")

    def _missing_engines(self) -> Iterator[Missing]:
        answering = (s.settings for s in self.stages if "engine" in s.settings)
        answers = any(not benchmarks.are_tasks(str(s.get("benchmark"))) for s in answering)
        engines = [self.profile.engine] if answers else []
        for engine in dict.fromkeys([*engines, *(it.engine for it in self.servers)]):
            if engine in SERVED:
                yield from _missing_engine(engine)
        hardware = self.profile.hardware
        if hardware is not None and hardware.lora is not None and find_spec("peft") is None:
            do = "type `python -m pip install -e '.[lora]'`"
            yield Missing(what="package peft", why="not installed", do=do)


def _models_of(stage: Stage) -> Iterator[str]:
    """Yield the hub's models that a stage loads."""
    settings = ("policy", "reward_model", "ranker")
    named = [str(stage.settings.get(setting) or "") for setting in settings]
    judge = str(stage.settings.get("judge", ""))
    named += [judge.removeprefix(REWARD_JUDGE)] if judge.startswith(REWARD_JUDGE) else []
    for name in named:
        if name and not files.has(name):
            yield from models_behind(name)


def refuse_missing(
    profile: Profile,
    stages: Sequence[Stage],
    name: str | None = None,
    *,
    here: bool,
    serves: bool = True,
) -> list[str]:
    """Refuse what stages lack before any is computed; return what will not be measured."""
    demand = Demand(profile, stages, serves=here and serves)
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
    known = ("model ", "benchmark ")
    if not any(it.what.startswith(known) or "harness download" in it.do for it in missing):
        return ""
    asked = shlex.join([*([] if name is None else [name]), "--profile", profile])
    return f"\nDownload models, prompts and benchmarks: harness download {asked}"


def served_here(profile: Profile, role: ServedRole, model: str) -> Served | None:
    """Return how a run serves a role's model itself, or None if an endpoint does."""
    found = None if address(role) else profile.served.get(role)
    return found if found is not None and found.name == model else None


def asked_by(stage: Stage) -> Iterator[tuple[ServedRole, str]]:
    s = stage.settings
    if "rewriting" in s:
        yield "creator", s["rewriting"]["model"]
    judge = str(s.get("judge", ""))
    if stage.kind in ("rate", "topics") and not files.has(judge):
        yield "scorer", judge
    identity = str(s.get("benchmark", ""))
    elsewhere = stage.kind == "judge" and not files.has(identity)
    if elsewhere and benchmarks.is_asked(identity, s):
        yield "judge", judge
    if s.get("engine") == "endpoint":
        yield "policy", policy_of(stage)


def policy_of(stage: Stage) -> str:
    """Return the name, in requests, of the policy that a stage uses."""
    before = stage.inputs.get("policy")
    return models.policy_name(stage.settings, None if before is None else before.fingerprint)


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


def _checked(what: str, check: Callable[[], object]) -> Iterator[Missing]:
    """Yield what a check refuses, and what it says to do about it."""
    try:
        check()
    except HarnessError as error:
        yield Missing.because(what, error)


def _missing_model(model: str) -> Iterator[Missing]:
    name, at, commit = model.partition("@")
    if name == weights.NAME:
        for package, do in weights.missing_packages():
            yield Missing(what=f"package {package}", why="not installed", do=do)
        return
    if commit.startswith((models.NOT_DOWNLOADED, models.LOCAL)):  # of a model that is not pinned
        model, at = name, ""
    if models.place_of(model) is None:
        do = f"type {models.download_line(f'{name}@{commit if at else models.NOT_DOWNLOADED}')}"
        yield Missing(what=f"model {name}", why="not on this machine", do=do)


def _check_pool(profile: Profile, settings: Mapping[str, Json], *, by_rule: bool) -> None:
    """Refuse a pool that is not here, is too small, or has prompts that rules cannot reward."""
    size = prompts.size_of(settings)
    if size is None:
        raise HarnessError(
            f"{settings['source']} is not on this machine; type `harness download --profile "
            f"{shlex.quote(profile.asked_as)}`"
        )
    places = prompts.cut(settings, size)
    if by_rule:
        texts = prompts.read_pool(settings)
        for at in places:
            task_of(texts[at])


def _missing_benchmark(identity: str) -> Iterator[Missing]:
    place, _, digest = identity.partition("@")
    if digest == models.NOT_DOWNLOADED:
        why, do = f"no files at {benchmarks.folder_of(place)}", benchmarks.fetch_line(place)
        yield Missing(what=f"benchmark {benchmarks.name_in(place)}", why=why, do=f"type {do}")


def download(demand: Demand, say: Callable[[str], None]) -> list[str]:
    """Download missing models, prompts and benchmarks; return their names."""
    of_hub = (it for it in demand.models if not it.startswith(weights.NAME))
    fetched = [_fetch_model(it, say) for it in of_hub if any(_missing_model(it))]
    for source, settings in {str(s["source"]): s for s in demand.pools}.items():
        if prompts.size_of(settings) is None:
            say(f"{source}: {len(prompts.read_pool(settings))} prompts")
            fetched.append(source)
    for identity in demand.benchmarks:
        if any(_missing_benchmark(identity)) and benchmarks.name_in(identity) in BENCHMARKS.shipped:
            folder = benchmarks.folder_of(identity)
            for file in benchmarks.class_of(identity).homes:
                fetch(file, folder)
                say(file.name)
            fetched.append(folder.name)
    if not fetched:
        say("Everything that could be downloaded is here.")
    return fetched


def _fetch_model(identity: str, say: Callable[[str], None]) -> str:
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import GatedRepoError, RepositoryNotFoundError

    name, _, revision = identity.partition("@")
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
