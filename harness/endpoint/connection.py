"""Requests to OpenAI-compatible servers, and what their failures mean.

Connections are never reused, so bytes of one reply cannot leak into another. Replies are never
unpacked: a little gzip can become gigabytes. Redirects are not followed, because prompts and
answers are meant only for the configured address. Should an endpoint repeat the key, it is taken
out of the reply before anything else sees that.
"""

from __future__ import annotations

import json
import os
import socket
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import tenacity

from harness.endpoint.errors import LostError, OverloadedError, UnansweredError
from harness.endpoint.request import ChatRequest, is_reply
from harness.errors import HarnessError, UserError
from harness.extensions import JUDGES
from harness.foreign import ForeignTextError, error_in_a_line, in_a_line, read_json, readable

if TYPE_CHECKING:
    import httpx2

PROVIDERS: Mapping[str, tuple[str, str]] = {
    "gpt-": ("https://api.openai.com/v1", "OPENAI_API_KEY"),
    "gemini-": ("https://generativelanguage.googleapis.com/v1beta/openai", "GEMINI_API_KEY"),
}
"""Provider address and key variable by model name prefix."""

REDACTED = "[key]"
SHORTEST_SECRET = 8
"""Shorter keys are placeholders (`EMPTY`); redacting them would alter ordinary words."""

LONGEST_QUOTE = 200
"""Maximum characters quoted from an endpoint's error message."""

MOST_BYTES = 1 << 25
"""Maximum bytes of a reply: ten times the longest reply of any model."""

TIMEOUT_S = 180.0

FIRST_PAUSE_S = 0.5
LONGEST_PAUSE_S = 60.0

_CHAT_PARAMETERS = ("max_tokens", "temperature", "top_p")


def retrying(attempts: int, sleep: Callable[[float], None]) -> tenacity.Retrying:
    """Return what repeats overloaded and lost requests, with jittered exponential backoff."""
    return tenacity.Retrying(
        stop=tenacity.stop_after_attempt(attempts),
        wait=_pause,
        retry=tenacity.retry_if_exception_type((OverloadedError, LostError)),
        sleep=sleep,
        reraise=True,
    )


def _pause(state: tenacity.RetryCallState) -> float:
    """Return seconds to wait: exponential with full jitter, at least what the endpoint asks for."""
    jittered = tenacity.wait_random_exponential(multiplier=FIRST_PAUSE_S, max=LONGEST_PAUSE_S)
    error = state.outcome.exception() if state.outcome is not None else None
    asked = error.retry_after if isinstance(error, OverloadedError) else None
    return float(max(jittered(state), min(asked or 0.0, LONGEST_PAUSE_S)))


class Endpoint:
    """A server with OpenAI's API; thread-safe.

    `key_variable` names the key; None for a server without keys. A request takes at most
    `timeout_s`, and an overloaded or lost one is sent `attempts` times. `cache_namespace` replaces
    a changing address in cache keys.
    """

    def __init__(
        self,
        base_url: str,
        key_variable: str | None,
        timeout_s: float = TIMEOUT_S,
        cache_namespace: str | None = None,
        attempts: int = 1,
    ) -> None:
        self.address = _checked(base_url)
        self.cache_namespace = cache_namespace or self.address
        self.key_variable = key_variable
        self.timeout_s = timeout_s
        self._closed = threading.Event()
        self._retrying = retrying(attempts, tenacity.sleep_using_event(self._closed))
        self._opening = threading.Lock()
        self._opened: httpx2.Client | None = None
        self._in_flight: set[_Deadline] = set()

    @property
    def host(self) -> str:
        return urlsplit(self.address).netloc

    @property
    def key(self) -> str | None:
        # Read each time, so that no object of this project stores it.
        key = os.environ.get(self.key_variable or "", "").strip()
        if not (key.isascii() and key.isprintable()):
            raise UserError(f"The key in {self.key_variable} has characters that no key has")
        return key or None

    def post(self, path: str, body: Mapping[str, Any], what: str) -> Any:
        """Post JSON and return the reply's; `what` names the request in messages."""
        return self._retrying(self._ask, "POST", path, body, what)

    def send(self, request: ChatRequest) -> dict[str, Any]:
        """Return the JSON body of the reply to a request for a chat completion."""
        reply = self.post("/chat/completions", request.body(), request.label)
        if not is_reply(reply):
            raise LostError(f"{self.host} sent no completion for {in_a_line(request.label, 80)}")
        return dict(reply)

    def check_key(self, url_variable: str) -> None:
        """Raise UserError if a provider's API lacks its key."""
        if self.key is None and self.address in {url for url, _ in PROVIDERS.values()}:
            raise UserError(
                f"There is no key for {self.host}; set {self.key_variable}, or name another "
                f"endpoint in {url_variable}"
            )

    def model_names(self) -> list[str]:
        """Return the models that the server lists; none if its list cannot be read."""
        found = self._retrying(self._ask, "GET", "/models", None, "the list of its models")
        try:
            return [in_a_line(str(model["id"])) for model in found["data"]]
        except (KeyError, TypeError):
            return []

    def close(self) -> None:
        """Abort requests in flight, and send no more."""
        self._closed.set()
        for each in list(self._in_flight):  # closing a client wakes no thread that reads
            each.break_off()
        with self._opening:
            if self._opened is not None:
                self._opened.close()

    def _ask(self, method: str, path: str, body: Mapping[str, Any] | None, what: str) -> Any:
        what = in_a_line(what, 80)
        reply, content = self._exchange(method, path, body, what)
        text = self._redact(content)
        if not reply.is_success:
            model = None if body is None else body.get("model")
            raise self._failure(reply, text, what, model)
        try:
            return read_json(text)
        except ForeignTextError as error:
            raise LostError(
                f"{self.host} sent no JSON that can be read for {what} ({error})"
            ) from None

    def _exchange(
        self, method: str, path: str, body: Mapping[str, Any] | None, what: str
    ) -> tuple[httpx2.Response, bytes]:
        """Return the head and the body of a reply."""
        import httpx2

        headers = {} if (key := self.key) is None else {"Authorization": f"Bearer {key}"}
        url = f"{self.address}{path}"
        deadline = _Deadline(self.timeout_s)
        traced = {"trace": deadline.watch}
        self._in_flight.add(deadline)
        try:
            with (
                deadline,
                self._client.stream(
                    method, url, headers=headers, json=body, extensions=traced
                ) as reply,
            ):
                return reply, self._body(reply)
        except (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.ProxyError) as error:
            why = in_a_line(str(error), LONGEST_QUOTE)
            raise OverloadedError(
                f"{self.host} cannot be reached ({why}); is the server running?"
            ) from None
        except httpx2.RequestError as error:
            if self._closed.is_set():
                raise HarnessError(f"The connection to {self.host} was closed") from None
            if deadline.passed or isinstance(error, httpx2.TimeoutException):
                why = f"{self.host} did not reply within {self.timeout_s:g} s to {what}"
            else:
                why = f"The reply of {self.host} to {what} broke off ({error_in_a_line(error)})"
            raise LostError(why) from None
        finally:
            self._in_flight.discard(deadline)

    def _body(self, reply: httpx2.Response) -> bytes:
        import httpx2

        if reply.headers.get("content-encoding", "identity").strip().lower() != "identity":
            raise httpx2.DecodingError("it is packed, unlike what was asked")
        received = bytearray()
        for part in reply.iter_raw():
            received += part
            if len(received) > MOST_BYTES:
                raise httpx2.DecodingError("it is too large")
        return bytes(received)

    @property
    def _client(self) -> httpx2.Client:
        import httpx2

        with self._opening:
            if self._closed.is_set():
                raise HarnessError(f"The connection to {self.host} was closed")
            if self._opened is None:
                limits = httpx2.Limits(max_connections=None, max_keepalive_connections=0)
                headers = {"User-Agent": "eva-harness", "Connection": "close"}
                headers["Accept-Encoding"] = "identity"
                self._opened = httpx2.Client(timeout=self.timeout_s, limits=limits, headers=headers)
            return self._opened

    def _redact(self, received: bytes) -> str:
        """Decode what a server sent, without the key."""
        text, key = received.decode("utf-8", "replace"), self.key or ""
        if len(key) >= SHORTEST_SECRET:
            in_json = json.dumps(key)[1:-1]
            for spelled in (key, in_json, in_json.replace("/", r"\/")):
                text = text.replace(spelled, REDACTED)
        return text

    def _failure(
        self, reply: httpx2.Response, text: str, what: str, model: str | None
    ) -> HarnessError:
        status = reply.status_code
        if status in (401, 403):
            # The endpoint's message often contains part of the key.
            return UserError(
                f"{self.host} does not accept the key in {self.key_variable} (HTTP {status}); "
                "set a key that may use this model"
            )
        details = _details(text)
        words = _quote(str(details.get("message", text)))
        if 300 <= status < 400:
            place = _quote(self._redact(reply.headers.get("location", "nowhere").encode()))
            return UserError(
                f"{self.host} sends requests on to {place} (HTTP {status}), which is not "
                "followed; give the address that answers itself"
            )
        if status == 404:
            return UserError(
                f"{self.host} has no {f'model {model}' if model else what}, or nothing at "
                f"{self.address} (HTTP 404: {words}); check both names"
            )
        if status == 400 and details.get("param") in _CHAT_PARAMETERS:
            return UserError(
                f"{model} at {self.host} does not take {details['param']} ({words}); name a model "
                "that takes it"
            )
        if details.get("code") in ("insufficient_quota", "billing_hard_limit_reached"):
            return HarnessError(
                f"The account at {self.host} has no quota left; top it up and run the same "
                "command again to go on"
            )
        if status in (408, 409, 425, 429, 503):
            wait = reply.headers.get("retry-after", "")
            return OverloadedError(
                f"{self.host} turned {what} away (HTTP {status}: {words})",
                float(wait) if wait.isascii() and wait.isdecimal() else None,
            )
        if status >= 500:
            # A gateway may fail after the model behind it has written a reply.
            return LostError(f"{self.host} failed on {what} (HTTP {status}: {words})")
        return UnansweredError(f"{self.host} refused {what} (HTTP {status}: {words})", refused=True)


class _Deadline(threading.Timer):
    """Breaks a request off after a time; an HTTP client limits only the wait for the next byte."""

    def __init__(self, timeout_s: float) -> None:
        super().__init__(timeout_s, self.break_off)
        self.daemon = True
        self.passed = False
        self._sockets: list[socket.socket] = []

    def watch(self, event: str, info: Mapping[str, Any]) -> None:
        """Follow a request of httpx2, as its `trace`."""
        if event == "connection.connect_tcp.complete":
            # TLS takes the socket over, but its duplicate still ends the connection.
            self._sockets.append(info["return_value"].get_extra_info("socket").dup())
            if self.passed:
                self.break_off()

    def break_off(self) -> None:
        self.passed = True
        for each in self._sockets:
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)

    def __enter__(self) -> None:
        self.start()

    def __exit__(self, *raised: object) -> None:
        self.cancel()
        for each in self._sockets:
            each.close()


def _details(text: str) -> dict[str, Any]:
    """Return the fields of an error: OpenAI's are in `error`, those of others at the top."""
    try:
        found = read_json(text)
    except ForeignTextError:
        return {}
    found = found.get("error", found) if isinstance(found, dict) else found
    return found if isinstance(found, dict) else {"message": found}


def _quote(text: str) -> str:
    return in_a_line(" ".join(text.split()), LONGEST_QUOTE)


class FunctionEndpoint:
    """Answers requests with a judge function; replies are cached by plug-in, name and version."""

    def __init__(self, name: str) -> None:
        found = JUDGES.added(name)
        if found is None:
            raise UserError(f"no plug-in adds a judge `{name}`; name its file with --plugin")
        self.address = self.cache_namespace = f"plugin:{found.plugin}/{name}@{found.version}"
        self._function = found.thing

    def check_key(self, url_variable: str) -> None:
        """Do nothing: a function needs no key."""

    def send(self, request: ChatRequest) -> dict[str, Any]:
        what = in_a_line(request.label, 80)
        try:
            text = self._function(request.body()["messages"])
        except Exception as error:
            raise HarnessError(
                f"{self.address} failed on {what}: {error_in_a_line(error)}"
            ) from error
        if not isinstance(text, str):
            raise HarnessError(f"{self.address} returned no text on {what}; return a str")
        return {
            "choices": [{"message": {"role": "assistant", "content": readable(text)}}],
            "usage": {"prompt_tokens": 0, "completion_tokens": 0},
        }


def _checked(base_url: str) -> str:
    plain = base_url.isascii() and base_url.isprintable() and not set(base_url) & set("@?# ")
    try:
        parts = urlsplit(base_url)
        host = (parts.hostname or "").encode("idna")
        is_address = parts.scheme in ("http", "https") and host and parts.port != 0
    except ValueError:  # a port that is not a number, half an IPv6 address, or an endless name
        is_address = False
    if not (plain and is_address):
        raise UserError(
            "An endpoint's address is written `http://host:port/v1`, without a name, a password or "
            "a query; give the key in the environment"
        )
    return base_url.rstrip("/")
