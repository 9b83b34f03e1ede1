"""Oracle prompt selection: a control for the test bed, not a method.

It bounds how much anyone can gain in a world by choosing prompts. First the policy is measured name
by name: x is the share of exactly correct answers to single operations under that name. A prompt
answered correctly with probability x yields a pair of one correct and one wrong answer out of n
unless all n agree, and 1 - x is left to learn. So the teachability of a name is

    t = (1 - x) (1 - x^n - (1 - x)^n)

*Best* covers names greedily: it takes the prompt whose uncovered names add the most teachability,
divided by the square root of its number of names (a deep prompt is answered correctly less often);
when nothing is left to add, it starts over. *Worst* takes prompts from the least teachable topics.
*Shuffled* ranks the prompts in one order and picks from another. All are ours.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from pathlib import Path

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
"""Columns of `names.parquet`: the share of exactly correct answers, from 0 to 1."""

PER_NAME = 4
"""Probe prompts per name. The answers cost as much as rollouts on 2.4x prompts in the profile
`micro`; no row of eva pays for them."""

Right = Mapping[str, float]
"""The share of a policy's answers that are exactly correct, by name."""


def probe_prompts() -> list[str]:
    """Return single operations in people's frames, `PER_NAME` for each name in order of rank."""
    rng = random.Random("0/probe")
    return [
        lang.render(Task(lang.draw_items(rng, 4, 5), (name,)), rng.randrange(lang.BENCHMARK_FRAME))
        for name in texts.RANKED
        for _ in range(PER_NAME)
    ]


@writes("names", PROBE_SCHEMA)
def probe_stage(ctx: StageContext) -> Result:
    from harness.worlds.lookup import answering

    prompts, n = probe_prompts(), ctx.settings["n"]
    with answering(ctx) as ask:
        answers = ask([[{"role": "user", "content": text}] for text in prompts], n=n, seed=ctx.seed)
    right = right_by_name(prompts, [[answer.text for answer in own] for own in answers])
    rows = [{"name": name, "right": share} for name, share in right.items()]
    return rows, {"right": float(np.mean(list(right.values())))}


def right_by_name(prompts: Sequence[str], answers: Sequence[Sequence[str]]) -> dict[str, float]:
    """Return the share of exactly correct answers to the `probe_prompts`, by name."""
    right = [
        [lang.score(prompt, text) == 1.0 for text in own]
        for prompt, own in zip(prompts, answers, strict=True)
    ]
    shares = np.array(right).reshape(len(texts.RANKED), -1).mean(axis=1).tolist()
    return dict(zip(texts.RANKED, shares, strict=True))


def read_right(folder: Path) -> Right:
    return {row["name"]: row["right"] for row in read_rows(folder / "names.parquet")}


def teachability(right: float, n: int = 6) -> float:
    """Return a name's teachability with n answers (see the module docstring)."""
    return (1.0 - right) * (1.0 - right**n - (1.0 - right) ** n)


@writes("selected", SELECTED_SCHEMA)
def choose_stage(ctx: StageContext) -> Result:
    """Select prompts by the oracle; `informativeness` is the mean teachability of the names."""
    prompts = read_prompts(ctx.inputs["prompts"])
    taught = taught_by_name(read_right(ctx.inputs["probe"]))
    names = [names_of(row["prompt"]) for row in prompts]
    count = selected_count(len(prompts), ctx.settings["fraction"])
    rng = np.random.default_rng(ctx.seed)
    # Break ties at random rather than by the order of the prompts.
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
    """Return the names in a prompt of the embedded language, or none if it cannot be parsed."""
    task = lang.parse(prompt)
    return () if task is None else task.names


def mean_taught(names: Sequence[str], taught: Mapping[str, float]) -> float:
    return sum(taught[name] for name in names) / max(1, len(names))


def choose(
    prompts: Sequence[Sequence[str]], taught: Mapping[str, float], count: int, choice: object
) -> list[int]:
    """Return the positions of the selected prompts, given their names, in the order chosen."""
    return _cover(prompts, taught, count) if choice == "best" else _worst(prompts, taught, count)


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


def _worst(prompts: Sequence[Sequence[str]], taught: Mapping[str, float], count: int) -> list[int]:
    of_topic = [sum(taught[name] for name in topic) / len(topic) for topic in texts.TOPICS]

    def rank(at: int) -> tuple[float, float]:
        own = prompts[at]
        topics = [of_topic[texts.TOPIC_OF[name]] for name in own]
        return sum(topics) / max(1, len(own)), mean_taught(own, taught)

    return sorted(range(len(prompts)), key=rank)[:count]


class OracleValue:
    """The oracle's value of prompts online, from what the policy can do when a segment starts."""

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
