"""What was asked of `evaluate` and `calibrate`: the options that several commands share.

They are declared once, as the fields of a dataclass, and a command takes the whole of it as its
first argument. Typer reads a command's options from its signature, so `takes` gives the command
one that has them all.
"""

from __future__ import annotations

import functools
import inspect
import typing
from collections.abc import Callable
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, TypeVar

from harness.cli.evaluate_options import (
    DEFAULT_CONCURRENCY,
    JUDGE_KEY,
    MODEL_KEY,
    MOST_CONCURRENCY,
    AnswersOption,
    BudgetOption,
    ConcurrencyOption,
    DataOption,
    DryRunOption,
    JudgeDialectOption,
    JudgeKeyOption,
    JudgeOption,
    JudgeUrlOption,
    LocalDeviceOption,
    ModelDialectOption,
    ModelKeyOption,
    ModelOption,
    ModelPriceOption,
    ModelUrlOption,
    PriceOption,
    PricesOption,
    TimeoutOption,
    TrackOption,
)
from harness.cli.options import JsonOption
from harness.errors import UserError
from harness.project import benchmarks_dir

LONGEST_S = 86_400
"""Seconds that a reply may be waited for."""

Shared = TypeVar("Shared")


@dataclass(frozen=True)
class JudgeAsked:
    """What is judged, by whom, and within which limits."""

    data: DataOption = None
    answers: AnswersOption = None
    model: ModelOption = None
    judge: JudgeOption = None
    judge_base_url: JudgeUrlOption = None
    judge_key_env: JudgeKeyOption = JUDGE_KEY
    judge_dialect: JudgeDialectOption = None
    price: PriceOption = None
    prices: PricesOption = None
    budget_usd: BudgetOption = None
    concurrency: ConcurrencyOption = DEFAULT_CONCURRENCY
    timeout: TimeoutOption = 180.0
    dry_run: DryRunOption = False
    as_json: JsonOption = False

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
class Asked(JudgeAsked):
    """The same, of a model that may be asked for its answers first."""

    model_base_url: ModelUrlOption = None
    model_key_env: ModelKeyOption = MODEL_KEY
    model_dialect: ModelDialectOption = None
    model_price: ModelPriceOption = None
    device: LocalDeviceOption = "cpu"
    track: TrackOption = True

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


def takes(shared: type[Shared]) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Let a command take the options that a dataclass declares, as its first argument.

    Args:
        shared: The dataclass; each field is an option with a default.
    """
    hints = typing.get_type_hints(shared, include_extras=True)
    names = [field.name for field in fields(shared)]  # type: ignore[arg-type]
    options = [
        inspect.Parameter(
            field.name,
            inspect.Parameter.KEYWORD_ONLY,
            default=field.default,
            annotation=hints[field.name],
        )
        for field in fields(shared)  # type: ignore[arg-type]
    ]

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        own = list(inspect.signature(command, eval_str=True).parameters.values())[1:]
        parameters = [p.replace(kind=inspect.Parameter.KEYWORD_ONLY) for p in own] + options

        @functools.wraps(command)
        def run(**given: Any) -> None:
            asked = shared(**{name: given.pop(name) for name in names})
            command(asked, **given)

        run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        run.__annotations__ = {p.name: p.annotation for p in parameters}
        return run

    return decorate
