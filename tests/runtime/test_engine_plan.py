"""Plans and schedules, without processes."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from toy_stages import toy

from harness.runtime import Plan, Stage, Store
from harness.runtime.plan import (
    Schedule,
    StageFailed,
    StageFinished,
    StageProgress,
    StageSkipped,
    StageStarted,
    Tally,
)


@st.composite
def graphs(draw: st.DrawFn) -> list[Stage]:
    """Draw up to 12 stages, each with inputs among those before it."""
    stages: list[Stage] = []
    for number in range(draw(st.integers(1, 12))):
        chosen = draw(st.lists(st.sampled_from(stages), max_size=3)) if stages else []
        stages.append(toy(draw(st.sampled_from(["draw", "total"])), *chosen, number=number))
    return stages


@settings(deadline=None)
@given(graphs())
def test_a_plan_has_each_stage_once_and_inputs_first(stages: list[Stage]) -> None:
    plan = Plan(reversed(stages))
    position = {stage.fingerprint: place for place, stage in enumerate(plan)}
    assert len(plan) == len(position) == len(set(stages))
    for stage in plan:
        for needed in stage.inputs.values():
            assert position[needed.fingerprint] < position[stage.fingerprint]


@settings(deadline=None)
@given(graphs(), st.data())
def test_a_schedule_starts_a_stage_only_after_its_inputs(
    stages: list[Stage], data: st.DataObject
) -> None:
    plan = Plan(stages)
    schedule = Schedule(plan, plan.stages, taking(draw=1.0, total=2.0))
    settled: set[Stage] = set()
    failed: set[Stage] = set()
    while (stage := schedule.take()) is not None:
        assert stage not in settled
        assert all(needed in settled - failed for needed in stage.inputs.values())
        settled.add(stage)
        if data.draw(st.booleans()):
            schedule.finish(stage)
        else:
            lost = {stage, *schedule.fail(stage)}
            failed |= lost
            settled |= lost
    assert settled == set(plan)


def taking(**seconds: float) -> Callable[[Stage], float]:
    """Return what is expected of stages by their kind."""
    return lambda stage: seconds[stage.kind]


def test_two_equal_stages_are_one_whatever_their_labels() -> None:
    assert len(Plan([toy("draw", label="a"), toy("draw", label="b")])) == 1


def test_the_longest_chain_goes_first() -> None:
    """Chains: short draw 1 s; `a` 1 s then a total of 5 s, so 6 s; `a` before the draw."""
    short, a = toy("draw", number=1), toy("draw", number=2)
    plan = Plan([short, toy("total", a)])
    expected = taking(draw=1.0, total=5.0)
    assert plan.chains(plan, expected)[a] == 6.0
    assert Schedule(plan, plan.stages, expected).take() == a


def test_the_time_left_is_what_is_expected_of_the_stages_left(tmp_path: Path) -> None:
    """One draw is done; left are two draws of 4 s and a total of 9 s.

    On one worker 2 x 4 + 9; on many, the chain of one draw and the total, 4 + 9.
    """
    store = Store(tmp_path)
    draws = [toy("draw", number=number) for number in range(3)]
    plan = Plan([*draws, toy("total", draws[2])])
    with store.writing(draws[0]):
        pass
    expected = taking(draw=4.0, total=9.0)
    assert Tally(plan, store, 1, expected).remaining_s() == pytest.approx(2 * 4 + 9)
    assert Tally(plan, store, 8, expected).remaining_s() == pytest.approx(4 + 9)


def test_the_tally_follows_the_events(tmp_path: Path) -> None:
    """Draws are expected to take 10 s; 4 s into the first, 6 + 10 + 10 s are left on one worker.

    It took 8 s, so the other two count 8 s each, and the last stage, of another kind, the 1 s that
    was expected of it; one draw fails, and the last stage is skipped.
    """
    now = [0.0]
    draws = [toy("draw", number=number) for number in range(3)]
    total = toy("total", draws[2])
    plan = Plan([*draws, total])
    tally = Tally(plan, Store(tmp_path), 1, taking(draw=10.0, total=1.0), clock=lambda: now[0])
    tally.observe(StageStarted(draws[0]))
    now[0] = 4.0
    assert tally.remaining_s() == pytest.approx(6 + 10 + 10 + 1)
    now[0] = 8.0
    tally.observe(StageFinished(draws[0], 8.0))
    assert tally.remaining_s() == pytest.approx(8 + 8 + 1)
    assert tally.share == pytest.approx(8 / (8 + 8 + 8 + 1))
    assert tally.elapsed_s == 8.0
    tally.observe(StageFailed(draws[2], "why"))
    tally.observe(StageSkipped(total, "because"))
    assert (tally.total, tally.done, tally.failed, tally.skipped) == (4, 1, 1, 1)
    assert tally.remaining_s() == pytest.approx(8)
    assert tally.running == {}


def test_on_a_slow_machine_what_has_ended_says_how_long_the_rest_takes(tmp_path: Path) -> None:
    """10 s were expected of a draw, which took 60: the last stage, of 20 s, takes 65 / 15 as long.

    Once it runs for longer than that, it is not about to end.
    """
    now = [0.0]
    draw = toy("draw")
    total = toy("total", draw)
    expected = taking(draw=10.0, total=20.0)
    tally = Tally(Plan([total]), Store(tmp_path), 1, expected, clock=lambda: now[0])
    tally.observe(StageStarted(draw))
    now[0] = 60.0
    tally.observe(StageFinished(draw, 50.0))
    tally.observe(StageStarted(total))
    assert tally.remaining_s() == pytest.approx(20 * 65 / 15)
    now[0] = 60.0 + 200.0
    assert tally.remaining_s() == pytest.approx(0.2 * 200)
    assert tally.share == pytest.approx(260 / 300)


def test_a_small_stage_that_ended_says_how_long_a_large_one_of_its_kind_takes(
    tmp_path: Path,
) -> None:
    """2 s were expected of a small draw, which took 1, and 60 s of a large one: 30 are left."""
    small, large = toy("draw", count=10), toy("draw", count=300)
    seconds = {small.fingerprint: 2.0, large.fingerprint: 60.0}
    plan = Plan([small, large])
    tally = Tally(plan, Store(tmp_path), 1, lambda stage: seconds[stage.fingerprint])
    tally.observe(StageFinished(small, 1.0))
    assert tally.remaining_s() == pytest.approx(30)


def test_the_time_left_is_unknown_until_every_kind_left_has_been_timed(tmp_path: Path) -> None:
    """Draws were never timed: one that ended in 300 s says that the other takes 300 s as well.

    A total was timed, at 9 s: that a guess was 300 times too short says nothing of it. Of what is
    not left, nothing need be known.
    """
    draws = [toy("draw", number=number) for number in range(2)]
    plan = Plan([draws[0], toy("total", draws[1])])
    expected = taking(draw=1.0, total=9.0)
    tally = Tally(plan, Store(tmp_path), 1, expected, lambda stage: stage.kind == "total")
    tally.observe(StageStarted(draws[0]))
    assert tally.remaining_s() is None
    assert tally.least_s() == pytest.approx(9)
    tally.observe(StageFinished(draws[0], 300.0))
    assert tally.remaining_s() == tally.least_s() == pytest.approx(300 + 9)
    tally.observe(StageFinished(draws[1], 300.0))
    assert tally.remaining_s() == pytest.approx(9)


def test_the_steps_of_a_stage_time_its_kind(tmp_path: Path) -> None:
    """After 4 s of loading, a step takes 1 s, and there are 25; the other draw takes as long."""
    now = [0.0]
    draws = [toy("draw", number=number) for number in range(2)]
    tally = Tally(
        Plan(draws), Store(tmp_path), 1, taking(draw=1.0), lambda stage: False, lambda: now[0]
    )
    tally.observe(StageStarted(draws[0]))
    for step in (1, 2, 3):
        assert tally.remaining_s() is None
        assert tally.least_s() == 0.0
        now[0] = 4.0 + step
        tally.observe(StageProgress(draws[0], step, {"loss": 0.5}, 25))
    assert tally.remaining_s() == pytest.approx(22 + 29)


def test_the_time_left_follows_the_steps_of_what_runs(tmp_path: Path) -> None:
    """Expected are 10 s; after 4 s of loading, a step takes 1 s, and there are 25."""
    now = [0.0]
    draws = [toy("draw", number=number) for number in range(2)]
    tally = Tally(Plan(draws), Store(tmp_path), 1, taking(draw=10.0), clock=lambda: now[0])
    tally.observe(StageStarted(draws[0]))
    assert tally.remaining_s() == pytest.approx(20)
    for step in range(101, 106):
        now[0] = 4.0 + step - 100
        tally.observe(StageProgress(draws[0], step, {"loss": 0.5}, 125))
    assert tally.remaining_s() == pytest.approx(20 + 29)
    now[0] = 19.0
    assert tally.remaining_s() == pytest.approx(10 + 29)
    tally.observe(StageFinished(draws[0], 20.0))
    assert tally.remaining_s() == pytest.approx(20)


def test_two_thousand_stages_are_planned_in_well_under_a_second(tmp_path: Path) -> None:
    common: Any = {f"setting{number}": number / 7 for number in range(30)}
    started = time.process_time()
    last = toy("draw", **common)
    for number in range(2000):
        last = toy("total", last, number=number, **common)
    plan = Plan([last])
    plan.pending(Store(tmp_path))
    assert len(plan) == 2001
    assert time.process_time() - started < 1.0
