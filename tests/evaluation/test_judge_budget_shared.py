"""One budget for all processes that draw on one ledger, whoever of them is killed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from judge_stand_in import StandIn

from harness.endpoint.budget import VARIABLE, BudgetReachedError, Ledger, share, shared_file
from harness.endpoint.prices import TokenPrice
from harness.endpoint.request import ChatRequest, Message, Reply

ROOT = Path(__file__).resolve().parents[2]
RIVALS = 8
BUDGET = 0.05
PRICE = TokenPrice(10.0, 30.0)
REPLY_USD = 0.0013
"""100 tokens of prompt and 10 of completion, as the endpoint counts them."""

ASKS = """
import sys
from pathlib import Path
from harness.endpoint.budget import BudgetReachedError, Ledger, shared_file
from harness.endpoint.client import ReplyCache
from harness.endpoint.client import Client, ServedModel, work_through
from harness.endpoint.connection import Endpoint
from harness.endpoint.prices import TokenPrice
from harness.endpoint.request import ChatRequest, Message
url, folder, rival, budget = sys.argv[1:]
ledger = Ledger(float(budget), shared_file())
client = Client(
    Endpoint(url, "NO_KEY"), ReplyCache(Path(folder) / rival), ledger, TokenPrice(10.0, 30.0)
)
settings = {"temperature": 0, "max_tokens": 10}
texts = ["x" * 88 + f"{rival} {number}" for number in range(30)]
requests = [ChatRequest("p", "judge", (Message("user", text),), settings) for text in texts]
print("drawing", flush=True)
sys.stdin.readline()
try:
    served = ServedModel(client, "judge", concurrency=2)
    work_through(requests, lambda request: client.ask(request).text, served)
except BudgetReachedError as error:
    print(error)
"""


def start(url: str, folder: Path, rival: int, budget: float) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", ASKS, url, str(folder), str(rival), str(budget)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
    )


def drawing(rival: subprocess.Popen[str]) -> bool:
    assert rival.stdout is not None
    return rival.stdout.readline() == "drawing\n"


def ask() -> ChatRequest:
    text = "x" * 114
    return ChatRequest("p", "judge", (Message("user", text),), {"max_tokens": 10})


@pytest.fixture(autouse=True)
def ledger_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the file that this process and those it starts draw on."""
    monkeypatch.setenv(VARIABLE, "")
    share(tmp_path / "spending")
    found = shared_file()
    assert found is not None
    return found


def test_eight_processes_hold_one_budget(tmp_path: Path, ledger_file: Path) -> None:
    """Derivation: 38 replies of 0.13 cents are 4.94 cents; the 39th would pass 5.

    A process ends when its next request does not fit and none of its own is under way; the other
    seven may have two each under way then.
    """
    with StandIn() as server:
        rivals = [start(server.url, tmp_path, rival, BUDGET) for rival in range(RIVALS)]
        assert all(map(drawing, rivals))
        for rival in rivals:
            assert rival.stdin is not None
            rival.stdin.write("\n")
            rival.stdin.flush()
        said = [rival.communicate(timeout=200) for rival in rivals]
        answered = server.requests
    for out, errors in said:
        assert "Stopped before the budget of $0.05 is passed" in out, errors
        assert "raise --budget-usd" in out
    spent = answered * REPLY_USD
    most = PRICE.of(ask().most_prompt_tokens, 10)
    assert BUDGET - (1 + 2 * (RIVALS - 1)) * most < spent <= BUDGET
    assert sum(json.loads(ledger_file.read_bytes()).values()) == pytest.approx(spent)


def test_what_a_killed_process_had_under_way_counts_at_the_most(ledger_file: Path) -> None:
    request, usd = ask(), PRICE.of(ask().most_prompt_tokens, 10)
    # One that is killed is one that neither settles nor releases.
    Ledger(file=ledger_file).reserve(request, PRICE)
    ours = Ledger(2.5 * usd, file=ledger_file)
    most = ours.reserve(request, PRICE)
    free = Reply({"usage": {"prompt_tokens": 0, "completion_tokens": 0}})
    ours.settle(most, request, free, PRICE)
    ours.release(ours.reserve(request, PRICE))
    ours.lose(ours.reserve(request, PRICE))
    with pytest.raises(BudgetReachedError, match=f"{2 * usd:.4f} is spent"):
        ours.reserve(request, PRICE)


def test_every_run_has_its_whole_budget(tmp_path: Path, ledger_file: Path) -> None:
    share(tmp_path / "spending")
    assert shared_file() != ledger_file


@pytest.mark.parametrize("text", ["", "[]", '{"usd": "much"}', '{"usd": 1'])
def test_a_damaged_ledger_stops_what_would_be_paid(ledger_file: Path, text: str) -> None:
    ledger = Ledger(1.0, file=ledger_file)
    ledger.release(ledger.reserve(ask(), PRICE))
    ledger_file.write_text(text)
    with pytest.raises((ValueError, TypeError)):
        ledger.reserve(ask(), PRICE)
