"""What an evaluation is asked for; heavy imports stay out of this file to keep `--help` fast."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from harness.errors import UserError
from harness.extensions import benchmark_place
from harness.project import benchmarks_dir


@dataclass(frozen=True)
class EvaluateOptions:
    """What is judged, by which judge, and within what budget, in dollars of the work folder."""

    answers: Path | None = None
    model: str | None = None
    judge: str | None = None
    judgments: Path | None = None
    data: Path | None = None
    budget_usd: float | None = None

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
