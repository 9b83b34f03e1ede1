"""What a benchmark is: its questions, its requests to a judge, and its reading of the replies.

Each benchmark is one class in a file of its own (`harness.evaluation.benchmarks`), and one of the
user's own is another, registered by `@harness.benchmark`. Judgments are written in the benchmark's
own form and scored by the same code as published ones, so that a run and its file always say the
same.
"""

from __future__ import annotations

import copy
import hashlib
import json
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np

from harness.endpoint.request import ChatRequest, Message, Reply
from harness.errors import UserError
from harness.evaluation import files
from harness.evaluation.scores import Evaluation, Judgment, ratio_values, tally
from harness.extensions import BENCHMARKS
from harness.runtime.stage import Json

if TYPE_CHECKING:
    from harness.endpoint.client import Client, Done, Outcome, ServedModel
    from harness.models.reward_model import Rewards

NOT_INSTALLED = "not-installed"


def version_of(package: str) -> str:
    """Return the version of a package, `NOT_INSTALLED` where it is absent."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return NOT_INSTALLED


@dataclass(frozen=True)
class RewardJudge:
    """A reward model as judge."""

    rewards: Rewards
    model: str

    @property
    def clients(self) -> list[Client]:
        """None: it runs on this machine."""
        return []


@dataclass(frozen=True)
class JudgeRequest:
    """One thing to judge, and the request that asks for it.

    Attributes:
        prompt_id: The question.
        number: Which turn or game of the question.
        request: The request.
        shown: What the benchmark has to remember of it to read the reply.
    """

    prompt_id: str
    number: int
    request: ChatRequest
    shown: str = ""


Better = Mapping[tuple[str, int], float | None]
"""By question and turn, from 1: 1 where an answer is better than what it is compared with, 0 where
it is worse, 1/2 where neither; None where one of them could not be read."""

Replied = Sequence[tuple[JudgeRequest, "Outcome[list[Reply]]"]]
"""What was to be judged, each with the judge's replies or why there are none."""


Records = Sequence[files.Record]
"""Judgments in a benchmark's own form."""

Questions = Sequence[files.Question] | None


Judged = tuple[Evaluation, list[dict[str, Any]]]
"""The outcome of a run: the evaluation, and the judgments it was read from."""


class Benchmark(ABC):
    """One benchmark with its files.

    Attributes:
        name: As in profiles, reports and the command line.
        own_judge: The model that judges it by default.
        against: Whose answers it compares with; None where answers are rated alone.
        columns: The registry's column of each of its scores.
        judge_field: The field of a judgment that says who judged.
        model_field: The field of a judgment that says whose answer it is.
        package: A package that some of its scores need, beside the project's own.
        anchor: The answers that it compares with; None where there are none.
        turns: The turns of a conversation.
        verdicts: How often a judge is asked about a conversation, for the estimate.
        reply_tokens: Tokens of a judge's reply on average, likewise.
        homes: Its files at their public homes.
        inputs: Its files as they were read: a dataclass, whose digest is the benchmark's.
        data: The folder they were read from.
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
        """Return the benchmark with the files in a folder.

        Raises:
            UserError: A file is absent or has another form.
        """
        found = cls()
        found.inputs, found.data = cls.read_files(data), data
        found.anchor = found.own_anchor()
        return found

    @classmethod
    @abstractmethod
    def read_files(cls, data: Path) -> Any:
        """Return the `inputs` in a folder; raises as `load`."""

    @classmethod
    def read_questions(cls, data: Path) -> tuple[files.Question, ...]:
        """Return the questions in a folder; raises as `load`."""
        path = files.locate(data, "question.jsonl", f"the questions of {cls.name}")
        return files.read_questions(path, cls.turns)

    @classmethod
    def scored_with(cls, data: Path, judge: str) -> dict[str, Json]:
        """Return what decides, besides the answers, which of its scores there are.

        Once that is there, answers are judged anew; what the judge replied before is kept.
        """
        return {} if cls.package is None else {"package": version_of(cls.package)}

    @classmethod
    def missing(cls, scored_with: Mapping[str, Json]) -> dict[str, str]:
        """Return why scores cannot be had with that; where none can, no judge is asked."""
        return {}

    @classmethod
    def filed_judge(cls, judge: str) -> str:
        """Return the name under which a judge's scores are filed."""
        return judge

    @property
    def digest(self) -> str:
        """The sha256 of the benchmark's own inputs: questions, references, judge prompts.

        That of a plug-in's benchmark has its version in it.
        """
        inputs = {**asdict(self.inputs), **BENCHMARKS.identity(self.name)}
        text = json.dumps(inputs, sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()

    @property
    def questions(self) -> tuple[files.Question, ...]:
        """The questions, in the benchmark's order."""
        questions: tuple[files.Question, ...] = self.inputs.questions
        return questions

    @property
    def references(self) -> dict[str, str]:
        """The answers that a model's are compared with, by question; none where none are."""
        anchor = {} if self.anchor is None else self.anchor.by_prompt
        return {prompt_id: answer.turns[0] for prompt_id, answer in anchor.items()}

    def own_anchor(self) -> files.Answers | None:
        """Return the answers among its files that it compares with; None where there are none."""
        return None

    def compared_with(self, anchor: files.Answers) -> Self:
        """Return the benchmark with these answers in the place of those it compares with.

        One whose answers are rated alone has something that a reward model can compare with then.
        """
        found = copy.copy(self)
        found.anchor = anchor
        return found

    @abstractmethod
    def sampling(self, question: files.Question) -> dict[str, Json]:
        """Return the settings at which a model answers a question."""

    def read_answers(self, path: Path, model: str | None) -> files.Answers:
        """Read a model's answers."""
        return files.read_answers(path, model)

    def answer_records(self, answers: files.Answers) -> list[dict[str, Any]]:
        """Return answers in the benchmark's form; here that of MT-Bench."""
        return [
            {
                "question_id": prompt_id,
                "model_id": answers.model,
                "choices": [{"index": 0, "turns": list(answer.turns)}],
            }
            for prompt_id, answer in answers.by_prompt.items()
        ]

    @abstractmethod
    def requests(self, answers: files.Answers, judge: ServedModel) -> list[JudgeRequest]:
        """Return what is asked of a judge, follow-ups not counted.

        Raises:
            UserError: A question has no answer.
        """

    def ask(self, client: Client, item: JudgeRequest) -> list[Reply]:
        """Return the judge's replies to one item; several where it is asked to go on."""
        return [client.ask(item.request)]

    @abstractmethod
    def records(
        self, answers: files.Answers, judge: ServedModel, replied: Replied
    ) -> list[dict[str, Any]]:
        """Return judgments in the benchmark's own form, unread ones among them."""

    def comparison_records(
        self, answers: files.Answers, judge: str, better: Better
    ) -> list[dict[str, Any]]:
        """Return judgments in the benchmark's own form from comparisons of each turn's answers.

        Raises:
            UserError: It has no such form.
        """
        raise UserError(f"{self.name} has a judge read answers, which no reward model can")

    def compared(self, answers: files.Answers, judge: RewardJudge) -> Judged:
        """Have a reward model compare answers with the anchor's, turn by turn, and score that.

        A reward is worth nothing beside that of another answer, so that only which is higher
        counts: no scale of rewards has to be known.
        """
        if self.anchor is None:
            raise UserError(
                f"a reward model compares answers, and {self.name} has none to compare with; give "
                "them with --against"
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
        """Return question, turn or game, the judge's reply and what it says, of each judgment."""
        return [(str(r["question_id"]), r["turn"], r["judgment"], r["score"]) for r in records]

    @classmethod
    @abstractmethod
    def scored(
        cls, records: Records, model: str, questions: Questions, data: Path | None
    ) -> Evaluation:
        """Score one judge's judgments of one model's answers.

        Questions and the folder of the benchmark's files are None where a published file is scored
        without them; then those that were judged are taken.
        """

    @classmethod
    def evaluations(
        cls, records: Records, questions: Questions = None, data: Path | None = None
    ) -> list[Evaluation]:
        """Score judgments in the benchmark's form, one evaluation for each judge and model."""
        own = cls.filed_judge(cls.own_judge)
        return [
            replace(cls.scored(rows, str(model), questions, data), judge=judge, own_judge=own)
            for judge, judged in files.records_by(records, cls.judge_field).items()
            for model, rows in files.records_by(judged, cls.model_field).items()
        ]

    def score(self, records: Records, answers: files.Answers) -> Evaluation:
        """Score judgments of a model's answers."""
        (found,) = self.evaluations(records, self.questions, self.data)
        return found

    @classmethod
    def score_file(cls, file: Path, data: Path | None) -> list[Evaluation]:
        """Score a file of judgments in the benchmark's form, sending nothing.

        Raises:
            UserError: A file cannot be read or has another form.
        """
        questions = None if data is None else cls.read_questions(data)
        return cls.evaluations(files.read_records(file), questions, data)

    def judge(
        self,
        answers: files.Answers,
        judge: ServedModel | RewardJudge,
        done: Done = lambda count, total: None,
    ) -> Judged:
        """Judge a model's answers and score them.

        Raises:
            UserError: A question has no answer, or there is nothing to compare with.
            HarnessError: The judge does not answer, or the budget is used up.
        """
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
    """Return a benchmark's class: a shipped one, or that of a plug-in.

    Raises:
        UserError: There is no such benchmark.
    """
    if name not in BENCHMARKS:
        raise UserError(f"There is no benchmark `{name}`; choose one of {', '.join(BENCHMARKS)}")
    found: type[Benchmark] = BENCHMARKS.get(name)
    return found


@dataclass(frozen=True)
class RatedInputs:
    """The questions of a benchmark whose answers are rated alone."""

    questions: tuple[files.Question, ...]


class _Rated(files.Published):
    question_id: str
    score: files.Number | None


class RatedBenchmark(Benchmark):
    """A benchmark whose answers are rated one by one, in the simplest form there is.

    A subclass says what the judge is asked (`prompt`) and how its reply is read (`read`); the score
    `rating` is the mean over questions. The questions are in `question.jsonl`, in MT-Bench's form.
    A reply without a rating on the `scale` (lowest and highest) is counted and left out.
    """

    scale: ClassVar[tuple[float, float]] = (-np.inf, np.inf)
    answer_tokens: ClassVar[int] = 1024
    judge_settings: ClassVar[Mapping[str, Json]] = {"temperature": 0, "max_tokens": 1024}

    @classmethod
    def read_files(cls, data: Path) -> RatedInputs:
        """Read the questions from a folder."""
        return RatedInputs(cls.read_questions(data))

    @abstractmethod
    def prompt(self, question: files.Question, answer: Sequence[str]) -> str:
        """Return what the judge is asked about the answer to a question, turn by turn."""

    @abstractmethod
    def read(self, reply: str) -> float | None:
        """Return the rating in a judge's reply, None where there is none."""

    def sampling(self, question: files.Question) -> dict[str, Json]:
        """Return greedy decoding."""
        return {"temperature": 0.0, "max_tokens": self.answer_tokens}

    def requests(self, answers: files.Answers, judge: ServedModel) -> list[JudgeRequest]:
        """Return one request for each question."""
        found = []
        for question, answer in zip(self.questions, answers.to(self.questions), strict=True):
            asked = (Message("user", self.prompt(question, answer.turns)),)
            label = f"question {question.prompt_id}"
            request = ChatRequest(label, judge.model, asked, self.judge_settings)
            found.append(JudgeRequest(question.prompt_id, 1, request))
        return found

    def records(
        self, answers: files.Answers, judge: ServedModel, replied: Replied
    ) -> list[dict[str, Any]]:
        """Return a record for each question, with a score of null where there is no rating."""
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
        """Return the mean rating of the questions that were judged."""
        low, high = cls.scale
        read = [(it.question_id, it.score) for it in files.read_as(_Rated, records)]
        found = tally(
            Judgment(key, score if score is not None and low <= score <= high else None)
            for key, score in read
        )
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
