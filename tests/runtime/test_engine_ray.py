"""The engine on Ray, with a real cluster of two nodes on this machine."""

from __future__ import annotations

import os
import select
import signal
import threading
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
from test_engine_local import diamond, leftovers, outputs
from test_engine_local import run as run_locally
from toy_stages import FUNCTIONS, toy

from harness.errors import UserError
from harness.quiet import silence
from harness.runtime import (
    Engine,
    EngineOptions,
    Event,
    Interrupted,
    Need,
    Needs,
    Plan,
    RunOutcome,
    Stage,
    StageProgress,
    StageStarted,
    Store,
    host,
    ray_engine,
)

silence()
ray = pytest.importorskip("ray", reason="the extra `ray` is not installed")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """Return a cluster of two nodes with a core each, to which this process is connected."""
    os.environ["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"] = "0"  # listens on loopback only
    os.environ["HARNESS_WORK"] = str(tmp_path_factory.mktemp("work"))
    from ray.cluster_utils import Cluster

    node = {"num_cpus": 1, "num_gpus": 0, "include_dashboard": False}
    made = Cluster(initialize_head=True, head_node_args=node)
    made.add_node(num_cpus=1, num_gpus=0)
    made.wait_for_nodes()
    ray.init(made.address, log_to_driver=False, logging_level="ERROR")
    yield made
    ray.shutdown()
    made.shutdown()
    del os.environ["HARNESS_WORK"]


def run(
    work: Path,
    targets: list[Stage],
    on_event: Callable[[Event], None] = lambda event: None,
    needs: Needs | None = None,
) -> RunOutcome:
    """Run toy stages on the cluster, into the store under a folder."""
    how: Any = {"on_event": on_event, "needs": needs, "where": EngineOptions(engine="ray")}
    return Engine(Store(work / "store"), FUNCTIONS, work / "logs", **how).run(Plan(targets))


def await_end(pids: Iterable[int]) -> None:
    """Wait until one of some processes has ended."""
    watched = select.poll()
    for pid in pids:
        watched.register(os.pidfd_open(pid), select.POLLIN)
    assert watched.poll(30_000)


def test_a_cluster_computes_the_bytes_that_this_machine_does(cluster: Any, tmp_path: Path) -> None:
    targets = [*diamond(), toy("curve")]
    events: list[Event] = []
    assert run(tmp_path / "ray", targets, events.append).ok
    assert run_locally(tmp_path / "local", targets).ok
    assert outputs(tmp_path / "ray") == outputs(tmp_path / "local") != {}
    shown = [(e.step, e.metrics) for e in events if isinstance(e, StageProgress)]
    assert shown == [(0, {"loss": 0.5}), (1, {"loss": 0.25})]


def test_what_fails_says_why_as_on_this_machine(cluster: Any, tmp_path: Path) -> None:
    targets = [toy(kind) for kind in ("raises", "refuses", "dies", "leaves")]
    found, expected = run(tmp_path / "ray", targets), run_locally(tmp_path / "local", targets)
    assert found.failed == expected.failed
    stage = targets[2]
    failure = Store(tmp_path / "ray" / "store").failure(stage.fingerprint)
    assert failure is not None
    assert "last words" in failure["traceback"]


def test_ctrl_c_ends_all_tasks(cluster: Any, tmp_path: Path) -> None:
    processes: list[int] = []

    def interrupt(event: Event) -> None:
        if isinstance(event, StageProgress):
            processes.append(os.pidfd_open(event.step))
            signal.raise_signal(signal.SIGINT)

    with pytest.raises(Interrupted, match="stopped with 0 of 1"):
        run(tmp_path, [toy("gated", gate=str(tmp_path / "none"))], interrupt)
    assert select.select(processes, [], [], 10)[0] == processes
    assert leftovers(tmp_path) == []


def test_what_no_node_has_room_for_is_refused_at_once(cluster: Any, tmp_path: Path) -> None:
    needs = Needs({"draw": Need(cpus=1, gpus=2)})
    with pytest.raises(UserError, match=r"needs 1 core and 2 GPUs, and the largest node .* 1 core"):
        run(tmp_path, [toy("draw", number=1)], needs=needs)


def test_nodes_with_another_harness_or_without_the_store_are_refused(
    cluster: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(host, "code_digest", lambda: "another")
    stage = toy("draw", number=1)
    why = run(tmp_path, [stage]).failed[stage]
    assert "is not the driver's (another): install the same" in why


def test_a_node_that_is_killed_costs_its_running_stages_only(cluster: Any, tmp_path: Path) -> None:
    """The last on the cluster, which has one node less then."""
    node, log = next(iter(cluster.worker_nodes)), tmp_path / "log"
    pipes = [tmp_path / "one", tmp_path / "two"]
    begun = [toy("draw", number=number) for number in (1, 2)]
    awaiting = []
    for number, (pipe, before) in enumerate(zip(pipes, begun, strict=True)):
        os.mkfifo(pipe)
        told = {"pipe": str(pipe), "log": str(log), "number": number, "step": 0}
        awaiting.append(toy("awaits", before, label=f"awaits {pipe.name}", **told))
    started: list[str] = []
    waiting: dict[str, int] = {}

    def kill(event: Event) -> None:
        """Kill one of the two nodes as soon as both compute; then open both pipes, once each."""
        if isinstance(event, StageStarted):
            started.append(event.stage.label)
        if isinstance(event, StageProgress):
            waiting[event.stage.label] = event.step
            if len(waiting) == 2 and node in cluster.worker_nodes:
                cluster.remove_node(node, allow_graceful=False)
                await_end(waiting.values())
                for pipe in pipes:
                    threading.Thread(target=pipe.write_text, args=("go on",), daemon=True).start()

    assert run(tmp_path, [toy("total", *awaiting)], kill).ok
    assert sorted(log.read_text().splitlines()) == ["0 0", "1 0"]
    again = started.count("awaits one") + started.count("awaits two")
    assert (started.count("draw"), again, started.count("total")) == (2, 3, 1)


def test_an_address_where_nobody_is_is_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    asked = EngineOptions(engine="ray", ray_address="127.0.0.1:1")
    engine = Engine(Store(tmp_path), FUNCTIONS, tmp_path, where=asked)
    with pytest.raises(UserError, match=r"no Ray cluster can be reached at 127.0.0.1:1 .*refused"):
        engine.run(Plan([toy("draw", number=1)]))


def test_an_engine_that_is_not_installed_says_what_to_type(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ray_engine, "find_spec", lambda name: None)
    asked = EngineOptions(engine="ray")
    engine = Engine(Store(tmp_path), FUNCTIONS, tmp_path, where=asked)
    with pytest.raises(UserError, match=r"`ray` is not installed: type `.*\[ray\]'`"):
        engine.run(Plan([toy("draw", number=1)]))


def test_an_address_is_for_ray_only() -> None:
    with pytest.raises(UserError, match="--ray-address is for `--engine ray`, not `local`"):
        EngineOptions(ray_address="auto")
