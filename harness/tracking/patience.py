"""How long MLflow is waited for, and what is said when it fails.

A server may be dead, silent, slow or refuse everything, and a driver may be missing. None of it
may hold up or spoil what was computed: a report, a sweep and an evaluation go on without MLflow
after one warning, and `harness sync` adds what is missing when it can be reached.
"""

from __future__ import annotations

import threading
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from harness.errors import HarnessError
from harness.tracking.secrets import shown, without_secrets

_T = TypeVar("_T")

PATIENCE_S = 60.0
"""Seconds that a command which has done its work waits for MLflow."""


class TrackingError(HarnessError):
    """MLflow cannot be reached, or refuses what is written."""


def within(seconds: float, uri: str, work: Callable[[], _T]) -> _T:
    """Do something with MLflow, and wait for it no longer than some time.

    Args:
        seconds: The longest wait. What needs longer is left behind in a thread of its own that
            ends with the process.
        uri: Tracking URI, for the message.
        work: What to do.

    Raises:
        TrackingError: It needs longer.
        Exception: Whatever `work` raises.
    """
    results: list[_T] = []
    errors: list[BaseException] = []

    def run() -> None:
        try:
            results.append(work())
        except BaseException as error:  # noqa: BLE001  it is raised again where it is waited for
            errors.append(error)

    thread = threading.Thread(target=run, name="mlflow", daemon=True)
    thread.start()
    thread.join(seconds)
    for error in errors:
        raise error
    if not results:
        raise TrackingError(too_slow(uri))
    return results[0]


def attempt(
    work_dir: Path,
    uri: str,
    warn: Callable[[str], None],
    work: Callable[[], _T],
    seconds: float = PATIENCE_S,
) -> _T | None:
    """Do something with MLflow; at worst there is a warning, and None.

    Args:
        work_dir: Folder that takes the traceback of a fault of ours.
        uri: Tracking URI.
        warn: Takes the one sentence that says what is wrong.
        work: What to do.
        seconds: The longest wait.
    """
    try:
        return within(seconds, uri, work)
    except Exception as error:  # noqa: BLE001  nothing depends on MLflow, whatever it is
        warn(sentence(error, work_dir, uri))
        return None


def sentence(error: Exception, work_dir: Path, uri: str) -> str:
    """Return what to say of an error; the traceback of an unforeseen one goes to a file."""
    if isinstance(error, HarnessError):
        return str(error)
    what = without_secrets(str(error), uri)
    path = work_dir / "tracking" / "error.log"
    text = "".join(traceback.format_exception(error))
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(without_secrets(text, uri), encoding="utf-8")
    except OSError:
        return f"MLflow tracking has stopped ({what}): `harness sync` tries again"
    return f"MLflow tracking has stopped ({what}): see {path}"


def too_slow(uri: str) -> str:
    """Return the sentence for a server that takes too long."""
    return (
        f"MLflow at {shown(uri)} is too slow to take everything now: `harness sync` adds the rest"
    )
