"""The network: a connection to an OpenAI-compatible server, and its failures.

`Connection` is the one place that sends anything: to judges and creators through `Endpoint`, whose
requests are chats, and to servers of the policy (`harness.inference`), which complete token ids. A
plug-in's judge is a function in place of an endpoint.

Connections are never reused (`Connection: close`), so that no byte of one reply can be taken for
part of another. Redirects are not followed, because prompts and answers are meant for the address
that was named. HTTP clients only limit the wait for the next byte; here a body is limited in
seconds and bytes as it streams in.

The key comes from an environment variable and lives in the client's header alone. If an endpoint
echoes it, it is redacted from what is kept and printed.
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

SELLERS: Mapping[str, tuple[str, str]] = {
    "gpt-": ("https://api.openai.com/v1", "OPENAI_API_KEY"),
    "gemini-": ("https://generativelanguage.googleapis.com/v1beta/openai", "GEMINI_API_KEY"),
}
"""Address and key variable of those who sell a model, by how its name begins."""

BLOT = "[key]"
SHORTEST_SECRET = 8
"""Shorter keys are placeholders (`EMPTY`); blotting them out would change ordinary words."""

LONGEST_QUOTE = 200
"""Characters of an endpoint's own words in an error."""

MOST_BYTES = 1 << 25
"""Bytes of a reply, at most: ten times what any model says at once."""

TIMEOUT_S = 180.0

_CHAT_PARAMETERS = ("max_tokens", "temperature", "top_p")


class OverloadedError(HarnessError):
    """The endpoint turned the request away for now (429, 5xx): it was not charged.

    It may ask to wait so many seconds.
    """

    def __init__(self, message: str, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class LostError(HarnessError):
    """No reply came that can be kept (timeout, cut connection, no JSON): it may be charged."""


class UnansweredError(HarnessError):
    """A request without a reply; where it was refused, asking again would not help."""

    def __init__(self, message: str, refused: bool) -> None:
        super().__init__(message)
        self.refused = refused


class Connection:
    """A server that speaks OpenAI's API; failures are those of the package `openai`.

    Its key is in an environment variable; None for a server without. `timeout_s` bounds the wait
    for a reply to begin, and then for all of it to come. Where the server is overloaded or cannot
    be reached it is tried `retries` times more.
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
        # Read anew each time, so that no object of this project holds it.
        key = os.environ.get(self.key_variable or "", "").strip()
        if not key.isascii():
            raise UserError(f"The key in {self.key_variable} has characters that no key has")
        return key or None

    def post(self, path: str, body: dict[str, Any]) -> str:
        """Send a body to a path of the server, and return the text of the reply as it came."""
        text: str = self._client.post(f"{self.address}{path}", cast_to=str, body=body)
        return text

    def model_names(self) -> list[str]:
        """Return the models that the server says it has.

        Raises:
            ForeignTextError, KeyError, TypeError: It says something else.
        """
        text = self._client.get("/models", cast_to=str)
        return [self.quoted(str(model["id"])) for model in read_json(text)["data"]]

    def blotted(self, text: str) -> str:
        """Return a text without the key."""
        key = self.key or ""
        return text.replace(key, BLOT) if len(key) >= SHORTEST_SECRET else text

    def quoted(self, text: str) -> str:
        """Return the server's own words in a line that is not too long, without the key."""
        words = " ".join(self.blotted(readable(text)).split())
        return words if len(words) <= LONGEST_QUOTE else words[:LONGEST_QUOTE] + " ..."

    def close(self) -> None:
        """Break off what is under way."""
        if self._opened is not None:
            self._opened.close()

    @property
    def _client(self) -> openai.OpenAI:
        import openai

        with self._opening:
            if self._opened is None:
                self._opened = openai.OpenAI(
                    # A server without keys takes any; the client insists on one.
                    api_key=self.key or "none",
                    base_url=self.address,
                    timeout=self.timeout_s,
                    max_retries=self._retries,
                    http_client=_http_client(self.timeout_s),
                )
            return self._opened


def _http_client(timeout_s: float) -> httpx2.Client:
    """Return a client whose replies end after so many seconds or `MOST_BYTES`."""
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
    """A server that is asked chats, each once; who asks tries again.

    `kept_as` is what replies are kept under where the address is another each time.
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
            OverloadedError: It may be tried again, and was not charged.
            LostError: It may be tried again, and may have been charged.
            UnansweredError: This request is refused.
            HarnessError: No request will be answered: a wrong key, address or model, or no quota.
        """
        import openai

        try:
            # What is kept is the reply as it came, and not the package's reading of it.
            raw = read_json(self.post("/chat/completions", request.body()))
        except openai.APIStatusError as error:
            raise self._status_failure(error, request) from None
        except openai.APITimeoutError:
            raise LostError(
                f"{self.host} did not reply within {self.timeout_s:g} s to {request.label}"
            ) from None
        except openai.APIConnectionError as error:
            # The client wraps every failure below HTTP in one class; its cause says which it was.
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
        # Read first: JSON can spell each character of a key in another way.
        return dict(json.loads(self.blotted(json.dumps(raw, ensure_ascii=False))))

    @property
    def is_sellers(self) -> bool:
        return self.address in {url for url, _ in SELLERS.values()}

    def check_key(self) -> None:
        """Refuse to go on without a key where one is known to be needed."""
        if self.key is None and self.is_sellers:
            raise UserError(
                f"There is no key for {self.host}; set {self.key_variable}, or name another "
                "endpoint in HARNESS_JUDGE_URL (or that of the role: CREATOR, SCORER, SOLVER)"
            )

    def _status_failure(self, error: openai.APIStatusError, request: ChatRequest) -> HarnessError:
        status, headers = error.status_code, error.response.headers
        if status in (401, 403):
            # The endpoint's own words often hold a part of the key.
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
    """Answers requests by a judge that `harness.judge` registered; nothing is sent.

    Plug-in, name and version are the address under which replies are kept.
    """

    def __init__(self, name: str) -> None:
        found = JUDGES.added(name)
        if found is None:
            raise UserError(f"no plug-in adds a judge `{name}`; name its file with --plugin")
        self.address = self.kept_as = f"plugin:{found.plugin}/{name}@{found.version}"
        self._function = found.thing

    def check_key(self) -> None:
        """Do nothing: a function needs no key."""

    def send(self, request: ChatRequest) -> dict[str, Any]:
        """Call the function, and return its text as a reply."""
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
    """Return the endpoint's own words, without the client's rendering of the whole body."""
    body = error.body
    if isinstance(body, dict) and isinstance(body.get("message"), str):
        return str(body["message"])
    return body if isinstance(body, str) else error.message
