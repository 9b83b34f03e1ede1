"""The engine on Ray, with a real cluster that the tests start on this machine."""

import json
import os
import select
import signal
import threading
from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from clusters import connected
from judge_stand_in import serving
from test_engine_local import diamond, leftovers, outputs, run
from toy_stages import toy

from harness.errors import UserError
from harness.project import replies_dir
from harness.quiet import silence
from harness.runtime import EngineOptions, Event, Store
from harness.runtime.crew import Need, Needs
from harness.runtime.plan import Interrupted, StageProgress, StageStarted

HERE = Path(__file__).resolve().parent
BUDGET = 0.02
REPLY_USD = 0.0013
"""100 tokens of prompt and 10 of completion, as the endpoint counts them."""

MOST_USD = 0.0025
"""What a request can cost at most is less, whatever is added to its text."""

RAY = EngineOptions(engine="ray")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """Return a Ray of two nodes with a core each, to which this process is connected.

    Its workers find the toy stages and a work folder.
    """
    silence()
    pytest.importorskip("ray", reason="the extra `ray` is not installed")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HARNESS_WORK", str(tmp_path_factory.mktemp("work")))
        patch.setenv("PYTHONPATH", f"{HERE}:{os.environ.get('PYTHONPATH', '')}")
        with connected() as made:
            yield made


there = partial(run, jobs=None, where=RAY)
"""Runs toy stages on Ray into the store under a folder, as many at once as there is room for."""

on_cluster = pytest.mark.usefixtures("cluster")


@on_cluster
def test_others_compute_the_bytes_and_failures_that_this_machine_does(tmp_path: Path) -> None:
    failing = [toy(kind) for kind in ("raises", "refuses", "dies", "leaves")]
    targets = [*diamond(), toy("curve"), *failing]
    events: list[Event] = []
    found = there(tmp_path / "there", targets, on_event=events.append)
    expected = run(tmp_path / "here", targets)
    assert found.failed == expected.failed
    assert outputs(tmp_path / "there") == outputs(tmp_path / "here") != {}
    shown = [(e.step, e.metrics) for e in events if isinstance(e, StageProgress)]
    assert shown == [(0, {"loss": 0.5}), (1, {"loss": 0.25})]
    failure = Store(tmp_path / "there" / "store").failure(failing[2].fingerprint)
    assert failure is not None
    assert "last words" in failure["traceback"]


@on_cluster
def test_ctrl_c_ends_all_that_was_started(tmp_path: Path) -> None:
    processes: list[int] = []
    gate = str(tmp_path / "none")

    def interrupt(event: Event) -> None:
        if isinstance(event, StageProgress):
            processes.append(os.pidfd_open(event.step))
            signal.raise_signal(signal.SIGINT)

    with pytest.raises(Interrupted, match="stopped with 0 of 1"):
        there(tmp_path, [toy("gated", gate=gate)], on_event=interrupt)
    assert select.select(processes, [], [], 10)[0] == processes
    assert leftovers(tmp_path) == []


@on_cluster
def test_what_no_node_has_room_for_is_refused_at_once(tmp_path: Path) -> None:
    needs = Needs({"draw": Need(gpus=2)})
    with pytest.raises(UserError, match=r"needs 1 core and 2 GPUs, and the largest node .* 1 core"):
        there(tmp_path, [toy("draw", number=1)], needs=needs)


@pytest.mark.parametrize("engine", ["local", "ray"])
def test_workers_of_every_engine_draw_on_one_budget(
    engine: Any, request: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Four stages, two at a time, would spend 5.2 cents; together they stop before 2."""
    if engine == "ray":
        request.getfixturevalue("cluster")
    where = EngineOptions(engine=engine)
    monkeypatch.setenv("HARNESS_WORK", str(tmp_path / "work"))
    monkeypatch.setenv("HARNESS_JUDGE_PRICE", "10,30")
    with serving() as server:
        asking = [toy("asks", number=number) for number in range(4)]
        limit = {"HARNESS_BUDGET_USD": str(BUDGET)}
        outcome = run(tmp_path / "work", asking, jobs=2, where=where, environment=limit)
        answered = server.requests
    (spent,) = json.loads((replies_dir() / "ledger.json").read_bytes()).values()
    assert spent == pytest.approx(answered * REPLY_USD)
    # The stop is no earlier than a request of each worker at its most before the budget.
    assert BUDGET - 2 * MOST_USD < spent <= BUDGET
    reasons = set(outcome.failed.values())
    assert all("Stopped before the budget of $0.02 is passed" in reason for reason in reasons)
    assert 2 <= len(outcome.failed) <= 4


def test_an_address_where_nobody_is_is_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ray = pytest.importorskip("ray", reason="the extra `ray` is not installed")
    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    asked = EngineOptions(engine="ray", ray_address="127.0.0.1:1")
    with pytest.raises(UserError, match=r"no Ray cluster can be reached at 127.0.0.1:1 .*refused"):
        there(tmp_path, [toy("draw", number=1)], where=asked)


def test_an_address_is_for_ray_only() -> None:
    with pytest.raises(UserError, match="--ray-address is for `--engine ray`, not `local`"):
        EngineOptions(ray_address="auto")


def await_end(pids: Iterable[int]) -> None:
    """Wait until one of some processes has ended."""
    watched = select.poll()
    for pid in pids:
        watched.register(os.pidfd_open(pid), select.POLLIN)
    assert watched.poll(30_000)


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

    assert there(tmp_path, [toy("total", *awaiting)], on_event=kill).ok
    assert sorted(log.read_text().splitlines()) == ["0 0", "1 0"]
    again = started.count("awaits one") + started.count("awaits two")
    assert (started.count("draw"), again, started.count("total")) == (2, 3, 1)
