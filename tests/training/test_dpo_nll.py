"""Laws of the likelihood term of DPO in both its forms, checked against plain torch."""

from __future__ import annotations

import math
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from by_hand import (
    PAIRS,
    SETTINGS,
    Logs,
    assert_close,
    assert_equals_plain_loop,
    both_sides,
    digest,
)
from by_hand import run as run_by_hand
from torch.nn import functional as F

from harness.errors import UserError
from harness.models.loading import load_model
from harness.training import dpo
from harness.training.dpo import DPOHyperparameters, TrainingError, train_dpo

FORMS = ("per_token", "doubly_divided")


def train(
    start: Path, reference: Path, out: Path, *, seed: int = 0, **settings: Any
) -> tuple[dict[str, float], Logs]:
    out.mkdir(exist_ok=True)
    hyper = DPOHyperparameters(**{**SETTINGS, "beta": 0.5, "nll_weight": 0.7, **settings})
    return run_by_hand(train_dpo, start, reference, PAIRS, out, hyper, seed=seed)


def nll_term(policy: Any, path: Path, form: str) -> torch.Tensor:
    """Mean over the pairs of the chosen completion's NLL over its length, or its length squared."""
    terms = []
    for pair in PAIRS:
        chosen, _ = both_sides(policy, path, pair)
        length = len(pair["chosen"].split()) + 1  # and the end of the turn
        divisor = length if form == "per_token" else length**2
        terms.append(-chosen.sum() / divisor)
    return torch.stack(terms).mean()


def loss(policy: Any, reference: Any, path: Path, form: str) -> torch.Tensor:
    """DPO at beta 0.5, plus 0.7 times the term."""
    losses = []
    for pair in PAIRS:
        with torch.no_grad():
            base = [side.sum() for side in both_sides(reference, path, pair)]
        chosen, rejected = (side.sum() for side in both_sides(policy, path, pair))
        losses.append(-F.logsigmoid(0.5 * ((chosen - base[0]) - (rejected - base[1]))))
    return torch.stack(losses).mean() + 0.7 * nll_term(policy, path, form)


@pytest.mark.parametrize("form", FORMS)
def test_the_first_loss_is_log_2_and_the_weighted_term(
    form: str, policy_path: Path, tmp_path: Path
) -> None:
    policy = load_model(policy_path, "causal")
    with torch.no_grad():
        term = nll_term(policy, policy_path, form).item()
    _, [(_, metrics)] = train(policy_path, policy_path, tmp_path, nll=form)
    assert metrics["nll_loss"] == pytest.approx(term, abs=1e-5)
    assert metrics["loss"] == pytest.approx(math.log(2) + 0.7 * term, abs=1e-5)


@pytest.mark.parametrize("form", FORMS)
def test_a_whole_training_equals_a_plain_torch_loop(
    form: str, policy_path: Path, other_path: Path, tmp_path: Path
) -> None:
    policy, reference = load_model(policy_path, "causal"), load_model(other_path, "causal")
    optimizer = torch.optim.AdamW(policy.parameters(), lr=1e-3, eps=1e-8, weight_decay=0.0)
    _, logs = train(policy_path, other_path, tmp_path, epochs=3, nll=form)
    assert_equals_plain_loop(
        policy,
        lambda: loss(policy, reference, policy_path, form),
        optimizer,
        logs,
        tmp_path / "model",
    )


def test_the_term_per_token_is_trls_at_one_pair_for_each_micro_batch(
    policy_path: Path, other_path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """TRL pools the tokens of a micro-batch; of a single pair that is the pair's own mean."""
    train(policy_path, other_path, tmp_path / "ours", nll="per_token", micro_batch_size=1)
    trl = partial(dpo.DPOConfig, loss_type=["sigmoid", "sft"], loss_weights=[1.0, 0.7])
    monkeypatch.setattr(dpo, "DPOConfig", trl)
    train(policy_path, other_path, tmp_path / "trl", micro_batch_size=1)
    ours = load_model(tmp_path / "ours" / "model", "causal")
    assert_close(ours, tmp_path / "trl" / "model")


@pytest.mark.parametrize("form", FORMS)
def test_accumulated_micro_batches_equal_one_batch(
    form: str, policy_path: Path, tmp_path: Path
) -> None:
    train(policy_path, policy_path, tmp_path / "whole", epochs=3, nll=form)
    train(policy_path, policy_path, tmp_path / "parts", epochs=3, nll=form, micro_batch_size=1)
    assert_close(load_model(tmp_path / "whole" / "model", "causal"), tmp_path / "parts" / "model")


def test_the_same_seed_gives_the_same_weights_and_the_switch_is_off_by_default(
    policy_path: Path, tmp_path: Path
) -> None:
    """A weight alone adds nothing: without a form the bytes are those of plain DPO."""
    settings = {"epochs": 2, "batch_size": 2, "micro_batch_size": 2}
    for name, extra in (
        ("a", {"nll": "doubly_divided"}),
        ("b", {"nll": "doubly_divided"}),
        ("c", {}),
        ("d", {"nll_weight": 5.0}),
    ):
        train(policy_path, policy_path, tmp_path / name, seed=3, **settings, **extra)
    digests = [digest(tmp_path / name / "model") for name in "abcd"]
    assert digests[0] == digests[1] != digests[2] == digests[3]


def test_a_wrong_reference_shows_through_the_term() -> None:
    """0.65 + 0.7 * 2 is a plausible loss, but what is left of it without the term is not log 2."""
    recorder = dpo._Recorder(lambda step, metrics: None, expect_log_2=True, nll_weight=0.7)
    with pytest.raises(TrainingError, match=r"is 0\.6500 instead of log 2"):
        recorder.check_first({"loss": 0.65 + 0.7 * 2, "nll_loss": 2.0})
    recorder.check_first({"loss": math.log(2) + 0.7 * 2, "nll_loss": 2.0})


def test_an_unknown_form_is_the_users_error() -> None:
    with pytest.raises(UserError, match="per_token, doubly_divided"):
        DPOHyperparameters(**SETTINGS, beta=0.5, nll="total")  # type: ignore[arg-type]
