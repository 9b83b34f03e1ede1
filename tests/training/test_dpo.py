"""Laws of DPO training, checked against plain torch."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from by_hand import PAIRS, SETTINGS, Logs, digest, dpo_loss, run

from harness.errors import HarnessError, UserError
from harness.models.loading import load_model, load_tokenizer, tokenize
from harness.training import dpo, offline
from harness.training.dpo import DPO
from harness.training.offline import TrainingError


def train(
    start: Path, reference: Path, out: Path, *, pairs: Any = PAIRS, **settings: Any
) -> tuple[dict[str, float], Logs]:
    out.mkdir(exist_ok=True)
    algorithm = DPO(**{**SETTINGS, "beta": 0.5, **settings})
    return run(offline.train, algorithm, start, pairs, out, reference_path=reference)


def test_the_first_loss_is_log_2_if_policy_and_reference_are_one_checkpoint(
    policy_path: Path, tmp_path: Path
) -> None:
    summary, logs = train(policy_path, policy_path, tmp_path)
    assert summary["loss_first"] == pytest.approx(math.log(2), abs=1e-6)
    assert [step for step, _ in logs] == [1]


def test_the_first_loss_equals_a_hand_computation_against_the_given_reference(
    policy_path: Path, other_path: Path, tmp_path: Path
) -> None:
    """Two unrelated checkpoints, so that a reference taken from elsewhere would show."""
    policy, reference = load_model(policy_path), load_model(other_path)
    expected = dpo_loss(policy, reference, policy_path, beta=0.5).item()
    assert abs(expected - math.log(2)) > 0.1
    summary, _ = train(policy_path, other_path, tmp_path)
    assert summary["loss_first"] == pytest.approx(expected, abs=1e-4)


def test_the_trained_tokens_are_the_completion_and_the_end_of_its_turn(
    policy_path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    batches: list[Any] = []

    class Watched(dpo.DPOTrainer):  # type: ignore[misc, name-defined]
        def compute_loss(self, model: Any, inputs: Any, *args: Any, **kwargs: Any) -> Any:
            batches.append(inputs)
            return super().compute_loss(model, inputs, *args, **kwargs)

    monkeypatch.setattr(dpo, "DPOTrainer", Watched)
    train(policy_path, policy_path, tmp_path, pairs=PAIRS[:1])
    tokenizer = load_tokenizer(policy_path)
    user = [{"role": "user", "content": "a b c"}]
    [head_ids] = tokenize(tokenizer, [user], add_generation_prompt=True)
    head = tokenizer.convert_ids_to_tokens(head_ids)
    [batch] = batches
    for row, completion in enumerate(("c b a", "a")):  # TRL stacks chosen over rejected
        real = batch["attention_mask"][row].bool()
        words = tokenizer.convert_ids_to_tokens(batch["input_ids"][row][real].tolist())
        trained = batch["completion_mask"][row][real].bool().tolist()
        tail = [*completion.split(), "<end_of_turn>"]
        assert words == head + tail
        assert trained == [False] * len(head) + [True] * len(tail)


def test_the_loss_falls_when_four_pairs_are_learnt_by_heart(
    policy_path: Path, tmp_path: Path
) -> None:
    summary, logs = train(policy_path, policy_path, tmp_path, epochs=40, learning_rate=1e-2)
    assert summary["steps"] == len(logs) == 40
    assert summary["loss_last"] < 0.05
    assert summary["accuracy_last"] == 1.0
    assert summary["margin_last"] > 1.0


def test_no_pair_short_enough_is_an_error(policy_path: Path, tmp_path: Path) -> None:
    with pytest.raises(TrainingError, match="none of the 4 pairs fits into max_length = 5"):
        train(policy_path, policy_path, tmp_path, max_length=5)


def test_what_was_trained_can_be_trained_again(policy_path: Path, tmp_path: Path) -> None:
    train(policy_path, policy_path, tmp_path / "1")
    first = tmp_path / "1" / "model"
    summary, _ = train(first, first, tmp_path / "2")
    assert summary["loss_first"] == pytest.approx(math.log(2), abs=1e-6)


def test_an_arrow_table_trains_like_a_list(policy_path: Path, tmp_path: Path) -> None:
    train(policy_path, policy_path, tmp_path / "list")
    table = pa.Table.from_pylist([{**pair, "source": "human"} for pair in PAIRS])
    train(policy_path, policy_path, tmp_path / "table", pairs=table)
    assert digest(tmp_path / "list" / "model") == digest(tmp_path / "table" / "model")


@pytest.mark.parametrize(("loss", "message"), [(0.65, "instead of log 2"), (math.nan, "is nan")])
def test_a_loss_that_cannot_be_right_stops_the_training(loss: float, message: str) -> None:
    recorder = offline._Recorder(lambda step, metrics: None, DPO(**SETTINGS, beta=0.5), "float32")

    class State:
        global_step = 1

    with pytest.raises(TrainingError, match=message):
        recorder.on_log(None, State(), None, logs={"loss": loss})


def test_a_missing_checkpoint_is_one_clear_error(policy_path: Path, tmp_path: Path) -> None:
    for start, reference in ((tmp_path / "no", policy_path), (policy_path, tmp_path / "no")):
        with pytest.raises(HarnessError, match="no checkpoint at"):
            train(start, reference, tmp_path / "out")


@pytest.mark.parametrize("wrong", [{"micro_batch_size": 3}, {"warmup_ratio": 1.0}])
def test_a_wrong_hyperparameter_is_the_users_error(wrong: dict[str, Any]) -> None:
    with pytest.raises(UserError):
        DPO(**{**SETTINGS, "beta": 0.5, **wrong})
