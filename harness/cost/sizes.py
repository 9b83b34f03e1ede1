"""How many prompts a stage works on, read off the graph.

Numbers are what a run makes when nothing is dropped: every rewrite usable, no tie left out. What is
drawn from a mixture of human and evolved prompts has the mixture's shares.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

from harness.eva.mixing import evolved_count
from harness.eva.selection import selected_count
from harness.runtime.stage import Stage

FIRST_INPUT = {
    "generate": "prompts",
    "annotate": "completions",
    "evolve": "selected",
    "rewrite": "pairs",
    "train": "pairs",
    "rate": "prompts",
    "topics": "prompts",
}
"""The input whose prompts a kind of stage works on, one by one."""


@dataclass(frozen=True)
class Prompts:
    """So many prompts of people, and so many that a creator wrote."""

    human: int
    evolved: int = 0

    @property
    def total(self) -> int:
        """All of them."""
        return self.human + self.evolved

    def drawn(self, count: int) -> Prompts:
        """Return so many of them, in the same shares."""
        evolved = round(count * self.evolved / self.total) if self.total else 0
        return Prompts(count - evolved, evolved)


class Sizes:
    """The prompts of stages, each counted once."""

    def __init__(self) -> None:
        """Know nothing yet."""
        self._known: dict[str, Prompts] = {}

    def of(self, stage: Stage) -> Prompts:
        """Return the prompts that a stage yields, or works on where it yields none.

        Raises:
            KeyError: it is of a kind that has no prompts.
        """
        found = self._known.get(stage.fingerprint)
        if found is None:
            found = self._known[stage.fingerprint] = self._count(stage)
        return found

    def _count(self, stage: Stage) -> Prompts:
        s, inputs = stage.settings, stage.inputs
        if stage.kind in FIRST_INPUT and stage.kind != "evolve":
            return self.of(inputs[FIRST_INPUT[stage.kind]])
        match stage.kind:
            case "prompts":
                return Prompts(cast(int, s["count"]))
            case "select":
                before = self.of(inputs["prompts"])
                return before.drawn(selected_count(before.total, cast(float, s["fraction"])))
            case "evolve":
                return Prompts(0, self.of(inputs["selected"]).total * cast(int, s["evolutions"]))
            case "pair":
                return self.of(inputs["only"] if "only" in inputs else inputs["completions"])
            case "mix":
                size = cast(int, s["size"])
                evolved = evolved_count(size, cast(float, s["evolved_share"]))
                base = self.of(inputs["base"]).drawn(size - evolved)
                return Prompts(base.human, base.evolved + evolved)
            case "join":
                parts = [self.of(before) for before in inputs.values()]
                return Prompts(sum(p.human for p in parts), sum(p.evolved for p in parts))
            case "repeat":
                return self.of(inputs["pairs"]).drawn(cast(int, s["size"]))
        raise KeyError(stage.kind)


def base_policy(stage: Stage) -> str:
    """Return the identity of the model that a stage's policy was trained from."""
    while "policy" not in stage.settings:
        stage = stage.inputs["policy"]
    return str(stage.settings["policy"])
