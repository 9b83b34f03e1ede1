"""The place of a round: a work folder, commands with toy stages in it, and what was stored there.

Every command is a process. Whatever left a traceback, did not come to an end, or left processes
behind fails here. `Scene.calm` has the same command undisturbed, to compare with.

A scenario is a test with a `scene`. Its quick form plays it once or a few times, always alike; its
long form, behind the marker `faults`, so many times otherwise:

    HARNESS_FAULTS_ROUNDS   rounds of each scenario; 10
    HARNESS_FAULTS_SEED     the seed behind them; 0
"""

from __future__ import annotations

import itertools
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import psutil
import pytest
import toy_world
from running import bare
from typer.testing import CliRunner
from world_of_names import write_world

from harness.cli.main import app
from harness.runtime import Store

T = TypeVar("T")
Shared = Callable[[str, Callable[[Path], Any]], Any]

ROOT = Path(__file__).resolve().parents[2]
TOY = str(ROOT / "tests" / "cli" / "toy_harness.py")
LIMIT_S = 120.0
"""A command that takes longer hangs; undisturbed the longest takes a few seconds."""

LIMIT_INSIDE_S = 120
"""The same for a command that computes nothing, and runs in this process."""

GRACE_S = 30.0
"""In so many seconds a killed command's processes have to be gone."""

TRACEBACK = "Traceback (most recent call last)"
KEY = "sk-a-key-of-the-tests-0123456789"
"""The judge's key, which must be seen nowhere."""

ROWS = ("table4", "--rows", "dpo-1,eva-a_min", "--seeds")
"""Two rows of a table; the seeds follow."""

RUN = ("run", *ROWS, "0", "--jobs", "2", "--json")
"""The command that most rounds disturb: 27 stages."""

SIGNALS = (signal.SIGKILL, signal.SIGINT, signal.SIGTERM)
WHOM = ("parent", "worker", "group")


@dataclass(frozen=True)
class Done:
    """How a command ended: its exit code and what it said."""

    code: int
    out: str
    errors: str

    @property
    def json(self) -> Any:
        """What it printed, as data."""
        found = json.loads(self.out)
        return found.get("items", found)

    def well(self) -> Done:
        """Return this; fail where it did not end well."""
        assert self.code == 0, self.errors
        return self

    def check_as(self, calm: Calm) -> None:
        """Fail where it did not end well, or said what an undisturbed command did not say."""
        assert without_times(self.well().json) == without_times(calm.done.json)


@dataclass(frozen=True)
class Calm:
    """A command that nothing disturbed: how it ended, its work folder, and its stages' files."""

    done: Done
    scene: Scene
    outputs: dict[str, Any]
    seconds: float


class Running:
    """A command under way."""

    def __init__(self, scene: Scene, process: subprocess.Popen[str]) -> None:
        self.process = process
        self._scene = scene
        self._family: set[psutil.Process] = set()

    def family(self) -> list[psutil.Process]:
        """Return the processes it has started and that live."""
        with suppress(psutil.Error):
            self._family |= set(psutil.Process(self.process.pid).children(recursive=True))
        return [child for child in self._family if child.is_running()]

    def wait_until(self, reached: Callable[[], bool]) -> bool:
        """Wait until something is so; return whether it was before the command ended."""
        end = time.monotonic() + LIMIT_S
        while self.process.poll() is None and time.monotonic() < end:
            if reached():
                return True
            time.sleep(0.002)
        return False

    def kill(self, whom: str, number: signal.Signals) -> bool:
        """Send a signal to the command, one of its workers, or all; return whether any got it."""
        family = self.family()
        if whom == "worker":
            if not family:
                return False
            victims = [self._scene.dice.choice(sorted(family, key=lambda child: child.pid)).pid]
        else:
            victims = [self.process.pid, *(child.pid for child in family if whom == "group")]
        for pid in victims:
            with suppress(ProcessLookupError):
                os.kill(pid, number)
        return self.process.poll() is None or whom != "worker"

    def end(self, limit_s: float = LIMIT_S) -> Done:
        """Wait for the end; what hangs, outlives it or was not foreseen is counted and fails."""
        try:
            out, errors = self.process.communicate(timeout=limit_s)
        except subprocess.TimeoutExpired:
            for process in [*self.family(), psutil.Process(self.process.pid)]:
                with suppress(psutil.Error):
                    process.kill()
            out, errors = self.process.communicate()
            pytest.fail(f"{self.process.args!r} hangs: {out[-2000:]}\n{errors[-2000:]}")
        _, left = psutil.wait_procs(self.family(), timeout=GRACE_S)
        for process in left:
            with suppress(psutil.Error):
                process.kill()
        assert not left, f"{self.process.args!r} left processes behind"
        for text in (out, errors):
            # Ctrl-C in the instant before the command line is there leaves one.
            early = "KeyboardInterrupt" in text and "in invoke" not in text
            assert TRACEBACK not in text or early, (self.process.args, text[-3000:])
        return Done(self.process.returncode, out, errors)


class Scene:
    """A folder in which commands run, with toy stages; `shared` makes a thing once for all."""

    def __init__(
        self, folder: Path, dice: random.Random, shared: Shared, is_long: bool, name: str = "work"
    ) -> None:
        self.folder, self.dice, self.shared, self.is_long = folder, dice, shared, is_long
        self.work = folder / name
        self.results = folder / "results"
        self.log = folder / "log"
        self.log.mkdir(exist_ok=True)
        self.world = shared("world", write_world)
        self._deaths = itertools.count()
        self.told: dict[str, str] = {}
        """Variables that a test sets besides."""

    def beside(self, name: str) -> Scene:
        """Return a scene in the same folder with another work folder."""
        return Scene(self.folder, self.dice, self.shared, self.is_long, name)

    @property
    def environment(self) -> dict[str, str]:
        """The environment of a user who has set nothing but folders, and the toys' own."""
        return bare("HARNESS_", "MLFLOW_", "TOY_", "OPENAI_") | {
            "PYTHONPATH": str(ROOT),
            "OMP_NUM_THREADS": "1",
            "HARNESS_WORK": str(self.work),
            "HARNESS_WORLD": str(self.world),
            "MLFLOW_TRACKING_URI": "toy://",
            "TOY_RESULTS": str(self.results),
            "TOY_LOG": str(self.log),
            "TOY_SLOW": "0.02",
            "TOY_HASTY": "1",
            **self.told,
        }

    def start(self, *command: str, **more: str) -> Running:
        """Start a command; `more` is added to its environment."""
        process = subprocess.Popen(
            [sys.executable, TOY, *command],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            env=self.environment | more,
            cwd=self.folder,
            start_new_session=True,
        )
        return Running(self, process)

    def call(self, *command: str, limit_s: float = LIMIT_S, **more: str) -> Done:
        """Run a command to its end."""
        return self.start(*command, **more).end(limit_s)

    def inside(self, *command: str) -> Done:
        """Run a command in this process, which takes no second to start; it computes nothing."""

        def give_up(number: int, frame: object) -> None:
            raise TimeoutError(f"{command} hangs")

        with pytest.MonkeyPatch.context() as patch:
            for name, text in self.environment.items():
                patch.setenv(name, text)
            patch.setattr("harness.project.results_dir", lambda: self.results)
            before = signal.signal(signal.SIGALRM, give_up)
            signal.alarm(LIMIT_INSIDE_S)
            try:
                result = CliRunner().invoke(app, list(command))
            finally:
                signal.alarm(0)
                signal.signal(signal.SIGALRM, before)
        error = result.exception
        if error is not None and not isinstance(error, SystemExit):
            raise AssertionError(f"a traceback of {command}") from error
        return Done(result.exit_code, result.stdout, result.stderr)

    def calm(self, *command: str) -> Calm:
        """Return a command that nothing disturbed, run once for all rounds."""

        def make(scene: Scene) -> Calm:
            began = time.monotonic()
            done = scene.call(*command).well()
            return Calm(done, scene, scene.outputs(), time.monotonic() - began)

        return self.once(" ".join(command), make)

    def once(self, name: str, make: Callable[[Scene], T]) -> T:
        """Return what is made once for all rounds, in a scene of its own, which stays."""

        def made(folder: Path) -> T:
            return make(Scene(folder, self.dice, self.shared, self.is_long))

        return self.shared(name, made)  # type: ignore[no-any-return]

    def stored(self) -> dict[str, bytes]:
        """Return the manifests of the stages that are done, by fingerprint, as bytes."""
        found = {}
        for path in (self.work / "store" / "stages").glob("*/*/stage.json"):
            with suppress(FileNotFoundError):
                found[path.parent.name] = path.read_bytes()
        return found

    def outputs(self) -> dict[str, Any]:
        """Return the digests of the files of the stages that are done, by fingerprint."""
        return {name: json.loads(text)["files"] for name, text in self.stored().items()}

    def begun(self) -> list[list[str]]:
        """Return what the toy stages have noted: fresh or again, kind, fingerprint, process."""
        file = self.log / "begun"
        text = file.read_text(encoding="utf-8") if file.exists() else ""
        return [line.split() for line in text.splitlines()]

    def check_kept(self, before: dict[str, bytes]) -> None:
        """Fail where a stage that was stored is not there any more, or is another."""
        assert self.stored().items() >= before.items(), "a stage is lost"

    def check_store(self, calm: Calm) -> None:
        """Fail where the store is not what it would be had nothing happened."""
        assert self.outputs() == calm.outputs
        store = Store(self.work / "store")
        for name in calm.outputs:
            store.open(name)
        self.check_once()

    def ends_as(self, calm: Calm, *command: str) -> None:
        """Run a command to its end; fail where anything is not as if nothing had happened."""
        before = self.stored()
        self.call(*command).check_as(calm)
        self.check_kept(before)
        self.check_store(calm)

    def check_once(self) -> None:
        """Fail where a stage was computed that was there, or was being computed."""
        again = [line for line in self.begun() if line[0] == toy_world.AGAIN]
        assert not again, "stages were computed twice"

    def kill_somehow(
        self,
        running: Running,
        seconds: float,
        how_far: Callable[[], int],
        only: signal.Signals | None = None,
    ) -> bool:
        """Kill a command at a random moment; return whether it got the signal.

        The moment is one of time, of so many seconds undisturbed, or a little after a number of
        things have happened (`how_far`). The signal is a random one where not given.
        """
        began, dice = time.monotonic(), self.dice
        whom, number = dice.choice(WHOM), only or dice.choice(SIGNALS)
        if dice.random() < 0.5:
            moment = dice.random() * seconds
            came = running.wait_until(lambda: time.monotonic() - began > moment)
        else:
            wanted, later = how_far() + dice.randrange(1, 12), dice.random() * 0.03
            came = running.wait_until(lambda: how_far() >= wanted)
            time.sleep(later)
        got = came and running.kill(whom, number)
        print(f"{number.name} to {whom} after {time.monotonic() - began:.2f} s: {got}")
        return got

    def die_within(self, who: str, most: int) -> dict[str, Any]:
        """Return the environment of a command that kills itself at a file operation."""
        number = round(most ** self.dice.random())  # each order of magnitude as often
        print(f"SIGKILL within the {who} at its file operation {number}")
        return {"TOY_DIES": f"{who}:{number}:{self.folder / f'died-{next(self._deaths)}'}"}


def rounds(quick: int) -> list[Any]:
    """Return the rounds of a scenario in both forms: the seed behind each, and its number."""
    seed = os.environ.get("HARNESS_FAULTS_SEED", "0")
    marks = [pytest.mark.faults, pytest.mark.timeout(0)]
    many = range(int(os.environ.get("HARNESS_FAULTS_ROUNDS", "10")))
    return [
        *(pytest.param(("quick", number), id=f"quick-{number}") for number in range(quick)),
        *(pytest.param((seed, number), id=f"long-{seed}-{number}", marks=marks) for number in many),
    ]


def without_times(said: Any) -> Any:
    """Return what a command printed, without what depends on when it was run."""
    if isinstance(said, list):
        return [without_times(item) for item in said]
    timed = ("started", "ended", "seconds", "mlflow_run", "reused", "computed", "number", "storage")
    if isinstance(said, dict):
        return {name: without_times(item) for name, item in said.items() if name not in timed}
    return said
