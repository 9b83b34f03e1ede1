"""The network: one OpenAI-compatible chat endpoint, and what can go wrong on the way.

Every failure is one of four, because four things are done about them: `Overloaded` and `Lost` are
tried again (the first was certainly not charged, the second may have been), `Refused` gives up
this request, and any other `HarnessError` ends the evaluation.

The key comes from an environment variable. It lives in the client's header alone: it is no part of
an address or an error, and an endpoint that sends it back has it blotted out of what is kept.
"""

from __future__ import annotations

import os
from functools import cached_property
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from harness.errors import HarnessError, UserError
from harness.evaluation.judging.request import ChatRequest, is_reply
from harness.foreign import ForeignTextError, read_json, readable

if TYPE_CHECKING:
    import openai

OPENAI_URL = "https://api.openai.com/v1"
BLOT = "[key]"
SHORTEST_SECRET = 8
"""Keys below this many characters are placeholders (`EMPTY`), and blotting them out would change
ordinary words."""

LONGEST_QUOTE = 200
"""Characters of an endpoint's own words in an error."""

_SETTINGS_OF_A_DIALECT = ("max_tokens", "temperature", "top_p")


class OverloadedError(HarnessError):
    """The endpoint turned the request away for now (429, 5xx): it was not charged.

    Attributes:
        retry_after: Seconds the endpoint asks to wait, or None.
    """

    def __init__(self, message: str, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class LostError(HarnessError):
    """No reply came that can be kept (timeout, cut connection, no JSON): it may be charged."""


class RefusedError(HarnessError):
    """The endpoint does not answer this request (400, 413, 422): asking again does not help."""


class Endpoint:
    """A chat endpoint.

    Args:
        base_url: Its address, as in `http://127.0.0.1:8000/v1`.
        key_variable: Name of the environment variable with its key.
        timeout_s: Seconds that a request may take, from connecting to the reply's last byte.

    Raises:
        UserError: The address is not one, or carries a name, a password or a query.
    """

    def __init__(self, base_url: str, key_variable: str, timeout_s: float = 180.0) -> None:
        self.address = _checked(base_url)
        self._chat = f"{self.address}/chat/completions"
        self.key_variable = key_variable
        self.timeout_s = timeout_s

    @property
    def host(self) -> str:
        """The host, for people."""
        return urlsplit(self.address).netloc

    def send(self, request: ChatRequest) -> dict[str, Any]:
        """Send a request once and return the JSON body of the reply.

        Raises:
            OverloadedError: It may be tried again, and was not charged.
            LostError: It may be tried again, and may have been charged.
            RefusedError: This request will not be answered.
            HarnessError: No request will: a wrong key, address or model, or no quota.
        """
        import openai

        from harness.evaluation.judging.bounded import bounded_request

        client = self._client
        try:
            # The text as it came: what is kept is the reply, and not this client's reading of it.
            with bounded_request(self.timeout_s):
                text = client.post(self._chat, cast_to=str, body=request.body())
            raw = read_json(self._blotted(text))
        except openai.APIStatusError as error:
            raise self._status_failure(error, request) from None
        except openai.APITimeoutError:
            raise LostError(
                f"{self.host} did not reply within {self.timeout_s:g} s to {request.label}"
            ) from None
        except openai.APIConnectionError as error:
            raise self._connection_failure(error, request) from None
        except ForeignTextError as error:
            raise LostError(
                f"{self.host} sent no JSON that can be read for {request.label} ({error})"
            ) from None
        except openai.OpenAIError as error:
            raise HarnessError(
                f"The request to {self.host} failed: {self._quoted(str(error))}"
            ) from None
        if not is_reply(raw):
            raise LostError(f"{self.host} sent no completion for {request.label}")
        return dict(raw)

    def models(self) -> list[str]:
        """Return the models that the endpoint says it has.

        Raises:
            HarnessError: It cannot be reached, does not take the key, or does not say.
        """
        import openai

        from harness.evaluation.judging.bounded import bounded_request

        client = self._client
        try:
            with bounded_request(self.timeout_s):
                found = read_json(client.get("/models", cast_to=str))
            return [self._quoted(str(model["id"])) for model in found["data"]]
        except openai.APIStatusError as error:
            if error.status_code in (401, 403):
                raise UserError(
                    f"{self.host} does not accept the key in {self.key_variable} "
                    f"(HTTP {error.status_code}); set a key that may use it"
                ) from None
            raise HarnessError(
                f"{self.host} does not list its models (HTTP {error.status_code})"
            ) from None
        except (ForeignTextError, KeyError, TypeError):
            raise HarnessError(f"{self.host} does not list its models as JSON") from None
        except openai.OpenAIError as error:
            cause = type(error.__cause__ or error).__name__
            raise HarnessError(
                f"{self.host} cannot be reached ({cause}); is the server running?"
            ) from None

    @property
    def _key(self) -> str | None:
        # Read anew each time, so that no object of this project holds it.
        key = os.environ.get(self.key_variable)
        if key is not None and not key.isascii():
            raise UserError(f"The key in {self.key_variable} has characters that no key has")
        return (key or "").strip() or None

    @cached_property
    def _client(self) -> openai.OpenAI:
        import openai

        from harness.evaluation.judging.bounded import bound_client

        return openai.OpenAI(
            # An endpoint without keys takes any; the client insists on one.
            api_key=self._key or "none",
            base_url=self.address,
            timeout=self.timeout_s,
            max_retries=0,
            http_client=bound_client(openai.DefaultHttpxClient(timeout=self.timeout_s)),
        )

    def check_key(self) -> None:
        """Read the key, and refuse to go on without one where it is known to be needed.

        Raises:
            UserError: There is no key for OpenAI's own endpoint.
        """
        if self._key is None and self.address == OPENAI_URL:
            raise UserError(
                f"There is no key for {self.host}; set {self.key_variable}, or name another "
                "endpoint with --judge-base-url or --model-base-url"
            )

    def _blotted(self, text: str) -> str:
        if self._key is None or len(self._key) < SHORTEST_SECRET:
            return text
        return text.replace(self._key, BLOT)

    def _quoted(self, text: str) -> str:
        words = " ".join(self._blotted(readable(text)).split())
        return words if len(words) <= LONGEST_QUOTE else words[:LONGEST_QUOTE] + " ..."

    def _connection_failure(self, error: Exception, request: ChatRequest) -> HarnessError:
        # The client wraps every failure below HTTP in one class; its cause says which it was.
        cause = type(error.__cause__ or error).__name__
        if cause == "ConnectError":
            return OverloadedError(f"{self.host} cannot be reached; is the server running?")
        return LostError(f"The reply of {self.host} to {request.label} broke off ({cause})")

    def _status_failure(self, error: openai.APIStatusError, request: ChatRequest) -> HarnessError:
        status, code = error.status_code, error.code
        if status in (401, 403):
            # The endpoint's own words often hold a part of the key.
            return UserError(
                f"{self.host} does not accept the key in {self.key_variable} (HTTP {status}); "
                "set a key that may use this model"
            )
        words = self._quoted(_message(error))
        if status == 404:
            return UserError(
                f"{self.host} has no model {request.model} or no chat endpoint at "
                f"{self.address} (HTTP 404: {words}); check both names"
            )
        if status == 400 and error.param in _SETTINGS_OF_A_DIALECT:
            return UserError(
                f"{request.model} at {self.host} does not take {error.param} ({words}); ask it "
                "with --judge-dialect or --model-dialect thinking"
            )
        if status == 429 and code in ("insufficient_quota", "billing_hard_limit_reached"):
            return HarnessError(
                f"The account at {self.host} has no quota left; top it up and run the same "
                "command again to go on"
            )
        if status in (408, 409, 425, 429) or status >= 500:
            return OverloadedError(
                f"{self.host} turned {request.label} away (HTTP {status}: {words})",
                _seconds(error.response.headers.get("retry-after")),
            )
        return RefusedError(f"{self.host} refused {request.label} (HTTP {status}: {words})")


def _checked(base_url: str) -> str:
    parts = urlsplit(base_url)
    try:
        port_is_fine = parts.port is None or parts.port > 0
    except ValueError:
        port_is_fine = False
    if parts.username or parts.password or parts.query or parts.fragment or "@" in parts.netloc:
        raise UserError(
            "The endpoint's address carries a name, a password or a query; give the address "
            "alone, and the key in the environment"
        )
    if parts.scheme not in ("http", "https") or not parts.hostname or not port_is_fine:
        raise UserError(f"`{base_url}` is no address of an endpoint; write `http://host:port/v1`")
    return base_url.rstrip("/")


def _message(error: openai.APIStatusError) -> str:
    """Return the endpoint's own words, without the client's rendering of the whole body."""
    body = error.body
    if isinstance(body, dict) and isinstance(body.get("message"), str):
        return str(body["message"])
    return body if isinstance(body, str) else error.message


def _seconds(text: str | None) -> float | None:
    try:
        seconds = float(text or "")
    except ValueError:
        return None
    return seconds if 0.0 <= seconds < float("inf") else None
