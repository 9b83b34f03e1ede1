"""One entry to all reward models: the folder's `config.json` says which kind it holds.

The model. A role asks for a model that reads one answer or two. The architecture in the
configuration decides which reader that is; what fits no reader, or reads another number of
answers than the role asks for, is an error. No code from a model's folder is ever run.

| architecture                    | reads one answer         | reads two answers             |
|---------------------------------|--------------------------|-------------------------------|
| `*ForSequenceClassification`    | `SequenceClassifier`     | `TwoTurnClassifier`, if its   |
|                                 |                          | output is `FIRST_IS_BETTER`   |
| `LlamaForRewardModelWithGating` | `Armo`                   |                               |
| `DebertaV2PairRM`               |                          | `PairRM`                      |
| `LlamaForCausalLM`              |                          | `PairPreferenceLLM`           |
"""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import Any, Literal, overload

from harness.errors import HarnessError, UserError
from harness.models import armo, pair_preference_llm, pairrm
from harness.models.hub import local_folder
from harness.models.loading import FIRST_IS_BETTER, stamp
from harness.models.reader import PairModel, RewardModel
from harness.models.sequence_classifier import SequenceClassifier, TwoTurnClassifier
from harness.models.strict_loading import read_config

Reads = Literal["one answer", "two answers"]

KINDS: dict[str, type[Any]] = {
    armo.ARCHITECTURE: armo.Armo,
    pairrm.ARCHITECTURE: pairrm.PairRM,
    pair_preference_llm.ARCHITECTURE: pair_preference_llm.PairPreferenceLLM,
}
"""The reader of each architecture that is no sequence classifier."""


@overload
def load_reward_model(
    path: Path | str,
    reads: Literal["one answer"] = ...,
    *,
    device: str = ...,
    dtype: str = ...,
) -> RewardModel: ...


@overload
def load_reward_model(
    path: Path | str, reads: Literal["two answers"], *, device: str = ..., dtype: str = ...
) -> PairModel: ...


def load_reward_model(
    path: Path | str,
    reads: Reads = "one answer",
    *,
    device: str = "cpu",
    dtype: str = "float32",
) -> RewardModel | PairModel:
    """Load a reward model of any kind, or return it from the process's cache.

    Args:
        path: folder with `config.json`, safetensors weights and a tokenizer, or the name of a
            model that the hub's cache holds.
        reads: whether it has to score one answer or compare two.
        device: torch device to run on.
        dtype: number format to run in, `float32` or `bfloat16`.

    Returns:
        A model whose tensors are exactly those in the files.

    Raises:
        HarnessError: there is no model at `path`, its files are incomplete, pickled or another
            model's, it has no chat template, or it is of the wrong kind.
    """
    folder = local_folder(path)
    return _load(str(folder.resolve()), stamp(folder), reads, device, dtype)


@lru_cache(maxsize=2)  # online, one rewards and another ranks
def _load(
    path: str, stamp: tuple[Any, ...], reads: Reads, device: str, dtype: str
) -> RewardModel | PairModel:
    del stamp  # part of the key only
    config = read_config(Path(path))
    model: RewardModel | PairModel = _kind(path, config, reads).load(
        Path(path), config, device, dtype
    )
    return model


def _kind(path: str, config: dict[str, Any], reads: Reads) -> type[Any]:
    """Return the reader for a checkpoint."""
    architecture = str((config.get("architectures") or ["nameless model"])[0])
    if architecture.endswith("ForSequenceClassification"):
        pairwise = FIRST_IS_BETTER in (config.get("id2label") or {}).values()
        kind: type[Any] | None = TwoTurnClassifier if pairwise else SequenceClassifier
    else:
        kind = KINDS.get(architecture)
    if kind is None or (architecture == pair_preference_llm.ARCHITECTURE and reads == "one answer"):
        raise UserError(
            f"the model at {path} is a {architecture}, which is no reward model that can be read "
            f"here: give a sequence classifier with one output, or one of {', '.join(KINDS)} (the "
            "last in a pairwise role)."
        )
    if reads == "one answer" and issubclass(kind, PairModel):
        raise HarnessError(
            f"the model at {path} compares two answers and cannot score one: give it a pairwise "
            "role in the profile."
        )
    if reads == "two answers" and not issubclass(kind, PairModel):
        raise HarnessError(
            f"the model at {path} is no pairwise reward model, it scores one answer: give it a "
            "pointwise role in the profile."
        )
    return kind
