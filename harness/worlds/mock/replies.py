"""What the stand-in endpoint says: rewrites, refusals, scores, topics, verdicts and ratings.

Everything is drawn from the digest of the request, so that the same question has the same answer
whenever and wherever it is asked, and an interrupted run sees the same world as an undisturbed one.
**No judgment means anything**: a verdict does not depend on which answer is better, longer or
right, only on the bytes of the question.

What is asked is told from the request: a tool or log-probabilities (AlpacaEval's two annotators),
`[[A>>B]]` (Arena-Hard), `[[rating]]` (MT-Bench), `{"topic"` and `{"score"` (topics, complexity and
quality), tags around a prompt (creators). All else is answered like a small talker.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from typing import Any

from harness.worlds.mock.texts import WANTED, reply
from harness.worlds.real.scoring import TOPICS

Body = Mapping[str, Any]

VERDICTS = ("A>>B", "A>B", "A=B", "B>A", "B>>A")
"""Arena-Hard's labels."""

RANKED = ("m", "M")
"""The names AlpacaEval's annotators give to the two models."""

UNUSABLE_IN = 7
"""One rewrite in so many is a refusal or no prompt at all."""

REFUSAL = "I'm sorry, but I can't help with rewriting this request."

OPENS, CLOSES = "<prompt>", "</prompt>"
"""Tags around the prompt that a creator is to rewrite."""


def digest(body: Body) -> int:
    """Return a number that depends on a request alone, below 2^32."""
    return int(hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()[:8], 16)


def completion(text: str | None, **message: Any) -> dict[str, Any]:
    """Return the body of a completion, as endpoints send it."""
    return {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 0,
        "model": "stand-in",
        "choices": [
            {
                "index": 0,
                "finish_reason": "stop",
                "message": {"role": "assistant", "content": text, **message},
            }
        ],
        "usage": {"prompt_tokens": 100, "completion_tokens": 10, "total_tokens": 110},
    }


def answer(body: Body) -> dict[str, Any]:
    """Return the completion for a request, whatever it asks for."""
    number = digest(body)
    asked = " ".join(str(message["content"]) for message in body["messages"])
    if body.get("tools"):
        return _ranking(body["tools"][0]["function"]["name"], number)
    if body.get("logprobs"):
        return _log_probabilities(number)
    if "[[A>>B]]" in asked:
        return completion(f"My final verdict is: [[{VERDICTS[number % len(VERDICTS)]}]]")
    if "[[rating]]" in asked:
        return completion(f"Rating: [[{1 + number % 10}]]")
    if '{"topic"' in asked:
        return completion(json.dumps({"topic": list(TOPICS)[number % len(TOPICS)]}))
    if '{"score"' in asked:
        return completion(json.dumps({"score": 1 + number % 5}))
    if CLOSES in asked:
        # The instructions may name the tag too; the prompt is in the last pair.
        prompt = asked.rpartition(CLOSES)[0].rpartition(OPENS)[2].strip()
        return completion(_rewrite(prompt, number))
    return completion(reply(asked, number))


def _ranking(function: str, number: int) -> dict[str, Any]:
    """Return a function call that ranks two models."""
    first = number % 2
    names = (RANKED[first], RANKED[1 - first])
    ranks = [{"model": name, "rank": rank} for rank, name in enumerate(names, start=1)]
    arguments = json.dumps({"ordered_models": ranks})
    call = {
        "id": "call-1",
        "type": "function",
        "function": {"name": function, "arguments": arguments},
    }
    return completion(None, tool_calls=[call])


def _log_probabilities(number: int) -> dict[str, Any]:
    """Return a one-token ranking of two models with the log-probabilities of both names."""
    shares = (1 + number % 99) / 100, 1 - (1 + number % 99) / 100
    top = [
        {"token": name, "logprob": math.log(share)}
        for name, share in zip(RANKED, shares, strict=True)
    ]
    best = RANKED[shares[1] > shares[0]]
    body = completion(best)
    body["choices"][0]["logprobs"] = {"content": [{"token": best, "top_logprobs": top}]}
    return body


def _rewrite(prompt: str, number: int) -> str:
    """Return a reply with a rewritten prompt; now and then one that cannot be used."""
    if number % UNUSABLE_IN == 0:
        # Half of them say no, the others hand back what they were given.
        return REFUSAL if number // UNUSABLE_IN % 2 else f"<new_prompt>{prompt}</new_prompt>"
    return f"<new_prompt>{prompt} {WANTED[number % len(WANTED)]}</new_prompt>"
