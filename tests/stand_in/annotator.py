"""A benchmark in AlpacaEval's form with words of its own, as a plug-in: `ranked`.

The answers are called m and M in an order that the instruction's digest draws, and the judge says
which is better by calling a function.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from harness.endpoint.client import ServedModel
from harness.endpoint.request import ChatRequest, Message, Reply
from harness.evaluation.benchmark import JudgeRequest, Questions, Records, Replied
from harness.evaluation.benchmarks import alpaca_eval
from harness.evaluation.files import Answers
from harness.evaluation.scores import Evaluation
from harness.foreign import read_json
from harness.runtime.stage import Json

NAMES = ("m", "M")
"""What the first and the second answer shown are called."""

SETTINGS: Mapping[str, Json] = {
    "temperature": 0,
    "max_tokens": 100,
    "tools": [{"type": "function", "function": {"name": "rank", "parameters": {}}}],
    "tool_choice": {"type": "function", "function": {"name": "rank"}},
}


class Ranked(alpaca_eval.AlpacaEval):
    """AlpacaEval's form, with any number of instructions."""

    name = "ranked"
    package = None  # type: ignore[assignment]
    instructions = None

    @classmethod
    def scored_with(cls, data: Path, judge: str) -> dict[str, Json]:
        return {}

    def requests(self, answers: Answers, judge: ServedModel) -> list[JudgeRequest]:
        """Return one request for each instruction; an item says what is shown first."""
        found, own = [], answers.to(self.questions)
        pairs = zip(self.questions, self.inputs.references, own, strict=True)
        for question, reference, answer in pairs:
            outputs, text = [str(reference["output"]), answer.turns[0]], question.turns[0]
            swapped = hashlib.sha256(text.encode()).digest()[0] % 2 == 1
            m, other = reversed(outputs) if swapped else outputs
            asked = f"Instruction: {text}\n\nAnswer m: {m}\n\nAnswer M: {other}"
            messages = (Message("system", "You rank two answers."), Message("user", asked))
            request = ChatRequest(question.prompt_id, judge.model, messages, SETTINGS)
            found.append(JudgeRequest(question.prompt_id, 1, request, "own" if swapped else ""))
        return found

    def records(
        self, answers: Answers, judge: ServedModel, replied: Replied
    ) -> list[dict[str, Any]]:
        """Return annotations in AlpacaEval's form; one without a preference has null."""
        return [
            {
                "instruction": question.turns[0],
                "output_1": str(reference["output"]),
                "generator_1": self.own_anchor().model,
                "output_2": answers.by_prompt[question.prompt_id].turns[0],
                "preference": outcome.result and preference(outcome.result[0], item.shown == "own"),
                "generator_2": answers.model,
                "annotator": f"{self.name}/{judge.model}",
            }
            for question, reference, (item, outcome) in zip(
                self.questions, self.inputs.references, replied, strict=True
            )
        ]

    @classmethod
    def scored(
        cls, records: Records, model: str, questions: Questions, data: Path | None
    ) -> Evaluation:
        """Score preferences, with a length-controlled win rate by this project's regression."""
        preferences, lengths = alpaca_eval.preferences_from_annotations(records)
        score = alpaca_eval.score_preferences(preferences, model, lengths=lengths)
        return replace(score, benchmark=cls.name)


def preference(reply: Reply, swapped: bool) -> float | None:
    """Return 2 where a reply ranks the model's answer first, 1 the reference's, None unreadable."""
    try:
        ranked = read_json(reply.tool_arguments or "")["ordered_models"]
        ranks = {entry["model"]: entry["rank"] for entry in ranked}
        first_is_better = ranks[NAMES[0]] < ranks[NAMES[1]]
    except (ValueError, KeyError, TypeError):
        return None
    return 2.0 if first_is_better == swapped else 1.0
