"""Laws of the one call behind which all algorithms on pairs stand."""

from pathlib import Path
from typing import Any

import pytest
import torch
from by_hand import PAIRS, SETTINGS, digest, run
from safetensors.torch import load_file

from harness.errors import UserError
from harness.extensions import LOSSES
from harness.models.loading import load_model, load_tokenizer
from harness.registry.training import Training
from harness.training.offline import OfflineAlgorithm, algorithm_of, short_enough, train
from harness.training.offline_losses import DPO, ORPO, SimPO

SOFT = [{**pair, "reward_chosen": 0.8, "reward_rejected": 0.3} for pair in PAIRS]
STATED: dict[str, Any] = {
    "learning_rate": 1e-3,
    "lr_scheduler": "cosine",
    "warmup_ratio": 0.1,
    "batch_size": 4,
    "max_length": 64,
    "max_prompt_length": 32,
    "optimizer": "adamw_torch",
    "weight_decay": 0.0,
    "max_grad_norm": 1.0,
    "epochs": 2,
}
OWN: dict[str, dict[str, float]] = {
    "dpo": {"beta": 0.5},
    "sppo": {"beta": 0.1},
    "simpo": {"beta": 2.0, "gamma": 1.0},
    "orpo": {"lambda": 0.25},
}


def from_registry(name: str) -> OfflineAlgorithm:
    """Take the way of a profile: validated by the registry, then dumped into settings."""
    training = Training.model_validate({name: {**STATED, **OWN[name]}})
    settings = {"algorithm": name, "seed": 1, **training.of(name).model_dump()}
    return algorithm_of(name, settings, micro_batch_size=2)


@pytest.mark.parametrize("name", LOSSES.shipped)
def test_every_algorithm_trains_behind_the_same_call(
    name: str, policy_path: Path, tmp_path: Path
) -> None:
    chosen = from_registry(name)
    assert chosen.name.lower() == name
    summary, logs = run(train, chosen, policy_path, SOFT, tmp_path)
    assert summary["trained_pairs"] == 4
    assert summary["steps"] == len(logs) == 2  # during the first the learning rate is still 0
    assert set(summary) == {
        "pairs",
        "too_long",
        "trained_pairs",
        "steps",
        "loss_first",
        "loss_last",
        "accuracy_last",
        "margin_last",
    }
    assert digest(tmp_path / "model") != digest(policy_path)


def test_a_profiles_names_become_the_trainers() -> None:
    simpo, orpo = from_registry("simpo"), from_registry("orpo")
    assert isinstance(simpo, SimPO)
    assert isinstance(orpo, ORPO)
    assert (simpo.gamma, simpo.schedule, simpo.max_prompt_length) == (1.0, "cosine", 32)
    assert (orpo.odds_weight, orpo.micro_batch_size) == (0.25, 2)


def test_an_algorithm_that_does_not_train_on_pairs_is_the_users_error() -> None:
    with pytest.raises(UserError, match="dpo, sppo, simpo, orpo"):
        algorithm_of("rloo", STATED)


def test_a_prompt_that_is_too_long_leaves_its_pair_out(policy_path: Path) -> None:
    """Headed prompts measure 6 tokens more than their words: 9, 7, 10 and 8.

    Those are `<bos>`, two turn starts, two roles and one turn end.
    """
    rows = PAIRS
    tokenizer = load_tokenizer(policy_path)
    assert short_enough(rows, tokenizer, 64, 8) == [rows[1], rows[3]]
    assert short_enough(rows, tokenizer, 64, None) == rows
    assert short_enough(rows, tokenizer, 11, 8) == [rows[3]]


def after(path: Path, to: Path, **changes: Any) -> dict[str, torch.Tensor]:
    """Return the weights of a policy trained on all pairs at once, at a constant learning rate."""
    stated = STATED | {"lr_scheduler": "constant_with_warmup", "warmup_ratio": 0.0, "epochs": 1}
    training = Training.model_validate({"dpo": {**stated, **OWN["dpo"], **changes}})
    settings = {"algorithm": "dpo", "seed": 1, **training.of("dpo").model_dump()}
    run(train, algorithm_of("dpo", settings, micro_batch_size=4), path, PAIRS, to)
    return dict(load_model(to / "model").state_dict())


def test_weights_decay_by_the_learning_rate_times_the_decay(
    policy_path: Path, tmp_path: Path
) -> None:
    """One update of AdamW: w (1 - 0.001 * 10) less the same step, and norms do not decay."""
    before = load_model(policy_path).state_dict()
    bare = after(policy_path, tmp_path / "bare")
    decayed = after(policy_path, tmp_path / "decayed", weight_decay=10.0)
    for name, weight in before.items():
        share = 0.0 if "norm" in name else 0.01
        torch.testing.assert_close(bare[name] - decayed[name], share * weight, atol=1e-6, rtol=0)


def test_the_learning_rate_rises_over_the_warm_up(policy_path: Path, tmp_path: Path) -> None:
    """Of one step, or half of two, the first has a rate of 0 and moves nothing.

    The second of two sees the same pairs and gradient, and moves as a single step without warm-up.
    """
    before = load_model(policy_path).state_dict()
    once = after(policy_path, tmp_path / "once")
    still = after(policy_path, tmp_path / "still", warmup_ratio=0.5)
    second = after(policy_path, tmp_path / "second", warmup_ratio=0.5, epochs=2)
    assert any(not torch.equal(once[name], weight) for name, weight in before.items())
    for name, weight in before.items():
        assert torch.equal(still[name], weight)
        torch.testing.assert_close(second[name], once[name], atol=2e-6, rtol=0)


def test_the_learning_rate_falls_along_the_schedule(policy_path: Path, tmp_path: Path) -> None:
    """Before each of four updates the cosine is at 0, 1/4, 1/2 and 3/4 of pi: (1 + cos) / 2."""
    stated = STATED | {"warmup_ratio": 0.0, "epochs": 4}
    training = Training.model_validate({"dpo": {**stated, **OWN["dpo"]}})
    settings = {"algorithm": "dpo", "seed": 1, **training.of("dpo").model_dump()}
    _, logs = run(
        train, algorithm_of("dpo", settings, micro_batch_size=4), policy_path, PAIRS, tmp_path
    )
    rates = [metrics["learning_rate"] for _, metrics in logs]
    assert rates == pytest.approx([1e-3, 8.53553e-4, 5e-4, 1.46447e-4], rel=1e-5)


def test_a_gradient_is_clipped_to_the_norm_that_is_stated(
    policy_path: Path, tmp_path: Path
) -> None:
    """One update of plain gradient descent is as long as the learning rate times that norm."""
    algorithm = DPO(**SETTINGS | {"learning_rate": 1.0, "max_grad_norm": 0.1},
                    optimizer="sgd", beta=0.5)  # fmt: skip
    _, [(_, logged)] = run(train, algorithm, policy_path, PAIRS, tmp_path)
    assert logged["grad_norm"] > 0.1
    before, after = (
        load_file(folder / "model.safetensors") for folder in (policy_path, tmp_path / "model")
    )
    moves = [after[name] - weight for name, weight in before.items()]
    assert torch.nn.utils.get_total_norm(moves) == pytest.approx(0.1, rel=1e-3)
