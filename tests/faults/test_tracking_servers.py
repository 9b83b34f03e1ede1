"""Tracking servers that are dead, silent, slow or broken: reports do not depend on them."""

import time
from collections.abc import Callable
from typing import Any

from misbehaving import drip, serving, stay_silent
from scene import Scene

RUN = ("run", "table4", "--rows", "dpo-1", "--seeds", "0", "--jobs", "2", "--json")
SECRET = "tok-very-secret-0123456789"
SHORT: dict[str, Any] = {"MLFLOW_HTTP_REQUEST_TIMEOUT": "1", "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "0"}
LATEST_S = 40.0
"""A report is there by then, whatever the server does; alone it takes two seconds."""


def _sends(data: bytes) -> Callable[[Any], None]:
    def send(handler: Any) -> None:
        handler.wfile.write(data)

    return send


def _page(status: str, body: bytes = b"") -> Callable[[Any], None]:
    head = f"HTTP/1.1 {status}\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    return _sends(head.encode() + body)


SERVERS: dict[str, Callable[[Any], None]] = {
    "silent": stay_silent,
    "dripping": drip,
    "garbage": _sends(b"\x00\xff" * 500),
    "500": _page("500 Oops", b"<html>oops</html>"),
    "401": _page("401 No", b"{}"),
    "deep JSON": _page("200 OK", b"[" * 100_000),
    "a circle": _page("302 Found\r\nLocation: /"),
}


def test_tracking_servers_that_fail(scene: Scene) -> None:
    """The table is computed and reported as ever, a warning says why it is not tracked."""
    name = scene.dice.choice([*SERVERS]) if scene.is_long else "silent"
    print(f"tracked at {name}")
    calm = scene.calm(*RUN)
    with serving(SERVERS[name]) as place:
        uri = f"http://user:{SECRET}@{place}?token={SECRET}"
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
