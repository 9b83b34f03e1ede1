"""A whole table through the command line on every engine: the same files, to the byte.

The stand-in profile serves its judge on loopback, which all nodes share here.
"""

import os
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest
from clusters import needs_ray, two_nodes
from stand_in.profiles import write_profile

from harness.runtime import Store

pytestmark = [pytest.mark.slow, pytest.mark.timeout(3600)]

STAND_IN = Path(__file__).resolve().parents[1] / "stand_in"

Digests = dict[str, dict[str, str]]


def start(work: Path, engine: str, *more: str) -> subprocess.Popen[str]:
    """Start table 4 with one seed by the command line: 118 stages."""
    profile = str(write_profile(work))
    asked = ["table4", "--profile", profile, "--seeds", "0", "--engine", engine, *more]
    return subprocess.Popen(
        [sys.executable, str(STAND_IN / "command.py"), "run", *asked],
        env={**os.environ, "HARNESS_WORK": str(work)},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def digests(work: Path, running: subprocess.Popen[str]) -> Digests:
    """Wait for the end; return the digests of all files of all stages in the store then."""
    said, _ = running.communicate()
    assert running.returncode == 0, said
    return {
        manifest["fingerprint"]: {name: f["sha256"] for name, f in manifest["files"].items()}
        for manifest in Store(work / "store").stages()
    }


def stored(work: Path) -> dict[str, bytes]:
    """Return the manifests of what is stored by now, as bytes."""
    return {
        path.parent.name: path.read_bytes() for path in work.glob("store/stages/*/*/stage.json")
    }


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Digests:
    """Return what the local engine computes."""
    work = tmp_path_factory.mktemp("local")
    found = digests(work, start(work, "local", "--jobs", "2"))
    assert len(found) == 118
    return found


@needs_ray
def test_a_table_is_the_same_on_ray(here: Digests, tmp_path: Path) -> None:
    work = tmp_path / "work"
    assert digests(work, start(work, "ray", "--jobs", "2")) == here


@needs_ray
def test_a_table_outlives_a_node_of_a_cluster(here: Digests, tmp_path: Path) -> None:
    """One of two nodes is killed at the middle; what was stored by then stays."""
    work = tmp_path / "work"
    with two_nodes() as cluster:
        running = start(work, "ray", "--ray-address", cluster.address)
        while len(stored(work)) < len(here) // 2 and running.poll() is None:
            with suppress(subprocess.TimeoutExpired):
                running.wait(0.2)
        cluster.remove_node(next(iter(cluster.worker_nodes)), allow_graceful=False)
        before = stored(work)
        assert digests(work, running) == here
    assert before.items() <= stored(work).items()
    assert len(here) // 2 <= len(before) < len(here)
