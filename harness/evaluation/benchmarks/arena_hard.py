"""Arena-Hard v0.1: two games for each question against one fixed model, scored as a win rate.

The baseline's answer is shown as A in the first game, as B in the second. The judge ends with one
of five labels; where nothing looks like a verdict it is asked to go on, in a sentence of ours, and
all its replies are read as one text. A strong verdict counts three times, a tie half a win for each
side. The score is the weighted share of wins: what the benchmark's Bradley-Terry fit gives where
models met the baseline alone. Its interval resamples questions, because the games of a question and
the copies of a strong verdict are not independent.

Source: Arena-Hard-Auto v0.1, `gen_judgment.py` (requests, verdicts), `config/judge_config.yaml`
(settings), `show_result.py` (weights, score); lmarena/arena-hard-auto (leaderboard).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np

from harness.endpoint.request import ChatRequest, Message, Reply
from harness.errors import HarnessError, UserError
from harness.evaluation import files
from harness.evaluation.benchmark import (
    NOT_INSTALLED,
    Benchmark,
    Better,
    Item,
    Questions,
    Records,
    Replied,
)
from harness.evaluation.scores import (
    Evaluation,
    FloatArray,
    Interval,
    prompt_order,
    ratio_values,
)
from harness.registry.documents import read_yaml
from harness.runtime.stage import Json

if TYPE_CHECKING:
    from harness.endpoint.client import Client, ServedModel

OWN_JUDGE = "gpt-4-1106-preview"
BASELINE = "gpt-4-0314"
ANSWER_TOKENS = 4096
BOOTSTRAP_SEED = 0
STRONG_VERDICT_WEIGHT = 3.0

FOLLOW_UP = "Go on from here, and end with the label of your verdict."
VERDICT_PATTERN = r"\[\[([AB<>=]+)\]\]"
_TOKENIZER = "gpt-3.5-turbo"
_ARENA = "https://raw.githubusercontent.com/lmarena/arena-hard-auto"
_ARENA_DATA = f"{_ARENA}/196f6b826783b3da7310e361a805fa36f0be83f3/data/arena-hard-v0.1"

Winner = Literal["model_a", "model_b", "tie"]

_LABELS: dict[str, tuple[Winner, float]] = {
    "A>>B": ("model_a", STRONG_VERDICT_WEIGHT),
    "A>B": ("model_a", 1.0),
    "A=B": ("tie", 1.0),
    "B>A": ("model_b", 1.0),
    "B>>A": ("model_b", STRONG_VERDICT_WEIGHT),
}
_WINNERS: dict[str, Winner] = {
    "model_a": "model_a",
    "model_b": "model_b",
    "tie": "tie",
    "tie (bothbad)": "tie",
}
_COMPARED: dict[float | None, tuple[str | None, str | None]] = {
    1.0: ("B>A", "A>B"),
    0.5: ("A=B", "A=B"),
    0.0: ("A>B", "B>A"),
    None: (None, None),
}
"""The labels of both games by how a reward model compares the answers."""


@dataclass(frozen=True)
class Inputs:
    """The benchmark's files, and the settings of its judge."""

    questions: tuple[files.Question, ...]
    baseline: files.Answers
    system_prompt: str
    templates: tuple[str, ...]
    temperature: float
    max_tokens: int
    attempts: int


@dataclass(frozen=True)
class Verdict:
    """What a judge's text says: one of the five labels, or none or several.

    Where nothing looks like a verdict, asking the judge to finish may help.
    """

    label: str | None
    retry: bool


@dataclass(frozen=True)
class Battle:
    """One comparison of two models on one prompt, by what the verdict calls them.

    The winner is None where the verdict could not be read; an outcome may count several times.
    """

    prompt_id: str
    model_a: str
    model_b: str
    winner: Winner | None
    weight: float = 1.0


class ArenaHard(Benchmark):
    """Arena-Hard v0.1: judge answers to 500 questions, or score a file of verdicts."""

    name = "arena_hard"
    own_judge = OWN_JUDGE
    against = BASELINE
    columns: ClassVar[Mapping[str, str]] = {"win_rate": "ah_wr", "answer_tokens": "ah_len"}
    package = "tiktoken"
    verdicts = 2
    reply_tokens = 700  # the judge answers the question itself first
    homes = (
        files.HomeFile(
            "question.jsonl",
            f"{_ARENA_DATA}/question.jsonl",
            "2650242d2883f22b2abd498f273b6a7e02253cce533f5c91a858e1d44aa3002f",
        ),
        files.HomeFile(
            # The digest is that of the published copy; nobody else is known to report it.
            "answer_gpt-4-0314.jsonl",
            f"{_ARENA_DATA}/model_answer/gpt-4-0314.jsonl",
            "0f6abc84de4600fde987d9db70f838f4ecdbd27a2f1f4058c12aa322a6f791b2",
        ),
        files.HomeFile(
            # The digest of a stored copy of this revision; its prompts and settings are those of
            # the copy that the tests read.
            "judge_config.yaml",
            f"{_ARENA}/7f1b7f5dd6ce53e1f8530220ceb452b7019a8056/config/judge_config.yaml",
            "8f6e2a641676ae1453ae6be149b549d92b739564a23a8db27b86c50999fa607e",
        ),
    )
    inputs: Inputs

    @classmethod
    def read_files(cls, data: Path) -> Inputs:
        questions = cls.read_questions(data)
        path = files.locate(data, f"answer_{BASELINE}.jsonl", "the baseline's answers")
        answers = files.read_answers(path, BASELINE)
        answers.to(questions)
        path = files.locate(data, "judge_config.yaml", "Arena-Hard's judge settings")
        return Inputs(questions, answers, **_settings(path))

    @classmethod
    def missing(cls, scored_with: Mapping[str, Json]) -> dict[str, str]:
        absent = scored_with.get("package") == NOT_INSTALLED
        return {"answer_tokens": "install tiktoken, which has the tokenizer"} if absent else {}

    @property
    def references(self) -> dict[str, str]:
        return {p: answer.turns[0] for p, answer in self.inputs.baseline.by_prompt.items()}

    def sampling(self, question: files.Question) -> dict[str, Json]:
        return {"temperature": 0.0, "max_tokens": ANSWER_TOKENS}

    def requests(self, answers: files.Answers, judge: ServedModel) -> list[Item]:
        """Return two requests for each question, one for each game.

        Raises:
            UserError: A question has no answer, or the baseline would meet itself.
        """
        if answers.model == BASELINE:
            raise UserError(
                f"{answers.model} is the baseline of Arena-Hard and cannot meet itself; name "
                "another model"
            )
        inputs, found = self.inputs, []
        own, other = answers.to(inputs.questions), inputs.baseline.to(inputs.questions)
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
                found.append(Item(question.prompt_id, game, request))
        return found

    def ask(self, client: Client, item: Item) -> list[Reply]:
        """Return the judge's replies to one game, followed up until one holds a verdict."""
        replies, request = [client.ask(item.request)], item.request
        while len(replies) < self.inputs.attempts and parse_verdict(_text(replies)).retry:
            said = (Message("assistant", replies[-1].text), Message("user", FOLLOW_UP))
            request = replace(request, messages=request.messages + said)
            replies.append(client.ask(request))
        return replies

    def records(
        self, answers: files.Answers, judge: ServedModel, replied: Replied
    ) -> list[dict[str, Any]]:
        games: dict[str, list[dict[str, Any]]] = {}
        for item, outcome in replied:
            text = _text(outcome.result or [])
            game = {
                "user_prompt": item.request.messages[-1].content,
                "judgment": text,
                "score": parse_verdict(text).label,
            }
            game |= {"error": outcome.failure} if outcome.failure else {}
            games.setdefault(item.prompt_id, []).append(game)
        return [
            {"question_id": prompt, "model": answers.model, "judge": judge.model, "games": played}
            for prompt, played in games.items()
        ]

    def compare_with(self, anchor: files.Answers) -> None:
        """Put other answers in the baseline's place, under its name."""
        baseline = files.Answers(BASELINE, anchor.by_prompt)
        self.inputs = replace(self.inputs, baseline=baseline)

    @property
    def anchor(self) -> files.Answers:  # type: ignore[override]
        """The baseline's answers, or those in their place."""
        return self.inputs.baseline

    def comparison_records(
        self, answers: files.Answers, judge: str, better: Better
    ) -> list[dict[str, Any]]:
        """Return one verdict as both games: a reward model reads one answer, so none is first."""
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
        (score,) = _with_intervals(battles_from_judgments(records, BASELINE), questions)
        return score

    @classmethod
    def evaluations(
        cls, records: Records, questions: Questions = None, data: Path | None = None
    ) -> list[Evaluation]:
        """Score judgments, or battles, which do not say who judged."""
        if "winner" not in records[0]:
            return super().evaluations(records, questions, data)
        scores = _with_intervals(battles_from_battles(records), questions)
        return [replace(score, own_judge=OWN_JUDGE) for score in scores]

    def score(self, records: Records, answers: files.Answers) -> Evaluation:
        """Score verdicts on a model's answers, with their mean length where it can be counted."""
        found, tokens = super().score(records, answers), answer_tokens(answers)
        if tokens is None:
            reason = "the file has no lengths, and tiktoken or its vocabulary is absent"
            return found.without("answer_tokens", reason)
        lengths = np.array([tokens[prompt] for prompt in found.prompts], dtype=np.float64)
        return found.having("answer_tokens", lengths)


def _with_intervals(battles: Sequence[Battle], questions: Questions) -> list[Evaluation]:
    prompts = None if questions is None else [question.prompt_id for question in questions]
    return [
        replace(
            score,
            own_intervals={
                "win_rate": bootstrap_interval(battles, model, BASELINE, BOOTSTRAP_SEED)
            },
        )
        for model, score in score_battles(battles, BASELINE, prompts).items()
    ]


def battles_from_battles(records: Records) -> list[Battle]:
    """Read battles, already weighted: a strong verdict is there three times."""
    battles = []
    for index, record in enumerate(records):
        prompt_id, first, second, winner = (
            str(files.field_of(record, index, name))
            for name in ("question_id", "model_a", "model_b", "winner")
        )
        if winner not in _WINNERS:
            raise UserError(
                f"Battle {index + 1} has the winner {winner!r}; it must be one of "
                f"{', '.join(_WINNERS)}."
            )
        battles.append(Battle(prompt_id, first, second, _WINNERS[winner]))
    return battles


def battles_from_judgments(records: Records, baseline: str) -> list[Battle]:
    """Read judgments in the benchmark's form: two games each, the baseline shown as A in the first.

    The verdict is the file's `score`; a game without that field has its text parsed. A game that
    is not there counts as one without a verdict.
    """
    battles = []
    for index, record in enumerate(records):
        prompt_id = str(files.field_of(record, index, "question_id"))
        model = str(files.field_of(record, index, "model"))
        games = files.field_of(record, index, "games")
        if not isinstance(games, list) or len(games) > 2:
            raise UserError(f"Judgment {index + 1} must have a list of two games.")
        for position, (first, second) in enumerate(((baseline, model), (model, baseline))):
            label = None
            if position < len(games) and "score" in (game := games[position]):
                label = game["score"]
            elif position < len(games):
                label = parse_verdict(str(files.field_of(game, index, "judgment"))).label
            battles.append(battle(prompt_id, first, second, label))
    return battles


def parse_verdict(text: str) -> Verdict:
    """Read the verdict label from a judge's text, as the benchmark does.

    Repeats of the same label are one verdict; different ones are none.
    """
    found = set(re.findall(VERDICT_PATTERN, text))
    if len(found) != 1:
        return Verdict(None, retry=not found)
    label = found.pop()
    return Verdict(label if label in _LABELS else None, retry=False)


def _text(replies: Sequence[Reply]) -> str:
    return "\n".join(reply.text for reply in replies)


def battle(prompt_id: str, model_a: str, model_b: str, label: str | None) -> Battle:
    """Turn a verdict label into a battle; the order shown is in who is A and who is B."""
    winner, weight = _LABELS.get(label or "", (None, 1.0))
    return Battle(prompt_id, model_a, model_b, winner, weight)


def score_battles(
    battles: Iterable[Battle],
    baseline: str,
    prompts: Sequence[str] | None = None,
    answer_tokens: Mapping[str, Mapping[str, int]] | None = None,
) -> dict[str, Evaluation]:
    """Score every model that met the baseline.

    Of the benchmark's prompts, one absent from a model's battles counts as two missing
    judgments; without them, those that were judged are taken. `answer_tokens` has model to
    prompt id to the length of its answer.

    Returns:
        Model to score, columns `win_rate` (percent) and, where given, `answer_tokens`.
    """
    scores = {}
    for model, fought in _by_model(battles, baseline).items():
        order = prompt_order([fight.prompt_id for fight in fought], prompts)
        won, weight = _per_prompt(fought, model, order)
        if not weight.any():
            raise HarnessError(
                f"None of the {len(fought)} verdicts on {model} could be read; look at the judge's "
                "replies."
            )
        judged = {fight.prompt_id for fight in fought}
        unread = sum(fight.winner is None for fight in fought)
        score = Evaluation(
            benchmark=ArenaHard.name,
            model=model,
            scores={"win_rate": float(100.0 * won.sum() / weight.sum())},
            n=int((weight > 0).sum()),
            n_missing=unread + ArenaHard.verdicts * (len(order) - len(judged)),
            prompts=order,
            values={"win_rate": 100.0 * ratio_values(won, weight)},
        )
        if answer_tokens is not None:
            lengths = [answer_tokens[model][prompt] for prompt in order]
            score = score.having("answer_tokens", np.array(lengths, dtype=np.float64))
        scores[model] = score
    return scores


def bootstrap_interval(
    battles: Iterable[Battle],
    model: str,
    baseline: str,
    seed: int,
    rounds: int = 1000,
) -> Interval:
    """Return the 95% percentile bootstrap interval of a win rate, resampling questions.

    Each round is the weighted share of wins over the questions drawn. Questions without a readable
    verdict are not drawn.

    Returns:
        Lower and upper end, in percent; None of fewer than two questions.
    """
    fought = _by_model(battles, baseline)[model]
    won, weight = _per_prompt(fought, model, prompt_order([f.prompt_id for f in fought], None))
    won, weight = won[weight > 0], weight[weight > 0]
    questions = len(won)
    if questions < 2:
        return None
    uniform = np.full(questions, 1.0 / questions)
    drawn = np.random.default_rng(seed).multinomial(questions, uniform, size=rounds)
    tail = (1.0 - 0.95) / 2.0
    low, high = np.quantile(100.0 * (drawn @ won) / (drawn @ weight), [tail, 1.0 - tail])
    return float(low), float(high)


def _by_model(battles: Iterable[Battle], baseline: str) -> dict[str, list[Battle]]:
    by_model: dict[str, list[Battle]] = {}
    for fight in battles:
        sides = {fight.model_a, fight.model_b}
        if baseline not in sides or len(sides) != 2:
            raise UserError(
                f"The battle of {fight.model_a} and {fight.model_b} on prompt {fight.prompt_id} "
                f"is not against the baseline {baseline}; give the baseline the file was made with."
            )
        (model,) = sides - {baseline}
        by_model.setdefault(model, []).append(fight)
    return by_model


def _per_prompt(
    battles: Sequence[Battle], model: str, order: Sequence[str]
) -> tuple[FloatArray, FloatArray]:
    """Return the model's won weight and the total weight of each prompt, shape (prompts,)."""
    position = {prompt: i for i, prompt in enumerate(order)}
    won, weight = np.zeros(len(order)), np.zeros(len(order))
    for fight in battles:
        if fight.winner is None:
            continue
        share = 0.5 if fight.winner == "tie" else float(getattr(fight, fight.winner) == model)
        won[position[fight.prompt_id]] += share * fight.weight
        weight[position[fight.prompt_id]] += fight.weight
    return won, weight


def answer_tokens(answers: files.Answers) -> dict[str, int] | None:
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
    return {
        "system_prompt": system,
        "templates": tuple(str(template) for template in templates),
        "temperature": config.get("temperature", 0),
        "max_tokens": int(config.get("max_tokens", 4096)),
        "attempts": max(1, int(config.get("number_of_judgment_attempts", 2))),
    }
