"""Tracking servers that are dead, silent, slow or broken: reports do not depend on them."""

import socketserver
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

from judging import with_patience
from scene import Scene

RUN = ("run", "table4", "--rows", "dpo-1", "--seeds", "0", "--jobs", "2", "--json")
SECRET = "tok-very-secret-0123456789"
SHORT: dict[str, Any] = {"MLFLOW_HTTP_REQUEST_TIMEOUT": "1", "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "0"}
LATEST_S = 40.0
"""A report is there by then, whatever the server does; alone it takes two seconds."""

Handler = socketserver.StreamRequestHandler


def _sends(data: bytes) -> Callable[[Handler], None]:
    def send(handler: Handler) -> None:
        handler.wfile.write(data)

    return send


def _page(status: str, body: bytes = b"") -> Callable[[Handler], None]:
    head = f"HTTP/1.1 {status}\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    return _sends(head.encode() + body)


def _drips(handler: Handler) -> None:
    handler.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n")
    with_patience(handler, lambda: handler.wfile.write(b" "))


SERVERS: dict[str, Callable[[Handler], None]] = {
    "silent": lambda handler: with_patience(handler, lambda: None),
    "dripping": _drips,
    "garbage": _sends(b"\x00\xff" * 500),
    "500": _page("500 Oops", b"<html>oops</html>"),
    "401": _page("401 No", b"{}"),
    "deep JSON": _page("200 OK", b"[" * 100_000),
    "a circle": _page("302 Found\r\nLocation: /"),
}


@contextmanager
def serving(name: str) -> Iterator[str]:
    """Serve on loopback as one of `SERVERS`; yield the address, with a secret in it."""

    class Answer(Handler):
        def handle(self) -> None:
            with suppress(OSError):
                while self.rfile.readline() not in (b"\r\n", b""):
                    pass
                SERVERS[name](self)

    class Server(socketserver.ThreadingTCPServer):
        daemon_threads = True

        def handle_error(self, request: Any, client_address: Any) -> None:
            """Say nothing of clients that went away."""

    with Server(("127.0.0.1", 0), Answer) as server:
        threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        yield f"http://user:{SECRET}@127.0.0.1:{server.server_address[1]}?token={SECRET}"
        server.shutdown()


def test_tracking_servers_that_fail(scene: Scene) -> None:
    """The table is computed and reported as ever, a warning says why it is not tracked."""
    name = scene.dice.choice([*SERVERS]) if scene.is_long else "silent"
    print(f"tracked at {name}")
    calm = scene.calm(*RUN)
    with serving(name) as uri:
        began = time.monotonic()
        done = scene.call(*RUN, MLFLOW_TRACKING_URI=uri, **SHORT)
        seconds = time.monotonic() - began
        synced = scene.call("sync", "table4", MLFLOW_TRACKING_URI=uri, **SHORT)
    assert synced.code in (1, 2), synced
    assert "harness: " in synced.errors, synced.errors
    assert SECRET not in synced.out + synced.errors
    done.check_as(calm)
    assert "harness: MLflow" in done.errors, done.errors
    assert seconds < LATEST_S, done.errors
    assert SECRET not in done.out + done.errors
    scene.check_store(calm)
