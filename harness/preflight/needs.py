"""What a profile needs of a machine, one thing each: whether it is there, and what to type if not.

Nothing here reads weights or shows a key. A file is looked for where a run would look, and not
opened. Where a model is served and whether there is a key is read from the environment, as a run
reads it. Whether the hub hands out a model and an endpoint has one, only they can say: they are
asked where the user says so.
"""

from __future__ import annotations

import glob
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from harness.errors import HarnessError
from harness.preflight.machine import Machine, Need, State, disk, inspect_machine, package
from harness.registry.declared import all_profiles, all_tables
from harness.registry.profile import Profile, benchmark_named, table_unsupported
from harness.strict import Output, Strict

if TYPE_CHECKING:
    from harness.worlds.real.asking import Role

CORE = ("torch", "transformers", "trl")
"""Packages that every profile needs."""

SELF_CONTAINED_DISK_GB = 1.0
"""Free disk below which a full run of a self-contained profile may not fit."""

SHARE_OF_NOMINAL = 0.95
"""A GPU's tool reports a little less or more than the memory that its name says."""


GB = 1e9

TIMEOUT_S = 10.0
"""Seconds that an endpoint has to say which models it serves."""


class Readiness(Output):
    """Everything that one profile needs, met or not."""

    profile: str
    scale: str
    ready: bool
    """Whether nothing is missing."""
    needs: list[Need]


class ProfileState(Strict):
    """Whether a profile can run here."""

    profile: str
    scale: str
    threads: int
    ready: bool
    missing: list[str]
    """What it needs and this machine lacks."""
    tables: list[str]
    """Tables it can run here now."""


class Doctor(Output):
    """What this machine can run."""

    machine: Machine
    profiles: list[ProfileState]

    @property
    def healthy(self) -> bool:
        """Whether a profile can run whose numbers mean something."""
        declared = all_profiles()
        return any(p.ready and declared[p.profile].stand_ins is None for p in self.profiles)


def doctor() -> Doctor:
    """Return what this machine has, and whether each profile can run; nobody is asked."""
    machine, profiles = inspect_machine(), []
    for profile in all_profiles().values():
        missing = [n.line for n in needs_of(profile, machine) if n.state == "missing"]
        can = [t.id for t in all_tables().values() if not table_unsupported(t, profile)]
        profiles.append(
            ProfileState(
                profile=profile.name,
                scale=profile.scale,
                threads=profile.threads,
                ready=not missing,
                missing=missing,
                tables=[] if missing else can,
            )
        )
    return Doctor(machine=machine, profiles=profiles)


def readiness(profile: Profile, *, online: bool = False) -> Readiness:
    """Return everything that a profile needs, met or not; online, who has it is asked."""
    from harness.worlds.lookup import world_of

    needs = needs_of(profile, inspect_machine())
    if online and not world_of(profile).self_contained:
        needs += online_needs(profile)
    ready = all(need.state != "missing" for need in needs)
    return Readiness(profile=profile.name, scale=profile.scale, ready=ready, needs=needs)


def needs_of(profile: Profile, machine: Machine) -> list[Need]:
    """Return everything that a profile needs, and whether a machine has it."""
    from harness.worlds.lookup import world_of

    needs = list(_packages(profile))
    files = world_of(profile).check_files()
    if files is not None:
        state: State = "met" if files.ok else "missing"
        own = Need(files.what, state, files.message, "" if files.ok else files.remedy)
        return [*needs, own, disk(machine, SELF_CONTAINED_DISK_GB)]
    return [*_gpus(profile, machine), *needs, *outside_needs(profile, machine)]


def _packages(profile: Profile) -> Iterator[Need]:
    """Yield what runs models and training."""
    yield from (package(name, "by every profile") for name in CORE)
    if profile.engine not in ("transformers", "endpoint"):
        yield _engine(profile.engine)


def _engine(engine: str) -> Need:
    from harness.inference.environment import installed

    what = f"engine {engine}"
    variable = f"HARNESS_{engine.upper()}_PYTHON"
    try:
        found = installed(engine)
    except HarnessError as error:
        return Need(what, "missing", str(error), f"correct {variable}")
    if found is not None:
        where = f" in the environment of {found.python}" if found.python else ""
        return Need(what, "met", f"{found.identity}{where}")
    do = f"name the Python of an environment that has it in {variable}"
    if engine == "vllm":
        do += ", or type `python -m pip install -e '.[vllm]'`"
    return Need(what, "missing", "neither installed here nor named", do)


def _gpus(profile: Profile, machine: Machine) -> Iterator[Need]:
    """Yield the GPUs that a profile is meant for, by number and memory."""
    from harness.cost.assumptions import hardware_of

    wanted = hardware_of(profile)
    if wanted is None:
        return
    gb = wanted.gpu.memory / 1e9
    there = machine.gpus
    fit = [gpu for gpu in there if gpu.memory_gb >= SHARE_OF_NOMINAL * gb]
    names = ", ".join(f"{gpu.name} with {gpu.memory_gb} GB" for gpu in there) or "none"
    found = f"{names} here, {wanted.count} with {gb:g} GB needed"
    if len(fit) >= wanted.count:
        yield Need("GPU", "met", found)
    else:
        yield Need(
            "GPU", "missing", found,
            "run on such a machine (`nvidia-smi` lists what it has), or choose a smaller profile",
        )  # fmt: skip


def outside_needs(profile: Profile, machine: Machine) -> Iterator[Need]:
    """Yield what a profile needs, in the order in which a run would ask for it."""
    yield from _extras(profile)
    models = list(models_of(profile))
    lacking = []
    for model in models:
        need = _model(model)
        lacking += [model] if need.state != "met" else []
        yield need
    if lacking and machine.hub_offline:
        yield Need("hub", "advised", "HF_HUB_OFFLINE is set", "unset it while you download")
    yield _disk(profile, machine, lacking)
    yield _prompts(profile)
    yield from _benchmarks(profile)
    for role, model, required in endpoints_of(profile):
        yield _endpoint(role, model, required=required)
    yield from retirements(profile)
    yield from _calibrations(profile)


def models_of(profile: Profile) -> list[str]:
    """Return the models that a profile loads itself, each once."""
    return list(dict.fromkeys([profile.policy, *profile.reward_models.values()]))


def endpoints_of(profile: Profile) -> list[tuple[Role, str, bool]]:
    """Return role and model of everybody a profile asks, and whether it cannot do without.

    A profile's scorer beside its judge of prompts sorts them by topic and reads the candidates of
    best-of-n trees; figures ask for the one and no table of the paper for the other.
    """
    from harness.worlds.real.tasks import DOWNSTREAM

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
    """Yield the packages that only some profiles need."""
    from harness.worlds.real.tasks import DOWNSTREAM

    if "alpaca_eval" in profile.benchmarks:
        yield package("alpaca-eval", "by the benchmark alpaca_eval", "alpaca")
    if DOWNSTREAM in profile.benchmarks:
        yield package("lm-eval", f"by the benchmark {DOWNSTREAM}", "lm-eval")
    hardware = profile.hardware
    if hardware is None:
        return
    if hardware.lora is not None:
        yield package("peft", "to train adapters", "lora")
    from harness.training.launch import configuration

    try:
        found = configuration(hardware)
    except HarnessError as error:
        yield Need(f"accelerate with {hardware.accelerate}", "missing", str(error))
    else:
        yield Need(f"accelerate with {hardware.accelerate}", "met", f"{found.kind}: {found.path}")


def _model(model: str) -> Need:
    from harness.worlds.real.models import NOT_DOWNLOADED, download_line, place_of

    name, at, commit = model.partition("@")
    try:
        place = place_of(model)
    except HarnessError as error:
        return Need(f"model {model}", "missing", str(error), "correct the profile")
    if place is not None:
        return Need(f"model {name}", "met", str(place))
    do = f"type {download_line(f'{name}@{commit if at else NOT_DOWNLOADED}')}"
    return Need(f"model {name}", "missing", "not on this machine", do)


def _disk(profile: Profile, machine: Machine, lacking: list[str]) -> Need:
    """Return the disk for what is to be downloaded, and for one training of the policy."""
    from harness.cost.assumptions import assumptions, shape_of

    each = assumptions().disk
    sizes = [shape_of(model) for model in lacking]
    gb = sum(shape.parameters * each.parameter for shape in sizes if shape is not None) / GB
    policy = shape_of(profile.policy)
    if policy is not None:
        gb += policy.parameters * (each.parameter + each.checkpoint) / GB
    more = (
        " for the models that are missing and one training; "
        f"`harness plan all --profile {profile.name}` says what all takes"
    )
    return disk(machine, gb, more)


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


def _benchmarks(profile: Profile) -> Iterator[Need]:
    from harness.worlds.real.benchmarks import benchmark_identity, fetch_line, folder_of

    for name, benchmark in profile.benchmarks.items():
        known = benchmark_named(name)
        if known is None:
            continue
        place = benchmark.files or known
        folder = folder_of(place)
        what = f"benchmark {name}"
        if not folder.is_dir():
            yield Need(what, "missing", f"no files at {folder}", f"type {fetch_line(place)}")
            continue
        try:
            benchmark_identity(name, benchmark)
        except HarnessError as error:
            yield Need(what, "missing", *two_parts(str(error)))
        else:
            yield Need(what, "met", str(folder))


def _endpoint(role: Role, model: str, *, required: bool) -> Need:
    """Return whether a model can be asked, as far as can be told without asking it."""
    from harness.endpoint.connection import Endpoint
    from harness.worlds.real.asking import access_to

    what = f"{role.lower()} {model}"
    try:
        access = access_to(role, model)
    except HarnessError as error:
        return Need(what, "missing" if required else "advised", *two_parts(str(error)))
    server = access.server
    if not isinstance(server, Endpoint):
        return Need(what, "met", server.address)
    key = "with" if os.environ.get(str(server.key_variable)) else "without"
    price = "price unknown"
    if access.price is not None:
        price = f"${access.price.prompt:g} and ${access.price.completion:g} a million tokens"
    return Need(what, "met", f"{server.address}, {key} a key in {server.key_variable}; {price}")


def retirements(profile: Profile) -> Iterator[Need]:
    """Yield what is retired by its seller, or will be, of everybody whom a profile asks.

    A retired model keeps the profile from running, unless an endpoint is named that may serve it.
    """
    from harness.endpoint.prices import read_prices

    known = read_prices().retirements
    for role, model, required in endpoints_of(profile):
        if model not in known:
            continue
        variable = f"HARNESS_{role}_URL"
        gone = known[model].past and not os.environ.get(variable)
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


def online_needs(profile: Profile) -> Iterator[Need]:
    """Yield what the hub and the endpoints say of a profile's models."""
    from harness.worlds.real.models import place_of

    for model in models_of(profile):
        if place_of(model) is None:
            yield _on_the_hub(model)
    for role, model, required in endpoints_of(profile):
        yield _at_its_endpoint(role, model, required=required)


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


def _at_its_endpoint(role: Role, model: str, *, required: bool) -> Need:
    """Return whether an endpoint can be reached, takes the key and has the model."""
    from harness.endpoint.connection import Endpoint
    from harness.worlds.real.asking import access_to

    what = f"endpoint of the {role.lower()} {model}"
    lacking: State = "missing" if required else "advised"
    try:
        server = access_to(role, model, TIMEOUT_S).server
        if not isinstance(server, Endpoint):
            return Need(what, "met", server.address)
        there = server.models()
    except HarnessError as error:
        return Need(what, lacking, *two_parts(str(error)))
    # Some sellers list a model as `models/NAME`.
    if model in {name.removeprefix("models/") for name in there}:
        return Need(what, "met", f"{server.host} has it")
    do = f"serve it there, or name another endpoint in HARNESS_{role}_URL"
    return Need(what, lacking, f"{server.host} does not have it", do)
