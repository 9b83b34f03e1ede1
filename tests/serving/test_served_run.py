"""A run by turns: workers find their servers, and a turn whose server died is taken once more."""

import os
from collections.abc import Callable, Sequence
from pathlib import Path

import psutil
import pytest
from toy_servers import served

from harness.errors import HarnessError, UserError
from harness.pipeline.factory import Turns
from harness.registry.profile import Profile, load_profiles
from harness.runtime import Event, RunOutcome, Stage, Store
from harness.runtime.files import BrokenEntry
from harness.runtime.plan import StageFailed, StageFinished
from harness.selection import served_run
from harness.selection.served_run import ServedRun

pytestmark = pytest.mark.usefixtures("starts")

EVOLVES = Stage("evolve", 1, {"rewriting": {"model": "owner/creator"}}, {}, "evolve")
AFTER = Stage("pair", 1, {}, {"of": EVOLVES}, "pair")


@pytest.fixture
def profile(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Profile:
    """Return a profile with a creator of its own, whose weights need not be read."""
    monkeypatch.setattr(served_run, "_folder", lambda model: tmp_path)
    said = load_profiles()["paper"]
    creator = said.creator.model_copy(update={"source": "owner/creator"})
    serving = {"creator": served(at_once=32)}
    return Profile.model_validate(
        said.model_dump(by_alias=True) | {"creator": creator.model_dump(), "serving": serving}
    )


def turning_of(
    profile: Profile, tmp_path: Path, compute: Callable[..., RunOutcome], told: list[Event]
) -> ServedRun:
    return ServedRun(
        Turns(profile), Store(tmp_path / "store"), tmp_path / "logs", compute, told.append
    )


def test_workers_find_the_server_as_they_find_an_endpoint(profile: Profile, tmp_path: Path) -> None:
    seen: list[dict[str, str]] = []

    def compute(stages: Sequence[Stage], observe: Callable[[Event], None]) -> RunOutcome:
        seen.append({k: v for k, v in os.environ.items() if k.startswith("HARNESS_CREATOR_")})
        for stage in stages:
            observe(StageFinished(stage, 1.0))
        return RunOutcome([*stages])

    outcome = turning_of(profile, tmp_path, compute, []).run([EVOLVES, AFTER])
    assert outcome.finished == [EVOLVES, AFTER]
    asking, after = seen
    assert asking["HARNESS_CREATOR_URL"].startswith("http://127.0.0.1:")
    assert (asking["HARNESS_CREATOR_CONCURRENCY"], asking["HARNESS_CREATOR_PRICE"]) == ("32", "0,0")
    assert asking["HARNESS_CREATOR_CACHE_NAMESPACE"].startswith("served/")
    assert after == {}
    assert not psutil.Process().children(recursive=True)


@pytest.mark.parametrize(("deaths", "ends"), [(1, "finished"), (2, "failed")])
def test_a_turn_whose_server_dies_is_taken_once_more(
    profile: Profile, tmp_path: Path, deaths: int, ends: str
) -> None:
    told: list[Event] = []
    times = 0

    def compute(stages: Sequence[Stage], observe: Callable[[Event], None]) -> RunOutcome:
        nonlocal times
        times += 1
        if times <= deaths:
            for process in psutil.Process().children(recursive=True):
                if "api_server" in " ".join(process.cmdline()):
                    process.kill()
            observe(StageFailed(stages[0], "it did not answer"))
            return RunOutcome(failed={stages[0]: "it did not answer"})
        for stage in stages:
            observe(StageFinished(stage, 1.0))
        return RunOutcome([*stages])

    outcome = turning_of(profile, tmp_path, compute, told).run([EVOLVES, AFTER])
    failed = [event for event in told if isinstance(event, StageFailed)]
    if ends == "finished":
        assert (outcome.ok, failed, times) == (True, [], 3)
    else:
        assert [event.stage for event in failed] == [EVOLVES]
        assert "died in the middle" in outcome.failed[EVOLVES]
        assert list(outcome.skipped) == [AFTER]


def test_what_ended_before_the_store_failed_is_no_failure(profile: Profile, tmp_path: Path) -> None:
    def compute(stages: Sequence[Stage], observe: Callable[[Event], None]) -> RunOutcome:
        observe(StageFinished(stages[0], 1.0))
        raise HarnessError("the disk is full")

    outcome = turning_of(profile, tmp_path, compute, []).run([EVOLVES])
    assert (outcome.finished, outcome.failed) == ([EVOLVES], {})


def test_a_full_disk_lets_no_further_turn_start(profile: Profile, tmp_path: Path) -> None:
    first = Stage("pair", 1, {}, {}, "first")

    def compute(stages: Sequence[Stage], observe: Callable[[Event], None]) -> RunOutcome:
        assert [*stages] == [first]
        observe(StageFailed(first, "the disk is full"))
        return RunOutcome(failed={first: "the disk is full"}, disk_full=True)

    outcome = turning_of(profile, tmp_path, compute, []).run([first, EVOLVES])
    assert list(outcome.failed) == [first]
    assert outcome.skipped == {EVOLVES: "not started, since the disk is full"}


def test_a_damaged_store_ends_the_run(profile: Profile, tmp_path: Path) -> None:
    times = 0

    def compute(stages: Sequence[Stage], observe: Callable[[Event], None]) -> RunOutcome:
        nonlocal times
        times += 1
        raise BrokenEntry("the stored stage is broken")

    with pytest.raises(BrokenEntry):
        turning_of(profile, tmp_path, compute, []).run([EVOLVES, AFTER])
    assert times == 1


def test_a_server_that_does_not_start_fails_the_turn_and_says_why(
    profile: Profile, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAKE_DIES_AT_START", "1")

    def compute(stages: Sequence[Stage], observe: Callable[[Event], None]) -> RunOutcome:
        raise HarnessError("nothing is to be computed")

    outcome = turning_of(profile, tmp_path, compute, []).run([EVOLVES])
    assert "died before it was ready" in outcome.failed[EVOLVES]


def test_what_the_user_got_wrong_is_no_failure_of_a_stage(profile: Profile, tmp_path: Path) -> None:
    def compute(stages: Sequence[Stage], observe: Callable[[Event], None]) -> RunOutcome:
        raise UserError("they are needed at once")

    turning = turning_of(profile, tmp_path, compute, [])
    with pytest.raises(UserError, match="needed at once"):
        turning.run([EVOLVES])
    assert turning.store.status(EVOLVES.fingerprint) == "missing"
