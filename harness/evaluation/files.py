"""Fetching (on command, pinned, with a known digest) and reading a benchmark's own files."""

from __future__ import annotations

import hashlib
import http.client
import re
import urllib.request
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from harness.errors import HarnessError, UserError
from harness.foreign import ForeignTextError, in_a_line, read_json, read_plain, reason_of
from harness.runtime.files import explained, sha256_of, write_whole

Record = Mapping[str, Any]

TIMEOUT_S = 60.0


@dataclass(frozen=True)
class Question:
    """A question: id, category, and the user's message in each turn."""

    prompt_id: str
    category: str
    turns: tuple[str, ...]


@dataclass(frozen=True)
class Answer:
    """A model's answer: one text per turn, and its length in tokens if the file has it."""

    turns: tuple[str, ...]
    tokens: int | None = None


@dataclass(frozen=True)
class Answers:
    model: str
    by_prompt: Mapping[str, Answer]

    def to(self, questions: Sequence[Question]) -> list[Answer]:
        """Return the answers to the given questions, in their order."""
        lacking = [
            question.prompt_id
            for question in questions
            if len(self.by_prompt.get(question.prompt_id, Answer(())).turns) < len(question.turns)
        ]
        if lacking:
            raise UserError(
                f"{len(lacking)} of {len(questions)} questions have no answer of {self.model} "
                f"(first: {lacking[0]}); give the answers to all of them"
            )
        return [self.by_prompt[question.prompt_id] for question in questions]


def conversation(question: Question, said: Sequence[str]) -> list[dict[str, str]]:
    """Return the chat up to the user's next turn, including the answers in `said`."""
    found = []
    for user, assistant in zip(question.turns, said, strict=False):
        found += [{"role": "user", "content": user}, {"role": "assistant", "content": assistant}]
    return [*found, {"role": "user", "content": question.turns[len(said)]}]


@dataclass(frozen=True)
class HomeFile:
    """A benchmark file: local name, public URL at a pinned revision, and SHA-256."""

    name: str
    url: str
    sha256: str


def fetch(file: HomeFile, folder: Path) -> bool:
    """Fetch a file into a folder; return whether it was there before."""
    path = folder / file.name
    if path.is_file() and sha256_of(path) == file.sha256:
        return True
    content = _fetched(file)
    with explained("fetching a benchmark", folder):
        write_whole(path, content)
    return False


def _fetched(file: HomeFile) -> bytes:
    try:
        with urllib.request.urlopen(file.url, timeout=TIMEOUT_S) as response:
            content: bytes = response.read()
    except (OSError, http.client.HTTPException) as error:
        raise HarnessError(
            f"Cannot fetch {file.url} ({in_a_line(str(error))}); fetch it elsewhere and name its "
            "folder with --data"
        ) from error
    digest = hashlib.sha256(content).hexdigest()
    if digest != file.sha256:
        raise HarnessError(
            f"{file.url} has the digest {digest}, not {file.sha256}, and is not kept; it is not "
            "the file this project knows"
        )
    return content


def path_part(name: str) -> str:
    """Return a model's or judge's name as a single path component."""
    return re.sub(r"[^\w.@+-]+", "_", name).lstrip(".") or "_"


def locate(data: Path, name: str, what: str) -> Path:
    if (data / name).is_file():
        return data / name
    raise UserError(f"{data} does not hold {what}; it should be there as {name}")


def read_questions(path: Path, turns: int) -> tuple[Question, ...]:
    """Read JSON lines with `question_id` or `uid`, `category`, and `turns` or `prompt`."""
    questions: dict[str, Question] = {}
    for index, record in enumerate(read_records(path)):
        where = f"question {index + 1} of {path.name}"
        prompt_id = _id(record, where)
        texts = tuple(_texts(record.get("turns", record.get("prompt")), where))
        if len(texts) != turns or prompt_id in questions:
            raise UserError(f"{where} has {len(texts)} turns of {turns}, or comes twice; repair it")
        questions[prompt_id] = Question(prompt_id, str(record.get("category", "")), texts)
    return tuple(questions.values())


def read_answers(path: Path, model: str | None = None) -> Answers:
    """Read one model's answers; `model` selects it if the file has several."""
    by_model: dict[str, list[tuple[str, dict[str, Any]]]] = {}
    for index, record in enumerate(read_records(path)):
        name = str(record.get("model_id", record.get("model", model or path.stem)))
        by_model.setdefault(name, []).append((f"answer {index + 1} of {path.name}", record))
    if len(by_model) > 1 and model not in by_model:
        raise UserError(
            f"{path} has the answers of {len(by_model)} models ({', '.join([*by_model][:5])}); "
            "name one with --model"
        )
    name = str(model) if len(by_model) > 1 else next(iter(by_model))
    answers: dict[str, Answer] = {}
    for where, record in by_model[name]:
        prompt_id = _id(record, where)
        if prompt_id in answers:
            raise UserError(f"{path} answers question {prompt_id} twice; keep one of them")
        answers[prompt_id] = _answer(record, where)
    return Answers(model or name, answers)


def _id(record: Record, where: str) -> str:
    found = record.get("question_id", record.get("uid"))
    if not isinstance(found, str | int):
        raise UserError(f"{where} has no question_id or uid; repair or remove it")
    return str(found)


def _answer(record: Record, where: str) -> Answer:
    try:
        turns, tokens = _turns(record)
    except (AttributeError, KeyError, TypeError) as error:
        raise UserError(f"{where} is not in a benchmark's format; repair or remove it") from error
    return Answer(tuple(_texts(turns, where)), tokens if isinstance(tokens, int) else None)


def _turns(record: Record) -> tuple[Any, Any]:
    """Return an answer's turns and its number of tokens, as they stand in the record."""
    tokens: Any = None
    if isinstance(messages := record.get("messages"), list):
        contents = [m["content"] for m in messages if m.get("role") == "assistant"]
        turns: Any = [c.get("answer") if isinstance(c, Mapping) else c for c in contents]
        tokens = (record.get("metadata") or {}).get("token_len")
    else:
        choices = record.get("choices")
        turns = choices[0].get("turns") if isinstance(choices, list) and choices else None
        if isinstance(turns, list) and len(turns) == 1 and isinstance(turns[0], Mapping):
            tokens = turns[0].get("token_len")
    return turns, tokens


def _texts(turns: object, where: str) -> list[str]:
    """Return the texts of turns: a string, or a list of strings or objects with `content`."""
    listed = [turns] if isinstance(turns, str) else turns
    if not isinstance(listed, list) or not listed:
        raise UserError(f"{where} has no turns; repair or remove it")
    found = [turn.get("content") if isinstance(turn, Mapping) else turn for turn in listed]
    texts = [text for text in found if isinstance(text, str)]
    if len(texts) < len(found):
        raise UserError(f"{where} has a turn that is not text; repair or remove it")
    return texts


def records_by(records: Sequence[Record], name: str) -> dict[str | None, list[Record]]:
    """Group records by the name in a field; MT-Bench's judge is the first of a list."""
    found: dict[str | None, list[Record]] = {}
    for record in records:
        value = record.get(name)
        value = value[0] if isinstance(value, list) and value else value
        found.setdefault(value if isinstance(value, str) else None, []).append(record)
    return found


def fill(template: str, fields: Mapping[str, str]) -> str:
    """Fill the `{name}` placeholders in a judge prompt."""
    try:
        return template.format_map(fields)
    except KeyError as error:
        raise UserError(
            f"A judge prompt asks for {{{error.args[0]}}}, which this benchmark does not have; use "
            "the benchmark's own prompts"
        ) from error
    except (ValueError, LookupError, AttributeError, TypeError) as error:
        raise UserError(
            f"A judge prompt cannot be filled ({error}); write a brace that is not a field twice"
        ) from error


def read_records(path: Path) -> list[dict[str, Any]]:
    """Read a file of JSON lines, or one JSON list, into a list of objects."""
    try:
        text = read_plain(path).decode("utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        why = reason_of(error)
        raise UserError(f"Cannot read {path}: {why}; give JSON lines, or a JSON list") from error
    if text.lstrip().startswith("["):
        records = _load(text, f"{path}")
    else:
        lines = enumerate(text.split("\n"), start=1)
        records = [_load(line, f"line {i} of {path}") for i, line in lines if line.strip()]
    if not records or not all(isinstance(record, dict) for record in records):
        raise UserError(f"{path} does not hold JSON objects; give one a line, or a list.")
    return list(records)


def _load(text: str, where: str) -> Any:
    try:
        return read_json(text)
    except ForeignTextError as error:
        raise UserError(f"{where} is not JSON ({error}); repair or remove it.") from error


class Published(BaseModel):
    """Base for records that others wrote; unknown fields are ignored."""

    model_config = ConfigDict(frozen=True, coerce_numbers_to_str=True)


Shape = TypeVar("Shape", bound=Published)

Number = Annotated[float, Field(strict=True)]
"""A JSON number, not a string or a boolean."""


def read_as(shape: type[Shape], records: Iterable[Record]) -> list[Shape]:
    found = []
    for number, record in enumerate(records, start=1):
        try:
            found.append(shape.model_validate(record))
        except ValidationError as error:
            first = error.errors()[0]
            where = ".".join(map(str, first["loc"]))
            said = in_a_line(f"Record {number} has the wrong {where}: {first['msg']}")
            raise UserError(f"{said}; correct the file") from error
    return found
