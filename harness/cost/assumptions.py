"""The inputs of an estimate, as data with sources: lengths, GPU speeds, model sizes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from harness.errors import UserError
from harness.registry.documents import nearest, read_declared, read_document, sources
from harness.registry.profile import Profile
from harness.strict import Strict

ASSUMPTIONS = Path(__file__).with_name("assumptions.yaml")
SPEEDS = Path(__file__).with_name("speeds.yaml")


class Assumed(Strict):
    value: Any
    source: str


@cache
def assumptions() -> Mapping[str, Assumed]:
    """Return all assumptions by dotted name, such as `tokens.prompt`."""
    found = sources(read_document(ASSUMPTIONS).data)
    return {name: Assumed(value=value, source=source) for name, value, source in found}


def assumed(name: str) -> float:
    return float(assumptions()[name].value)


class Gpu(Strict):
    """A GPU: memory in bytes, and speeds in parameters x tokens per second; null if unknown."""

    memory: float
    generating: float | None
    reading: float | None
    training: float | None
    source: str


class _Speeds(Strict):
    gpus: dict[str, Gpu]
    models: dict[str, int]


@cache
def speeds() -> _Speeds:
    """Return known GPUs and models' parameter counts, by name."""
    return read_declared(SPEEDS, _Speeds, "`gpus` and `models`")[0]


def parameters_of(identity: str) -> int | None:
    """Return the parameter count of a model (`owner/name@revision`), or None if unknown."""
    return speeds().models.get(identity.partition("@")[0])


@dataclass(frozen=True)
class Gpus:
    """A number of GPUs of one type: those a plan is priced for, or those a stage holds."""

    name: str
    gpu: Gpu
    count: int


def priced_gpus(profile: Profile) -> Gpus | None:
    """Return the GPUs a profile is priced for, or None if it names none.

    Raises:
        UserError: The GPU is not in the table of speeds.
    """
    named = profile.priced_for
    if named is None:
        return None
    known = speeds().gpus
    if named.gpu not in known:
        raise UserError(
            f"nothing is known of a GPU `{named.gpu}`{nearest(named.gpu, known)}; known are "
            f"{', '.join(known)}"
        )
    return Gpus(named.gpu, known[named.gpu], named.gpus)
