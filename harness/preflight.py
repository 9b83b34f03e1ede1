"""What this machine has, what a profile needs, and what to type if something is missing.

Packages, engines and GPUs are checked here; the profile's world checks its own parts.
"""

from __future__ import annotations

import os
import platform
import shutil
from collections.abc import Iterable, Iterator, Sequence

from harness.errors import HarnessError, UserError
from harness.pipeline import factory
from harness.project import store_dir, work_dir
from harness.registry.declared import all_profiles, all_tables
from harness.registry.profile import Profile, table_unsupported
from harness.runtime import available_cores
from harness.runtime.crew import listed_gpus, visible_gpus
from harness.runtime.manifest import installed_version
from harness.runtime.stage import Stage
from harness.serving.engines import SERVED, installed
from harness.strict import Output, Strict
from harness.words import counted
from harness.worlds.needs import Demand, Requirement, package

ENGINES = ("torch", "transformers", "trl", "vllm", "sglang", "ray", "alpaca-eval", "lm-eval")
KEYS = ("OPENAI_API_KEY", "GEMINI_API_KEY", "HF_TOKEN")
GB = 1e9


class VisibleGpu(Strict):
    name: str
    memory_gb: int


class WorldFiles(Strict):
    version: str
    problem: str | None
    """What is wrong with the files, if anything."""


class Machine(Strict):
    """What this machine has; sizes in GB of 10^9 bytes."""

    python: str
    platform: str
    cores: int
    memory_gb: float
    memory_free_gb: float
    """Memory free for new work."""
    work_dir: str
    disk_free_gb: float
    gpus: list[VisibleGpu]
    engines: dict[str, str | None]
    """Installed versions."""
    keys: dict[str, bool]
    """Whether each key is set; never its value."""
    hub_offline: bool
    world: WorldFiles
    mlflow_uri: str
    """Tracking URI, without credentials."""


def inspect_machine() -> Machine:
    import psutil

    from harness.tracking.connection import chosen_uri, uri_text
    from harness.worlds.embedded import files

    memory, work, problem = psutil.virtual_memory(), work_dir(), None
    try:
        files.check()
    except HarnessError as error:
        problem = str(error)
    return Machine(
        python=platform.python_version(),
        platform=platform.platform(),
        cores=available_cores(),
        memory_gb=round(memory.total / GB, 1),
        memory_free_gb=round(memory.available / GB, 1),
        work_dir=str(work),
        disk_free_gb=_free_gb(),
        gpus=_gpus(),
        engines={name: installed_version(name) for name in ENGINES},
        keys={name: bool(os.environ.get(name)) for name in KEYS},
        hub_offline=os.environ.get("HF_HUB_OFFLINE", "").lower() in ("1", "true", "yes", "on"),
        world=WorldFiles(version=files.VERSION, problem=problem),
        mlflow_uri=uri_text(chosen_uri(work)),
    )


def _free_gb() -> float:
    """Return the free disk space of the store, in GB."""
    store = store_dir()
    there = next(folder for folder in (store, *store.parents) if folder.exists())
    return round(shutil.disk_usage(there).free / GB, 1)


def _gpus() -> list[VisibleGpu]:
    """Return the GPUs this process may use; a slice of one (MIG) stands for all of it."""
    visible = visible_gpus()
    return [
        VisibleGpu(name=name, memory_gb=round(int(mebibytes) * 2**20 / GB))
        for index, uuid, name, mebibytes in listed_gpus("index", "uuid", "name", "memory.total")
        if mebibytes.isdigit()
        and any(it == index or uuid.startswith(it) or it.startswith("MIG") for it in visible)
    ]


class Readiness(Output):
    """Everything a profile, or what is left of a table at it, needs; met or not."""

    profile: str
    asked_as: str
    """The profile's `--profile` argument."""
    scale: str
    table: str | None = None
    """What is to be run; null for everything the profile could need."""
    ready: bool
    """Whether nothing is missing."""
    needs: list[Requirement]


class ProfileState(Strict):
    profile: str
    scale: str
    threads: int
    ready: bool
    missing: list[str]
    """Needs that this machine does not meet."""
    tables: list[str]
    """Tables it can run here now."""


class Doctor(Output):
    machine: Machine
    profiles: list[ProfileState]

    @property
    def healthy(self) -> bool:
        return any(profile.ready for profile in self.profiles)


def doctor() -> Doctor:
    """Return what this machine has, and whether each profile can run; sends no requests."""
    machine, profiles = inspect_machine(), []
    for profile in all_profiles().values():
        needs = requirements(Demand.of(profile))
        missing = [need.line for need in needs if need.state == "missing"]
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


def readiness(
    profile: Profile, stages: Sequence[Stage] | None = None, table: str | None = None
) -> Readiness:
    """Return everything that stages need, or without stages their profile."""
    demand = Demand.of(profile, stages)
    needs = [*requirements(demand), *demand.calibrations()]
    return Readiness(
        profile=profile.name,
        asked_as=profile.asked_as,
        scale=profile.scale,
        table=table,
        ready=all(need.state != "missing" for need in needs),
        needs=needs,
    )


def refuse_to_start(
    profile: Profile,
    stages: Sequence[Stage],
    name: str | None = None,
    *,
    here: bool,
    serves: bool = True,
) -> list[str]:
    """Check everything that stages need before any is computed; return advice.

    If other machines compute them, this one's packages and GPUs are not checked.

    Raises:
        UserError: Something is missing; the message lists everything, with what to type.
    """
    needs = requirements(Demand.of(profile, stages, serves=here and serves), here=here)
    missing = [f"\n  {need.line}" for need in needs if need.state == "missing"]
    if missing:
        raise UserError(
            f"nothing was started, because {counted(len(missing), 'thing')} that this run needs "
            f"{'is' if len(missing) == 1 else 'are'} missing:{''.join(missing)}"
            f"{to_download(needs, profile.asked_as, name)}"
        )
    return [need.line for need in needs if need.state == "advised"]


def to_download(needs: Iterable[Requirement], profile: str, name: str | None) -> str:
    """Return a line with the command that downloads what is missing; empty if nothing can be."""
    lacking = (need.what.partition(" ")[0] for need in needs if need.state == "missing")
    if not {"model", "prompts", "benchmark"} & set(lacking):
        return ""
    asked = f"{name or ''} --profile {profile}".lstrip()
    return f"\nModels, prompts and benchmarks: harness download {asked}"


def requirements(demand: Demand, *, here: bool = True) -> list[Requirement]:
    """Return everything that is needed; packages and GPUs only if computed here.

    Sends no requests.
    """
    outside = list(demand.requirements())
    if not here or demand.stages == {}:
        return outside
    return [*_gpus_for(demand, _gpus()), *_packages(demand), *outside]


def _loading(demand: Demand) -> list[str]:
    """Return the kinds of stages (demanded, or all) that load models."""
    kinds = factory.KINDS if demand.stages is None else demand.stages
    return [kind for kind in kinds if factory.KINDS[kind].imports is not None]


def _packages(demand: Demand) -> Iterator[Requirement]:
    loading, profile = _loading(demand), demand.profile
    training = not set(factory.TRAINING_KINDS).isdisjoint(loading)
    if loading:
        yield from (package(name, "to load models") for name in ("torch", "transformers"))
    if training:
        yield package("trl", "to train")
    engines = [profile.engine] if demand.served else []
    for engine in dict.fromkeys([*engines, *(it.engine for it in demand.servers)]):
        if engine in SERVED:
            yield _engine(engine)
    hardware = profile.hardware
    if hardware is None or not training:
        return
    if hardware.lora is not None:
        yield package("peft", "to train adapters", "lora")


def _engine(engine: str) -> Requirement:
    what = f"engine {engine}"
    variable = f"HARNESS_{engine.upper()}_PYTHON"
    try:
        found = installed(engine)
    except HarnessError as error:
        return Requirement(what, "missing", str(error), f"correct {variable}")
    if found is not None:
        where = f" in the environment of {found.python}" if found.python else ""
        return Requirement(what, "met", f"{found.identity}{where}")
    do = f"set {variable} to the Python of an environment that has it"
    if engine == "vllm":
        do += ", or type `python -m pip install -e '.[vllm]'`"
    return Requirement(what, "missing", "not installed here", do)


def _gpus_for(demand: Demand, there: Sequence[VisibleGpu]) -> Iterator[Requirement]:
    """Yield the requirement for as many GPUs as a stage holds."""
    held = factory.needs_of(demand.profile)
    count = max((held.of(kind).gpus for kind in _loading(demand)), default=0)
    if count:
        names = ", ".join(f"{gpu.name} with {gpu.memory_gb} GB" for gpu in there) or "none"
        found, met = f"{names} here, {count} needed", len(there) >= count
        do = "run on such a machine (`nvidia-smi` lists what it has), or choose a smaller profile"
        yield Requirement("GPU", "met" if met else "missing", found, "" if met else do)
