"""Arena-Hard v0.1: two games per question against a fixed baseline, scored as a win rate.

The baseline's answer is A in the first game and B in the second. The judge ends with one of five
labels; if nothing looks like a verdict, it is asked to continue (the wording is ours), and its
replies are read as one text. A strong verdict counts three times, a tie half a win for each side.
The score is the weighted share of wins, which equals the benchmark's Bradley-Terry fit if models
play only the baseline. Its interval is over questions, because a question's games and the copies of
a strong verdict are not independent.

Source: Arena-Hard-Auto v0.1, `gen_judgment.py` (requests, verdicts), `config/judge_config.yaml`
(settings), `show_result.py` (weights, score); lmarena/arena-hard-auto (leaderboard).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from pydantic import Field

from harness.endpoint.request import ChatRequest, Message, Reply
from harness.errors import HarnessError, UserError
from harness.evaluation import files
from harness.evaluation.benchmark import (
    NOT_INSTALLED,
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
from harness.registry.documents import read_yaml
from harness.runtime.stage import Json

if TYPE_CHECKING:
    from harness.endpoint.client import Client, ServedModel

OWN_JUDGE = "gpt-4-1106-preview"
BASELINE = "gpt-4-0314"
STRONG_VERDICT_WEIGHT = 3.0
GAMES = 2

FOLLOW_UP = "Go on from here, and end with the label of your verdict."
VERDICT_PATTERN = r"\[\[([AB<>=]+)\]\]"
_TOKENIZER = "gpt-3.5-turbo"
_ARENA = "https://raw.githubusercontent.com/lmarena/arena-hard-auto"
_ARENA_DATA = f"{_ARENA}/196f6b826783b3da7310e361a805fa36f0be83f3/data/arena-hard-v0.1"

_LABELS: Mapping[str | None, tuple[float, float]] = {
    "A>>B": (1.0, STRONG_VERDICT_WEIGHT),
    "A>B": (1.0, 1.0),
    "A=B": (0.5, 1.0),
    "B>A": (0.0, 1.0),
    "B>>A": (0.0, STRONG_VERDICT_WEIGHT),
}
"""For each label, A's share of a win and its weight."""

_COMPARED: Mapping[float | None, tuple[str | None, str | None]] = {
    1.0: ("B>A", "A>B"),
    0.5: ("A=B", "A=B"),
    0.0: ("A>B", "B>A"),
    None: (None, None),
}
"""The labels of both games by the outcome of a reward model's comparison."""


@dataclass(frozen=True)
class ArenaHardFiles:
    questions: tuple[files.Question, ...]
    baseline: files.Answers
    system_prompt: str
    templates: tuple[str, ...]
    temperature: float
    max_tokens: int
    attempts: int


class _Game(files.Published):
    judgment: str = ""
    score: str | None = None

    @property
    def label(self) -> str | None:
        """The verdict in the file, else the one parsed from the judge's text."""
        return self.score if "score" in self.model_fields_set else label_in(self.judgment)


class _Games(files.Published):
    """A question's judgment in the benchmark's format; the baseline is A in the first game."""

    question_id: str
    games: list[_Game] = Field(max_length=GAMES)


class _Battle(files.Published):
    """A game in the older format, which repeats a strong verdict three times."""

    question_id: str
    model_a: str
    model_b: str
    winner: Literal["model_a", "model_b", "tie", "tie (bothbad)"]


class ArenaHard(Benchmark):
    """Arena-Hard v0.1: judge answers to 500 questions, or score a file of verdicts."""

    name = "arena_hard"
    own_judge = OWN_JUDGE
    against = BASELINE
    columns: ClassVar[Mapping[str, str]] = {"win_rate": "ah_wr", "answer_tokens": "ah_len"}
    package = "tiktoken"
    verdicts = GAMES
    reply_tokens = 700  # the judge answers the question itself first
    homes = (
        files.HomeFile(
            "question.jsonl",
            f"{_ARENA_DATA}/question.jsonl",
            "2650242d2883f22b2abd498f273b6a7e02253cce533f5c91a858e1d44aa3002f",
        ),
        files.HomeFile(
            # Digest of the published copy; not confirmed by another source.
            "answer_gpt-4-0314.jsonl",
            f"{_ARENA_DATA}/model_answer/gpt-4-0314.jsonl",
            "0f6abc84de4600fde987d9db70f838f4ecdbd27a2f1f4058c12aa322a6f791b2",
        ),
        files.HomeFile(
            # Digest of a stored copy of this revision; prompts and settings match the tests' copy.
            "judge_config.yaml",
            f"{_ARENA}/7f1b7f5dd6ce53e1f8530220ceb452b7019a8056/config/judge_config.yaml",
            "8f6e2a641676ae1453ae6be149b549d92b739564a23a8db27b86c50999fa607e",
        ),
    )
    inputs: ArenaHardFiles

    @classmethod
    def read_files(cls, data: Path) -> ArenaHardFiles:
        questions = cls.read_questions(data)
        path = files.locate(data, f"answer_{BASELINE}.jsonl", "the baseline's answers")
        answers = files.read_answers(path, BASELINE)
        answers.to(questions)
        path = files.locate(data, "judge_config.yaml", "Arena-Hard's judge settings")
        return ArenaHardFiles(questions, answers, **_settings(path))

    @classmethod
    def missing(cls, scored_with: Mapping[str, Json]) -> dict[str, str]:
        absent = scored_with.get("package") == NOT_INSTALLED
        return {"answer_tokens": "install tiktoken, which has the tokenizer"} if absent else {}

    def own_anchor(self) -> files.Answers:
        return self.inputs.baseline

    def requests(self, answers: files.Answers, judge: ServedModel) -> list[JudgeRequest]:
        """Return two requests per question, one per game."""
        if answers.model == BASELINE:
            raise UserError(
                f"{answers.model} is the baseline of Arena-Hard and cannot meet itself; name "
                "another model"
            )
        assert self.anchor is not None
        inputs, found = self.inputs, []
        own, other = answers.to(inputs.questions), self.anchor.to(inputs.questions)
        for question, answer, baseline in zip(inputs.questions, own, other, strict=True):
            shown = (baseline.turns[0], answer.turns[0])
            for game, (first, second) in enumerate((shown, shown[::-1])):
                fields = {"question_1": question.turns[0], "answer_1": first, "answer_2": second}
                users = (
                    Message("user", files.fill(template, fields)) for template in inputs.templates
                )
                request = ChatRequest(
                    label=f"question {question.prompt_id}, game {game + 1}",
                    model=judge.model,
                    messages=(Message("system", inputs.system_prompt), *users),
                    settings={"temperature": inputs.temperature, "max_tokens": inputs.max_tokens},
                )
                found.append(JudgeRequest(question.prompt_id, game, request))
        return found

    def ask(self, client: Client, item: JudgeRequest) -> list[Reply]:
        """Return the judge's replies to one game, following up until there is a verdict."""
        replies, request = [client.ask(item.request)], item.request
        while len(replies) < self.inputs.attempts and not _verdicts_in(_text(replies)):
            said = (Message("assistant", replies[-1].text), Message("user", FOLLOW_UP))
            request = replace(request, messages=request.messages + said)
            replies.append(client.ask(request))
        return replies

    def records(self, answers: files.Answers, judge: ServedModel, replied: Replied) -> Rows:
        games: dict[str, list[dict[str, Any]]] = {}
        for item, outcome in replied:
            text = _text(outcome.result or [])
            game = {
                "user_prompt": item.request.messages[-1].content,
                "judgment": text,
                "score": label_in(text),
            }
            game |= {"error": outcome.failure} if outcome.failure else {}
            games.setdefault(item.prompt_id, []).append(game)
        return [
            {"question_id": prompt, "model": answers.model, "judge": judge.model, "games": played}
            for prompt, played in games.items()
        ]

    def comparison_records(self, answers: files.Answers, judge: str, better: Better) -> Rows:
        """Record one verdict as both games: a reward model has no position bias."""
        return [
            {
                "question_id": prompt_id,
                "model": answers.model,
                "judge": judge,
                "games": [
                    {"user_prompt": "", "judgment": "", "score": label}
                    for label in _COMPARED[share]
                ],
            }
            for (prompt_id, _), share in better.items()
        ]

    def judgments(self, records: Records) -> list[tuple[str, int, str, object]]:
        return [
            (str(record["question_id"]), number, game["judgment"], game["score"])
            for record in records
            for number, game in enumerate(record["games"], start=1)
        ]

    @classmethod
    def scored(
        cls, records: Records, model: str, questions: Questions, data: Path | None
    ) -> Evaluation:
        return score_games(games_from_judgments(records), model, ids_of(questions))

    @classmethod
    def evaluations(
        cls, records: Records, questions: Questions = None, data: Path | None = None
    ) -> list[Evaluation]:
        """Score judgments, or battles, which do not name the judge."""
        if "winner" not in records[0]:
            return super().evaluations(records, questions, data)
        return [
            replace(score_games(games, model, ids_of(questions)), own_judge=OWN_JUDGE)
            for model, games in games_from_battles(records).items()
        ]

    def score(self, records: Records, answers: files.Answers) -> Evaluation:
        """Score verdicts on a model's answers, with the answers' mean length if it is known."""
        found, tokens = super().score(records, answers), answer_tokens(answers)
        if tokens is None:
            reason = "the file has no lengths, and tiktoken or its vocabulary is absent"
            return found.with_unavailable("answer_tokens", reason)
        return found.with_column("answer_tokens", [tokens[prompt] for prompt in found.prompts])


def game(prompt_id: str, number: int, label: str | None) -> Judgment:
    """Return a label's judgment of the model, which is B in the first game and A in the second."""
    if label not in _LABELS:
        return Judgment(prompt_id, None, number)
    share, weight = _LABELS[label]
    return Judgment(prompt_id, share if number == 2 else 1.0 - share, number, weight)


def games_from_judgments(records: Records) -> list[Judgment]:
    """Read judgments in the benchmark's format; an absent game has no verdict."""
    return [
        game(read.question_id, number, label)
        for read in files.read_as(_Games, records)
        for number, label in enumerate([*(it.label for it in read.games), None, None][:GAMES], 1)
    ]


def games_from_battles(records: Records) -> dict[str, list[Judgment]]:
    """Read battles against the baseline, already weighted, by model."""
    found: dict[str, list[Judgment]] = {}
    for read in files.read_as(_Battle, records):
        sides = [read.model_a, read.model_b]
        if BASELINE not in sides:
            raise UserError(
                f"The battle of {read.model_a} and {read.model_b} on prompt {read.question_id} "
                f"is not against the baseline {BASELINE}; give a file of battles against it."
            )
        model = sides[1 - sides.index(BASELINE)]
        tied = read.winner.startswith("tie")
        share = 0.5 if tied else float(getattr(read, read.winner) == model)
        found.setdefault(model, []).append(Judgment(read.question_id, share))
    return found


def _verdicts_in(text: str) -> set[str]:
    return set(re.findall(VERDICT_PATTERN, text))


def label_in(text: str) -> str | None:
    """Return the verdict label in a judge's text; two different ones are none."""
    found = _verdicts_in(text)
    label = found.pop() if len(found) == 1 else None
    return label if label in _LABELS else None


def _text(replies: Sequence[Reply]) -> str:
    return "\n".join(reply.text for reply in replies)


def score_games(
    games: Sequence[Judgment], model: str, prompts: Sequence[str] | None = None
) -> Evaluation:
    """Score one model's games; of `prompts`, one without a game counts as two missing judgments."""
    found = tally(games, prompts, each=GAMES)
    won, weight = found.total, found.weight
    if not weight.any():
        raise HarnessError(
            f"None of the {len(games)} verdicts on {model} could be read; look at the judge's "
            "replies."
        )
    return Evaluation(
        benchmark=ArenaHard.name,
        model=model,
        scores={"win_rate": float(100.0 * won.sum() / weight.sum())},
        n=found.n,
        n_missing=found.missing,
        prompts=found.prompts,
        values={"win_rate": 100.0 * ratio_values(won, weight)},
    )


def answer_tokens(answers: files.Answers) -> dict[str, int] | None:
    """Return every answer's length in tokens, by the file or the installed tokenizer."""
    known = {p: a.tokens for p, a in answers.by_prompt.items() if a.tokens is not None}
    if len(known) == len(answers.by_prompt):
        return known
    try:
        import tiktoken

        encoding = tiktoken.encoding_for_model(_TOKENIZER)
    except (ImportError, OSError):
        return None
    return {
        prompt_id: len(encoding.encode("".join(answer.turns), disallowed_special=()))
        for prompt_id, answer in answers.by_prompt.items()
    }


_NUMBERS: Mapping[str, tuple[Any, str]] = {
    "temperature": (int | float, "a number"),
    "max_tokens": (int, "a whole number"),
    "number_of_judgment_attempts": (int, "a whole number"),
}
"""The judge's settings that are numbers, if given."""


def _settings(path: Path) -> dict[str, Any]:
    """Read the judge's settings, which must be those of Arena-Hard v0.1."""
    config = read_yaml(path)
    config = config if isinstance(config, dict) else {}
    expected = {"baseline_model": BASELINE, "regex_pattern": VERDICT_PATTERN, "pairwise": True}
    for name, value in expected.items():
        if config.get(name, value) != value:
            raise UserError(f"{path} has {name}: {config[name]!r}; Arena-Hard v0.1 has {value!r}")
    system, templates = config.get("system_prompt"), config.get("prompt_template")
    templates = [templates] if isinstance(templates, str) else templates
    if not isinstance(system, str) or not isinstance(templates, list) or not templates:
        raise UserError(f"{path} has no system_prompt or prompt_template; use the benchmark's file")
    for name, (kind, what) in _NUMBERS.items():
        if not isinstance(config.get(name, 0), kind):
            raise UserError(f"{path} has {name}: {config[name]!r}; give {what}")
    return {
        "system_prompt": system,
        "templates": tuple(str(template) for template in templates),
        "temperature": config.get("temperature", 0),
        "max_tokens": config.get("max_tokens", 4096),
        "attempts": max(1, config.get("number_of_judgment_attempts", 2)),
    }
