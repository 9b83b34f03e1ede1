"""Human prompts by their identity: the embedded world's, or a pool from outside.

Both are shuffled by the run's seed and cut into pieces. The embedded pool is as large as a profile
says; one from outside may be a little smaller, and then its pieces are nearly equal.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, cast

from harness.catalogue.profile import WORLD, Profile
from harness.store.fingerprint import Json
from harness.trainer.assets import Assets, resolve

if TYPE_CHECKING:
    from harness.eva.evolving import Prompt


def prompt_settings(profile: Profile, assets: Assets) -> dict[str, Json]:
    """Return the settings that identify a profile's human prompts.

    Raises:
        UserError: the profile's source cannot be used.
    """
    if profile.prompts.source == WORLD:
        return {"source": assets.prompts()}
    from harness.worlds.real.sources import pool_settings

    cut: dict[str, Json] = {"x": profile.x, "pieces": profile.prompts.available}
    return {**pool_settings(profile.prompts), **cut}


def cut_prompts(settings: Mapping[str, Json]) -> tuple[list[Prompt], dict[str, Any] | None]:
    """Return the human prompts that a stage's settings ask for, and what is to be said of them.

    The pool is the same for every seed; the seed decides the order it is cut in, so that pieces
    of one seed never overlap (authors' code, `shuffle_ds.py`).

    Returns:
        The prompts; and for a pool from outside its size and how many prompts repeat another.
    """
    import numpy as np

    seed, first, count = (cast(int, settings[name]) for name in ("seed", "first", "count"))
    if "pool" not in settings:
        from harness.worlds.embedded.benchmarks import read_prompts

        pool = read_prompts(resolve(str(settings["source"])))
        order = np.random.default_rng(seed).permutation(len(pool))
        chosen = [int(i) for i in order[first : first + count]]
        if len(chosen) < count:
            raise ValueError(f"prompts {first} to {first + count} of a pool of {len(pool)}")
        return _prompts(pool, chosen), None
    from harness.worlds.real.pieces import positions
    from harness.worlds.real.repeats import duplicates
    from harness.worlds.real.sources import read_pool

    pool = read_pool(settings)
    x, pieces = cast(int, settings["x"]), cast(int, settings["pieces"])
    chosen = positions(len(pool), seed, x, pieces, first, count)
    cut = _prompts(pool, chosen)
    said = {
        "source": settings["source"],
        "pool": asdict(duplicates(pool)),
        "cut": asdict(duplicates([prompt.prompt for prompt in cut])),
    }
    return cut, said


def _prompts(pool: list[str], chosen: list[int]) -> list[Prompt]:
    from harness.eva.evolving import Prompt

    return [Prompt(prompt_id=f"h{i:05d}", prompt=pool[i]) for i in chosen]
