"""AlpacaEval: pairwise preferences over a baseline's answers, scored as a win rate.

A preference is a number from 1 (the baseline is better for certain) to 2 (the model is): the
weighted judge gives fractions, others 1 or 2. A draw, 1.5 (or 0 in older files), is half a win.
The score is the mean of preference - 1, in percent. A preference that is absent or out of range is
counted and left out.

The column `length_controlled_win_rate`, where asked for, is this project's own regression
(`harness.evaluation.length_control`) and differs from the benchmark's.

Source: alpaca_eval 0.6.6, `metrics/helpers.py` (draws, range, mean, standard error).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from harness.errors import HarnessError, UserError
from harness.evaluation.length_control import control_length
from harness.evaluation.scores import BenchmarkScore, FloatArray, prompt_order, ratio_values

_DRAW = 1.5


@dataclass(frozen=True)
class Preference:
    """A judge's preference between the baseline's answer and the model's.

    Attributes:
        prompt_id: The instruction.
        preference: 1 (baseline) to 2 (model), 0 or 1.5 a draw, None where there is none.
        length_difference: Length of the model's answer minus the baseline's (characters in
            AlpacaEval); needed for length control only.
    """

    prompt_id: str
    preference: float | None
    length_difference: float | None = None


def score_preferences(
    preferences: Iterable[Preference],
    model: str,
    prompts: Sequence[str] | None = None,
    length_control: bool = False,
) -> BenchmarkScore:
    """Score one model's preferences.

    Args:
        preferences: Its preferences, at most one of each prompt.
        model: The judged model's name.
        prompts: The benchmark's prompt ids; None takes those that were judged. A prompt that was
            never judged counts as missing.
        length_control: Whether to add the column `length_controlled_win_rate`.

    Returns:
        Columns `win_rate` and, where asked for, `length_controlled_win_rate`, in percent. The
        standard error of `win_rate` is `BenchmarkScore.standard_error("win_rate")`.

    Raises:
        UserError: A prompt appears twice or is not the benchmark's, or a length is needed and
            absent.
        HarnessError: There is no valid preference.
    """
    by_prompt: dict[str, Preference] = {}
    for item in preferences:
        if item.prompt_id in by_prompt:
            raise UserError(
                f"Prompt {item.prompt_id} has two preferences of {model}; keep one of them."
            )
        by_prompt[item.prompt_id] = item
    order = prompt_order(list(by_prompt), prompts)
    wins = np.array([_win(by_prompt[p].preference) if p in by_prompt else math.nan for p in order])
    valid = np.isfinite(wins)
    if not valid.any():
        raise HarnessError(
            f"None of the {len(order)} preferences on {model} is valid; look at the judge's "
            "replies."
        )
    values = {"win_rate": 100.0 * ratio_values(np.where(valid, wins, 0.0), valid.astype(float))}
    scores: dict[str, float | None] = {"win_rate": float(100.0 * wins[valid].mean())}
    notes: dict[str, str] = {}
    if length_control:
        lengths = _differences([by_prompt[p] for p, ok in zip(order, valid, strict=True) if ok])
        result = control_length(wins[valid], lengths)
        column = "length_controlled_win_rate"
        scores[column] = None
        if result.state != "fitted":
            notes[column] = result.state
        if result.rate is not None and result.values is not None:
            scores[column] = 100.0 * result.rate
            values[column] = np.full(len(order), 100.0 * result.rate)
            # A prompt without a preference moves nothing; the others carry its weight.
            influence = 100.0 * (result.values - result.rate)
            values[column][valid] += influence * (len(order) / len(influence))
    return BenchmarkScore(
        benchmark="alpaca-eval",
        model=model,
        scores=scores,
        n=int(valid.sum()),
        n_missing=int((~valid).sum()),
        prompts=order,
        values=values,
        notes=notes,
    )


def _win(preference: float | None) -> float:
    """Return the share of a win, in [0, 1], or NaN for what is not a preference."""
    if preference is None:
        return math.nan
    value = _DRAW if preference == 0 else float(preference)
    return value - 1.0 if 1.0 <= value <= 2.0 else math.nan


def _differences(preferences: Sequence[Preference]) -> FloatArray:
    lengths = [item.length_difference for item in preferences]
    if any(length is None for length in lengths):
        raise UserError(
            "A preference has no answer lengths, which the length-controlled win rate needs; give "
            "the lengths of both answers."
        )
    return np.array(lengths, dtype=np.float64)
