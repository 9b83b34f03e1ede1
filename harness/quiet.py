"""The environment of our processes: no telemetry, no network, no noise, pinned threads.

Libraries read these variables while they are imported, so `silence` is called before the first
heavy import, and workers get the environment when they are started. `QUIET` is the one place that
switches off what libraries collect about their use. A value the user has set wins, except for
threads: two workers that each take all cores only fight.
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

_THREADS = (
    "OMP_NUM_THREADS",
    "MKL_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "NUMEXPR_NUM_THREADS",
    "VECLIB_MAXIMUM_THREADS",
    "RAYON_NUM_THREADS",
)


def silence() -> None:
    """Set the quiet environment in this process, keeping what the user has set."""
    for name, value in QUIET.items():
        os.environ.setdefault(name, value)


def worker_environment(threads: int = 1) -> dict[str, str]:
    """Return the environment a worker process is started with.

    Args:
        threads: Compute threads of the worker.
    """
    environment = {**QUIET, **os.environ}
    environment.update(dict.fromkeys(_THREADS, str(threads)))
    # The order of a set of strings depends on the hash seed, and with it could a stage's numbers.
    environment["PYTHONHASHSEED"] = "0"
    environment["PYTHONUNBUFFERED"] = "1"
    return environment
