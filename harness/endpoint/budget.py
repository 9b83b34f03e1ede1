"""Spending, and a budget that is never exceeded.

A work folder has one ledger, changed under a lock. Before a request is sent, its maximum cost is
reserved; the actual cost replaces it when the reply arrives. A request that does not fit waits
while others of this process are in flight; if none are, the evaluation ends. A request whose reply
never arrived counts at its maximum cost. A deleted ledger is counted again from the kept replies.
"""

from __future__ import annotations

import logging
import sys
import threading
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from harness.endpoint.prices import TokenPrice
from harness.endpoint.replies import usd_of_kept
from harness.endpoint.request import ChatRequest, Reply
from harness.errors import HarnessError, UserError
from harness.foreign import ForeignTextError, in_a_line, read_json
from harness.runtime.files import dumps, explained, hold, write_whole

_LOG = logging.getLogger(__name__)


def tokens_of(request: ChatRequest, reply: Reply) -> tuple[int, int]:
    """Return the tokens to charge for a reply: the endpoint's counts, within the request's."""
    most = request.most_prompt_tokens, request.most_completion_tokens
    prompt, completion = reply.usage or most
    return min(prompt, most[0]), completion if request.limit is None else min(completion, most[1])


def check_budget(usd: float | None) -> None:
    """Refuse a budget that is not a number of dollars."""
    if usd is not None and not 0.0 <= usd < float("inf"):
        raise UserError(f"--budget-usd is {usd:g}; give dollars, 0 or more")


class BudgetReachedError(HarnessError):
    """The next request could exceed the budget."""


@dataclass
class Spending:
    """One command's requests, tokens and dollars; `usd` is None once a price was unknown."""

    requests: int = 0
    from_cache: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    usd: float | None = 0.0
    usd_unconfirmed: float = 0.0


class Ledger:
    """Thread-safe dollars of one process, added to the ledger in the folder of the kept replies."""

    def __init__(self, folder: Path, budget_usd: float | None = None) -> None:
        self.spending = Spending()
        self._file = folder / "ledger.json"
        self._budget_usd = budget_usd
        self._changed = threading.Condition()
        self._in_flight: list[float] = []
        self._closed: str | None = None

    def reserve(self, request: ChatRequest, price: TokenPrice | None) -> float:
        """Reserve and return a request's maximum cost, until `settle`, `release` or `lose`."""
        most = 0.0
        if price is not None:
            most = price.of(request.most_prompt_tokens, request.most_completion_tokens)
        if self._budget_usd is not None and most and request.limit is None:
            raise UserError(
                f"--budget-usd needs the longest reply to {in_a_line(request.label, 80)}, in "
                "tokens; set `max_new_tokens` (in a benchmark's own settings, `max_tokens`)"
            )
        with self._changed:
            while self._closed is None:
                refused_at = self._add(most, self._budget_usd)
                if refused_at is None:
                    self._in_flight.append(most)
                    return most
                if self._in_flight:
                    self._changed.wait()
                    continue
                self._closed = (
                    f"Stopped before the budget of ${self._budget_usd:.2f} is passed: "
                    f"${refused_at:.4f} is spent in this work folder and the next request can cost "
                    f"${most:.4f}; raise --budget-usd and run the same command again to go on."
                )
                self._changed.notify_all()
            raise BudgetReachedError(self._closed)

    def settle(
        self, most: float, request: ChatRequest, reply: Reply, price: TokenPrice | None
    ) -> float | None:
        """Replace a reservation with a reply's cost (see `tokens_of`), and return that."""
        prompt, completion = tokens_of(request, reply)
        cost = None if price is None else price.of(prompt, completion)
        with self._changed:
            done = self.spending
            done.usd = None if cost is None or done.usd is None else done.usd + cost
            done.requests += 1
            done.prompt_tokens += prompt
            done.completion_tokens += completion
            self._land(most, (cost or 0.0) - most)
        return cost

    def release(self, most: float) -> None:
        """Release the reservation of a request that is known not to be charged."""
        with self._changed:
            self._land(most, -most)

    def lose(self, most: float) -> None:
        """Count a request that may be charged at its maximum cost."""
        with self._changed:
            self.spending.usd_unconfirmed += most
            self._land(most, 0.0)

    def count_cached(self) -> None:
        with self._changed:
            self.spending.from_cache += 1

    def _land(self, most: float, usd: float) -> None:
        try:
            self._add(usd)
        finally:  # also where the disk is full: others wait for this one
            self._in_flight.remove(most)
            self._changed.notify_all()

    def _add(self, usd: float, budget_usd: float | None = None) -> float | None:
        """Add dollars to the ledger; if they would exceed a budget, return its total instead."""
        if usd == 0.0:
            return None
        with (
            explained("counting what is spent", self._file.parent),
            hold(self._file.with_suffix(".lock")),
        ):
            total = self._total()
            if budget_usd is not None and total + usd > budget_usd:
                return total
            write_whole(self._file, dumps({"usd": max(0.0, total + usd)}))
        return None

    def _total(self) -> float:
        if not self._file.exists():
            kept = usd_of_kept(self._file.parent)
            if kept:
                _LOG.warning("%s is gone; the kept replies cost $%.4f", self._file, kept)
            return kept + sum(self._in_flight) + self.spending.usd_unconfirmed
        with suppress(ForeignTextError, KeyError, TypeError):
            usd = read_json(self._file.read_bytes() if self._file.is_file() else "")["usd"]
            if type(usd) in (int, float) and 0.0 <= usd <= sys.float_info.max:
                return float(usd)
        raise HarnessError(
            f"{self._file} is damaged, so what was spent is not known; delete it, and it is "
            "counted again from the kept replies."
        )
