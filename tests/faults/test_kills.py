"""Whatever is killed, whenever: what was done is neither lost nor done again; a rerun is whole."""

import json
import shutil
from pathlib import Path
from typing import Any

from judging import Asked
from mlflow_runs import held, new_database
from scene import ROWS, RUN, Calm, Scene

ONLINE = ("run", "table1", "--rows", "rloo-1x,rloo-eva-1x", "--seeds", "0", "--jobs", "2", "--json")
SYNC = ("sync", "table4")
SWEEP = ("sweep", "run", "toy", "--json")
PUBLISHED = [("report", *ROWS, seeds, "--publish") for seeds in ("0", "0-1")]

WITHIN = {"parent": 40, "worker": 250}
"""File operations of a process of a toy run, roughly."""


def disturbed(scene: Scene, command: tuple[str, ...], calm: Calm, kills: int) -> None:
    """Kill a command again and again, and look each time that what was stored stays."""
    for _ in range(kills):
        before = scene.stored()
        if scene.dice.random() < 0.5:
            who = scene.dice.choice(list(WITHIN))
            scene.call(*command, **scene.die_within(who, WITHIN[who]))
        else:
            running = scene.start(*command)
            scene.kill_somehow(running, calm.seconds, lambda: len(scene.begun()))
            running.end()
        scene.check_kept(before)


def computes(scene: Scene, command: tuple[str, ...], kills: int) -> None:
    """Play a round of a command that computes stages: killed, it ends as the calm one did."""
    calm = scene.calm(*command)
    disturbed(scene, command, calm, kills)
    scene.ends_as(calm, *command)


def test_kills_of_runs_offline(scene: Scene) -> None:
    computes(scene, RUN, kills=2 + 2 * scene.is_long)


def test_kills_of_runs_online(scene: Scene) -> None:
    computes(scene, ONLINE, kills=1 + 2 * scene.is_long)


def test_kills_of_sweeps(scene: Scene) -> None:
    """A trial of a killed process is done again; what it had computed is not."""
    calm = scene.calm(*SWEEP)
    jobs = scene.dice.choice("12") if scene.is_long else "1"
    disturbed(scene, (*SWEEP, "--jobs", jobs), calm, kills=1 + scene.is_long)
    done = scene.call(*SWEEP).well()
    scene.check_store(calm)
    assert values(done.json) == values(calm.done.json)
    assert done.json["benchmarks"] == calm.done.json["benchmarks"]


def values(said: Any) -> dict[str, Any]:
    complete = [trial for trial in said["trials"] if trial["state"] == "complete"]
    return {json.dumps(trial["params"]): trial["values"] for trial in complete}


def test_kills_of_evaluations(scene: Scene) -> None:
    """A reply that is kept stays kept and is not paid again."""
    with Asked(scene, questions=20) as asked:
        for _ in range(2):
            kept, seen = asked.kept(), dict(asked.server.seen)
            running = scene.start(*asked.command)
            scene.kill_somehow(running, 3.0, lambda: asked.server.requests)
            running.end()
            asked.check_kept(kept, seen)
        asked.goes_on()
        assert len(asked.kept()) == asked.requests


def published(results: Path) -> dict[str, bytes]:
    """Return the files of the published table, by name."""
    return {path.name: path.read_bytes() for path in files_of(results)}


def files_of(results: Path) -> list[Path]:
    return sorted((results / "micro" / "table4").glob("*"))


def test_kills_of_publications(scene: Scene) -> None:
    """What a killed publication leaves is what was there before or what it was to be."""
    work, before, after = scene.once("published twice", twice)
    whole = [published(before), published(after)]
    assert len(whole[0]) == len(whole[1]) == 5
    shutil.copytree(work, scene.work)
    for _ in range(1 + 3 * scene.is_long):
        shutil.rmtree(scene.results, ignore_errors=True)
        shutil.copytree(before, scene.results)
        if scene.dice.random() < 0.7:
            scene.call(*PUBLISHED[1], **scene.die_within("parent", 40))
        else:
            running = scene.start(*PUBLISHED[1])
            scene.kill_somehow(running, 3.0, lambda: len(files_of(scene.results)))
            running.end()
        found = published(scene.results)
        assert found in whole, f"a publication is torn: {sorted(found)}"
        scene.call(*PUBLISHED[1]).well()
        assert published(scene.results) == whole[1]
        left = list(scene.results.glob("*/.*"))
        assert not left, f"left behind by a killed publication: {left}"


def twice(scene: Scene) -> tuple[Path, Path, Path]:
    """Publish one seed and then two; return the work folder and the results after each."""
    before = scene.folder / "before"
    scene.call("run", *ROWS, "0-1").well()
    for command in PUBLISHED:
        scene.call(*command).well()
        if not before.exists():
            shutil.copytree(scene.results, before)
    return scene.work, before, scene.results


def test_kills_of_sync(scene: Scene) -> None:
    """MLflow holds in the end what it holds when one sync wrote it, each run once."""
    calm = scene.calm(*RUN)
    shutil.copytree(calm.scene.work, scene.work)
    uri: dict[str, Any] = {"MLFLOW_TRACKING_URI": new_database(scene)}
    expected = scene.once("synced", lambda other: calmly(calm, other))
    for _ in range(1 + scene.is_long):
        running = scene.start(*SYNC, **uri)
        scene.kill_somehow(running, 6.0, lambda: 0)
        running.end()
    scene.call(*SYNC, **uri).well()
    runs = held(uri["MLFLOW_TRACKING_URI"])
    assert runs
    assert all(len(found) == 1 for found in runs.values()), runs
    assert runs == expected


def calmly(calm: Calm, other: Scene) -> Any:
    other.work = calm.scene.work
    other.told["MLFLOW_TRACKING_URI"] = uri = new_database(other)
    other.inside(*SYNC).well()
    return held(uri)
