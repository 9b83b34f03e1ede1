"""One ledger and one budget for all processes of a work folder, whoever of them is killed."""

import errno
import json
import os
from pathlib import Path
from typing import Any

import pytest
from judge_stand_in import PRICE, StandIn, ask_for, client_of

from harness.endpoint.budget import BudgetReachedError, Ledger
from harness.endpoint.prices import TokenPrice
from harness.endpoint.request import Reply
from harness.errors import HarnessError

RIVALS = 8
BUDGET = 0.05
REPLY_USD = 0.0013
"""100 tokens of prompt and 10 of completion, as the endpoint counts them."""

ASKS = """
import sys
from pathlib import Path
from judge_stand_in import ask_for, client_of
from harness.endpoint.budget import BudgetReachedError
from harness.endpoint.client import ServedModel, work_through
url, folder, rival, budget = sys.argv[1:]
client = client_of(url, Path(folder), float(budget))
requests = [ask_for("x" * 88 + f"{rival} {number}") for number in range(30)]
print("drawing", flush=True)
sys.stdin.readline()
try:
    served = ServedModel(client, "judge", concurrency=2)
    work_through(requests, lambda request: client.ask(request).text, served)
except BudgetReachedError as error:
    print(error)
"""
PATH = os.pathsep.join(map(str, Path(__file__).resolve().parents[1:3]))
"""Where a process finds the tests' own modules, and the harness."""


REQUEST = ask_for("x" * 114)
MOST_USD = PRICE.of(REQUEST.most_prompt_tokens, 10)
"""What the request can cost at most."""


def test_eight_processes_hold_one_budget(tmp_path: Path, spawn: Any) -> None:
    """Derivation: 38 replies of 0.13 cents are 4.94 cents; the 39th would pass 5.

    A process ends when its next request does not fit and none of its own is under way; the other
    seven may have two each under way then.
    """
    with StandIn() as server:
        asked = ("-c", ASKS, server.url, tmp_path)
        rivals = [spawn(*asked, n, BUDGET, PYTHONPATH=PATH) for n in range(RIVALS)]
        assert [rival.stdout.readline() for rival in rivals] == ["drawing\n"] * RIVALS
        for rival in rivals:
            rival.stdin.write("\n")
            rival.stdin.flush()
        said = [rival.communicate(timeout=200) for rival in rivals]
        answered = server.requests
    for out, errors in said:
        assert "Stopped before the budget of $0.05 is passed" in out, errors
        assert "raise --budget-usd" in out
    spent = answered * REPLY_USD
    assert BUDGET - (1 + 2 * (RIVALS - 1)) * MOST_USD < spent <= BUDGET
    ledger = json.loads((tmp_path / "replies" / "ledger.json").read_bytes())
    assert ledger["usd"] == pytest.approx(spent)


def test_what_a_killed_process_had_under_way_counts_at_the_most(tmp_path: Path) -> None:
    # One that is killed is one that neither settles nor releases.
    Ledger(tmp_path).reserve(REQUEST, PRICE)
    ours = Ledger(tmp_path, 2.5 * MOST_USD)
    most = ours.reserve(REQUEST, PRICE)
    free = Reply({"usage": {"prompt_tokens": 0, "completion_tokens": 0}})
    assert ours.settle(most, REQUEST, free, PRICE) == 0.0
    ours.release(ours.reserve(REQUEST, PRICE))
    ours.lose(ours.reserve(REQUEST, PRICE))
    with pytest.raises(BudgetReachedError, match=f"{2 * MOST_USD:.4f} is spent"):
        ours.reserve(REQUEST, PRICE)


def test_a_budget_counts_what_earlier_commands_spent_and_free_requests_pass(tmp_path: Path) -> None:
    free = Ledger(tmp_path)
    free.lose(free.reserve(REQUEST, None))
    assert not (tmp_path / "ledger.json").exists()
    for _ in range(2):
        Ledger(tmp_path, 2.0 * MOST_USD).reserve(REQUEST, PRICE)
    later = Ledger(tmp_path, 2.0 * MOST_USD)
    assert later.reserve(REQUEST, TokenPrice(0.0, 0.0)) == later.reserve(REQUEST, None) == 0.0


AMOUNTS = ['"much"', "1e999", "-1", "NaN", "true", str(10**400)]
DAMAGES = ["", "[]", "{}", "null", '{"usd": 1', "\x00", "[" * 200, None]
DAMAGES += [f'{{"usd": {amount}}}' for amount in AMOUNTS]


@pytest.mark.parametrize("text", DAMAGES)
def test_a_damaged_ledger_is_one_sentence_before_anything_is_paid(
    tmp_path: Path, text: str | None
) -> None:
    """None is a folder in its place."""
    with StandIn() as server:
        client = client_of(server, tmp_path, budget=1.0)
        client.ask(ask_for("a"))
        ledger = tmp_path / "replies" / "ledger.json"
        if text is None:
            ledger.unlink()
            ledger.mkdir()
        else:
            ledger.write_text(text)
        with pytest.raises(HarnessError, match=r"ledger\.json is damaged.*; delete it") as caught:
            client_of(server, tmp_path, budget=1.0).ask(ask_for("b"))
        assert server.requests == 1
    assert str(caught.value).isprintable()


def test_a_deleted_ledger_is_counted_again_from_the_kept_replies(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Derivation: two replies of 0.13 cents; without them, a third would fit into 0.5 cents."""
    with StandIn() as server:
        for text in "ab":
            client_of(server, tmp_path, budget=0.005).ask(ask_for(text))
            (tmp_path / "replies" / "ledger.json").unlink()
        again = client_of(server, tmp_path, budget=0.003)
        with pytest.raises(BudgetReachedError, match=r"\$0\.0026 is spent"):
            again.ask(ask_for("c"))
        again.ask(ask_for("a"))
        assert again.ledger.spending.from_cache == 1
    assert "ledger.json is gone; the kept replies cost $0.0026" in caplog.text


def test_a_ledger_that_cannot_be_written_lets_nobody_wait(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger = Ledger(tmp_path, 1.5 * MOST_USD)
    usd = ledger.reserve(REQUEST, PRICE)

    def fails(path: Path, content: str) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as full:
        full.setattr("harness.endpoint.budget.write_whole", fails)
        with pytest.raises(HarnessError, match="the disk is full while counting what is spent"):
            ledger.release(usd)
    with pytest.raises(BudgetReachedError):  # and does not wait for what is not under way
        ledger.reserve(REQUEST, PRICE)
