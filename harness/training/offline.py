"""Every algorithm that trains on pairs, behind one call.

The hyperparameters name the algorithm: `hyperparameters` makes them from a profile's settings, and
`train` runs the trainer they belong to. SPPO's pairs carry win probabilities besides the texts;
SimPO and ORPO have no reference.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

from harness.errors import UserError
from harness.training.dpo import DPOHyperparameters, train_dpo
from harness.training.loop import OfflineHyperparameters, OnLog, TrainingError
from harness.training.orpo import ORPOHyperparameters, train_orpo
from harness.training.pairs import Pairs
from harness.training.placement import Placement
from harness.training.simpo import SimPOHyperparameters, train_simpo
from harness.training.sppo import SPPOHyperparameters, train_sppo

ALGORITHMS: dict[str, type[OfflineHyperparameters]] = {
    "dpo": DPOHyperparameters,
    "sppo": SPPOHyperparameters,
    "simpo": SimPOHyperparameters,
    "orpo": ORPOHyperparameters,
}
"""The hyperparameters of each algorithm, by the name that recipes use."""


def hyperparameters(
    algorithm: str, settings: Mapping[str, Any], *, micro_batch_size: int | None = None
) -> OfflineHyperparameters:
    """Return the hyperparameters that a profile's settings ask for.

    Args:
        algorithm: `dpo`, `sppo`, `simpo` or `orpo`.
        settings: hyperparameters under the catalogue's names; other settings are ignored.
        micro_batch_size: pairs for one forward pass; None takes a whole batch at once.

    Raises:
        UserError: there is no such algorithm, or a value cannot be.
    """
    if algorithm not in ALGORITHMS:
        raise UserError(
            f"no algorithm `{algorithm}` trains on pairs: use one of {', '.join(ALGORITHMS)}."
        )
    kind = ALGORITHMS[algorithm]
    given = {
        **settings,
        "schedule": settings["lr_scheduler"],
        "micro_batch_size": micro_batch_size or settings["batch_size"],
    }
    return kind(**{field.name: given[field.name] for field in fields(kind) if field.name in given})


def train(
    model_path: Path,
    reference_path: Path,
    pairs: Pairs,
    out_dir: Path,
    hyper: OfflineHyperparameters,
    *,
    seed: int,
    on_log: OnLog,
    log_every: int = 1,
    device: str = "cpu",
    place: Placement | None = None,
) -> dict[str, float]:
    """Train a policy by the algorithm of its hyperparameters and save it to `out_dir/model`.

    Args:
        model_path: checkpoint to start from; also the source of the tokenizer.
        reference_path: checkpoint of the reference; SimPO and ORPO do not read it.
        pairs: rows with the texts `prompt`, `chosen` and `rejected`, and for SPPO with the win
            probabilities `p_chosen` and `p_rejected`; other columns are ignored.
        out_dir: existing folder; receives `model/` (safetensors and tokenizer) and nothing else.
        hyper: hyperparameters of one of the algorithms.
        seed: seed of the order of the data.
        on_log: called with the number of finished updates and their metrics.
        log_every: updates between two calls of `on_log` (the first update is always logged).
        device: `cpu`, or `cuda` for the first visible GPU.
        place: how to lay a large model on devices; None trains in this process alone.

    Returns:
        The summary that `train_dpo` describes.

    Raises:
        TrainingError: as the algorithm's own function says.
        HarnessError: no checkpoint at one of the paths.
    """
    rest: dict[str, Any] = {
        "seed": seed,
        "on_log": on_log,
        "log_every": log_every,
        "device": device,
        "place": place,
    }
    match hyper:
        case DPOHyperparameters():
            return train_dpo(model_path, reference_path, pairs, out_dir, hyper, **rest)
        case SPPOHyperparameters():
            return train_sppo(model_path, reference_path, pairs, out_dir, hyper, **rest)
        case SimPOHyperparameters():
            return train_simpo(model_path, pairs, out_dir, hyper, **rest)
        case ORPOHyperparameters():
            return train_orpo(model_path, pairs, out_dir, hyper, **rest)
    raise TrainingError(f"no algorithm has hyperparameters of type {type(hyper).__name__}.")
