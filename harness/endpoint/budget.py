"""What has been spent, and a budget that is never exceeded.

Before a request is sent, the most it can cost is reserved; the actual cost replaces it when the
reply arrives, so that spent and reserved together never exceed the budget. A request that does not
fit waits while others of the same ledger are in flight, since most cost less than was reserved; if
none is, the evaluation ends. A request whose reply never came (a timeout, a cut connection) may
have been charged: it counts at the most it can have cost. What a killed process had reserved stays
reserved.

The sum is in memory, or in one file that all workers of a run share: the run names it in the
environment (`share`), so that each run has its whole budget.
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
"""The environment variable with the file that the workers of a run draw on."""


def share(folder: Path) -> None:
    """Name a new file in a folder to this process and those it starts, to draw on together."""
    os.environ[VARIABLE] = str(folder / f"{uuid.uuid4().hex}.json")


def shared_file() -> Path | None:
    """Return the file that this process shares with others; None where there is none."""
    named = os.environ.get(VARIABLE)
    return Path(named) if named else None


def tokens_of(request: ChatRequest, reply: Reply) -> tuple[int, int]:
    """Return the tokens of prompt and completion that a reply is counted at.

    They are the endpoint's counts, at most what the request allows; without counts, the most.
    """
    most = request.most_prompt_tokens, request.most_completion_tokens
    prompt, completion = reply.usage or most
    return min(prompt, most[0]), min(completion, most[1])


class BudgetReachedError(HarnessError):
    """The next request could pass the budget."""


@dataclass
class Spending:
    """What one command asked for and what that cost.

    Requests and tokens are those of replies that came over the network. `usd` is None once a price
    was not known; `usd_unconfirmed` is the most that requests without a reply can have cost.
    """

    requests: int = 0
    from_cache: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    usd: float | None = 0.0
    usd_unconfirmed: float = 0.0


class Ledger:
    """Counts tokens and dollars of all endpoints together; may be used from many threads.

    A budget of None is no limit. The sum stands in the file, which all who name it draw on, or
    here.
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
        """Set aside the most that a request can cost; wait while others may make room.

        Returns:
            These dollars, for exactly one of `settle`, `release` and `lose`.

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
        """Count a reply at what it cost; without a count that can be, at the most."""
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
        """Give back what was set aside for a request that the endpoint turned away."""
        with self._changed:
            self._book(-most)

    def lose(self, most: float) -> None:
        """Count a request whose reply never came at the most it can have cost."""
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
        """Yield the dollars spent and set aside; nobody else changes them while the block lasts."""
        file = self._file
        if file is None:
            yield self._sum
            return
        with explained("counting what is spent", file.parent), hold(file.with_suffix(".lock")):
            now = {"usd": json.loads(file.read_bytes())["usd"] if file.exists() else 0.0}
            yield now
            write_whole(file, json.dumps(now))
