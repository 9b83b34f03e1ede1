"""HTTP connections that end with their request, at a deadline or after too many bytes.

HTTP clients limit only the wait for the next byte, so headers, `100 Continue` or a body that drips
can hold them for ever. Here every request has a connection of its own, with one deadline from
connecting to the last byte, and a limit on the bytes received. Both are checked at the socket,
before anything is parsed.
"""

from __future__ import annotations

import socket
import ssl
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any
from urllib.parse import unquote, urlsplit
from urllib.request import getproxies, proxy_bypass

import httpcore2


def open_pool(address: str, timeout_s: float, most_bytes: int) -> httpcore2.ConnectionPool:
    """Return a source of connections to an address, through the environment's proxy if it has one.

    The caller must send `Connection: close`, so that no connection serves a second request.
    """
    parts = urlsplit(address)
    proxies = getproxies()
    proxy = proxies.get(parts.scheme) or proxies.get("all")
    settings: dict[str, Any] = {
        "ssl_context": httpcore2.default_ssl_context() if parts.scheme == "https" else None,
        "max_connections": None,
        "network_backend": _Backend(timeout_s, most_bytes),
    }
    if not proxy or proxy_bypass(parts.netloc):
        return httpcore2.ConnectionPool(**settings)
    proxy = proxy if "://" in proxy else f"http://{proxy}"
    user = urlsplit(proxy)
    login = (unquote(user.username), unquote(user.password or "")) if user.username else None
    return httpcore2.HTTPProxy(proxy, proxy_auth=login, **settings)


class _Backend(httpcore2.NetworkBackend):
    """Opens connections, each with a deadline of its own."""

    def __init__(self, timeout_s: float, most_bytes: int) -> None:
        self._timeout_s = timeout_s
        self._most_bytes = most_bytes

    def connect_tcp(
        self, host: str, port: int, *ignored: object, **also_ignored: object
    ) -> httpcore2.NetworkStream:
        end = time.monotonic() + self._timeout_s
        with _renamed(httpcore2.ConnectTimeout, httpcore2.ConnectError):
            opened = socket.create_connection((host, port), self._timeout_s)
            opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return _Stream(opened, end, self._most_bytes)


class _Stream(httpcore2.NetworkStream):
    """A connection's bytes until its deadline; timeouts that a caller gives are ignored."""

    def __init__(self, opened: socket.socket, end: float, most_bytes: int) -> None:
        self._socket = opened
        self._end = end
        self._left = most_bytes

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        with self._in_time(httpcore2.ReadTimeout, httpcore2.ReadError):
            data = self._socket.recv(max_bytes)
        self._left -= len(data)
        if self._left < 0:
            raise httpcore2.ReadError("the reply is too large")
        return data

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        with self._in_time(httpcore2.WriteTimeout, httpcore2.WriteError):
            self._socket.sendall(buffer)  # its timeout is for all of the bytes

    def start_tls(
        self,
        ssl_context: ssl.SSLContext,
        server_hostname: str | None = None,
        timeout: float | None = None,
    ) -> httpcore2.NetworkStream:
        try:
            with self._in_time(httpcore2.ConnectTimeout, httpcore2.ConnectError):
                secure = ssl_context.wrap_socket(self._socket, server_hostname=server_hostname)
        except BaseException:
            self.close()
            raise
        return _Stream(secure, self._end, self._left)

    def close(self) -> None:
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)  # wakes a thread that waits for bytes
        self._socket.close()

    @contextmanager
    def _in_time(self, late: type[Exception], failed: type[Exception]) -> Iterator[None]:
        with _renamed(late, failed):
            left = self._end - time.monotonic()
            if left <= 0.0:
                raise TimeoutError("the deadline has passed")
            self._socket.settimeout(left)
            yield


@contextmanager
def _renamed(late: type[Exception], failed: type[Exception]) -> Iterator[None]:
    """Turn errors of sockets into those that the HTTP library expects."""
    try:
        yield
    except TimeoutError as error:
        raise late(str(error)) from error
    except (OSError, UnicodeError) as error:  # a host's name may not be encodable
        raise failed(getattr(error, "strerror", None) or str(error)) from error
