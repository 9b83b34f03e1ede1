"""Spending, and a budget that is never exceeded.

Before a request is sent, its maximum cost is reserved; the actual cost replaces it when the reply
arrives, so spent plus reserved never exceeds the budget. A request that does not fit waits while
others of the same ledger are in flight, since most cost less than reserved; if none are, the
evaluation ends. A request whose reply never arrived (timeout, broken connection) may have been
charged, so it counts at its maximum cost. Reservations of a killed process remain.

The total is in memory, or in a file shared by all workers of a run, which `share` names in the
environment; each run thus has its full budget.
"""

from __future__ import annotations

import json
import os
import threading
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from harness.endpoint.prices import TokenPrice
from harness.endpoint.request import ChatRequest, Reply
from harness.errors import HarnessError
from harness.runtime.files import explained, hold, write_whole

VARIABLE = "HARNESS_LEDGER"
"""Environment variable with the path of the shared file."""


def share(folder: Path) -> None:
    """Set up a new shared file in a folder for this process and its children."""
    os.environ[VARIABLE] = str(folder / f"{uuid.uuid4().hex}.json")


def shared_file() -> Path | None:
    named = os.environ.get(VARIABLE)
    return Path(named) if named else None


def tokens_of(request: ChatRequest, reply: Reply) -> tuple[int, int]:
    """Return the prompt and completion tokens to charge for a reply.

    These are the endpoint's counts, capped at the request's maximums, which also replace absent
    counts.
    """
    most = request.most_prompt_tokens, request.most_completion_tokens
    prompt, completion = reply.usage or most
    return min(prompt, most[0]), min(completion, most[1])


class BudgetReachedError(HarnessError):
    """The next request could exceed the budget."""


@dataclass
class Spending:
    """One command's requests and their cost.

    Requests and tokens are those of replies from the network. `usd` is None once a price was
    unknown; `usd_unconfirmed` is the maximum cost of requests whose reply was lost.
    """

    requests: int = 0
    from_cache: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    usd: float | None = 0.0
    usd_unconfirmed: float = 0.0


class Ledger:
    """Thread-safe total of tokens and dollars over all endpoints.

    A budget of None is unlimited. With a `file`, dollars are shared with every ledger that uses it.
    """

    def __init__(self, budget_usd: float | None = None, file: Path | None = None) -> None:
        self.spending = Spending()
        self._budget_usd = budget_usd
        self._file = file
        self._sum = {"usd": 0.0}
        self._changed = threading.Condition()
        self._under_way = 0
        self._closed: str | None = None

    def reserve(self, request: ChatRequest, price: TokenPrice | None) -> float:
        """Reserve a request's maximum cost, waiting while requests in flight may free some.

        Returns:
            The reserved dollars, to pass to exactly one of `settle`, `release` and `lose`.

        Raises:
            BudgetReachedError: They do not fit into the budget.
        """
        most = 0.0
        if price is not None:
            most = price.of(request.most_prompt_tokens, request.most_completion_tokens)
        with self._changed:
            while self._closed is None:
                with self._sum_now() as now:
                    taken = now["usd"]
                    if self._budget_usd is None or taken + most <= self._budget_usd:
                        now["usd"] += most
                        self._under_way += 1
                        return most
                if self._under_way:
                    self._changed.wait()
                    continue
                self._closed = (
                    f"Stopped before the budget of ${self._budget_usd:.2f} is passed: "
                    f"${taken:.4f} is spent and the next request can cost ${most:.4f}; raise "
                    "--budget-usd and run the same command again to go on."
                )
                self._changed.notify_all()
            raise BudgetReachedError(self._closed)

    def settle(
        self, most: float, request: ChatRequest, reply: Reply, price: TokenPrice | None
    ) -> None:
        """Replace a reservation with a reply's cost (see `tokens_of`)."""
        prompt, completion = tokens_of(request, reply)
        cost = 0.0 if price is None else price.of(prompt, completion)
        with self._changed:
            self._book(cost - most)
            done = self.spending
            done.usd = None if price is None or done.usd is None else done.usd + cost
            done.requests += 1
            done.prompt_tokens += prompt
            done.completion_tokens += completion

    def release(self, most: float) -> None:
        """Release the reservation of a request that the endpoint rejected."""
        with self._changed:
            self._book(-most)

    def lose(self, most: float) -> None:
        """Count a request whose reply was lost at its maximum cost."""
        with self._changed:
            self._book(0.0)
            self.spending.usd_unconfirmed += most

    def count_cached(self) -> None:
        with self._changed:
            self.spending.from_cache += 1

    def _book(self, usd: float) -> None:
        with self._sum_now() as now:
            now["usd"] += usd
        self._under_way -= 1
        self._changed.notify_all()

    @contextmanager
    def _sum_now(self) -> Iterator[dict[str, float]]:
        """Yield the dollars spent and reserved, locked against other writers within the block."""
        file = self._file
        if file is None:
            yield self._sum
            return
        with explained("counting what is spent", file.parent), hold(file.with_suffix(".lock")):
            now = {"usd": json.loads(file.read_bytes())["usd"] if file.exists() else 0.0}
            yield now
            write_whole(file, json.dumps(now))
