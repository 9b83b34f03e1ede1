"""Disks that are full or read-only: one sentence, and nothing lost once there is room."""

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from judging import Asked
from scene import ROWS, RUN, Done, Scene

MORE = ("run", *ROWS, "0-1", "--jobs", "2", "--json")
REPORT = ("report", *ROWS, "0", "--json")
FULL = ("disk is full", "No space left")


@contextmanager
def disk(scene: Scene, pages: int) -> Iterator[None]:
    """Mount a small disk at the work folder; skip where this user may not."""
    if os.geteuid() != 0:
        pytest.skip("a disk of its own is mounted by root alone")
    scene.work.mkdir()
    mounted = _run("mount", "-t", "tmpfs", "-o", _size(pages), "tmpfs", str(scene.work))
    if mounted.returncode != 0:
        pytest.skip(f"no disk can be mounted here: {mounted.stderr.strip()}")
    try:
        yield
    finally:
        _run("umount", "-l", str(scene.work))


def _size(pages: int) -> str:
    return f"size={4 * pages}k,nr_inodes=100000"


def _run(*command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, capture_output=True, text=True, check=False)


def remount(scene: Scene, options: str) -> None:
    """Change the disk that is mounted."""
    done = _run("mount", "-o", f"remount,{options}", str(scene.work))
    assert done.returncode == 0, done.stderr


def says_full(done: Done) -> None:
    """Fail where a command does not say that the disk is full."""
    assert any(words in done.errors for words in FULL), done
    assert "worker died" not in done.errors, done.errors


def test_full_disks_of_runs(scene: Scene) -> None:
    """The cause is named, and with more room the same command goes on to the usual end."""
    calm = scene.calm(*RUN)
    with disk(scene, scene.dice.randrange(2, 90)):
        done = scene.call(*RUN)
        if done.code == 0:  # there was room enough
            return
        says_full(done)
        before = scene.stored()
        says_full(scene.call(*RUN))
        remount(scene, _size(100_000))
        scene.ends_as(calm, *RUN)
        scene.check_kept(before)


def test_full_disks_of_evaluations(scene: Scene) -> None:
    """A reply that could not be kept is asked for again, the others are not."""
    with Asked(scene, questions=20) as asked, disk(scene, scene.dice.randrange(1, 10)):
        done = scene.call(*asked.command)
        if done.code != 0:
            says_full(done)
        remount(scene, _size(100_000))
        asked.goes_on()


def test_read_only_disks(scene: Scene) -> None:
    """What is there is still reported; what would write says in a sentence that it cannot."""
    calm = scene.calm(*RUN)
    with disk(scene, 100_000):
        shutil.copytree(calm.scene.work, scene.work, dirs_exist_ok=True)
        usual = scene.call(*REPORT)
        remount(scene, "ro")
        done = scene.call(*REPORT)
        assert (done.code, done.out) == (usual.code, usual.out), done.errors
        done = scene.call(*MORE)
        assert done.code != 0
        assert "read-only" in done.errors, done.errors
        for other in ("plan table4", "claims table4", "store --verify"):
            scene.inside(*other.split())  # whatever it says, it is no traceback
