"""`harness evaluate`: prices before anything is sent, scores, JSON, and mistakes."""

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest
from judge_stand_in import serving, write_answered_mt_bench, write_lines, write_mt_bench

from harness.evaluation.benchmark import benchmark_class
from harness.evaluation.files import HomeFile
from harness.extensions import BENCHMARKS

KEY = "sk-a-key-of-the-tests-0123456789"


@pytest.fixture(autouse=True)
def tracked(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """Collect the evaluations that would be written to MLflow; a key is set."""
    files: list[Path] = []
    monkeypatch.setattr("harness.tracking.Mlflow.attempt", lambda self, records: records())
    monkeypatch.setattr("harness.tracking.evaluation_records", files.extend)
    monkeypatch.setenv("HARNESS_JUDGE_KEY", KEY)
    return files


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Write an MT-Bench of one question, with prompts of its own."""
    return write_answered_mt_bench(tmp_path / "data", 1)


def arguments(data: Path, *more: str) -> list[str]:
    answers = str(data / "answers.jsonl")
    return ["evaluate", "mt_bench", "--data", str(data), "--answers", answers, *more]


def test_a_run_prints_scores_and_runs_again_for_nothing(
    call: Any, says: Any, data: Path, folders: Path, tracked: list[Path]
) -> None:
    with serving(key=KEY) as server:
        command = arguments(data, "--budget-usd", "1")
        (found,) = says(*command)
        assert server.requests == 2
        again = call(*command)
        assert server.requests == 2
    assert (found["benchmark"], found["model"], found["judge"]) == ("mt_bench", "m", "gpt-4")
    assert set(found["scores"]) == {"average", "turn_1", "turn_2"}
    assert (found["n"], found["n_missing"]) == (1, 0)
    assert "0 of 2 judgments to ask gpt-4 for, about $0.0000" in again.stderr
    assert "prices of 2026-11-22: copies" in again.stderr
    assert f"{found['scores']['average']:.2f}" in again.stdout
    assert "2 from the cache" in again.stderr
    written = [path for path in folders.rglob("*") if path.is_file()]
    assert {path.name for path in tracked} == {"evaluation.json"}
    kept = json.loads(tracked[0].read_text())
    assert kept["scores"] == found["scores"]
    assert kept["cost"]["replies"] == 2
    assert (kept["cost"]["prompt_tokens"], kept["cost"]["completion_tokens"]) == (200, 20)
    assert kept["cost"]["usd"] == pytest.approx((200 * 30 + 20 * 60) / 1e6)
    everything = again.stdout + again.stderr + "".join(path.read_text() for path in written)
    assert KEY not in everything


def test_a_reward_model_judges_only_where_there_are_answers_to_compare_with(
    call: Any, data: Path, tmp_path: Path
) -> None:
    plugin = tmp_path / "brief.py"
    plugin.write_text(
        "import harness\n"
        "@harness.reward('brief', version='1')\n"
        "def brief(prompt, answers):\n"
        "    return [-float(len(answer)) for answer in answers]\n"
    )
    asked = ("--plugin", str(plugin), *arguments(data, "--judge", "reward:brief"))
    assert "none to compare with; name a judge that writes" in call(*asked, code=2).stderr


def test_a_budget_that_is_used_up_is_exit_code_1_and_one_sentence(call: Any, data: Path) -> None:
    with serving() as server:
        command = arguments(data, "--budget-usd", "0.01")
        result = call(*command, code=1)
        assert server.requests == 0
    assert result.stdout == ""
    assert "Stopped before the budget of $0.01 is passed" in result.stderr


@pytest.fixture
def ratings(tmp_path: Path) -> Path:
    """Write ratings by a judge of MT-Bench: 4 and 8, which average to 6."""
    records = [
        {"question_id": 1, "model": "m", "judge": ["gpt-4", "x"], "turn": turn, "score": score}
        for turn, score in ((1, 4), (2, 8))
    ]
    return write_lines(tmp_path / "ratings.jsonl", *records)


def test_battles_and_judgments_are_scored_without_a_judge(
    says: Any, ratings: Path, tmp_path: Path
) -> None:
    """Derivation: three copies of a win and one loss are 75%."""
    battle = {"question_id": "p", "model_a": "gpt-4-0314", "model_b": "m"}
    battles = [{**battle, "winner": w} for w in ("model_b", "model_b", "model_b", "model_a")]
    path = write_lines(tmp_path / "battles.jsonl", *battles)
    command = ["evaluate", "arena_hard", "--judgments", str(path)]
    (found,) = says(*command)
    assert found["scores"]["win_rate"] == pytest.approx(75.0)
    assert found["judge"] is None
    (found,) = says(*command, "--judge", "gpt-4o-mini")
    assert found["judge"] == "gpt-4o-mini"
    (found,) = says("evaluate", "mt_bench", "--judgments", str(ratings))
    assert found["scores"] == {"average": 6.0, "turn_1": 4.0, "turn_2": 8.0}
    assert found["judge"] == "gpt-4"


def test_one_model_of_a_file_is_scored_and_a_nameless_one_is_called_as_the_file(
    call: Any, says: Any, tmp_path: Path
) -> None:
    def rated(model: str | None, score: int) -> list[dict[str, Any]]:
        own = {} if model is None else {"model": model}
        judged = {"question_id": 1, "judge": ["gpt-4", "x"], "score": score, **own}
        return [{**judged, "turn": turn} for turn in (1, 2)]

    both = write_lines(tmp_path / "both.jsonl", *rated("a", 4), *rated("b", 8))
    command = ("evaluate", "mt_bench", "--judgments", str(both), "--model")
    (found,) = says(*command, "b")
    assert (found["model"], found["scores"]["average"]) == ("b", 8.0)
    assert "has no judgments of c; it has those of a, b" in call(*command, "c", code=2).stderr
    nameless = write_lines(tmp_path / "mine.jsonl", *rated(None, 5))
    (found,) = says("evaluate", "mt_bench", "--judgments", str(nameless))
    assert found["model"] == "mine"


@pytest.mark.parametrize(
    "answer",
    [
        {"question_id": 1, "choices": ["x"]},
        {"question_id": 1, "messages": ["x"]},
        {"question_id": 1, "messages": [{"role": "assistant"}]},
        {"question_id": 1, "messages": [], "metadata": [1]},
    ],
)
def test_an_answer_in_another_format_is_named(call: Any, data: Path, answer: Any) -> None:
    write_lines(data / "answers.jsonl", answer)
    assert "answer 1 of answers.jsonl" in call(*arguments(data), code=2).stderr


def test_names_that_a_file_gives_are_printed_and_not_obeyed(call: Any, tmp_path: Path) -> None:
    """A model and a judge in a table, and a question's id in an error."""
    hostile = "\x1b]0;owned\x07\x9b2J\u202e"
    rating = {"question_id": 1, "model": hostile, "judge": [hostile, "x"], "turn": 1, "score": 4}
    ratings = write_lines(tmp_path / "ratings.jsonl", rating, {**rating, "turn": 2})
    scored = call("evaluate", "mt_bench", "--judgments", str(ratings), "--no-track")
    question = {"question_id": hostile, "category": "c", "turns": ["first", "second"]}
    folder = write_mt_bench(tmp_path / "data", question)
    other = {"question_id": 1, "model_id": "m", "choices": [{"turns": ["a", "b"]}]}
    write_lines(folder / "answers.jsonl", other)
    refused = call(*arguments(folder), code=2)
    for said in (scored.stdout, refused.stderr):
        assert "owned" in said
        assert {c for c in said if not c.isprintable()} == {"\n"}


def test_scores_that_cannot_be_kept_are_printed_all_the_same(
    call: Any, ratings: Path, folders: Path, tracked: list[Path]
) -> None:
    folders.write_text("a file where the work folder should be")
    result = call("evaluate", "mt_bench", "--judgments", str(ratings))
    assert "6.00" in result.stdout
    assert "harness: Cannot write" in result.stderr
    assert tracked == []


def test_nothing_is_written_where_nothing_is_tracked(
    call: Any, ratings: Path, folders: Path, tracked: list[Path]
) -> None:
    command = ("evaluate", "mt_bench", "--judgments", str(ratings))
    call(*command, "--no-track")
    assert tracked == []
    assert not folders.exists()
    call(*command)
    (kept,) = tracked
    assert json.loads(kept.read_text())["source"]["kind"] == "published"


def test_what_a_judge_said_before_is_scored_again_for_nothing_without_a_key(
    call: Any, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One's own endpoint still serves it; where it is the provider's, the replies are there."""
    with serving() as server:
        providers = {"gpt-": (server.url, "OPENAI_API_KEY")}
        monkeypatch.setattr("harness.endpoint.access.PROVIDERS", providers)
        first = call(*arguments(data))
        assert server.requests == 2
    assert call(*arguments(data)).stdout == first.stdout


def test_files_that_were_fetched_are_used_where_none_are_named(
    call: Any, says: Any, data: Path, folders: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The homes are files of this test, which `file:` addresses name."""
    names = ("question.jsonl", "reference_answer_gpt-4.jsonl", "judge_prompts.jsonl")
    homes = [
        HomeFile(n, (data / n).as_uri(), hashlib.sha256((data / n).read_bytes()).hexdigest())
        for n in names
    ]
    for name in BENCHMARKS.shipped:
        own = tuple(homes) if name == "mt_bench" else ()
        monkeypatch.setattr(benchmark_class(name), "homes", own)
    command = ["evaluate", "mt_bench", "--answers", str(data / "answers.jsonl")]
    assert "harness evaluate fetch mt_bench" in call(*command, code=2).stderr
    said = call("evaluate", "fetch").stdout
    assert said.count("fetched") == 3
    assert call("evaluate", "fetch", "mt_bench").stdout.count("is there") == 3
    fetched = says("evaluate", "fetch", "mt_bench")
    assert [file["was_there"] for file in fetched] == [True] * 3
    assert {file["benchmark"] for file in fetched} == {"mt_bench"}
    with serving() as server:
        says(*command)
        assert server.requests == 2
    assert "no benchmark `arena`" in call("evaluate", "fetch", "arena", code=2).stderr


def test_a_score_is_printed_with_both_ends_of_its_interval(
    call: Any, says: Any, tmp_path: Path
) -> None:
    ratings = [
        {"question_id": q, "model": "m", "judge": ["gpt-4", "x"], "turn": turn, "score": q + turn}
        for q in (1, 2, 3)
        for turn in (1, 2)
    ]
    asked = ("evaluate", "mt_bench", "--no-track", "--judgments")
    path = str(write_lines(tmp_path / "ratings.jsonl", *ratings))
    (found,) = says(*asked, path)
    low, high = found["intervals"]["average"]
    assert f"3.50 ({low:.2f} to {high:.2f})" in " ".join(call(*asked, path).stdout.split())
