"""What a profile needs of a machine, one thing each: whether it is there, and what to type if not.

Nothing here asks anybody over the network, reads weights or shows a key.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from harness.errors import HarnessError
from harness.preflight.machine import Need, State, disk, package
from harness.preflight.outside import outside_needs

if TYPE_CHECKING:
    from harness.registry.profile import Profile

CORE = ("torch", "transformers", "trl")
"""Packages that every profile needs."""

SELF_CONTAINED_DISK_GB = 1.0
"""Free disk below which a full run of a self-contained profile may not fit."""

SHARE_OF_NOMINAL = 0.95
"""A GPU's tool reports a little less or more than the memory that its name says."""


def needs_of(profile: Profile, machine: Mapping[str, Any]) -> list[Need]:
    """Return everything that a profile needs, met or not.

    Args:
        profile: The profile.
        machine: What `inspect_machine` returned.
    """
    from harness.worlds.lookup import world_of

    needs = list(_packages(profile))
    files = world_of(profile).check_files()
    if files is not None:
        state: State = "met" if files.ok else "missing"
        own = Need(files.what, state, files.message, "" if files.ok else files.remedy)
        return [*needs, own, disk(machine, SELF_CONTAINED_DISK_GB)]
    return [*_gpus(profile, machine), *needs, *outside_needs(profile, machine)]


def ready(needs: list[Need]) -> bool:
    """Return whether a profile can run."""
    return all(need.state != "missing" for need in needs)


def _packages(profile: Profile) -> Iterator[Need]:
    """Yield what runs models and training."""
    yield from (package(name, "by every profile") for name in CORE)
    if profile.engine not in ("transformers", "endpoint"):
        yield _engine(profile.engine)


def _engine(engine: str) -> Need:
    from harness.solver.environment import installed

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


def _gpus(profile: Profile, machine: Mapping[str, Any]) -> Iterator[Need]:
    """Yield the GPUs that a profile is meant for, by number and memory."""
    from harness.cost.hardware import hardware_of

    wanted = hardware_of(profile)
    if wanted is None:
        return
    gb = wanted.gpu.memory / 1e9
    there = machine["gpus"]
    fit = [gpu for gpu in there if gpu["memory_gb"] >= SHARE_OF_NOMINAL * gb]
    names = ", ".join(f"{gpu['name']} with {gpu['memory_gb']} GB" for gpu in there) or "none"
    found = f"{names} here, {wanted.count} with {gb:g} GB needed"
    if len(fit) >= wanted.count:
        yield Need("GPU", "met", found)
    else:
        yield Need(
            "GPU", "missing", found,
            "run on such a machine (`nvidia-smi` lists what it has), or choose a smaller profile",
        )  # fmt: skip
