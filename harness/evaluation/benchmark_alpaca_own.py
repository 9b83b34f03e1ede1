"""AlpacaEval with an annotator of one's own: a file in the folder, in the place of the package.

AlpacaEval's own annotators, and its length control, live in the package `alpaca-eval` and in data
of 805 instructions. Where a folder holds `annotator.json`, its words are used instead, and neither
the package nor that data is needed; then there may be any number of instructions. This is for
judges that are not AlpacaEval's and do not claim to be: their scores are filed under the name of
the file's annotator, and their length-controlled win rate is this project's own regression
(`harness.evaluation.length_control`).

The file is one JSON object: `name`; `system`; and `prompt`, with `{instruction}`, `{output_1}` and
`{output_2}` in it. The two answers are called m and M in an order that the instruction's digest
draws, and the judge says which is better by calling a function, as AlpacaEval's annotator has it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from harness.endpoint.client import Done, Outcome, work_through
from harness.endpoint.request import ChatRequest, Message, Reply
from harness.errors import UserError
from harness.evaluation.alpaca_eval import score_preferences
from harness.evaluation.benchmark_alpaca_eval import Inputs, read_inputs
from harness.evaluation.benchmark_files import Answers, Question, fill
from harness.evaluation.benchmark_kinds import AlpacaEval, Judge, Judged
from harness.evaluation.benchmark_length_control import LengthControl
from harness.evaluation.benchmark_result import LENGTH_CONTROLLED, Evaluation
from harness.evaluation.published import preferences_from_annotations
from harness.foreign import read_json, read_plain
from harness.runtime.stage import Json
from harness.statistics.intervals import mean_interval

FILE_NAME = "annotator.json"

OWN_REGRESSION = "by this project's own regression, which is not AlpacaEval's"
"""Note on the length-controlled win rate."""

NAMES = ("m", "M")
"""What the first and the second answer shown are called."""

SETTINGS: Mapping[str, Json] = {
    "temperature": 0,
    "max_tokens": 100,
    "tools": [
        {
            "type": "function",
            "function": {
                "name": "rank",
                "description": "Says which answer is better.",
                "parameters": {
                    "type": "object",
                    "properties": {
                        "ordered_models": {
                            "type": "array",
                            "items": {
                                "type": "object",
                                "properties": {
                                    "model": {"type": "string", "enum": list(NAMES)},
                                    "rank": {"type": "number"},
                                },
                                "required": ["model", "rank"],
                            },
                        }
                    },
                    "required": ["ordered_models"],
                },
            },
        }
    ],
    "tool_choice": {"type": "function", "function": {"name": "rank"}},
}
"""How the judge is asked: greedily, for a ranking of the two names."""


@dataclass(frozen=True)
class Annotator:
    """What a judge is told."""

    name: str
    system: str
    prompt: str


@dataclass(frozen=True)
class OwnInputs(Inputs):
    """The benchmark's files, and the words of the annotator."""

    annotator: Annotator


@dataclass(frozen=True)
class Comparison:
    """One comparison, and the request that judges it; `swapped` shows the model's answer first."""

    prompt_id: str
    swapped: bool
    request: ChatRequest


class OwnAlpacaEval(AlpacaEval):
    """AlpacaEval's form, with the folder's own annotator."""

    inputs: OwnInputs

    def __init__(self, data: Path) -> None:
        inputs = read_inputs(data, count=None)
        annotator = read_annotator(data / FILE_NAME)
        self.inputs = OwnInputs(inputs.questions, inputs.references, annotator)
        self.length_control = LengthControl()

    def requests(self, answers: Answers, judge: Judge) -> list[ChatRequest]:
        """Return one request for each instruction."""
        return [item.request for item in comparisons(self.inputs, answers, judge.model)]

    def judge(self, answers: Answers, judge: Judge, concurrency: int, done: Done) -> Judged:
        """Compare every answer with the reference model's."""
        items = comparisons(self.inputs, answers, judge.model)
        outcomes: Sequence[Outcome[Reply]] = work_through(
            items, lambda item: judge.client.ask(item.request), judge.client, concurrency, done
        )
        filed = f"{self.inputs.annotator.name}/{judge.model}"
        records = [
            _record(self.inputs, question, reference, answer.turns[0], item, outcome)
            | {"generator_2": answers.model, "annotator": filed}
            for question, reference, answer, item, outcome in zip(
                self.questions,
                self.inputs.references,
                answers.to(self.questions),
                items,
                outcomes,
                strict=True,
            )
        ]
        preferences = preferences_from_annotations(records)[answers.model]
        score = score_preferences(preferences, answers.model, length_control=True)
        score = replace(score, notes={LENGTH_CONTROLLED: OWN_REGRESSION, **score.notes})
        rates = {name: mean_interval(values[None, :]) for name, values in score.values.items()}
        intervals = {name: (found.low, found.high) for name, found in rates.items()}
        return Judged(Evaluation(score, filed, intervals), records)


def read_annotator(path: Path) -> Annotator:
    """Read the words of an annotator.

    Raises:
        UserError: The file cannot be read, or is not of the form this module describes.
    """
    try:
        found = read_json(read_plain(path))
        annotator = Annotator(**{name: str(found[name]) for name in ("name", "system", "prompt")})
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UserError(
            f"{path} is no annotator ({error!r}): give a JSON object with name, system and prompt"
        ) from error
    fields = {"instruction": "", "output_1": "", "output_2": ""}
    lacking = [name for name in fields if f"{{{name}}}" not in annotator.prompt]
    if lacking:
        raise UserError(f"the prompt in {path} lacks {{{lacking[0]}}}; put it in")
    fill(annotator.prompt, fields)
    return annotator


def comparisons(inputs: OwnInputs, answers: Answers, judge: str) -> list[Comparison]:
    """Return the requests that compare a model's answers with the reference.

    Raises:
        UserError: An instruction has no answer.
    """
    found = []
    own = answers.to(inputs.questions)
    for question, reference, answer in zip(inputs.questions, inputs.references, own, strict=True):
        shown = [str(reference["output"]), answer.turns[0]]
        digest = hashlib.sha256(question.turns[0].encode()).digest()
        swapped = digest[0] % 2 == 1
        first, second = reversed(shown) if swapped else shown
        fields = {"instruction": question.turns[0], "output_1": first, "output_2": second}
        messages = (
            Message("system", inputs.annotator.system),
            Message("user", fill(inputs.annotator.prompt, fields)),
        )
        request = ChatRequest(f"instruction {question.prompt_id}", judge, messages, SETTINGS)
        found.append(Comparison(question.prompt_id, swapped, request))
    return found


def preference(reply: Reply, swapped: bool) -> float | None:
    """Return 2 where a reply ranks the model's answer first, 1 the reference's, None unreadable."""
    try:
        ranked = read_json(reply.tool_arguments or "")["ordered_models"]
        ranks = {entry["model"]: entry["rank"] for entry in ranked}
        first, second = (ranks.pop(name) for name in NAMES)
        if ranks or first == second:
            return None
        first_is_better = first < second
    except (ValueError, KeyError, TypeError):
        return None
    return 2.0 if first_is_better == swapped else 1.0


def _record(
    inputs: OwnInputs,
    question: Question,
    reference: Mapping[str, Any],
    output: str,
    item: Comparison,
    outcome: Outcome[Reply],
) -> dict[str, Any]:
    """Return an annotation in the benchmark's form; one without a preference has null."""
    value = None if outcome.result is None else preference(outcome.result, item.swapped)
    return {
        "instruction": question.turns[0],
        "output_1": str(reference["output"]),
        "generator_1": inputs.reference,
        "output_2": output,
        "preference": value,
    }
