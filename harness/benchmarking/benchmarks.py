"""The benchmarks by name: opened to be judged, or scored from a published file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from harness.benchmarking import published
from harness.benchmarking.options import EvaluateOptions
from harness.errors import UserError
from harness.project import benchmarks_dir

if TYPE_CHECKING:
    from harness.evaluation.benchmark_kinds import Benchmark
    from harness.evaluation.benchmark_length_control import LengthControl
    from harness.evaluation.benchmark_result import Evaluation

NAMES = ("mt-bench", "arena-hard", "alpaca-eval")


def open_benchmark(
    name: str, options: EvaluateOptions, control: LengthControl | None = None
) -> tuple[Benchmark, str]:
    """Return a benchmark with its files, and its own judge.

    Args:
        name: One of `NAMES`.
        options: Where its files are.
        control: Length control of alpaca-eval.

    Raises:
        UserError: There is no such benchmark, or its files are not there.
    """
    from harness.evaluation import (
        benchmark_alpaca_eval,
        benchmark_arena_hard,
        benchmark_kinds,
        benchmark_mt_bench,
    )

    check_name(name)
    data = options.data_folder(name)
    if name == "mt-bench":
        return benchmark_kinds.MtBench(data), benchmark_mt_bench.OWN_JUDGE
    if name == "arena-hard":
        return benchmark_kinds.ArenaHard(data), benchmark_arena_hard.OWN_JUDGE
    control = control or length_control(options.data)
    return benchmark_kinds.AlpacaEval(data, control), benchmark_alpaca_eval.OWN_JUDGE


def score_file(
    name: str, judgments: Path, options: EvaluateOptions, control: LengthControl | None = None
) -> list[Evaluation]:
    """Score a published file of judgments, sending nothing.

    Args:
        name: One of `NAMES`.
        judgments: The file: ratings, verdicts or annotations.
        options: Where the benchmark's files are.
        control: Length control of alpaca-eval.

    Raises:
        UserError: There is no such benchmark, an option has no use here, or the file cannot be
            read or has another form.
    """
    check_name(name)
    options.check_published("--annotations" if name == "alpaca-eval" else "--judgments")
    if name == "mt-bench":
        return published.mt_bench(judgments, options.data)
    if name == "arena-hard":
        return published.arena_hard(None, judgments, options.judge, options.data)
    return published.alpaca_eval(judgments, control or length_control(options.data), options.data)


def check_name(name: str) -> None:
    """Refuse a name that is no benchmark's.

    Raises:
        UserError: It is none.
    """
    if name not in NAMES:
        raise UserError(f"There is no benchmark `{name}`; choose one of {', '.join(NAMES)}")


def check_annotator(annotator: str | None) -> str:
    """Return the annotator of alpaca-eval, its own where none is named.

    Raises:
        UserError: There is none of that name.
    """
    from harness.evaluation.benchmark_alpaca_eval import ANNOTATORS, OWN_ANNOTATOR

    if annotator not in (None, *ANNOTATORS):
        raise UserError(
            f"There is no annotator `{annotator}`; choose one of {', '.join(ANNOTATORS)}"
        )
    return annotator or OWN_ANNOTATOR


def length_control(
    data: Path | None, file: Path | None = None, sha256: str | None = None
) -> LengthControl:
    """Return AlpacaEval's length control: with the file given, beside the data, or fetched."""
    from harness.evaluation.benchmark_length_control import (
        FILE_NAME,
        PUBLISHED_SHA256,
        LengthControl,
    )

    if file is None:
        folders = [] if data is None else [data, data / "alpaca_eval"]
        places = [folder / FILE_NAME for folder in (*folders, benchmarks_dir() / "alpaca-eval")]
        file = next((path for path in places if path.is_file()), None)
    return LengthControl(file, sha256 or PUBLISHED_SHA256)
