"""What an evaluation will cost, before it starts."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from harness.evaluation.judging.client import Client
from harness.evaluation.judging.request import ChatRequest
from harness.evaluation.judging.tokens import (
    expected_prompt_tokens,
    most_completion_tokens,
    most_prompt_tokens,
)


@dataclass(frozen=True)
class Estimate:
    """Requests of one kind that an evaluation makes, and their price.

    Attributes:
        what: `answers` or `judgments`.
        model: Who is asked.
        requests: How many there are, retries and follow-ups not counted.
        from_cache: How many of them are already answered.
        prompt_tokens: About how many tokens the prompts of the others have.
        completion_tokens: About how many their replies will have.
        usd: Their price in dollars, about; None where the model's price is not known.
        usd_at_most: The price if every reply is as long as it may be.
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
    """Estimate the cost of requests.

    Args:
        what: `answers` or `judgments`.
        model: Who is asked.
        requests: The requests; the same one twice is paid once.
        client: The client that would send them, whose cache is looked at.
        reply_tokens: How long a reply is, on average.
    """
    distinct = {client.address(request): client.worded(request) for request in requests}
    new = [r for address, r in distinct.items() if client.cache.get(address) is None]
    prompts = sum(expected_prompt_tokens(request) for request in new)
    completions = sum(min(reply_tokens, most_completion_tokens(request)) for request in new)
    price = client.price
    most = None
    if price is not None:
        most = sum(price.of(most_prompt_tokens(r), most_completion_tokens(r)) for r in new)
    return Estimate(
        what=what,
        model=model,
        requests=len(distinct),
        from_cache=len(distinct) - len(new),
        prompt_tokens=prompts,
        completion_tokens=completions,
        usd=None if price is None else price.of(prompts, completions),
        usd_at_most=most,
    )
