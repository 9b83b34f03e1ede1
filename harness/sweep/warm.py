"""An engine whose workers outlive a run: a trial is several short runs, one for each seed.

A worker takes seconds to import what stages need. The engine of a table runs once and ends its
workers; this one keeps them until its block is left.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Self

from harness.runtime import LocalEngine
from harness.runtime.pool import Pool


class WarmEngine(LocalEngine):
    """A local engine, as a context whose end is the end of its workers."""

    _kept: Pool | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        kept, self._kept = self._kept, None
        if kept is not None:
            kept.stop()

    def workers(self) -> AbstractContextManager[Pool]:
        """Return the one pool of workers, in a context that does not end it."""
        if self._kept is None:
            self._kept = super().workers().__enter__()
        return nullcontext(self._kept)
