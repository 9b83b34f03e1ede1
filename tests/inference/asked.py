"""What the tests of engines ask, and how they read the requests that came."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

Requests = Callable[[], list[dict[str, Any]]]

TEXTS = ["a b c", "d", "e f g h i j k l", "m n", "a b c d e f", "o", "p a", "b b"]
CONVERSATIONS = [[{"role": "user", "content": text}] for text in TEXTS]
SAMPLING: Any = {"n": 3, "seed": 11, "temperature": 0.7, "top_p": 0.9, "max_new_tokens": 12}


def kept_in(folder: Path) -> int:
    """Return the number of prompts whose answers are kept in a folder."""
    return sum(path.read_bytes().count(b"\n") for path in folder.glob("*.jsonl"))
