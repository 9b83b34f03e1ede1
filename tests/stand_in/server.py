"""What the stand-ins say, and the endpoint that says it.

Everything is composed from the lists below: prompts, demonstrations, benchmark items and what
tokenizers are trained on. The endpoint is creator, scorer and judge at once; its replies are drawn
from the digest of the request. **No judgment means anything.** What is asked is told from the
request: a tool (AlpacaEval's annotators), `[[A>>B]]` (Arena-Hard), `[[rating]]` (MT-Bench),
`{"topic"` and `{"score"`, tags around a prompt (creators).
"""

from __future__ import annotations

import hashlib
import json
import os
import random
import re
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self, cast

from harness.project import work_dir
from harness.worlds.real.scoring import TOPICS

_SAID = {
    "a sundial": "A rod throws a shadow on a plate. The shadow moves as the sun does. "
    "It shows no hour after dark.",
    "a bicycle": "The pedals turn a chain. The chain turns the rear wheel. "
    "A rider steers to stay upright.",
    "bread": "Flour and water make a dough. Yeast fills the dough with gas. Heat sets the crust.",
    "a library": "Books stand in the order of their numbers. Readers borrow them for some weeks. "
    "A catalogue says where each one is.",
    "rain": "Warm air carries water upwards. The water cools and gathers in drops. "
    "Heavy drops fall.",
    "a compass": "A needle turns on a pin. The field of the earth pulls at it. "
    "Iron nearby leads it astray.",
    "a garden": "Plants need light and water. Weeds take both from them. "
    "Good soil holds water for long.",
    "a clock": "A weight or a spring drives the wheels. A pendulum keeps them in step. "
    "The hands show what they count.",
    "a letter": "It begins with a greeting. It says what is wanted. It ends with a name.",
    "a bridge": "An arch carries weight to both banks. Cables carry it to towers. "
    "Wind and trains make it swing.",
    "a map": "It shows a place from above. Its scale says how far things are. "
    "North is mostly at the top.",
    "a kitchen": "Food is kept cold until it is used. Knives are sharp for a reason. "
    "A clean table saves time.",
}
"""What prompts are about, and three sentences on each."""

SUBJECTS: Mapping[str, Sequence[str]] = {
    subject: re.split(r"(?<=\.) ", said) for subject, said in _SAID.items()
}

QUESTIONS = (
    "Explain how {subject} works.",
    "Describe {subject} to a child.",
    "What should everybody know about {subject}?",
    "Write two sentences about {subject}.",
    "Why do people care about {subject}?",
    "List three facts about {subject}.",
    "How would you begin a talk on {subject}?",
    "Give a short definition of {subject}.",
    "What is often misunderstood about {subject}?",
    "Compare {subject} with something similar.",
    "Tell me in a few words what matters in {subject}.",
    "What could go wrong with {subject}?",
)
"""How they are asked."""

FOLLOW_UPS = ("Now say it in one sentence.", "Can you give a reason for that?")
"""What a user says after the first answer."""

WANTED = (
    "Give one example from daily life.",
    "Explain the reason behind each step.",
    "What changes if there is little time?",
    "Answer so that an expert would agree.",
    "Name one thing that is hard to measure.",
    "What would you ask an engineer about it?",
)
"""What a rewritten prompt asks for on top."""


def prompts() -> list[str]:
    """Return all questions on all subjects: 144 texts in a fixed order, no two alike."""
    return [question.format(subject=subject) for question in QUESTIONS for subject in SUBJECTS]


def wishes() -> list[str]:
    """Return questions with a wish on top, 864 texts."""
    return [f"{prompt} {wanted}" for wanted in WANTED for prompt in prompts()]


def reply(prompt: str, number: int) -> str:
    """Return sentences on the subject of a prompt, in an order that a number draws."""
    known = next((said for subject, said in SUBJECTS.items() if subject in prompt), None)
    sentences = list(known or [said[0] for said in SUBJECTS.values()])
    draw = random.Random(f"{number}/{prompt}")
    return " ".join(draw.sample(sentences, draw.randint(1, 3)))


def demonstrations(each: int) -> list[tuple[str, str]]:
    """Return prompts with replies, so many for each prompt."""
    return [(prompt, reply(prompt, number)) for prompt in prompts() for number in range(each)]


def all_texts() -> list[str]:
    """Return every text there is, for tokenizers to be trained on."""
    said = [sentence for sentences in SUBJECTS.values() for sentence in sentences]
    return [*prompts(), *said, *FOLLOW_UPS, *WANTED]


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


def _rewrite(prompt: str, number: int) -> str:
    """Return a reply with a rewritten prompt; now and then one that cannot be used."""
    if number % UNUSABLE_IN == 0:
        # Half of them say no, the others hand back what they were given.
        return REFUSAL if number // UNUSABLE_IN % 2 else f"<new_prompt>{prompt}</new_prompt>"
    return f"<new_prompt>{prompt} {WANTED[number % len(WANTED)]}</new_prompt>"


class _Server(ThreadingHTTPServer):
    """Says nothing of clients that went away: some are killed while they ask."""

    daemon_threads = True
    request_queue_size = 128
    respond: Callable[[Request, Body], None]

    def handle_error(self, request: Any, client_address: Any) -> None:
        if not isinstance(sys.exc_info()[1], ConnectionError):
            super().handle_error(request, client_address)


class Request(BaseHTTPRequestHandler):
    """A request that has come, and what sends the response to it."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    wbufsize = -1

    def do_POST(self) -> None:
        """Read the request and have it answered."""
        length = int(self.headers["Content-Length"])
        data = self.rfile.read(length)
        if len(data) < length:
            # The client is gone: some are killed while they send.
            self.close_connection = True
            return
        cast(_Server, self.server).respond(self, json.loads(data))

    def send(
        self, status: int, text: str, headers: Mapping[str, str] | None = None, *, cut: bool = False
    ) -> None:
        """Send a response; `cut` stops in the middle of it and closes the connection."""
        data = text.encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(data[: len(data) // 2] if cut else data)
        self.wfile.flush()
        self.close_connection = self.close_connection or cut

    def log_message(self, *arguments: Any) -> None:
        """Say nothing."""


class MockEndpoint:
    """A server on loopback, for a `with` statement; port 0 is a free one."""

    def __init__(self, port: int = 0) -> None:
        self.server = _Server(("127.0.0.1", port), Request)
        self.server.respond = self.respond
        self.thread = threading.Thread(target=self.server.serve_forever, args=(0.05,), daemon=True)

    def respond(self, request: Request, body: Body) -> None:
        """Answer a request."""
        request.send(200, json.dumps(answer(body)))

    @property
    def url(self) -> str:
        """Its address, as a client is given it."""
        return f"http://127.0.0.1:{self.server.server_address[1]}/v1"

    def __enter__(self) -> Self:
        self.thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.server.shutdown()
        self.server.server_close()


ROLES = ("CREATOR", "SCORER", "JUDGE")


@contextmanager
def endpoints(kind: type[MockEndpoint] = MockEndpoint) -> Iterator[MockEndpoint]:
    """Serve creator, scorer and judge, and name the address in the environment.

    Kept replies are filed under the endpoint's address, so the server takes the port it had before
    wherever that is free: a run that was stopped finds the replies it had.
    """
    with _server(kind) as server:
        for role in ROLES:
            os.environ[f"HARNESS_{role}_URL"] = server.url
            os.environ[f"HARNESS_{role}_PRICE"] = "0,0"
        yield server


def _server(kind: type[MockEndpoint]) -> MockEndpoint:
    file = work_dir() / "stand-in-port"
    with suppress(OSError, ValueError, OverflowError):
        return kind(port=int(file.read_text(encoding="utf-8")))
    server = kind()
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(f"{server.server.server_address[1]}\n", encoding="utf-8")
    return server
