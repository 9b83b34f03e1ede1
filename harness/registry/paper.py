"""The paper being reproduced: its title, its question, and the comparisons that answer it."""

from __future__ import annotations

import functools
from pathlib import Path

from harness.project import project_root
from harness.registry.documents import read_declared
from harness.strict import Strict


class Contrast(Strict):
    """A comparison that is part of the answer: left row minus right row."""

    says: str
    """The left row in plain words, as the subject of a sentence."""
    over: str
    """The right row in plain words."""
    table: str
    left: str
    right: str
    column: str
    about_choosing: bool = False
    """Whether it is about which prompts are chosen, which has its own controls."""


class Paper(Strict):
    title: str
    authors: str
    address: str
    cited: str
    """Short citation: `arXiv 2411.00062`."""
    method: str
    question: str
    answers: tuple[Contrast, ...] = ()
    """The comparisons that answer the question, most important first."""


@functools.cache
def the_paper(path: Path | None = None) -> Paper:
    """Read and check the declaration of the paper."""
    return read_declared(path or project_root() / "experiments" / "paper.yaml", Paper, "a paper")[0]
