"""Neighbours on one machine: other users, and containers that share a folder, mean no good.

A neighbour can write where everybody can, and chooses names. Nothing of it may run, nothing of
one's own may be overwritten or torn.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from scene import ROOT, Scene, rounds

WRITER = """
import os, sys
os.getpid = lambda: 7
from pathlib import Path
from harness.runtime.files import write_whole
for number in range(int(sys.argv[3])):
    write_whole(Path(sys.argv[1]), sys.argv[2] * 10_000)
"""

WAITER = """
from harness.errors import UserError
from harness.serving.servers import alone_on_gpus
try:
    with alone_on_gpus(lambda seconds: None):
        raise AssertionError
except UserError as error:
    assert "you alone can write" in str(error)
"""


def python(code: str, *arguments: object, folder: Path, **more: str) -> subprocess.Popen[str]:
    """Start Python with the harness on its path."""
    return subprocess.Popen(
        [sys.executable, "-c", code, *map(str, arguments)],
        env={**os.environ, "PYTHONPATH": str(ROOT), **more},
        cwd=folder,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.mark.parametrize("scene", rounds(2), indirect=True)
def test_neighbours_that_leave_links_where_servers_take_turns(scene: Scene) -> None:
    """Whoever waits for a GPU makes no file where they lead, and says whose folder it is."""
    shared, own = scene.folder / "shared", scene.folder / "own"
    for folder in (shared, own):
        folder.mkdir()
    place = shared / f"harness-{os.getuid()}"
    if scene.dice.random() < 0.5:
        place.symlink_to(own)
    else:
        place.mkdir()
        place.chmod(0o777)
    waiter = python(WAITER, folder=scene.folder, TMPDIR=str(shared))
    _, errors = waiter.communicate()
    assert (waiter.returncode, list(own.iterdir())) == (0, []), errors


def test_neighbours_of_the_same_process_number(scene: Scene) -> None:
    """Containers that share a folder number their processes alike; each file is one writer's."""
    folder, number = scene.folder / "shared", 300 if scene.is_long else 50
    folder.mkdir()
    path = folder / "file"
    writers = [python(WRITER, path, letter, number, folder=folder) for letter in "abcd"]
    while any(writer.poll() is None for writer in writers):
        text = path.read_text() if path.exists() else "-" * 10_000
        assert text == text[0] * 10_000, "a file is torn"
    ended = [(writer.communicate()[1], writer.returncode) for writer in writers]
    assert ended == [("", 0)] * len(writers)
    assert list(folder.iterdir()) == [path]
