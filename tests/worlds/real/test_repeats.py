"""Laws of repetitions: copies and quotations are found, chance is not."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.errors import UserError
from harness.worlds.real.prompts import (
    Duplicates,
    Overlap,
    duplicates,
    overlaps,
    read_questions,
    words,
)

LONG = [f"w{i}" for i in range(30)]


def question(first: int, count: int) -> str:
    return " ".join(LONG[first : first + count])


def met(prompt: str, asked: str) -> tuple[int, int]:
    found = overlaps([prompt], {"b": [asked]})["b"]
    return found.whole, found.in_part


def test_duplicates_are_counted_by_text_and_by_words() -> None:
    """Of six, one repeats a text, and two more only its words; the first is no repetition."""
    prompts = ["Why?", "why", "Why?", "WHY...", "Why not?", "How?"]
    assert duplicates(prompts) == Duplicates(prompts=6, same_text=1, same_words=3)


def test_a_copy_is_a_whole_overlap_whatever_its_case_and_stops() -> None:
    assert met("what is ATLANTIS", "What is Atlantis?") == (1, 0)
    assert met("What is Atlantis made of?", "What is Atlantis?") == (0, 0)


@pytest.mark.parametrize(("shared", "in_part"), [(13, 1), (14, 1), (12, 0)])
def test_thirteen_words_in_a_row_are_an_overlap(shared: int, in_part: int) -> None:
    """A question of 20 words, of which a prompt holds some in a row between words of its own."""
    assert met(f"before {question(4, shared)} after", question(0, 20)) == (0, in_part)


def test_the_words_must_be_in_a_row() -> None:
    assert met(f"{question(0, 7)} and {question(7, 7)}", question(0, 20)) == (0, 0)


def test_overlaps_are_counted_by_prompt_and_by_question() -> None:
    """Three questions, of which two are met: by a copy, a copy that is said twice, a quotation."""
    asked = [question(0, 15), question(15, 15), "Something else that is never asked by anyone here"]
    prompts = ["Nothing.", asked[0], asked[0].upper(), f"Say: {asked[1]}"]
    found = overlaps(prompts, {"b": asked, "c": ["Nothing?"]}, examples=2)
    assert found["b"] == Overlap(questions=3, whole=2, in_part=1, questions_met=2, examples=(1, 2))
    assert found["c"] == Overlap(questions=1, whole=1, in_part=0, questions_met=1, examples=(0,))


def test_texts_without_words_overlap_nothing() -> None:
    assert met("...", "?!") == (0, 0)


@given(st.lists(st.text(max_size=60), max_size=6))
def test_every_prompt_overlaps_itself_and_counts_add_up(prompts: list[str]) -> None:
    found = overlaps(prompts, {"b": prompts})["b"]
    spoken = [prompt for prompt in prompts if words(prompt)]
    assert (found.whole, found.in_part) == (len(spoken), 0)
    counted = duplicates(prompts)
    assert 0 <= counted.same_text <= counted.same_words <= max(0, len(prompts) - 1)


def test_questions_are_read_from_each_benchmarks_own_file(tmp_path: Path) -> None:
    (tmp_path / "mt.jsonl").write_text('{"question_id": 1, "turns": ["a", "b"]}\n')
    (tmp_path / "arena.jsonl").write_text('{"uid": "x", "prompt": "c"}\n')
    (tmp_path / "alpaca.json").write_text(json.dumps([{"instruction": "d"}, {"instruction": "e"}]))
    found = [read_questions(tmp_path / n) for n in ("mt.jsonl", "arena.jsonl", "alpaca.json")]
    assert found == [["a", "b"], ["c"], ["d", "e"]]
    (tmp_path / "bad.jsonl").write_text('{"prompt": "a"}\n{"text": "b"}\n')
    with pytest.raises(UserError, match=r"question 2 of .*bad.jsonl has no text"):
        read_questions(tmp_path / "bad.jsonl")
    with pytest.raises(UserError, match="is no file of questions"):
        read_questions(tmp_path / "none.jsonl")


def test_the_benchmarks_overlap_one_another_in_two_questions(shared_dir: Path) -> None:
    """A writing and a coding task of MT-Bench are among AlpacaEval's 805 instructions."""
    files = shared_dir / "benchmarks"
    alpaca = read_questions(files / "alpaca_eval" / "reference_gpt4_1106_preview_outputs.json")
    others = {
        "mt_bench": read_questions(files / "mt_bench" / "question.jsonl"),
        "arena_hard": read_questions(files / "arena_hard" / "question.jsonl"),
    }
    found = overlaps(alpaca, others)
    assert (found["mt_bench"].whole, found["mt_bench"].in_part) == (2, 0)
    assert (found["arena_hard"].whole, found["arena_hard"].in_part) == (0, 0)
    assert duplicates(alpaca).same_words == 0
