"""What has been spent, and a budget that is never passed.

Before a request is sent, the most it can cost is set aside; when its reply is there, what it did
cost takes that place. So the sum of what is spent and set aside never exceeds the budget, whatever
the replies turn out to be. A request that does not fit while others of the same ledger are under
way waits for them, since they mostly cost less than was set aside; one that does not fit although
none is under way ends the evaluation.

A request whose reply never came (a timeout, a cut connection) may have been charged or not: it
counts at the most it can have cost, under a name of its own. What a killed process had set aside
stays set aside.

The sums stand in memory, or in one file that all workers of a run draw on, one at a time: the run
names it in the environment (`share`), so that each run has its whole budget.
"""

from __future__ import annotations

import json
import os
import threading
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from harness.endpoint.prices import Price
from harness.endpoint.request import ChatRequest, Reply
from harness.errors import HarnessError
from harness.runtime.files import explained, write_whole
from harness.runtime.locks import hold

VARIABLE = "HARNESS_LEDGER"
"""The environment variable with the file that the workers of a run draw on."""


def tokens_of(request: ChatRequest, reply: Reply) -> tuple[int, int]:
    """Return the tokens of prompt and completion that a reply is counted at.

    They are those that the endpoint counted, but no more than the request allows: what it sent and
    the limit it set bound them, whatever is claimed. Without a count they are these bounds.
    """
    most = request.most_prompt_tokens, request.most_completion_tokens
    prompt, completion = reply.usage or most
    return min(prompt, most[0]), min(completion, most[1])


class BudgetReachedError(HarnessError):
    """The next request could pass the budget."""


@dataclass(frozen=True)
class Spending:
    """What one command asked for and what that cost.

    Requests and tokens are those of replies that came over the network. `usd` is None where a price
    is not known; `usd_unconfirmed` is the most that requests without a reply can have cost.
    """

    requests: int
    from_cache: int
    prompt_tokens: int
    completion_tokens: int
    usd: float | None
    usd_unconfirmed: float


@dataclass(frozen=True)
class Limit:
    """A budget in dollars, what raises it, and whose requests count: one role's, or all."""

    usd: float
    raised_by: str
    role: str | None = None

    def taken(self, sums: Mapping[str, float]) -> float:
        """Return the dollars that count towards it."""
        return sum(usd for role, usd in sums.items() if self.role in (None, role))


def share(folder: Path) -> None:
    """Name a new file in a folder to this process and those it starts, to draw on together."""
    os.environ[VARIABLE] = str(folder / f"{uuid.uuid4().hex}.json")


def shared_file() -> Path | None:
    """Return the file that this process shares with others; None where there is none."""
    named = os.environ.get(VARIABLE)
    return Path(named) if named else None


_SUMS = TypeAdapter(dict[str, float])


class Ledger:
    """Counts tokens and dollars of all endpoints together; may be used from many threads.

    A budget is the most dollars for a role, with the option that raises it; None is no limit.
    `total_usd` is that of all roles of the file, where the sums stand; without one they stand here.
    """

    def __init__(
        self,
        budget_usd: float | None = None,
        raised_by: str = "--budget-usd",
        *,
        file: Path | None = None,
        role: str = "EVALUATE",
        total_usd: float | None = None,
    ) -> None:
        self._file = file
        self._role = role
        limits = [(budget_usd, raised_by, role), (total_usd, "--budget-usd", None)]
        self._limits = [Limit(usd, by, whose) for usd, by, whose in limits if usd is not None]
        self._sums: dict[str, float] = {}
        self._changed = threading.Condition()
        self._under_way = 0
        self._requests = self._cached = 0
        self._prompt_tokens = self._completion_tokens = 0
        self._usd = self._unconfirmed = 0.0
        self._unpriced = False
        self._closed: str | None = None

    def reserve(self, request: ChatRequest, price: Price | None) -> float:
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
                with self._sums_now() as sums:
                    full = [one for one in self._limits if one.taken(sums) + most > one.usd]
                    if not full:
                        sums[self._role] = sums.get(self._role, 0.0) + most
                        self._under_way += 1
                        return most
                    taken = full[0].taken(sums)
                if self._under_way:
                    self._changed.wait()
                else:
                    self._closed = _stopped(full[0], taken, most)
                    self._changed.notify_all()
            raise BudgetReachedError(self._closed)

    def settle(self, most: float, request: ChatRequest, reply: Reply, price: Price | None) -> None:
        """Count a reply at what it cost; without a count that can be, at the most."""
        tokens = tokens_of(request, reply)
        with self._changed:
            cost = 0.0 if price is None else price.of(*tokens)
            self._book(cost - most)
            self._usd += cost
            self._requests += 1
            self._prompt_tokens += tokens[0]
            self._completion_tokens += tokens[1]
            self._unpriced = self._unpriced or price is None

    def release(self, most: float) -> None:
        """Give back what was set aside for a request that the endpoint turned away."""
        with self._changed:
            self._book(-most)

    def lose(self, most: float) -> None:
        """Count a request whose reply never came at the most it can have cost."""
        with self._changed:
            self._book(0.0)
            self._unconfirmed += most

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
            )

    def _book(self, usd: float) -> None:
        """Add to what is set aside and spent, now that a request is not under way any more."""
        with self._sums_now() as sums:
            sums[self._role] += usd
        self._under_way -= 1
        self._changed.notify_all()

    @contextmanager
    def _sums_now(self) -> Iterator[dict[str, float]]:
        """Yield the dollars of each role; nobody else changes them while the block lasts."""
        if self._file is None:
            yield self._sums
            return
        with (
            explained("counting what is spent", self._file.parent),
            hold(self._file.with_suffix(".lock")),
        ):
            sums = _read(self._file)
            before = dict(sums)
            yield sums
            if sums != before:
                write_whole(self._file, json.dumps(sums, sort_keys=True))


def _read(file: Path) -> dict[str, float]:
    try:
        return _SUMS.validate_json(file.read_bytes())
    except FileNotFoundError:
        return {}
    except ValidationError as error:
        raise HarnessError(
            f"{file}, which says what is spent, is not what was written: look at your provider's "
            "bill, and run the same command again to go on"
        ) from error


def _stopped(limit: Limit, taken: float, most: float) -> str:
    return (
        f"Stopped before the budget of ${limit.usd:.2f} is passed: ${taken:.4f} is spent "
        f"and the next request can cost ${most:.4f}; raise {limit.raised_by} and run the "
        "same command again to go on."
    )
