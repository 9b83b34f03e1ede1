"""A client that sends requests concurrently, pays for each once, and can be killed at any time.

A request is looked up in the cache; on a miss, its maximum price is reserved, it is sent, and the
reply is cached before it is used. Overloaded and lost requests are retried. A refused or unanswered
request does not stop the others; an unresponsive endpoint, a wrong key, a missing model and an
exhausted budget end the evaluation.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, field, replace
from typing import Generic, TypeVar

import tenacity

from harness.endpoint.budget import Ledger, tokens_of
from harness.endpoint.connection import Endpoint, FunctionEndpoint, retrying
from harness.endpoint.errors import LostError, OverloadedError, UnansweredError
from harness.endpoint.prices import TokenPrice
from harness.endpoint.replies import ReplyCache
from harness.endpoint.request import ChatRequest, Reply, normalized_settings
from harness.errors import HarnessError
from harness.foreign import in_a_line
from harness.runtime.stage import Json
from harness.words import ignore

ATTEMPTS = 8
PATIENCE = 5
"""Consecutive failed items before giving up on the endpoint."""

Done = Callable[[int, int], None]
"""Progress callback: called with the number of finished items and the total."""

Item = TypeVar("Item")
Result = TypeVar("Result")

_LOG = logging.getLogger(__name__)


class Client:
    """A thread-safe client for one endpoint; clients may share a ledger.

    `price` is None if unknown. `used` has the prompt and completion tokens of every reply returned
    so far, by address, including cached ones.
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
        self._retrying = retrying(attempts, sleep or tenacity.sleep_using_event(self._stopped))
        self._locks: dict[str, threading.Lock] = {}
        self._guard = threading.Lock()

    def normalized(self, request: ChatRequest) -> ChatRequest:
        """Return a request with its settings as the model accepts them."""
        return replace(request, settings=normalized_settings(request.model, request.settings))

    def address(self, request: ChatRequest) -> str:
        return self.normalized(request).address(self.endpoint.cache_namespace)

    @property
    def answered_as(self) -> str:
        """Models that replies named instead of the requested one, comma-separated; or empty."""
        return ", ".join(in_a_line(name, 80) for name in sorted(self._other_models))

    def ask(self, request: ChatRequest) -> Reply:
        """Return the reply to a request, from the cache or the endpoint."""
        request = self.normalized(request)
        address = request.address(self.endpoint.cache_namespace)
        with self._guard:
            lock = self._locks.setdefault(address, threading.Lock())
        with lock:  # concurrent identical requests are paid for once
            if (raw := self.cache.get(address)) is None:
                try:
                    reply = self._retrying(self._send, address, request)
                except (OverloadedError, LostError) as error:
                    message = f"{error}, {self.attempts} times"
                    raise UnansweredError(message, refused=False) from error
            else:
                reply = Reply(raw)
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
        except HarnessError:  # the endpoint was not reached, or turned the request away
            self.ledger.release(most)
            raise
        except BaseException:  # not foreseen, so nothing says that it was not sent
            self.ledger.lose(most)
            raise
        reply = Reply(raw)
        usd = self.ledger.settle(most, request, reply, self.price)
        self.cache.put(
            address,
            raw,
            usd=usd,
            endpoint=self.endpoint.cache_namespace,
            label=request.label,
            request=request.body(),
            sample=request.sample,
        )
        return reply


def cost_of(clients: Iterable[Client]) -> dict[str, float | None]:
    """Return tokens and dollars of the replies that clients used, including cached ones."""
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


@dataclass(frozen=True)
class ServedModel:
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
    done: Done = ignore,
) -> list[Outcome[Result]]:
    """Process all items, up to `served.concurrency` at once; return results or refusals in order.

    `work` sends its requests sequentially, so `concurrency` also bounds the requests in flight.
    `done` is called in the calling thread.
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
                        f"{outcome.failure}; fix this and run the same command again to go on."
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
class RequestCost:
    """The estimated cost of an evaluation's requests, without retries and follow-ups.

    Dollars cover only requests not in the cache, and are None if the model's price is unknown;
    `usd_at_most` is with the most tokens.
    """

    requests: int
    from_cache: int
    usd: float | None
    usd_at_most: float | None


def estimate(requests: Iterable[ChatRequest], client: Client, reply_tokens: int) -> RequestCost:
    """Estimate the cost of requests, given the mean number of tokens per reply."""
    distinct = {client.address(request): client.normalized(request) for request in requests}
    new = [r for address, r in distinct.items() if client.cache.get(address) is None]
    usd = most = None
    if (price := client.price) is not None:
        replies = sum(min(reply_tokens, request.most_completion_tokens) for request in new)
        usd = price.of(sum(request.expected_prompt_tokens for request in new), replies)
        most = sum(price.of(r.most_prompt_tokens, r.most_completion_tokens) for r in new)
    return RequestCost(len(distinct), len(distinct) - len(new), usd, most)
