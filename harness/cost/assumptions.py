"""What an estimate is made of, as data with sources: lengths, speeds of GPUs, sizes of models."""

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
    """Return all that is assumed of every plan, by dotted names: `tokens.prompt`."""
    found = sources(read_document(ASSUMPTIONS).data)
    return {name: Assumed(value=value, source=source) for name, value, source in found}


def assumed(name: str) -> float:
    return float(assumptions()[name].value)


class Gpu(Strict):
    """A GPU: bytes of memory, and parameters times tokens a second; null is not known."""

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
    """Return the GPUs whose speed is known, and the parameters of models, by name."""
    return read_declared(SPEEDS, _Speeds, "`gpus` and `models`")[0]


def parameters_of(identity: str) -> int | None:
    """Return the parameters of a model by its identity, `owner/name@revision`, where known."""
    return speeds().models.get(identity.partition("@")[0])


@dataclass(frozen=True)
class Gpus:
    """So many GPUs of a kind: those a plan is priced for, or those a stage holds."""

    name: str
    gpu: Gpu
    count: int


def priced_gpus(profile: Profile) -> Gpus | None:
    """Return the hardware that a profile is priced for; None where it names no GPU."""
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
