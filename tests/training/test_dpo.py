"""Laws of DPO training, checked against plain torch."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import torch
from by_hand import PAIRS, digest, log_probabilities
from torch.nn import functional as F

from harness.errors import HarnessError, UserError
from harness.models.loading import load_model, load_tokenizer, tokenize
from harness.training import dpo, offline
from harness.training.dpo import DPO
from harness.training.offline import TrainingError


def hyper(**settings: Any) -> DPO:
    defaults: dict[str, Any] = {
        "learning_rate": 1e-3,
        "beta": 0.5,
        "epochs": 1,
        "batch_size": 4,
        "micro_batch_size": 4,
        "max_length": 64,
        "schedule": "constant_with_warmup",
        "warmup_ratio": 0.0,
    }
    return DPO(**{**defaults, **settings})


def train(
    start: Path,
    reference: Path,
    out: Path,
    *,
    pairs: Any = PAIRS,
    seed: int = 0,
    **settings: Any,
) -> tuple[dict[str, float], list[tuple[int, dict[str, float]]]]:
    out.mkdir(exist_ok=True)
    logs: list[tuple[int, dict[str, float]]] = []
    summary = offline.train(
        hyper(**settings),
        start,
        pairs,
        out,
        reference_path=reference,
        seed=seed,
        on_log=lambda step, metrics: logs.append((step, metrics)),
    )
    return summary, logs


def dpo_loss(policy: Any, reference: Any, path: Path, beta: float) -> torch.Tensor:
    """Mean over the pairs of -log sigmoid(beta * difference of the log-ratios)."""
    losses = []
    for pair in PAIRS:
        ratio = {}
        for side in ("chosen", "rejected"):
            with torch.no_grad():
                base = log_probabilities(reference, path, pair["prompt"], pair[side]).sum()
            ours = log_probabilities(policy, path, pair["prompt"], pair[side]).sum()
            ratio[side] = ours - base
        losses.append(-F.logsigmoid(beta * (ratio["chosen"] - ratio["rejected"])))
    return torch.stack(losses).mean()


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


def test_a_whole_training_equals_a_plain_torch_loop(
    policy_path: Path, other_path: Path, tmp_path: Path
) -> None:
    """Three updates on one full batch, so that the order of the data does not matter.

    AdamW with betas 0.9 and 0.999, gradients clipped to norm 1, the reference evaluated anew in
    each update, where the trainer computes it once beforehand.
    """
    policy, reference = load_model(policy_path), load_model(other_path)
    optimizer = torch.optim.AdamW(policy.parameters(), lr=1e-3, eps=1e-8, weight_decay=0.0)
    losses = []
    for _ in range(3):
        loss = dpo_loss(policy, reference, policy_path, beta=0.5)
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(policy.parameters(), 1.0)
        optimizer.step()
        losses.append(loss.item())
    _, logs = train(policy_path, other_path, tmp_path, epochs=3)
    assert [metrics["loss"] for _, metrics in logs] == pytest.approx(losses, abs=1e-4)
    trained = load_model(tmp_path / "model").state_dict()
    for name, weight in policy.state_dict().items():
        torch.testing.assert_close(trained[name], weight, atol=2e-5, rtol=0)


def test_the_trained_tokens_are_the_completion_and_the_end_of_its_turn(
    policy_path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    batches: list[Any] = []

    class Watched(dpo.DPOTrainer):
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


def test_the_same_seed_gives_the_same_weights_to_the_last_bit(
    policy_path: Path, tmp_path: Path
) -> None:
    settings = {"epochs": 2, "batch_size": 2, "micro_batch_size": 2}
    torch.manual_seed(1)
    first, _ = train(policy_path, policy_path, tmp_path / "a", seed=3, **settings)
    torch.manual_seed(2)
    again, _ = train(policy_path, policy_path, tmp_path / "b", seed=3, **settings)
    train(policy_path, policy_path, tmp_path / "c", seed=4, **settings)
    digests = [digest(tmp_path / name / "model") for name in "abc"]
    assert digests[0] == digests[1] != digests[2]
    assert first == again


def test_accumulated_micro_batches_equal_one_batch(policy_path: Path, tmp_path: Path) -> None:
    train(policy_path, policy_path, tmp_path / "whole", epochs=3)
    train(policy_path, policy_path, tmp_path / "parts", epochs=3, micro_batch_size=1)
    parts = load_model(tmp_path / "parts" / "model").state_dict()
    for name, weight in load_model(tmp_path / "whole" / "model").state_dict().items():
        torch.testing.assert_close(parts[name], weight, atol=2e-5, rtol=0)


def test_the_loss_falls_when_four_pairs_are_learnt_by_heart(
    policy_path: Path, tmp_path: Path
) -> None:
    summary, logs = train(policy_path, policy_path, tmp_path, epochs=40, learning_rate=1e-2)
    assert summary["steps"] == len(logs) == 40
    assert summary["loss_last"] < 0.05
    assert summary["accuracy_last"] == 1.0
    assert summary["margin_last"] > 1.0


def test_pairs_that_are_too_long_are_left_out_whole_and_counted(
    policy_path: Path, tmp_path: Path
) -> None:
    """The template adds 7 tokens: `<bos>`, two turn starts, two roles, two turn ends.

    With the prompt and the longer completion the pairs measure 3+3+7 = 13, 1+4+7 = 12, 4+4+7 = 15
    and 2+2+7 = 11 tokens; a limit of 12 is inclusive.
    """
    summary, _ = train(policy_path, policy_path, tmp_path, max_length=12)
    assert (summary["pairs"], summary["too_long"], summary["trained_pairs"]) == (4, 2, 2)


def test_no_pair_short_enough_is_an_error(policy_path: Path, tmp_path: Path) -> None:
    with pytest.raises(TrainingError, match="none of the 4 pairs fits into max_length = 5"):
        train(policy_path, policy_path, tmp_path, max_length=5)


def test_only_the_model_is_written_and_it_can_be_trained_again(
    policy_path: Path, tmp_path: Path
) -> None:
    before = digest(policy_path)
    train(policy_path, policy_path, tmp_path / "1")
    first = tmp_path / "1" / "model"
    assert [path.name for path in (tmp_path / "1").iterdir()] == ["model"]
    assert {path.suffix for path in first.iterdir()} == {".json", ".safetensors", ".jinja"}
    assert digest(policy_path) == before != digest(first)
    assert load_model(first).config.use_cache
    summary, _ = train(first, first, tmp_path / "2")
    assert summary["loss_first"] == pytest.approx(math.log(2), abs=1e-6)


def test_an_arrow_table_trains_like_a_list(policy_path: Path, tmp_path: Path) -> None:
    train(policy_path, policy_path, tmp_path / "list")
    table = pa.Table.from_pylist([{**pair, "source": "human"} for pair in PAIRS])
    train(policy_path, policy_path, tmp_path / "table", pairs=table)
    assert digest(tmp_path / "list" / "model") == digest(tmp_path / "table" / "model")


@pytest.mark.parametrize(("loss", "message"), [(0.65, "instead of log 2"), (math.nan, "is nan")])
def test_a_loss_that_cannot_be_right_stops_the_training(loss: float, message: str) -> None:
    recorder = offline._Recorder(lambda step, metrics: None, hyper(), "float32")

    class State:
        global_step = 1

    with pytest.raises(TrainingError, match=message):
        recorder.on_log(None, State(), None, logs={"loss": loss})


def test_a_missing_checkpoint_is_one_clear_error(policy_path: Path, tmp_path: Path) -> None:
    for start, reference in ((tmp_path / "no", policy_path), (policy_path, tmp_path / "no")):
        with pytest.raises(HarnessError, match="no checkpoint at"):
            train(start, reference, tmp_path / "out")


@pytest.mark.parametrize(
    "wrong", [{"micro_batch_size": 3}, {"warmup_ratio": 1.0}, {"schedule": "exponential"}]
)
def test_a_wrong_hyperparameter_is_the_users_error(wrong: dict[str, Any]) -> None:
    with pytest.raises(UserError):
        hyper(**wrong)
