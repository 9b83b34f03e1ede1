"""The paper being reproduced: its title, its question, and the comparisons that answer it."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

from pydantic import Field

from harness.project import project_root
from harness.registry.documents import read_declared
from harness.strict import Strict

RowRef = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9_.+-]*/[a-z0-9][a-z0-9_.+-]*$")]
"""A row of a table, as `table/row`."""


class Comparison(Strict):
    """Rows against a row, by seed and prompt: part of a line of the answer."""

    over: str
    """The right row in plain words."""
    left: Annotated[tuple[RowRef, ...], Field(min_length=1)]
    """The rows compared; of several, the mean."""
    right: RowRef
    about_choosing: bool = False
    """Whether it is about which prompts are chosen, which has its own controls."""

    @property
    def tables(self) -> list[str]:
        return list(dict.fromkeys(ref.partition("/")[0] for ref in (*self.left, self.right)))


class AnswerLine(Strict):
    says: str
    """What is compared, in plain words."""
    comparisons: Annotated[tuple[Comparison, ...], Field(min_length=1, max_length=3)]


class PaperAnswer(Strict):
    """What answers the paper's question at a profile."""

    setting: str
    """What was used there: the models, the prompts and the judge."""
    measure: str
    """The unit of the comparisons."""
    column: str
    declared: str
    """When the comparisons were declared."""
    lines: Annotated[tuple[AnswerLine, ...], Field(min_length=1, max_length=5)]

    @property
    def tables(self) -> list[str]:
        comparisons = (it for line in self.lines for it in line.comparisons)
        return list(dict.fromkeys(name for it in comparisons for name in it.tables))


class Paper(Strict):
    title: str
    authors: str
    address: str
    cited: str
    """Short citation: `arXiv 2411.00062`."""
    method: str
    question: str
    answers: Mapping[str, PaperAnswer] = Field(default={})
    """What answers the question, by profile."""


FILE = Path("experiments") / "paper.yaml"
"""The file that declares the paper, relative to the project root."""


@functools.cache
def the_paper() -> Paper:
    return read_declared(project_root() / FILE, Paper, "a paper")[1]
