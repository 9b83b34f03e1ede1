"""Measurements of what a profile would use: its engine against its training, its human prompts."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict
from itertools import pairwise
from pathlib import Path

from harness.errors import UserError
from harness.project import work_dir
from harness.registry.profile import Profile
from harness.strict import Output
from harness.worlds.real.prompts import (
    Overlap,
    duplicates,
    overlaps,
    piece_bounds,
    read_local,
    read_questions,
)


class EngineCheck(Output):
    """How far an engine's log-probabilities are from the training's, token by token."""

    engine: str
    dtype: str
    answers: int
    """Answers compared."""
    tokens: int
    """Their tokens."""
    mean_difference: float
    """Mean absolute difference of log-probabilities, in nats."""
    max_difference: float
    kl: float
    """Estimate of the divergence per token, in nats."""
    tolerance: float
    """Largest mean difference allowed."""
    agrees: bool


def check_engine(
    profile: Profile, policy: Path | None = None, tolerance: float | None = None
) -> EngineCheck:
    """Compare the log-probabilities of a profile's engine with the training's.

    Another policy than the base one may be named. Without a tolerance in nats, that of the number
    format holds.
    """
    from harness.inference.environment import identity
    from harness.inference.logprob_check import measure
    from harness.inference.solver import opening
    from harness.worlds.lookup import place_of, resolve, world_of

    engine, world = identity(profile.engine), world_of(profile)
    world.prepare()
    base = world.policy() if policy is None else policy.name
    folder = resolve(base) if policy is None else policy
    work_dir().mkdir(parents=True, exist_ok=True)
    opened = opening(
        engine,
        folder,
        dtype=profile.dtype,
        batch_size=profile.generation.batch_size,
        log=work_dir() / "engine-check.log",
        place=place_of(base.partition("@")[0]) if engine == "endpoint" else None,
    )
    found = measure(folder, opened, dtype=profile.dtype, tolerance=tolerance)
    return EngineCheck(engine=engine, dtype=profile.dtype, **asdict(found), agrees=found.agrees)


class PromptPool(Output):
    """A pool of human prompts, and what it repeats."""

    source: str
    """The pool's identity, or the path asked for."""
    profile: str
    pieces: list[int]
    """Prompts in each piece of the profile; empty where the pool is too small."""
    problem: str | None
    """Why the profile cannot use the pool; null where it can."""
    prompts: int
    same_text: int
    """Prompts whose text an earlier one has."""
    same_words: int
    """Prompts whose words an earlier one has."""
    overlap: dict[str, Overlap]
    """By benchmark."""


def check_prompts(
    profile: Profile,
    source: Path | None = None,
    splits: Sequence[str] = (),
    against: Iterable[tuple[str, Path]] = (),
) -> PromptPool:
    """Count the human prompts of a profile, and those that repeat another or meet a benchmark.

    A file or a data set's folder may take the place of the profile's. Benchmarks are given by name,
    each with the file of its questions.
    """
    from harness.worlds.lookup import world_of

    questions = {name: read_questions(path) for name, path in against}
    if source is not None:
        pool, named = read_local(source, splits), str(source)
    else:
        pool, named = world_of(profile).prompt_pool()
    pieces, problem = _pieces(len(pool), profile)
    return PromptPool(
        source=named,
        profile=profile.name,
        pieces=pieces,
        problem=problem,
        **asdict(duplicates(pool)),
        overlap=dict(overlaps(pool, questions)),
    )


def _pieces(size: int, profile: Profile) -> tuple[list[int], str | None]:
    """Return the sizes of a profile's pieces, and what is wrong if there are none."""
    try:
        bounds = piece_bounds(size, profile.x, profile.prompts.available)
    except UserError as error:
        return [], str(error)
    return [after - before for before, after in pairwise(bounds)], None
