"""Options of an evaluation; heavy imports stay out of this file to keep `--help` fast.

A field's docstring is the option's help text; `OptionHelp` has the rest.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import BaseModel, ConfigDict, ValidationError

from harness.errors import UserError
from harness.extensions import benchmark_place
from harness.foreign import in_a_line
from harness.project import benchmarks_dir

_FROZEN = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)


@dataclass(frozen=True)
class OptionHelp:
    """How help displays an option's value and default, and the minimum of a number."""

    value: str
    default: str | None = None
    least: int | None = None


class EvaluateOptions(BaseModel):
    """What is judged, by which judge, and within what budget."""

    model_config = _FROZEN

    answers: Annotated[Path | None, OptionHelp("FILE")] = None
    """The model's answers."""
    model: Annotated[str | None, OptionHelp("NAME", "the file's")] = None
    """The model, where a file has several; its name in scores."""
    judge: Annotated[str | None, OptionHelp("JUDGE", "the benchmark's own")] = None
    """A model at HARNESS_JUDGE_URL or its provider's, `reward:owner/name`, or a plug-in's."""
    judgments: Annotated[Path | None, OptionHelp("FILE")] = None
    """Published judgments, battles or annotations; nothing is sent."""
    data: Annotated[Path | None, OptionHelp("DIR", "those fetched")] = None
    """The benchmark's own files."""
    budget_usd: Annotated[float | None, OptionHelp("USD")] = None
    """Stop before the work folder has spent more in all."""
    track: bool = True
    """Write the scores to MLflow as well."""

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> Self:
        """Build options from keyword arguments; paths may be strings."""
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
        """Reject contradictory options and an invalid budget."""
        if self.judgments is not None:
            for name in ("answers", "budget_usd"):
                if getattr(self, name) is not None:
                    option = name.replace("_", "-")
                    raise UserError(
                        f"`--{option}` has no use beside `--judgments`, which sends nothing"
                    )
        elif self.answers is None:
            raise UserError(
                "There is nothing to evaluate; give a model's answers with --answers, or published "
                "judgments with --judgments"
            )
        self.check_budget()

    def check_budget(self) -> None:
        if self.budget_usd is not None and not 0.0 <= self.budget_usd < float("inf"):
            raise UserError(f"--budget-usd is {self.budget_usd:g}; give dollars, 0 or more")

    def data_folder(self, benchmark: str) -> Path:
        """Return the folder of a benchmark's files: the given one, or else the fetched one."""
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
                f"`--data {self.data}` is not a folder; name that of the benchmark's files"
            )
        return self.data


class LmEvalOptions(BaseModel):
    """Options of scoring results of lm-eval, which uses no judge."""

    model_config = _FROZEN

    results: Annotated[Path | None, OptionHelp("FILE")] = None
    """Results that lm-eval wrote."""
    model: Annotated[str | None, OptionHelp("NAME", "the file's")] = None
    """The model's name in scores."""
    track: bool = True
    """Write the scores to MLflow as well."""
