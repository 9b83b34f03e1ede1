"""How a benchmark is answered and judged: by whom, from which files, and within which limits.

These models are the options of `harness evaluate` and the keywords of
`harness.evaluate`: a field's text is the option's help, and `Shown` the rest of what help says.
Nothing is imported here that `--help` would have to wait for.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import BaseModel, ConfigDict, ValidationError

from harness.errors import UserError
from harness.extensions import benchmark_place
from harness.foreign import in_a_line
from harness.project import benchmarks_dir

JUDGE_KEY = "OPENAI_API_KEY"
MODEL_KEY = "MODEL_API_KEY"
"""Names of the environment variables with keys; the judge's is never sent to a model's server."""

DEFAULT_CONCURRENCY = 8
MOST_CONCURRENCY = 256

LONGEST_S = 86_400
"""Seconds that a reply may be waited for."""

_FROZEN = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)


@dataclass(frozen=True)
class Shown:
    """How an option's value, and its default, are called in the help; and the least number."""

    value: str
    default: str | None = None
    least: int | None = None


class JudgeOptions(BaseModel):
    """What is judged, by whom, and within which limits."""

    model_config = _FROZEN

    data: Annotated[Path | None, Shown("DIR", "those fetched")] = None
    """The benchmark's own files."""
    answers: Annotated[Path | None, Shown("FILE")] = None
    """The model's answers."""
    model: Annotated[str | None, Shown("NAME")] = None
    """The model's name in scores; a folder answers locally."""
    judge: Annotated[str | None, Shown("MODEL", "the benchmark's own")] = None
    """The judge; a plug-in's or an annotator of alpaca_eval by its name."""
    judge_base_url: Annotated[str | None, Shown("URL", "OpenAI's")] = None
    """Its endpoint."""
    judge_key_env: Annotated[str, Shown("VAR")] = JUDGE_KEY
    """The variable with its key."""
    judge_parameters: Annotated[str | None, Shown("NAME", "by its name")] = None
    """How it is asked: `plain`, `thinking` without a temperature, or `silenced`."""
    price: Annotated[str | None, Shown("IN,OUT", "its list price")] = None
    """Dollars for a million tokens of the judge."""
    budget_usd: Annotated[float | None, Shown("USD")] = None
    """Stop before this command spends more."""
    concurrency: Annotated[int, Shown("N")] = DEFAULT_CONCURRENCY
    """Most requests at once."""
    timeout: Annotated[float, Shown("S")] = 180.0
    """Seconds to wait for a reply."""
    dry_run: bool = False
    """Show requests and price, and send nothing."""

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> Self:
        """Return the options that some names and values are; paths may be texts."""
        from harness.registry.documents import nearest

        unknown = [name for name in given if name not in cls.model_fields]
        if unknown:
            raise UserError(
                f"There is no option `{unknown[0]}`{nearest(unknown[0], cls.model_fields)}"
            )
        try:
            return cls(**given)
        except ValidationError as error:
            first = error.errors()[0]
            raise UserError(in_a_line(f"`{first['loc'][0]}`: {first['msg']}")) from error

    def check(self) -> None:
        """Refuse numbers that are none of theirs."""
        if not 1 <= self.concurrency <= MOST_CONCURRENCY:
            raise UserError(
                f"--concurrency is {self.concurrency}; give a number from 1 to {MOST_CONCURRENCY}"
            )
        if not 0.0 < self.timeout <= LONGEST_S:
            raise UserError(f"--timeout is {self.timeout:g}; give seconds, up to {LONGEST_S}")
        if self.budget_usd is not None and not 0.0 <= self.budget_usd < float("inf"):
            raise UserError(f"--budget-usd is {self.budget_usd:g}; give dollars, 0 or more")

    def data_folder(self, benchmark: str) -> Path:
        """Return the folder of a benchmark's files: the one given, else the one fetched into."""
        if self.data is None:
            fetched = benchmarks_dir() / benchmark_place(benchmark)
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


class EvaluateOptions(JudgeOptions):
    """The same, of a model that may be asked for its answers first."""

    model_base_url: Annotated[str | None, Shown("URL")] = None
    """An endpoint that has the model answer; its key is in MODEL_API_KEY."""
    device: Annotated[str, Shown("NAME")] = "cpu"
    """Where a local model answers."""
    track: bool = True
    """Write the scores to MLflow as well."""
    judgments: Annotated[Path | None, Shown("FILE")] = None
    """Published judgments, battles or annotations; nothing is sent."""

    @property
    def published(self) -> Path | None:
        """The published file that is to be scored, None where a judge is asked."""
        without_use = {
            "--answers": self.answers,
            "--model-base-url": self.model_base_url,
            "--judge-base-url": self.judge_base_url,
            "--budget-usd": self.budget_usd,
            "--dry-run": self.dry_run or None,
        }
        for name, value in without_use.items():
            if self.judgments is not None and value is not None:
                raise UserError(f"`{name}` has no use beside `--judgments`, which sends nothing")
        return self.judgments


class LmEvalOptions(BaseModel):
    """The options of lm-eval, which asks no judge."""

    model_config = _FROZEN

    model: Annotated[str | None, Shown("NAME")] = None
    """A model's folder or name; its name in scores."""
    results: Annotated[Path | None, Shown("FILE")] = None
    """Results of lm-eval; nothing is run."""
    engine: Annotated[str, Shown("NAME")] = "hf"
    """What runs a local model: hf, vllm."""
    engine_args: Annotated[str | None, Shown("N=V,..")] = None
    """Further arguments of the engine."""
    model_base_url: Annotated[str | None, Shown("URL")] = None
    """An endpoint that completes text; its key is in MODEL_API_KEY."""
    tasks: Annotated[str | None, Shown("A,B", "all six")] = None
    """Columns of table 9."""
    batch_size: Annotated[str, Shown("N")] = "4"
    """Prompts at once, or `auto`."""
    device: Annotated[str | None, Shown("NAME", "lm-eval's")] = None
    """As torch names it."""
    limit: Annotated[int | None, Shown("N", least=1)] = None
    """Only so many items of each task, to try."""
    dry_run: bool = False
    """Show the tasks, and run nothing."""
    track: bool = True
    """Write the scores to MLflow as well."""

    def check(self) -> None:
        """Refuse what contradicts itself."""
        if self.results is not None:
            if self.dry_run or self.model_base_url is not None:
                raise UserError("`--results` is scored as it is; nothing is run")
            return
        if not re.fullmatch(r"auto|[1-9]\d{0,5}", self.batch_size, re.ASCII):
            raise UserError(
                f"`--batch-size {self.batch_size[:80]}` is no number of prompts; give one above 0, "
                "or `auto`"
            )
        if self.model is None:
            raise UserError(
                "There is nothing to evaluate; give --model, or --results to score a file"
            )
