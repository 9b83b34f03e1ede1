"""How a benchmark is answered and judged: by whom, from which files, and within which limits."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from harness.errors import UserError
from harness.project import benchmarks_dir

JUDGE_KEY = "OPENAI_API_KEY"
MODEL_KEY = "MODEL_API_KEY"
"""Names of the environment variables with keys; the judge's is never sent to a model's server."""

DEFAULT_CONCURRENCY = 8
MOST_CONCURRENCY = 256

LONGEST_S = 86_400
"""Seconds that a reply may be waited for."""


@dataclass(frozen=True)
class JudgeOptions:
    """What is judged, by whom, and within which limits."""

    data: Path | None = None
    answers: Path | None = None
    model: str | None = None
    judge: str | None = None
    judge_base_url: str | None = None
    judge_key_env: str = JUDGE_KEY
    judge_dialect: str | None = None
    price: str | None = None
    prices: Path | None = None
    budget_usd: float | None = None
    concurrency: int = DEFAULT_CONCURRENCY
    timeout: float = 180.0
    dry_run: bool = False

    def check(self) -> None:
        """Refuse numbers that are none of theirs.

        Raises:
            UserError: A number is out of its range.
        """
        if not 1 <= self.concurrency <= MOST_CONCURRENCY:
            raise UserError(
                f"--concurrency is {self.concurrency}; give a number from 1 to {MOST_CONCURRENCY}"
            )
        if not 0.0 < self.timeout <= LONGEST_S:
            raise UserError(f"--timeout is {self.timeout:g}; give seconds, up to {LONGEST_S}")
        if self.budget_usd is not None and not 0.0 <= self.budget_usd < float("inf"):
            raise UserError(f"--budget-usd is {self.budget_usd:g}; give dollars, 0 or more")

    def data_folder(self, benchmark: str) -> Path:
        """Return the folder of a benchmark's files: the one given, else the one fetched into.

        Raises:
            UserError: There is none.
        """
        if self.data is None:
            fetched = benchmarks_dir() / benchmark
            if fetched.is_dir():
                return fetched
            raise UserError(
                "A judge needs the benchmark's questions and prompts; name their folder with "
                f"--data, or fetch them with `harness evaluate fetch {benchmark}`"
            )
        if not self.data.is_dir():
            raise UserError(
                f"`--data {self.data}` is no folder; name that of the benchmark's files"
            )
        return self.data


@dataclass(frozen=True)
class EvaluateOptions(JudgeOptions):
    """The same, of a model that may be asked for its answers first."""

    model_base_url: str | None = None
    model_key_env: str = MODEL_KEY
    model_dialect: str | None = None
    model_price: str | None = None
    device: str = "cpu"
    track: bool = True

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> EvaluateOptions:
        """Return the options that some names and values are; paths may be texts.

        Raises:
            UserError: There is no option of a name.
        """
        from harness.registry.documents import nearest

        kinds = {field.name: str(field.type) for field in fields(cls)}
        unknown = [name for name in given if name not in kinds]
        if unknown:
            raise UserError(f"There is no option `{unknown[0]}`{nearest(unknown[0], kinds)}")
        values: dict[str, Any] = {
            name: Path(value) if "Path" in kinds[name] and value is not None else value
            for name, value in given.items()
        }
        return cls(**values)

    def check_published(self, option: str) -> None:
        """Refuse what has no use where nothing is sent.

        Args:
            option: The option that names a published file.

        Raises:
            UserError: Such an option is given.
        """
        given = {
            "--answers": self.answers,
            "--model-base-url": self.model_base_url,
            "--judge-base-url": self.judge_base_url,
            "--budget-usd": self.budget_usd,
            "--dry-run": self.dry_run or None,
        }
        for name, value in given.items():
            if value is not None:
                raise UserError(f"`{name}` has no use beside `{option}`, which sends nothing")
