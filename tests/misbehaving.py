"""Servers on loopback that do not answer as a server should."""

import socketserver
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from select import select
from typing import Any

HEAD = b"HTTP/1.1 200 OK\r\nContent-Length: 9000000\r\n\r\n"


def drip(handler: Any, head: bytes = HEAD, data: bytes = b" ", gap_s: float = 0.05) -> None:
    """Send a head and then the same bytes again and again, until the client has gone."""
    with suppress(OSError):
        handler.wfile.write(head)
        while _stays(handler, gap_s):
            handler.wfile.write(data)
            handler.wfile.flush()


def _stays(handler: Any, wait_s: float) -> bool:
    """Wait a while for the client to go, reading what it sends; return whether it is there."""
    readable, _, _ = select([handler.connection], [], [], wait_s)
    return not readable or bool(handler.connection.recv(65536))


def stay_silent(handler: Any) -> None:
    """Say nothing until the client has gone."""
    with suppress(OSError):
        while handler.connection.recv(1):
            pass


@contextmanager
def serving(answer: Callable[[Any], None]) -> Iterator[str]:
    """Answer each request, once its head is read; yield the server's host and port."""

    class Answer(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            with suppress(OSError):
                while self.rfile.readline() not in (b"\r\n", b""):
                    pass
                answer(self)

    class Server(socketserver.ThreadingTCPServer):
        daemon_threads = True

        def handle_error(self, request: Any, client_address: Any) -> None:
            """Say nothing of clients that went away."""

    with Server(("127.0.0.1", 0), Answer) as server:
        threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        yield f"127.0.0.1:{server.server_address[1]}"
        server.shutdown()
