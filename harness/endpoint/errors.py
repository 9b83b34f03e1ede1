"""Errors of requests without a usable reply."""

from __future__ import annotations

from harness.errors import HarnessError


class OverloadedError(HarnessError):
    """The endpoint was not reached or turned the request away: it is not charged; ask again.

    `retry_after` is the wait in seconds that it asked for, if any.
    """

    def __init__(self, message: str, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class LostError(HarnessError):
    """No usable reply (timeout, broken connection, invalid JSON): it may be charged; ask again."""


class UnansweredError(HarnessError):
    """A request got no reply; if `refused`, retrying will not help."""

    def __init__(self, message: str, refused: bool) -> None:
        super().__init__(message)
        self.refused = refused
