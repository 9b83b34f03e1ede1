"""The engine on Ray Core: each stage is a task, on whichever node of a cluster has what it needs.

A task is a `harness.runtime.host`; what its worker says comes back as a stream, one message at a
time, so there is no actor to lose. Ray retries nothing: a stage whose node went away is put back by
the engine, which knows what is in the store. When the driver dies, Ray ends its tasks, and the same
command goes on from the store.

Nothing of the driver's environment goes into Ray's `runtime_env`, which its tools show.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from importlib.util import find_spec
from typing import Any

from harness.errors import UserError
from harness.quiet import QUIET
from harness.runtime.host import Host, HostOrder, fault
from harness.runtime.manifest import available_cores
from harness.runtime.pool import LAST, Crew, Message, Need, Needs, refuse, visible_gpus
from harness.runtime.stage import Stage, StageRecord
from harness.runtime.store import Store

_LOOK_S = 0.5
"""Seconds that Ray is waited for at once, between which Ctrl-C is heard."""

_CAPACITY_S = 5.0
"""Seconds for which the number of a cluster's cores and GPUs is believed."""

_ON_LOOPBACK = {"RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0"}
"""Has Ray listen on loopback where it serves this machine only: whoever reaches its ports can run
what he likes. On Linux it would take an address of the network otherwise."""

_REACH_S = 5.0
_PROBE_S = 120.0
_END_S = 10.0
_END_LOOK_S = 0.05


class RayCrew(Crew):
    """The tasks of one run on a Ray cluster, or on one that it starts on this machine.

    `address` is `host:port` of a cluster, `auto` for the one that this machine belongs to; None
    starts Ray here, for this run.

    Raises:
        UserError: Ray is not installed or not reachable, or a node cannot compute for us.
    """

    def __init__(
        self, asked: HostOrder, needs: Needs, most: int | None, store: Store, address: str | None
    ) -> None:
        if find_spec("ray") is None:
            raise UserError(
                "the engine `ray` is not installed: type `python -m pip install -e '.[ray]'`"
            )
        store.root.mkdir(parents=True, exist_ok=True)
        self._own = _connect(address, (most or available_cores()) * needs.other.cpus)
        import ray

        self._store = store
        self._needs = needs
        self._most = most
        self._at_work: dict[Any, Stage] = {}
        self._capacity: tuple[float, dict[str, float]] = (0.0, {})
        try:
            self._asked = ray.put(asked)
            self._task = ray.remote(max_retries=0, num_returns="streaming")(_compute)
            self._check_nodes()
        except BaseException:
            _disconnect(self._own)
            raise

    def check(self, stages: Collection[Stage]) -> None:
        nodes = [node["Resources"] for node in _nodes()]
        for need, stage in self._needs.first_of(stages).items():
            if not any(_fits(need, node) for node in nodes):
                largest = max(nodes, key=lambda node: (node.get("GPU", 0), node.get("CPU", 0)))
                there = Need(int(largest.get("CPU", 0)), int(largest.get("GPU", 0)))
                raise refuse(stage, need, f"the largest node of the Ray cluster has {there.words}")

    @property
    def at_work(self) -> list[Stage]:
        return list(self._at_work.values())

    def room(self, need: Need) -> bool:
        import ray

        if self._most is not None and len(self._at_work) >= self._most:
            return False
        now = time.monotonic()
        if now - self._capacity[0] > _CAPACITY_S:
            self._capacity = (now, ray.cluster_resources())
        given = [self._needs.of(stage.kind) for stage in self._at_work.values()]
        cpus, gpus = sum(n.cpus for n in given), sum(n.gpus for n in given)
        return _fits(Need(cpus + need.cpus, gpus + need.gpus), self._capacity[1])

    def give(self, stage: Stage) -> None:
        need = self._needs.of(stage.kind)
        task = self._task.options(name=stage.kind, num_cpus=need.cpus, num_gpus=need.gpus)
        self._at_work[task.remote(self._asked, stage.record.as_json(), need.gpus)] = stage

    def wait(self, timeout_s: float | None = None) -> list[tuple[Stage, Message]]:
        import ray

        if not self._at_work:
            time.sleep(timeout_s or _LOOK_S)
            return []
        end = None if timeout_s is None else time.monotonic() + timeout_s
        ready: list[Any] = []
        while not ready and (end is None or time.monotonic() < end):
            left = _LOOK_S if end is None else max(0.0, min(_LOOK_S, end - time.monotonic()))
            ready, _ = ray.wait(list(self._at_work), timeout=left, fetch_local=False)
        if ready:  # whoever else has something to say by now
            ready, _ = ray.wait(list(self._at_work), num_returns=len(self._at_work), timeout=0)
        return [said for task in ready if (said := self._heard(task)) is not None]

    def _heard(self, task: Any) -> tuple[Stage, Message] | None:
        import ray

        stage = self._at_work[task]
        try:
            message: Message = ray.get(next(task))
        except StopIteration:
            message = _lost("its task ended without a word")
        except ray.exceptions.RayTaskError as error:
            message = {"event": "died", "reason": _said(error), "traceback": str(error)}
        except ray.exceptions.RayError as error:
            message = _lost(f"its worker on Ray was lost ({type(error).__name__})", str(error))
        if message["event"] in LAST:
            del self._at_work[task]
            self._capacity = (0.0, {}) if message.get("lost") else self._capacity
        return stage, message

    def stop(self) -> None:
        import ray

        tasks, self._at_work = self._at_work, {}
        with suppress(ray.exceptions.RayError):
            for task in tasks:
                ray.cancel(task, force=True)
            # A worker lets its stage go when it has ended, which may be a moment later.
            end = time.monotonic() + _END_S
            while time.monotonic() < end and any(
                self._store.claimed(stage.fingerprint) for stage in tasks.values()
            ):
                time.sleep(_END_LOOK_S)
        _disconnect(self._own)

    def _check_nodes(self) -> None:
        """Ask each node whether it can compute for us."""
        import ray
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        probe = ray.remote(num_cpus=0, max_retries=0)(_probe)
        asked = [
            probe.options(
                scheduling_strategy=NodeAffinitySchedulingStrategy(node["NodeID"], soft=False)
            ).remote(self._asked)
            for node in _nodes()
        ]
        try:
            faults = [why for why in ray.get(asked, timeout=_PROBE_S) if why]
        except ray.exceptions.RayTaskError as error:
            raise UserError(f"a node of the Ray cluster cannot compute: {_said(error)}") from None
        except ray.exceptions.GetTimeoutError:
            raise UserError(f"the Ray cluster started no task within {_PROBE_S:g} s") from None
        if faults:
            raise UserError(faults[0])


def _connect(address: str | None, cpus: int) -> bool:
    """Connect to a cluster, or start one here; return False where this process has one already."""
    for name, value in {**QUIET, **({} if address else _ON_LOOPBACK)}.items():
        os.environ.setdefault(name, value)
    import ray

    if ray.is_initialized():
        return False
    quiet: dict[str, Any] = {"log_to_driver": False, "logging_level": "ERROR"}
    try:
        if address is None:
            gpus = len(visible_gpus())
            ray.init("local", num_cpus=cpus, num_gpus=gpus, include_dashboard=False, **quiet)
        else:
            _reach(address)
            ray.init(address, **quiet)
    except Exception as error:  # noqa: BLE001 (Ray raises plain ones)
        [why, *_] = str(error).strip().splitlines() or [type(error).__name__]
        if address is None:
            raise UserError(f"Ray cannot be started on this machine: {why}") from None
        raise UserError(
            f"no Ray cluster can be reached at {address} ({why}): start one with `ray start "
            "--head`, or correct `--ray-address`"
        ) from None
    return True


def _reach(address: str) -> None:
    """Try to reach an address, for which Ray itself takes a minute."""
    name, _, port = address.rpartition("/")[2].rpartition(":")
    if name and port.isdigit():
        socket.create_connection((name, int(port)), timeout=_REACH_S).close()


def _disconnect(own: bool) -> None:
    import ray

    if own:
        ray.shutdown()


def _nodes() -> list[dict[str, Any]]:
    import ray

    return [node for node in ray.nodes() if node["Alive"]]


def _fits(need: Need, resources: Mapping[str, float]) -> bool:
    return need.cpus <= resources.get("CPU", 0) and need.gpus <= resources.get("GPU", 0)


def _lost(reason: str, text: str = "") -> Message:
    return {"event": "died", "reason": reason, "traceback": text, "lost": True}


def _said(error: Exception) -> str:
    """Return the last line of what a task's exception says: that which names it."""
    return str(error).strip().splitlines()[-1]


# On a node.

_HOST = Host()


def _probe(asked: HostOrder) -> str | None:
    return fault(asked)


def _compute(asked: HostOrder, record: dict[str, Any], gpus: int) -> Iterator[Message]:
    yield from _HOST.compute(asked, StageRecord(**record), gpus)
