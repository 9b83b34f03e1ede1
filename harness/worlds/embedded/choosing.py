"""The oracle's choice of prompts: a control of the instrument, no method.

It asks how much a world lets anybody gain by choosing. What a policy can do is measured first, name
by name: x is the share of its answers to single operations under a name that are wholly right. A
prompt whose answers are right with probability x gives a pair of a right and a wrong answer out of
n unless all n are alike, and there is 1 - x left to learn. So the teachability of a name is

    t = (1 - x) (1 - x^n - (1 - x)^n)

*Best* covers names greedily: each prompt in turn is the one whose names not yet covered add most
teachability, divided by the root of how many names it has (a deep prompt covers more, and is
answered rightly less often); when nothing is left to add, covering begins anew. *Worst* takes the
prompts of the topics that can teach least: what the policy can do already. *Shuffled*, the oracle
looks at the prompts in one order and chooses in another.

Source: ours; eva's own signal is in `harness.eva.informativeness`.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import cast

import numpy as np

from harness.eva.informativeness import selected_count
from harness.registry.recipe import Choice
from harness.runtime.stage import StageContext
from harness.worlds.embedded import language as lang
from harness.worlds.embedded import texts
from harness.worlds.embedded.language import Task
from harness.worlds.stage_io import (
    REAL,
    SELECTED_SCHEMA,
    Result,
    read_prompts,
    read_rows,
    schema_of,
    writes,
)

PROBE_SCHEMA = schema_of("name", ("right", REAL))
"""Columns of `names.parquet`: the share of wholly right answers, from 0 to 1."""

PER_NAME = 4
"""Prompts asked about each name. The answers cost what 2.4 x of rollouts cost at the profile
`micro`; no row of eva pays for them."""

Right = Mapping[str, float]
"""The share of a policy's answers that are wholly right, by name."""


def probe_prompts() -> list[str]:
    """Return single operations as people put them, `PER_NAME` for each name in order of rank."""
    rng = random.Random("0/probe")
    return [
        lang.render(Task(lang.draw_items(rng, 4, 5), (name,)), rng.randrange(lang.BENCHMARK_FRAME))
        for name in texts.RANKED
        for _ in range(PER_NAME)
    ]


@writes("names", PROBE_SCHEMA)
def probe_stage(ctx: StageContext) -> Result:
    from harness.worlds.lookup import answering

    prompts, n = probe_prompts(), cast(int, ctx.settings["n"])
    with answering(ctx) as ask:
        answers = ask([[{"role": "user", "content": text}] for text in prompts], n=n, seed=ctx.seed)
    right = right_by_name(prompts, [[answer.text for answer in own] for own in answers])
    rows = [{"name": name, "right": share} for name, share in right.items()]
    return rows, {"right": float(np.mean(list(right.values())))}


def right_by_name(prompts: Sequence[str], answers: Sequence[Sequence[str]]) -> dict[str, float]:
    """Return the share of wholly right answers to the prompts of `probe_prompts`, by name."""
    right = [
        [lang.score(prompt, text) == 1.0 for text in own]
        for prompt, own in zip(prompts, answers, strict=True)
    ]
    shares = np.array(right).reshape(len(texts.RANKED), -1).mean(axis=1).tolist()
    return dict(zip(texts.RANKED, shares, strict=True))


def read_right(folder: Path) -> Right:
    return {row["name"]: row["right"] for row in read_rows(folder / "names.parquet")}


def teachability(right: float, n: int = 6) -> float:
    """Return what n answers to a name can teach, from its share of right ones; see the module."""
    return (1.0 - right) * (1.0 - right**n - (1.0 - right) ** n)


@writes("selected", SELECTED_SCHEMA)
def choose_stage(ctx: StageContext) -> Result:
    """Choose prompts as the oracle does, in the order chosen.

    A prompt's `informativeness` is the mean teachability of its names.
    """
    prompts = read_prompts(ctx.inputs["prompts"])
    taught = taught_by_name(read_right(ctx.inputs["probe"]))
    names = [names_of(row["prompt"]) for row in prompts]
    count = selected_count(len(prompts), cast(float, ctx.settings["fraction"]))
    rng = np.random.default_rng(ctx.seed)
    # Prompts come in no order that means anything; equal ones are not to be taken as they come.
    seen = rng.permutation(len(prompts))
    shown = [names[i] for i in seen]
    chosen = [int(seen[i]) for i in choose(shown, taught, count, ctx.settings["oracle"])]
    if ctx.settings.get("shuffled"):
        chosen = [int(i) for i in rng.permutation(len(prompts))[chosen]]
    rows = [
        {
            **prompts[at],
            "informativeness": mean_taught(names[at], taught),
            "weight": 1.0 / count,
            "draw": draw,
        }
        for draw, at in enumerate(chosen)
    ]
    return rows, {
        "prompts": len(prompts),
        "selected": count,
        "teachability": float(np.mean([row["informativeness"] for row in rows])),
        "teachability_of_all": float(np.mean([mean_taught(own, taught) for own in names])),
        "names": len({name for at in chosen for name in names[at]}),
    }


def taught_by_name(right: Right) -> dict[str, float]:
    return {name: teachability(x) for name, x in right.items()}


def names_of(prompt: str) -> tuple[str, ...]:
    """Return the names in a prompt of the embedded language; none where it cannot be read."""
    task = lang.parse(prompt)
    return () if task is None else task.names


def mean_taught(names: Sequence[str], taught: Mapping[str, float]) -> float:
    return sum(taught[name] for name in names) / max(1, len(names))


def choose(
    prompts: Sequence[Sequence[str]], taught: Mapping[str, float], count: int, choice: object
) -> list[int]:
    """Choose prompts by their names; return their positions in the order chosen."""
    return _cover(prompts, taught, count) if choice == "best" else _known(prompts, taught, count)


def _cover(prompts: Sequence[Sequence[str]], taught: Mapping[str, float], count: int) -> list[int]:
    left = dict.fromkeys(range(len(prompts)))
    chosen: list[int] = []
    covered: set[str] = set()

    def gain(at: int) -> float:
        new = set(prompts[at]) - covered
        return float(sum(taught[name] for name in new) / max(1, len(prompts[at])) ** 0.5)

    while len(chosen) < count:
        best = max(left, key=gain)
        if gain(best) == 0.0 and covered:
            covered.clear()
            continue
        chosen.append(best)
        covered.update(prompts[best])
        del left[best]
    return chosen


def _known(prompts: Sequence[Sequence[str]], taught: Mapping[str, float], count: int) -> list[int]:
    of_topic = [sum(taught[name] for name in topic) / len(topic) for topic in texts.TOPICS]

    def rank(at: int) -> tuple[float, float]:
        own = prompts[at]
        topics = [of_topic[texts.TOPIC_OF[name]] for name in own]
        return sum(topics) / max(1, len(own)), mean_taught(own, taught)

    return sorted(range(len(prompts)), key=rank)[:count]


class OracleValue:
    """What the oracle thinks of prompts in an online run, by what the policy could do at first.

    A name that was trained on since is worth less: its teachability is divided by one more than how
    often that was. `shuffled`, the values of prompts that are valued together are permuted.
    """

    def __init__(self, right: Right, choice: Choice, *, shuffled: bool, seed: int) -> None:
        self._taught = taught_by_name(right)
        self._sign = 1.0 if choice == "best" else -1.0
        self._rng = np.random.default_rng([seed, 3]) if shuffled else None
        self._trained: dict[str, int] = {}

    def train(self, prompts: Sequence[str]) -> None:
        for prompt in prompts:
            for name in names_of(prompt):
                self._trained[name] = self._trained.get(name, 0) + 1

    def __call__(self, prompts: Sequence[str]) -> np.ndarray:
        now = {name: t / (1 + self._trained.get(name, 0)) for name, t in self._taught.items()}
        values = self._sign * np.array([mean_taught(names_of(text), now) for text in prompts])
        return values if self._rng is None else self._rng.permutation(values)
