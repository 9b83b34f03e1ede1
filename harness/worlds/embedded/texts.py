"""The texts of the embedded world: demonstrations, human prompts and benchmarks.

*Demonstrations* are conversations by a fallible demonstrator, from which the base policy learns.
Operation names are ranked from best to least known. The demonstrator understands a name with a
probability that falls with its rank, and otherwise takes it for one other operation, always the
same for that name. Learning one name says nothing about another.

*Topics* are 24 groups of ten names that people use together. Names are grouped by rank, with noise,
so topics differ in how well the demonstrator knows them. Topic popularity follows Zipf's law in an
order given by the same ranks, with independent noise. So what people ask about and what is known
are correlated, but not closely.

*Human prompts* are narrower and easier than the benchmarks, as UltraFeedback is compared with
Arena-Hard: mostly single operations on short lists, each prompt within one topic. *Benchmarks* are
independent of topics and the creator: they use all names equally (the general one is halfway
between people and uniform) and a sentence pattern that people do not.

*Off-target prompts* look like human ones but cover only the three best-known topics: a control with
prompts that can hardly help on a benchmark about all 24.

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
from dataclasses import dataclass, replace
from pathlib import Path

from harness.worlds import Item, stage_io
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


def best_known_topics(count: int) -> tuple[int, ...]:
    """Return the indices in `TOPICS` of the topics the demonstrator knows best."""
    known = [sum(RELIABILITY[name] for name in topic) for topic in TOPICS]
    return tuple(sorted(range(len(TOPICS)), key=lambda at: -known[at])[:count])


Turn = tuple[str, str]
"""One exchange: the user's prompt and the model's answer."""


@dataclass(frozen=True)
class Mix:
    follow_up: float = 0.10  # share of conversations with a second task on the first answer
    revision: float = 0.05  # share with a request to improve the first answer
    downstream: float = 0.08  # share of downstream questions; the rest are single tasks
    depths: tuple[float, ...] = (0.40, 0.32, 0.18, 0.10)
    """Shares of tasks with one operation, two, and so on."""
    names: tuple[str, ...] = RANKED  # names used in tasks, drawn uniformly
    lift: float = 0.0
    """Share of the demonstrator's failures removed (0: none, 1: infallible)."""


REVISION_LIFT = 0.5
"""Share of the demonstrator's failures removed when it is asked to improve its answer."""


def attempt(names: tuple[str, ...], items: Items, rng: random.Random, lift: float = 0.0) -> Items:
    """Apply names to items as the demonstrator would; `lift`: share of failures removed."""
    for name in names:
        failed = rng.random() < (1.0 - RELIABILITY[name]) * (1.0 - lift)
        items = (MISTAKEN_FOR[name] if failed else lang.MEANING[name]).apply(items)
    return items


def draw_task(rng: random.Random, mix: Mix) -> Task:
    """Draw a task uniformly over names and lengths, as in a broad corpus."""
    depth = rng.choices(range(1, len(mix.depths) + 1), weights=mix.depths)[0]
    return Task(lang.draw_items(rng, 3, 6), tuple(rng.choices(mix.names, k=depth)))


def word(task: Task, rng: random.Random) -> str:
    """Render a task in a uniformly drawn frame."""
    return lang.render(
        task, rng.randrange(len(lang.FRAMES if task.items is not None else lang.FOLLOW_UPS))
    )


def demonstrate(rng: random.Random, mix: Mix) -> list[Turn]:
    """Draw one conversation of one or two turns."""
    kind = rng.random()
    if kind < mix.downstream:
        return [demonstrated_question(rng)]
    task = draw_task(rng, mix)
    assert task.items is not None
    first = attempt(task.names, task.items, rng, mix.lift)
    turns = [(word(task, rng), lang.write_list(first))]
    if kind < mix.downstream + mix.revision:
        revised = attempt(task.names, task.items, rng, max(mix.lift, REVISION_LIFT))
        turns.append((lang.REVISE, lang.write_list(revised)))
    elif kind < mix.downstream + mix.revision + mix.follow_up:
        follow_up = Task(None, tuple(rng.choices(mix.names, k=rng.choice((1, 1, 2)))))
        second = attempt(follow_up.names, first, rng, mix.lift)
        turns.append((word(follow_up, rng), lang.write_list(second)))
    return turns


BASELINE_LIFT = {"arena_hard": 0.4, "alpaca_eval": 0.7, "validation": 0.4}
"""Share of the demonstrator's failures removed in the reference answers, which are fixed when the
world is built, as the real benchmarks' references are."""


@dataclass(frozen=True)
class Distribution:
    """A distribution over prompts."""

    depths: tuple[float, ...]  # shares of tasks with one operation, two, and so on
    lengths: tuple[int, int]  # shortest and longest list
    frames: int  # number of sentence patterns used, from the first
    weights: tuple[float, ...]
    """Weight of each name, in the order of `RANKED`, or if `topical` of each of `TOPICS`."""
    topical: bool = False  # whether a prompt's names are distinct and uniform within one topic

    def draw(self, rng: random.Random, first: tuple[str, ...] | None = None) -> Task:
        """Draw a task; `first` restricts the name of its first operation."""
        depth = rng.choices(range(1, len(self.depths) + 1), weights=self.depths)[0]
        if self.topical:
            names = rng.sample(rng.choices(TOPICS, weights=self.weights)[0], k=depth)
        else:
            names = rng.choices(RANKED, weights=self.weights, k=depth)
        if first is not None:
            names[0] = rng.choice(first)
        return Task(lang.draw_items(rng, *self.lengths), tuple(names))

    def word(self, task: Task, rng: random.Random) -> str:
        frames = self.frames if task.items is not None else len(lang.FOLLOW_UPS)
        return lang.render(task, rng.randrange(frames))


_EVEN = (1.0,) * len(RANKED)
_PEOPLE = tuple(POPULARITY[TOPIC_OF[name]] / sum(POPULARITY) / TOPIC_SIZE for name in RANKED)
_HALFWAY = tuple(w + 1 / len(RANKED) for w in _PEOPLE)

HUMAN = Distribution((0.6, 0.3, 0.1), (4, 5), lang.BENCHMARK_FRAME, POPULARITY, topical=True)
"""The prompt source (stands in for UltraFeedback)."""

_BEST_KNOWN = best_known_topics(3)
OFF_TARGET = replace(HUMAN, weights=tuple(float(at in _BEST_KNOWN) for at in range(len(TOPICS))))
"""Prompts like human ones, on the three best-known topics: a control."""

MATCHED = Distribution((0.6, 0.3, 0.1), (4, 5), lang.BENCHMARK_FRAME, _EVEN)
"""Prompts like human ones, with the hard benchmark's names: the positive control."""

HARD = Distribution((0.4, 0.4, 0.2), (4, 6), len(lang.FRAMES), _EVEN)
"""The hard benchmark (stands in for Arena-Hard): uniform over names, and deeper."""

GENERAL = Distribution((0.5, 0.35, 0.15), (4, 6), len(lang.FRAMES), _HALFWAY)
"""The general benchmark (stands in for AlpacaEval): between the source and the hard one."""

TWO_TURN = Distribution((0.6, 0.4), (4, 6), len(lang.FRAMES), _EVEN)
"""First turns of the two-turn benchmark (stands in for MT-Bench)."""


def draw_prompts(
    name: str, distribution: Distribution, seed: int, count: int, taken: Sequence[str] = ()
) -> list[str]:
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
        answer = lang.write_list(attempt(task.names, task.items, rng, lift=BASELINE_LIFT[name]))
        if text not in taken:
            taken.add(text)
            category = task.operations[0].category
            items.append(Item(f"{name}-{len(items):04d}", category, text, reference=answer))
    return items


def two_turn_items(seed: int, per_category: int, taken: set[str]) -> list[Item]:
    """Draw the two-turn benchmark: `per_category` items in each of the eight categories."""
    rng = random.Random(f"{seed}/mt_bench")
    items: list[Item] = []
    for category in lang.CATEGORIES:
        names = tuple(name for name in RANKED if lang.MEANING[name].category == category)
        wanted = len(items) + per_category
        while len(items) < wanted:
            text = TWO_TURN.word(TWO_TURN.draw(rng, first=names), rng)
            follow_up = Task(None, tuple(rng.choices(RANKED, k=rng.choice((1, 1, 2)))))
            second = TWO_TURN.word(follow_up, rng)
            if text not in taken:
                taken.add(text)
                items.append(Item(f"mt_bench-{len(items):04d}", category, text, second))
    return items


def contains(rng: random.Random, shortest: int = 3, longest: int = 6) -> Turn:
    """Ask whether an item is in a list; with probability 0.5 it is drawn from the list."""
    items, probe = lang.draw_items(rng, shortest, longest), rng.choice(lang.ITEMS)
    if rng.random() < 0.5:
        probe = rng.choice(items)
    prompt = f"does {lang.write_list(items)} contain this : {probe}"
    return prompt, "yes" if probe in items else "no"


def count(rng: random.Random, shortest: int = 2, longest: int = 6) -> Turn:
    """Ask how many items a list has (at most nine, because a number is one digit)."""
    items = lang.draw_items(rng, shortest, longest)
    return f"how many items has {lang.write_list(items)}", str(len(items))


def third(rng: random.Random, shortest: int = 3, longest: int = 6) -> Turn:
    items = lang.draw_items(rng, shortest, longest)
    return f"which item is third in {lang.write_list(items)}", items[2]


def larger(rng: random.Random) -> Turn:
    a, b = rng.sample(lang.DIGITS, 2)
    return f"which is larger : {a} or {b}", max(a, b)


def sum_of(rng: random.Random) -> Turn:
    """Ask for a sum of two digits that is itself one digit."""
    a = rng.randrange(10)
    b = rng.randrange(10 - a)
    return f"how many make {a} plus {b}", str(a + b)


def before(rng: random.Random) -> Turn:
    a, b = rng.sample(lang.ITEMS, 2)
    return f"which comes earlier : {a} or {b}", min(a, b, key=lang.ITEMS.index)


def told(question: Turn, rng: random.Random) -> Turn:
    """Return a fact as the demonstrator tells it: sometimes with its one fixed wrong answer."""
    prompt, answer = question
    belief = random.Random(f"micro-3/belief/{prompt}")
    right = belief.uniform(0.2, 0.95)
    said = prompt.partition(" : ")[2].split(" or ")
    others = said if len(said) == 2 else lang.DIGITS
    wrong = belief.choice([other for other in others if other != answer])
    return question if rng.random() < right else (prompt, wrong)


TASKS: dict[str, Callable[[random.Random], Turn]] = {
    "musr_ta": contains,
    "tqa_gen": count,
    "wmdp": third,
    "gsm8k": sum_of,
    "gsm_plus": larger,
    "mmlu_pro": before,
}
"""A question generator for each column of table 9."""

FACTS = ("gsm8k", "gsm_plus", "mmlu_pro")  # tasks whose questions are facts


def demonstrated_question(rng: random.Random) -> Turn:
    task = rng.choice(tuple(TASKS))
    question = TASKS[task](rng)
    return told(question, rng) if task in FACTS else question


DOWNSTREAM = "downstream"  # the benchmark's name in profiles
ITEMS_OF_TASKS = {
    "musr_ta": 200,
    "tqa_gen": 200,
    "wmdp": 200,
    "gsm8k": 55,
    "gsm_plus": 90,
    "mmlu_pro": 200,
}
"""Items per task; there are only 55 sums of two digits up to 9 and 90 ordered pairs of digits."""

# Demonstrated lists have at most six items, and the questions use longer ones. Counting is limited
# to nine, so it starts at five; lengths five and six were demonstrated on other lists.
DRAWS = TASKS | {
    "musr_ta": functools.partial(contains, shortest=7, longest=12),
    "wmdp": functools.partial(third, shortest=7, longest=12),
    "tqa_gen": functools.partial(count, shortest=5, longest=9),
}
"""How the items of each task are drawn."""


@functools.cache
def downstream_items() -> tuple[Item, ...]:
    """Return the items task by task; the category is the task, the reference is the answer."""
    items: list[Item] = []
    for task, wanted in ITEMS_OF_TASKS.items():
        rng = random.Random(f"0/{DOWNSTREAM}/{task}")
        found: dict[str, str] = {}
        while len(found) < wanted:
            found.setdefault(*DRAWS[task](rng))
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


def write_items(items: Sequence[Item], path: Path) -> None:
    schema = stage_io.schema_of("item_id", "category", "turn_1", "turn_2", "reference")
    stage_io.write_rows(path, [vars(item) for item in items], schema)


def read_items(path: Path) -> list[Item]:
    return [Item(**row) for row in stage_io.read_rows(path)]


def write_prompts(prompts: Sequence[str], path: Path) -> None:
    stage_io.write_rows(path, [{"prompt": text} for text in prompts])


def read_prompts(path: Path) -> list[str]:
    return [str(row["prompt"]) for row in stage_io.read_rows(path)]
