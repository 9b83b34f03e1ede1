"""Arena-Hard v0.1 as it is run: two games for each question, against one fixed model.

In the first game the baseline's answer is shown as A, in the second as B. A reply in which nothing
looks like a verdict is followed up in the same conversation, as often as the benchmark's settings
allow; all replies together are then read as one text. The questions, the baseline's answers, the
judge's prompts and its settings are the benchmark's own files. The sentence of the follow-up is
this project's own: the benchmark keeps its sentence in code.

Source: Arena-Hard-Auto v0.1, `gen_judgment.py` and `config/judge_config.yaml`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from harness.endpoint.client import Client, Outcome
from harness.endpoint.request import ChatRequest, Message
from harness.errors import UserError
from harness.evaluation.arena_hard import GAMES_PER_PROMPT, parse_verdict
from harness.evaluation.benchmark_files import (
    Answers,
    Question,
    fill,
    locate,
    read_answers,
    read_questions,
)
from harness.registry.yaml_reader import read_yaml

BENCHMARK = "arena-hard"
OWN_JUDGE = "gpt-4-1106-preview"
BASELINE = "gpt-4-0314"
ANSWER_TOKENS = 4096
ANSWER_TEMPERATURE = 0.0
EXPECTED_REPLY_TOKENS = 700
"""Tokens of a judge's reply on average, for the estimate: it answers the question itself first."""

FOLLOW_UP = "Go on from here, and end with the label of your verdict."
VERDICT_PATTERN = r"\[\[([AB<>=]+)\]\]"
_TOKENIZER = "gpt-3.5-turbo"


@dataclass(frozen=True)
class Inputs:
    """The benchmark's files, and the settings of its judge."""

    questions: tuple[Question, ...]
    baseline: Answers
    system_prompt: str
    templates: tuple[str, ...]
    temperature: float
    max_tokens: int
    attempts: int


@dataclass(frozen=True)
class Game:
    """One game of one question, and the request that judges it. Games count from 0."""

    prompt_id: str
    game: int
    request: ChatRequest


_FOLDERS = ("", "arena_hard/", "data/arena-hard-v0.1/", "arena-hard-v0.1/")


def questions_in(data: Path) -> tuple[Question, ...]:
    """Read the questions from a folder of the benchmark's files.

    Raises:
        UserError: They are not there or have another form.
    """
    names = [f"{folder}question.jsonl" for folder in _FOLDERS]
    return read_questions(locate(data, "Arena-Hard's questions", names), turns=1)


def read_inputs(data: Path) -> Inputs:
    """Read the benchmark's files from a folder.

    Raises:
        UserError: A file is absent or has another form, or the baseline did not answer all.
    """
    questions = questions_in(data)
    names = (f"answer_{BASELINE}.jsonl", f"model_answer/{BASELINE}.jsonl")
    answers = read_answers(
        locate(data, "the baseline's answers", [f + name for f in _FOLDERS for name in names]),
        BASELINE,
    )
    answers.to(questions)
    path = locate(
        data,
        "Arena-Hard's judge settings",
        [
            *(f"{f}judge_config.yaml" for f in _FOLDERS),
            "config/judge_config.yaml",
            "../../config/judge_config.yaml",
        ],
    )
    return Inputs(questions, answers, **_settings(path))


def requests(inputs: Inputs, answers: Answers, judge: str) -> list[Game]:
    """Return the requests that judge a model's answers, a question's two games together.

    Raises:
        UserError: A question has no answer.
    """
    own, other = answers.to(inputs.questions), inputs.baseline.to(inputs.questions)
    games = []
    for question, answer, baseline in zip(inputs.questions, own, other, strict=True):
        shown = (baseline.turns[0], answer.turns[0])
        for game in range(GAMES_PER_PROMPT):
            first, second = shown if game == 0 else shown[::-1]
            fields = {"question_1": question.turns[0], "answer_1": first, "answer_2": second}
            users = (Message("user", fill(template, fields)) for template in inputs.templates)
            request = ChatRequest(
                label=f"question {question.prompt_id}, game {game + 1}",
                model=judge,
                messages=(Message("system", inputs.system_prompt), *users),
                settings={"temperature": inputs.temperature, "max_tokens": inputs.max_tokens},
            )
            games.append(Game(question.prompt_id, game, request))
    return games


def judge_text(client: Client, item: Game, attempts: int) -> str:
    """Return the judge's replies to one game, followed up until one holds a verdict."""
    text, request = "", item.request
    for attempt in range(attempts):
        reply = client.ask(request).text
        text += "\n" + reply
        if attempt + 1 == attempts or not parse_verdict(text).retry:
            break
        said = (Message("assistant", reply), Message("user", FOLLOW_UP))
        request = replace(request, messages=request.messages + said)
    return text.removeprefix("\n")


def judgments(
    games: Sequence[Game], outcomes: Sequence[Outcome[str]], model: str, judge: str
) -> list[dict[str, Any]]:
    """Return judgments in the benchmark's own form; a game without a verdict has the score null."""
    by_prompt: dict[str, list[dict[str, Any]]] = {}
    for item, outcome in zip(games, outcomes, strict=True):
        game = {
            "user_prompt": item.request.messages[-1].content,
            "judgment": outcome.result or "",
            "score": parse_verdict(outcome.result or "").label,
        }
        game |= {} if outcome.failure is None else {"error": outcome.failure}
        by_prompt.setdefault(item.prompt_id, []).append(game)
    return [
        {"question_id": prompt_id, "model": model, "judge": judge, "games": played}
        for prompt_id, played in by_prompt.items()
    ]


def answer_tokens(answers: Answers) -> dict[str, int] | None:
    """Return the length of every answer in tokens, or None where nothing here can count them.

    Lengths in the file are taken as they are. Else the benchmark's tokenizer counts, if it is
    installed and has its vocabulary.
    """
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


def _settings(path: Path) -> dict[str, Any]:
    config = read_yaml(path)
    config = config if isinstance(config, dict) else {}
    templates = config.get("prompt_template")
    templates = [templates] if isinstance(templates, str) else templates
    system = config.get("system_prompt")
    if not isinstance(system, str) or not isinstance(templates, list) or not templates:
        raise UserError(f"{path} has no system_prompt or prompt_template; use the benchmark's file")
    expected = {
        "baseline_model": BASELINE,
        "regex_pattern": VERDICT_PATTERN,
        "pairwise": True,
    }
    for name, value in expected.items():
        if config.get(name, value) != value:
            raise UserError(f"{path} has {name}: {config[name]!r}; Arena-Hard v0.1 has {value!r}")
    try:
        return {
            "system_prompt": system,
            "templates": tuple(str(template) for template in templates),
            "temperature": config.get("temperature", 0),
            "max_tokens": int(config.get("max_tokens", 4096)),
            "attempts": max(1, int(config.get("number_of_judgment_attempts", 2))),
        }
    except (TypeError, ValueError, OverflowError) as error:
        raise UserError(f"{path} has a setting that is no number ({error}); repair it") from error
