"""The language of the embedded world: its skills, its sentences, and the oracle.

There are twelve operations on a list of letters and digits, each a total function in one of
MT-Bench's eight categories. Each has twenty names (`reverse-1` to `reverse-20`), one token per
name, so a name reveals nothing of its meaning to a model: there are 240 skills.

A task is a list of items and one to four operations on it. `render` writes it as a sentence in one
of five frames and `parse` reads any such sentence, so the creator can rewrite *text*, and the
oracle (`score`) can score answers to prompts without a stored solution. In a run, only the judge
and the controls use the oracle; it also labeled the pairs the reward models were trained on.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from harness.errors import HarnessError

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast


LETTERS = tuple("abcdefghij")
DIGITS = tuple("0123456789")
ITEMS = DIGITS + LETTERS
"""All items, in sort order: digits before letters."""

CATEGORIES = tuple("writing roleplay extraction reasoning math coding stem humanities".split())
"""The eight categories of MT-Bench, in its order."""

NAMES_EACH = 20  # names per operation
_RANK = {item: rank for rank, item in enumerate(ITEMS)}
_NEXT = {
    **dict(zip(DIGITS, DIGITS[1:] + DIGITS[:1], strict=True)),
    **dict(zip(LETTERS, LETTERS[1:] + LETTERS[:1], strict=True)),
}

Items = tuple[str, ...]


@dataclass(frozen=True)
class Operation:
    """An operation on lists, and its category."""

    id: str
    category: str
    apply: Callable[[Items], Items]

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(f"{self.id}-{number}" for number in range(1, NAMES_EACH + 1))


def _swap_ends(items: Items) -> Items:
    return items if len(items) < 2 else (items[-1], *items[1:-1], items[0])


OPERATIONS: tuple[Operation, ...] = (
    Operation("double_last", "writing", lambda s: s + s[-1:]),
    Operation("swap", "roleplay", _swap_ends),
    Operation("keep_letters", "extraction", lambda s: tuple(i for i in s if i in LETTERS)),
    Operation("keep_digits", "extraction", lambda s: tuple(i for i in s if i in DIGITS)),
    Operation("sort_up", "reasoning", lambda s: tuple(sorted(s, key=_RANK.__getitem__))),
    Operation(
        "sort_down", "reasoning", lambda s: tuple(sorted(s, key=_RANK.__getitem__, reverse=True))
    ),
    Operation("successor", "math", lambda s: tuple(_NEXT[i] for i in s)),
    Operation("reverse", "coding", lambda s: s[::-1]),
    Operation("rotate", "coding", lambda s: s[1:] + s[:1]),
    Operation("every_other", "stem", lambda s: s[::2]),
    Operation("drop_first", "humanities", lambda s: s[1:]),
    Operation("first_three", "humanities", lambda s: s[:3]),
)

MEANING: dict[str, Operation] = {name: o for o in OPERATIONS for name in o.names}


MAX_DEPTH = 4  # most operations in one task
EMPTY = "nothing"  # how an empty list is written
FRAMES: tuple[tuple[str, str], ...] = (
    ("take {items} and {ops}", " , then "),
    ("{ops} : {items}", " , then "),
    ("please {ops} for {items}", " and then "),
    ("here is {items} ; {ops} , thanks", " , next "),
    ("given {items} we want you to {ops}", " ; "),
)
"""Sentence patterns: the template, and the separator between operations."""

BENCHMARK_FRAME = 4  # index of the last frame, used only by benchmarks and demonstrations
FOLLOW_UPS = ("now {ops}", "next {ops} please")  # patterns for a second turn
REVISE = "improve your answer"
"""Second turn that asks for a revision of the first answer (paper, App. H.2.1)."""

_FILLERS = frozenset(
    "take and then please for here is thanks next given we want you to now , ; :".split()
)


@dataclass(frozen=True)
class Task:
    """Operations, by `names` in order, to apply to `items` (None in a follow-up)."""

    items: Items | None
    names: tuple[str, ...]

    @property
    def operations(self) -> tuple[Operation, ...]:
        return tuple(MEANING[name] for name in self.names)

    def answer(self, previous: Items = ()) -> Items:
        """Return the correct list; a follow-up applies to `previous`, the preceding answer."""
        items = self.items if self.items is not None else previous
        for operation in self.operations:
            items = operation.apply(items)
        return items


_ITEM_SET = frozenset(ITEMS)


def write_list(items: Items) -> str:
    """Write a list of items as text (`nothing` when it is empty)."""
    return " ".join(items) if items else EMPTY


def read_list(text: str) -> Items | None:
    """Parse a list of items; None for any other text."""
    words = tuple(text.split())
    if words == (EMPTY,):
        return ()
    return words if words and all(word in _ITEM_SET for word in words) else None


def render(task: Task, frame: int) -> str:
    """Write a task as a sentence in a frame; without items it is a follow-up."""
    if task.items is None:
        return FOLLOW_UPS[frame].format(ops=" , then ".join(task.names))
    template, joint = FRAMES[frame]
    return template.format(items=write_list(task.items), ops=joint.join(task.names))


def parse(prompt: str, max_depth: int = MAX_DEPTH) -> Task | None:
    """Parse a prompt into a task; None if it is not a sentence of the language."""
    items: list[str] = []
    names: list[str] = []
    closed = False
    for word in prompt.split():
        if word in _ITEM_SET:
            if closed:
                return None
            items.append(word)
            continue
        closed = bool(items)
        if word in MEANING:
            names.append(word)
        elif word not in _FILLERS:
            return None
    if not 1 <= len(names) <= max_depth:
        return None
    return Task(tuple(items) if items else None, tuple(names))


def draw_items(rng: random.Random, shortest: int, longest: int) -> Items:
    """Draw a list of `shortest` to `longest` items, each uniform over letters and digits."""
    return tuple(rng.choices(ITEMS, k=rng.randint(shortest, longest)))


def vocabulary() -> list[str]:
    return sorted({*ITEMS, *_FILLERS, EMPTY, *REVISE.split(), *MEANING})


def edit_distance(a: Items, b: Items) -> int:
    row = list(range(len(b) + 1))
    for i, x in enumerate(a, 1):
        diagonal, row[0] = row[0], i
        for j, y in enumerate(b, 1):
            diagonal, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, diagonal + (x != y))
    return row[-1]


def partial_credit(answer: str, correct: Items) -> float:
    """Return 1 minus edit distance / length of the longer list; 0 if the answer is not a list."""
    given = read_list(answer)
    if given is None:
        return 0.0
    longer = max(len(given), len(correct))
    return 1.0 if longer == 0 else 1.0 - edit_distance(given, correct) / longer


def score(prompt: str, answer: str, previous: str = "") -> float:
    """Score `answer` to `prompt`, in [0, 1]; a follow-up refers to the list in `previous`."""
    task = parse(prompt)
    if task is None:
        raise HarnessError(f"the oracle cannot read the prompt {prompt!r}")
    before = read_list(previous)
    if before is None:
        before = tuple(w for w in previous.split() if read_list(w) not in (None, ()))
    return partial_credit(answer, task.answer(before))


PAD, BOS, UNK = "<pad>", "<bos>", "<unk>"
START, END = "<start_of_turn>", "<end_of_turn>"
USER, MODEL = "user", "model"

CHAT_TEMPLATE = (
    "{{ bos_token }}{% for message in messages %}"
    "{{ '<start_of_turn>' + ('model' if message['role'] == 'assistant' else message['role'])"
    " + ' ' + message['content'] + ' <end_of_turn>' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<start_of_turn>model' }}{% endif %}"
)
"""Gemma's template without newlines, so a completion is its words and `<end_of_turn>`."""


QUESTION_WORDS = frozenset(
    "does contain this : yes no how many items has which item is third in larger or make plus "
    "comes earlier".split()
)
"""Words of the downstream questions; the language itself may lack them."""


def words() -> list[str]:
    """Return the vocabulary in the order of its ids."""
    special = [PAD, BOS, UNK, START, END]
    return special + sorted({USER, MODEL, *vocabulary(), *QUESTION_WORDS})


def token_ids() -> dict[str, int]:
    return {word: index for index, word in enumerate(words())}


def build_tokenizer() -> PreTrainedTokenizerFast:
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel
    from tokenizers.pre_tokenizers import WhitespaceSplit
    from transformers import PreTrainedTokenizerFast

    raw = Tokenizer(WordLevel(token_ids(), unk_token=UNK))
    raw.pre_tokenizer = WhitespaceSplit()
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=raw,
        bos_token=BOS,
        eos_token=END,
        pad_token=PAD,
        unk_token=UNK,
        additional_special_tokens=[START],
        model_max_length=256,
        clean_up_tokenization_spaces=False,
    )
    tokenizer.chat_template = CHAT_TEMPLATE
    return tokenizer
