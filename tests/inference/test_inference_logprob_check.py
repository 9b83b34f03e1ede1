"""Laws of the comparison of an engine with the trainer."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
from tiny_gemma import build_tiny_gemma
from typer.testing import CliRunner

from harness.cli.main import app
from harness.errors import HarnessError
from harness.inference import logprob_check
from harness.inference.logprob_check import Agreement, compared, measure
from harness.inference.request import Sample
from harness.inference.solver import opening
from harness.serving.engines import identity

TEXTS = ["a b c", "d", "e f g h", "m n", "o p"]


@pytest.fixture(autouse=True)
def work(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HARNESS_WORK", str(tmp_path / "work"))


def agreement_of(engine_policy: Path, trained_policy: Path, scratch: Path) -> Agreement:
    """Compare an engine on one policy with the training of another."""
    opened = opening(
        identity("transformers"),
        engine_policy,
        dtype="float32",
        batch_size=8,
        log=scratch / "log",
    )
    return measure(trained_policy, opened, dtype="float32", texts=TEXTS, n=4, max_new_tokens=16)


def test_the_measures_are_those_of_the_definition() -> None:
    """Two answers of two tokens and one: differences 0.1, 0.3 and 0.2, one of them below.

    Mean 0.2, largest 0.3. With t - e = 0.1, -0.3, 0.2 the divergence's terms are
    exp(0.1) - 1.1 = 0.0051709, exp(-0.3) - 0.7 = 0.0408182 and exp(0.2) - 1.2 = 0.0214028.
    """
    samples = [Sample("", 2, (8, 9), (-1.0, -2.0)), Sample("", 1, (8,), (-0.5,))]
    found = compared(samples, [[-0.9, -2.3], [-0.3]], tolerance=0.15)
    assert (found.answers, found.tokens) == (2, 3)
    assert found.mean_difference == pytest.approx(0.2)
    assert found.max_difference == pytest.approx(0.3)
    assert found.kl == pytest.approx((0.0051709 + 0.0408182 + 0.0214028) / 3, abs=1e-6)
    assert not found.agrees
    assert compared(samples, [[-0.9, -2.3], [-0.3]], tolerance=0.21).agrees


def test_equal_numbers_agree_exactly() -> None:
    found = compared([Sample("", 1, (8,), (-1.5,))], [[-1.5]], tolerance=0.0)
    assert found == Agreement(1, 1, 0.0, 0.0, 0.0, 0.0)
    assert found.agrees


def test_an_engine_that_tells_too_few_numbers_is_refused() -> None:
    with pytest.raises(HarnessError, match="told 1 log-probabilities of an answer of 2 tokens"):
        compared([Sample("", 2, (8, 9), (-1.0,))], [[-1.0, -2.0]], tolerance=1.0)


def test_an_engine_on_the_trained_policy_agrees(policy_path: Path, tmp_path: Path) -> None:
    """Sampling with a cache and one pass over the whole differ by rounding alone."""
    found = agreement_of(policy_path, policy_path, tmp_path)
    assert found.agrees
    assert found.tokens > 30
    assert found.max_difference < 1e-4


def test_an_engine_on_another_policy_does_not(policy_path: Path, tmp_path: Path) -> None:
    other = build_tiny_gemma(tmp_path / "other", seed=25)
    found = agreement_of(other, policy_path, tmp_path)
    assert not found.agrees
    assert found.kl > 0.01


def test_an_engine_without_the_soft_cap_does_not(policy_path: Path, tmp_path: Path) -> None:
    """The same weights, but logits capped at 2 in one and at 30 in the other."""
    capped = build_tiny_gemma(tmp_path / "capped", seed=24, final_logit_softcapping=2.0)
    found = agreement_of(policy_path, capped, tmp_path)
    assert not found.agrees


def test_the_command_prints_what_it_measured(policy_path: Path) -> None:
    done = CliRunner().invoke(app, ["engine", "check", "--policy", str(policy_path), "--json"])
    assert done.exit_code == 0, done.output
    said = json.loads(done.output)
    assert said["engine"] == identity("transformers")
    assert said["agrees"] is True
    assert 0 <= said["mean_difference"] <= said["max_difference"]
    assert math.isclose(said["tolerance"], 0.001)


@pytest.mark.usefixtures("fake_vllm")
def test_the_log_of_an_engine_that_died_is_still_there_to_be_read(
    policy_path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAKE_DIES_AT_START", "1")
    asked = ["engine", "check", "--profile", "single-gpu", "--policy", str(policy_path)]
    done = CliRunner().invoke(app, asked)
    assert done.exit_code == 1
    log = tmp_path / "work" / "engine-check.log"
    assert f"(all of them in {log})" in done.output.replace("\n", " ")
    assert log.stat().st_size > 0


def test_the_command_fails_above_the_tolerance(
    policy_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The engine's numbers are moved by 0.01 nats each, ten times the tolerance."""
    whole = logprob_check.trainers
    monkeypatch.setattr(
        logprob_check, "trainers", lambda *a: [[value + 0.01 for value in own] for own in whole(*a)]
    )
    done = CliRunner().invoke(app, ["engine", "check", "--policy", str(policy_path)])
    assert done.exit_code == 1
    assert "more than 0.001" in done.output
