"""`harness calibrate`: a judge that agrees passes, one that does not fails, and it is recorded."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from judge_stand_in import write_lines, write_mt_bench

QUESTIONS = 6


@pytest.fixture
def stand_in(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return the module of servers that stand in for a judge."""
    monkeypatch.setenv("OPENAI_API_KEY", "sk-a-key-of-the-tests-0123456789")
    import judge_stand_in

    return judge_stand_in


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Write an MT-Bench of 8 questions, answers to it, and ratings of the first 6: all 7."""
    asked = [
        {"question_id": i, "category": "writing", "turns": [f"q{i}a", f"q{i}b"]} for i in range(8)
    ]
    folder = write_mt_bench(tmp_path / "data", *asked)
    answers = [
        {"question_id": i, "model_id": "released", "choices": [{"turns": ["a", "b"]}]}
        for i in range(8)
    ]
    write_lines(folder / "answers.jsonl", *answers)
    ratings = [
        {"question_id": i, "model": "released", "judge": ["gpt-4"], "turn": turn, "score": 7}
        for i in range(QUESTIONS)
        for turn in (1, 2)
    ]
    write_lines(folder / "published.jsonl", *ratings)
    return folder


def arguments(data: Path, url: str, *more: str) -> list[str]:
    return [
        "calibrate", "--profile", "paper", "--benchmark", "mt_bench", "--data", str(data),
        "--answers", str(data / "answers.jsonl"), "--published", str(data / "published.jsonl"),
        "--judge-base-url", url, *more,
    ]  # fmt: skip


def test_a_judge_that_agrees_passes_and_is_recorded(
    call: Callable[..., Any], says: Callable[..., Any], data: Path, stand_in: Any
) -> None:
    def agrees(body: Any) -> Any:
        return stand_in.completion("Rating: [[7]]")

    before = says("calibrate", "calibrate", "--profile", "paper")
    assert {line["state"] for line in before} == {"not_calibrated"}
    with stand_in.StandIn(agrees) as server:
        (found,) = says("calibrate", *arguments(data, server.url))
        # Only the questions that were judged by others are judged again.
        assert server.requests == 2 * QUESTIONS
    assert (found["state"], found["judge"]) == ("passed", "gpt-4")
    assert found["calibration"]["prompts"] == QUESTIONS
    assert set(found["calibration"]["digests"]) == {"published", "answers", "data"}
    after = {(line["benchmark"], line["judge"]): line for line in says("calibrate", "calibrate")}
    assert after["mt_bench", "gpt-4"] == found
    assert after["arena_hard", "gpt-4-1106-preview"]["state"] == "not_calibrated"
    assert "passed on " in call("calibrate").stdout


def test_a_judge_that_differs_fails_with_exit_code_1(
    call: Callable[..., Any], says: Callable[..., Any], data: Path, stand_in: Any
) -> None:
    def differs(body: Any) -> Any:
        return stand_in.completion("Rating: [[8]]")

    with stand_in.StandIn(differs) as server:
        (found,) = says("calibrate", *arguments(data, server.url), code=1)
        again = call(*arguments(data, server.url, "--tolerance", "1"))
        assert server.requests == 2 * QUESTIONS
    assert (found["state"], found["calibration"]["difference"]) == ("failed", 1.0)
    assert again.exit_code == 0
    assert "tolerance 1" in again.stdout


def test_the_successors_of_retired_judges_stand_beside_them_uncalibrated(
    call: Callable[..., Any], says: Callable[..., Any]
) -> None:
    """Nobody has held them against anything yet; nothing of their predecessors is theirs."""
    lines = says("calibrate", "calibrate", "--profile", "paper")
    assert {(line["benchmark"], line["judge"]): line["successor_of"] for line in lines} == {
        ("arena_hard", "gpt-4-1106-preview"): None,
        ("arena_hard", "gpt-6-sol"): "gpt-4-1106-preview",
        ("alpaca_eval", "alpaca_eval_gpt4_turbo_fn"): None,
        ("alpaca_eval", "alpaca_eval_gpt4_turbo_fn/gpt-6-sol"): "gpt-4-1106-preview",
        ("mt_bench", "gpt-4"): None,
        ("mt_bench", "gpt-6-sol"): "gpt-4",
    }
    assert {line["state"] for line in lines} == {"not_calibrated"}
    ends = [line["retirement"] and line["retirement"]["retired"] for line in lines]
    assert ends == ["2026-10-23", None] * 3
    text = call("calibrate").stdout
    assert "retired 2026-10-23" in text
    assert "successor of gpt-4" in text


def test_a_successor_is_calibrated_in_a_place_of_its_own(
    says: Callable[..., Any], data: Path, stand_in: Any
) -> None:
    with stand_in.StandIn(lambda body: stand_in.completion("[[7]]")) as server:
        (found,) = says("calibrate", *arguments(data, server.url, "--judge", "gpt-6-sol"))
        assert server.bodies[0]["reasoning_effort"] == "none"
        assert server.bodies[0]["temperature"] == 0
    assert (found["state"], found["successor_of"]) == ("passed", "gpt-4")
    states = {
        (line["benchmark"], line["judge"]): line["state"] for line in says("calibrate", "calibrate")
    }
    assert states.pop(("mt_bench", "gpt-6-sol")) == "passed"
    assert set(states.values()) == {"not_calibrated"}


def test_another_judge_has_a_record_of_its_own(
    says: Callable[..., Any], data: Path, stand_in: Any
) -> None:
    with stand_in.StandIn(lambda body: stand_in.completion("[[7]]")) as server:
        (found,) = says("calibrate", *arguments(data, server.url, "--judge", "gpt-4o-mini"))
    assert found["judge"] == "gpt-4o-mini"
    states = {line["benchmark"]: line["state"] for line in says("calibrate", "calibrate")}
    assert states["mt_bench"] == "not_calibrated"


def test_a_dry_run_shows_the_price_and_records_nothing(
    says: Callable[..., Any], data: Path, stand_in: Any, folders: Path
) -> None:
    with stand_in.StandIn() as server:
        found = says("evaluate", *arguments(data, server.url, "--dry-run"))
        assert server.requests == 0
    assert found["requests"][0]["requests"] == 2 * QUESTIONS
    assert not folders.exists()


def test_verdicts_say_that_their_judges_are_not_calibrated(call: Callable[..., Any]) -> None:
    said = call("claims", "table4", "--profile", "paper")
    assert "no passed calibration of the judge of arena_hard, alpaca_eval, mt_bench" in said.stderr
    assert "calibration" not in call("claims", "table4").stderr


def test_a_judge_that_repeats_the_published_replies_has_the_published_score(
    says: Callable[..., Any], shared_dir: Path, stand_in: Any
) -> None:
    """The paper's SPPO row: 8.62 over both turns, from the published answers and replies."""
    folder = shared_dir / "benchmarks" / "mt_bench"
    published = folder / "judgment_gemma-2-9b-it-sppo-iter-1_single.jsonl"
    records = [json.loads(line) for line in published.read_text().splitlines()]
    replies = {record["user_prompt"]: record["judgment"] for record in records}

    def repeat(body: Any) -> Any:
        return stand_in.completion(replies[body["messages"][1]["content"]])

    with stand_in.StandIn(repeat) as server:
        (found,) = says(
            "calibrate", "calibrate", "--benchmark", "mt_bench", "--data", str(folder),
            "--answers", str(folder / "answer_gemma-2-9b-it-sppo-iter-1.jsonl"),
            "--published", str(published), "--judge-base-url", server.url,
        )  # fmt: skip
    held = found["calibration"]
    assert (found["state"], held["difference"], held["prompts"]) == ("passed", 0.0, 80)
    assert held["published"] == held["ours"] == pytest.approx(8.61875)


MISTAKES = {
    "--profile micro": "judged by the embedded world",
    "--profile paper --benchmark downstream": "no benchmark `downstream` with a judge",
    "--profile paper --benchmark mt_bench": "with --answers, and their published judgments",
    "--profile nowhere": "nowhere",
    "--benchmark mt_bench --answers x --published y": "name their folder with --data",
}


@pytest.mark.parametrize("command", MISTAKES)
def test_a_mistake_is_one_sentence_and_exit_code_2(
    call: Callable[..., Any], folders: Path, command: str
) -> None:
    result = call("calibrate", *command.split())
    assert result.exit_code == 2
    assert result.stdout == ""
    assert MISTAKES[command] in result.stderr
    assert result.stderr.count("\n") == 1
    assert not folders.exists()
