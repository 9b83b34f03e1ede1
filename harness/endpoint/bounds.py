"""A bound on a whole request: its time and its bytes, whatever the other end does.

HTTP clients bound the wait for the next byte, so an endpoint that sends one now and then is waited
for without end. Here every operation on the connection is given what is left of the request's own
time: connecting, the headers, the body, one byte after the other.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import httpcore2

if TYPE_CHECKING:
    import httpx2

MOST_BYTES = 1 << 25
"""Bytes of a reply, at most: ten times what any model says at once."""


class _Request(threading.local):
    """What is left to the request that this thread is making; no bound outside of one."""

    end: float = float("inf")
    bytes_left: int = MOST_BYTES


_REQUEST = _Request()


@contextmanager
def bounded_request(seconds: float) -> Iterator[None]:
    """Give the requests that this thread makes in the block so many seconds together.

    A request that takes longer fails as a timeout of the client does, one whose reply is larger
    than `MOST_BYTES` as a broken connection. It must go through a client of `bound_client`.
    """
    _REQUEST.end, _REQUEST.bytes_left = time.monotonic() + seconds, MOST_BYTES
    try:
        yield
    finally:
        _REQUEST.end = float("inf")


def bound_client(client: httpx2.Client) -> httpx2.Client:
    """Have a client keep the bounds of `bounded_request`, and return it."""
    # No public option takes the place of the network, and the environment's proxies would be
    # passed over if the client were given a transport of our own.
    for transport in (client._transport, *client._mounts.values()):
        pool: Any = getattr(transport, "_pool", None)
        if pool is not None:
            pool._network_backend = _Network(pool._network_backend)
    return client


def _left(timeout: float | None, failure: type[Exception]) -> float:
    left = _REQUEST.end - time.monotonic()
    if left <= 0.0:
        raise failure("the request took longer than it may")
    return left if timeout is None else min(left, timeout)


class _Network(httpcore2.NetworkBackend):
    """Opens connections that keep the bounds."""

    def __init__(self, inner: httpcore2.NetworkBackend) -> None:
        self._inner = inner

    def connect_tcp(
        self, host: str, port: int, timeout: float | None = None, *rest: Any, **options: Any
    ) -> httpcore2.NetworkStream:
        left = _left(timeout, httpcore2.ConnectTimeout)
        return _Connection(self._inner.connect_tcp(host, port, left, *rest, **options))

    def sleep(self, seconds: float) -> None:
        self._inner.sleep(seconds)


class _Connection(httpcore2.NetworkStream):
    """A connection that keeps the bounds."""

    def __init__(self, inner: httpcore2.NetworkStream) -> None:
        self._inner = inner

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        data = self._inner.read(max_bytes, _left(timeout, httpcore2.ReadTimeout))
        _REQUEST.bytes_left -= len(data)
        if _REQUEST.bytes_left < 0:
            raise httpcore2.ReadError(f"the reply has more than {MOST_BYTES} bytes")
        return data

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        self._inner.write(buffer, _left(timeout, httpcore2.WriteTimeout))

    def start_tls(
        self, ssl_context: Any, server_hostname: str | None = None, timeout: float | None = None
    ) -> httpcore2.NetworkStream:
        left = _left(timeout, httpcore2.ConnectTimeout)
        return _Connection(self._inner.start_tls(ssl_context, server_hostname, left))

    def get_extra_info(self, info: str) -> Any:
        return self._inner.get_extra_info(info)

    def close(self) -> None:
        self._inner.close()
