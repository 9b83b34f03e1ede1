"""What the judge client delivers of what an endpoint's latency allows.

The stand-in judge of the tests replies after 50 ms, in a process of its own. With so many requests
at once, concurrency / latency requests a second are possible; printed is the share of that which
is reached, over some hundred requests with prompts of a few thousand characters, each kept on
disk. Prints one JSON object for each concurrency, with the processor time that a request costs the
client and the stand-in, and the machine's load: on a busy machine the share says little.

    python benchmarks/judge_throughput.py [concurrency ...]
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from harness.endpoint.budget import Ledger
from harness.endpoint.client import Client, ServedModel, work_through
from harness.endpoint.connection import Endpoint
from harness.endpoint.replies import ReplyCache
from harness.endpoint.request import ChatRequest, Message

STAND_IN = Path(__file__).resolve().parents[1] / "tests" / "judge_stand_in.py"
LATENCY_S = 0.05
SECONDS = 4.0
CHARACTERS = 4000


def request(number: int) -> ChatRequest:
    """Return a request as long as a judge's usually are."""
    text = f"[[rating]] {number} " + "x" * CHARACTERS
    settings = {"temperature": 0, "max_tokens": 2048}
    return ChatRequest(str(number), "judge", (Message("user", text),), settings)


def measure(concurrency: int) -> dict[str, float]:
    """Return how many requests a second are answered, and what they cost."""
    ideal = concurrency / LATENCY_S
    requests = [request(number) for number in range(int(ideal * SECONDS) + concurrency)]
    warm, timed = requests[:concurrency], requests[concurrency:]
    server = subprocess.Popen(
        [sys.executable, str(STAND_IN), "0", str(LATENCY_S), "0"], stdout=subprocess.PIPE, text=True
    )
    try:
        assert server.stdout is not None
        endpoint = Endpoint(server.stdout.readline().strip(), "NO_KEY")
        with tempfile.TemporaryDirectory() as folder:
            client = Client(endpoint, ReplyCache(Path(folder)), Ledger(Path(folder)))
            served = ServedModel(client, "judge", concurrency=concurrency)
            # The first requests import the client's library.
            work_through(warm, client.ask, served)
            before, began = _processor_s(server.pid), time.perf_counter()
            own = time.process_time()
            work_through(timed, client.ask, served)
            wall, own = time.perf_counter() - began, time.process_time() - own
            theirs = _processor_s(server.pid) - before
    finally:
        server.kill()
        server.wait()
    return {
        "concurrency": concurrency,
        "requests": len(timed),
        "per_s": round(len(timed) / wall, 1),
        "possible_per_s": ideal,
        "ratio": round(len(timed) / wall / ideal, 3),
        "client_cpu_ms": round(1000 * own / len(timed), 2),
        "stand_in_cpu_ms": round(1000 * theirs / len(timed), 2),
        "load": round(os.getloadavg()[0], 1),
    }


def _processor_s(pid: int) -> float:
    """Return the processor time a process has used, in seconds."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


if __name__ == "__main__":
    for asked in map(int, sys.argv[1:] or ["8", "32"]):
        print(json.dumps(measure(asked)), flush=True)
