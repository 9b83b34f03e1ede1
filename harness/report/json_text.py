"""The common form of all JSON that the commands and reports write."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from harness.report.answer import Answer

SCHEMA_VERSION = 1
"""Incremented when a field is removed or changes meaning."""


def json_text(value: Any, answer: Answer | None = None, facts: Any = None) -> str:
    """Return models or plain data as JSON in the common format.

    The output is an object that starts with a schema version. A list becomes its `items`, after the
    answer that they support, and facts of rows.
    """
    content = {"items": value} if isinstance(value, list) else value
    content = content if isinstance(content, dict) else _plain(content)
    whole = {"schema_version": SCHEMA_VERSION} | ({"answer": answer.as_json()} if answer else {})
    whole |= ({"facts": facts} if facts else {}) | content
    text = json.dumps(whole, indent=2, ensure_ascii=False, allow_nan=False, default=_plain)
    return f"{text}\n"


def _plain(model: Any) -> Any:
    return model.model_dump(mode="json")
