"""Scores that others published, from their judgments, and the files' broken forms."""

import hashlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from published import judgments
from scipy.special import expit
from sklearn.linear_model import LogisticRegression

from harness.errors import UserError
from harness.evaluation.benchmarks.alpaca_eval import (
    preferences_from_annotations,
    score_preferences,
)
from harness.evaluation.benchmarks.arena_hard import (
    games_from_battles,
    games_from_judgments,
    score_games,
)
from harness.evaluation.benchmarks.mt_bench import ratings_from_judgments, score_ratings
from harness.evaluation.files import read_records

BASELINE = judgments.BASELINE
FILES = ("alpaca_eval.csv", "arena_hard.csv", "mt_bench.csv")
SPPO, BASE = "gemma-2-9b-it-sppo-iter-1", "gemma-2-9b-it-sppo-iter-0"


def test_arena_hard_of_the_paper() -> None:
    games = games_from_battles(judgments.arena_hard())
    score = score_games(games[SPPO], SPPO)
    assert score.scores["win_rate"] == pytest.approx(55.7, abs=0.05)
    assert score_games(games[BASE], BASE).scores["win_rate"] == pytest.approx(54.6, abs=0.05)
    assert (score.n, score.n_missing) == (500, 0)
    assert score.values["win_rate"].mean() == pytest.approx(score.scores["win_rate"])


def test_arena_hard_agrees_with_the_benchmark_s_regression_over_all_models() -> None:
    """The benchmark doubles every battle, a tie as a win for each, and fits all models at once."""
    by_model = games_from_battles(judgments.arena_hard())
    rows, labels = [], []
    for at, games in enumerate(by_model.values()):
        for game in games:
            assert game.value is not None
            rows += [np.eye(len(by_model))[at]] * 2
            labels += [int(game.value > 0.0), int(game.value == 1.0)]
    fit = LogisticRegression(fit_intercept=False, C=np.inf, tol=1e-10, max_iter=500)
    ratings = fit.fit(np.array(rows), labels).coef_[0]
    for (name, games), rating in zip(by_model.items(), ratings, strict=True):
        score = score_games(games, name)
        assert score.scores["win_rate"] == pytest.approx(100 * expit(rating), abs=1e-2)


@pytest.mark.parametrize(
    ("model", "average", "turn_1", "turn_2", "missing"),
    [(BASE, 8.57, 8.81, 8.32, 1), (SPPO, 8.62, 9.03, 8.21, 0)],
)
def test_mt_bench_of_the_paper(
    model: str, average: float, turn_1: float, turn_2: float, missing: int
) -> None:
    """The paper rounds halves up: turn 1 of SPPO is 9.025, turn 2 8.2125."""
    records = judgments.mt_bench(model)
    prompts = list(dict.fromkeys(str(record["question_id"]) for record in records))
    score = score_ratings(ratings_from_judgments(records), model, prompts)
    expected = {"average": average, "turn_1": turn_1, "turn_2": turn_2}
    assert score.scores == pytest.approx(expected, abs=0.005 + 1e-9)
    assert (score.n, score.n_missing) == (80, missing)


@pytest.mark.parametrize(
    ("model", "printed"),
    [
        ("alpaca-7b", 2.591450540223603),
        ("gemma-7b-it", 6.937294379677018),
        ("FuseChat-Gemma-2-9B-Instruct", 70.49713534560247),
    ],
)
def test_alpaca_eval_win_rates_of_the_leaderboard(model: str, printed: float) -> None:
    preferences, lengths = preferences_from_annotations(judgments.alpaca_eval(model))
    score = score_preferences(preferences, model, lengths=lengths)
    assert score.scores["win_rate"] == pytest.approx(printed, abs=1e-6)
    assert (score.n, score.n_missing) == (805, 0)
    column = "length_controlled_win_rate"
    assert score.values[column].mean() == pytest.approx(score.scores[column], abs=1e-9)


def test_the_numbers_are_those_of_the_published_files(
    shared_dir: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(judgments, "HERE", tmp_path)
    judgments.make(shared_dir / "benchmarks")
    kept = Path(judgments.__file__).parent
    for name in FILES:
        assert (tmp_path / name).read_bytes() == (kept / name).read_bytes()


def test_the_numbers_have_the_digests_that_are_said() -> None:
    folder = Path(judgments.__file__).parent
    said = (folder / "README.md").read_text("utf-8")
    for name in FILES:
        assert hashlib.sha256((folder / name).read_bytes()).hexdigest() in said


@pytest.mark.parametrize("text", ["", "{", "[1, 2]", "{}\nnull\n", "[" * 100_000])
def test_a_file_that_holds_no_records_is_one_sentence(tmp_path: Path, text: str) -> None:
    path = tmp_path / "ratings.jsonl"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(UserError, match=r"ratings\.jsonl (does not hold JSON objects|is not JSON)"):
        read_records(path)


BATTLE = {"question_id": "q", "model_a": "m", "model_b": "n", "winner": "model_a"}
RATED = {"question_id": "q", "score": 10, "turn": 1}


@pytest.mark.parametrize(
    ("read", "record", "says"),
    [
        (games_from_battles, BATTLE | {"winner": "nobody"}, "wrong winner"),
        (games_from_battles, BATTLE, "not against the baseline gpt-4-0314"),
        (games_from_judgments, {"question_id": 1, "model": "m"}, "wrong games"),
        (games_from_judgments, {"question_id": "q", "games": [{}] * 3}, "wrong games"),
        (ratings_from_judgments, RATED | {"score": "ten"}, "wrong score"),
        (ratings_from_judgments, RATED | {"turn": "one"}, "wrong turn"),
        (preferences_from_annotations, {"instruction": "i"}, "wrong output_1"),
    ],
)
def test_a_record_of_another_form_is_one_sentence(
    read: Callable[[list[dict[str, object]]], object], record: dict[str, object], says: str
) -> None:
    with pytest.raises(UserError, match=says):
        read([record])
