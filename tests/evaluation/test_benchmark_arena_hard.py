"""Arena-Hard as it is run: both orders, follow-ups, weights, and the judge's own column."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from judge_stand_in import StandIn, client_of, completion, named, run, write_lines

from harness.errors import UserError
from harness.evaluation.benchmark import Judge
from harness.evaluation.benchmarks.arena_hard import (
    BASELINE,
    FOLLOW_UP,
    OWN_JUDGE,
    VERDICT_PATTERN,
    ArenaHard,
    answer_tokens,
    battles_from_judgments,
    parse_verdict,
    score_battles,
)
from harness.evaluation.files import Answer, Answers, read_answers, read_records

CONFIG = {
    "system_prompt": "system",
    "prompt_template": ["[[A>>B]] {question_1} | {answer_1} | {answer_2}"],
    "temperature": 0,
    "max_tokens": 64,
    "number_of_judgment_attempts": 2,
    "baseline_model": BASELINE,
    "regex_pattern": VERDICT_PATTERN,
}


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Write a benchmark of two questions: one in the old layout, one in the new."""
    folder = tmp_path / "data"
    folder.mkdir()
    write_lines(
        folder / "question.jsonl",
        {"question_id": "p", "turns": [{"content": "what is p"}]},
        {"uid": "q", "prompt": "what is q"},
    )
    write_lines(
        folder / f"answer_{BASELINE}.jsonl",
        {"question_id": "p", "model_id": BASELINE, "choices": [{"turns": [{"content": "bp"}]}]},
        {
            "uid": "q",
            "model": BASELINE,
            "messages": [
                {"role": "user", "content": "what is q"},
                {"role": "assistant", "content": {"answer": "bq"}},
            ],
        },
    )
    (folder / "judge_config.yaml").write_text(yaml.safe_dump(CONFIG))
    return folder


ANSWERS = Answers("m", {"p": Answer(("mp",), 10), "q": Answer(("mq",), 30)})


def judge_of(server: StandIn, tmp_path: Path, model: str = OWN_JUDGE) -> Judge:
    return Judge(client_of(server, tmp_path, price=None, timeout_s=10.0), model)


def verdicts(texts: dict[str, list[str]]) -> Any:
    """Return a judge that says, to a prompt with the key in it, one text after the other."""

    def by_prompt(body: Any) -> Any:
        prompt = body["messages"][1]["content"]
        turn = sum(message["role"] == "assistant" for message in body["messages"])
        (said,) = [said for key, said in texts.items() if key in prompt]
        return completion(said[turn])

    return by_prompt


def test_the_baseline_is_a_in_the_first_game_and_b_in_the_second(data: Path) -> None:
    games = ArenaHard.load(data).requests(ANSWERS, named("j"))
    assert [(g.prompt_id, g.number, g.request.messages[1].content) for g in games] == [
        ("p", 0, "[[A>>B]] what is p | bp | mp"),
        ("p", 1, "[[A>>B]] what is p | mp | bp"),
        ("q", 0, "[[A>>B]] what is q | bq | mq"),
        ("q", 1, "[[A>>B]] what is q | mq | bq"),
    ]
    assert games[0].request.settings == {"temperature": 0, "max_tokens": 64}


def test_a_run_weighs_strong_verdicts_three_times_and_follows_up_unparsed_ones(
    data: Path, tmp_path: Path
) -> None:
    """Derivation: p: B>>A in game 1 is 3 wins of 3; a tie in game 2 is half a win of 1.

    q: A>B in game 1 is a loss; in game 2 nothing is readable in two replies, so it is missing.
    Together 3.5 of 5 is 70%. The lengths are 10 and 30 tokens.
    """
    judge = verdicts(
        {
            "| bp | mp": ["[[B>>A]]"],
            "| mp | bp": ["no verdict", "well then: [[A=B]]"],
            "| bq | mq": ["[[A>B]]"],
            "| mq | bq": ["hm", "still hm"],
        }
    )
    with StandIn(judge) as server:
        found = run(ArenaHard.load(data), ANSWERS, judge_of(server, tmp_path), tmp_path)
        followed = [b["messages"] for b in server.bodies if len(b["messages"]) > 2]
        assert server.requests == 6
    assert found.score.scores == pytest.approx({"win_rate": 70.0, "answer_tokens": 20.0})
    assert (found.score.n, found.score.n_missing) == (2, 1)
    assert {m[-1]["content"] for m in followed} == {FOLLOW_UP}
    assert {m[-2]["content"] for m in followed} == {"no verdict", "hm"}
    interval = found.intervals["win_rate"]
    assert interval is not None
    assert interval[0] <= 70.0 <= interval[1]
    records = read_records(tmp_path / "arena_hard" / "m" / OWN_JUDGE / "judgments.jsonl")
    assert records[0]["games"][1]["judgment"] == "no verdict\nwell then: [[A=B]]"
    assert [g["score"] for r in records for g in r["games"]] == ["B>>A", "A=B", "A>B", None]


def test_a_contradiction_is_not_asked_again(data: Path, tmp_path: Path) -> None:
    with StandIn(lambda body: completion("[[A>B]] or [[B>A]] or [[A=B]]")) as server:
        judge, bench = judge_of(server, tmp_path), ArenaHard.load(data)
        games = bench.requests(ANSWERS, named("j"))
        replies = bench.ask(judge.client, games[0])
        assert server.requests == 1
    assert [parse_verdict(reply.text).label for reply in replies] == [None]


def test_published_judgments_are_made_again(shared_dir: Path, tmp_path: Path) -> None:
    """62 prompts letter by letter; a judge that repeats the replies gives the file's score."""
    folder = shared_dir / "benchmarks" / "arena_hard"
    name = "judgment_gpt-4-1106-preview_gemma-1.1-2b-it.jsonl"
    records = read_records(folder / name)
    bench = ArenaHard.load(folder)
    start, end = "<|The Start of Assistant B's Answer|>\n", "\n<|The End of Assistant B's Answer|>"
    answers = {
        r["question_id"]: Answer((r["games"][0]["user_prompt"].split(start)[1].split(end)[0],), 1)
        for r in records
    }
    judged = [q for q in bench.questions if q.prompt_id in answers]
    bench.inputs = type(bench.inputs)(**{**vars(bench.inputs), "questions": tuple(judged)})
    own = Answers("gemma-1.1-2b-it", answers)
    games = bench.requests(own, named(OWN_JUDGE))
    published_prompts = {
        (r["question_id"], i): game["user_prompt"]
        for r in records
        for i, game in enumerate(r["games"])
    }
    assert {(g.prompt_id, g.number): g.request.messages[1].content for g in games} == (
        published_prompts
    )
    replies = {g["user_prompt"]: g["judgment"] for r in records for g in r["games"]}
    with StandIn(lambda body: completion(replies[body["messages"][1]["content"]])) as server:
        found = run(bench, own, judge_of(server, tmp_path), tmp_path)
    battles = battles_from_judgments(records, BASELINE)
    expected = score_battles(battles, BASELINE)["gemma-1.1-2b-it"]
    assert found.score.scores["win_rate"] == pytest.approx(expected.scores["win_rate"])


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"baseline_model": "gpt-5"}, "baseline_model: 'gpt-5'"),
        ({"regex_pattern": "x"}, "regex_pattern"),
        ({"prompt_template": []}, "no system_prompt or prompt_template"),
        ({"system_prompt": None}, "no system_prompt or prompt_template"),
        ({"prompt_template": ["{answer_9}"]}, "answer_9"),
    ],
)
def test_settings_of_another_benchmark_are_one_sentence(
    data: Path, change: dict[str, Any], says: str
) -> None:
    (data / "judge_config.yaml").write_text(yaml.safe_dump(CONFIG | change))
    with pytest.raises(UserError, match=says):
        ArenaHard.load(data).requests(ANSWERS, named("j"))


def test_a_baseline_that_lacks_an_answer_is_an_error(data: Path) -> None:
    path = data / f"answer_{BASELINE}.jsonl"
    path.write_text(path.read_text().split("\n")[0])
    with pytest.raises(UserError, match="1 of 2 questions have no answer of gpt-4-0314"):
        ArenaHard.load(data)


def test_the_baseline_cannot_meet_itself(data: Path, tmp_path: Path) -> None:
    own = Answers(BASELINE, ANSWERS.by_prompt)
    with StandIn() as server, pytest.raises(UserError, match="cannot meet itself"):
        run(ArenaHard.load(data), own, judge_of(server, tmp_path), tmp_path)


def test_lengths_in_the_answers_file_are_taken(tmp_path: Path) -> None:
    turns = [{"content": "text", "token_len": 7}]
    record = {"question_id": "p", "model_id": "m", "choices": [{"turns": turns}]}
    answers = read_answers(write_lines(tmp_path / "a.jsonl", record))
    assert answer_tokens(answers) == {"p": 7}
