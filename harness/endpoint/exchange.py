"""One exchange with a server: a connection of its own, so many seconds, so many bytes.

*A connection of its own.* Each request says `Connection: close`, so a connection is never used
again, and whatever a server sends besides its reply goes with it: no byte of one exchange can be
taken for a part of another. Redirects are not followed, because prompts and answers are meant for
the address that was named.

*Time.* HTTP clients bound the wait for the next byte, so an endpoint that sends one now and then is
waited for without end. Here a timer shuts the connection down when the time is over.

*Bytes.* Replies are asked for unpacked, and one that is packed nevertheless is not unpacked: a few
kilobytes could become gigabytes. What is read is counted as it comes.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any

import httpx2
import openai

MOST_BYTES = 1 << 25
"""Bytes of a reply, at most: ten times what any model says at once."""

_THREAD = threading.local()


def new_client(timeout_s: float) -> httpx2.Client:
    """Return a client for requests inside `within`; proxies are those of the environment."""
    client: httpx2.Client = openai.DefaultHttpxClient(
        timeout=timeout_s,
        follow_redirects=False,
        headers={"Connection": "close", "Accept-Encoding": "identity"},
        event_hooks={"request": [_begin], "response": [_bound]},
    )
    return client


@contextmanager
def within(seconds: float) -> Iterator[None]:
    """Give the requests that this thread makes in the block so many seconds together.

    Raises:
        openai.APITimeoutError: They took longer.
        openai.APIConnectionError: A reply has more than `MOST_BYTES`, or is packed.
    """
    exchange = _THREAD.exchange = _Exchange()
    timer = threading.Timer(seconds, exchange.end)
    timer.daemon = True
    timer.start()
    try:
        yield
    except openai.APIConnectionError as error:
        if exchange.is_over:
            raise openai.APITimeoutError(request=error.request) from error
        raise
    finally:
        timer.cancel()
    if exchange.is_over and exchange.request is not None:
        # The end of a body that says no length looks like its last byte.
        raise openai.APITimeoutError(request=exchange.request)


class _Exchange:
    """What a thread asks for, and the connection to break off once the time is over."""

    def __init__(self) -> None:
        self.is_over = False
        self.request: httpx2.Request | None = None
        self._socket: socket.socket | None = None

    def end(self) -> None:
        """Break the connection off."""
        self.is_over = True
        if self._socket is not None:
            with suppress(OSError):
                self._socket.shutdown(socket.SHUT_RDWR)

    def trace(self, event: str, info: Mapping[str, Any]) -> None:
        """Take note of the connection when it is made, and again when it is encrypted."""
        if event.endswith(("connect_tcp.complete", "start_tls.complete")):
            self._socket = info["return_value"].get_extra_info("socket")
            if self.is_over:
                self.end()


def _begin(request: httpx2.Request) -> None:
    exchange: _Exchange = _THREAD.exchange
    if exchange.is_over:
        raise httpx2.ReadTimeout("the time was over before another attempt", request=request)
    exchange.request = request
    request.extensions["trace"] = exchange.trace


def _bound(response: httpx2.Response) -> None:
    if response.headers.get("content-encoding", "identity") != "identity":
        raise httpx2.DecodingError("the reply is packed", request=response.request)
    assert isinstance(response.stream, httpx2.SyncByteStream)
    response.stream = _Counted(response.stream)


class _Counted(httpx2.SyncByteStream):
    """The bytes of a body, up to a limit."""

    def __init__(self, inner: httpx2.SyncByteStream) -> None:
        self._inner = inner

    def __iter__(self) -> Iterator[bytes]:
        left = MOST_BYTES
        for part in self._inner:
            left -= len(part)
            if left < 0:
                raise httpx2.ReadError(f"the reply has more than {MOST_BYTES} bytes")
            yield part

    def close(self) -> None:
        self._inner.close()
