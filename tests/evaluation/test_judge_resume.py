"""An evaluation that is killed goes on: every reply that had arrived is kept, once."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

from judge_stand_in import StandIn, completion, digest

from harness.endpoint.client import ReplyCache
from harness.endpoint.request import ChatRequest, Message

ROOT = Path(__file__).resolve().parents[2]
REQUESTS, CONCURRENCY, KILLS = 60, 4, (10, 25, 40)

EVALUATION = f"""
import sys
from pathlib import Path
from harness.endpoint.client import ReplyCache
from harness.endpoint.client import Client, work_through
from harness.endpoint.connection import Endpoint
from harness.endpoint.budget import Ledger
from harness.endpoint.request import ChatRequest, Message

url, folder = sys.argv[1:]
client = Client(Endpoint(url, "JUDGE_TEST_KEY"), ReplyCache(Path(folder)), Ledger(),
                sleep=lambda seconds: None)
asked = [ChatRequest(str(i), "judge", (Message("user", str(i)),)) for i in range({REQUESTS})]
outcomes = work_through(asked, lambda r: client.ask(r).text, client, {CONCURRENCY})
print(" ".join(outcome.result for outcome in outcomes))
"""


def test_three_kills_and_injected_failures_leave_every_judgment_once(tmp_path: Path) -> None:
    """The judge kills the evaluation while it asks; only what was under way can be asked twice."""
    running: list[subprocess.Popen[str]] = []
    kills, one_at_a_time = list(KILLS), threading.Lock()

    def reply(body: Any) -> Any:
        with one_at_a_time:
            if kills and server.requests >= kills[0]:
                kills.pop(0)
                os.kill(running[-1].pid, signal.SIGKILL)
        return completion(str(digest(body)))

    with StandIn(reply, failing=0.1) as server:
        codes: list[int] = []
        out = ""
        while not codes or codes[-1] != 0:
            assert len(codes) <= len(KILLS)
            process = subprocess.Popen(
                [sys.executable, "-c", EVALUATION, server.url, str(tmp_path)],
                stdout=subprocess.PIPE,
                text=True,
                cwd=ROOT,
            )
            running.append(process)
            out, _ = process.communicate()
            codes.append(process.returncode)
        cache = ReplyCache(tmp_path)
        requests = [
            ChatRequest(str(i), "judge", (Message("user", str(i)),)) for i in range(REQUESTS)
        ]
        kept = [cache.get(request.address(server.url)) for request in requests]
    assert codes == [-signal.SIGKILL] * len(KILLS) + [0]
    assert out.split() == [str(digest(request.body())) for request in requests]
    assert [reply.text for reply in kept if reply is not None] == out.split()
    lines = [line for path in tmp_path.glob("*.jsonl") for line in path.read_text().splitlines()]
    # A kill may leave half a line, which counts for nothing.
    assert sum(line.endswith("}") for line in lines) == REQUESTS
    assert sum(server.answered.values()) - REQUESTS <= CONCURRENCY * len(KILLS)
