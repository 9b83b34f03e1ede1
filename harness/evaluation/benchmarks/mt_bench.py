"""MT-Bench: a judge rates both turns of each answer from 1 to 10, one answer at a time.

The second turn is judged with the first as context; math, reasoning and coding against a reference
answer. The score is the mean of all valid ratings over both turns. A reply without a rating from 1
to 10 (-1 in published files) counts as missing, never as zero. So with missing ratings, the average
is not the mean of the two turns' means, exactly as in the benchmark's own code. Unlike here, that
code accepts ratings of any size.

Source: FastChat, `fastchat/llm_judge/gen_judgment.py` (requests), `common.py` (which prompt for
which question, reference categories, temperatures, limits, rating patterns), `show_result.py`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Literal

from harness.endpoint.request import ChatRequest, Message
from harness.errors import UserError
from harness.evaluation import files
from harness.evaluation.benchmark import (
    Benchmark,
    Better,
    JudgeRequest,
    Questions,
    Records,
    Replied,
    Rows,
    ids_of,
)
from harness.evaluation.scores import Evaluation, Judgment, ratio_values, tally

if TYPE_CHECKING:
    from harness.endpoint.client import ServedModel

REFERENCE_CATEGORIES = frozenset({"math", "reasoning", "coding"})
JUDGE_SETTINGS = {"temperature": 0, "max_tokens": 2048}

PROMPTS = {
    (1, False): "single-v1",
    (1, True): "single-math-v1",
    (2, False): "single-v1-multi-turn",
    (2, True): "single-math-v1-multi-turn",
}
"""Judge prompt name by turn and whether there is a reference."""

UNRATED = -1
SCALE = (1.0, 10.0)
TURNS = (1, 2)

_RATING = re.compile(r"\[\[(\d+(?:\.\d*)?)\]\]")
_RATING_FALLBACK = re.compile(r"\[(\d+(?:\.\d*)?)\]")
_FASTCHAT = (
    "https://raw.githubusercontent.com/lm-sys/FastChat/"
    "587d5cfa1609a43d192cedb8441cac3c17db105d/fastchat/llm_judge/data"
)


@dataclass(frozen=True)
class MtBenchFiles:
    """The benchmark's files: questions, references by question id, judge prompts by name."""

    questions: tuple[files.Question, ...]
    references: Mapping[str, files.Answer]
    prompts: Mapping[str, tuple[str, str]]


class _RatedTurn(files.Published):
    """A judgment in the benchmark's format; the score is -1 without a rating."""

    question_id: str
    turn: Literal[1, 2]
    score: files.Number | None = None
    judgment: str = ""

    @property
    def rating(self) -> float | None:
        """The rating in the file, else the one parsed from the judge's text."""
        if "score" in self.model_fields_set:
            return _on_scale(self.score)
        return parse_rating(self.judgment)


class MtBench(Benchmark):
    """MT-Bench: rate two turns of answers to 80 questions, or score a file of ratings."""

    name = "mt_bench"
    own_judge = "gpt-4"
    columns: ClassVar[Mapping[str, str]] = {
        "average": "mt_avg",
        "turn_1": "mt_t1",
        "turn_2": "mt_t2",
    }
    turns = verdicts = len(TURNS)
    reply_tokens = 200  # about the length of gpt-4's replies
    homes = (
        files.HomeFile(
            "question.jsonl",
            f"{_FASTCHAT}/mt_bench/question.jsonl",
            "119565adbab82227089cefdb44c8d7e2cf04dc0a0ec233634c82e7d4e2a944f7",
        ),
        files.HomeFile(
            "reference_answer_gpt-4.jsonl",
            f"{_FASTCHAT}/mt_bench/reference_answer/gpt-4.jsonl",
            "f957a5bc977badb66885ec970e6cd08527845780313f0995764260e5777b9b3f",
        ),
        files.HomeFile(
            "judge_prompts.jsonl",
            f"{_FASTCHAT}/judge_prompts.jsonl",
            "fd283293406d024f44c174b094ef48031d0687a4682fd3a56b29b138f80281b6",
        ),
    )
    inputs: MtBenchFiles

    @classmethod
    def read_files(cls, data: Path) -> MtBenchFiles:
        questions = cls.read_questions(data)
        path = files.locate(data, "reference_answer_gpt-4.jsonl", "MT-Bench's references")
        references = files.read_answers(path).by_prompt
        path = files.locate(data, "judge_prompts.jsonl", "MT-Bench's judge prompts")
        prompts = {}
        for record in files.read_records(path):
            for field in ("system_prompt", "prompt_template"):
                if not isinstance(record.get(field), str):
                    raise UserError(
                        f"{path} has {record.get('name')} with no {field}; use the benchmark's own "
                        "file"
                    )
            prompts[str(record.get("name"))] = (record["system_prompt"], record["prompt_template"])
        absent = [name for name in PROMPTS.values() if name not in prompts]
        if absent:
            raise UserError(f"{path} has no prompt {absent[0]}; use the benchmark's own file")
        guided = [q for q in questions if q.category in REFERENCE_CATEGORIES]
        files.Answers("the reference", references).to(guided)
        return MtBenchFiles(questions, references, prompts)

    def requests(self, answers: files.Answers, judge: ServedModel) -> list[JudgeRequest]:
        found = []
        own = answers.to(self.questions)
        for question, answer in zip(self.questions, own, strict=True):
            reference = None
            if question.category in REFERENCE_CATEGORIES:
                reference = self.inputs.references[question.prompt_id]
            for turn in TURNS:
                name = PROMPTS[turn, reference is not None]
                system, template = self.inputs.prompts[name]
                user = files.fill(template, _fields(question, answer, reference, turn))
                request = ChatRequest(
                    label=f"question {question.prompt_id}, turn {turn}",
                    model=judge.model,
                    messages=(Message("system", system), Message("user", user)),
                    settings=JUDGE_SETTINGS,
                )
                found.append(JudgeRequest(question.prompt_id, turn, request, shown=name))
        return found

    def records(self, answers: files.Answers, judge: ServedModel, replied: Replied) -> Rows:
        records = []
        for item, outcome in replied:
            reply = "" if outcome.result is None else outcome.result[0].text
            rating = parse_rating(reply)
            record = {
                "question_id": item.prompt_id,
                "model": answers.model,
                "judge": [judge.model, item.shown],
                "user_prompt": item.request.messages[-1].content,
                "judgment": reply,
                "score": UNRATED if rating is None else rating,
                "turn": item.number,
            }
            records.append(record | ({"error": outcome.failure} if outcome.failure else {}))
        return records

    def comparison_records(self, answers: files.Answers, judge: str, better: Better) -> Rows:
        """Rate a turn 10 if it beats the anchor's, 1 if it loses, 5.5 for a tie."""
        low, high = SCALE
        return [
            {
                "question_id": prompt_id,
                "model": answers.model,
                "judge": [judge, "comparison"],
                "judgment": "",
                "score": UNRATED if share is None else low + (high - low) * share,
                "turn": turn,
            }
            for (prompt_id, turn), share in better.items()
        ]

    @classmethod
    def scored(
        cls, records: Records, model: str, questions: Questions, data: Path | None
    ) -> Evaluation:
        return score_ratings(ratings_from_judgments(records), model, ids_of(questions))


def _fields(
    question: files.Question, answer: files.Answer, reference: files.Answer | None, turn: int
) -> dict[str, str]:
    said = {} if reference is None else {"ref_answer": reference.turns}
    if turn == 1:
        fields = {"question": question.turns[0], "answer": answer.turns[0]}
    else:
        fields, said = {}, {**said, "question": question.turns, "answer": answer.turns}
    return fields | {
        f"{name}_{i}": text for name, texts in said.items() for i, text in enumerate(texts, 1)
    }


def ratings_from_judgments(records: Records) -> list[Judgment]:
    read = files.read_as(_RatedTurn, records)
    return [Judgment(it.question_id, it.rating, it.turn) for it in read]


def parse_rating(text: str) -> float | None:
    """Return the first `[[rating]]` in a text, else the first `[rating]`; None off the scale."""
    match = _RATING.search(text) or _RATING_FALLBACK.search(text)
    return _on_scale(float(match.group(1))) if match else None


def _on_scale(rating: float | None) -> float | None:
    return rating if rating is not None and SCALE[0] <= rating <= SCALE[1] else None


def score_ratings(
    ratings: Sequence[Judgment], model: str, prompts: Sequence[str] | None = None
) -> Evaluation:
    """Score one model's ratings: `average`, `turn_1` and `turn_2`, from 1 to 10."""
    both = tally(ratings, prompts)
    turns = {t: tally((it for it in ratings if it.number == t), both.prompts) for t in TURNS}
    values = {"average": ratio_values(both.total, both.weight)}
    notes = {}
    for turn, found in turns.items():
        if found.n:
            values[f"turn_{turn}"] = ratio_values(found.total, found.weight)
        else:
            notes[f"turn_{turn}"] = "no valid rating of this turn"
    columns = ("average", *(f"turn_{turn}" for turn in TURNS))
    return Evaluation(
        benchmark=MtBench.name,
        model=model,
        scores={c: float(values[c].mean()) if c in values else None for c in columns},
        n=both.n,
        n_missing=sum(found.missing for found in turns.values()),
        prompts=both.prompts,
        values=values,
        notes=notes,
    )
