"""The network layer: connections to OpenAI-compatible servers, and their failures.

All model requests go through `Connection`: chats to judges and creators through `Endpoint`, and
completions of token ids to policy servers (`harness.inference`). A plug-in's judge is a function in
place of an endpoint.

Connections are never reused (`Connection: close`), so bytes of one reply cannot leak into another.
Redirects are not followed, because prompts and answers are meant only for the configured address.
HTTP clients only limit the wait for the next byte; here the whole body is limited in seconds and
bytes as it streams in.

The key comes from an environment variable and is held only in the HTTP client. If an endpoint
echoes it, it is redacted from everything stored and printed.
"""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from harness.endpoint.request import ChatRequest, is_reply
from harness.errors import HarnessError, UserError
from harness.extensions import JUDGES
from harness.foreign import ForeignTextError, read_json, readable

if TYPE_CHECKING:
    import httpx2
    import openai

PROVIDERS: Mapping[str, tuple[str, str]] = {
    "gpt-": ("https://api.openai.com/v1", "OPENAI_API_KEY"),
    "gemini-": ("https://generativelanguage.googleapis.com/v1beta/openai", "GEMINI_API_KEY"),
}
"""Provider address and key variable by model name prefix."""

BLOT = "[key]"
SHORTEST_SECRET = 8
"""Shorter keys are placeholders (`EMPTY`); redacting them would alter ordinary words."""

LONGEST_QUOTE = 200
"""Maximum characters quoted from an endpoint's error message."""

MOST_BYTES = 1 << 25
"""Maximum bytes of a reply: ten times the longest reply of any model."""

TIMEOUT_S = 180.0

_CHAT_PARAMETERS = ("max_tokens", "temperature", "top_p")


class OverloadedError(HarnessError):
    """The endpoint temporarily rejected the request (429, 5xx) without charging for it.

    `retry_after` is the wait in seconds that it asked for, if any.
    """

    def __init__(self, message: str, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class LostError(HarnessError):
    """No usable reply (timeout, broken connection, invalid JSON); the request may be charged."""


class UnansweredError(HarnessError):
    """A request got no reply; if `refused`, retrying will not help."""

    def __init__(self, message: str, refused: bool) -> None:
        super().__init__(message)
        self.refused = refused


class Connection:
    """A server with OpenAI's API; errors are those of the package `openai`.

    `key_variable` is the environment variable with the key, or None for a server without keys.
    `timeout_s` bounds the wait for a reply to begin, and then for its body. An overloaded or
    unreachable server is retried `retries` times.
    """

    def __init__(
        self,
        base_url: str,
        key_variable: str | None,
        timeout_s: float = TIMEOUT_S,
        retries: int = 0,
    ) -> None:
        self.address = _checked(base_url)
        self.key_variable = key_variable
        self.timeout_s = timeout_s
        self._retries = retries
        self._opening = threading.Lock()
        self._opened: openai.OpenAI | None = None

    @property
    def host(self) -> str:
        return urlsplit(self.address).netloc

    @property
    def key(self) -> str | None:
        # Read each time, so that no object of this project stores it.
        key = os.environ.get(self.key_variable or "", "").strip()
        if not key.isascii():
            raise UserError(f"The key in {self.key_variable} has characters that no key has")
        return key or None

    def post(self, path: str, body: dict[str, Any]) -> str:
        """Post a body to a path of the server; return the reply's raw text."""
        text: str = self._client.post(f"{self.address}{path}", cast_to=str, body=body)
        return text

    def model_names(self) -> list[str]:
        """Return the models that the server lists.

        Raises:
            ForeignTextError, KeyError, TypeError: The reply is malformed.
        """
        text = self._client.get("/models", cast_to=str)
        return [self.quoted(str(model["id"])) for model in read_json(text)["data"]]

    def blotted(self, text: str) -> str:
        """Redact the key from a text."""
        key = self.key or ""
        return text.replace(key, BLOT) if len(key) >= SHORTEST_SECRET else text

    def quoted(self, text: str) -> str:
        """Return text from the server as one line, truncated and with the key redacted."""
        words = " ".join(self.blotted(readable(text)).split())
        return words if len(words) <= LONGEST_QUOTE else words[:LONGEST_QUOTE] + " ..."

    def close(self) -> None:
        """Abort requests in flight."""
        if self._opened is not None:
            self._opened.close()

    @property
    def _client(self) -> openai.OpenAI:
        import openai

        with self._opening:
            if self._opened is None:
                self._opened = openai.OpenAI(
                    # The client requires a key; a server without keys accepts any.
                    api_key=self.key or "none",
                    base_url=self.address,
                    timeout=self.timeout_s,
                    max_retries=self._retries,
                    http_client=_http_client(self.timeout_s),
                )
            return self._opened


def _http_client(timeout_s: float) -> httpx2.Client:
    """Return a client that limits reply bodies to `timeout_s` seconds and `MOST_BYTES` bytes."""
    import httpx2
    import openai

    class Bounded(httpx2.SyncByteStream):
        def __init__(self, inner: httpx2.SyncByteStream) -> None:
            self._inner = inner

        def __iter__(self) -> Iterator[bytes]:
            left, end = MOST_BYTES, time.monotonic() + timeout_s
            for part in self._inner:
                left -= len(part)
                if left < 0:
                    raise httpx2.ReadError(f"the reply has more than {MOST_BYTES} bytes")
                if time.monotonic() > end:
                    raise httpx2.ReadTimeout("the reply did not end in time")
                yield part

        def close(self) -> None:
            self._inner.close()

    def bound(response: httpx2.Response) -> None:
        assert isinstance(response.stream, httpx2.SyncByteStream)
        response.stream = Bounded(response.stream)

    client: httpx2.Client = openai.DefaultHttpxClient(
        timeout=timeout_s,
        follow_redirects=False,
        headers={"Connection": "close"},
        event_hooks={"response": [bound]},
    )
    return client


class Endpoint(Connection):
    """A chat completions server, without retries; those are up to the caller.

    `kept_as` replaces the address in cache keys, for servers whose address changes.
    """

    def __init__(
        self,
        base_url: str,
        key_variable: str | None,
        timeout_s: float = TIMEOUT_S,
        kept_as: str | None = None,
    ) -> None:
        super().__init__(base_url, key_variable, timeout_s)
        self.kept_as = kept_as or self.address

    def send(self, request: ChatRequest) -> dict[str, Any]:
        """Send a request once and return the JSON body of the reply.

        Raises:
            OverloadedError: Not charged; may be retried.
            LostError: Possibly charged; may be retried.
            UnansweredError: The endpoint refuses this request.
            HarnessError: No request can succeed: wrong key, address or model, or no quota.
        """
        import openai

        try:
            # Keep the raw reply, not the package's parsed version.
            raw = read_json(self.post("/chat/completions", request.body()))
        except openai.APIStatusError as error:
            raise self._status_failure(error, request) from None
        except openai.APITimeoutError:
            raise LostError(
                f"{self.host} did not reply within {self.timeout_s:g} s to {request.label}"
            ) from None
        except openai.APIConnectionError as error:
            # The client wraps every failure below HTTP in one class; the cause tells them apart.
            cause = type(error.__cause__ or error).__name__
            if cause == "ConnectError":
                raise OverloadedError(
                    f"{self.host} cannot be reached; is the server running?"
                ) from None
            raise LostError(
                f"The reply of {self.host} to {request.label} broke off ({cause})"
            ) from None
        except ForeignTextError as error:
            raise LostError(
                f"{self.host} sent no JSON that can be read for {request.label} ({error})"
            ) from None
        if not is_reply(raw):
            raise LostError(f"{self.host} sent no completion for {request.label}")
        # Redact after parsing, because JSON can escape any character of the key.
        return dict(json.loads(self.blotted(json.dumps(raw, ensure_ascii=False))))

    @property
    def is_providers(self) -> bool:
        return self.address in {url for url, _ in PROVIDERS.values()}

    def check_key(self, url_variable: str) -> None:
        """Raise UserError if a provider's API lacks its key.

        `url_variable` names another endpoint instead.
        """
        if self.key is None and self.is_providers:
            raise UserError(
                f"There is no key for {self.host}; set {self.key_variable}, or name another "
                f"endpoint in {url_variable}"
            )

    def _status_failure(self, error: openai.APIStatusError, request: ChatRequest) -> HarnessError:
        status, headers = error.status_code, error.response.headers
        if status in (401, 403):
            # The endpoint's message often contains part of the key.
            return UserError(
                f"{self.host} does not accept the key in {self.key_variable} (HTTP {status}); "
                "set a key that may use this model"
            )
        words = self.quoted(_message(error))
        if 300 <= status < 400:
            place = self.quoted(headers.get("location", "another address"))
            return UserError(
                f"{self.host} sends requests on to {place} (HTTP {status}), which is not followed; "
                "give the address that answers itself"
            )
        if status == 404:
            return UserError(
                f"{self.host} has no model {request.model} or no chat endpoint at "
                f"{self.address} (HTTP 404: {words}); check both names"
            )
        if status == 400 and error.param in _CHAT_PARAMETERS:
            return UserError(
                f"{request.model} at {self.host} does not take {error.param} ({words}); name "
                "a model that takes it"
            )
        if error.code in ("insufficient_quota", "billing_hard_limit_reached"):
            return HarnessError(
                f"The account at {self.host} has no quota left; top it up and run the same "
                "command again to go on"
            )
        if status in (408, 409, 425, 429) or status >= 500:
            wait = headers.get("retry-after", "")
            return OverloadedError(
                f"{self.host} turned {request.label} away (HTTP {status}: {words})",
                float(wait) if wait.isdecimal() else None,
            )
        return UnansweredError(
            f"{self.host} refused {request.label} (HTTP {status}: {words})", refused=True
        )


class FunctionEndpoint:
    """Answers requests with a judge function registered by `harness.judge`; nothing is sent.

    Replies are cached under the plug-in, the judge's name and the version.
    """

    def __init__(self, name: str) -> None:
        found = JUDGES.added(name)
        if found is None:
            raise UserError(f"no plug-in adds a judge `{name}`; name its file with --plugin")
        self.address = self.kept_as = f"plugin:{found.plugin}/{name}@{found.version}"
        self._function = found.thing

    def check_key(self, url_variable: str) -> None:
        """Do nothing: a function needs no key."""

    def send(self, request: ChatRequest) -> dict[str, Any]:
        """Call the function and return its text as a reply."""
        try:
            text = self._function(request.body()["messages"])
        except Exception as error:
            raise HarnessError(
                f"{self.address} failed on {request.label}: {type(error).__name__}: {error}"
            ) from error
        if not isinstance(text, str):
            raise HarnessError(f"{self.address} returned no text on {request.label}; return a str")
        return {
            "choices": [{"message": {"role": "assistant", "content": text}}],
            "usage": {"prompt_tokens": 0, "completion_tokens": 0},
        }


def _checked(base_url: str) -> str:
    parts = urlsplit(base_url)
    if parts.query or parts.fragment or "@" in parts.netloc:
        raise UserError(
            "The endpoint's address carries a name, a password or a query; give the address "
            "alone, and the key in the environment"
        )
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise UserError(f"`{base_url}` is no address of an endpoint; write `http://host:port/v1`")
    return base_url.rstrip("/")


def _message(error: openai.APIStatusError) -> str:
    """Return the endpoint's message, without the client's rendering of the whole body."""
    body = error.body
    if isinstance(body, dict) and isinstance(body.get("message"), str):
        return str(body["message"])
    return body if isinstance(body, str) else error.message
