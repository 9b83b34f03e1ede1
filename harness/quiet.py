"""The environment of our processes: no telemetry, no network, no noise, pinned threads.

Libraries read these variables on import, so `silence` is called before the first heavy import. A
value set by the user wins, except for threads: workers that each use all cores would contend.
"""

from __future__ import annotations

import os

QUIET = {
    "DO_NOT_TRACK": "1",
    "HF_HUB_DISABLE_TELEMETRY": "1",
    "HF_HUB_OFFLINE": "1",
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "RAY_USAGE_STATS_ENABLED": "0",
    "TOKENIZERS_PARALLELISM": "false",
    "TRANSFORMERS_VERBOSITY": "error",
    "TRL_EXPERIMENTAL_SILENCE": "1",
    "VLLM_NO_USAGE_STATS": "1",
}

SECRETS = ("KEY", "TOKEN", "SECRET", "PASSWORD")
"""Suffixes of environment variables that only workers on this machine inherit: no node of Ray, and
no server."""

_THREADS = (
    "OMP_NUM_THREADS",
    "MKL_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "NUMEXPR_NUM_THREADS",
    "VECLIB_MAXIMUM_THREADS",
    "RAYON_NUM_THREADS",
)


def silence(**more: str) -> None:
    """Set the quiet environment in this process, keeping values the user has set."""
    for name, value in {**QUIET, **more}.items():
        os.environ.setdefault(name, value)


def worker_environment(threads: int = 1) -> dict[str, str]:
    """Return the environment for a worker process with so many compute threads."""
    environment = {**QUIET, **os.environ}
    environment.update(dict.fromkeys(_THREADS, str(threads)))
    # Iteration order of string sets, and so possibly results, depends on the hash seed.
    environment["PYTHONHASHSEED"] = "0"
    environment["PYTHONUNBUFFERED"] = "1"
    return environment
