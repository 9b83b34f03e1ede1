"""AlpacaEval with an annotator of one's own: `annotator.json` in the folder, not the package.

The file is one JSON object: `name`; `system`; and `prompt`, with `{instruction}`, `{output_1}` and
`{output_2}`. The answers are called m and M in an order that the instruction's digest draws, and
the judge says which is better by calling a function. There may be any number of instructions. The
scores do not claim to be AlpacaEval's: they are filed under the annotator's name, and the
length-controlled win rate is this project's regression (`harness.evaluation.statistics`).
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from harness.endpoint.request import ChatRequest, Message, Reply
from harness.errors import UserError
from harness.evaluation.benchmark import Item, Judge, Replied
from harness.evaluation.benchmarks import alpaca_eval
from harness.evaluation.files import Answers, Record, fill
from harness.evaluation.scores import Evaluation, intervals_of
from harness.foreign import read_json, read_plain
from harness.runtime.stage import Json

FILE_NAME = "annotator.json"

OWN_REGRESSION = "by this project's own regression, which is not AlpacaEval's"
"""Note on the length-controlled win rate."""

OWN, REFERENCE = "own", "reference"
"""Whose answer is shown first."""

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
class OwnInputs(alpaca_eval.Inputs):
    """The benchmark's files, and the words of the annotator."""

    annotator: Annotator


class OwnAnnotator(alpaca_eval.AlpacaEval):
    """AlpacaEval's form, with the folder's own annotator."""

    inputs: OwnInputs

    @classmethod
    def read_files(cls, data: Path) -> OwnInputs:
        """Read the benchmark's files and the annotator's words."""
        inputs, annotator = (
            alpaca_eval.read_inputs(data, count=None),
            read_annotator(data / FILE_NAME),
        )
        return OwnInputs(inputs.questions, inputs.references, annotator)

    @classmethod
    def scored_with(cls, data: Path) -> dict[str, Json]:
        """Return nothing: neither the package nor its data are needed."""
        return {}

    def requests(self, answers: Answers, judge: Judge) -> list[Item]:
        """Return one request for each instruction; an item says what is shown first."""
        found = []
        own = answers.to(self.questions)
        for question, reference, answer in zip(
            self.questions, self.inputs.references, own, strict=True
        ):
            outputs = [str(reference["output"]), answer.turns[0]]
            digest = hashlib.sha256(question.turns[0].encode()).digest()
            swapped = digest[0] % 2 == 1
            first, second = reversed(outputs) if swapped else outputs
            fields = {"instruction": question.turns[0], "output_1": first, "output_2": second}
            messages = (
                Message("system", self.inputs.annotator.system),
                Message("user", fill(self.inputs.annotator.prompt, fields)),
            )
            label = f"instruction {question.prompt_id}"
            request = ChatRequest(label, judge.model, messages, SETTINGS)
            found.append(Item(question.prompt_id, 1, request, OWN if swapped else REFERENCE))
        return found

    def records(self, answers: Answers, judge: Judge, replied: Replied) -> list[dict[str, Any]]:
        """Return annotations in the benchmark's form; one without a preference has null."""
        rows = zip(self.questions, self.inputs.references, replied, strict=True)
        return [
            {
                "instruction": question.turns[0],
                "output_1": str(reference["output"]),
                "generator_1": self.inputs.reference,
                "output_2": answers.by_prompt[question.prompt_id].turns[0],
                "preference": None
                if outcome.result is None
                else preference(outcome.result[0], item.shown == OWN),
                "generator_2": answers.model,
                "annotator": f"{self.inputs.annotator.name}/{judge.model}",
            }
            for question, reference, (item, outcome) in rows
        ]

    def score(self, records: Sequence[Record], answers: Answers) -> Evaluation:
        """Score preferences, with a length-controlled win rate by this project's regression."""
        preferences = alpaca_eval.preferences_from_annotations(records)[answers.model]
        score = alpaca_eval.score_preferences(preferences, answers.model, length_control=True)
        score = replace(score, notes={alpaca_eval.LENGTH_CONTROLLED: OWN_REGRESSION, **score.notes})
        judge = str(records[0]["annotator"])
        return Evaluation(score, judge, alpaca_eval.OWN_ANNOTATOR, intervals_of(score))


def read_annotator(path: Path) -> Annotator:
    """Read the words of an annotator."""
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
