"""Rounds of a scenario: how long they go on, from which seeds, and what is counted meanwhile.

A scenario is a function of one `Round`. In the quick form it is played a few times from fixed
seeds. In the long form (`pytest -m faults`) it is played again and again until its share of the
time is used up, a round that fails is noted with its seed and the next one begins, and the test
fails at the end if any did.

    HARNESS_FAULTS_MINUTES   of the long form as a whole, shared out evenly; 60
    HARNESS_FAULTS_SEED      the seed behind all rounds of the long form; 0
    HARNESS_FAULTS_ROUND     plays the one round of this seed, to see a failure again
    HARNESS_FAULTS_JSON      a file that gets the figures

`python tests/faults/rounds.py FIGURES.json` prints the figures as Markdown.
"""

from __future__ import annotations

import hashlib
import json
import os
import random
import shutil
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable, Sized
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

MINUTES = 60.0
MOST_FAILURES = 20
"""Failed rounds after which a scenario of the long form is given up."""

COUNTED = (
    "rounds",
    "kills",
    "rivals",
    "stages stored",
    "judge failures",
    "full disks",
    "dead servers",
    "hostile texts",
    "cases fuzzed",
    "corruptions tried",
    "corruptions found",
)
"""What was done."""

NEVER = (
    "stages lost",
    "stages doubled",
    "replies lost",
    "replies doubled",
    "MLflow runs doubled",
    "publications torn",
    "tracebacks",
    "hangs",
    "orphans",
)
"""What must not happen once."""


@dataclass
class Tally:
    """The figures of one scenario.

    Attributes:
        counts: How often each of `COUNTED` and `NEVER` was counted.
        failures: What went wrong in which round, the seed first.
        seconds: Time used.
    """

    counts: Counter[str] = field(default_factory=Counter)
    failures: list[str] = field(default_factory=list)
    seconds: float = 0.0

    def add(self, name: str, number: int = 1) -> None:
        """Count something.

        Raises:
            KeyError: Nothing of that name is counted.
        """
        if name not in COUNTED + NEVER:
            raise KeyError(name)
        if number:
            self.counts[name] += number

    def never(self, name: str, found: Sized, said: object = "") -> None:
        """Count what must not happen, and fail where it did."""
        self.add(name, len(found))
        assert not found, f"{name}: {found}\n{said}"


@dataclass(frozen=True)
class Round:
    """One round of a scenario.

    Attributes:
        folder: An empty folder of its own.
        dice: All its randomness.
        tally: Where it counts.
        shared: Kept between the rounds of all scenarios, by name.
    """

    folder: Path
    dice: random.Random
    tally: Tally
    shared: Callable[[str, Callable[[Path], Any]], Any]


class Ledger:
    """The figures of all scenarios of a session, written to a file after each round."""

    def __init__(self, file: Path | None) -> None:
        self._file = file
        self._began = time.time()
        self.tallies: dict[str, Tally] = {}

    def tally(self, scenario: str) -> Tally:
        """Return the figures of a scenario."""
        return self.tallies.setdefault(scenario, Tally())

    def write(self) -> None:
        """Write all figures, where a file was named."""
        if self._file is None:
            return
        total: Counter[str] = Counter()
        for tally in self.tallies.values():
            total.update(tally.counts)
        figures = {
            "minutes": round((time.time() - self._began) / 60, 1),
            "seed": base_seed(),
            "total": {name: total[name] for name in COUNTED + NEVER},
            "scenarios": {
                name: {
                    "seconds": round(tally.seconds, 1),
                    "counts": dict(tally.counts),
                    "failures": tally.failures,
                }
                for name, tally in self.tallies.items()
            },
        }
        draft = self._file.with_suffix(".part")
        draft.write_text(json.dumps(figures, indent=2, ensure_ascii=False), encoding="utf-8")
        draft.replace(self._file)


class Player:
    """Plays the rounds of one scenario.

    Args:
        scenario: Its name.
        folder: A folder for its rounds.
        ledger: Where figures are kept.
        seconds: Its share of the time; None in the quick form.
        shared: As in `Round`.
    """

    def __init__(
        self,
        scenario: str,
        folder: Path,
        ledger: Ledger,
        seconds: float | None,
        shared: Callable[[str, Callable[[Path], Any]], Any],
    ) -> None:
        self.scenario = scenario
        self.tally = ledger.tally(scenario)
        self._folder = folder
        self._ledger = ledger
        self._seconds = seconds
        self._shared = shared

    @property
    def is_long(self) -> bool:
        """Whether this is the long form."""
        return self._seconds is not None

    def __call__(self, play: Callable[[Round], None], quick: int = 1) -> None:
        """Play as many rounds as the form has.

        Args:
            play: The scenario.
            quick: Rounds of the quick form.
        """
        asked = os.environ.get("HARNESS_FAULTS_ROUND")
        if asked is not None:
            self._round(play, asked)
        elif self._seconds is None:
            for number in range(quick):
                self._round(play, f"quick/{self.scenario}/{number}")
        else:
            self._play_on(play, time.monotonic() + self._seconds)

    def _play_on(self, play: Callable[[Round], None], end: float) -> None:
        number = 0
        while (time.monotonic() < end or not number) and len(self.tally.failures) < MOST_FAILURES:
            seed = f"{base_seed()}/{self.scenario}/{number}"
            number += 1
            try:
                self._round(play, seed)
            except Exception:  # noqa: BLE001 (noted with its seed; the test fails at the end)
                self.tally.failures.append(f"{seed}: {traceback.format_exc(limit=-4)}")
                self._ledger.write()
        assert not self.tally.failures, "\n\n".join(self.tally.failures)

    def _round(self, play: Callable[[Round], None], seed: str) -> None:
        """Play one round in a folder that is removed after it."""
        folder = self._folder / "round"
        folder.mkdir()
        number = int(hashlib.sha256(seed.encode()).hexdigest()[:12], 16)
        began = time.monotonic()
        print(f"round {seed}")
        try:
            play(Round(folder, random.Random(number), self.tally, self._shared))
            self.tally.add("rounds")
        finally:
            self.tally.seconds += time.monotonic() - began
            shutil.rmtree(folder, ignore_errors=True)
            self._ledger.write()


def base_seed() -> str:
    """Return the seed behind all rounds of the long form."""
    return os.environ.get("HARNESS_FAULTS_SEED", "0")


def long_seconds() -> float:
    """Return the seconds of the long form as a whole."""
    return 60 * float(os.environ.get("HARNESS_FAULTS_MINUTES", MINUTES))


def as_markdown(figures: dict[str, Any]) -> str:
    """Return the figures of a session as a table for people."""
    total = figures["total"]
    head = f"{figures['minutes']:g} minutes, seed {figures['seed']}, "
    head += f"{len(figures['scenarios'])} scenarios, {total['rounds']} rounds."
    done = [(name, total[name]) for name in COUNTED[1:] if total[name]]
    lines = [head, "", "| what | number |", "|---|---:|"]
    lines += [f"| {name} | {number:,} |" for name, number in done]
    lines += [f"| **{name}** | **{total[name]:,}** |" for name in NEVER]
    lines += ["", "| scenario | rounds or cases | minutes | failed |", "|---|---:|---:|---:|"]
    for name, said in figures["scenarios"].items():
        played = said["counts"].get("rounds", 0) + len(said["failures"])
        rounds = played or said["counts"].get("cases fuzzed", 0)
        minutes = f"{said['seconds'] / 60:.1f}"
        lines.append(f"| {name} | {rounds:,} | {minutes} | {len(said['failures'])} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.stdout.write(as_markdown(json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))))
