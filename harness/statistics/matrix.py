"""The data of every statistic: per-prompt values in a complete matrix, seeds x prompts.

A seed is one whole repetition of a recipe (data order, sampling, training, answering). The same
benchmark prompts are answered under every seed, so the two factors are crossed: a row of the
matrix is a seed, a column is a prompt, and no entry may be absent.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from harness.errors import HarnessError

FloatArray = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class ScoreMatrix:
    """Per-prompt values of one model recipe on one column of a benchmark.

    Attributes:
        values: Shape (seeds, prompts), in the unit of the column.
        seeds: One id per row of `values`.
        prompts: One id per column of `values`.
    """

    values: FloatArray
    seeds: tuple[int, ...]
    prompts: tuple[str, ...]

    def __post_init__(self) -> None:
        """Check the shape, the ids and that every value is finite.

        Raises:
            HarnessError: The matrix is not complete, or an id appears twice.
        """
        if self.values.shape != (len(self.seeds), len(self.prompts)):
            raise HarnessError(
                f"A score matrix of shape {self.values.shape} does not fit its {len(self.seeds)} "
                f"seeds and {len(self.prompts)} prompts; give one row per seed."
            )
        for name, ids in (("seed", self.seeds), ("prompt", self.prompts)):
            if len(set(ids)) != len(ids):
                raise HarnessError(f"A {name} appears twice in a score matrix; keep one of them.")
        if not self.seeds or len(self.prompts) < 2:
            raise HarnessError(
                f"A score matrix has {len(self.seeds)} seeds and {len(self.prompts)} prompts; "
                "statistics need at least one seed and two prompts."
            )
        if not np.isfinite(self.values).all():
            raise HarnessError(
                "A score matrix holds a value that is not finite; leave out the seed or prompt "
                "that has no score."
            )

    @classmethod
    def from_seeds(cls, scores: Mapping[int, Mapping[str, float]]) -> ScoreMatrix:
        """Build the matrix from `{seed: {prompt id: value}}`.

        Raises:
            HarnessError: The seeds do not all have the same prompts, or there is none.
        """
        if not scores:
            raise HarnessError("A score matrix needs at least one seed; none has scores yet.")
        seeds = tuple(sorted(scores))
        prompts = tuple(scores[seeds[0]])
        for seed in seeds[1:]:
            _require_same("prompts", f"seed {seeds[0]}", prompts, f"seed {seed}", scores[seed])
        values = [[scores[seed][prompt] for prompt in prompts] for seed in seeds]
        return cls(np.asarray(values, dtype=np.float64), seeds, prompts)

    @classmethod
    def of(cls, values: ScoreMatrix | npt.ArrayLike) -> ScoreMatrix:
        """Return `values` as a matrix; the ids of a bare array are its positions.

        Raises:
            HarnessError: A bare array is not two-dimensional (seeds x prompts).
        """
        if isinstance(values, ScoreMatrix):
            return values
        array = np.asarray(values, dtype=np.float64)
        if array.ndim != 2:
            raise HarnessError(
                f"Per-prompt values have {array.ndim} dimensions; give two, seeds x prompts."
            )
        seeds, prompts = array.shape
        return cls(array, tuple(range(seeds)), tuple(str(i) for i in range(prompts)))

    def aligned_to(self, other: ScoreMatrix) -> ScoreMatrix:
        """Return this matrix with its rows and columns in the order of `other`.

        Raises:
            HarnessError: The two do not have the same seeds and the same prompts.
        """
        _require_same("seeds", "the first", other.seeds, "the second", self.seeds)
        _require_same("prompts", "the first", other.prompts, "the second", self.prompts)
        row = {seed: i for i, seed in enumerate(self.seeds)}
        column = {prompt: i for i, prompt in enumerate(self.prompts)}
        rows = [row[seed] for seed in other.seeds]
        columns = [column[prompt] for prompt in other.prompts]
        return ScoreMatrix(self.values[np.ix_(rows, columns)], other.seeds, other.prompts)

    @property
    def mean(self) -> float:
        """Mean over seeds and prompts."""
        return float(self.values.mean(axis=(-2, -1)))

    @property
    def level(self) -> float | None:
        """The one number that every value is, None where they differ."""
        return float(self.values[0, 0]) if np.ptp(self.values) == 0.0 else None

    @property
    def count(self) -> int:
        """Number of prompts."""
        return len(self.prompts)

    def scaled(self, weight: float) -> ScoreMatrix:
        """Return all entries times a number."""
        return ScoreMatrix(weight * self.values, self.seeds, self.prompts)

    def plus(self, other: ScoreMatrix) -> ScoreMatrix:
        """Return the entrywise sum, `other` aligned to this matrix first.

        Raises:
            HarnessError: The two do not have the same seeds and the same prompts.
        """
        aligned = other.aligned_to(self)
        return ScoreMatrix(self.values + aligned.values, self.seeds, self.prompts)

    def minus(self, other: ScoreMatrix) -> ScoreMatrix:
        """Return the entrywise difference, `other` aligned to this matrix first.

        Raises:
            HarnessError: The two do not have the same seeds and the same prompts.
        """
        return self.plus(other.scaled(-1.0))

    def constant(self, value: float) -> ScoreMatrix:
        """Return a matrix of the same seeds and prompts that holds one number."""
        return ScoreMatrix(np.full_like(self.values, value), self.seeds, self.prompts)


def _require_same(
    what: str,
    first: str,
    first_ids: tuple[int, ...] | tuple[str, ...],
    second: str,
    second_ids: Mapping[str, float] | tuple[int, ...] | tuple[str, ...],
) -> None:
    differing = set(first_ids) ^ set(second_ids)
    if differing:
        shown = ", ".join(sorted(map(str, differing))[:3])
        raise HarnessError(
            f"The {what} of {first} and {second} differ in {len(differing)} ids ({shown}); "
            f"compare scores on the same {what} only."
        )
