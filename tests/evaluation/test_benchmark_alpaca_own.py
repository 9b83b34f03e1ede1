"""AlpacaEval by an annotator of one's own: what is shown in which order, and what a call means."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest
from judge_stand_in import Body, StandIn, client_of, completion, named

from harness.endpoint.request import Reply
from harness.errors import UserError
from harness.evaluation.benchmark import Judge
from harness.evaluation.benchmarks.own_annotator import (
    OwnAnnotator,
    preference,
    read_annotator,
)
from harness.evaluation.files import Answer, Answers

INSTRUCTIONS = [f"instruction {i}" for i in range(12)]
OWN = Answers("policy", {str(i): Answer((f"own {i}",)) for i in range(12)})
WORDS = {"name": "mine", "system": "Rank.", "prompt": "{instruction}|{output_1}|{output_2}"}


@pytest.fixture
def data(tmp_path: Path) -> Path:
    records = [
        {"instruction": text, "output": "other " * (i + 1), "generator": "reference"}
        for i, text in enumerate(INSTRUCTIONS)
    ]
    (tmp_path / "model_outputs.json").write_text(json.dumps(records))
    (tmp_path / "annotator.json").write_text(json.dumps(WORDS))
    return tmp_path


def first_is_better(body: Body) -> dict[str, Any]:
    ranks = [{"model": "M", "rank": 2}, {"model": "m", "rank": 1}]
    arguments = json.dumps({"ordered_models": ranks})
    call = {"id": "1", "type": "function", "function": {"name": "rank", "arguments": arguments}}
    return completion(None, tool_calls=[call])


def swapped(text: str) -> bool:
    """Whether the first byte of an instruction's digest is odd."""
    return int(hashlib.sha256(text.encode()).hexdigest()[:2], 16) % 2 == 1


def test_the_digest_of_the_instruction_draws_who_is_shown_first(data: Path) -> None:
    judge = named("judge")
    items = OwnAnnotator.load(data).requests(OWN, judge)
    for text, item in zip(INSTRUCTIONS, items, strict=True):
        shown = item.request.messages[1].content.split("|")
        assert shown[0] == text
        assert shown[1].startswith("own") == swapped(text) == (item.shown == "own")
    assert {item.shown for item in items} == {"own", "reference"}


def test_a_judge_that_likes_the_first_gives_2_where_the_model_is_shown_first(
    data: Path, tmp_path: Path
) -> None:
    with StandIn(first_is_better) as server:
        client = client_of(server, tmp_path, price=None)
        judged = OwnAnnotator.load(data).judge(OWN, Judge(client, "me"), 2, lambda n, of: None)
    preferences = [record["preference"] for record in judged.records]
    assert preferences == [2.0 if swapped(text) else 1.0 for text in INSTRUCTIONS]
    wins = sum(map(swapped, INSTRUCTIONS))
    evaluation = judged.evaluation
    assert evaluation.score.scores["win_rate"] == pytest.approx(100 * wins / 12)
    assert evaluation.judge == "mine/me"
    assert "not AlpacaEval's" in evaluation.score.notes["length_controlled_win_rate"]


@pytest.mark.parametrize(
    ("ranked", "found"),
    [
        ([{"model": "M", "rank": 1}, {"model": "m", "rank": 2}], 1.0),
        ([{"model": "m", "rank": 1}, {"model": "m", "rank": 2}], None),
        ([{"model": "m", "rank": 1}, {"model": None, "rank": 2}], None),
        ([{"model": "m", "rank": 1}, {"model": ["M"], "rank": 2}], None),
        ([{"model": "m", "rank": 1}, {"model": "M", "rank": "2"}], None),
        ([{"model": name, "rank": 1} for name in "mM"], None),
        ([{"model": name, "rank": 1} for name in "mMx"], None),
        ([], None),
        (7, None),
    ],
)
def test_a_call_that_does_not_rank_both_names_is_no_preference(
    ranked: Any, found: float | None
) -> None:
    """The model's answer is shown first; the judge may put anything into its call."""
    call = {"function": {"name": "rank", "arguments": json.dumps({"ordered_models": ranked})}}
    reply = Reply(completion(None, tool_calls=[call]))
    assert preference(reply, swapped=True) == found


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[]", "is no annotator"),
        ('{"name": "a", "system": "b"}', "is no annotator"),
        (json.dumps({**WORDS, "prompt": "{instruction} {output_1}"}), r"lacks \{output_2\}"),
        (json.dumps({**WORDS, "prompt": WORDS["prompt"] + "{hint}"}), r"asks for \{hint\}"),
    ],
)
def test_a_file_that_is_no_annotator_is_refused(data: Path, text: str, message: str) -> None:
    (data / "annotator.json").write_text(text)
    with pytest.raises(UserError, match=message):
        read_annotator(data / "annotator.json")
