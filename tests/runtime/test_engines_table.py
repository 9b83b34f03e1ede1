"""A table through the command line on every engine: the same files, to the byte.

The stand-in profile serves its judge on loopback, which all nodes share here.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from importlib.util import find_spec
from pathlib import Path

import pytest
import slurm_cluster

from harness.runtime import Store

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]


@contextmanager
def slurm(folder: Path) -> Iterator[None]:
    """Run a Slurm, to which the commands of this process speak."""
    why_not = slurm_cluster.why_not()
    if why_not is not None:
        pytest.skip(why_not)
    with slurm_cluster.running(folder) as conf, pytest.MonkeyPatch.context() as patch:
        patch.setenv("SLURM_CONF", str(conf))
        yield


def digests(work: Path) -> dict[str, dict[str, str]]:
    """Return the digests of all files of all stages in a work folder's store."""
    return {
        manifest["fingerprint"]: {name: f["sha256"] for name, f in manifest["files"].items()}
        for manifest in Store(work / "store").stages()
    }


def run(work: Path, engine: str) -> dict[str, dict[str, str]]:
    """Run two rows of table 4 by the command line; return what is in the store then."""
    asked = [
        "table4",
        "--profile",
        "stand-in",
        "--rows",
        "eva-a_min",
        "--seeds",
        "0",
        "--jobs",
        "2",
    ]
    done = subprocess.run(
        [sys.executable, "-m", "harness.cli.main", "run", *asked, "--engine", engine],
        env={**os.environ, "HARNESS_WORK": str(work)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return digests(work)


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, str]]:
    """Return what the local engine computes."""
    return run(tmp_path_factory.mktemp("local"), "local")


@pytest.mark.parametrize("engine", ["ray", "slurm"])
def test_a_table_is_the_same_on_every_engine(
    engine: str, here: dict[str, dict[str, str]], tmp_path: Path
) -> None:
    if engine == "ray" and find_spec("ray") is None:
        pytest.skip("the extra `ray` is not installed")
    with slurm(tmp_path / "slurm") if engine == "slurm" else nullcontext():
        assert run(tmp_path / "work", engine) == here
