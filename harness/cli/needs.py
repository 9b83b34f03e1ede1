"""What a profile needs of a machine, one thing each: whether it is there, and what to type if not.

Nothing here asks anybody over the network, reads weights or shows a key.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from importlib import metadata
from typing import TYPE_CHECKING, Any, Literal

from harness.errors import HarnessError

if TYPE_CHECKING:
    from harness.catalogue.profile import Profile

State = Literal["met", "missing", "advised"]

CORE = ("torch", "transformers", "trl")
"""Packages that every profile needs."""

SELF_CONTAINED_DISK_GB = 1.0
"""Free disk below which a full run of a self-contained profile may not fit."""

SHARE_OF_NOMINAL = 0.95
"""A GPU's tool reports a little less or more than the memory that its name says."""


@dataclass(frozen=True)
class Need:
    """One thing that a profile needs.

    Attributes:
        what: What it is.
        state: `met`; `missing`, so that the profile cannot run; or `advised`, so that it can.
        found: What is there, or why it is not enough.
        do: What to do about it; empty where it is met.
    """

    what: str
    state: State
    found: str
    do: str = ""

    @property
    def line(self) -> str:
        """What is there and what to do, in one line."""
        return f"{self.what}: {self.found}" + (f"; {self.do}" if self.do else "")

    def as_json(self) -> dict[str, str]:
        """Return the need as JSON data."""
        return asdict(self)


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
    from harness.cli.needs_outside import outside_needs

    return [*_gpus(profile, machine), *needs, *outside_needs(profile, machine)]


def ready(needs: list[Need]) -> bool:
    """Return whether a profile can run."""
    return all(need.state != "missing" for need in needs)


def package(name: str, why: str, extra: str | None = None) -> Need:
    """Return the need of a package, with the extra of this project that brings it."""
    try:
        return Need(f"package {name}", "met", metadata.version(name))
    except metadata.PackageNotFoundError:
        brings = f"-e '.[{extra}]'" if extra else "-e . -c constraints.txt"
        return Need(
            f"package {name}", "missing", f"not installed, and needed {why}",
            f"type `python -m pip install {brings}`",
        )  # fmt: skip


def disk(machine: Mapping[str, Any], gb: float, more: str = "") -> Need:
    """Return the need of free disk, in GB of 10^9 bytes."""
    free = machine["disk_free_gb"]
    found = f"{free:,.1f} GB free for {machine['work_dir']}, {gb:,.0f} needed{more}"
    if free >= gb:
        return Need("disk", "met", found)
    return Need("disk", "missing", found, "free some, or name another folder in HARNESS_WORK")


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
