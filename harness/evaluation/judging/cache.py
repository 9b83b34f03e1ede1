"""Replies on disk: one JSON file for each request, written whole or not at all.

A file is written beside its place and renamed into it, so that a killed process leaves either
nothing or a complete reply. Nothing waits for the disk: a machine that loses power may lose the
replies of its last seconds. Several processes may share a cache: who comes last writes the same
address again. A file that is not whole counts as absent and is asked for anew.
"""

from __future__ import annotations

import json
import os
import threading
from pathlib import Path
from typing import Any

from harness.errors import HarnessError
from harness.evaluation.judging.request import ChatRequest, Reply, is_reply
from harness.store.manifest import utc_now


class ReplyCache:
    """The replies of all endpoints, by the address of their request.

    Args:
        root: The folder; it is made when the first reply is kept.
    """

    def __init__(self, root: Path) -> None:
        self.root = root

    def path(self, address: str) -> Path:
        """Return where the reply to a request is kept."""
        return self.root / address[:2] / f"{address}.json"

    def get(self, address: str) -> Reply | None:
        """Return the reply kept under an address, or None."""
        try:
            text = self.path(address).read_text(encoding="utf-8")
        except FileNotFoundError:
            return None
        except (OSError, UnicodeDecodeError) as error:
            raise HarnessError(
                f"Cannot read {self.path(address)}: {error}; delete the file, and its reply is "
                "asked for again."
            ) from error
        try:
            entry = json.loads(text)
        except json.JSONDecodeError:
            return None
        if not isinstance(entry, dict) or not is_reply(entry.get("reply")):
            return None
        return Reply(entry["reply"], cached=True)

    def put(self, address: str, endpoint: str, request: ChatRequest, raw: dict[str, Any]) -> None:
        """Keep a reply, with the request it answers.

        Raises:
            HarnessError: The file cannot be written.
        """
        entry = {
            "address": address,
            "endpoint": endpoint,
            "label": request.label,
            "request": request.body(),
            "sample": request.sample,
            "received": utc_now(),
            "reply": raw,
        }
        path = self.path(address)
        part = path.with_suffix(f".{os.getpid()}-{threading.get_ident()}.part")
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            part.write_text(json.dumps(entry, ensure_ascii=False), encoding="utf-8")
            part.replace(path)
        except OSError as error:
            part.unlink(missing_ok=True)
            raise HarnessError(
                f"Cannot keep a reply in {self.root}: {error.strerror or error}; make room or set "
                "HARNESS_WORK to a folder that can be written."
            ) from error
