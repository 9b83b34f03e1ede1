"""Laws of kept answers."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.inference.request import Request, Sample, Sampling
from harness.inference.solver import CompletionCache

SAMPLING = Sampling(0.7, 0.9, (1, 5))
ASKED = [Request(i, (2, 4, 8 + i), (10 * i, 10 * i + 1), 12) for i in range(3)]
FIRST = [Sample("a b", 2, (8, 9)), Sample("", 0)]
SECOND = [Sample("c", 1, (10,)), Sample("é\n", 1, (11,))]


def kept(
    path: Path, asked: list[Request] = ASKED, sampling: Sampling = SAMPLING
) -> CompletionCache:
    return CompletionCache(path, asked, sampling)


def test_answers_are_read_back_as_they_were_given(tmp_path: Path) -> None:
    file = tmp_path / "answers.jsonl"
    kept(file).add({2: FIRST})
    kept(file).add({0: SECOND})
    assert kept(file).answers == {2: FIRST, 0: SECOND}


@given(cut=st.integers(min_value=1))
def test_a_file_cut_anywhere_keeps_its_whole_lines_and_can_be_added_to(
    cut: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Two prompts' lines follow the header; cut off `cut` bytes, and only whole lines are left."""
    file = tmp_path_factory.mktemp("kept") / "answers.jsonl"
    first = kept(file)
    first.add({0: FIRST})
    first.add({1: SECOND})
    whole = file.read_bytes()
    cut = cut % len(whole)
    file.write_bytes(whole[: len(whole) - cut])
    last = whole.splitlines(keepends=True)[2]
    expected = {0: FIRST} if cut <= len(last) else {}
    expected |= {1: SECOND} if cut == 0 else {}
    again = kept(file)
    assert again.answers == expected
    again.add({2: FIRST})
    assert kept(file).answers == {**expected, 2: FIRST}


@pytest.mark.parametrize(
    ("asked", "sampling"),
    [
        (ASKED[:2], SAMPLING),
        ([replace(ASKED[0], tokens=(2, 4, 9)), *ASKED[1:]], SAMPLING),
        ([replace(ASKED[0], seeds=(0, 2)), *ASKED[1:]], SAMPLING),
        ([replace(ASKED[0], room=11), *ASKED[1:]], SAMPLING),
        (ASKED, replace(SAMPLING, temperature=0.8)),
    ],
)
def test_answers_to_anything_else_are_forgotten(
    tmp_path: Path, asked: list[Request], sampling: Sampling
) -> None:
    file = tmp_path / "answers.jsonl"
    kept(file).add({0: FIRST})
    assert kept(file, asked, sampling).answers == {}
    assert kept(file).answers == {}, "the file is about what was asked last"


@pytest.mark.parametrize(
    "line",
    [b"no json\n", b"[]\n", b'{"position": []}\n', b'{"1": [{"other": 1}]}\n'],
)
def test_a_line_that_is_no_answer_ends_the_file(tmp_path: Path, line: bytes) -> None:
    file = tmp_path / "answers.jsonl"
    kept(file).add({0: FIRST})
    with file.open("ab") as out:
        out.write(line)
    again = kept(file)
    assert again.answers == {0: FIRST}
    again.add({1: SECOND})
    assert kept(file).answers == {0: FIRST, 1: SECOND}
