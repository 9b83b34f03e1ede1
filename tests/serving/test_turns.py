"""Laws of the order of stages: nothing before its inputs, and a role loaded as rarely as can be."""

from __future__ import annotations

import itertools
import random

import pytest

from harness.serving.turns import Turn, turns

CHAIN = ("policy", "reward", "creator", "policy", "reward", "train", "policy", "judge")
"""One iteration of eva and its evaluation, by what each stage has loaded."""

Stage = tuple[str, int]


def runs(*seeds: str) -> list[Stage]:
    return [(seed, number) for seed in seeds for number in range(len(CHAIN))]


def before(stage: Stage) -> list[Stage]:
    seed, number = stage
    return [(seed, number - 1)] if number else []


def role(stage: Stage) -> str:
    return CHAIN[stage[1]]


def loads(order: list[Turn[Stage]]) -> list[str | None]:
    """Return the roles that an order loads, one after the other."""
    roles = [turn.role for turn in order if turn.role is not None]
    return [role for role, _ in itertools.groupby(roles)]


def test_the_seeds_of_a_table_share_each_load() -> None:
    """Seed after seed, three runs load eight roles each; together they load eight in all."""
    order = turns(runs("a", "b", "c"), before, role)
    assert loads(order) == list(CHAIN)
    assert order[0] == Turn("policy", (("a", 0), ("b", 0), ("c", 0)))


def test_judgments_wait_for_each_other() -> None:
    """A run of one stage and its judgment, and one that goes on: both are judged at the end."""
    stages = [("x", 6), ("x", 7), *runs("a")]
    order = turns(stages, before, role)
    assert order[-1] == Turn("judge", (("x", 7), ("a", 7)))


def test_what_needs_no_role_is_done_at_once_and_unloads_nothing() -> None:
    def quiet(stage: Stage) -> str | None:
        return None if stage[1] == 1 else "policy"

    stages = [("a", 0), ("a", 1), ("a", 2), ("b", 0)]
    order = turns(stages, before, quiet)
    assert [stage for turn in order for stage in turn.stages] == stages
    assert loads(order) == ["policy"]


@pytest.mark.parametrize("seed", range(20))
def test_every_stage_comes_once_and_after_its_inputs(seed: int) -> None:
    draw = random.Random(seed)
    stages = list(range(40))
    inputs = {i: draw.sample(range(i), min(i, draw.randrange(4))) for i in stages}
    roles = {i: draw.choice(["policy", "creator", "judge", None]) for i in stages}
    order = turns(stages, inputs.__getitem__, roles.__getitem__)
    done: list[int] = []
    for turn in order:
        for stage in turn.stages:
            assert roles[stage] == turn.role
            assert set(inputs[stage]) <= set(done)
            done.append(stage)
    assert sorted(done) == stages


def test_inputs_that_are_there_already_are_not_waited_for() -> None:
    assert turns([("a", 3)], before, role) == [Turn("policy", (("a", 3),))]
