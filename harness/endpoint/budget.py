"""What has been spent, and a budget that is never passed.

Before a request is sent, the most it can cost is set aside; when its reply is there, what it did
cost takes that place. So the sum of what is spent and set aside never exceeds the budget, whatever
the replies turn out to be. A request that does not fit while others are under way waits for them,
since they mostly cost less than was set aside; one that does not fit although nothing is under way
ends the evaluation.

A request whose reply never came (a timeout, a cut connection) may have been charged or not: it
counts at the most it can have cost, under a name of its own. So does what a process had under way
that was killed.

The sums stand in a book. Without a folder it is this process's own. In a folder, all processes on
all machines that draw on it at the same time share it: what they spend together is held against the
budget of each. It begins anew when somebody opens it while nobody else draws on it, so that the
next command has its whole budget again.
"""

from __future__ import annotations

import atexit
import json
import logging
import threading
import uuid
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from pydantic import BaseModel, ValidationError

from harness.endpoint.prices import Price
from harness.endpoint.request import ChatRequest, Reply
from harness.errors import HarnessError
from harness.runtime.files import explained, write_whole
from harness.runtime.leases import hold, is_held

_LOOK_S = 0.1
"""Seconds between two looks at what other processes have under way."""

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

    Requests and tokens are those of replies that came over the network. `usd` is None where a price
    is not known; `usd_unconfirmed` is the most that requests without a reply can have cost.
    `overstated` counts the replies whose endpoint counted more tokens than the request allows; they
    are counted at what it allows.
    """

    requests: int
    from_cache: int
    prompt_tokens: int
    completion_tokens: int
    usd: float | None
    usd_unconfirmed: float
    overstated: int


class Book:
    """What the processes that draw on one budget have spent, and have under way; for many threads.

    Amounts are kept as whole picodollars, so that no order of adding changes a sum. Without a
    folder it is this process's own.
    """

    def __init__(self, folder: Path | None = None) -> None:
        self._folder = folder
        self._name = uuid.uuid4().hex
        self._mine = ExitStack()
        self._joined = False
        self._next = 0
        self._sums = _Sums(spent={}, under_way={})

    def join(self) -> None:
        """Draw on it from now on, until this process ends."""
        with self._sums_now():
            pass

    def reserve(self, role: str, most: float, limits: Sequence[Limit]) -> tuple[int, Limit | None]:
        """Set an amount aside if every limit leaves room for it; return its ticket, and None.

        Else the limit that leaves none, after the number of requests that may yet make room.
        """
        with self._sums_now() as sums:
            for limit in limits:
                if not sums.fits(limit, role, _pico(most)):
                    self._bury(sums)
                    return sum(limit.counts(whose) for whose, _ in sums.held()), limit
            self._next += 1
            sums.under_way.setdefault(self._name, {})[str(self._next)] = (role, _pico(most))
            return self._next, None

    def settle(self, ticket: int, usd: float | None) -> int:
        """Count what was set aside at what it cost, or at all of it; return that in picodollars."""
        with self._sums_now() as sums:
            role, most = sums.under_way[self._name].pop(str(ticket))
            cost = most if usd is None else _pico(usd)
            sums.spent[role] = sums.spent.get(role, 0) + cost
            return cost

    def spent(self, limit: Limit) -> float:
        """Return the dollars that count towards a limit, without what is under way."""
        with self._sums_now() as sums:
            return sum(sums.spent[role] for role in sums.spent if limit.counts(role)) / _PICO

    @contextmanager
    def _sums_now(self) -> Iterator[_Sums]:
        """Let nobody else change the sums while the block lasts; keep what it makes of them."""
        if self._folder is None:
            yield self._sums
            return
        path = self._folder / "book.json"
        with (
            explained("counting what is spent", self._folder),
            hold(self._folder / ".locks" / "book"),
        ):
            alone = not self._joined and self._join()
            sums = _Sums(spent={}, under_way={}) if alone else _Sums.read(path)
            before = sums.text()
            yield sums
            if alone or sums.text() != before:
                write_whole(path, sums.text())

    def _join(self) -> bool:
        """Say that this process draws on the book; return whether no other does."""
        assert self._folder is not None
        sessions = self._folder / "sessions"
        names = [path.name for path in sessions.glob("*") if not path.suffix]
        living = [name for name in names if is_held(sessions / name)]
        self._mine.enter_context(hold(sessions / self._name))
        atexit.register(self._mine.close)
        self._joined = True
        return not living

    def _bury(self, sums: _Sums) -> None:
        """Count what processes that have ended had under way at the most it can have cost."""
        if self._folder is None:
            return
        for name in set(sums.under_way) - {self._name}:
            if not is_held(self._folder / "sessions" / name):
                for role, most in sums.under_way.pop(name).values():
                    sums.spent[role] = sums.spent.get(role, 0) + most


@dataclass(frozen=True)
class Limit:
    """A budget in dollars, what raises it, and whose requests count: one role's, or all."""

    usd: float
    raised_by: str
    role: str | None = None

    def counts(self, role: str) -> bool:
        """Return whether a role's requests count towards it."""
        return self.role in (None, role)


_PICO = 10**12


def _pico(usd: float) -> int:
    return round(usd * _PICO)


class _Sums(BaseModel):
    """Picodollars spent by role; the role and the picodollars of each ticket by its process."""

    spent: dict[str, int]
    under_way: dict[str, dict[str, tuple[str, int]]]

    def fits(self, limit: Limit, role: str, most: int) -> bool:
        """Return whether a limit leaves room for a role's next request."""
        if not limit.counts(role):
            return True
        total = sum(self.spent[r] for r in self.spent if limit.counts(r))
        total += sum(usd for r, usd in self.held() if limit.counts(r))
        return total + most <= _pico(limit.usd)

    def held(self) -> list[tuple[str, int]]:
        """Return the role and the amount of each request that is under way."""
        return [kept for tickets in self.under_way.values() for kept in tickets.values()]

    def text(self) -> str:
        return json.dumps(self.model_dump(mode="json"), sort_keys=True)

    @classmethod
    def read(cls, path: Path) -> _Sums:
        """Return the sums of a file; none where there is none."""
        try:
            return cls.model_validate_json(path.read_bytes())
        except FileNotFoundError:
            return cls(spent={}, under_way={})
        except ValidationError as error:
            raise HarnessError(
                f"{path}, which says what is spent, is not what was written: look at your "
                "provider's bill, then delete it"
            ) from error


@cache
def shared_book(folder: Path) -> Book:
    """Return this process's one book in a folder."""
    return Book(folder)


class Ledger:
    """Counts tokens and dollars of all endpoints together; may be used from many threads.

    A budget is the most dollars for a role, with the option that raises it; None is no limit.
    `total_usd` is that of all roles of the book, where the sums stand; without one they stand here.
    """

    def __init__(
        self,
        budget_usd: float | None = None,
        raised_by: str = "--budget-usd",
        *,
        book: Book | None = None,
        role: str = "EVALUATE",
        total_usd: float | None = None,
    ) -> None:
        self._book = book or Book()
        self._role = role
        limits = [(budget_usd, raised_by, role), (total_usd, "--budget-usd", None)]
        self._limits = [Limit(usd, by, whose) for usd, by, whose in limits if usd is not None]
        self._changed = threading.Condition()
        self._requests = self._cached = self._overstated = 0
        self._prompt_tokens = self._completion_tokens = 0
        self._usd = self._unconfirmed = 0
        self._unpriced = False
        self._closed: Limit | None = None

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
            while True:
                found, limit = self._book.reserve(self._role, most, self._limits)
                if limit is None and self._closed is not None:
                    self._book.settle(found, 0.0)
                    limit = self._closed
                if limit is None:
                    return found
                if self._closed is not None or not found:
                    self._closed = limit
                    self._changed.notify_all()
                    raise BudgetReachedError(self._stopped(limit, most))
                self._changed.wait(_LOOK_S)

    def settle(self, ticket: int, request: ChatRequest, reply: Reply, price: Price | None) -> None:
        """Count a reply at what it cost; without a count that can be, at the most."""
        tokens, overstated = tokens_of(request, reply), is_overstated(request, reply)
        with self._changed:
            if overstated and not self._overstated:
                _LOG.warning(_OVERSTATED, reply.usage, request.label, tokens)
            self._overstated += overstated
            self._usd += self._book.settle(ticket, 0.0 if price is None else price.of(*tokens))
            self._requests += 1
            self._prompt_tokens += tokens[0]
            self._completion_tokens += tokens[1]
            self._unpriced = self._unpriced or price is None
            self._changed.notify_all()

    def release(self, ticket: int) -> None:
        """Give back what was set aside for a request that the endpoint turned away."""
        with self._changed:
            self._book.settle(ticket, 0.0)
            self._changed.notify_all()

    def lose(self, ticket: int) -> None:
        """Count a request whose reply never came at the most it can have cost."""
        with self._changed:
            self._unconfirmed += self._book.settle(ticket, None)
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
                usd=None if self._unpriced else self._usd / _PICO,
                usd_unconfirmed=self._unconfirmed / _PICO,
                overstated=self._overstated,
            )

    def _stopped(self, limit: Limit, most: float) -> str:
        spent = self._book.spent(limit)
        return (
            f"Stopped before the budget of ${limit.usd:.2f} is passed: ${spent:.4f} is spent "
            f"and the next request can cost ${most:.4f}; raise {limit.raised_by} and run the "
            "same command again to go on."
        )
