"""What is said in the embedded world: demonstrations, human prompts and benchmarks.

*Demonstrations* are conversations by a fallible demonstrator, from which the base policy learns.
Names of operations have a rank, from the best known to the least. The demonstrator understands a
name with a probability that falls with its rank, and otherwise takes it for one other operation,
always the same for a name. So the policy that imitates it is often right where common names are
used, seldom where rare ones are, and its best of several answers is much better than its average
one; what it learns of one name says nothing of another.

*Human prompts* are narrower and easier than the benchmarks, as UltraFeedback is against Arena-Hard:
mostly single operations on short lists, and common names much more often than rare ones (Zipf's
law, as words have it). One x of them mentions some 150 names, six x nearly all. *Benchmarks* are
written down without reference to the creator: they use all names alike (the general one: halfway
between people and that) and a sentence pattern that people do not. All are kept as Parquet, one
row an item.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from harness.worlds.embedded.downstream import demonstrated
from harness.worlds.embedded.language import (
    BENCHMARK_FRAME,
    CATEGORIES,
    FOLLOW_UPS,
    FRAMES,
    MEANING,
    OPERATIONS,
    REVISE,
    Items,
    Operation,
    Task,
    draw_items,
    render,
    write_list,
)
from harness.worlds.protocol import Item

RANKED = tuple(random.Random("micro-3/ranks").sample(sorted(MEANING), k=len(MEANING)))
"""All names, from the best known and most used to the least."""

BEST_KNOWN, LEAST_KNOWN = 0.95, 0.25

RELIABILITY: dict[str, float] = {
    name: BEST_KNOWN + (LEAST_KNOWN - BEST_KNOWN) * place / (len(RANKED) - 1)
    for place, name in enumerate(RANKED)
}
"""Probability that the demonstrator takes a name for what it means."""


def _misreadings() -> dict[str, Operation]:
    rng = random.Random("micro-3/misread")
    return {n: rng.choice([o for o in OPERATIONS if o is not MEANING[n]]) for n in sorted(MEANING)}


MISTAKEN_FOR = _misreadings()
"""The operation that a name is taken for otherwise."""

Turn = tuple[str, str]
"""One exchange: what the user says and what the model answers."""


@dataclass(frozen=True)
class Mix:
    """What is demonstrated.

    Attributes:
        follow_up: Share of conversations with a second task on the first answer.
        revision: Share with a request to improve the first answer.
        downstream: Share of questions of other kinds; what is left over is single tasks.
        depths: Shares of tasks of one operation, of two, and so on.
        names: Names that tasks use, all alike.
        lift: Share of the demonstrator's failures that is removed (0 as is, 1 infallible).
    """

    follow_up: float = 0.10
    revision: float = 0.05
    downstream: float = 0.08
    depths: tuple[float, ...] = (0.40, 0.32, 0.18, 0.10)
    names: tuple[str, ...] = RANKED
    lift: float = 0.0


REVISION_LIFT = 0.5
"""Share of the demonstrator's failures that is gone when it is asked to improve its answer."""


def attempt(names: tuple[str, ...], items: Items, rng: random.Random, lift: float = 0.0) -> Items:
    """Do what names ask for as the demonstrator does.

    `lift` is the share of the failure probability that is removed.
    """
    for name in names:
        failed = rng.random() < (1.0 - RELIABILITY[name]) * (1.0 - lift)
        items = (MISTAKEN_FOR[name] if failed else MEANING[name]).apply(items)
    return items


def draw_task(rng: random.Random, mix: Mix) -> Task:
    """Draw a task evenly over names and lengths: what a broad corpus would hold."""
    depth = rng.choices(range(1, len(mix.depths) + 1), weights=mix.depths)[0]
    return Task(draw_items(rng, 3, 6), tuple(rng.choices(mix.names, k=depth)))


def word(task: Task, rng: random.Random) -> str:
    """Put a task into words, evenly over frames."""
    return render(task, rng.randrange(len(FRAMES if task.items is not None else FOLLOW_UPS)))


def demonstrate(rng: random.Random, mix: Mix) -> list[Turn]:
    """Draw one conversation of one or two turns."""
    kind = rng.random()
    if kind < mix.downstream:
        question = demonstrated(rng)
        return [(question.prompt, question.answer)]
    task = draw_task(rng, mix)
    assert task.items is not None
    first = attempt(task.names, task.items, rng, mix.lift)
    turns = [(word(task, rng), write_list(first))]
    if kind < mix.downstream + mix.revision:
        revised = attempt(task.names, task.items, rng, max(mix.lift, REVISION_LIFT))
        turns.append((REVISE, write_list(revised)))
    elif kind < mix.downstream + mix.revision + mix.follow_up:
        follow_up = Task(None, tuple(rng.choices(mix.names, k=rng.choice((1, 1, 2)))))
        second = attempt(follow_up.names, first, rng, mix.lift)
        turns.append((word(follow_up, rng), write_list(second)))
    return turns


BASELINE_LIFT = {"arena_hard": 0.4, "alpaca_eval": 0.7, "validation": 0.4}
"""How much better than the demonstrator the fixed reference answers are (share of failures gone);
fixed when the world was written, as the references of the real benchmarks are."""


@dataclass(frozen=True)
class Distribution:
    """What a set of prompts looks like.

    Attributes:
        depths: Shares of tasks of one operation, of two, and so on.
        lengths: Shortest and longest list.
        frames: The first so many sentence patterns are used.
        weights: How often each name is used, in the order of `RANKED`.
    """

    depths: tuple[float, ...]
    lengths: tuple[int, int]
    frames: int
    weights: tuple[float, ...]

    def draw(self, rng: random.Random, first: tuple[str, ...] | None = None) -> Task:
        """Draw a task; `first` restricts the name of its first operation."""
        depth = rng.choices(range(1, len(self.depths) + 1), weights=self.depths)[0]
        names = rng.choices(RANKED, weights=self.weights, k=depth)
        if first is not None:
            names[0] = rng.choice(first)
        return Task(draw_items(rng, *self.lengths), tuple(names))

    def word(self, task: Task, rng: random.Random) -> str:
        """Put a task into words."""
        frames = self.frames if task.items is not None else len(FOLLOW_UPS)
        return render(task, rng.randrange(frames))


_ZIPF = tuple(1 / rank for rank in range(1, len(RANKED) + 1))
_EVEN = (1.0,) * len(RANKED)
_HALFWAY = tuple(w / sum(_ZIPF) + 1 / len(RANKED) for w in _ZIPF)

HUMAN = Distribution((0.6, 0.3, 0.1), (4, 5), BENCHMARK_FRAME, _ZIPF)
"""The prompt source (UltraFeedback's place)."""

MATCHED = Distribution((0.6, 0.3, 0.1), (4, 5), BENCHMARK_FRAME, _EVEN)
"""Prompts of the form of human ones with the hard benchmark's names: the positive control."""

HARD = Distribution((0.4, 0.4, 0.2), (4, 6), len(FRAMES), _EVEN)
"""The hard benchmark (Arena-Hard's place): every name alike, and deeper."""

GENERAL = Distribution((0.5, 0.35, 0.15), (4, 6), len(FRAMES), _HALFWAY)
"""The general benchmark (AlpacaEval's place): between the source and the hard one."""

TWO_TURN = Distribution((0.6, 0.4), (4, 6), len(FRAMES), _EVEN)
"""First turns of the two-turn benchmark (MT-Bench's place)."""


def draw_prompts(
    name: str, distribution: Distribution, seed: int, count: int, taken: Sequence[str] = ()
) -> list[str]:
    """Draw a pool of prompts, each text once and none that is taken."""
    rng = random.Random(f"{seed}/{name}")
    others = set(taken)
    texts: dict[str, None] = {}
    while len(texts) < count:
        text = distribution.word(distribution.draw(rng), rng)
        if text not in others:
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
        reference = attempt(task.names, task.items, rng, lift=BASELINE_LIFT[name])
        if text in taken:
            continue
        taken.add(text)
        items.append(
            Item(
                item_id=f"{name}-{len(items):04d}",
                category=task.operations[0].category,
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
        names = tuple(name for name in RANKED if MEANING[name].category == category)
        wanted = len(items) + per_category
        while len(items) < wanted:
            text = TWO_TURN.word(TWO_TURN.draw(rng, first=names), rng)
            follow_up = Task(None, tuple(rng.choices(RANKED, k=rng.choice((1, 1, 2)))))
            second = TWO_TURN.word(follow_up, rng)
            if text in taken:
                continue
            taken.add(text)
            items.append(Item(f"mt_bench-{len(items):04d}", category, text, second))
    return items


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
