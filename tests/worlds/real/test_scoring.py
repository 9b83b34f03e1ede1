"""Laws of the judge of prompts: strict replies, broken ones asked again, missing ones missing."""

import json
import threading
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from judge_stand_in import StandIn, client_of, completion, digest

from harness.endpoint.client import ServedModel
from harness.worlds.real.scoring import (
    COMPLEXITY,
    QUALITY,
    SETTINGS,
    ask_about_all,
    read_score,
    read_topic,
)

PROMPTS = [f"What is the number {i} good for?" for i in range(20)]


def judge_of(server: StandIn, folder: Path, **options: Any) -> ServedModel:
    client = client_of(server, folder, price=None)
    return ServedModel(client, "scorer", SETTINGS, concurrency=4, **options)


def score_of(body: Any) -> int:
    return 1 + digest(body) % 5


def scores(body: Any) -> Any:
    return completion(json.dumps({"score": score_of(body)}))


@pytest.mark.parametrize(
    ("reply", "score"),
    [
        ('{"score": 3}', 3),
        ('  {"score":5}\n', 5),
        ('```json\n{"score": 1}\n```', 1),
        ('```\n{"score": 1}\n```', 1),
    ],
)
def test_a_score_is_read_from_what_was_asked_for(reply: str, score: int) -> None:
    assert read_score(reply) == score


@pytest.mark.parametrize(
    "reply",
    [
        '{"score": 0}', '{"score": 6}', '{"score": 3.0}', '{"score": true}', '{"score": "3"}',
        '{"score": [3]}', '{"score": null}', '{"score": 3, "why": "short"}', '{"Score": 3}',
        'Score: {"score": 3}', '{"score": 3} {"score": 4}', '{"score": 3', "[3]", "3", "",
        "[" * 100_000,
    ],
)  # fmt: skip
def test_a_score_is_read_from_nothing_else(reply: str) -> None:
    assert read_score(reply) is None


@pytest.mark.parametrize(
    ("reply", "topic"),
    [
        *(('{"topic": "math"}', "math"), ('```json\n{"topic": "coding"}\n```', "coding")),
        *(('{"topic": "Math"}', None), ('{"topic": "maths"}', None), ("math", None)),
        *(('{"topic": ["math"]}', None), ('{"topic": {}}', None)),
    ],
)
def test_a_topic_is_one_of_those_there_are(reply: str, topic: str | None) -> None:
    assert read_topic(reply) == topic


def test_every_prompt_gets_the_score_of_its_reply_and_is_asked_about_once(tmp_path: Path) -> None:
    with StandIn(scores) as server:
        judge = judge_of(server, tmp_path)
        values, lacking = ask_about_all(judge, QUALITY, [*PROMPTS, PROMPTS[3]])
        assert server.requests == len(PROMPTS)
        expected = [score_of(QUALITY.request(judge, prompt, 0).body()) for prompt in PROMPTS]
    assert values == [*expected, expected[3]]
    assert set(lacking.values()) == {0}


def test_the_judge_sees_the_scale_and_the_prompt(tmp_path: Path) -> None:
    with StandIn(scores) as server:
        judge = judge_of(server, tmp_path)
        ask_about_all(judge, COMPLEXITY, ["Why {prompt}?"])
    (message,) = server.bodies[0]["messages"]
    assert "<prompt>\nWhy {prompt}?\n</prompt>" in message["content"]
    assert "1: very simple" in message["content"]
    assert server.bodies[0]["temperature"] == 0.0


def test_a_broken_reply_is_asked_for_again_and_then_counts_as_missing(tmp_path: Path) -> None:
    """3 is never scored, 5 at the second asking, 7 refused, which is final; others at once."""
    seen: Counter[str] = Counter()
    guard = threading.Lock()

    def reply(body: Any) -> Any:
        number = body["messages"][0]["content"].partition("the number ")[2].split()[0]
        with guard:
            seen[number] += 1
        if number == "7":
            return 400, {"error": {"message": "filtered"}}, {}
        if number == "3" or (number == "5" and seen[number] == 1):
            return completion("I would give it a 4 out of 5.")
        return completion('{"score": 2}')

    lacking = {"prompts": 2, "refused": 1, "broken_replies": 3 + 1}
    with StandIn(reply) as server:
        found = ask_about_all(judge_of(server, tmp_path), QUALITY, PROMPTS[:8])
        assert server.requests == 8 + 2 + 1
        assert ask_about_all(judge_of(server, tmp_path), QUALITY, PROMPTS[:8]) == found
        assert server.requests == 8 + 2 + 1 + 1, "what was refused has no reply to keep"
    assert found == ([2, 2, 2, None, 2, 2, 2, None], lacking)


def test_what_identifies_a_score_is_model_and_wording() -> None:
    names = {*map(COMPLEXITY.identity, "aabb"), QUALITY.identity("a")}
    names.add(QUALITY.identity("a", {"temperature": 0.5}))
    assert len(names) == 4
    assert COMPLEXITY.identity("a").startswith("a/complexity@")
