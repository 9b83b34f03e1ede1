"""The two kinds of failure a user sees.

Everything the harness foresees is raised as one of these and shown as one sentence without a
traceback. Whatever is not foreseen keeps its traceback, because then the fault is ours.
"""

from __future__ import annotations


class HarnessError(Exception):
    """A foreseen failure that is not the user's mistake (exit code 1).

    The message is one sentence: what went wrong, where, and what to do about it.
    """

    exit_code = 1


class UserError(HarnessError):
    """A mistake the user can correct: a wrong name, key or value (exit code 2)."""

    exit_code = 2
