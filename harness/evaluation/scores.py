"""Evaluations: scores with per-prompt values, and the file they are stored in.

Every score is the mean of per-prompt values; a ratio or a fitted score is linearized, so that a
prompt's value is the score plus the prompt's first-order influence on it. All statistics thus work
on one kind of data, a matrix of seeds x prompts. Under any judge but the benchmark's own, a score
gets a column `column@judge`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from harness.errors import HarnessError, UserError
from harness.evaluation.files import path_part
from harness.foreign import in_a_line, read_json
from harness.project import evaluations_dir
from harness.runtime.files import sha256_of, write_whole
from harness.runtime.manifest import utc_now

FloatArray = npt.NDArray[np.float64]
Interval = list[float] | None

NOT_AVAILABLE = "not_available"


@dataclass(frozen=True, eq=False)
class Evaluation:
    """One model's scores on one benchmark, under one judge.

    Attributes:
        scores: Column to score, win rates in percent; None with the reason in `notes`.
        n: Prompts with at least one valid judgment.
        n_missing: Expected judgments that are absent or unreadable.
        prompts: Prompt ids, the order of every array in `values`.
        values: Column to per-prompt values, whose mean is the score.
        judge: The judge; None if the file does not say.
        own_judge: The benchmark's default judge; None if nobody judges.
    """

    benchmark: str
    model: str
    scores: Mapping[str, float | None]
    n: int
    n_missing: int
    prompts: tuple[str, ...]
    values: Mapping[str, FloatArray]
    notes: Mapping[str, str] = field(default_factory=dict)
    judge: str | None = None
    own_judge: str | None = None

    def with_column(self, column: str, values: npt.ArrayLike) -> Evaluation:
        """Return the evaluation with another column, given its per-prompt values."""
        own = np.asarray(values, dtype=np.float64)
        scores = {**self.scores, column: float(own.mean())}
        return replace(self, scores=scores, values={**self.values, column: own})

    def with_unavailable(self, column: str, reason: str) -> Evaluation:
        """Return the evaluation with a column marked unavailable for a reason."""
        notes = {**self.notes, column: f"{NOT_AVAILABLE}: {reason}"}
        return replace(self, scores={**self.scores, column: None}, notes=notes)

    def by_prompt(self, column: str) -> dict[str, float]:
        return dict(zip(self.prompts, self.values[column].tolist(), strict=True))

    def rows(self, columns: Mapping[str, str]) -> list[dict[str, Any]]:
        """Return a row for every per-prompt value, under its registry column."""
        return [
            {"prompt_id": prompt_id, "column": columns[name], "value": value}
            for name in self.values
            for prompt_id, value in self.by_prompt(name).items()
        ]

    def by_column(self, columns: Mapping[str, str]) -> dict[str, Any]:
        """Return scores, counts and notes as JSON data, keyed by registry column."""
        notes = {columns.get(name, name): note for name, note in self.notes.items()}
        return {
            "scores": {columns[name]: value for name, value in self.scores.items()},
            "n": self.n,
            "n_missing": self.n_missing,
            "notes": notes,
            "not_available": {
                column: note.removeprefix(f"{NOT_AVAILABLE}: ")
                for column, note in notes.items()
                if note.startswith(NOT_AVAILABLE)
            },
        }

    @property
    def columns(self) -> dict[str, str]:
        """Score to column name."""
        own = self.judge is None or self.own_judge in (None, self.judge)
        return {name: name if own else f"{name}@{self.judge}" for name in self.scores}

    @property
    def intervals(self) -> dict[str, Interval]:
        """The 95% interval of every score, or None."""
        from harness.statistics.intervals import mean_interval

        found: dict[str, Interval] = dict.fromkeys(self.scores)
        for column, values in self.values.items():
            if len(values) > 1:
                interval = mean_interval(values[None, :])
                found[column] = [interval.low, interval.high]
        return found

    @property
    def summary(self) -> dict[str, Any]:
        """The scores without the per-prompt values, as `harness evaluate --json` prints them."""
        return {
            "schema_version": 1,
            "benchmark": self.benchmark,
            "model": self.model,
            "judge": self.judge,
            "n": self.n,
            "n_missing": self.n_missing,
            "scores": dict(self.scores),
            "intervals": self.intervals,
            "columns": self.columns,
            "notes": dict(self.notes),
        }


def ratio_values(numerator: FloatArray, denominator: FloatArray) -> FloatArray:
    """Return per-prompt values whose mean is R = `sum(numerator) / sum(denominator)`.

    A prompt's value is R + (numerator - R denominator) / mean(denominator); R if it is unjudged.

    Source: linearization of a ratio estimator (Cochran, Sampling Techniques, 1977, section 2.11).
    """
    weight = float(denominator.sum())
    if weight <= 0.0:
        raise HarnessError("No judgment could be read; look at the judge's replies.")
    ratio = float(numerator.sum()) / weight
    return ratio + (numerator - ratio * denominator) * (len(denominator) / weight)


class Judgment(NamedTuple):
    """A judge's share of a win or rating, None if unreadable; `number` is the turn or game."""

    prompt_id: str
    value: float | None
    number: int = 1
    weight: float = 1.0


class JudgmentTally(NamedTuple):
    """Judgments summed per prompt; the arrays have shape (prompts,)."""

    prompts: tuple[str, ...]
    total: FloatArray
    """Weighted sum of values."""
    weight: FloatArray
    missing: int
    """Absent or unreadable judgments."""

    @property
    def n(self) -> int:
        return int((self.weight > 0).sum())


def tally(
    judgments: Iterable[Judgment], prompts: Sequence[str] | None = None, each: int = 1
) -> JudgmentTally:
    """Sum judgments per prompt; a prompt of `prompts` without any counts as `each` missing ones."""
    found = list(judgments)
    seen = dict.fromkeys(judgment.prompt_id for judgment in found)
    order = tuple(seen if prompts is None else prompts)
    position = {prompt: i for i, prompt in enumerate(order)}
    unknown = [prompt for prompt in seen if prompt not in position]
    if unknown:
        raise UserError(
            f"{len(unknown)} judged prompts are not in the benchmark (first: {unknown[0]}); use "
            "the judgments and the questions of the same benchmark."
        )
    total, weight = np.zeros(len(order)), np.zeros(len(order))
    for prompt_id, value, _, count in found:
        if value is not None:
            total[position[prompt_id]] += value * count
            weight[position[prompt_id]] += count
    missing = sum(judgment.value is None for judgment in found) + each * (len(order) - len(seen))
    return JudgmentTally(order, total, weight, missing)


FILE = "evaluation.json"
JUDGMENTS = "judgments.jsonl"


def folder_of(root: Path, benchmark: str, model: str, judge: str | None) -> Path:
    return root / benchmark / path_part(model) / path_part(judge or "judge not said")


def keep(
    folder: Path,
    evaluation: Evaluation,
    source: Mapping[str, str],
    cost: Mapping[str, float | None] | None = None,
) -> Path:
    """Write an evaluation to its folder, if changed; return the file.

    `source` is what was scored: `kind`, and the SHA-256 of each input by name. `cost` is tokens and
    dollars of the replies behind it; None without an endpoint.
    """
    path = folder / FILE
    entry = {
        **evaluation.summary,
        "source": dict(source),
        "cost": None if cost is None else dict(cost),
    }
    held = load(path) if path.is_file() else {}
    if {**held, **entry} != held:
        write_json(path, {**entry, "finished": utc_now()})
    return path


@dataclass(frozen=True)
class Evaluated:
    """The evaluations, and the folder with everything or the published file that was scored."""

    found: list[Evaluation]
    place: Path

    @property
    def is_published(self) -> bool:
        return self.place.is_file()

    def kept(self) -> list[Path]:
        """Return the evaluations' files, writing them first for a published file."""
        if not self.is_published:
            return [self.place / FILE]
        sha256 = sha256_of(self.place)
        source, root, paths = {"kind": "published", "data": sha256}, evaluations_dir(), []
        for item in self.found:
            folder = folder_of(root, item.benchmark, item.model, item.judge)
            paths.append(keep(folder / f"published-{sha256[:12]}", item, source))
        return paths


def load(path: Path) -> dict[str, Any]:
    """Read what `keep` wrote."""
    try:
        found = read_json(path.read_bytes())
        if not isinstance(found, dict) or "finished" not in found:
            raise ValueError("no evaluation is in it")
    except (OSError, ValueError) as error:
        raise unreadable(path, " ".join(str(error).split())) from error
    return found


def unreadable(path: Path, why: str) -> HarnessError:
    why = in_a_line(why, 200)
    return HarnessError(f"Cannot read {path} ({why}); delete it and evaluate again")


def all_kept(root: Path) -> list[Path]:
    return sorted(root.rglob(FILE))


def write_lines(path: Path, records: Sequence[Mapping[str, Any]]) -> None:
    lines = (json.dumps(record, ensure_ascii=False, allow_nan=False) + "\n" for record in records)
    _write(path, "".join(lines))


def write_json(path: Path, value: object) -> None:
    _write(path, json.dumps(value, indent=2, ensure_ascii=False) + "\n")


def _write(path: Path, text: str) -> None:
    try:
        write_whole(path, text)
    except OSError as error:
        raise HarnessError(
            f"Cannot write {path}: {error.strerror or error}; make room or set HARNESS_WORK"
        ) from error
