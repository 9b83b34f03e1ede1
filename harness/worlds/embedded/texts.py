"""What is known and asked about in the embedded world: names, topics and downstream questions.

The base policy learned from demonstrations by a fallible demonstrator. Operation
names are ranked from best to least known. The demonstrator understands a name with a probability
that falls with its rank, and otherwise takes it for one other operation, always the same for that
name. Learning one name says nothing about another. Demonstrations, human prompts and benchmarks
were drawn by `tools/build_micro.py`.

*Topics* are 24 groups of ten names that people use together. Names are grouped by rank, with noise,
so topics differ in how well the demonstrator knows them. Topic popularity follows Zipf's law in an
order given by the same ranks, with independent noise. So what people ask about and what is known
are correlated, but not closely.

*Downstream questions* stand in for the paper's table 9. Their six small types share the language's
items but none of its operations. They occur in the policy's demonstrations but in no prompt source,
so they show what training elsewhere does to other abilities. Three ask about lists, mostly longer
than the demonstrated ones. The other three are facts (sums, the larger digit, the earlier item),
all demonstrated, by a demonstrator that gets each right with its own probability, uniform from 0.2
to 0.95, and otherwise gives one fixed wrong answer.
"""

from __future__ import annotations

import functools
import hashlib
import json
import random
from collections.abc import Callable, Sequence
from pathlib import Path

from harness.worlds import DOWNSTREAM, Item, stage_io
from harness.worlds.embedded import files
from harness.worlds.embedded import language as lang
from harness.worlds.embedded.language import Items, Operation, Task

RANKED = tuple(random.Random("micro-3/ranks").sample(sorted(lang.MEANING), k=len(lang.MEANING)))
"""All names, from best to least known."""

BEST_KNOWN, LEAST_KNOWN = 0.95, 0.25

RELIABILITY: dict[str, float] = {
    name: BEST_KNOWN + (LEAST_KNOWN - BEST_KNOWN) * place / (len(RANKED) - 1)
    for place, name in enumerate(RANKED)
}
"""Probability that the demonstrator understands a name correctly."""


_misread = random.Random("micro-3/misread")
MISTAKEN_FOR: dict[str, Operation] = {
    name: _misread.choice([o for o in lang.OPERATIONS if o is not lang.MEANING[name]])
    for name in sorted(lang.MEANING)
}
"""The operation that a misunderstood name is taken for."""

TOPIC_SIZE = 10  # names per topic
RANK_NOISE = 30.0
"""Standard deviation, in ranks, of the noise when names are grouped into topics."""

POPULARITY_NOISE = 3.0
"""Standard deviation, in places, of the noise in the popularity order of topics."""


def _topics() -> tuple[tuple[str, ...], ...]:
    rng = random.Random("micro-4/topics")
    noisy = {name: place + rng.gauss(0, RANK_NOISE) for place, name in enumerate(RANKED)}
    names = sorted(RANKED, key=noisy.__getitem__)
    cut = [tuple(names[at : at + TOPIC_SIZE]) for at in range(0, len(names), TOPIC_SIZE)]
    places = {topic: place + rng.gauss(0, POPULARITY_NOISE) for place, topic in enumerate(cut)}
    return tuple(sorted(cut, key=places.__getitem__))


TOPICS = _topics()
"""The names of each topic, from the most to the least popular topic."""

TOPIC_OF: dict[str, int] = {name: at for at, topic in enumerate(TOPICS) for name in topic}
"""Index in `TOPICS` of each name's topic."""

POPULARITY = tuple(1 / place for place in range(1, len(TOPICS) + 1))
"""Unnormalized frequency with which people ask about each topic (Zipf's law)."""


def topic_of(task: Task) -> int:
    """Return the index of the topic of most of a task's names; ties go to the first name's."""
    own = [TOPIC_OF[name] for name in task.names]
    return max(own, key=own.count)


Exchange = tuple[str, str]
"""One exchange: the user's prompt and the model's answer."""

DEPTHS = (0.40, 0.32, 0.18, 0.10)
"""Shares of the demonstrated tasks with one operation, two, and so on."""


def attempt(names: tuple[str, ...], items: Items, rng: random.Random, lift: float = 0.0) -> Items:
    """Apply names to items as the demonstrator would; `lift`: share of failures removed."""
    for name in names:
        failed = rng.random() < (1.0 - RELIABILITY[name]) * (1.0 - lift)
        items = (MISTAKEN_FOR[name] if failed else lang.MEANING[name]).apply(items)
    return items


def draw_task(
    rng: random.Random, depths: Sequence[float] = DEPTHS, names: Sequence[str] = RANKED
) -> Task:
    """Draw a task uniformly over names and lengths, as in a broad corpus."""
    depth = rng.choices(range(1, len(depths) + 1), weights=depths)[0]
    return Task(lang.draw_items(rng, 3, 6), tuple(rng.choices(names, k=depth)))


def word(task: Task, rng: random.Random) -> str:
    frames = lang.FOLLOW_UPS if task.items is None else lang.FRAMES
    return lang.render(task, rng.randrange(len(frames)))


def contains(rng: random.Random, shortest: int = 3, longest: int = 6) -> Exchange:
    """Ask whether an item is in a list; with probability 0.5 it is drawn from the list."""
    items, probe = lang.draw_items(rng, shortest, longest), rng.choice(lang.ITEMS)
    if rng.random() < 0.5:
        probe = rng.choice(items)
    prompt = f"does {lang.write_list(items)} contain this : {probe}"
    return prompt, "yes" if probe in items else "no"


def count(rng: random.Random, shortest: int = 2, longest: int = 6) -> Exchange:
    """Ask how many items a list has (at most nine, because a number is one digit)."""
    items = lang.draw_items(rng, shortest, longest)
    return f"how many items has {lang.write_list(items)}", str(len(items))


def third(rng: random.Random, shortest: int = 3, longest: int = 6) -> Exchange:
    items = lang.draw_items(rng, shortest, longest)
    return f"which item is third in {lang.write_list(items)}", items[2]


def larger(rng: random.Random) -> Exchange:
    a, b = rng.sample(lang.DIGITS, 2)
    return f"which is larger : {a} or {b}", max(a, b)


def sum_of(rng: random.Random) -> Exchange:
    """Ask for a sum of two digits that is itself one digit."""
    a = rng.randrange(10)
    b = rng.randrange(10 - a)
    return f"how many make {a} plus {b}", str(a + b)


def before(rng: random.Random) -> Exchange:
    a, b = rng.sample(lang.ITEMS, 2)
    return f"which comes earlier : {a} or {b}", min(a, b, key=lang.ITEMS.index)


TASKS: dict[str, Callable[..., Exchange]] = {
    "musr_ta": contains,
    "tqa_gen": count,
    "wmdp": third,
    "gsm8k": sum_of,
    "gsm_plus": larger,
    "mmlu_pro": before,
}
"""A question generator for each column of table 9."""

# Demonstrated lists have at most six items, and the questions use longer ones. Counting is limited
# to nine, so it starts at five; lengths five and six were demonstrated on other lists.
QUESTIONS: dict[str, tuple[int, dict[str, int]]] = {
    "musr_ta": (200, {"shortest": 7, "longest": 12}),
    "tqa_gen": (200, {"shortest": 5, "longest": 9}),
    "wmdp": (200, {"shortest": 7, "longest": 12}),
    "gsm8k": (55, {}),  # there are no more sums of two digits up to 9
    "gsm_plus": (90, {}),  # nor more ordered pairs of digits
    "mmlu_pro": (200, {}),
}
"""The number of items of each task, and the lengths of their lists."""


@functools.cache
def downstream_items() -> tuple[Item, ...]:
    """Return the items task by task; the category is the task, the reference is the answer."""
    items: list[Item] = []
    for task, (wanted, lengths) in QUESTIONS.items():
        rng = random.Random(f"0/{DOWNSTREAM}/{task}")
        found: dict[str, str] = {}
        while len(found) < wanted:
            found.setdefault(*TASKS[task](rng, **lengths))
        items += [
            Item(f"{task}-{i:04d}", task, prompt, reference=answer)
            for i, (prompt, answer) in enumerate(found.items())
        ]
    return tuple(items)


@functools.cache
def downstream_identity() -> str:
    """Return the items' identity, by digest: code that generates other items has another one."""
    lines = (json.dumps([i.item_id, i.turn_1, i.reference]) for i in downstream_items())
    digest = hashlib.sha256("\n".join(lines).encode()).hexdigest()
    return f"{files.VERSION}/{DOWNSTREAM}@{digest[: files.DIGITS]}"


def read_items(path: Path) -> list[Item]:
    return [Item(**row) for row in stage_io.read_rows(path)]


def read_prompts(path: Path) -> list[str]:
    return [str(row["prompt"]) for row in stage_io.read_rows(path)]
