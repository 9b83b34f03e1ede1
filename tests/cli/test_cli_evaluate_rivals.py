"""Two `harness evaluate` at once: one pays, the other waits for it, also if it is killed."""

import json
import subprocess
import threading
from pathlib import Path
from typing import Any

import pytest
from judge_stand_in import StandIn, completion, write_answered_mt_bench


@pytest.fixture
def command(tmp_path: Path) -> list[str]:
    """Write an MT-Bench of three questions; return what evaluates answers to it."""
    data = write_answered_mt_bench(tmp_path / "data", 3)
    return [
        *("-m", "harness", "evaluate", "mt_bench", "--no-track"),
        *("--data", str(data), "--answers", str(data / "answers.jsonl"), "--json"),
    ]


def read_until(process: subprocess.Popen[str], words: str) -> None:
    assert process.stderr is not None
    for line in process.stderr:
        if words in line:
            return
    raise AssertionError(f"it ended without saying `{words}`")


@pytest.mark.parametrize("first_is_killed", [False, True])
def test_the_second_waits_and_nothing_is_paid_twice(
    command: list[str], first_is_killed: bool, spawn: Any
) -> None:
    """The judge is silent on the second request until the other command has said that it waits."""
    two_are_there, may_go_on = threading.Event(), threading.Event()

    def reply(body: Any) -> Any:
        if server.requests == 2:
            two_are_there.set()
            may_go_on.wait(60)
        return completion("Rating: [[7]]")

    with StandIn(reply) as server:
        environment = {"HARNESS_JUDGE_URL": server.url, "HARNESS_JUDGE_CONCURRENCY": "1"}
        first = spawn(*command, **environment)
        assert two_are_there.wait(60)
        second = spawn(*command, **environment)
        read_until(second, "another command evaluates m on mt_bench with gpt-4: waiting")
        assert server.requests == 2
        if first_is_killed:
            first.kill()
            first.wait(60)
        may_go_on.set()
        said, _ = second.communicate(timeout=60)
        if not first_is_killed:
            assert first.communicate(timeout=60)[0] == said
        first.wait(60)
        # Of a killed command the reply that it waited for is lost, and no other.
        assert server.requests == 6 + first_is_killed
    assert second.returncode == 0
    (found,) = json.loads(said)["items"]
    assert found["scores"]["average"] == 7.0
