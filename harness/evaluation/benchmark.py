"""What a benchmark is: its questions, its requests to a judge, and its reading of the replies.

Judgments are written in the benchmark's own format and scored by the code that scores published
ones, so a run and its file agree.
"""

from __future__ import annotations

import copy
import hashlib
import json
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np

from harness.endpoint.request import ChatRequest, Message, Reply
from harness.errors import UserError
from harness.evaluation import files
from harness.evaluation.scores import Evaluation, Judgment, ratio_values, tally
from harness.extensions import BENCHMARKS
from harness.runtime.manifest import installed_version
from harness.runtime.stage import Json
from harness.words import ignore

if TYPE_CHECKING:
    from harness.endpoint.client import Client, Done, Outcome, ServedModel
    from harness.models.reward_model import Rewards

NOT_INSTALLED = "not-installed"


def version_of(package: str) -> str:
    """Return a package's version, or `NOT_INSTALLED`."""
    return installed_version(package) or NOT_INSTALLED


@dataclass(frozen=True)
class RewardJudge:
    """A reward model as judge."""

    rewards: Rewards
    model: str

    @property
    def clients(self) -> list[Client]:
        """Empty: a reward model runs locally."""
        return []


@dataclass(frozen=True)
class JudgeRequest:
    """A turn or game of a question and its request; `shown` is needed to read the reply."""

    prompt_id: str
    number: int
    request: ChatRequest
    shown: str = ""


Better = Mapping[tuple[str, int], float | None]
"""Result by (question id, turn from 1): 1 if the answer beats the one it is compared with, 0 if it
loses, 1/2 for a tie; None if either could not be scored."""

Replied = Sequence[tuple[JudgeRequest, "Outcome[list[Reply]]"]]
"""Judge requests, each with the judge's replies or the reason there are none."""


Records = Sequence[files.Record]
"""Judgments in a benchmark's own format."""

Questions = Sequence[files.Question] | None

Rows = list[dict[str, Any]]
"""Answers or judgments in a benchmark's own format, to be written."""

Judged = tuple[Evaluation, Rows]
"""The evaluation and the judgments behind it."""


def ids_of(questions: Questions) -> list[str] | None:
    """Return the questions' prompt ids; None if there are no questions to compare with."""
    return None if questions is None else [question.prompt_id for question in questions]


class Benchmark(ABC):
    """One benchmark with its files.

    Attributes:
        against: The model whose answers are the baseline; None if answers are rated individually.
        columns: Score to registry column.
        judge_field: The judgment field that names the judge.
        model_field: The judgment field that names the judged model.
        package: An optional dependency that some scores need.
        anchor: The answers compared against; None if there are none.
        turns: Turns per conversation.
        verdicts: Judge requests per conversation, for cost estimates.
        reply_tokens: Mean tokens per judge reply, for cost estimates.
        homes: The benchmark's files at their public URLs.
        inputs: The parsed files: a dataclass, whose digest is the benchmark's.
    """

    name: ClassVar[str]
    own_judge: ClassVar[str]
    against: ClassVar[str | None] = None
    columns: ClassVar[Mapping[str, str]] = {}
    judge_field: ClassVar[str] = "judge"
    model_field: ClassVar[str] = "model"
    package: ClassVar[str | None] = None
    turns: ClassVar[int] = 1
    verdicts: ClassVar[int] = 1
    reply_tokens: ClassVar[int] = 200
    homes: ClassVar[tuple[files.HomeFile, ...]] = ()
    inputs: Any
    data: Path
    anchor: files.Answers | None = None

    @classmethod
    def load(cls, data: Path) -> Self:
        """Load the benchmark from a folder."""
        found = cls()
        found.inputs, found.data = cls.read_files(data), data
        found.anchor = found.own_anchor()
        return found

    @classmethod
    @abstractmethod
    def read_files(cls, data: Path) -> Any:
        """Read `inputs` from a folder; raises like `load`."""

    @classmethod
    def read_questions(cls, data: Path) -> tuple[files.Question, ...]:
        """Read the questions from a folder; raises like `load`."""
        path = files.locate(data, "question.jsonl", f"the questions of {cls.name}")
        return files.read_questions(path, cls.turns)

    @classmethod
    def scored_with(cls, data: Path, judge: str) -> dict[str, Json]:
        """Return what, besides the answers, determines which scores are available."""
        return {} if cls.package is None else {"package": version_of(cls.package)}

    @classmethod
    def missing(cls, scored_with: Mapping[str, Json]) -> dict[str, str]:
        """Map each unavailable score to the reason; if all are unavailable, no judge is asked."""
        return {}

    @classmethod
    def filed_judge(cls, judge: str) -> str:
        """Return the name a judge's scores are filed under."""
        return judge

    @property
    def digest(self) -> str:
        """SHA-256 of the questions, references and judge prompts, and of a plug-in's version."""
        inputs = {**asdict(self.inputs), **BENCHMARKS.identity(self.name)}
        text = json.dumps(inputs, sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()

    @property
    def questions(self) -> tuple[files.Question, ...]:
        """The questions, in the benchmark's order."""
        questions: tuple[files.Question, ...] = self.inputs.questions
        return questions

    def own_anchor(self) -> files.Answers | None:
        """Return the anchor answers that ship with the benchmark, or None."""
        return None

    def compared_with(self, anchor: files.Answers) -> Self:
        """Return a copy that compares with these answers instead, for a reward model as judge."""
        found = copy.copy(self)
        found.anchor = anchor
        return found

    def read_answers(self, path: Path, model: str | None) -> files.Answers:
        """Read a model's answers."""
        return files.read_answers(path, model)

    @abstractmethod
    def requests(self, answers: files.Answers, judge: ServedModel) -> list[JudgeRequest]:
        """Return the judge requests, excluding follow-ups."""

    def ask(self, client: Client, item: JudgeRequest) -> list[Reply]:
        """Return the judge's replies to one item; more than one if there are follow-ups."""
        return [client.ask(item.request)]

    @abstractmethod
    def records(self, answers: files.Answers, judge: ServedModel, replied: Replied) -> Rows:
        """Return judgments in the benchmark's own format, including unreadable ones."""

    def comparison_records(self, answers: files.Answers, judge: str, better: Better) -> Rows:
        """Return per-turn comparisons as judgments in the benchmark's own format."""
        raise UserError(f"{self.name} has a judge read answers, which no reward model can")

    def compared(self, answers: files.Answers, judge: RewardJudge) -> Judged:
        """Score which of two answers, ours and the anchor's, a reward model prefers, by turn."""
        if self.anchor is None:
            raise UserError(
                f"a reward model compares answers, and {self.name} has none to compare with; name "
                "a judge that writes"
            )
        ours, theirs = answers.to(self.questions), self.anchor.to(self.questions)
        asked, given, places = [], [], []
        for question, *both in zip(self.questions, ours, theirs, strict=True):
            for turn in range(len(question.turns)):
                for answer in both:
                    asked.append(files.conversation(question, answer.turns[:turn]))
                    given.append([answer.turns[turn]])
                places.append((question.prompt_id, turn + 1))
        values = judge.rewards.score(asked, given).values[:, 0].reshape(-1, 2)
        better = {
            place: None if np.isnan(own + other) else 0.5 + 0.5 * float(np.sign(own - other))
            for place, (own, other) in zip(places, values.tolist(), strict=True)
        }
        records = self.comparison_records(answers, judge.model, better)
        return self.score(records, answers), records

    def judgments(self, records: Records) -> list[tuple[str, int, str, object]]:
        """Return (question id, turn or game, judge's reply, verdict) for each judgment."""
        return [(str(r["question_id"]), r["turn"], r["judgment"], r["score"]) for r in records]

    @classmethod
    @abstractmethod
    def scored(
        cls, records: Records, model: str, questions: Questions, data: Path | None
    ) -> Evaluation:
        """Score one judge's judgments of one model's answers."""

    @classmethod
    def evaluations(
        cls, records: Records, questions: Questions = None, data: Path | None = None
    ) -> list[Evaluation]:
        """Score judgments in the benchmark's format: one evaluation per judge and model."""
        own = cls.filed_judge(cls.own_judge)
        return [
            replace(cls.scored(rows, str(model or ""), questions, data), judge=judge, own_judge=own)
            for judge, judged in files.records_by(records, cls.judge_field).items()
            for model, rows in files.records_by(judged, cls.model_field).items()
        ]

    def score(self, records: Records, answers: files.Answers) -> Evaluation:
        """Score judgments of a model's answers."""
        (found,) = self.evaluations(records, self.questions, self.data)
        return found

    def judge(
        self,
        answers: files.Answers,
        judge: ServedModel | RewardJudge,
        done: Done = ignore,
    ) -> Judged:
        """Judge a model's answers and score them."""
        from harness.endpoint.client import work_through

        if isinstance(judge, RewardJudge):
            return self.compared(answers, judge)
        client = judge.client
        items = self.requests(answers, judge)
        outcomes = work_through(items, lambda item: self.ask(client, item), judge, done)
        records = self.records(answers, judge, list(zip(items, outcomes, strict=True)))
        found = self.score(records, answers)
        if others := client.answered_as:
            notes = {**found.notes, "judge": f"asked for {judge.model}, answered as {others}"}
            found = replace(found, notes=notes)
        return found, records


def benchmark_class(name: str) -> type[Benchmark]:
    """Return the class of a shipped or plug-in benchmark."""
    if name not in BENCHMARKS:
        raise UserError(f"There is no benchmark `{name}`; choose one of {', '.join(BENCHMARKS)}")
    found: type[Benchmark] = BENCHMARKS.load(name)
    return found


@dataclass(frozen=True)
class RatedInputs:
    """The questions of a benchmark that rates answers individually."""

    questions: tuple[files.Question, ...]


class _Rated(files.Published):
    question_id: str
    score: files.Number | None


class RatedBenchmark(Benchmark):
    """Base class for a benchmark that rates answers one at a time, in MT-Bench's format.

    A subclass has the judge's `prompt`, and reads a rating on the `scale` (min, max) from a reply.
    """

    scale: ClassVar[tuple[float, float]] = (-np.inf, np.inf)
    judge_settings: ClassVar[Mapping[str, Json]] = {"temperature": 0, "max_tokens": 1024}

    @classmethod
    def read_files(cls, data: Path) -> RatedInputs:
        """Read the questions from a folder."""
        return RatedInputs(cls.read_questions(data))

    @abstractmethod
    def prompt(self, question: files.Question, answer: Sequence[str]) -> str:
        """Return the judge prompt for a question and its answer, a list of turns."""

    @abstractmethod
    def read(self, reply: str) -> float | None:
        """Return the rating in a judge's reply, or None if there is none."""

    def requests(self, answers: files.Answers, judge: ServedModel) -> list[JudgeRequest]:
        """Return one request per question."""
        found = []
        for question, answer in zip(self.questions, answers.to(self.questions), strict=True):
            asked = (Message("user", self.prompt(question, answer.turns)),)
            label = f"question {question.prompt_id}"
            request = ChatRequest(label, judge.model, asked, self.judge_settings)
            found.append(JudgeRequest(question.prompt_id, 1, request))
        return found

    def records(self, answers: files.Answers, judge: ServedModel, replied: Replied) -> Rows:
        """Return one record per question; the score is null if the reply has no rating."""
        records = []
        for item, outcome in replied:
            reply = "" if outcome.result is None else outcome.result[-1].text
            record = {
                "question_id": item.prompt_id,
                "model": answers.model,
                "judge": judge.model,
                "turn": 1,
                "judgment": reply,
                "score": self.read(reply),
            }
            records.append(record | ({"error": outcome.failure} if outcome.failure else {}))
        return records

    @classmethod
    def scored(
        cls, records: Records, model: str, questions: Questions, data: Path | None
    ) -> Evaluation:
        """Return the mean rating over the judged questions."""
        low, high = cls.scale
        read = [(it.question_id, it.score) for it in files.read_as(_Rated, records)]
        judgments = [
            Judgment(key, score if score is not None and low <= score <= high else None)
            for key, score in read
        ]
        found = tally(judgments, ids_of(questions))
        values = ratio_values(found.total, found.weight)
        return Evaluation(
            benchmark=cls.name,
            model=model,
            scores={"rating": float(values.mean())},
            n=found.n,
            n_missing=found.missing,
            prompts=found.prompts,
            values={"rating": values},
        )
