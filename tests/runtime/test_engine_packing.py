"""What stages need, and how engines pack by it; GPUs are names here, nothing runs on one."""

import os
from pathlib import Path

import pytest
from toy_stages import FUNCTIONS, toy

from harness.errors import UserError
from harness.pipeline.factory import workers_of
from harness.registry.profile import Profile
from harness.runtime import Engine, Plan, Stage, Store
from harness.runtime.crew import Crew, Need, Needs, visible_gpus
from harness.runtime.manifest import available_cores
from harness.runtime.worker import Message


class Scripted(Crew):
    """A crew of some GPUs that computes nothing: each stage ends when the next wait begins."""

    def __init__(self, needs: Needs, gpus: int) -> None:
        super().__init__(needs)
        self._gpus = gpus
        self._given: list[Stage] = []
        self.shifts: list[list[str]] = []

    def falls_short(self, need: Need) -> str | None:
        return None

    @property
    def at_work(self) -> list[Stage]:
        return list(self._given)

    def room(self, need: Need) -> bool:
        taken = sum(self.needs.of(stage.kind).gpus for stage in self._given)
        return taken + need.gpus <= self._gpus

    def give(self, stage: Stage) -> None:
        self._given.append(stage)

    def wait(self, timeout_s: float | None = None) -> list[tuple[Stage, Message]]:
        self.shifts.append(sorted(stage.label for stage in self._given))
        ended, self._given = self._given[:1], self._given[1:]
        return [(stage, {"event": "finished", "wall_s": 1.0}) for stage in ended]

    def stop(self) -> None:
        self._given.clear()


class ScriptedEngine(Engine):
    """An engine of a scripted crew."""

    def crew(self) -> Scripted:
        assert self.needs is not None
        self.made = Scripted(self.needs, 2)
        return self.made


def shifts(work: Path, targets: list[Stage], needs: Needs) -> list[list[str]]:
    """Return which stages are at work together, in order; the first of each ends then."""
    engine = ScriptedEngine(Store(work / "store"), FUNCTIONS, work / "logs", needs=needs)
    assert engine.run(Plan(targets)).ok
    return engine.made.shifts


def test_small_stages_share_the_gpus_and_none_passes_a_large_one_that_waits(tmp_path: Path) -> None:
    """Large is the most urgent once it is ready: behind it is a chain."""
    needs = Needs({"draw": Need(gpus=1), "counted": Need(gpus=2)})
    first = toy("draw", number=0, label="first")
    large = toy("counted", first, label="large")
    chain = toy("total", toy("total", large, label="next"), label="last")
    small = [toy("draw", number=n, label=f"small {n}") for n in (1, 2, 3)]
    found = shifts(tmp_path, [chain, *small], needs)
    assert found[:3] == [["first", "small 1"], ["small 1"], ["large"]]


def test_one_stage_asks_at_a_time(tmp_path: Path) -> None:
    needs = Needs({"curve": Need(uses_endpoint=True)})
    asking = [toy("curve", number=n, label=f"asks {n}") for n in (1, 2)]
    found = shifts(tmp_path, [*asking, toy("draw", number=1, label="other")], needs)
    assert found == [["asks 1", "other"], ["asks 2", "other"], ["other"]] or found == [
        ["asks 1", "other"],
        ["asks 2", "other"],
        ["asks 2"],
    ]


def test_stages_get_gpus_of_their_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,GPU-b")
    needs = Needs({"places": Need(gpus=1), "both": Need(gpus=2)})
    functions = {**FUNCTIONS, "both": FUNCTIONS["places"]}
    store = Store(tmp_path / "store")
    stages = [*(toy("places", number=n) for n in (1, 2)), toy("both"), toy("places", number=3)]
    engine = Engine(store, functions, tmp_path / "logs", jobs=2, needs=needs)
    none = toy("draw", number=1)
    assert engine.run(Plan([*stages, none])).ok
    seen = [(store.open(s.fingerprint) / "gpus.txt").read_text() for s in stages]
    assert {seen[0], seen[1]} == {"4", "GPU-b"}
    assert seen[2] == "4,GPU-b"
    assert seen[3] in {"4", "GPU-b"}


def test_more_gpus_than_there_are_is_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    needs = Needs({"draw": Need(gpus=2)})
    engine = Engine(Store(tmp_path), FUNCTIONS, tmp_path / "logs", needs=needs)
    with pytest.raises(UserError, match=r"needs 1 core and 2 GPUs, and this machine has 1 GPU: "):
        engine.run(Plan([toy("draw", number=1)]))


def test_gpus_are_those_that_are_visible(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3, 1")
    assert visible_gpus() == ["3", "1"]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "-1")
    assert visible_gpus() == []
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES")
    (tmp_path / "nvidia-smi").write_text("#!/bin/sh\necho 0\necho 1\n")
    (tmp_path / "nvidia-smi").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    assert visible_gpus() == ["0", "1"]
    (tmp_path / "nvidia-smi").write_text("#!/bin/sh\nexit 9\n")
    assert visible_gpus() == []


@pytest.mark.parametrize(
    ("quota", "cores"),
    [("max 100000", 4), ("150000 100000", 2), ("20000 100000", 1), ("800000 100000", 4)],
)
def test_cores_are_those_of_the_affinity_and_the_quota(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, quota: str, cores: int
) -> None:
    """150 ms of every 100 ms are a core and a half, which are rounded to two."""
    (tmp_path / "cpu.max").write_text(quota)
    monkeypatch.setattr("harness.runtime.manifest.CPU_QUOTA", tmp_path / "cpu.max")
    monkeypatch.setattr("os.sched_getaffinity", lambda _: {0, 1, 5, 7})
    assert available_cores() == cores


def test_a_command_computes_as_many_stages_at_once_as_there_are_gpus_or_cores_for(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, micro: Profile, paper: Profile
) -> None:
    """Of four cores a profile with two threads takes two pairs; `paper` is on GPUs."""
    monkeypatch.setattr("harness.runtime.manifest.CPU_QUOTA", tmp_path / "none")
    monkeypatch.setattr("os.sched_getaffinity", lambda _: {0, 1, 5, 7})
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1,2")
    assert workers_of(micro) == 4
    assert workers_of(micro.model_copy(update={"threads": 2})) == 2
    assert workers_of(micro.model_copy(update={"threads": 8})) == 1
    assert workers_of(paper) == 3
    assert workers_of(paper, 5) == 5


def test_a_stage_that_needs_no_gpu_sees_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,5")
    store, blind = Store(tmp_path / "store"), toy("places")
    needs = Needs({"draw": Need(gpus=1)})
    engine = Engine(store, FUNCTIONS, tmp_path / "logs", jobs=1, needs=needs)
    assert engine.run(Plan([blind])).ok
    assert (store.open(blind.fingerprint) / "gpus.txt").read_text() == ""
