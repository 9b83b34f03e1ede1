"""TRL's experimental trainers are where we left them, and see the tokens that DPO sees."""

from __future__ import annotations

import ast
import inspect
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import trl
from by_hand import PAIRS, SETTINGS, head_and_tail, run

from harness.models.loading import load_tokenizer
from harness.training import experimental, offline, orpo, simpo

PACKAGE = Path(experimental.__file__).resolve().parents[1]


def test_trl_is_the_series_that_the_losses_were_checked_against() -> None:
    assert trl.__version__.startswith(f"{experimental.PINNED}."), (
        f"TRL {trl.__version__} is installed, but harness/training/experimental.py was written for "
        f"{experimental.PINNED}: run tests/training against the new one, then change the pin there "
        "and in pyproject.toml."
    )


TRL: Any = experimental
"""With what it takes from TRL."""


@pytest.mark.parametrize(
    ("owner", "names"),
    [
        (experimental.CPOConfig, ("loss_type", "cpo_alpha", "beta", "simpo_gamma", "max_length")),
        (experimental.ORPOConfig, ("beta", "max_length")),
        (TRL.CPOTrainer, ("tokenize_row", "get_batch_loss_metrics")),
        (experimental.OnlineDPOConfig, ("beta", "max_length", "max_new_tokens")),
        (experimental.OnlineDPOTrainer, ("training_step",)),
        (TRL.TRLORPOTrainer, ("tokenize_row", "concatenated_forward", "odds_ratio_loss")),
    ],
)
def test_trls_experimental_trainers_have_not_moved(owner: Any, names: tuple[str, ...]) -> None:
    has = {*dir(owner), *inspect.signature(owner).parameters}
    gone = [name for name in names if name not in has]
    assert not gone, (
        f"TRL {trl.__version__} has changed {owner.__name__}: {', '.join(gone)} is gone, which "
        "harness/training/experimental.py relies on; stay with "
        f"TRL {experimental.PINNED} or adapt that module."
    )


def test_only_one_module_imports_trls_experimental_part() -> None:
    found = set()
    for path in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            names = [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            if any(name.startswith("trl.experimental") for name in names):
                found.add(path.relative_to(PACKAGE).as_posix())
    assert found == {"training/experimental.py"}, "import it from harness.training.experimental"


def test_importing_it_says_nothing() -> None:
    code = (
        "import os; os.environ.pop('TRL_EXPERIMENTAL_SILENCE', None); "
        "import harness.training.experimental"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "Experimental" not in done.stdout + done.stderr


@pytest.mark.parametrize(
    ("module", "trainer", "algorithm"),
    [
        (simpo, "SimPOTrainer", simpo.SimPO(**SETTINGS, beta=2.0, gamma=1.0)),
        (orpo, "ORPOTrainer", orpo.ORPO(**SETTINGS, odds_weight=0.5)),
    ],
)
def test_the_trained_tokens_are_the_completion_and_the_end_of_its_turn(
    module: Any,
    trainer: str,
    algorithm: Any,
    policy_path: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Those of DPO (`test_dpo`), where TRL would train on an `<eos>` after the end of the turn."""
    batches: list[Any] = []

    class Watched(getattr(experimental, trainer)):  # type: ignore[misc]
        def compute_loss(self, model: Any, inputs: Any, *args: Any, **kwargs: Any) -> Any:
            batches.append(inputs)
            return super().compute_loss(model, inputs, *args, **kwargs)

    monkeypatch.setattr(module, trainer, Watched)
    pair = PAIRS[0]
    run(offline.train, algorithm, policy_path, [pair], tmp_path)
    [batch] = batches
    for side in ("chosen", "rejected"):
        head, tail = head_and_tail(policy_path, pair["prompt"], pair[side])
        assert batch[f"{side}_input_ids"].tolist() == [head + tail]
        assert batch[f"{side}_attention_mask"].tolist() == [[1] * len(head + tail)]
        assert batch[f"{side}_labels"].tolist() == [[-100] * len(head) + tail]
    assert load_tokenizer(policy_path).eos_token_id not in batch["chosen_labels"]
