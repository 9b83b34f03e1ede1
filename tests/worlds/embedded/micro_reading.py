"""How tests of the embedded world read its sentences, and compare a share with its expectation."""

from harness.worlds.embedded.language import Task, parse


def read(text: str | None) -> Task:
    """Return the task of a sentence that has one."""
    task = parse(text or "")
    assert task is not None, text
    return task
