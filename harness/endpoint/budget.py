"""What has been spent, and a budget that is never passed.

Before a request is sent, the most it can cost is set aside; when its reply is there, what it did
cost takes that place. So the sum of what is spent and set aside never exceeds the budget, whatever
the replies turn out to be. A request that does not fit while others are under way waits for them,
since they mostly cost less than was set aside; one that does not fit although nothing is under way
ends the evaluation.

A request whose reply never came (a timeout, a cut connection) may have been charged or not: it
counts at the most it can have cost, under a name of its own.
"""

from __future__ import annotations

import logging
import threading
from dataclasses import dataclass

from harness.endpoint.prices import Price
from harness.endpoint.request import ChatRequest, Reply
from harness.errors import HarnessError

_LOG = logging.getLogger(__name__)
_OVERSTATED = (
    "The endpoint says that %s tokens were taken for %s, which can be %s at most: such replies are "
    "counted at the most, and what it charges for them is not known"
)


def tokens_of(request: ChatRequest, reply: Reply) -> tuple[int, int]:
    """Return the tokens of prompt and completion that a reply is counted at.

    They are those that the endpoint counted, but no more than the request allows: what it sent and
    the limit it set bound them, whatever is claimed. Without a count they are these bounds.
    """
    most = request.most_prompt_tokens, request.most_completion_tokens
    prompt, completion = reply.usage or most
    return min(prompt, most[0]), min(completion, most[1])


def is_overstated(request: ChatRequest, reply: Reply) -> bool:
    """Return whether an endpoint counted more tokens than a request allows."""
    return reply.usage is not None and reply.usage != tokens_of(request, reply)


class BudgetReachedError(HarnessError):
    """The next request could pass the budget."""


@dataclass(frozen=True)
class Spending:
    """What one command asked for and what that cost.

    Attributes:
        requests: Replies that came over the network.
        from_cache: Replies that were already there.
        prompt_tokens: Tokens of the prompts of the former.
        completion_tokens: Tokens of their completions.
        usd: Their price in dollars; None where a price is not known.
        usd_unconfirmed: The most that requests without a reply can have cost, in dollars.
        overstated: Replies whose endpoint counted more tokens than the request allows; they are
            counted at what it allows.
    """

    requests: int
    from_cache: int
    prompt_tokens: int
    completion_tokens: int
    usd: float | None
    usd_unconfirmed: float
    overstated: int


class Ledger:
    """Counts tokens and dollars of all endpoints together; may be used from many threads.

    A budget of None is no limit; `raised_by` says in the error what raises it.
    """

    def __init__(self, budget_usd: float | None = None, raised_by: str = "--budget-usd") -> None:
        self.budget_usd = budget_usd
        self._raised_by = raised_by
        self._changed = threading.Condition()
        self._under_way: dict[int, float] = {}
        self._next = 0
        self._requests = self._cached = self._overstated = 0
        self._prompt_tokens = self._completion_tokens = 0
        self._usd = self._unconfirmed = 0.0
        self._unpriced = False
        self._closed = False

    def reserve(self, request: ChatRequest, price: Price | None) -> int:
        """Set aside the most that a request can cost; wait while others may make room.

        Returns:
            A ticket, for exactly one of `settle`, `release` and `lose`.

        Raises:
            BudgetReachedError: It does not fit into the budget.
        """
        most = 0.0
        if price is not None:
            most = price.of(request.most_prompt_tokens, request.most_completion_tokens)
        with self._changed:
            while not self._fits(most):
                if self._closed or not self._under_way:
                    self._closed = True
                    self._changed.notify_all()
                    raise BudgetReachedError(self._stopped(most))
                self._changed.wait()
            self._next += 1
            self._under_way[self._next] = most
            return self._next

    def settle(self, ticket: int, request: ChatRequest, reply: Reply, price: Price | None) -> None:
        """Count a reply at what it cost; without a count that can be, at the most."""
        tokens, overstated = tokens_of(request, reply), is_overstated(request, reply)
        with self._changed:
            if overstated and not self._overstated:
                _LOG.warning(_OVERSTATED, reply.usage, request.label, tokens)
            self._overstated += overstated
            del self._under_way[ticket]
            self._requests += 1
            self._prompt_tokens += tokens[0]
            self._completion_tokens += tokens[1]
            if price is None:
                self._unpriced = True
            else:
                self._usd += price.of(*tokens)
            self._changed.notify_all()

    def release(self, ticket: int) -> None:
        """Give back what was set aside for a request that the endpoint turned away."""
        with self._changed:
            del self._under_way[ticket]
            self._changed.notify_all()

    def lose(self, ticket: int) -> None:
        """Count a request whose reply never came at the most it can have cost."""
        with self._changed:
            self._unconfirmed += self._under_way.pop(ticket)
            self._changed.notify_all()

    def count_cached(self) -> None:
        """Count a reply that was already there."""
        with self._changed:
            self._cached += 1

    @property
    def spending(self) -> Spending:
        """What has been spent so far."""
        with self._changed:
            return Spending(
                requests=self._requests,
                from_cache=self._cached,
                prompt_tokens=self._prompt_tokens,
                completion_tokens=self._completion_tokens,
                usd=None if self._unpriced else self._usd,
                usd_unconfirmed=self._unconfirmed,
                overstated=self._overstated,
            )

    def _fits(self, most: float) -> bool:
        if self.budget_usd is None:
            return True
        held = sum(self._under_way.values())
        return not self._closed and self._usd + self._unconfirmed + held + most <= self.budget_usd

    def _stopped(self, most: float) -> str:
        spent = self._usd + self._unconfirmed
        return (
            f"Stopped before the budget of ${self.budget_usd:.2f} is passed: ${spent:.4f} is spent "
            f"and the next request can cost ${most:.4f}; raise {self._raised_by} and run the "
            "same command again to go on."
        )
