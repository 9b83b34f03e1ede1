"""Losses by hand: plain torch on one unpadded sequence at a time, and what is compared with it."""

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from torch.nn import functional as F

from harness.models.loading import load_model, load_tokenizer, tokenize

PAIRS = [
    {"prompt": "a b c", "chosen": "c b a", "rejected": "a"},
    {"prompt": "d", "chosen": "e", "rejected": "f g h i"},
    {"prompt": "e f g h", "chosen": "h", "rejected": "h g f e"},
    {"prompt": "i j", "chosen": "j i", "rejected": "i j"},
]
"""With the template's 7 tokens the pairs measure 3+3+7 = 13, 1+4+7 = 12, 4+4+7 = 15, 2+2+7 = 11.

Those are `<bos>`, two turn starts, two roles, two turn ends.
"""

SETTINGS: dict[str, Any] = {
    "learning_rate": 1e-3,
    "epochs": 1,
    "batch_size": 4,
    "micro_batch_size": 4,
    "max_length": 64,
    "schedule": "constant_with_warmup",
    "warmup_ratio": 0.0,
}
"""One full batch at a constant learning rate, so that the order of the data does not matter."""

Logs = list[tuple[int, dict[str, float]]]


def head_and_tail(path: Path, prompt: str, completion: str) -> tuple[list[int], list[int]]:
    """Return the ids of the prompt with its header, and of the completion with its end of turn."""
    tokenizer = load_tokenizer(path)
    [head] = tokenize(
        tokenizer, [[{"role": "user", "content": prompt}]], add_generation_prompt=True
    )
    return head, tokenizer.convert_tokens_to_ids([*completion.split(), "<end_of_turn>"])


def log_probabilities(
    model: Any, head: list[int], tail: list[int], temperature: float = 1.0
) -> torch.Tensor:
    """Return the log-probability of each token of the tail, one sequence unpadded."""
    logits = model(torch.tensor([head + tail])).logits[0].float() / temperature
    each = logits.log_softmax(-1)[len(head) - 1 : -1]
    return each.gather(1, torch.tensor(tail)[:, None])[:, 0]


def both_sides(model: Any, path: Path, pair: dict[str, Any]) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the log-probabilities of the tokens of the chosen and of the rejected completion."""
    chosen, rejected = (
        log_probabilities(model, *head_and_tail(path, pair["prompt"], pair[side]))
        for side in ("chosen", "rejected")
    )
    return chosen, rejected


def run(train: Callable[..., dict[str, float]], *args: Any, **kwargs: Any) -> tuple[Any, Logs]:
    """Call a trainer with its positional arguments; return its summary and what it logged."""
    logs: Logs = []
    settings = {"seed": 0, **kwargs}
    summary = train(*args, on_log=lambda step, metrics: logs.append((step, metrics)), **settings)
    return summary, logs


def assert_equals_plain_loop(
    policy: Any, loss: Callable[[], torch.Tensor], optimizer: Any, logs: Logs, trained: Path
) -> None:
    """Check losses and weights against as many updates, clipped to norm 1, as were logged."""
    losses = []
    for _ in logs:
        value = loss()
        optimizer.zero_grad()
        value.backward()
        torch.nn.utils.clip_grad_norm_(policy.parameters(), 1.0)
        optimizer.step()
        losses.append(value.item())
    scale = max(1.0, *map(abs, losses))
    for (_, metrics), value in zip(logs, losses, strict=True):
        assert abs(metrics["loss"] - value) < 1e-4 * scale
    assert_close(policy, trained)


def assert_close(policy: Any, folder: Path, atol: float = 2e-5) -> None:
    """Check that a checkpoint holds a model's weights, up to rounding."""
    saved = load_model(folder).state_dict()
    for name, weight in policy.state_dict().items():
        torch.testing.assert_close(saved[name], weight, atol=atol, rtol=0)


def assert_same(one: Path, other: Path, *, atol: float = 0.0, rtol: float = 0.0) -> None:
    """Check that two files hold the same tensors, up to rounding."""
    left, right = load_file(one), load_file(other)
    assert left.keys() == right.keys()
    for name, value in left.items():
        torch.testing.assert_close(right[name], value, atol=atol, rtol=rtol)


def digest(folder: Path) -> str:
    return hashlib.sha256((folder / "model.safetensors").read_bytes()).hexdigest()


PROBABILITIES = [(0.9, 0.2), (0.75, 0.5), (1.0, 0.0), (0.6, 0.55)]
SOFT = [
    {**pair, "reward_chosen": chosen, "reward_rejected": rejected}
    for pair, (chosen, rejected) in zip(PAIRS, PROBABILITIES, strict=True)
]


def log_ratios(policy: Any, reference: Any, path: Path) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Return the log-ratio of both completions of each pair."""
    ratios = []
    for pair in PAIRS:
        with torch.no_grad():
            base = both_sides(reference, path, pair)
        ours = both_sides(policy, path, pair)
        ratios.append((ours[0].sum() - base[0].sum(), ours[1].sum() - base[1].sum()))
    return ratios


def dpo_loss(policy: Any, reference: Any, path: Path, beta: float) -> torch.Tensor:
    """Mean over the pairs of -log sigmoid(beta * difference of the log-ratios)."""
    ratios = log_ratios(policy, reference, path)
    return torch.stack([-F.logsigmoid(beta * (ours - other)) for ours, other in ratios]).mean()


def sppo_loss(policy: Any, reference: Any, path: Path, beta: float) -> torch.Tensor:
    """Mean over the pairs of half the two squared distances to eta * (P - 1/2), eta = 1 / beta."""
    eta = 1 / beta
    losses = [
        0.5 * ((chosen - eta * (p - 0.5)) ** 2 + (rejected - eta * (q - 0.5)) ** 2)
        for (chosen, rejected), (p, q) in zip(
            log_ratios(policy, reference, path), PROBABILITIES, strict=True
        )
    ]
    return torch.stack(losses).mean()


def simpo_loss(policy: Any, path: Path, beta: float, gamma: float) -> torch.Tensor:
    """Mean over the pairs of -log sigmoid(beta * difference of the mean log-probs - gamma)."""
    losses = []
    for pair in PAIRS:
        chosen, rejected = both_sides(policy, path, pair)
        losses.append(-F.logsigmoid(beta * (chosen.mean() - rejected.mean()) - gamma))
    return torch.stack(losses).mean()


def orpo_loss(policy: Any, path: Path, weight: float) -> torch.Tensor:
    """Mean over the pairs of -M_w - lambda * log sigmoid(log odds_w - log odds_l).

    M is the mean log-probability of a completion's tokens and odds = exp(M) / (1 - exp(M)).
    """
    losses = []
    for pair in PAIRS:
        chosen, rejected = (side.mean() for side in both_sides(policy, path, pair))
        odds = [mean.exp() / (1 - mean.exp()) for mean in (chosen, rejected)]
        losses.append(-chosen - weight * F.logsigmoid(odds[0].log() - odds[1].log()))
    return torch.stack(losses).mean()
