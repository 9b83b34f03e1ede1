"""What this machine has: processor, memory, disk, GPU, engines, keys, and the world's files."""

from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess
from importlib import metadata
from pathlib import Path

from harness.errors import HarnessError
from harness.project import work_dir
from harness.runtime import available_cores
from harness.strict import Strict
from harness.worlds.protocol import Need

ENGINES = ("torch", "transformers", "trl", "vllm", "sglang", "ray", "alpaca-eval", "lm-eval")
KEYS = ("OPENAI_API_KEY", "GEMINI_API_KEY", "HF_TOKEN")
_GB = 1e9


class Gpu(Strict):
    """A GPU of this machine."""

    name: str
    memory_gb: int


class WorldFiles(Strict):
    """The embedded world's files."""

    version: str
    problem: str | None
    """What is wrong with them, if anything is."""


class Machine(Strict):
    """What this machine has; sizes in GB of 10^9 bytes."""

    python: str
    platform: str
    cores: int
    memory_gb: float
    memory_free_gb: float | None
    """Memory free for new work; null where the system does not say."""
    work_dir: str
    disk_free_gb: float
    gpus: list[Gpu]
    engines: dict[str, str | None]
    """Installed versions."""
    keys: dict[str, bool]
    """Whether each key is set; never its value."""
    hub_offline: bool
    world: WorldFiles
    mlflow_uri: str
    """The tracking address, without its credentials."""


def inspect_machine() -> Machine:
    """Return what this machine has."""
    from harness.tracking.connection import chosen_uri, shown

    total, free = _memory()
    work = work_dir()
    return Machine(
        python=platform.python_version(),
        platform=platform.platform(),
        cores=available_cores(),
        memory_gb=total,
        memory_free_gb=free,
        work_dir=str(work),
        disk_free_gb=round(shutil.disk_usage(_existing(work)).free / _GB, 1),
        gpus=_gpus(),
        engines={name: _version(name) for name in ENGINES},
        keys={name: bool(os.environ.get(name)) for name in KEYS},
        hub_offline=os.environ.get("HF_HUB_OFFLINE", "").lower() in ("1", "true", "yes", "on"),
        world=_world(),
        mlflow_uri=shown(chosen_uri(work)),
    )


def _memory() -> tuple[float, float | None]:
    """Return all memory and the memory free for new work; None where the system does not say."""
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    info = Path("/proc/meminfo")
    found = re.search(r"MemAvailable:\s+(\d+) kB", info.read_text()) if info.is_file() else None
    free = None if found is None else round(int(found[1]) * 1024 / _GB, 1)
    return round(total / _GB, 1), free


def _existing(path: Path) -> Path:
    """Return the nearest folder above a path that exists."""
    return next(folder for folder in (path, *path.parents) if folder.exists())


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _gpus() -> list[Gpu]:
    """Return the NVIDIA GPUs with their memory; none where the driver's tool does not answer."""
    query = ["nvidia-smi", "--query-gpu=name,memory.total", "--format=csv,noheader,nounits"]
    try:
        done = subprocess.run(query, capture_output=True, text=True, check=True, timeout=10)
    except (OSError, subprocess.SubprocessError):
        return []
    lines = (line.rpartition(",") for line in done.stdout.splitlines())
    return [
        Gpu(name=name, memory_gb=round(int(mebibytes) * 2**20 / _GB))
        for name, _, mebibytes in lines
        if mebibytes.strip().isdigit()
    ]


def _world() -> WorldFiles:
    from harness.worlds.embedded import files

    problem = None
    try:
        files.check()
    except HarnessError as error:
        problem = str(error)
    return WorldFiles(version=files.VERSION, problem=problem)


def disk(machine: Machine, gb: float, more: str = "") -> Need:
    """Return the need of free disk, in GB of 10^9 bytes."""
    free = machine.disk_free_gb
    found = f"{free:,.1f} GB free for {machine.work_dir}, {gb:,.0f} needed{more}"
    if free >= gb:
        return Need("disk", "met", found)
    return Need("disk", "missing", found, "free some, or name another folder in HARNESS_WORK")
