"""AlpacaEval 2's files: 805 instructions in their order, a model's outputs, and annotations.

The paper's annotator is `alpaca_eval_gpt4_turbo_fn`, the leaderboard's the weighted one. All 805
must be there, and in the benchmark's order: its length control joins them by position.

Source: alpaca_eval 0.6.6, `annotators/base.py`, `annotators/pairwise_evaluator.py`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.errors import UserError
from harness.evaluation.benchmark_files import Answer, Answers, Question, locate
from harness.evaluation.published import read_records

BENCHMARK = "alpaca-eval"
OWN_ANNOTATOR = "alpaca_eval_gpt4_turbo_fn"
ANNOTATORS = (OWN_ANNOTATOR, "weighted_alpaca_eval_gpt4_turbo")
OWN_JUDGE = "gpt-4-1106-preview"
INSTRUCTIONS = 805
ANSWER_TOKENS = 2048
ANSWER_TEMPERATURE = 0.7
ANSWER_TOP_P = 0.9
EXPECTED_REPLY_TOKENS = 40
"""Tokens of a judge's reply on average, for the estimate: a ranking of two, as JSON."""

Record = Mapping[str, Any]


@dataclass(frozen=True)
class Inputs:
    """The benchmark's 805 instructions in their order, with the reference model's outputs."""

    questions: tuple[Question, ...]
    references: tuple[Record, ...]

    @property
    def reference(self) -> str:
        """Name of the reference model."""
        return str(self.references[0].get("generator", "reference"))


def judge_name(model: str, annotator: str = OWN_ANNOTATOR) -> str:
    """Return the name of a judge: its annotator, with the model where that is not its own."""
    return annotator if model == OWN_JUDGE else f"{annotator}/{model}"


def read_inputs(data: Path, count: int | None = INSTRUCTIONS) -> Inputs:
    """Read the reference outputs from a folder.

    Args:
        data: The folder.
        count: How many instructions there must be; None takes any number.

    Raises:
        UserError: The file is absent or does not hold that many instructions once each.
    """
    names = ("reference_gpt4_1106_preview_outputs.json", "model_outputs.json")
    folders = ("", "alpaca_eval/", "results/gpt4_1106_preview/")
    path = locate(
        data,
        "AlpacaEval's reference outputs",
        [folder + name for name in names for folder in folders],
    )
    records = read_records(path)
    texts = [_text(record, "instruction", path) for record in records]
    for record in records:
        _text(record, "output", path)
    wanted = len(texts) if count is None else count
    if len(set(texts)) != wanted or len(texts) != wanted:
        raise UserError(
            f"{path} has {len(set(texts))} different instructions; AlpacaEval has {wanted}"
        )
    questions = (Question(str(i), "", (text,)) for i, text in enumerate(texts))
    return Inputs(tuple(questions), tuple(records))


def read_outputs(path: Path, inputs: Inputs, model: str | None = None) -> Answers:
    """Read one model's outputs, whatever their order, and give them the benchmark's.

    Raises:
        UserError: An instruction has no output, or several, or is not the benchmark's.
    """
    by_text = {question.turns[0]: question.prompt_id for question in inputs.questions}
    answers: dict[str, Answer] = {}
    records = read_records(path)
    for record in records:
        text = _text(record, "instruction", path)
        if text not in by_text:
            raise UserError(f"{path} has an instruction that is not AlpacaEval's: {text[:60]!r}")
        if by_text[text] in answers:
            raise UserError(f"{path} has two outputs for an instruction: {text[:60]!r}")
        answers[by_text[text]] = Answer((_text(record, "output", path),))
    if len(answers) < INSTRUCTIONS:
        raise UserError(
            f"{path} lacks the outputs to {INSTRUCTIONS - len(answers)} of the {INSTRUCTIONS} "
            "instructions; AlpacaEval needs all of them"
        )
    name = model or str(records[0].get("generator", path.stem))
    return Answers(name, {q.prompt_id: answers[q.prompt_id] for q in inputs.questions})


def in_order(
    annotations: Sequence[Record], model: str, instructions: Sequence[str] | None = None
) -> list[Record]:
    """Return a model's annotations in the benchmark's order.

    Args:
        annotations: Its annotations.
        model: Its name, for errors.
        instructions: The benchmark's instructions in their order; None takes the annotations' own
            order, since the files number nothing.

    Raises:
        UserError: One of the 805 is missing, is there twice, or is not the benchmark's.
    """
    by_text: dict[str, Record] = {}
    for index, record in enumerate(annotations):
        text = record.get("instruction")
        if not isinstance(text, str):
            raise UserError(f"Annotation {index + 1} of {model} has no instruction; repair it")
        if text in by_text:
            raise UserError(f"{model} has two annotations of an instruction: {text[:60]!r}")
        by_text[text] = record
    order = list(by_text) if instructions is None else list(instructions)
    foreign = by_text.keys() - set(order)
    if foreign or len(by_text) > INSTRUCTIONS:
        raise UserError(
            f"{model} has {len(by_text)} annotations, which are not all AlpacaEval's; give a file "
            f"of its {INSTRUCTIONS} instructions"
        )
    if len(by_text) < INSTRUCTIONS:
        raise UserError(
            f"{model} lacks the annotations of {INSTRUCTIONS - len(by_text)} of the "
            f"{INSTRUCTIONS} instructions; AlpacaEval needs all of them"
        )
    return [by_text[text] for text in order]


def _text(record: Record, name: str, path: Path) -> str:
    value = record.get(name)
    if not isinstance(value, str):
        raise UserError(f"{path} has a record without {name}; give a file of AlpacaEval outputs")
    return value
