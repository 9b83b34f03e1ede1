"""A trained policy's folder on the Hugging Face hub, by somebody who has said so and has a token.

The token is read from the environment alone, never from a file of the hub's own client, and is in
no message. The repository is made private; its owner makes it public after a look at the card.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

from harness.errors import HarnessError, UserError

TOKEN = "HF_TOKEN"
"""The environment variable with the hub's token."""

_REPOSITORY = re.compile(r"[\w-][\w.-]{0,95}/[\w-][\w.-]{0,95}")


def check_push(repository: str) -> None:
    """Check that something could be sent to a repository, without asking anybody."""
    if not _REPOSITORY.fullmatch(repository):
        raise UserError(f"`--push {repository}` is no repository; write OWNER/NAME")
    if not os.environ.get(TOKEN, "").strip():
        raise UserError(
            f"`--push` needs a token that may write: set {TOKEN} in the environment; nothing was "
            "written or sent"
        )
    if os.environ.get("HF_HUB_OFFLINE", "") not in ("", "0"):
        raise UserError(
            "`--push` asks the hub, and HF_HUB_OFFLINE forbids it: set HF_HUB_OFFLINE=0; nothing "
            "was written or sent"
        )


def push(folder: Path, repository: str) -> str:
    """Send an exported folder to a private repository; return its address."""
    check_push(repository)
    token = os.environ[TOKEN].strip()
    try:
        hub = client(token)
        address = str(hub.create_repo(repository, private=True, exist_ok=True))
        hub.upload_folder(
            repo_id=repository, folder_path=str(folder), commit_message="eva-harness export"
        )
    except Exception as error:  # noqa: BLE001 (a traceback could show the token)
        why = str(error).strip().splitlines() or [type(error).__name__]
        said = why[0].replace(token, "…")[:200]
        raise HarnessError(
            f"{repository} was not written on the hub ({said}); the folder {folder} is whole"
        ) from None
    return address


def client(token: str) -> Any:
    """Return the hub's client."""
    from huggingface_hub import HfApi

    return HfApi(token=token)
