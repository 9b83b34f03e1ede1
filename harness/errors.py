"""The two kinds of failure a user sees, as one sentence; anything else is a bug."""

from __future__ import annotations


class HarnessError(Exception):
    """An expected failure that is not the user's mistake (exit code 1).

    The message is one sentence: what went wrong, where, and what to do about it.
    """

    exit_code = 1


class UserError(HarnessError):
    """A mistake the user can correct: a wrong name, key or value (exit code 2)."""

    exit_code = 2
