"""A stage: one deterministic step, addressed by everything that affects its numbers.

The address (fingerprint) is the sha256 of the canonical JSON of the kind, the version of the code's
meaning, the settings and the fingerprints of the inputs, so it covers everything upstream. The
label is for people and not part of the identity.

Canonical JSON has sorted keys, no whitespace, ASCII only, and floats as `repr` writes them. Only
the exact types None, bool, int, float, str, list and dict (with str keys) may appear: another
version of a library could serialize a subclass (a numpy float, an enum) or other object
differently, giving the same settings two addresses. `1` and `1.0` are different values, as are
`0.0` and `-0.0`; NaN and infinities are rejected.

The points that a stage reports while it runs are kept in its output as `progress.jsonl`, one per
line and without times, so that the file is the same in every run. Non-finite values are written as
null and read as NaN.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias, TypedDict

from harness.errors import HarnessError
from harness.foreign import in_a_line

Json: TypeAlias = "bool | int | float | str | list[Json] | dict[str, Json] | None"
"""What settings are made of. A stage offers them as `Any`, since readers know each one's type."""

_SCALARS = frozenset({type(None), bool, int, float, str})

_CANONICAL = json.JSONEncoder(
    sort_keys=True, separators=(",", ":"), allow_nan=False, check_circular=False
)


class FingerprintError(HarnessError):
    """A value has no deterministic JSON form."""


def canonical_json(value: object, where: str = "value") -> str:
    """Return the canonical JSON of a value made of None, bool, int, float, str, lists and dicts."""
    left: list[tuple[Any, str]] = [(value, where)]
    while left:
        held, place = left.pop()
        kind = type(held)
        if kind is list:
            for i, item in enumerate(held):
                left.append((item, f"{place}[{i}]"))
        elif kind is dict:
            for key, item in held.items():
                if type(key) is not str:
                    raise FingerprintError(f"{place} has the key {key!r}: a key must be plain text")
                left.append((item, f"{place}.{key}"))
        elif kind is float and not math.isfinite(held):
            raise FingerprintError(f"{place} is {held!r}: a setting must be a finite number")
        elif kind not in _SCALARS:
            raise FingerprintError(
                f"{place} is a {kind.__module__}.{kind.__qualname__}: a setting must be made of "
                "plain null, bool, int, float, str, list and dict values"
            )
    return _CANONICAL.encode(value)


def fingerprint_of(value: object, where: str = "value") -> str:
    """Return the sha256 of a value's canonical JSON as 64 hex digits."""
    return _digest(canonical_json(value, where))


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("ascii")).hexdigest()


class StageRecord(TypedDict):
    """A stage as serialized in a manifest or for a worker: inputs are fingerprints."""

    fingerprint: str
    kind: str
    version: int
    settings: dict[str, Any]
    inputs: dict[str, str]
    label: str


def stage_seed(fingerprint: str) -> int:
    return int(fingerprint[:8], 16) & 0x7FFFFFFF


def title_of(record: StageRecord) -> str:
    label = in_a_line(record["label"] or record["kind"], 200)
    return f"'{label}' ({record['fingerprint'][:12]})"


@dataclass(frozen=True, eq=False)
class Stage:
    """One deterministic step and the stages it needs; stages are equal by fingerprint.

    Settings hold everything that affects the numbers: no paths, hosts or devices.
    """

    kind: str
    version: int
    settings: Mapping[str, Any] = field(repr=False)
    inputs: Mapping[str, Stage] = field(repr=False)
    label: str = ""
    record: StageRecord = field(init=False, repr=False)
    fingerprint: str = field(init=False)
    """64 hex digits over kind, version, settings and the inputs' fingerprints."""

    def __post_init__(self) -> None:
        inputs = {name: stage.fingerprint for name, stage in self.inputs.items()}
        fields = {
            "kind": self.kind,
            "version": self.version,
            "settings": dict(self.settings),
            "inputs": inputs,
        }
        identity = canonical_json(fields, where=str(self.kind))
        # A copy: the caller may go on changing the dict it passed.
        settings = json.loads(identity)["settings"]
        record: StageRecord = {
            "fingerprint": _digest(identity),
            "kind": self.kind,
            "version": self.version,
            "settings": settings,
            "inputs": inputs,
            "label": self.label,
        }
        object.__setattr__(self, "settings", settings)
        object.__setattr__(self, "inputs", dict(self.inputs))
        object.__setattr__(self, "record", record)
        object.__setattr__(self, "fingerprint", record["fingerprint"])

    @property
    def seed(self) -> int:
        return stage_seed(self.fingerprint)

    @property
    def title(self) -> str:
        return title_of(self.record)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Stage) and self.fingerprint == other.fingerprint

    def __hash__(self) -> int:
        return hash(self.fingerprint)


@dataclass
class StageContext:
    """What a stage function sees: its settings, its inputs and where to write.

    Attributes:
        inputs: Folder of each named input, verified; read-only by convention.
        output: An empty folder; its content when the function returns is the stage's output.
        seed: A seed that follows from the fingerprint (31 bits). Stages that share random numbers
            (answers, online segments, trained reward models) take the one in their settings.
        report: Takes one point of the stage's curves, the same on every machine.
        unfinished: A folder, not yet created, that survives a crash until the output is stored.
        hardware: The profile's hardware settings; they change no number.
        expect: Takes the last step that will be reported, for the progress display only.
    """

    settings: Mapping[str, Any]
    inputs: Mapping[str, Path]
    output: Path
    seed: int
    report: Callable[[int, Mapping[str, float]], None] = field(
        default=lambda step, metrics: None, repr=False
    )
    unfinished: Path | None = None
    hardware: Mapping[str, Json] = field(default_factory=dict)
    expect: Callable[[int], None] = field(default=lambda last: None, repr=False)


PROGRESS = "progress.jsonl"


class CurvePoint(NamedTuple):
    """One reported point: a step and the value of each curve."""

    step: int
    metrics: dict[str, float]


def line_of(step: int, metrics: Mapping[str, float]) -> str:
    values = {name: float(v) if math.isfinite(v) else None for name, v in metrics.items()}
    return f"{json.dumps({'step': step, 'metrics': values}, allow_nan=False)}\n"


def append_point(path: Path, step: int, metrics: Mapping[str, float]) -> None:
    with path.open("a", encoding="utf-8") as file:
        file.write(line_of(step, metrics))


def read_point(line: str | bytes) -> CurvePoint:
    """Parse a line into a point; null becomes NaN."""
    read = json.loads(line)
    found = {name: math.nan if v is None else v for name, v in read["metrics"].items()}
    return CurvePoint(read["step"], found)
