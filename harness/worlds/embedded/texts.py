"""What is said in the embedded world: demonstrations, human prompts and benchmarks.

*Demonstrations* are conversations by a fallible demonstrator, from which the base policy learns. It
applies each operation correctly with a probability of its own; otherwise it leaves the operation
out or does a neighbouring one. Competence is therefore uneven across skills and falls with depth,
as in a real instruction-tuned model: the policy that imitates these conversations is often right on
common skills, seldom on rare ones, and its best of several answers is much better than its average
one.

*Human prompts* are narrower and easier than the benchmarks, as UltraFeedback is against Arena-Hard:
mostly single operations, mostly those that the policy already does well, everyday wording, short
lists. *Benchmarks* are written down without reference to the creator; their longest lists, one
frame, one phrasing of every operation, and two operations that the creator never adds keep part of
them out of the reach of any sequence of rewrites. Both are kept as Parquet, one row an item.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from harness.worlds.embedded.downstream import TASKS
from harness.worlds.embedded.files import card, resolve
from harness.worlds.embedded.language import (
    BENCHMARK_FRAME,
    BY_NAME,
    CATEGORIES,
    FOLLOW_UPS,
    FRAMES,
    NAMES,
    OPERATIONS,
    REVISE,
    Items,
    Task,
    draw_items,
    render,
    write_list,
)
from harness.worlds.protocol import Item

RELIABILITY: dict[str, float] = {
    "reverse": 0.95,
    "drop_first": 0.93,
    "first_three": 0.91,
    "keep_letters": 0.88,
    "sort_up": 0.84,
    "keep_digits": 0.80,
    "rotate": 0.75,
    "double_last": 0.69,
    "swap": 0.63,
    "sort_down": 0.56,
    "successor": 0.49,
    "every_other": 0.42,
}
"""Probability that the demonstrator applies an operation correctly."""

MISTAKEN_FOR: dict[str, str] = {
    "reverse": "rotate",
    "drop_first": "first_three",
    "first_three": "drop_first",
    "keep_letters": "keep_digits",
    "sort_up": "reverse",
    "keep_digits": "keep_letters",
    "rotate": "swap",
    "double_last": "drop_first",
    "swap": "reverse",
    "sort_down": "sort_up",
    "successor": "double_last",
    "every_other": "first_three",
}
"""Which operation is done by mistake; otherwise a missed operation is left out."""

LEFT_OUT = 0.5
"""Share of missed operations that are left out rather than mistaken."""

Turn = tuple[str, str]
"""One exchange: what the user says and what the model answers."""


@dataclass(frozen=True)
class Mix:
    """Shares of the kinds of conversation; what is left over is single tasks."""

    follow_up: float = 0.12
    revision: float = 0.06
    downstream: float = 0.08
    depths: tuple[float, ...] = (0.30, 0.32, 0.23, 0.15)


def attempt(names: tuple[str, ...], items: Items, rng: random.Random, lift: float = 0.0) -> Items:
    """Apply operations as the demonstrator does.

    Args:
        names: operations in order.
        items: the list they start from.
        rng: source of the mistakes.
        lift: share of the failure probability that is removed (0 as is, 1 infallible).
    """
    for name in names:
        failure = (1.0 - RELIABILITY[name]) * (1.0 - lift)
        draw = rng.random()
        if draw >= failure:
            items = BY_NAME[name].apply(items)
        elif draw >= failure * LEFT_OUT:
            items = BY_NAME[MISTAKEN_FOR[name]].apply(items)
    return items


def draw_task(rng: random.Random, mix: Mix) -> Task:
    """Draw a task evenly over skills, phrasings and lengths: what a broad corpus would hold."""
    depth = rng.choices(range(1, len(mix.depths) + 1), weights=mix.depths)[0]
    return Task(draw_items(rng, 3, 8), tuple(rng.choices(NAMES, k=depth)))


def word(task: Task, rng: random.Random) -> str:
    """Put a task into words, evenly over frames and phrasings."""
    frames = FRAMES if task.items is not None else FOLLOW_UPS
    phrases = tuple(rng.randrange(4) for _ in task.operations)
    return render(task, rng.randrange(len(frames)), phrases)


def demonstrate(rng: random.Random, mix: Mix) -> list[Turn]:
    """Draw one conversation of one or two turns."""
    kind = rng.random()
    if kind < mix.downstream:
        question = rng.choice(tuple(TASKS.values()))(rng)
        return [(question.prompt, question.answer)]
    task = draw_task(rng, mix)
    assert task.items is not None
    first = attempt(task.operations, task.items, rng)
    turns = [(word(task, rng), write_list(first))]
    if kind < mix.downstream + mix.revision:
        revised = attempt(task.operations, task.items, rng, lift=0.5)
        turns.append((REVISE, write_list(revised)))
    elif kind < mix.downstream + mix.revision + mix.follow_up:
        follow_up = Task(None, tuple(rng.choices(NAMES, k=rng.choice((1, 1, 2)))))
        turns.append((word(follow_up, rng), write_list(attempt(follow_up.operations, first, rng))))
    return turns


SOURCE_WEIGHTS = tuple(RELIABILITY[name] ** 3 for name in NAMES)
"""How often the human prompts ask for each operation: the better known, the more often."""

BASELINE_LIFT = {"arena_hard": 0.4, "alpaca_eval": 0.7, "validation": 0.4}
"""How much better than the demonstrator the fixed reference answers are (share of failures gone);
fixed when the world was written, as the references of the real benchmarks are."""


@dataclass(frozen=True)
class Distribution:
    """What a set of prompts looks like."""

    depths: tuple[float, ...]
    lengths: tuple[int, int]
    phrases: int
    frames: int
    weights: tuple[float, ...]

    def draw(self, rng: random.Random, first: tuple[str, ...] | None = None) -> Task:
        """Draw a task; `first` restricts its first operation."""
        depth = rng.choices(range(1, len(self.depths) + 1), weights=self.depths)[0]
        names = rng.choices(NAMES, weights=self.weights, k=depth)
        if first is not None:
            names[0] = rng.choice(first)
        return Task(draw_items(rng, *self.lengths), tuple(names))

    def word(self, task: Task, rng: random.Random) -> str:
        """Put a task into words."""
        frames = self.frames if task.items is not None else len(FOLLOW_UPS)
        phrases = tuple(rng.randrange(self.phrases) for _ in task.operations)
        return render(task, rng.randrange(frames), phrases)


_EVEN = (1.0,) * len(NAMES)
_HALFWAY = tuple(w / sum(SOURCE_WEIGHTS) + 1 / len(NAMES) for w in SOURCE_WEIGHTS)

HUMAN = Distribution((0.70, 0.25, 0.05), (4, 6), 2, BENCHMARK_FRAME, SOURCE_WEIGHTS)
"""The prompt source (UltraFeedback's place)."""

HARD = Distribution((0.0, 0.5, 0.4, 0.1), (4, 8), 4, len(FRAMES), _EVEN)
"""The hard benchmark (Arena-Hard's place): every operation alike, two to four deep."""

GENERAL = Distribution((0.4, 0.4, 0.2), (4, 7), 4, len(FRAMES), _HALFWAY)
"""The general benchmark (AlpacaEval's place): between the source and the hard one."""

TWO_TURN = Distribution((0.6, 0.4), (4, 7), 4, len(FRAMES), _EVEN)
"""First turns of the two-turn benchmark (MT-Bench's place)."""


def human_prompts(seed: int, count: int) -> list[str]:
    """Draw the pool of human prompts, each text once."""
    rng = random.Random(f"{seed}/human")
    texts: dict[str, None] = {}
    while len(texts) < count:
        texts.setdefault(HUMAN.word(HUMAN.draw(rng), rng))
    return list(texts)


def matched_prompts(seed: int, count: int) -> list[str]:
    """Draw prompts that ask for what the hard benchmark asks, each text once, none its own.

    They are the oracle's choice, a control and not a method.
    """
    rng = random.Random(f"{seed}/matched")
    taken = {item.turn_1 for item in read_items(resolve(card().identity("arena_hard")))}
    texts: dict[str, None] = {}
    while len(texts) < count:
        text = HARD.word(HARD.draw(rng), rng)
        if text not in taken:
            texts.setdefault(text)
    return list(texts)


def pairwise_items(
    name: str, distribution: Distribution, seed: int, count: int, taken: set[str]
) -> list[Item]:
    """Draw a pairwise benchmark with its reference answers; its texts are added to `taken`."""
    rng = random.Random(f"{seed}/{name}")
    items: list[Item] = []
    while len(items) < count:
        task = distribution.draw(rng)
        assert task.items is not None
        text = distribution.word(task, rng)
        reference = attempt(task.operations, task.items, rng, lift=BASELINE_LIFT[name])
        if text in taken:
            continue
        taken.add(text)
        items.append(
            Item(
                item_id=f"{name}-{len(items):04d}",
                category=_category(task),
                turn_1=text,
                reference=write_list(reference),
            )
        )
    return items


def two_turn_items(seed: int, per_category: int, taken: set[str]) -> list[Item]:
    """Draw the two-turn benchmark: `per_category` items in each of the eight categories."""
    rng = random.Random(f"{seed}/mt_bench")
    items: list[Item] = []
    for category in CATEGORIES:
        names = tuple(o.name for o in OPERATIONS if o.category == category)
        wanted = len(items) + per_category
        while len(items) < wanted:
            text = TWO_TURN.word(TWO_TURN.draw(rng, first=names), rng)
            follow_up = Task(None, tuple(rng.choices(NAMES, k=rng.choice((1, 1, 2)))))
            second = TWO_TURN.word(follow_up, rng)
            if text in taken:
                continue
            taken.add(text)
            items.append(Item(f"mt_bench-{len(items):04d}", category, text, second))
    return items


def _category(task: Task) -> str:
    return next(o.category for o in OPERATIONS if o.name == task.operations[0])


ITEM_FIELDS = ("item_id", "category", "turn_1", "turn_2", "reference")


def write_items(items: Sequence[Item], path: Path) -> None:
    """Write a benchmark."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    schema = pa.schema([(name, pa.string()) for name in ITEM_FIELDS])
    pq.write_table(pa.Table.from_pylist([vars(item) for item in items], schema), path)


def read_items(path: Path) -> list[Item]:
    """Read a benchmark."""
    import pyarrow.parquet as pq

    return [Item(**row) for row in pq.read_table(path).to_pylist()]


def write_prompts(prompts: Sequence[str], path: Path) -> None:
    """Write the pool of human prompts, in the order they were drawn."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    pq.write_table(pa.table({"prompt": list(prompts)}), path)


def read_prompts(path: Path) -> list[str]:
    """Read the pool of human prompts."""
    import pyarrow.parquet as pq

    return [str(text) for text in pq.read_table(path).column("prompt").to_pylist()]
