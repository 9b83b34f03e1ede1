"""A crew: whoever computes the stages that an engine hands out, and what a stage needs of them.

An engine asks a crew whether it has room, gives it a stage, and waits for what it says. What is
said is a message, a dict with an `event`: `started`, any number of `progress`, and one of
`finished`, `failed`, `elsewhere` (another run computes the stage) or `died`, which ends it. A
stage that `died` may be `lost`: its node went away, and another may try.
"""

from __future__ import annotations

import os
import subprocess
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from harness.errors import UserError
from harness.runtime.stage import Stage
from harness.words import counted

Message: TypeAlias = dict[str, Any]

LAST = ("finished", "failed", "elsewhere", "died")
"""Events after which nothing more is said of a stage."""


@dataclass(frozen=True)
class Need:
    """What one stage needs while it is computed.

    Attributes:
        cpus: Processor cores.
        gpus: GPUs, all on one node.
        asks: Whether it does little but ask an endpoint, which bears only so many at once.
    """

    cpus: int = 1
    gpus: int = 0
    asks: bool = False

    @property
    def words(self) -> str:
        """The need in words: `8 cores and 1 GPU`."""
        gpus = f" and {counted(self.gpus, 'GPU')}" if self.gpus else ""
        return f"{counted(self.cpus, 'core')}{gpus}"


@dataclass(frozen=True)
class Needs:
    """What stages need, by kind; they change when and where a stage runs and never a number.

    Attributes:
        kinds: What a stage of each kind needs.
        other: What one of any other kind needs.
        asking: Most stages at once that ask endpoints; None for any number.
    """

    kinds: Mapping[str, Need] = field(default_factory=dict)
    other: Need = Need()
    asking: int | None = None

    def of(self, kind: str) -> Need:
        """Return what a stage of a kind needs."""
        return self.kinds.get(kind, self.other)

    def first_of(self, stages: Iterable[Stage]) -> dict[Need, Stage]:
        """Return the distinct needs of some stages, each with the first stage that has it."""
        found: dict[Need, Stage] = {}
        for stage in stages:
            found.setdefault(self.of(stage.kind), stage)
        return found


class Crew(ABC):
    """Computes stages, several at a time."""

    def check(self, stages: Collection[Stage]) -> None:
        """Refuse stages that can never be computed here.

        Raises:
            UserError: One needs more than there is anywhere; the message says which.
        """
        return

    @property
    @abstractmethod
    def at_work(self) -> list[Stage]:
        """The stages that are given and not ended."""

    @abstractmethod
    def room(self, need: Need) -> bool:
        """Return whether a stage with such a need can be given now."""

    @abstractmethod
    def give(self, stage: Stage) -> None:
        """Have a stage computed; there must be room.

        Raises:
            StoreError: The disk is full, or a folder may not be written.
        """

    @abstractmethod
    def wait(self, timeout_s: float | None = None) -> list[tuple[Stage, Message]]:
        """Wait until something is said, or so long; return what is said of which stage."""

    @abstractmethod
    def stop(self) -> None:
        """End all that is at work; return when it has ended."""

    def __enter__(self) -> Crew:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


def refuse(stage: Stage, need: Need, where: str) -> UserError:
    """Return the error for a stage that nothing can compute; `where` says what there is."""
    return UserError(
        f"{stage.title} needs {need.words}, and {where}: run on a larger machine, or lower "
        f"`hardware.stages.{stage.kind}` in the profile"
    )


def visible_gpus() -> list[str]:
    """Return the GPUs that this process may use, as `CUDA_VISIBLE_DEVICES` names them."""
    named = os.environ.get("CUDA_VISIBLE_DEVICES")
    if named is not None:
        return [name.strip() for name in named.split(",") if name.strip() not in ("", "-1")]
    try:
        listed = subprocess.run(
            ["nvidia-smi", "--query-gpu=index", "--format=csv,noheader"],
            capture_output=True, text=True, check=True, timeout=30,
        )  # fmt: skip
    except (OSError, subprocess.SubprocessError):
        return []
    return listed.stdout.split()
