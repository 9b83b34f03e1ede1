"""MT-Bench: which prompt for which turn, temperatures, reading of ratings, means, missing ones."""

import json
from pathlib import Path
from typing import Any

import pytest
from judge_stand_in import StandIn, client_of, completion, named, write_lines, write_mt_bench

from harness.endpoint.client import Outcome, ServedModel
from harness.endpoint.request import Reply
from harness.errors import HarnessError, UserError
from harness.evaluation.benchmarks.mt_bench import MtBench, parse_rating, score_ratings
from harness.evaluation.files import Answer, Answers, fill, read_answers, read_records
from harness.evaluation.scores import Judgment
from harness.worlds.real.evaluating import judge_answers

SPPO = "gemma-2-9b-it-sppo-iter-1"
CATEGORIES = ("writing", "math")


@pytest.fixture
def data(tmp_path: Path) -> Path:
    questions = (
        {"question_id": i, "category": category, "turns": [f"first {i}", f"second {i}"]}
        for i, category in enumerate(CATEGORIES, start=1)
    )
    return write_mt_bench(tmp_path / "data", *questions)


ANSWERS = Answers("m", {"1": Answer(("a1 {x}", "b1")), "2": Answer(("a2", "b2"))})


def test_each_turn_has_its_prompt_and_math_its_reference(data: Path) -> None:
    items = MtBench.load(data).requests(ANSWERS, named("j"))
    assert [(i.prompt_id, i.number, i.shown) for i in items] == [
        ("1", 1, "single-v1"),
        ("1", 2, "single-v1-multi-turn"),
        ("2", 1, "single-math-v1"),
        ("2", 2, "single-math-v1-multi-turn"),
    ]
    assert [i.request.messages[1].content for i in items] == [
        "[[rating]] first 1 | a1 {x}",
        "[[rating]] first 1 a1 {x} second 1 b1",
        "[[rating]] first 2 | a2 | ref 1",
        "[[rating]] first 2 a2 second 2 b2 | ref 1 ref 2",
    ]
    assert items[3].request.messages[0].content == "system of single-math-v1-multi-turn"
    assert items[0].request.body()["temperature"] == 0


def test_a_run_whose_judge_repeats_the_authors_replies_gives_the_paper_s_row(
    shared_dir: Path, tmp_path: Path
) -> None:
    """The paper's SPPO row, 8.62 / 9.03 / 8.21, out of the whole path over HTTP.

    The 160 prompts are made again letter by letter, from questions, references and answers alone.
    """
    folder = shared_dir / "benchmarks" / "mt_bench"
    records = read_records(folder / f"judgment_{SPPO}_single.jsonl")
    replies = {r["user_prompt"]: r["judgment"] for r in records}
    with StandIn(lambda body: completion(replies[body["messages"][1]["content"]])) as server:
        judge = ServedModel(client_of(server, tmp_path), "gpt-4")
        bench = MtBench.load(folder)
        answers = bench.read_answers(folder / f"answer_{SPPO}.jsonl", None)
        found = judge_answers(bench, answers, judge, tmp_path / "out")
        assert server.requests == 160
    assert found.model == SPPO
    assert found.scores == pytest.approx(
        {"average": 8.62, "turn_1": 9.03, "turn_2": 8.21}, abs=0.005 + 1e-9
    )
    assert (found.n, found.n_missing) == (80, 0)
    assert found.columns["average"] == "average"
    kept = read_records(tmp_path / "out" / "mt_bench" / SPPO / "gpt-4" / "judgments.jsonl")
    assert by_turn(kept) == by_turn(records)


def by_turn(records: list[dict[str, Any]]) -> dict[tuple[str, int], list[Any]]:
    """Return of each judgment which prompt it was asked with, the letters, the reply, the score."""
    said = ("user_prompt", "judgment", "score")
    return {
        (str(r["question_id"]), r["turn"]): [r["judge"][1], *(r[name] for name in said)]
        for r in records
    }


def test_a_reply_without_a_rating_is_counted_and_never_zero(data: Path, tmp_path: Path) -> None:
    """Derivation: ratings 4, none, 8, 6: the average is 18 / 3 = 6, turn 2 is 6."""
    texts = iter(["[[4]]", "no rating", "[[8]]", "[[6]]"])
    with StandIn(lambda body: completion(next(texts))) as server:
        judge = ServedModel(client_of(server, tmp_path), "other", concurrency=1)
        found = judge_answers(MtBench.load(data), ANSWERS, judge, tmp_path / "out")
    assert found.scores == pytest.approx({"average": 6.0, "turn_1": 6.0, "turn_2": 6.0})
    assert found.n_missing == 1
    assert found.columns == {c: f"{c}@other" for c in ("average", "turn_1", "turn_2")}


def test_a_refused_prompt_is_counted_with_its_reason(data: Path) -> None:
    bench = MtBench.load(data)
    items = bench.requests(ANSWERS, named("j"))
    refused = Outcome[list[Reply]](failure="too long", refused=True)
    outcomes = [Outcome([Reply(completion("[[5]]"))]), refused]
    records = bench.records(ANSWERS, named("j"), list(zip(items[:2], outcomes, strict=True)))
    assert [(r["score"], r.get("error")) for r in records] == [(5.0, None), (-1, "too long")]


def test_a_template_is_filled_once() -> None:
    assert fill("{{x}} {a} {b}", {"a": "{b}", "b": "{{"}) == "{x} {b} {{"
    with pytest.raises(UserError, match=r"\{c\}"):
        fill("{c}", {})


@pytest.mark.parametrize("template", ["{a} }", "{}{a}", "{a.b}", "{a!z}", "{a:>q}", "{a[0]}{b"])
def test_a_template_that_cannot_be_filled_is_one_sentence(template: str) -> None:
    with pytest.raises(UserError, match="write a brace that is not a field twice"):
        fill(template, {"a": "x"})


@pytest.mark.parametrize(
    ("name", "text", "says"),
    [
        ("question.jsonl", None, "does not hold the questions of mt_bench"),
        ("judge_prompts.jsonl", None, "does not hold MT-Bench's judge prompts"),
        (
            "judge_prompts.jsonl",
            '{"name": "single-v1", "system_prompt": "", "prompt_template": ""}',
            "has no prompt single-math-v1",
        ),
        (
            "judge_prompts.jsonl",
            '{"name": "single-v1", "system_prompt": "x"}',
            "single-v1 with no prompt_template",
        ),
        ("reference_answer_gpt-4.jsonl", None, "does not hold MT-Bench's references"),
        ("question.jsonl", '{"question_id": 1, "turns": ["one"]}', "1 turns of 2"),
        ("question.jsonl", '{"turns": ["one", "two"]}', "no question_id"),
        ("question.jsonl", '{"question_id": 1}', "no turns"),
        ("question.jsonl", '{"question_id": 1, "turns": [1, 2]}', "not text"),
    ],
)
def test_a_file_that_is_absent_or_broken_is_one_sentence(
    data: Path, name: str, text: str | None, says: str
) -> None:
    if text is None:
        (data / name).unlink()
    else:
        (data / name).write_text(text)
    with pytest.raises(UserError, match=says):
        MtBench.load(data)


def test_a_byte_order_mark_is_no_part_of_a_file(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text(json.dumps(answer(1, "m", "a", "b")), encoding="utf-8-sig")
    assert read_answers(path).model == "m"


def answer(prompt_id: int, model: str, *turns: str) -> dict[str, Any]:
    return {"question_id": prompt_id, "model_id": model, "choices": [{"turns": list(turns)}]}


def test_answers_that_are_missing_doubled_or_of_several_models_are_errors(
    data: Path, tmp_path: Path
) -> None:
    bench = MtBench.load(data)
    path = write_lines(tmp_path / "a.jsonl", answer(1, "m", "a", "b"))
    with pytest.raises(UserError, match=r"1 of 2 questions have no answer of m \(first: 2\)"):
        bench.requests(read_answers(path), named("j"))
    write_lines(path, answer(1, "m", "a", "b"), answer(1, "m", "a", "b"))
    with pytest.raises(UserError, match="answers question 1 twice"):
        read_answers(path)
    write_lines(path, answer(1, "m", "a", "b"), answer(1, "n", "c", "d"))
    with pytest.raises(UserError, match="answers of 2 models"):
        read_answers(path)
    assert read_answers(path, "n").by_prompt["1"].turns == ("c", "d")


@pytest.mark.parametrize(
    ("text", "rating"),
    [
        ("Rating: [[7]]", 7.0),
        ("Rating: [[8.5]]", 8.5),
        ("[[3]] and later [[9]]", 3.0),
        ("cites [1] but rates [[6]]", 6.0),
        ("Rating: [4]", 4.0),
        ("Rating: 5", None),
        ("[[seven]]", None),
        ("", None),
    ],
)
def test_ratings_are_read_as_the_benchmark_reads_them(text: str, rating: float | None) -> None:
    assert parse_rating(text) == rating


RATINGS = [
    *(Judgment("a", 10.0, 1), Judgment("a", 6.0, 2)),
    *(Judgment("b", 5.0, 1), Judgment("b", None, 2)),
]


def test_a_missing_rating_is_left_out_and_counted() -> None:
    """Derivation: average (10 + 6 + 5) / 3 = 7, turn 1 (10 + 5) / 2 = 7.5, turn 2 6 / 1 = 6.

    Per-prompt averages, mean count 1.5: a: 7 + (16 - 14) / 1.5 = 8 1/3; b: 7 + (5 - 7) / 1.5 =
    5 2/3, mean 7. Turn 2 of b moves nothing: it has the mean, 6.
    """
    score = score_ratings(RATINGS, "m")
    assert score.scores == pytest.approx({"average": 7.0, "turn_1": 7.5, "turn_2": 6.0})
    assert score.by_prompt("average") == pytest.approx({"a": 25 / 3, "b": 17 / 3})
    assert score.by_prompt("turn_2") == pytest.approx({"a": 6.0, "b": 6.0})
    assert (score.n, score.n_missing) == (2, 1)


def test_prompts_without_any_rating_count_as_missing() -> None:
    score = score_ratings(RATINGS, "m", prompts=["a", "b", "c"])
    assert (score.n, score.n_missing) == (2, 3)


def test_a_turn_without_any_rating_has_no_score_and_says_why() -> None:
    score = score_ratings([Judgment("a", 9.0, 1)], "m")
    assert score.scores == {"average": 9.0, "turn_1": 9.0, "turn_2": None}
    assert "turn_2" not in score.values
    assert score.notes == {"turn_2": "no valid rating of this turn"}


def test_no_valid_rating_is_an_error_and_not_a_zero() -> None:
    with pytest.raises(HarnessError):
        score_ratings([Judgment("a", None, 1)], "m")
