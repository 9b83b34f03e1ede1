"""What a profile needs of a machine, one thing each: whether it is there, and what to type if not.

What runs models, GPUs and disk are looked for here; the profile's world looks for its own parts.
"""

from __future__ import annotations

from collections.abc import Iterator

from harness.errors import HarnessError
from harness.preflight.machine import Machine, disk, inspect_machine
from harness.registry.declared import all_profiles, all_tables
from harness.registry.profile import Profile, table_unsupported
from harness.strict import Output, Strict
from harness.worlds.protocol import Need, package

CORE = ("torch", "transformers", "trl")
"""Packages that every profile needs."""

SELF_CONTAINED_DISK_GB = 1.0
"""Free disk below which a full run of a self-contained profile may not fit."""

SHARE_OF_NOMINAL = 0.95
"""A GPU's tool reports a little less or more than the memory that its name says."""

GB = 1e9


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

    world = world_of(profile)
    needs = needs_of(profile, inspect_machine())
    needs += world.online_needs() if online else ()
    ready = all(need.state != "missing" for need in needs)
    return Readiness(profile=profile.name, scale=profile.scale, ready=ready, needs=needs)


def needs_of(profile: Profile, machine: Machine) -> list[Need]:
    """Return everything that a profile needs, and whether a machine has it."""
    from harness.worlds.lookup import world_of

    world, needs = world_of(profile), list(_packages(profile))
    if world.self_contained:
        return [*needs, *world.needs(), disk(machine, SELF_CONTAINED_DISK_GB)]
    needs = [*_gpus(profile, machine), *needs, *world.needs()]
    lacking = world.lacking_models()
    if lacking and machine.hub_offline:
        needs.append(Need("hub", "advised", "HF_HUB_OFFLINE is set", "unset it while you download"))
    return [*needs, _disk(profile, machine, lacking)]


def _packages(profile: Profile) -> Iterator[Need]:
    """Yield what runs models and training."""
    yield from (package(name, "by every profile") for name in CORE)
    if profile.engine not in ("transformers", "endpoint"):
        yield _engine(profile.engine)
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
