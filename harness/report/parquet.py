"""Columns of texts and numbers as Parquet files, without pandas.

pyarrow's own conversion of Python lists imports pandas, which takes a second and is not needed.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    import pyarrow as pa

Column = Sequence[str] | Sequence[int] | Sequence[float]


def write_columns(path: Path, columns: Mapping[str, tuple[type, Column]]) -> None:
    """Write columns of equal length as a Parquet file.

    Args:
        path: File to write.
        columns: For each name its type (`str`, `int` or `float`) and its values.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    arrays = [_array(kind, values) for kind, values in columns.values()]
    table = pa.Table.from_arrays(arrays, names=list(columns))
    pq.write_table(table, path, compression="zstd")


def _array(kind: type, values: Sequence[Any]) -> pa.Array:
    import pyarrow as pa

    if kind is str:
        return _strings(values)
    if kind is int:
        return _numbers(np.array(values, dtype=np.int64), pa.int64())
    return _numbers(np.array(values, dtype=np.float64), pa.float64())


def _strings(texts: Sequence[str]) -> pa.Array:
    """Return texts as an array, from buffers."""
    import pyarrow as pa

    encoded = [text.encode() for text in texts]
    ends = itertools.accumulate(map(len, encoded), initial=0)
    offsets = np.fromiter(ends, dtype=np.int32, count=len(encoded) + 1)
    buffers = [pa.py_buffer(offsets), pa.py_buffer(b"".join(encoded))]
    return pa.StringArray.from_buffers(len(encoded), *buffers)


def _numbers(values: np.ndarray[Any, np.dtype[Any]], kind: pa.DataType) -> pa.Array:
    """Return numbers as an array, from a buffer."""
    import pyarrow as pa

    return pa.Array.from_buffers(kind, len(values), [None, pa.py_buffer(values)])
