"""Arena-Hard: both orders, follow-ups, weights, the win rate and its interval."""

from pathlib import Path
from typing import Any

import pytest
import yaml
from judge_stand_in import StandIn, client_of, completion, named, write_lines

from harness.endpoint.client import ServedModel
from harness.errors import HarnessError, UserError
from harness.evaluation.benchmarks.arena_hard import (
    BASELINE,
    FOLLOW_UP,
    OWN_JUDGE,
    VERDICT_PATTERN,
    ArenaHard,
    answer_tokens,
    game,
    games_from_judgments,
    label_in,
    score_games,
)
from harness.evaluation.files import Answer, Answers, read_answers, read_records
from harness.worlds.real.evaluating import judge_answers

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


def judge_of(server: StandIn, tmp_path: Path) -> ServedModel:
    return ServedModel(client_of(server, tmp_path, price=None), OWN_JUDGE)


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
        found = judge_answers(ArenaHard.load(data), ANSWERS, judge_of(server, tmp_path), tmp_path)
        followed = [b["messages"] for b in server.bodies if len(b["messages"]) > 2]
        assert server.requests == 6
    assert found.scores == pytest.approx({"win_rate": 70.0, "answer_tokens": 20.0})
    assert (found.n, found.n_missing) == (2, 1)
    assert {m[-1]["content"] for m in followed} == {FOLLOW_UP}
    assert {m[-2]["content"] for m in followed} == {"no verdict", "hm"}
    low, high = found.intervals["win_rate"] or (100.0, 0.0)
    assert low <= 70.0 <= high
    records = read_records(tmp_path / "arena_hard" / "m" / OWN_JUDGE / "judgments.jsonl")
    assert records[0]["games"][1]["judgment"] == "no verdict\nwell then: [[A=B]]"
    assert [g["score"] for r in records for g in r["games"]] == ["B>>A", "A=B", "A>B", None]


def test_a_contradiction_is_not_asked_again(data: Path, tmp_path: Path) -> None:
    bench = ArenaHard.load(data)
    with StandIn(lambda body: completion("[[A>B]] or [[B>A]] or [[A=B]]")) as server:
        game, *_ = bench.requests(ANSWERS, named("j"))
        replies = bench.ask(client_of(server, tmp_path), game)
        assert server.requests == 1
    assert [label_in(reply.text) for reply in replies] == [None]


def test_published_judgments_are_made_again(shared_dir: Path, tmp_path: Path) -> None:
    """62 prompts letter by letter; a judge that repeats the replies gives the file's verdicts."""
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
    made = {(g.prompt_id, g.number): g.request.messages[1].content for g in games}
    assert made == {
        (r["question_id"], i): game["user_prompt"]
        for r in records
        for i, game in enumerate(r["games"])
    }
    replies = {g["user_prompt"]: g["judgment"] for r in records for g in r["games"]}
    with StandIn(lambda body: completion(replies[body["messages"][1]["content"]])) as server:
        found = judge_answers(bench, own, judge_of(server, tmp_path), tmp_path)
    expected = score_games(games_from_judgments(records), "gemma-1.1-2b-it")
    assert found.scores["win_rate"] == pytest.approx(expected.scores["win_rate"])
    assert (found.n, found.n_missing) == (31, 0)
    path = tmp_path / "arena_hard" / "gemma-1.1-2b-it" / OWN_JUDGE / "judgments.jsonl"
    verdicts = {r["question_id"]: [game["score"] for game in r["games"]] for r in records}
    assert {
        r["question_id"]: [game["score"] for game in r["games"]] for r in read_records(path)
    } == verdicts


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"baseline_model": "gpt-5"}, "baseline_model: 'gpt-5'"),
        ({"regex_pattern": "x"}, "regex_pattern"),
        ({"prompt_template": []}, "no system_prompt or prompt_template"),
        ({"system_prompt": None}, "no system_prompt or prompt_template"),
        ({"max_tokens": None}, "max_tokens: None; give a whole number"),
        ({"number_of_judgment_attempts": "many"}, "'many'; give a whole number"),
        ({"temperature": "warm"}, "temperature: 'warm'; give a number"),
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


def test_lengths_in_the_answers_file_are_taken(tmp_path: Path) -> None:
    turns = [{"content": "text", "token_len": 7}]
    record = {"question_id": "p", "model_id": "m", "choices": [{"turns": turns}]}
    answers = read_answers(write_lines(tmp_path / "a.jsonl", record))
    assert answer_tokens(answers) == {"p": 7}


LABELS = ["A>>B", "A>B", "A=B", "B>A", "B>>A"]


@pytest.mark.parametrize(
    ("text", "label"),
    [
        *((f"So my final verdict is: [[{label}]].", label) for label in LABELS),
        ("[[A>B]] ... final: [[A>B]]", "A>B"),
        ("not [[A>>B]] but [[A>B]]", None),
        ("Assistant A is better: [A>B]", None),
        ("[[A]]", None),
    ],
)
def test_a_label_is_read_from_the_text_around_it_where_it_is_the_only_one(
    text: str, label: str | None
) -> None:
    assert label_in(text) == label


TWO_PROMPTS = [
    *(game("p", 1, "B>>A"), game("p", 2, "A=B")),
    *(game("q", 1, "A>B"), game("q", 2, None)),
]


def test_strong_verdicts_count_three_times_and_ties_half() -> None:
    """Derivation: won 3 + 0.5 + 0 of 3 + 1 + 1 is 3.5 / 5 = 70%.

    Per-prompt values: mean weight 2.5; p: 70 + 100 (3.5 - 0.7 x 4) / 2.5 = 98; q: 70 + 100
    (0 - 0.7) / 2.5 = 42. Their mean is 70.
    """
    score = score_games(TWO_PROMPTS, "model")
    assert score.scores["win_rate"] == pytest.approx(70.0)
    assert score.by_prompt("win_rate") == pytest.approx({"p": 98.0, "q": 42.0})
    assert (score.n, score.n_missing) == (2, 1)


def test_a_prompt_never_judged_counts_as_two_missing_games_and_moves_nothing() -> None:
    score = score_games(TWO_PROMPTS, "model", ["o", "p", "q"])
    assert score.scores["win_rate"] == pytest.approx(70.0)
    assert score.by_prompt("win_rate")["o"] == pytest.approx(70.0)
    assert (score.n, score.n_missing) == (2, 3)


def test_no_readable_verdict_or_another_benchmark_s_prompt_is_an_error_and_not_a_zero() -> None:
    with pytest.raises(HarnessError, match="None of the 1 verdicts on model"):
        score_games([game("p", 1, None)], "model")
    with pytest.raises(UserError, match="1 judged prompts are not in the benchmark"):
        score_games(TWO_PROMPTS, "model", prompts=["p"])


def test_the_interval_is_over_questions_and_not_battles() -> None:
    """Derivation: 100 questions, half won and half lost in all their 6 weighted battles.

    Over questions the standard error is 100 x 0.5 / sqrt(100) = 5, so 95% is about 50 +- 9.8.
    Over 600 battles it would be 50 +- 4.
    """
    games = [game(str(i), 1, "B>>A" if i % 2 else "A>>B") for i in range(100)] * 2
    assert score_games(games, "m").intervals["win_rate"] == pytest.approx((40.2, 59.8), abs=0.2)


def test_the_baseline_cannot_meet_itself(data: Path) -> None:
    own = Answers(BASELINE, ANSWERS.by_prompt)
    with pytest.raises(UserError, match="is the baseline of Arena-Hard and cannot meet itself"):
        ArenaHard.load(data).requests(own, named("j"))
