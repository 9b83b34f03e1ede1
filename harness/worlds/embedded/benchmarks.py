"""Reading and writing the world's prompts and benchmarks (Parquet, one row an item)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from harness.worlds.protocol import Item

ITEM_SCHEMA = pa.schema(
    [
        ("item_id", pa.string()),
        ("category", pa.string()),
        ("turn_1", pa.string()),
        ("turn_2", pa.string()),
        ("reference", pa.string()),
    ]
)


def write_items(items: Sequence[Item], path: Path) -> None:
    """Write a benchmark."""
    pq.write_table(pa.Table.from_pylist([vars(item) for item in items], ITEM_SCHEMA), path)


def read_items(path: Path) -> list[Item]:
    """Read a benchmark."""
    return [Item(**row) for row in pq.read_table(path).to_pylist()]


def write_prompts(prompts: Sequence[str], path: Path) -> None:
    """Write the pool of human prompts, in the order they were drawn."""
    pq.write_table(pa.table({"prompt": list(prompts)}), path)


def read_prompts(path: Path) -> list[str]:
    """Read the pool of human prompts."""
    return [str(text) for text in pq.read_table(path).column("prompt").to_pylist()]
