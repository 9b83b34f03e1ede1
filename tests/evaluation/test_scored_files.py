"""Judgments scored by hand: which field decides, what is missing, what has an interval."""

from typing import Any, ClassVar

import numpy as np
import pytest

from harness.errors import UserError
from harness.evaluation.benchmark import RatedBenchmark
from harness.evaluation.benchmarks.arena_hard import BASELINE, OWN_JUDGE, ArenaHard
from harness.evaluation.benchmarks.mt_bench import MtBench
from harness.evaluation.files import Answers, Question
from harness.evaluation.scores import Evaluation

MT, ARENA = MtBench(), ArenaHard()
NOBODY = Answers("m", {})


def rating(question: str, turn: int, **said: Any) -> dict[str, Any]:
    return {"question_id": question, "model": "m", "judge": "gpt-4", "turn": turn, **said}


def battle(question: str, a: str, b: str, winner: str) -> dict[str, Any]:
    return {"question_id": question, "model_a": a, "model_b": b, "winner": winner}


def test_a_rating_is_the_file_s_else_what_the_judge_wrote() -> None:
    """Of 8, a written 4, and -1 beside a written 9, the average is (8 + 4) / 2.

    Missing are the -1 and the second turn of question 2, which the file does not have.
    """
    records = [
        rating("1", 1, score=8, judgment="[[3]]"),
        rating("1", 2, judgment="[[4]]"),
        rating("2", 1, score=-1, judgment="[[9]]"),
    ]
    (found,) = MT.evaluations(records)
    assert (found.scores["average"], found.n_missing) == (6.0, 2)


def test_a_rating_above_ten_is_none() -> None:
    """Missing are the 10.5 and both second turns."""
    (found,) = MT.evaluations([rating("1", 1, score=10), rating("2", 1, score=10.5)])
    assert (found.scores["turn_1"], found.n_missing) == (10.0, 3)


def test_a_comparison_is_a_rating_from_one_to_ten() -> None:
    """Lost, tied and won are the ends of the scale and its middle; an unknown one is missing."""
    better = {("1", 1): 0.0, ("1", 2): 0.5, ("2", 1): 1.0, ("2", 2): None}
    records = MT.comparison_records(NOBODY, "rm", better)
    assert [record["score"] for record in records] == [1.0, 5.5, 10.0, -1]
    (found,) = MT.evaluations(records)
    assert (found.scores["turn_1"], found.scores["turn_2"], found.n_missing) == (5.5, 5.5, 1)


@pytest.mark.parametrize(
    ("games", "won", "missing"),
    [
        # The baseline is A in the first game, the model in the second: two wins, then two losses.
        ([{"score": "B>A"}, {"score": "A>B"}], 100.0, 0),
        ([{"score": "A>B"}, {"score": "B>A"}], 0.0, 0),
        # A strong loss counts three times: one win of four.
        ([{"score": "A>>B"}, {"score": "A>B"}], 25.0, 0),
        # The field decides, even null; without it, the text.
        ([{"score": None, "judgment": "[[A>B]]"}, {"score": "A>B"}], 100.0, 1),
        ([{"judgment": "[[A>B]]"}, {"score": "A>B"}], 50.0, 0),
        # A game that was not played is missing.
        ([{"score": "B>A"}], 100.0, 1),
    ],
)
def test_a_game_is_won_by_its_label(games: list[Any], won: float, missing: int) -> None:
    record = {"question_id": "1", "model": "m", "judge": OWN_JUDGE, "games": games}
    (found,) = ARENA.evaluations([record])
    assert (found.scores["win_rate"], found.n_missing) == (won, missing)


def test_battles_are_won_by_either_side() -> None:
    """Won as B, tied as A, lost as B: 1.5 of 3; the baseline is on both sides."""
    records = [
        battle("1", BASELINE, "m", "model_b"),
        battle("2", "m", BASELINE, "tie"),
        battle("3", BASELINE, "m", "model_a"),
        battle("1", "other", BASELINE, "model_a"),
    ]
    found = {one.model: one.scores["win_rate"] for one in ARENA.evaluations(records)}
    assert found == {"m": 50.0, "other": 100.0}


def evaluation(values: list[float], **judge: Any) -> Evaluation:
    n = len(values)
    ids = tuple(map(str, range(n)))
    return Evaluation("b", "m", {"score": 0.0}, n, 0, ids, {"score": np.array(values)}, **judge)


def test_a_score_of_two_prompts_has_an_interval_and_of_one_none() -> None:
    """Two prompts, 1 apart: 0.5 +- t(0.975, 1) sqrt(0.5 / 2), which is 0.5 +- 12.706 / 2."""
    low, high = evaluation([0.0, 1.0]).intervals["score"] or (0.0, 0.0)
    assert [low, high] == pytest.approx([-5.853, 6.853], abs=1e-3)
    assert evaluation([1.0]).intervals == {"score": None}


def test_a_score_by_another_judge_is_named_after_it() -> None:
    judges: list[dict[str, str]] = [
        {},
        {"judge": "a", "own_judge": "a"},
        {"judge": "b", "own_judge": "a"},
        {"judge": "b"},
    ]
    names = [evaluation([1.0], **judge).columns["score"] for judge in judges]
    assert names == ["score", "score", "score@b", "score"]


class Brevity(RatedBenchmark):
    """A plug-in's benchmark."""

    name = "brevity"
    own_judge = "gpt-4"
    columns: ClassVar = {"rating": "brevity"}
    prompt = read = None  # type: ignore[assignment]


def test_ratings_are_held_against_the_questions() -> None:
    """Of three questions one is rated; a rating of a fourth is refused."""
    questions = [Question(str(i), "", ("x",)) for i in (1, 2, 3)]
    (found,) = Brevity.evaluations([rating("1", 1, score=4)], questions)
    assert (found.scores["rating"], found.n, found.n_missing) == (4.0, 1, 2)
    with pytest.raises(UserError, match="1 judged prompts are not in the benchmark"):
        Brevity.evaluations([rating("99", 1, score=4)], questions)
