"""The processes of one online training: the first one decides, all of them compute.

Process r of R has the rows r B/R ... (r + 1) B/R - 1 of a batch of B, so that what all processes
have, put one after the other, is in the order of the batch. Without `accelerate launch` there is
one process, which has everything.

What passes between the processes are pickles of their own making; nothing from outside is read so.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

from accelerate import PartialState
from accelerate.utils import broadcast_object_list, gather_object

Row = TypeVar("Row")


def count() -> int:
    """Return the number of processes."""
    return int(PartialState().num_processes)


def is_first() -> bool:
    """Return whether this is the process that decides."""
    return bool(PartialState().is_main_process)


def of_all(rows: Sequence[Row]) -> list[Row]:
    """Return the rows of all processes in their order; every process calls this."""
    return list(gather_object(list(rows)))


def of_first(thing: Any = None) -> Any:
    """Return what the first process gives; every process calls this."""
    return broadcast_object_list([thing])[0]


def mine(rows: Sequence[Row]) -> list[Row]:
    """Return this process's share of a batch that the number of processes divides."""
    share = len(rows) // count()
    first = int(PartialState().process_index) * share
    return list(rows[first : first + share])
