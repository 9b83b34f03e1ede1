"""What every scorer returns: scores, counts, and per-prompt values whose mean is the score.

A mean over prompts is its own per-prompt values. A score that is a ratio, or comes from a fit, is
written as one by its first-order expansion over prompts: the value of a prompt is the score plus
that prompt's influence on it. Influences sum to zero, so the plain mean is the score exactly, and
the spread of the values is what a prompt's presence does to the score. All statistics then work
on one kind of data, a matrix of seeds x prompts.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from harness.errors import HarnessError, UserError

FloatArray = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class BenchmarkScore:
    """One model's result on one benchmark.

    Attributes:
        benchmark: `arena-hard`, `mt-bench` or `alpaca-eval`.
        model: The judged model's name.
        scores: Column to score, in the column's unit (win rates in percent); None where the
            column has no value, with the reason in `notes`.
        n: Prompts with at least one valid judgment.
        n_missing: Judgments that were expected but are absent or could not be read.
        prompts: Prompt ids, the order of every array in `values`.
        values: Column to per-prompt values, shape (prompts,); the mean is the score. Columns
            without a score are absent.
        per_category: Category to mean score; None where nothing in it was judged.
        notes: Column to the reason why it has no score, or how it came by one out of the ordinary.
    """

    benchmark: str
    model: str
    scores: Mapping[str, float | None]
    n: int
    n_missing: int
    prompts: tuple[str, ...]
    values: Mapping[str, FloatArray]
    per_category: Mapping[str, float | None] = field(default_factory=dict)
    notes: Mapping[str, str] = field(default_factory=dict)

    def by_prompt(self, column: str) -> dict[str, float]:
        """Return the per-prompt values of a column, keyed by prompt id."""
        return dict(zip(self.prompts, self.values[column].tolist(), strict=True))

    def rows(self) -> Iterator[tuple[str, str, float]]:
        """Yield (prompt id, column, value) for every per-prompt value."""
        for column in self.values:
            for prompt_id, value in self.by_prompt(column).items():
                yield prompt_id, column, value

    def standard_error(self, column: str) -> float:
        """Return the standard error of a column over its prompts, in the column's unit.

        For a plain mean this is the usual one; for a ratio or a fit it is the delta method's.

        Raises:
            HarnessError: There is one prompt only.
        """
        values = self.values[column]
        if len(values) < 2:
            raise HarnessError(
                f"A standard error of {column} needs two prompts or more; judge more prompts."
            )
        return float(values.std(ddof=1) / np.sqrt(len(values)))


def ratio_values(numerator: FloatArray, denominator: FloatArray) -> FloatArray:
    """Return per-prompt values whose mean is `sum(numerator) / sum(denominator)`.

    With R that ratio, a prompt's value is R + (numerator - R denominator) / mean(denominator).
    A prompt that was not judged (denominator 0, numerator 0) gets R: it moves nothing.

    Args:
        numerator: Per-prompt sums, shape (prompts,).
        denominator: Per-prompt weights, shape (prompts,), not all zero.

    Raises:
        HarnessError: No prompt has any weight.

    Source: linearisation of a ratio estimator (Cochran, Sampling Techniques, 1977, section 2.11).
    """
    weight = float(denominator.sum())
    if weight <= 0.0:
        raise HarnessError("No judgment could be read; look at the judge's replies.")
    ratio = float(numerator.sum()) / weight
    return ratio + (numerator - ratio * denominator) * (len(denominator) / weight)


def prompt_order(judged: Sequence[str], expected: Sequence[str] | None) -> tuple[str, ...]:
    """Return the prompt ids of a score, in order: the expected ones, else as first judged.

    Args:
        judged: Prompt ids of the judgments, repeats allowed.
        expected: The benchmark's prompt ids, or None where they are not known.

    Raises:
        UserError: A judged prompt is not an expected one.
    """
    seen = dict.fromkeys(judged)
    if expected is None:
        return tuple(seen)
    known = dict.fromkeys(expected)
    unknown = [prompt for prompt in seen if prompt not in known]
    if unknown:
        raise UserError(
            f"{len(unknown)} judged prompts are not in the benchmark (first: {unknown[0]}); use "
            "the judgments and the questions of the same benchmark."
        )
    return tuple(known)
