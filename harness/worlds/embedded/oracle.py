"""The gold oracle: how right an answer is, in [0, 1]; in a run only the judge consults it.

It also labelled the pairs that the reward models were trained on, a tenth of them wrongly.

The score is 1 minus the edit distance between the answer and the correct list, divided by the
longer of the two. An answer that is not a list of the language scores 0.
"""

from __future__ import annotations

from harness.errors import HarnessError
from harness.worlds.embedded.language import parse, read_list
from harness.worlds.embedded.operations import Sequence


def edit_distance(a: Sequence, b: Sequence) -> int:
    """Return the Levenshtein distance between two lists of items."""
    row = list(range(len(b) + 1))
    for i, x in enumerate(a, 1):
        diagonal, row[0] = row[0], i
        for j, y in enumerate(b, 1):
            diagonal, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, diagonal + (x != y))
    return row[-1]


def partial_credit(answer: str, correct: Sequence) -> float:
    """Return the score of an answer (text) against the correct list."""
    given = read_list(answer)
    if given is None:
        return 0.0
    longer = max(len(given), len(correct))
    return 1.0 if longer == 0 else 1.0 - edit_distance(given, correct) / longer


def score(prompt: str, answer: str, previous: str = "") -> float:
    """Return how right `answer` is for `prompt`.

    Args:
        prompt: the user's turn.
        answer: the model's turn.
        previous: the model's turn before it, which a follow-up refers to. If that was no list,
            its items are taken in order.

    Raises:
        HarnessError: if the prompt is not a sentence of the language.
    """
    task = parse(prompt)
    if task is None:
        raise HarnessError(f"the oracle cannot read the prompt {prompt!r}")
    before = read_list(previous)
    if before is None:
        before = tuple(w for w in previous.split() if read_list(w) not in (None, ()))
    return partial_credit(answer, task.answer(before))
