"""The benchmarks by name: opened to be judged, or scored from a file that others published."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from harness.benchmarking.options import EvaluateOptions
from harness.errors import UserError
from harness.project import benchmarks_dir, evaluations_dir

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
        return mt_bench(judgments, options.data)
    if name == "arena-hard":
        return arena_hard(None, judgments, options.judge, options.data)
    return alpaca_eval(judgments, control or length_control(options.data), options.data)


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


def mt_bench(file: Path, data: Path | None) -> list[Evaluation]:
    """Score a file of MT-Bench ratings; with the questions, by category and with what is missing.

    Raises:
        UserError: A file cannot be read or has another form.
    """
    from harness.evaluation import benchmark_mt_bench, published
    from harness.evaluation.benchmark_result import evaluate_ratings

    records = published.read_records(file)
    if data is None:
        return evaluate_ratings(records)
    questions = benchmark_mt_bench.questions_in(data)
    categories = {question.prompt_id: question.category for question in questions}
    return evaluate_ratings(records, list(categories), categories)


def arena_hard(
    battles: Path | None, judgments: Path | None, judge: str | None, data: Path | None
) -> list[Evaluation]:
    """Score a file of Arena-Hard battles or judgments.

    Raises:
        UserError: Both files are given, or one cannot be read or has another form.
    """
    from harness.evaluation import benchmark_arena_hard, published
    from harness.evaluation.benchmark_result import evaluate_battles, evaluate_judgments

    prompts = None
    if data is not None:
        prompts = [q.prompt_id for q in benchmark_arena_hard.questions_in(data)]
    baseline = benchmark_arena_hard.BASELINE
    if battles is not None and judgments is not None:
        raise UserError("`--battles` and `--judgments` are two sources of one score; give one")
    if judgments is not None:
        return evaluate_judgments(published.read_records(judgments), baseline, prompts)
    if battles is None:
        raise UserError("There is no file to score; give --battles or --judgments")
    fought = published.battles_from_battles(published.read_records(battles))
    return evaluate_battles(fought, baseline, judge, prompts)


def alpaca_eval(file: Path, control: LengthControl, data: Path | None) -> list[Evaluation]:
    """Score a file of AlpacaEval annotations; with the instructions, in the benchmark's order.

    Raises:
        UserError: A file cannot be read or has another form, or an annotation is missing.
    """
    from harness.evaluation import benchmark_alpaca_eval, published
    from harness.evaluation.benchmark_result import evaluate_annotations

    instructions = None
    if data is not None:
        inputs = benchmark_alpaca_eval.read_inputs(data)
        instructions = [question.turns[0] for question in inputs.questions]
    return evaluate_annotations(published.read_records(file), control, instructions)


def kept(found: Sequence[Evaluation], file: Path) -> list[Path]:
    """Keep the scores of a file among the evaluations.

    Args:
        found: The scores.
        file: Where they are from.

    Returns:
        Where each is kept.

    Raises:
        HarnessError: They cannot be written.
    """
    from harness.evaluation.benchmark_archive import folder_of, keep

    sha256 = hashlib.sha256(file.read_bytes()).hexdigest()
    source, root, paths = {"kind": "published", "data": sha256}, evaluations_dir(), []
    for item in found:
        folder = folder_of(root, item.score.benchmark, item.score.model, item.judge)
        paths.append(keep(folder / f"published-{sha256[:12]}", item, source))
    return paths
