"""Arena-Hard: verdicts of a judge over pairs of answers, scored as a win rate.

Each prompt is judged twice against a fixed baseline, the model's answer shown second and then
first. The judge ends with one of five labels. A strong verdict counts three times, a tie half a
win for each side, and the Bradley-Terry win rate against the baseline is the score, in percent.

The interval resamples questions: the two games of a question, and the copies of a strong verdict,
are not independent, and resampling battles as if they were gives an interval about half as wide
as it should be.

Source: Arena-Hard-Auto v0.1, `gen_judgment.py` (verdicts) and `show_result.py` (weights, score).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from harness.errors import HarnessError, UserError
from harness.evaluation.bradley_terry import win_rates
from harness.evaluation.scores import BenchmarkScore, FloatArray, prompt_order, ratio_values

STRONG_VERDICT_WEIGHT = 3.0
GAMES_PER_PROMPT = 2

Winner = Literal["model_a", "model_b", "tie"]

_LABELS: dict[str, tuple[Winner, float]] = {
    "A>>B": ("model_a", STRONG_VERDICT_WEIGHT),
    "A>B": ("model_a", 1.0),
    "A=B": ("tie", 1.0),
    "B>A": ("model_b", 1.0),
    "B>>A": ("model_b", STRONG_VERDICT_WEIGHT),
}
_VERDICT = re.compile(r"\[\[([AB<>=]+)\]\]")


@dataclass(frozen=True)
class Verdict:
    """What a judge's text says.

    Attributes:
        label: One of the five labels, or None where the text holds none or more than one.
        retry: Whether asking the judge to finish may help: true just when the text holds nothing
            that looks like a verdict.
    """

    label: str | None
    retry: bool


@dataclass(frozen=True)
class Battle:
    """One comparison of two models on one prompt.

    Attributes:
        prompt_id: The question.
        model_a: The model whose answer the verdict calls A.
        model_b: The model whose answer the verdict calls B.
        winner: The outcome, or None where the judge's verdict could not be read.
        weight: How many times the outcome counts.
    """

    prompt_id: str
    model_a: str
    model_b: str
    winner: Winner | None
    weight: float = 1.0


def parse_verdict(text: str) -> Verdict:
    """Read the verdict label from a judge's text, as the benchmark does.

    Repeats of the same label are one verdict; different ones are none.
    """
    found = set(_VERDICT.findall(text))
    if len(found) != 1:
        return Verdict(None, retry=not found)
    label = found.pop()
    return Verdict(label if label in _LABELS else None, retry=False)


def battle(prompt_id: str, model_a: str, model_b: str, label: str | None) -> Battle:
    """Turn a verdict label into a battle; the order shown is in who is A and who is B.

    Args:
        prompt_id: The question.
        model_a: The model shown as assistant A.
        model_b: The model shown as assistant B.
        label: One of the five labels; anything else is an unread verdict.
    """
    winner, weight = _LABELS.get(label or "", (None, 1.0))
    return Battle(prompt_id, model_a, model_b, winner, weight)


def score_battles(
    battles: Iterable[Battle],
    baseline: str,
    prompts: Sequence[str] | None = None,
    answer_tokens: Mapping[str, Mapping[str, int]] | None = None,
) -> dict[str, BenchmarkScore]:
    """Score every model that met the baseline.

    Args:
        battles: All battles of all models, each against the baseline.
        baseline: Name of the baseline model.
        prompts: The benchmark's prompt ids; None takes those that were judged. A prompt absent
            from the battles of a model counts as two missing judgments.
        answer_tokens: Model to prompt id to the length of its answer in tokens; where given, its
            mean is the column `answer_tokens`.

    Returns:
        Model to score, columns `win_rate` (percent) and, where given, `answer_tokens`.

    Raises:
        UserError: A battle does not involve the baseline, or a prompt is not the benchmark's.
        HarnessError: A model has no readable verdict.
    """
    by_model = _by_model(battles, baseline)
    models = list(by_model)
    wins = np.zeros((len(models) + 1, len(models) + 1))
    outcomes: dict[str, tuple[tuple[str, ...], FloatArray, FloatArray]] = {}
    for index, model in enumerate(models, start=1):
        order = prompt_order([fight.prompt_id for fight in by_model[model]], prompts)
        won, weight = _per_prompt(by_model[model], model, order)
        outcomes[model] = (order, won, weight)
        wins[index, 0], wins[0, index] = won.sum(), (weight - won).sum()
        if not weight.any():
            raise HarnessError(
                f"None of the {len(by_model[model])} verdicts on {model} could be read; look at "
                "the judge's replies."
            )
    rates = 100.0 * win_rates(wins, baseline=0)
    scores = {}
    for model, rate in zip(models, rates[1:], strict=True):
        order, won, weight = outcomes[model]
        judged = {fight.prompt_id for fight in by_model[model]}
        unread = sum(fight.winner is None for fight in by_model[model])
        columns: dict[str, float | None] = {"win_rate": float(rate)}
        values = {"win_rate": 100.0 * ratio_values(won, weight)}
        if answer_tokens is not None and model in answer_tokens:
            lengths = _lengths(model, answer_tokens[model], order)
            columns["answer_tokens"], values["answer_tokens"] = float(lengths.mean()), lengths
        scores[model] = BenchmarkScore(
            benchmark="arena-hard",
            model=model,
            scores=columns,
            n=int((weight > 0).sum()),
            n_missing=unread + GAMES_PER_PROMPT * (len(order) - len(judged)),
            prompts=order,
            values=values,
        )
    return scores


def bootstrap_interval(
    battles: Iterable[Battle],
    model: str,
    baseline: str,
    seed: int,
    rounds: int = 1000,
    confidence: float = 0.95,
) -> tuple[float, float]:
    """Return the percentile bootstrap interval of a win rate, resampling questions.

    Against the baseline alone the Bradley-Terry win rate is the weighted share of wins, so each
    round is that share over the questions drawn. Questions without a readable verdict are not
    drawn.

    Args:
        battles: Battles, those of other models are passed over.
        model: The model.
        baseline: The baseline model.
        seed: Seed of the resampling.
        rounds: Number of resamples.
        confidence: Nominal coverage.

    Returns:
        Lower and upper end, in percent.

    Raises:
        UserError: A battle does not involve the baseline, or the model has none.
        HarnessError: Fewer than two questions have a readable verdict.
    """
    by_model = _by_model(battles, baseline)
    if model not in by_model:
        raise UserError(f"There are no battles of {model}; the file has {', '.join(by_model)}.")
    order = prompt_order([fight.prompt_id for fight in by_model[model]], None)
    won, weight = _per_prompt(by_model[model], model, order)
    won, weight = won[weight > 0], weight[weight > 0]
    questions = len(won)
    if questions < 2:
        raise HarnessError(
            f"{model} has readable verdicts on {questions} questions; a bootstrap needs two."
        )
    uniform = np.full(questions, 1.0 / questions)
    drawn = np.random.default_rng(seed).multinomial(questions, uniform, size=rounds)
    rates = 100.0 * (drawn @ won) / (drawn @ weight)
    tail = (1.0 - confidence) / 2.0
    low, high = np.quantile(rates, [tail, 1.0 - tail])
    return float(low), float(high)


def _by_model(battles: Iterable[Battle], baseline: str) -> dict[str, list[Battle]]:
    by_model: dict[str, list[Battle]] = {}
    for fight in battles:
        sides = {fight.model_a, fight.model_b}
        if baseline not in sides or len(sides) != 2:
            raise UserError(
                f"The battle of {fight.model_a} and {fight.model_b} on prompt {fight.prompt_id} "
                f"is not against the baseline {baseline}; give the baseline the file was made with."
            )
        (model,) = sides - {baseline}
        by_model.setdefault(model, []).append(fight)
    return by_model


def _per_prompt(
    battles: Sequence[Battle], model: str, order: Sequence[str]
) -> tuple[FloatArray, FloatArray]:
    """Return the model's won weight and the total weight of each prompt, shape (prompts,)."""
    position = {prompt: i for i, prompt in enumerate(order)}
    won, weight = np.zeros(len(order)), np.zeros(len(order))
    for fight in battles:
        if fight.winner is None:
            continue
        share = 0.5 if fight.winner == "tie" else float(getattr(fight, fight.winner) == model)
        won[position[fight.prompt_id]] += share * fight.weight
        weight[position[fight.prompt_id]] += fight.weight
    return won, weight


def _lengths(model: str, tokens: Mapping[str, int], order: Sequence[str]) -> FloatArray:
    absent = [prompt for prompt in order if prompt not in tokens]
    if absent:
        raise UserError(
            f"{len(absent)} answers of {model} have no length (first: {absent[0]}); give the "
            "answers to all prompts."
        )
    return np.array([tokens[prompt] for prompt in order], dtype=np.float64)
