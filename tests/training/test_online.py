"""Laws of online training: losses by hand, births before steps, and cuts that change nothing."""

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from by_hand import assert_same, head_and_tail, log_probabilities
from safetensors.torch import load_file

from harness.errors import UserError
from harness.models import loading
from harness.models.loading import load_model
from harness.training.offline import TrainingError
from harness.training.online import OPTIMIZER, Drawn, OnlineAlgorithm, Segment, Steps, train_segment
from harness.training.online_losses import OAIF, RLOO
from harness.training.placement import PLAIN, Placement

BETA = 0.5
WORDS = "abcdefgh"


class Source:
    """Two prompts a step, the second born in the step before; a reward counts distinct words."""

    def __init__(self, born: int = 0) -> None:
        self.step = born
        self.births = [born]
        self.drawn: list[list[str]] = []
        self.seen: list[list[list[str]]] = []
        self.told: list[tuple[Any, int]] = []
        self.spent = False

    def draw(self, policy: Any) -> Drawn:
        self.step += 1
        self.drawn.append([WORDS[self.step % 8], f"{WORDS[self.births[-1] % 8]} p"])
        return Drawn(self.drawn[-1])

    def reward(self, completions: Any, ended: Any, tokens: int) -> Any:
        self.seen.append([list(row) for row in completions])
        self.told.append((ended, tokens))
        return np.array([[float(len(set(text.split()))) for text in row] for row in completions])

    def finish(self, policy: Any) -> dict[str, float]:
        assert not policy.model.training
        self.births.append(self.step)
        return {"born": float(self.step)}


def of_tests(kind: type[OnlineAlgorithm], **changes: Any) -> OnlineAlgorithm:
    base: dict[str, Any] = {
        "learning_rate": 1e-3, "schedule": "constant_with_warmup", "warmup_steps": 2,
        "schedule_steps": 8, "minibatch": 2, "rollouts": 2 if kind is OAIF else 3, "beta": BETA,
        "temperature": 1.0, "top_p": 1.0, "max_new_tokens": 6, "max_length": 32,
    }  # fmt: skip
    return kind(**base | changes)


def train(
    algorithm: type[OnlineAlgorithm],
    policy: Path,
    reference: Path,
    out: Path,
    first: int = 1,
    last: int = 1,
    optimizer_state: Path | None = None,
    place: Placement = PLAIN,
    source: Source | None = None,
    **changes: Any,
) -> tuple[Source, list[tuple[int, dict[str, float]]]]:
    out.mkdir(exist_ok=True)
    source = source or Source(first - 1)
    logs: list[tuple[int, dict[str, float]]] = []
    train_segment(
        of_tests(algorithm, **changes),
        policy=policy,
        reference=reference,
        optimizer_state=optimizer_state,
        out_dir=out,
        segment=Segment(first, last),
        source=source,
        seed=7,
        on_log=lambda step, metrics: logs.append((step, metrics)),
        place=place,
    )
    return source, logs


@pytest.fixture
def rolled_out(monkeypatch: pytest.MonkeyPatch) -> list[list[list[int]]]:
    """Collect the token ids of each step's rollouts, up to the end of the turn."""
    seen: list[list[list[int]]] = []
    original = Steps.reward

    def reward(
        self: Steps, prompts: Any, completions: Any, completion_ids: Any, **rest: Any
    ) -> Any:
        seen.append([])
        for ids in completion_ids:
            stops = [i for i, token in enumerate(ids) if token in self._stops]
            seen[-1].append(list(ids[: stops[0] + 1] if stops else ids))
        return original(self, prompts, completions, completion_ids, **rest)

    monkeypatch.setattr(Steps, "reward", reward)
    return seen


@pytest.mark.parametrize("heat", [1.0, 0.7])
def test_rloo_takes_the_gradient_of_its_equation(
    heat: float, start: Path, other: Path, tmp_path: Path, rolled_out: list[list[list[int]]]
) -> None:
    """The gradient of -mean(A log pi) has the norm that is logged before it is clipped.

    A_i = R_i - mean of the other two R_j, and R = r - beta log(pi/ref); pi and ref are those at the
    temperature.
    """
    source, [(_, logged)] = train(RLOO, start, other, tmp_path, temperature=heat)
    policy, reference = load_model(start), load_model(other)
    terms, kls = [], []
    for i, row in enumerate(source.seen[0]):
        logs, penalised = [], []
        for j, text in enumerate(row):
            head, _ = head_and_tail(start, source.drawn[0][i], "")
            where = (head, rolled_out[0][3 * i + j])
            logs.append(log_probabilities(policy, *where, heat).sum())
            theirs = log_probabilities(reference, *where, heat).sum()
            kl = float(logs[-1].detach() - theirs.detach())
            kls.append(kl)
            penalised.append(len(set(text.split())) - BETA * kl)
        for j, log in enumerate(logs):
            rest = [r for k, r in enumerate(penalised) if k != j]
            terms.append((penalised[j] - float(np.mean(rest))) * log)
    (-torch.stack(terms).mean()).backward()
    norm = torch.nn.utils.get_total_norm(
        [p.grad for p in policy.parameters() if p.grad is not None]
    )
    assert logged["grad_norm"] == pytest.approx(float(norm), rel=1e-3)
    assert logged["grad_norm"] > 0


def test_oaif_has_the_loss_of_its_equation(
    start: Path, other: Path, tmp_path: Path, rolled_out: list[list[list[int]]]
) -> None:
    """-log sigmoid(beta * (difference of the two log-ratios)), best rollout first, mean of 2.

    The KL logged is the sum of all log-ratios over the number of tokens.
    """
    source, [(_, logged)] = train(OAIF, start, other, tmp_path)
    policy, reference = load_model(start), load_model(other)
    losses, kl = [], []
    for i, row in enumerate(source.seen[0]):
        ratios = []
        for j in range(2):
            # All first rollouts come before all second ones.
            head, _ = head_and_tail(start, source.drawn[0][i], "")
            where = (head, rolled_out[0][2 * j + i])
            ours = log_probabilities(policy, *where).sum()
            theirs = log_probabilities(reference, *where).sum()
            ratios.append(float(ours.detach() - theirs.detach()))
        rewards = [len(set(text.split())) for text in row]
        best = 0 if rewards[0] >= rewards[1] else 1
        margin = BETA * (ratios[best] - ratios[1 - best])
        losses.append(float(np.log1p(np.exp(-margin))))
        kl.append(sum(ratios))
    tokens = source.told[0][1]
    assert logged["kl"] == pytest.approx(sum(kl) / tokens, rel=1e-3)
    assert logged["loss"] == pytest.approx(float(np.mean(losses)), abs=2e-4)  # logged to 4 digits


def test_a_narrow_nucleus_holds_one_token(
    start: Path, tmp_path: Path, rolled_out: list[list[list[int]]]
) -> None:
    """So the three rollouts of a prompt are the same, which they are not from the whole."""
    for top_p, distinct in ((1e-6, [1, 1]), (1.0, [3, 3])):
        train(RLOO, start, start, tmp_path / f"{top_p}", top_p=top_p)
        rows = [tuple(ids) for ids in rolled_out[-1]]
        assert [len(set(rows[:3])), len(set(rows[3:]))] == distinct


def moves(start: Path, folder: Path, **changes: Any) -> dict[str, torch.Tensor]:
    """Return by what the first step changes each weight, at a warm learning rate."""
    train(RLOO, start, start, folder, warmup_steps=0, **changes)
    before, after = (load_file(it / "model.safetensors") for it in (start, folder / "model"))
    return {name: after[name] - weight for name, weight in before.items()}


def test_a_gradient_is_clipped_to_the_norm_that_is_stated(start: Path, tmp_path: Path) -> None:
    """AdamW divides by 1e-8 what is far below it: the step is 100 * 1e-12 / 1e-8 long."""
    clipped = moves(start, tmp_path / "out", learning_rate=100.0, max_grad_norm=1e-12)
    assert torch.nn.utils.get_total_norm(clipped.values()) == pytest.approx(0.01, rel=1e-2)


def test_weights_decay_by_the_learning_rate_times_the_decay(start: Path, tmp_path: Path) -> None:
    """One update of AdamW: w (1 - 0.001 * 10) less the same step, and norms do not decay."""
    bare = moves(start, tmp_path / "bare")
    decayed = moves(start, tmp_path / "decayed", weight_decay=10.0)
    for name, weight in load_file(start / "model.safetensors").items():
        share = 0.0 if "norm" in name else 0.01
        torch.testing.assert_close(bare[name] - decayed[name], share * weight, atol=1e-6, rtol=0)


@pytest.mark.parametrize(("optimizer", "longest"), [("adamw_torch", 1e-3), ("rmsprop", 1e-2)])
def test_the_first_step_is_that_of_the_optimizer_that_is_stated(
    optimizer: str, longest: float, start: Path, tmp_path: Path
) -> None:
    """AdamW moves a weight by the learning rate, RMSprop by that over the root of 1 - 0.99."""
    found = moves(start, tmp_path / "out", optimizer=optimizer)
    assert max(float(it.abs().max()) for it in found.values()) == pytest.approx(longest, rel=1e-3)


@pytest.mark.parametrize("algorithm", [RLOO, OAIF])
def test_prompts_born_in_a_step_are_trained_on_in_the_next(
    algorithm: type[OnlineAlgorithm], start: Path, tmp_path: Path
) -> None:
    source, logs = train(algorithm, start, start, tmp_path, last=4)
    assert source.births == [0, 1, 2, 3, 4]
    assert source.drawn == [["b", "a p"], ["c", "b p"], ["d", "c p"], ["e", "d p"]]
    assert len(source.seen) == 4  # each step rolls out once
    assert [(step, metrics["born"]) for step, metrics in logs] == [(i, i) for i in range(1, 5)]


@pytest.mark.parametrize("algorithm", [RLOO, OAIF])
@pytest.mark.parametrize("cut", [1, 3])
def test_where_a_run_is_cut_changes_nothing(
    algorithm: type[OnlineAlgorithm], cut: int, start: Path, other: Path, tmp_path: Path
) -> None:
    """Weights, optimiser and curves of 4 steps, whole and in two segments, to the last bit.

    The learning rate is linear over 8 steps after 2 of warm-up: before each step it is 0, 1/2, 1
    and 5/6 of the peak. What is logged after a step is the rate of that step.
    """
    falling: Any = {"schedule": "linear", "last": 4}
    _, whole = train(algorithm, start, other, tmp_path / "whole", **falling)
    rates = [metrics["learning_rate"] for _, metrics in whole]
    assert rates == pytest.approx([0.0, 0.5e-3, 1e-3, 1e-3 * 5 / 6])
    _, first = train(algorithm, start, other, tmp_path / "first", **falling | {"last": cut})
    _, second = train(
        algorithm, tmp_path / "first/model", other, tmp_path / "second",
        first=cut + 1, optimizer_state=tmp_path / "first" / OPTIMIZER, **falling,
    )  # fmt: skip
    assert first + second == whole
    for name in ("model/model.safetensors", OPTIMIZER):
        assert_same(tmp_path / "whole" / name, tmp_path / "second" / name)


def test_tokens_are_counted_up_to_the_end_of_the_turn(
    start: Path, tmp_path: Path, rolled_out: list[list[list[int]]]
) -> None:
    for algorithm, rollouts in ((RLOO, 3), (OAIF, 2)):
        out = tmp_path / algorithm.__name__
        source, _ = train(algorithm, start, start, out, last=3, max_new_tokens=20)
        for (ended, tokens), ids in zip(source.told, rolled_out[-3:], strict=True):
            assert ended.shape == (2, rollouts)
            assert ended.sum() == sum(row[-1] in (1, 5) for row in ids)
            assert tokens == sum(map(len, ids))


def test_a_reward_that_is_not_finite_stops_the_training(start: Path, tmp_path: Path) -> None:
    class Broken(Source):
        def reward(self, completions: Any, ended: Any, tokens: int) -> Any:
            return np.full(ended.shape, np.inf)

    with pytest.raises(TrainingError, match="a reward at step 1 is not finite"):
        train(RLOO, start, start, tmp_path, source=Broken())


def placed(
    algorithm: type[OnlineAlgorithm], start: Path, out: Path, place: Placement, **changes: Any
) -> tuple[Source, list[dict[str, float]]]:
    """Take three steps of two prompts with two rollouts each."""
    source, logs = train(algorithm, start, start, out, last=3, place=place, rollouts=2, **changes)
    return source, [metrics for _, metrics in logs]


@pytest.mark.parametrize(
    ("place", "changes"),
    [
        (Placement(micro_batch=1, gradient_checkpointing=True, attention="eager"), {}),
        (Placement(), {"micro_batch": 2}),
    ],
)
def test_micro_batches_see_the_same_rollouts_and_take_one_step_together(
    place: Placement, changes: dict[str, int], start: Path, tmp_path: Path
) -> None:
    """Four rollouts a step at once or in parts, with activations kept or computed again."""
    whole, logs = placed(RLOO, start, tmp_path / "whole", Placement())
    parts, cut = placed(RLOO, start, tmp_path / "parts", place, **changes)
    assert len(logs) == len(cut) == 3
    assert whole.seen[0] == parts.seen[0]
    weights = Path("model") / "model.safetensors"
    assert_same(tmp_path / "whole" / weights, tmp_path / "parts" / weights, atol=2e-5)


@pytest.mark.parametrize("algorithm", [RLOO, OAIF])
def test_bfloat16_trains_float32_weights(
    algorithm: type[OnlineAlgorithm], start: Path, tmp_path: Path
) -> None:
    _, logs = placed(algorithm, start, tmp_path / "out", Placement(dtype="bfloat16"))
    assert all(torch.isfinite(torch.tensor(metrics["loss"])) for metrics in logs)
    before = load_file(start / "model.safetensors")
    after = load_file(tmp_path / "out" / "model" / "model.safetensors")
    assert {weight.dtype for weight in after.values()} == {torch.float32}
    assert any(not torch.equal(weight, before[name]) for name, weight in after.items())


def test_what_does_not_fit_a_step_is_the_users_error(start: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="compares 2 rollouts"):
        train(OAIF, start, start, tmp_path, rollouts=3)
    with pytest.raises(UserError, match=r"set `hardware.micro_batch` to 4 for `oaif`"):
        placed(OAIF, start, tmp_path / "out", Placement(micro_batch=2))
    shared = "2 prompts, pairs or rollouts of a step cannot be shared by 3"
    with pytest.raises(UserError, match=shared):
        placed(OAIF, start, tmp_path / "out", Placement(devices=3))
    with pytest.raises(UserError, match="micro-batches of 3 on 2 device"):
        Placement(devices=2, micro_batch=3).batches(8)


def test_shared_rollouts_ignore_the_sampling_that_a_checkpoint_asks_for(
    start: Path, tmp_path: Path
) -> None:
    asks = shutil.copytree(start, tmp_path / "asks")
    (asks / "generation_config.json").write_text('{"repetition_penalty": 9.0}')
    place = Placement(shared=True)
    plain, _ = placed(RLOO, start, tmp_path / "plain", place)
    other, _ = placed(RLOO, asks, tmp_path / "other", place)
    assert other.seen == plain.seen


@pytest.mark.parametrize(("attention", "precision"), [(None, "medium"), ("eager", "highest")])
def test_only_attention_that_is_not_named_gives_way_to_fast_kernels(
    attention: str | None, precision: str, start: Path, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setattr(loading, "LARGE", 1)
    seen = []

    class Seeing(Source):
        def finish(self, policy: Any) -> dict[str, float]:
            seen.append(torch.get_float32_matmul_precision())
            return super().finish(policy)

    train(RLOO, start, start, tmp_path / "out", place=Placement(attention=attention),
          source=Seeing())  # fmt: skip
    assert seen == [precision]
