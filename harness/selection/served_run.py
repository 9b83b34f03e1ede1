"""Runs whose models the harness serves itself: turn by turn, each turn with its servers.

Workers find servers like any endpoint, by environment variables, which are set for the duration of
a turn. A turn whose server dies is run once more with a new one, and keeps what it had computed.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from harness.endpoint.access import MOST_CONCURRENCY
from harness.errors import HarnessError, UserError
from harness.pipeline.factory import Turn, Turns
from harness.registry.serving import ServedRole, Serving, variable
from harness.runtime import Event, RunOutcome, Stage, Store
from harness.runtime.files import StoreError
from harness.runtime.plan import DISK_FULL, Awaited, Interrupted, StageFailed, StageSkipped
from harness.runtime.stage import fingerprint_of
from harness.serving.engines import identity
from harness.serving.servers import ServedPolicy, Servers
from harness.worlds.needs import policy_of
from harness.worlds.real.models import identity_of, resolve

_ATTEMPTS = 2
"""How often a turn whose server dies is run."""

Observe = Callable[[Event], None]

Compute = Callable[[Sequence[Stage], Observe], RunOutcome]
"""Computes stages whose inputs are available, and reports events."""


class _FailedError(HarnessError):
    """Stages failed while their servers ran."""


@dataclass
class ServedRun:
    """Computes stages turn by turn, by `compute`."""

    turns: Turns
    store: Store
    logs: Path
    compute: Compute
    on_event: Observe
    outcome: RunOutcome = field(default_factory=RunOutcome)

    @property
    def serving(self) -> Serving:
        """How the profile's models are served."""
        assert self.turns.profile.serving is not None
        return self.turns.profile.serving

    def run(self, stages: Sequence[Stage]) -> RunOutcome:
        """Compute stages, given in dependency order."""
        self.logs.mkdir(parents=True, exist_ok=True)
        tell = lambda what, s: self.on_event(Awaited(what, s))  # noqa: E731
        try:
            with Servers(self.serving, self.logs, _folder, tell) as servers:
                for turn in self.turns.order(stages):
                    self._run_turn(turn, servers)
        except (KeyboardInterrupt, Interrupted):
            raise Interrupted.after(self.outcome, len(stages)) from None
        return self.outcome

    def _run_turn(self, turn: Turn, servers: Servers) -> None:
        """Compute the stages of a turn, skipping those that depend on a failed one."""
        ready: list[Stage] = []
        for stage in turn.stages:
            if (why := self._skip_reason(stage)) is None:
                ready.append(stage)
            else:
                self._observe(StageSkipped(stage, why))
        for attempt in range(1, _ATTEMPTS + 1):
            if not ready:
                return
            # Failures are reported only once the turn will not be run again.
            deferred: list[Event] = []

            def observe(event: Event, deferred: list[Event] = deferred) -> None:
                if isinstance(event, StageFailed | StageSkipped):
                    deferred.append(event)
                else:
                    self._observe(event)

            try:
                with self._served(turn, servers):
                    computed = self.compute(ready, observe)
                    self.outcome.disk_full = computed.disk_full
                    if computed.failed:
                        raise _FailedError
            except _FailedError:
                pass
            except (Interrupted, UserError, StoreError):
                raise
            except HarnessError as error:
                ready = [stage for stage in ready if stage not in self.outcome.finished]
                if attempt < _ATTEMPTS:
                    continue
                deferred = [StageFailed(stage, str(error)) for stage in ready]
                for stage in ready:
                    self.store.record_failure(stage, str(error), "")
            for event in deferred:
                self._observe(event)
            return

    def _skip_reason(self, stage: Stage) -> str | None:
        """Return why a stage is skipped, or None if it is not."""
        if self.outcome.disk_full:
            return DISK_FULL
        lost = self.outcome.failed | self.outcome.skipped
        found = next((needed for needed in stage.inputs.values() if needed in lost), None)
        return None if found is None else f"needs {found.title}"

    def _observe(self, event: Event) -> None:
        self.outcome.observe(event)
        self.on_event(event)

    @contextmanager
    def _served(self, turn: Turn, servers: Servers) -> Iterator[None]:
        """Keep loaded exactly what a turn needs, for the duration of the block."""
        first = turn.stages[0]
        roles = self.turns.roles(first)
        if turn.role is None:
            yield
        elif not roles:
            servers.stop()
            yield
        else:
            policy = self._policy(first) if "policy" in roles else None
            with (
                servers.hold(*roles, policy=policy) as urls,
                with_variables(variables(self.serving, urls)),
            ):
                yield

    def _policy(self, stage: Stage) -> ServedPolicy:
        before = stage.inputs.get("policy")
        if before is None:
            return ServedPolicy(policy_of(stage), resolve(str(stage.settings["policy"])))
        return ServedPolicy(policy_of(stage), self.store.open(before.fingerprint) / "model")


def _folder(model: str) -> Path:
    return resolve(identity_of(model))


def variables(serving: Serving, urls: Mapping[ServedRole, str]) -> dict[str, str]:
    """Return the environment variables that point workers to the servers started for them."""
    found: dict[str, str] = {}
    for role, url in urls.items():
        served = serving.roles[role]
        model = None if served.model is None else identity_of(served.model)
        told = [identity(served.engine), served.numerics(), model]
        usual = {"CONCURRENCY": str(min(served.at_once, MOST_CONCURRENCY)), "PRICE": "0,0"}
        found |= {(n := variable(role, k)): os.environ.get(n, v) for k, v in usual.items()}
        found[variable(role, "URL")] = url
        found[variable(role, "CACHE_NAMESPACE")] = f"served/{fingerprint_of(told)}"
    return found


@contextmanager
def with_variables(variables: Mapping[str, str]) -> Iterator[None]:
    """Set environment variables for the duration of the block, for processes started in it."""
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name in variables:
            del os.environ[name]
        os.environ.update({name: value for name, value in before.items() if value is not None})
