"""What real models need of a machine, by profile or by the stages of a run, and what to type.

Nothing here reads weights or shows a key. Whether the hub hands out a model and an endpoint has
one, only they can say: they are asked where the user says so (`online_needs`).
"""

from __future__ import annotations

import glob
import os
from collections.abc import Iterable, Iterator
from pathlib import Path

from harness.endpoint.connection import Endpoint
from harness.endpoint.prices import read_prices
from harness.errors import HarnessError, UserError
from harness.extensions import benchmark_place
from harness.registry.profile import Profile, benchmark_named
from harness.runtime.stage import Stage
from harness.worlds import Need, State, package
from harness.worlds.real import benchmarks, models
from harness.worlds.real.benchmarks import DOWNSTREAM
from harness.worlds.real.models import Role
from harness.worlds.real.prompts import read_pool

MODELS = ("policy", "reward_model", "ranker")
"""Settings of stages that are the identities of models."""

TIMEOUT_S = 10.0
"""Seconds that an endpoint has to say which models it serves."""


def preflight(stages: Iterable[Stage]) -> list[str]:
    """Look for models, benchmarks and prompts, and for the packages that scores need.

    The human prompts are read once, because that is what a stage would do first.

    Returns:
        Which scores will not be available and why, a sentence for each.

    Raises:
        UserError: Something is missing, or a data set cannot be fetched.
    """
    stages = list(stages)
    lacking = dict.fromkeys(line for stage in stages for line in _lacking(stage))
    if lacking:
        lines = "".join(f"\n  {line}" for line in lacking)
        raise UserError(
            "this run needs what is not on this machine (harness doctor, with the same "
            f"--profile, lists keys, GPUs and engines as well); type:{lines}"
        )
    pools = {str(s.settings["source"]): s.settings for s in stages if "pool" in s.settings}
    for settings in pools.values():
        read_pool(settings)
    return list(dict.fromkeys(gap for stage in stages for gap in benchmarks.gaps(stage)))


def _lacking(stage: Stage) -> Iterator[str]:
    """Yield what to type for what a stage names and this machine does not have."""
    for name in MODELS:
        identity = stage.settings.get(name)
        if isinstance(identity, str) and models.is_missing(identity):
            yield models.download_line(identity)
    benchmark = str(stage.settings.get("benchmark", ""))
    if benchmarks.is_benchmark(benchmark) and benchmark.endswith(f"@{models.NOT_DOWNLOADED}"):
        yield benchmarks.fetch_line(benchmark.partition("@")[0])


def needs_of(profile: Profile) -> Iterator[Need]:
    """Yield what a profile needs, in the order in which a run would ask for it."""
    yield from _extras(profile)
    yield from map(_model, models_of(profile))
    yield _prompts(profile)
    yield from benchmarks_of(profile, profile.benchmarks)
    for role, model, required in endpoints_of(profile):
        yield _endpoint(role, model, required=required)
    yield from retirements(profile)
    yield from _calibrations(profile)


def online_needs(profile: Profile) -> Iterator[Need]:
    """Yield what the hub and the endpoints say of a profile's models."""
    yield from map(_on_the_hub, lacking_models(profile))
    for role, model, required in endpoints_of(profile):
        yield _endpoint(role, model, required=required, online=True)


def lacking_models(profile: Profile) -> list[str]:
    """Return the models that are not on this machine."""
    return [model for model in models_of(profile) if _model(model).state != "met"]


def models_of(profile: Profile) -> list[str]:
    """Return the models that a profile loads itself, each once."""
    return list(dict.fromkeys([profile.policy, *profile.reward_models.values()]))


def endpoints_of(profile: Profile) -> list[tuple[Role, str, bool]]:
    """Return role and model of everybody a profile asks, and whether it cannot do without.

    A profile's scorer beside its judge of prompts sorts them by topic and reads the candidates of
    best-of-n trees; figures ask for the one and no table of the paper for the other.
    """
    found: dict[tuple[Role, str], bool] = {("CREATOR", profile.creator.source): True}
    for name, benchmark in profile.benchmarks.items():
        if name != DOWNSTREAM:
            found["SCORER" if benchmark.of_prompts else "JUDGE", benchmark.judge] = True
    if profile.engine == "endpoint":
        found["SOLVER", profile.policy.partition("@")[0]] = True
    if profile.creator.scorer is not None:
        found.setdefault(("SCORER", profile.creator.scorer), False)
    return [(role, model, required) for (role, model), required in found.items()]


def _extras(profile: Profile) -> Iterator[Need]:
    """Yield the packages that only some benchmarks need."""
    if "alpaca_eval" in profile.benchmarks:
        yield package("alpaca-eval", "by the benchmark alpaca_eval", "alpaca")
    if DOWNSTREAM in profile.benchmarks:
        yield package("lm-eval", f"by the benchmark {DOWNSTREAM}", "lm-eval")


def _model(model: str) -> Need:
    name, at, commit = model.partition("@")
    try:
        place = models.place_of(model)
    except HarnessError as error:
        return Need(f"model {model}", "missing", str(error), "correct the profile")
    if place is not None:
        return Need(f"model {name}", "met", str(place))
    do = f"type {models.download_line(f'{name}@{commit if at else models.NOT_DOWNLOADED}')}"
    return Need(f"model {name}", "missing", "not on this machine", do)


def _prompts(profile: Profile) -> Need:
    prompts = profile.prompts
    local = Path(prompts.source)
    if local.suffix in (".jsonl", ".parquet") or local.is_dir():
        if local.exists():
            return Need("prompts", "met", str(local))
        return Need("prompts", "missing", f"there is no {local}", "correct `prompts.source`")
    named = f"{prompts.source} at {str(prompts.revision)[:12]}"
    if _cached(prompts.source, str(prompts.revision)):
        return Need("prompts", "met", f"{named}, in the cache of data sets")
    return Need(
        "prompts", "missing", f"{named} is not on this machine",
        f"type `harness prompts --profile {profile.name}`, which fetches them",
    )  # fmt: skip


def _cached(source: str, revision: str) -> bool:
    """Return whether a data set of the hub is in the cache of prepared data sets."""
    home = Path(os.environ.get("HF_HOME") or Path.home() / ".cache" / "huggingface").expanduser()
    cache = Path(os.environ.get("HF_DATASETS_CACHE") or home / "datasets").expanduser()
    # <cache>/<owner>___<name, spelled its own way>/<configuration>/<version>/<commit>
    owner = source.partition("/")[0]
    return any(cache.glob(f"{glob.escape(owner)}___*/*/*/{revision}"))


def benchmarks_of(profile: Profile, names: Iterable[str]) -> Iterator[Need]:
    """Yield the files of a profile's benchmarks, of those of some names."""
    for name in names:
        benchmark, known = profile.benchmarks[name], benchmark_named(name)
        if known is None:
            continue
        place = benchmark.files or benchmark_place(known)
        folder = benchmarks.folder_of(place)
        what = f"benchmark {name}"
        if not folder.is_dir():
            do = f"type {benchmarks.fetch_line(place)}"
            yield Need(what, "missing", f"no files at {folder}", do)
            continue
        try:
            benchmarks.benchmark_identity(name, benchmark)
        except HarnessError as error:
            yield Need(what, "missing", *two_parts(str(error)))
        else:
            yield Need(what, "met", str(folder))


def _endpoint(role: Role, model: str, *, required: bool, online: bool = False) -> Need:
    """Return whether a model can be asked: as far as can be told without asking, or by asking."""
    of = f"{role.lower()} {model}"
    what = f"endpoint of the {of}" if online else of
    lacking: State = "missing" if required else "advised"
    try:
        access = models.access_to(role, model, TIMEOUT_S)
        server = access.server
        if not isinstance(server, Endpoint):
            return Need(what, "met", server.address)
        there = server.models() if online else []
    except HarnessError as error:
        return Need(what, lacking, *two_parts(str(error)))
    if not online:
        key = "with" if os.environ.get(str(server.key_variable)) else "without"
        price = "price unknown"
        if access.price is not None:
            price = f"${access.price.prompt:g} and ${access.price.completion:g} a million tokens"
        return Need(what, "met", f"{server.address}, {key} a key in {server.key_variable}; {price}")
    # Some sellers list a model as `models/NAME`.
    if model in {name.removeprefix("models/") for name in there}:
        return Need(what, "met", f"{server.host} has it")
    do = f"serve it there, or name another endpoint in HARNESS_{role}_URL"
    return Need(what, lacking, f"{server.host} does not have it", do)


def retirements(profile: Profile) -> Iterator[Need]:
    """Yield what is retired by its seller, of everybody whom a profile asks.

    A retired model keeps the profile from running, unless an endpoint is named that may serve it.
    """
    known = read_prices().retirements
    for role, model, required in endpoints_of(profile):
        if model not in known:
            continue
        variable = f"HARNESS_{role}_URL"
        gone = not os.environ.get(variable)
        yield Need(
            f"retirement of the {role.lower()} {model}",
            "missing" if gone and required else "advised",
            known[model].sentence,
            _way_out(role, variable, known[model].successor),
        )


def _way_out(role: Role, variable: str, successor: str | None) -> str:
    """Return what can be done where a role's model is retired."""
    served = f"name an endpoint that still serves it in {variable}"
    if role != "JUDGE" or successor is None:
        return served
    return (
        f"{served}, or export the policies (`harness export`) and have them judged by "
        f"`harness evaluate BENCHMARK --judge {successor}`, in columns of their own"
    )


def two_parts(sentence: str) -> tuple[str, str]:
    """Return what is wrong, and what to do, of a sentence that says both."""
    what, _, do = sentence.partition("; ")
    return what, do


def _calibrations(profile: Profile) -> Iterator[Need]:
    from harness.evaluation.calibration import candidates
    from harness.project import calibrations_dir

    for one in candidates(profile, calibrations_dir()):
        what, of = f"calibration of {one.benchmark}", ""
        if one.successor_of is not None:
            what, of = f"{what} by {one.model}", f" --judge {one.model}"
        if one.calibration is not None and one.calibration.passed:
            yield Need(what, "met", one.calibration.text)
            continue
        yield Need(
            what, "advised",
            "not done, so that scores are reported as not calibrated" if one.calibration is None
            else one.calibration.text,
            f"type `harness calibrate --profile {profile.name} --benchmark {one.benchmark}{of}` "
            "with --data, --answers and --published",
        )  # fmt: skip


def _on_the_hub(model: str) -> Need:
    """Return whether the hub would hand a model out to this machine's account."""
    from huggingface_hub import auth_check
    from huggingface_hub.errors import GatedRepoError, HfHubHTTPError, RepositoryNotFoundError

    name, what = model.partition("@")[0], f"hub, {model.partition('@')[0]}"
    page = f"https://huggingface.co/{name}"
    try:
        auth_check(name)
    except GatedRepoError:
        do = f"accept its licence at {page}, and type `hf auth login`"
        return Need(what, "missing", "its licence is not accepted by this account", do)
    except RepositoryNotFoundError:
        do = f"look for it at {page}, and type `hf auth login` if it is private"
        return Need(what, "missing", "the hub has no such model for this account", do)
    except (HfHubHTTPError, OSError) as error:
        do = "connect this machine, or bring the model in HARNESS_MODELS"
        return Need(what, "missing", f"the hub cannot be reached ({type(error).__name__})", do)
    return Need(what, "met", "can be downloaded")
