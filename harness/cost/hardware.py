"""GPUs: their data sheets, and the choice of some of them for a plan."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from harness.errors import UserError
from harness.registry.documents import nearest, read_declared
from harness.registry.profile import Profile
from harness.strict import Strict

FILE = Path(__file__).with_name("gpus.yaml")

MOST_GPUS = 100_000
"""More is a slip of the finger."""


class Gpu(Strict):
    """A GPU's data sheet."""

    flops: float
    """Dense bf16 operations in a second, at most."""
    bandwidth: float
    """Bytes of its memory read in a second, at most."""
    memory: float
    """Bytes of memory."""


class _Gpus(Strict):
    gpus: dict[str, Gpu]


@dataclass(frozen=True)
class Hardware:
    """What a plan is priced for: so many GPUs of a kind, all of which a stage holds while it runs.

    Attributes:
        name: the GPU's name.
        gpu: its data sheet.
        count: how many.
    """

    name: str
    gpu: Gpu
    count: int


@cache
def known_gpus() -> Mapping[str, Gpu]:
    """Return the GPUs that are known, by name."""
    return read_declared(FILE, _Gpus, "`gpus`")[0].gpus


def hardware_of(
    profile: Profile, gpu: str | None = None, count: int | None = None
) -> Hardware | None:
    """Return the hardware that a profile is priced for; None where it names no GPU.

    Args:
        profile: the profile.
        gpu: another kind of GPU than the profile's.
        count: another number of them.

    Raises:
        UserError: there is no such GPU, or not one of them.
    """
    named = profile.priced_for
    name = gpu or (named.gpu if named else None)
    if name is None:
        return None
    if name not in known_gpus():
        raise UserError(
            f"no data sheet of a GPU `{name}` is known{nearest(name, known_gpus())}; known are "
            f"{', '.join(known_gpus())}"
        )
    number = count if count is not None else (named.gpus if named else 1)
    if not 1 <= number <= MOST_GPUS:
        shown = number if abs(number) < 10**20 else "(too large)"
        raise UserError(f"`--gpus {shown}` is no number of GPUs; give one from 1 to {MOST_GPUS}")
    return Hardware(name, known_gpus()[name], number)
