"""Table 4 by one command whose servers the harness starts, shares and stops itself.

The servers are stand-ins in the place of vLLM; every stage, request and process is real. The real
vLLM, where it is installed, has a test of its own.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
from collections import Counter
from contextlib import suppress
from pathlib import Path

import psutil
import pytest
from running import FAKE_ENGINES, bare, ran

from stand_in.profiles import write_profile

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]

pytestmark = pytest.mark.timeout(900)

SERVER = {"engine": "vllm", "dtype": "float32", "max_length": 512, "gpu_memory": 0.9}
ROWS = "eva-a_min"


@pytest.fixture
def profile(tmp_path: Path) -> Path:
    """Return the profile of the stand-ins, served by the harness."""
    serving = {
        "policy": {**SERVER, "at_once": 64},
        "creator": {**SERVER, "model": "stand-in/creator"},
        "judge": {**SERVER, "model": "stand-in/judge"},
    }
    return write_profile(tmp_path, "served", engine="vllm", serving=serving)


@pytest.fixture
def served(made: Path, tmp_path: Path) -> dict[str, str]:
    """Return the environment of a user who has models, benchmarks and an engine, and no server."""
    models = tmp_path / "models"
    shutil.copytree(made / "models", models)
    for name in ("creator", "judge"):
        shutil.copytree(models / "stand-in" / "gemma-2", models / "stand-in" / name)
    for folder in made.glob("stand-in-*"):
        shutil.copytree(folder, tmp_path / "work" / folder.name)
    return {
        **bare("HARNESS_", "MLFLOW_"),
        "PYTHONPATH": os.pathsep.join(map(str, (ROOT, ROOT / "tests", FAKE_ENGINES))),
        "STAND_IN_SERVED": "1",
        "HARNESS_WORK": str(tmp_path / "work"),
        "HARNESS_MODELS": str(models),
        "HARNESS_BENCHMARKS": str(made / "benchmarks"),
        "HARNESS_VLLM_PYTHON": sys.executable,
        "FAKE_STARTS": str(tmp_path / "starts"),
        "CUDA_VISIBLE_DEVICES": "",
        "TMPDIR": str(tmp_path),
    }


def starting(profile: Path, *more: str) -> list[str]:
    asked = ("run", "table4", "--profile", str(profile), "--rows", ROWS, "--seeds", "0")
    return [str(HERE / "command.py"), *asked, *more]


def completes(command: list[str], served: dict[str, str]) -> None:
    """Run a command to its end; fail where not all has a number."""
    cells = json.loads(ran(*command, env=served).stdout)["items"]
    assert Counter(cell["state"] for cell in cells)["ok"] >= 5


def starts(served: dict[str, str]) -> list[str]:
    """Return the models that servers were started with, in order; a policy as `policy`."""
    lines = written(served).splitlines()
    names = [line.split()[1] for line in lines if line.startswith("starts ")]
    return ["policy" if name.startswith("policy-") else name for name in names]


def left_behind(served: dict[str, str]) -> list[str]:
    """Return the servers that still run."""
    lines = written(served).splitlines()
    numbers = {int(line.split()[2]) for line in lines}
    return [str(n) for n in numbers if psutil.pid_exists(n)]


def test_one_command_starts_shares_and_stops_every_server(
    profile: Path, served: dict[str, str]
) -> None:
    """The first iteration's policy answers before and after the creator; others load once."""
    completes(starting(profile, "--json", "--jobs", "1"), served)
    first, trained, creator, again, last, judge = starts(served)
    assert (first, creator, judge) == ("stand-in/gemma-2", "stand-in/creator", "stand-in/judge")
    assert {trained, again, last} == {"policy"}
    assert left_behind(served) == []


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_killed_at_five_places_the_same_command_goes_on_and_leaves_no_server(
    profile: Path, served: dict[str, str], tmp_path: Path
) -> None:
    """While a server starts, while one answers, by Ctrl-C, the engine itself, and at the end."""
    places = [
        ("starts stand-in/gemma-2", signal.SIGKILL),
        ("ready policy-", signal.SIGKILL),
        ("starts stand-in/creator", signal.SIGINT),
        ("ready stand-in/creator", None),
        ("ready stand-in/judge", signal.SIGKILL),
    ]
    for place, how in places:
        Path(served["FAKE_STARTS"]).unlink(missing_ok=True)
        with (tmp_path / "printed").open("wb") as printed:
            running = subprocess.Popen(
                [sys.executable, *starting(profile)],
                stdout=printed,
                stderr=subprocess.STDOUT,
                env=served,
                start_new_session=True,
            )
        while place not in written(served) and running.poll() is None:
            with suppress(subprocess.TimeoutExpired):
                running.wait(0.05)
        said = (tmp_path / "printed").read_text(encoding="utf-8", errors="replace")
        assert place in written(served), f"the command ended before it was killed: {said}"
        if how is None:  # the engine, and then whoever asks it
            line = next(x for x in written(served).splitlines() if x.startswith(place))
            with suppress(ProcessLookupError):
                os.kill(int(line.split()[2]), signal.SIGKILL)
            how = signal.SIGKILL
        running.send_signal(how)
        ended = running.wait()
        assert ended == 130 or how != signal.SIGINT
        wait_for_the_end(served)
    completes(starting(profile, "--json"), served)
    assert left_behind(served) == []


def written(served: dict[str, str]) -> str:
    file = Path(served["FAKE_STARTS"])
    return file.read_text(encoding="utf-8") if file.exists() else ""


def wait_for_the_end(served: dict[str, str]) -> None:
    """Wait until the servers of a run that was killed have ended, each by its supervisor."""
    for number in left_behind(served):
        with suppress(psutil.NoSuchProcess):
            psutil.Process(int(number)).wait(120)
