"""A client that sends requests concurrently, pays for each once, and can be killed at any time.

A request is first looked up in the cache. On a miss, its maximum price is reserved, it is sent, and
the reply is cached before it is used. Overloaded and lost requests are retried with jittered
exponential backoff, no sooner than the endpoint asks. A killed command, run again, finds every
reply that had arrived.

A refused request fails only its own item. A request still unanswered after all attempts does not
stop the others, and the next command sends it again. An unresponsive endpoint ends the evaluation,
as do a wrong key, a missing model and an exhausted budget.

Replies are append-only JSON lines, indexed by their request's address. Each process appends to its
own file, one write per reply, because a file per reply would cost more than the network. Each line
ends with its digest: a damaged line is reported, and requested again; so is a partial line left by
a kill, without a report. There is no fsync, so a power failure may lose the last seconds.
"""

from __future__ import annotations

import errno
import hashlib
import json
import logging
import os
import secrets
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, field, replace
from io import FileIO
from pathlib import Path
from typing import Any, Generic, TypeVar

import tenacity

from harness.endpoint.budget import Ledger, tokens_of
from harness.endpoint.connection import (
    Endpoint,
    FunctionEndpoint,
    LostError,
    OverloadedError,
    UnansweredError,
)
from harness.endpoint.prices import TokenPrice
from harness.endpoint.request import ChatRequest, Reply, worded
from harness.errors import HarnessError
from harness.foreign import in_a_line
from harness.runtime.files import explained
from harness.runtime.manifest import utc_now
from harness.runtime.stage import Json

ATTEMPTS = 8
FIRST_PAUSE_S = 0.5
LONGEST_PAUSE_S = 60.0
PATIENCE = 5
"""Consecutive failed items before giving up on the endpoint."""

Done = Callable[[int, int], None]
"""Progress callback: called with the number of finished items and the total."""

Item = TypeVar("Item")
Result = TypeVar("Result")

_LOG = logging.getLogger(__name__)

_HEAD = b'{"address": "'
_ADDRESS = slice(len(_HEAD), len(_HEAD) + 64)
_SEAL = b', "sha256": "%s"}\n'
_SEAL_BYTES = len(_SEAL % bytes(64))


_Place = tuple[Path, int, int]
"""Location of a cached reply: file, and its line's offset and length in bytes."""


class ReplyCache:
    """A folder's cached replies by request address; thread-safe.

    Replies of other processes are visible if they existed at the first lookup.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        self._guard = threading.Lock()
        self._index: dict[str, _Place] | None = None
        self._file: FileIO | None = None
        self._own = root / f"replies-{os.getpid()}-{secrets.token_hex(4)}.jsonl"

    def get(self, address: str) -> Reply | None:
        place = self._places().get(address)
        if place is None:
            return None
        kept, start, length = place
        with kept.open("rb") as file:
            file.seek(start)
            line = file.read(length)
        return Reply(json.loads(line)["reply"], cached=True) if _is_whole(line) else None

    def put(self, address: str, endpoint: str, request: ChatRequest, raw: dict[str, Any]) -> None:
        entry = {
            "address": address,
            "endpoint": endpoint,
            "label": request.label,
            "request": request.body(),
            "sample": request.sample,
            "received": utc_now(),
            "reply": raw,
        }
        line = _sealed(json.dumps(entry, ensure_ascii=False).encode()[:-1])
        places = self._places()
        with explained("keeping a reply", self.root), self._guard:
            if self._file is None:
                self.root.mkdir(parents=True, exist_ok=True)
                self._file = FileIO(self._own, "xb")
            start = self._file.tell()
            if self._file.write(line) < len(line):
                raise OSError(errno.ENOSPC, "the disk is full")
            places[address] = (self._own, start, len(line))

    def _places(self) -> dict[str, _Place]:
        """Return each reply's location; the latest one wins."""
        with explained("reading kept replies", self.root), self._guard:
            if self._index is None:
                # Oldest first, so the newest reply wins.
                files = sorted(self.root.glob("*.jsonl"), key=lambda path: path.stat().st_mtime_ns)
                self._index = {address: place for file in files for address, place in _lines(file)}
            return self._index


def _lines(path: Path) -> Iterator[tuple[str, _Place]]:
    """Yield the address and location of every undamaged line of a file."""
    start = damaged = 0
    with path.open("rb") as file:
        for line in file:
            if _is_whole(line):
                yield line[_ADDRESS].decode("ascii"), (path, start, len(line))
            else:
                damaged += line.endswith(b"\n")  # a line without a newline was cut off by a kill
            start += len(line)
    if damaged:
        _LOG.warning(
            "%d of the replies kept in %s are not as they were written, and are asked for again",
            damaged, path,
        )  # fmt: skip


def _sealed(text: bytes) -> bytes:
    """Complete an entry that lacks its closing brace to a line with its digest."""
    return text + _SEAL % hashlib.sha256(text).hexdigest().encode()


def _is_whole(line: bytes) -> bool:
    return line.startswith(_HEAD) and line == _sealed(line[:-_SEAL_BYTES])


class Client:
    """A thread-safe client for one endpoint.

    Clients may share a ledger. `price` is None if unknown. `sleep` waits the given seconds; the
    default is cut short by `stop`. `used` has the prompt and completion tokens of every reply
    returned so far, by address, including cached ones.
    """

    def __init__(
        self,
        endpoint: Endpoint | FunctionEndpoint,
        cache: ReplyCache,
        ledger: Ledger,
        price: TokenPrice | None = None,
        attempts: int = ATTEMPTS,
        sleep: Callable[[float], None] | None = None,
    ) -> None:
        self.endpoint = endpoint
        self.cache = cache
        self.ledger = ledger
        self.price = price
        self.attempts = attempts
        self.used: dict[str, tuple[int, int]] = {}
        self._other_models: set[str] = set()
        self._stopped = threading.Event()
        self._retrying = tenacity.Retrying(
            stop=tenacity.stop_after_attempt(attempts),
            wait=_pause,
            retry=tenacity.retry_if_exception_type((OverloadedError, LostError)),
            sleep=sleep or tenacity.sleep_using_event(self._stopped),
            reraise=True,
        )
        self._locks: dict[str, threading.Lock] = {}
        self._guard = threading.Lock()

    def worded(self, request: ChatRequest) -> ChatRequest:
        """Return a request with its settings as the model accepts them."""
        return replace(request, settings=worded(request.model, request.settings))

    def address(self, request: ChatRequest) -> str:
        return self.worded(request).address(self.endpoint.kept_as)

    @property
    def answered_as(self) -> str:
        """Models that replies named instead of the requested one, comma-separated; or empty."""
        return ", ".join(in_a_line(name, 80) for name in sorted(self._other_models))

    def ask(self, request: ChatRequest) -> Reply:
        """Return the reply to a request, from the cache or the endpoint.

        Raises:
            UnansweredError: The endpoint refused it, or all attempts failed.
            BudgetReachedError: It could exceed the budget.
            HarnessError: The endpoint cannot answer any request: wrong key, model or address.
        """
        request = self.worded(request)
        address = request.address(self.endpoint.kept_as)
        with self._guard:
            lock = self._locks.setdefault(address, threading.Lock())
        with lock:  # concurrent identical requests are paid for once
            reply = self.cache.get(address)
            if reply is None:
                try:
                    reply = self._retrying(self._send, address, request)
                except (OverloadedError, LostError) as error:
                    message = f"{error}, {self.attempts} times"
                    raise UnansweredError(message, refused=False) from error
            else:
                self.ledger.count_cached()
        self.used[address] = tokens_of(request, reply)
        if (other := reply.other_model(request.model)) and other not in self._other_models:
            self._other_models.add(other)
            _LOG.warning(
                "%s answers as `%s` to requests for `%s`: its replies count as those of the model "
                "asked for; if that is another one, ask for it by its own name",
                self.endpoint.address, in_a_line(other, 80), request.model,
            )  # fmt: skip
        return reply

    def stop(self) -> None:
        """Send nothing more; replies to requests in flight are still cached."""
        self._stopped.set()

    def resume(self) -> None:
        self._stopped.clear()

    def _send(self, address: str, request: ChatRequest) -> Reply:
        if self._stopped.is_set():
            raise HarnessError("The evaluation was stopped")
        most = self.ledger.reserve(request, self.price)
        try:
            raw = self.endpoint.send(request)
        except LostError:
            self.ledger.lose(most)
            raise
        except BaseException:
            self.ledger.release(most)
            raise
        reply = Reply(raw)
        self.ledger.settle(most, request, reply, self.price)
        self.cache.put(address, self.endpoint.kept_as, request, raw)
        return reply


def cost_of(clients: Iterable[Client]) -> dict[str, float | None]:
    """Return tokens and dollars of the replies that clients used, including cached ones.

    Dollars are None if any price is unknown.
    """
    asked = list(clients)
    tokens = [[sum(side) for side in zip((0, 0), *it.used.values(), strict=True)] for it in asked]
    usd = [
        None if it.price is None else it.price.of(*own)
        for it, own in zip(asked, tokens, strict=True)
    ]
    return {
        "replies": sum(len(it.used) for it in asked),
        "prompt_tokens": sum(prompts for prompts, _ in tokens),
        "completion_tokens": sum(completions for _, completions in tokens),
        "usd": None if None in usd else sum(each for each in usd if each is not None),
    }


def _pause(state: tenacity.RetryCallState) -> float:
    """Return seconds to wait: exponential with full jitter, at least what the endpoint asks for."""
    jittered = tenacity.wait_random_exponential(multiplier=FIRST_PAUSE_S, max=LONGEST_PAUSE_S)
    error = state.outcome.exception() if state.outcome is not None else None
    asked = error.retry_after if isinstance(error, OverloadedError) else None
    return float(max(jittered(state), min(asked or 0.0, LONGEST_PAUSE_S)))


@dataclass(frozen=True)
class ServedModel:
    """A model behind a client."""

    client: Client
    model: str
    """Its name at its endpoint."""
    settings: Mapping[str, Json] = field(default_factory=dict)
    """Default sampling settings."""
    concurrency: int = 8
    """Most requests at once."""

    @property
    def clients(self) -> list[Client]:
        return [self.client]


@dataclass(frozen=True)
class Outcome(Generic[Result]):
    """An item's result, or why it failed."""

    result: Result | None = None
    failure: str | None = None
    refused: bool = False


def work_through(
    items: Sequence[Item],
    work: Callable[[Item], Result],
    served: ServedModel,
    done: Done = lambda count, total: None,
) -> list[Outcome[Result]]:
    """Process all items, up to `served.concurrency` at once.

    `work` sends its requests sequentially, so `concurrency` also bounds the requests in flight.
    `done` is called in the calling thread. Outcomes, in item order, are results or refusals;
    replies that arrived before an error are in the cache.
    """
    outcomes: list[Outcome[Result]] = [Outcome()] * len(items)
    served.client.resume()
    failed_in_a_row, any_result = 0, False
    with ThreadPoolExecutor(max_workers=served.concurrency, thread_name_prefix="ask") as pool:
        position = {pool.submit(work, item): i for i, item in enumerate(items)}
        try:
            for count, future in enumerate(as_completed(position), start=1):
                try:
                    outcome = Outcome(future.result())
                    failed_in_a_row, any_result = 0, True
                except UnansweredError as error:
                    outcome = Outcome[Result](failure=str(error), refused=error.refused)
                    # Refusals may be specific to a prompt, e.g. one that is too long.
                    failed_in_a_row += not (error.refused and any_result)
                outcomes[position[future]] = outcome
                if failed_in_a_row >= PATIENCE:
                    raise HarnessError(
                        f"{failed_in_a_row} requests in a row had no answer, the last because: "
                        f"{outcome.failure}; once that is mended, run the same command again to go "
                        "on."
                    )
                done(count, len(items))
        except BaseException:
            served.client.stop()
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    lacking = [o.failure for o in outcomes if o.failure is not None and not o.refused]
    if lacking:
        raise HarnessError(
            f"{len(lacking)} of {len(items)} requests had no answer (first: {lacking[0]}); run the "
            "same command again to ask for them alone."
        )
    return outcomes


@dataclass(frozen=True)
class Estimate:
    """An evaluation's requests of one kind (`answers`, `judgments`), and their estimated cost.

    Excludes retries and follow-ups. Tokens and dollars are approximate and cover only requests not
    in the cache. Dollars are None if the model's price is unknown; `usd_at_most` assumes the
    maximum number of tokens for every prompt and reply.
    """

    what: str
    model: str
    requests: int
    from_cache: int
    prompt_tokens: int
    completion_tokens: int
    usd: float | None
    usd_at_most: float | None


def estimate(
    what: str, model: str, requests: Iterable[ChatRequest], client: Client, reply_tokens: int
) -> Estimate:
    """Estimate the cost of requests, given the mean number of tokens per reply.

    Duplicate requests are paid for once, cached ones not at all.
    """
    distinct = {client.address(request): client.worded(request) for request in requests}
    new = [r for address, r in distinct.items() if client.cache.get(address) is None]
    prompts = sum(request.expected_prompt_tokens for request in new)
    completions = sum(min(reply_tokens, request.most_completion_tokens) for request in new)
    usd = most = None
    if (price := client.price) is not None:
        usd = price.of(prompts, completions)
        most = sum(price.of(r.most_prompt_tokens, r.most_completion_tokens) for r in new)
    return Estimate(
        what, model, len(distinct), len(distinct) - len(new), prompts, completions, usd, most
    )
