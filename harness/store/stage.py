"""A stage: one deterministic step, addressed by what changes its numbers.

The address (fingerprint) covers the kind, the version of the code's meaning, the settings and the
fingerprints of the inputs, so it covers everything upstream. The label is for people and is not
identity. A `Stage` points to its inputs as objects; a `StageRecord` is the same stage as it is
written down, with its inputs as fingerprints.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from harness.foreign import in_a_line
from harness.store.fingerprint import Json, canonical_json, digest


@dataclass(frozen=True)
class StageRecord:
    """A stage with its inputs as fingerprints: what a manifest and a worker need.

    Attributes:
        kind: What the step does: prompts, generate, annotate, train, ...
        version: Bumped by a person when the meaning of the code changes.
        settings: Everything that changes the numbers; a private copy, not to be modified.
        inputs: Fingerprint of each named upstream stage.
        label: The stage's name for people; not part of its identity.
        fingerprint: 64 hexadecimal digits, computed.

    Raises:
        FingerprintError: A setting has no deterministic JSON form.
    """

    kind: str
    version: int
    settings: Mapping[str, Json]
    inputs: Mapping[str, str]
    label: str = ""
    fingerprint: str = field(init=False)

    def __post_init__(self) -> None:
        identity = canonical_json(
            {
                "kind": self.kind,
                "version": self.version,
                "settings": dict(self.settings),
                "inputs": dict(self.inputs),
            },
            where=str(self.kind),
        )
        # A caller may go on changing the dict it built the settings in; this stage must not.
        object.__setattr__(self, "settings", json.loads(identity)["settings"])
        object.__setattr__(self, "inputs", dict(self.inputs))
        object.__setattr__(self, "fingerprint", digest(identity))

    @property
    def title(self) -> str:
        """The label with the start of the fingerprint: enough to find the stage by."""
        return f"'{in_a_line(self.label or self.kind, 200)}' ({self.fingerprint[:12]})"

    @property
    def seed(self) -> int:
        """The stage's random seed, 31 bits, derived from its fingerprint."""
        return int(self.fingerprint[:8], 16) & 0x7FFFFFFF

    def as_json(self) -> dict[str, Any]:
        """Return the fields that `StageRecord(**fields)` takes."""
        return {
            "kind": self.kind,
            "version": self.version,
            "settings": dict(self.settings),
            "inputs": dict(self.inputs),
            "label": self.label,
        }


@dataclass(frozen=True, eq=False)
class Stage:
    """One deterministic step and the steps it needs; equal stages have equal fingerprints.

    Attributes:
        kind: What the step does: prompts, generate, annotate, train, ...
        version: Bumped by a person when the meaning of the code changes.
        settings: Everything that changes the numbers: no paths, hosts or devices.
        inputs: The named upstream stages.
        label: The stage's name for people ("seed 0 · dpo-h1 · train 1"); not identity.
        record: The stage as it is written down, computed.

    Raises:
        FingerprintError: A setting has no deterministic JSON form.
    """

    kind: str
    version: int
    settings: Mapping[str, Json] = field(repr=False)
    inputs: Mapping[str, Stage] = field(repr=False)
    label: str = ""
    record: StageRecord = field(init=False, repr=False)

    def __post_init__(self) -> None:
        inputs = {name: stage.fingerprint for name, stage in self.inputs.items()}
        record = StageRecord(self.kind, self.version, self.settings, inputs, self.label)
        object.__setattr__(self, "settings", record.settings)
        object.__setattr__(self, "inputs", dict(self.inputs))
        object.__setattr__(self, "record", record)

    @property
    def fingerprint(self) -> str:
        """64 hexadecimal digits over kind, version, settings and the inputs' fingerprints."""
        return self.record.fingerprint

    @property
    def seed(self) -> int:
        """The stage's random seed, 31 bits, derived from its fingerprint."""
        return self.record.seed

    @property
    def title(self) -> str:
        """The label with the start of the fingerprint: enough to find the stage by."""
        return self.record.title

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Stage) and self.fingerprint == other.fingerprint

    def __hash__(self) -> int:
        return hash(self.fingerprint)


def _unheard(step: int, metrics: Mapping[str, float]) -> None:
    """Take a reported point to nowhere: a stage function called outside an engine."""


@dataclass
class StageContext:
    """What a stage function sees: its settings, its inputs and where to write.

    Attributes:
        settings: The stage's settings.
        inputs: Folder of each named input, verified; read-only by convention.
        output: An empty folder; what is in it when the function returns is the stage's output.
        seed: The one seed all of the stage's randomness derives from (31 bits).
        on_report: Receives the reported points.
        unfinished: A folder, not created, that survives when the stage fails or is killed, and
            is removed when its output is whole (`harness.store.unfinished`).
        hardware: How this machine is to be used, as the profile says; it changes no number.
    """

    settings: Mapping[str, Json]
    inputs: Mapping[str, Path]
    output: Path
    seed: int
    on_report: Callable[[int, Mapping[str, float]], None] = field(default=_unheard, repr=False)
    unfinished: Path | None = None
    hardware: Mapping[str, Json] = field(default_factory=dict)

    def report(self, step: int, metrics: Mapping[str, float]) -> None:
        """Report one point of the stage's curves, kept with its output and shown live.

        Args:
            step: Position on the curve's axis, for example the optimizer step.
            metrics: Value of each curve at that step. Values must not depend on the machine or
                the time if the stage's output is to be the same bytes in every run.
        """
        self.on_report(step, {name: float(value) for name, value in metrics.items()})
