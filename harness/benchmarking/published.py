"""Scoring what others published: judgments, battles and annotations, without a judge."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from harness.errors import UserError
from harness.project import evaluations_dir

if TYPE_CHECKING:
    from harness.evaluation.benchmark_length_control import LengthControl
    from harness.evaluation.benchmark_result import Evaluation


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
