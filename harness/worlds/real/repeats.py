"""What prompts repeat: one another, and the questions of benchmarks.

Texts are compared as words: letters and digits in lower case, compatible forms made one,
punctuation and white space dropped. Two prompts are duplicates where they are the same text, or the
same words. A prompt overlaps a question

- *whole*, where it has the same words, or
- *in part*, where 13 words in a row are in both; of a question of 8 to 12 words, all of them in a
  row. Shorter questions ("What is Atlantis?") are common speech and overlap whole or not at all.

Thirteen words in a row are the usual measure of contamination since GPT-3. It finds copies and
quotations, and no paraphrases. Nothing is removed: the paper's prompts were not cleaned of either.

The questions of a benchmark are read from the usual files: JSON lines with `turns` (MT-Bench) or
`prompt` (Arena-Hard), or one JSON list with `instruction` (AlpacaEval). Every turn is a question of
its own.
"""

from __future__ import annotations

import re
import unicodedata
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.errors import UserError
from harness.evaluation.files import read_records

RUN = 13
"""Words in a row that make an overlap."""

SHORTEST_RUN = 8
"""Words of the shortest question that can overlap in part."""

_WORD = re.compile(r"[^\W_]+")

Words = tuple[str, ...]


@dataclass(frozen=True)
class Duplicates:
    """How many prompts repeat an earlier one.

    Attributes:
        prompts: Prompts in all.
        same_text: Prompts whose text an earlier one has.
        same_words: Prompts whose words an earlier one has; those of `same_text` among them.
    """

    prompts: int
    same_text: int
    same_words: int


@dataclass(frozen=True)
class Overlap:
    """How far prompts overlap the questions of a benchmark.

    Attributes:
        questions: Questions in all.
        whole: Prompts that are a question.
        in_part: Further prompts that overlap one in part.
        questions_met: Questions that some prompt overlaps, whole or in part.
        examples: Positions of the first prompts that overlap.
    """

    questions: int
    whole: int
    in_part: int
    questions_met: int
    examples: tuple[int, ...]


def words(text: str) -> Words:
    """Return the words of a text, as texts are compared here."""
    return tuple(_WORD.findall(unicodedata.normalize("NFKC", text).casefold()))


def duplicates(prompts: Sequence[str]) -> Duplicates:
    """Count the prompts that repeat an earlier one."""
    total = len(prompts)
    by_words = len({words(prompt) for prompt in prompts})
    return Duplicates(total, total - len(set(prompts)), total - by_words)


def overlaps(
    prompts: Sequence[str], benchmarks: Mapping[str, Sequence[str]], examples: int = 3
) -> dict[str, Overlap]:
    """Measure how far prompts overlap the questions of benchmarks.

    Args:
        prompts: The prompts.
        benchmarks: The questions of each benchmark by its name, each turn a question.
        examples: How many overlapping prompts to name.
    """
    indexes = {name: _Index(questions) for name, questions in benchmarks.items()}
    whole: dict[str, list[int]] = defaultdict(list)
    in_part: dict[str, list[int]] = defaultdict(list)
    met: dict[str, set[int]] = defaultdict(set)
    for position, prompt in enumerate(prompts):
        mine = words(prompt)
        for name, index in indexes.items():
            same = index.whole.get(mine, set())
            found = same | index.in_part(mine)
            if found:
                (whole if same else in_part)[name].append(position)
                met[name] |= found
    return {
        name: Overlap(
            questions=len(benchmarks[name]),
            whole=len(whole[name]),
            in_part=len(in_part[name]),
            questions_met=len(met[name]),
            examples=tuple(sorted(whole[name] + in_part[name])[:examples]),
        )
        for name in indexes
    }


class _Index:
    """The questions of a benchmark, by their words and by runs of them."""

    def __init__(self, questions: Sequence[str]) -> None:
        self.whole: dict[Words, set[int]] = defaultdict(set)
        self._runs: dict[int, dict[Words, set[int]]] = defaultdict(lambda: defaultdict(set))
        for number, question in enumerate(questions):
            mine = words(question)
            if mine:
                self.whole[mine].add(number)
            length = min(RUN, len(mine))
            if length >= SHORTEST_RUN:
                for run in _runs(mine, length):
                    self._runs[length][run].add(number)

    def in_part(self, mine: Words) -> set[int]:
        """Return the questions that share a run with some words."""
        found: set[int] = set()
        for length, known in self._runs.items():
            for run in _runs(mine, length):
                if run in known:
                    found |= known[run]
        return found


def _runs(mine: Words, length: int) -> list[Words]:
    return [mine[i : i + length] for i in range(len(mine) - length + 1)]


FIELDS = ("turns", "prompt", "instruction")


def read_questions(path: Path) -> list[str]:
    """Return the questions in a file, in its order.

    Raises:
        UserError: The file cannot be read, or a record has none of the fields.
    """
    try:
        records = read_records(path)
    except UserError as error:
        raise UserError(
            f"{path} is no file of questions; give JSON lines or one JSON list of objects with "
            f"{', '.join(FIELDS)}"
        ) from error
    return [
        text for number, record in enumerate(records, 1) for text in _texts(record, number, path)
    ]


def _texts(record: dict[str, Any], number: int, path: Path) -> list[str]:
    found = next((record[field] for field in FIELDS if field in record), None)
    texts: list[Any] = found if isinstance(found, list) else [found]
    if not texts or not all(isinstance(text, str) for text in texts):
        raise UserError(
            f"question {number} of {path} has no text in {', '.join(FIELDS)}; repair it"
        )
    return texts
