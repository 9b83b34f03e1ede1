"""Neighbours on one machine: containers that share a folder tear nothing."""

from typing import Any

from scene import Scene

WRITER = """
import os, sys
os.getpid = lambda: 7
from pathlib import Path
from harness.runtime.files import write_whole
for number in range(int(sys.argv[3])):
    write_whole(Path(sys.argv[1]), sys.argv[2] * 10_000)
"""


def test_neighbours_of_the_same_process_number(scene: Scene, spawn: Any) -> None:
    """Containers that share a folder number their processes alike; each file is one writer's."""
    folder, number = scene.folder / "shared", 300 if scene.is_long else 50
    folder.mkdir()
    path = folder / "file"
    writers = [spawn("-c", WRITER, path, letter, number) for letter in "abcd"]
    while any(writer.poll() is None for writer in writers):
        text = path.read_text() if path.exists() else "-" * 10_000
        assert text == text[0] * 10_000, "a file is torn"
    ended = [(writer.communicate()[1], writer.returncode) for writer in writers]
    assert ended == [("", 0)] * len(writers)
    assert list(folder.iterdir()) == [path]
