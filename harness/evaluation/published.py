"""The benchmarks' own file formats, read into the scorers' records.

Published judgments come as JSON lines (Arena-Hard battles and judgments, MT-Bench judgments) or
one JSON list (AlpacaEval annotations). A file may hold several models.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from harness.errors import UserError
from harness.evaluation.alpaca_eval import Preference
from harness.evaluation.arena_hard import Battle, Winner, battle, parse_verdict
from harness.evaluation.mt_bench import Rating, parse_rating
from harness.foreign import ForeignTextError, read_json, read_plain

Record = Mapping[str, Any]

_WINNERS: dict[str, Winner] = {
    "model_a": "model_a",
    "model_b": "model_b",
    "tie": "tie",
    "tie (bothbad)": "tie",
}
_UNRATED = -1


def read_records(path: Path) -> list[dict[str, Any]]:
    """Read a file of JSON lines, or of one JSON list, into a list of objects.

    Raises:
        UserError: The file cannot be read, is empty, or a line is not a JSON object.
    """
    try:
        text = read_plain(path).decode("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"Cannot read {path}: {error}; give a file of judgments.") from error
    if text.lstrip().startswith("["):
        records = [_load(text, f"{path}")]
        records = records[0] if isinstance(records[0], list) else records
    else:
        lines = enumerate(text.split("\n"), start=1)
        records = [_load(line, f"line {i} of {path}") for i, line in lines if line.strip()]
    if not records or not all(isinstance(record, dict) for record in records):
        raise UserError(f"{path} does not hold JSON objects; give a file of judgments.")
    return records


def battles_from_battles(records: Iterable[Record]) -> list[Battle]:
    """Read Arena-Hard battles, already weighted: a strong verdict is there three times.

    Raises:
        UserError: A field is absent or a winner unknown.
    """
    battles = []
    for index, record in enumerate(records):
        winner = str(_field(record, index, "winner"))
        if winner not in _WINNERS:
            raise UserError(
                f"Battle {index + 1} has the winner {winner!r}; it must be one of "
                f"{', '.join(_WINNERS)}."
            )
        prompt_id = str(_field(record, index, "question_id"))
        first, second = (str(_field(record, index, name)) for name in ("model_a", "model_b"))
        battles.append(Battle(prompt_id, first, second, _WINNERS[winner]))
    return battles


def battles_from_judgments(records: Iterable[Record], baseline: str) -> list[Battle]:
    """Read Arena-Hard judgments: two games each, the baseline shown as A in the first.

    The verdict is the file's `score`; a game without that field has its text parsed. A game that
    is not there counts as one without a verdict.

    Raises:
        UserError: A field is absent, or a judgment has more than two games.
    """
    battles = []
    for index, record in enumerate(records):
        prompt_id = str(_field(record, index, "question_id"))
        model = str(_field(record, index, "model"))
        games = _field(record, index, "games")
        if not isinstance(games, list) or len(games) > 2:
            raise UserError(f"Judgment {index + 1} must have a list of two games.")
        for position, (first, second) in enumerate(((baseline, model), (model, baseline))):
            label = _label(games[position], index) if position < len(games) else None
            battles.append(battle(prompt_id, first, second, label))
    return battles


def ratings_from_judgments(records: Iterable[Record]) -> dict[str, list[Rating]]:
    """Read MT-Bench single-answer judgments, by model.

    The rating is the file's `score`, -1 where there is none; a judgment without that field has its
    text parsed.

    Raises:
        UserError: A field is absent or not a number.
    """
    ratings: dict[str, list[Rating]] = {}
    for index, record in enumerate(records):
        if "score" in record:
            score = _number(record["score"], index, "score")
            rating = None if score == _UNRATED else score
        else:
            rating = parse_rating(str(_field(record, index, "judgment")))
        turn = _field(record, index, "turn")
        if not isinstance(turn, int):
            raise UserError(f"Judgment {index + 1} has the turn {turn!r}; it must be 1 or 2.")
        model = str(_field(record, index, "model"))
        prompt_id = str(_field(record, index, "question_id"))
        ratings.setdefault(model, []).append(Rating(prompt_id, turn, rating))
    return ratings


def preferences_from_annotations(records: Iterable[Record]) -> dict[str, list[Preference]]:
    """Read AlpacaEval annotations, by model (`generator_2`).

    Lengths are in characters, as in the benchmark. The files number nothing: a prompt's id is a
    digest of its instruction, with a count where an instruction comes again.

    Raises:
        UserError: A field is absent or not a number.
    """
    preferences: dict[str, list[Preference]] = {}
    seen: dict[tuple[str, str], int] = {}
    for index, record in enumerate(records):
        model = str(_field(record, index, "generator_2"))
        instruction = str(_field(record, index, "instruction"))
        digest = hashlib.sha256(instruction.encode()).hexdigest()[:16]
        count = seen[model, digest] = seen.get((model, digest), 0) + 1
        lengths = [len(str(_field(record, index, f"output_{side}"))) for side in (1, 2)]
        preferences.setdefault(model, []).append(
            Preference(
                prompt_id=digest if count == 1 else f"{digest}-{count}",
                preference=_number(_field(record, index, "preference"), index, "preference"),
                length_difference=float(lengths[1] - lengths[0]),
            )
        )
    return preferences


def _label(game: Any, index: int) -> str | None:
    if not isinstance(game, dict):
        raise UserError(f"Judgment {index + 1} has a game that is not an object.")
    if "score" in game:
        return None if game["score"] is None else str(game["score"])
    return parse_verdict(str(_field(game, index, "judgment"))).label


def _load(text: str, where: str) -> Any:
    try:
        return read_json(text)
    except ForeignTextError as error:
        raise UserError(f"{where} is not JSON ({error}); repair or remove it.") from error


def _field(record: Record, index: int, name: str) -> Any:
    if name not in record:
        raise UserError(f"Record {index + 1} has no field {name!r}; give a file of judgments.")
    return record[name]


def _number(value: Any, index: int, name: str) -> float | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise UserError(f"Record {index + 1} has the {name} {value!r}; it must be a number.")
    return float(value)
