"""An evaluation with a judge on loopback, and every way in which a judge can fail."""

from __future__ import annotations

import json
import socket
import struct
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

from judge_stand_in import Body, StandIn, digest, judge, write_answered_mt_bench
from misbehaving import stay_silent
from scene import KEY, Scene

CONCURRENCY = 4

Handler = Any
Answers = Callable[[Handler, Body], None]


class Asked:
    """An MT-Bench of made-up questions of two turns, and a judge that is asked to rate the answers.

    `fails` returns what answers a request in its place, or None; `told` are ends of variables.
    """

    def __init__(
        self,
        scene: Scene,
        questions: int = 6,
        fails: Callable[[Body, int], Answers | None] | None = None,
        options: tuple[str, ...] = (),
        **told: str,
    ) -> None:
        self.scene = scene
        self.requests = 2 * questions
        self._questions = questions
        self._options = options
        self.server = StandIn(latency_s=0.01, key=KEY, instead=fails)
        self._told = {"KEY": KEY, "CONCURRENCY": str(CONCURRENCY), **told}

    def __enter__(self) -> Asked:
        self.server.__enter__()
        told = {"URL": self.server.url, **self._told}
        self.scene.told |= {f"HARNESS_JUDGE_{name}": text for name, text in told.items()}
        return self

    def __exit__(self, *error: Any) -> None:
        self.server.__exit__(*error)

    @property
    def command(self) -> tuple[str, ...]:
        """The command that evaluates."""
        data = self.scene.folder / "data"
        if not data.exists():
            write_answered_mt_bench(data, self._questions)
        return (
            "evaluate", "mt_bench", "--data", str(data), "--answers", str(data / "answers.jsonl"),
            "--no-track", "--json", *self._options,
        )  # fmt: skip

    def calm(self) -> Any:
        """Return what the command prints where nothing disturbs it."""
        name, number = f"evaluated {self._questions}", self._questions
        return self.scene.once(name, lambda scene: _calmly(scene, number))

    def kept(self) -> dict[int, str]:
        """Return the replies that are kept in whole lines, by the digest of their request."""
        found = {}
        for path in (self.scene.work / "replies").glob("*.jsonl"):
            for line in path.read_bytes().split(b"\n"):
                if line.startswith(b'{"address"') and line.endswith(b"}"):
                    with suppress(ValueError, KeyError):
                        entry = json.loads(line)
                        found[digest(entry["request"])] = json.dumps(entry["reply"])
        return found

    def goes_on(self) -> None:
        """Ask to the end; fail where a kept reply is lost or paid again, or a score is another."""
        calm, kept, seen = self.calm(), self.kept(), dict(self.server.seen)
        done = self.scene.call(*self.command).well()
        self.check_kept(kept, seen)
        assert done.json[0]["scores"] == calm[0]["scores"]

    def check_kept(self, kept: Mapping[int, str], seen: Mapping[int, int]) -> None:
        """Fail where a reply that was kept is gone, or was asked for after it was `seen`."""
        assert self.kept().items() >= kept.items(), "a reply is lost"
        # A request that no server saw is one in which a bit was flipped.
        again = [n for n in kept if self.server.seen.get(n) != seen.get(n)]
        assert not again, "kept replies were asked for again"


def _calmly(scene: Scene, questions: int) -> Any:
    with Asked(scene, questions) as asked:
        return scene.call(*asked.command).well().json


def _raw(data: bytes, status: int = 200, headers: Mapping[str, str] | None = None) -> Answers:
    """Return what sends a body as it is, with headers that may lie."""

    def send(handler: Handler, body: Body) -> None:
        handler.send_response(status)
        sent = {"Content-Type": "application/json", "Content-Length": str(len(data))}
        for name, text in {**sent, **(headers or {})}.items():
            handler.send_header(name, text)
        handler.end_headers()
        handler.wfile.write(data)

    return send


def _told(change: Callable[[dict[str, Any]], Any]) -> Answers:
    """Return what sends the judge's usual reply with something changed in it."""

    def send(handler: Handler, body: Body) -> None:
        reply = judge(body)
        text = change(reply) or reply
        data = text if isinstance(text, bytes) else json.dumps(text).encode()
        _raw(data)(handler, body)

    return send


def _says(extra: str) -> Answers:
    """Return what adds words to the judge's usual ones."""

    def change(reply: dict[str, Any]) -> None:
        reply["choices"][0]["message"]["content"] += extra

    return _told(change)


def _uses(usage: Any) -> Answers:
    """Return what reports other numbers of tokens than were used."""
    return _told(lambda reply: reply.update(usage=usage))


def _deep_beside(reply: dict[str, Any]) -> bytes:
    """Return the usual reply with something beside it that is nested 100,000 times."""
    return json.dumps(reply)[:-1].encode() + b', "deep": ' + b"[" * 100_000 + b"]" * 100_000 + b"}"


def _gone(handler: Handler, body: Body) -> None:
    """Close the connection without a word."""


def _reset(handler: Handler, body: Body) -> None:
    """Break the connection off, so that the client is told of it as an error."""
    handler.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    handler.connection.close()


def _half(handler: Handler, body: Body) -> None:
    """Promise more than is sent."""
    _raw(json.dumps(judge(body)).encode()[:-9], headers={"Content-Length": "99999"})(handler, body)


ABSURD = (10**12, -5, 1e300, "many", None, [1], float("nan"))
"""Numbers of tokens that no reply has."""

FAILURES: dict[str, Answers] = {
    "429": _raw(b'{"error": {"message": "later"}}', 429),
    "429 for a day": _raw(b'{"error": {"message": "no"}}', 429, {"Retry-After": "86400"}),
    "500": _raw(b"<html>oops</html>", 500),
    "gone": _gone,
    "reset": _reset,
    "half": _half,
    "silent": lambda handler, body: stay_silent(handler),
    "empty": _raw(b""),
    "no JSON": _raw(b"<!doctype html><script>alert(1)</script>"),
    "a list": _raw(b"[1, 2]"),
    "no choices": _raw(b'{"choices": []}'),
    "odd message": _raw(b'{"choices": [{"message": "text"}]}'),
    "deep": _raw(b"[" * 100_000),
    "depth beside": _told(_deep_beside),
    "a long number": _raw(b"9" * 5000),
    "no gzip": _raw(b"not packed", headers={"Content-Encoding": "gzip"}),
    "odd chunks": _raw(b"zz\r\nhello", headers={"Transfer-Encoding": "chunked"}),
}
"""Answers that are no reply: the request is sent again."""

VOID: dict[str, Answers] = {
    name: _raw(b'{"choices": [{"message": %s}]}' % message)
    for name, message in {
        "no text": b'{"content": null}',
        "a number as text": b'{"content": 7}',
        "a refusal": b'{"content": null, "refusal": "no"}',
        "no UTF-8": b'{"content": "\xff\xfe"}',
        "no rating": b'{"content": "I would say seven."}',
        "an endless rating": b'{"content": "[[%s]]"}' % (b"9" * 5000),
        "brackets": b'{"content": "%s"}' % (b"[" * 50_000),
    }.items()
}
"""Replies without a rating: they are paid and kept, and no command asks for them again."""

ODD: dict[str, Answers] = {
    "another model": _told(lambda reply: reply.update(model="another")),
    "a lone surrogate": _says(" \ud83d"),
    "a NUL": _says(" \x00\x1b[31m\u202e"),
    "a long text": _says(" x" * 200_000),
    "no usage": _uses(None),
    "odd usage": _uses("lots"),
    **{
        f"usage {n!r:.12}": _uses(dict.fromkeys(("prompt_tokens", "completion_tokens"), n))
        for n in ABSURD
    },
}
"""Replies that say what the judge says, and something that is odd: they are paid, kept and used."""
