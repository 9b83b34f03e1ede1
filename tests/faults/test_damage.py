"""One file of the store or of the published results is damaged: it is found, and named."""

import json
import os
import random
import shutil
from collections.abc import Callable
from pathlib import Path

from scene import ROWS, RUN, Done, Scene

REPORT = ("report", *ROWS, "0", "--json")

Damage = Callable[[bytes, random.Random], bytes]


def flip(data: bytes, dice: random.Random) -> bytes:
    """Turn one bit around."""
    at = dice.randrange(len(data))
    return data[:at] + bytes([data[at] ^ 1 << dice.randrange(8)]) + data[at + 1 :]


def scribble(data: bytes, dice: random.Random) -> bytes:
    """Write over some bytes in a row."""
    at = dice.randrange(len(data))
    return data[:at] + dice.randbytes(len(data[at : at + 16])) + data[at + 16 :]


def cut(data: bytes, dice: random.Random) -> bytes:
    return data[: dice.randrange(len(data))]


def grow(data: bytes, dice: random.Random) -> bytes:
    return data + dice.randbytes(dice.randrange(1, 9))


def nest(data: bytes, dice: random.Random) -> bytes:
    """Put something in its place that is deep, or has a number too long to read."""
    texts = (b"[" * 100_000, b'{"a":' * 50_000, b"9" * 5000, b'{"files": {"x": 5}}', b"\xff\xfe")
    return dice.choice(texts)


OF_CONTENT = (flip, flip, flip, scribble, cut, cut, grow, nest)
"""Ways in which the content of a file is damaged."""

OF_PLACE: dict[str, Callable[[Path], object]] = {
    "removed": lambda path: None,
    "link": lambda path: path.symlink_to("/etc/hostname"),
    "dead link": lambda path: path.symlink_to("nowhere"),
    "folder": Path.mkdir,
    "pipe": os.mkfifo,
}
"""What is there in the place of a file."""


def damaged(path: Path, dice: random.Random, *, content: bool = False) -> str:
    """Damage a file so that it says something else than before; return how."""
    before, ways = path.read_bytes(), list(OF_CONTENT)
    if not before:
        ways = [grow, nest]
    place = None if content else dice.choice([None, None, *OF_PLACE])
    if place is not None:
        path.unlink()
        OF_PLACE[place](path)
        return place
    after = before
    while same(before, after, path.suffix):
        after = dice.choice(ways)(before, dice)
    path.chmod(0o644)
    path.write_bytes(after)
    return "other content"


def same(before: bytes, after: bytes, suffix: str) -> bool:
    """Return whether two contents of a file are equal, or are the same JSON otherwise written."""
    try:
        return before == after or (
            suffix == ".json" and bool(json.loads(before) == json.loads(after))
        )
    except (ValueError, RecursionError):
        return False


def any_file(root: Path, dice: random.Random) -> Path:
    """Return a file under a folder: first its name is drawn, so that rare kinds come as often."""
    by_name: dict[str, list[Path]] = {}
    for path in sorted(root.rglob("*")):
        if path.is_file() and not path.name.startswith("."):
            by_name.setdefault(path.name, []).append(path)
    return dice.choice(by_name[dice.choice(sorted(by_name))])


def put_back(path: Path, whole: Path) -> None:
    """Put the undamaged file where the damaged one is."""
    if path.is_dir() and not path.is_symlink():
        path.rmdir()
    else:
        path.unlink(missing_ok=True)
    shutil.copy2(whole, path)


def found(done: Done, names: tuple[str, ...]) -> bool:
    """Return whether a command named what is damaged."""
    said = " ".join((done.out + done.errors).split())
    return done.code != 0 and any(name in said for name in names)


def published(scene: Scene) -> Scene:
    """Return a scene with a table that is computed and published."""
    whole = scene.calm(*RUN).scene
    if not whole.results.exists():
        whole.call("report", *ROWS, "0", "--publish").well()
    return whole


def test_damage_to_the_store(scene: Scene) -> None:
    """`store --verify` names the stage, and a report names it too or has its usual numbers."""
    whole = published(scene)
    shutil.copytree(whole.work, scene.work)
    shutil.copytree(whole.results, scene.results)
    usual = scene.inside(*REPORT).well()
    missed = []
    for _ in range(8):
        path = any_file(scene.work / "store" / "stages", scene.dice)
        how = damaged(path, scene.dice)
        entry = path.relative_to(scene.work / "store" / "stages").parts[1]
        said = scene.inside("store", "--verify")
        if not found(said, (entry[:12],)):
            missed.append(f"{how} of {path.name} by verify: {said}")
        said = scene.inside(*REPORT)
        if said.out != usual.out and not (said.code and entry[:12] in said.errors):
            missed.append(f"{how} of {path.name} by report: {said.code} {said.errors}")
        put_back(path, whole.work / path.relative_to(scene.work))
    assert not missed, "\n".join(missed)


def test_damage_to_the_store_before_a_run(scene: Scene) -> None:
    """A run names the damaged stage and fails, or has the usual numbers."""
    whole = published(scene)
    shutil.copytree(whole.work, scene.work)
    usual = scene.inside(*REPORT)
    path = any_file(scene.work / "store" / "stages", scene.dice)
    entry = path.relative_to(scene.work / "store" / "stages").parts[1]
    how = damaged(path, scene.dice)
    more = scene.call("run", *ROWS, "0-1", "--jobs", "2", "--json")
    said = scene.call(*RUN)
    named = entry[:12] in more.errors or entry[:12] in said.errors
    usually = said.code == 0 and numbers(said) == numbers(usual)
    assert named or usually, f"{how} of {path.name}: {said.errors}"


def numbers(done: Done) -> list[object]:
    return [(cell["row"], cell["column"], cell["mean"], cell["gain"]) for cell in done.json]


def test_damage_to_what_is_published(scene: Scene) -> None:
    """`verify` names the table, or the file, that is not what was published."""
    whole = published(scene)
    shutil.copytree(whole.results, scene.results)
    missed = []
    for _ in range(12):
        path = any_file(scene.results, scene.dice)
        how = damaged(path, scene.dice)
        inside = path.relative_to(scene.results)
        done = scene.inside("verify")
        if not found(done, (path.name, str(inside.parent), inside.parent.name)):
            missed.append(f"{how} of {inside}: {done}")
        put_back(path, whole.results / inside)
    scene.inside("verify").well()
    assert not missed, "\n".join(missed)
