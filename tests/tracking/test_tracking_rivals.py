"""Work folders that share a database or a server: one MLflow run for each run and row."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections import Counter
from contextlib import nullcontext
from pathlib import Path

import pytest
from mlflow import MlflowClient
from mlflow.entities import Run
from toy_table import SERVED, contents, filled, mark, stages, toy_cells, toy_runs, write

from harness.runtime import Store
from harness.tracking import TableState, Tracker
from harness.tracking.connection import Connection, default_uri, folder_id
from harness.tracking.record import FOLDER, ID, SEEN

ROOT = Path(__file__).resolve().parents[2]
RUNS = toy_runs((0,))
STATE = TableState(RUNS, toy_cells())
RIVALS = 3
FIRST = "runs/micro | dpo-h1 · seed 0"

RIVAL = """
import sys
from contextlib import nullcontext
from pathlib import Path
here, work, uri, way = sys.argv[1:]
sys.path.insert(0, here)
from test_tracking_live import compute
from toy_table import SERVED, filled, stages, toy_cells, toy_runs
from harness.runtime import Store
from harness.tracking import TableState, Tracker
from harness.tracking.connection import Connection
runs, store = toy_runs((0,)), Store(Path(work) / "store")
state = TableState(runs, toy_cells())
ours = Tracker(Path(work), store, SERVED, uri=uri, flush_s=0.0)
if way == "server":
    Connection._lock = lambda _: nullcontext()
    filled(store.root, runs)
print("ready", flush=True)
sys.stdin.readline()
if way == "server":
    ours.sync([state])
else:
    ours.start([runs])
    for stage in stages(runs):
        compute(ours, store, stage)
    ours.finish(lambda: [state], timeout_s=120)
"""


@pytest.mark.parametrize("way", ["database", "server"])
def test_several_processes_create_one_run_of_each(
    way: str, tmp_path: Path, empty_database: Path
) -> None:
    """On a database, live; and without its lock, as on a server, at one blow."""
    shutil.copyfile(empty_database, tmp_path / "mlflow.db")
    uri = default_uri(tmp_path)
    command = [sys.executable, "-c", RIVAL, str(Path(__file__).parent)]
    rivals = [
        subprocess.Popen(
            [*command, str(tmp_path / str(number)), uri, way],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={"PYTHONPATH": str(ROOT), "PATH": "", "OMP_NUM_THREADS": "1"},
        )
        for number in range(RIVALS)
    ]
    for rival in rivals:
        assert rival.stdout is not None
        assert rival.stdout.readline() == "ready\n"
    said = [rival.communicate("go\n") for rival in rivals]
    assert [rival.returncode for rival in rivals] == [0] * RIVALS, said
    assert said == [("", "")] * RIVALS
    found = contents(tmp_path)  # no name is there twice
    assert len(found) == 6
    whole = {name: run for name, run in found.items() if name.startswith("runs/")}
    assert {run["info"][0] for run in whole.values()} == {"FINISHED"}
    for run in whole.values():
        assert [step for step, *_ in run["metrics"]["iter1/loss"]] == [1, 2, 3]
        assert len(run["metrics"]["ours/ah_wr"]) == 1
    # And each of them is content with that.
    for number in range(RIVALS):
        work = tmp_path / str(number)
        Tracker(work, Store(work / "store"), SERVED, uri=uri).sync([TableState(RUNS, [])])
    assert Counter(contents(tmp_path).keys()) == Counter(found.keys())
    assert {name: contents(tmp_path)[name] for name in whole} == whole


@pytest.fixture
def uri(tmp_path: Path, empty_database: Path) -> str:
    shutil.copyfile(empty_database, tmp_path / "mlflow.db")
    return default_uri(tmp_path)


def held(uri: str, name: str = "dpo-h1 · seed 0") -> Run:
    client = MlflowClient(uri)
    experiment = client.get_experiment_by_name("runs/micro").experiment_id
    (found,) = [r for r in client.search_runs([experiment]) if r.info.run_name == name]
    return found


def test_a_whole_run_of_another_work_folder_stands_until_it_lacks_something(
    tmp_path: Path, uri: str
) -> None:
    """Times and costs differ between two work folders; a score that one lacks does not."""
    state = TableState(RUNS, [])
    first, second = (
        Tracker(tmp_path / name, filled(tmp_path / name / "store", RUNS), SERVED, uri=uri)
        for name in ("a", "b")
    )
    assert first.sync([state]) == {"created": 2}
    before = contents(tmp_path)
    assert second.sync([state]) == {"kept": 2}
    assert first.sync([state]) == {"unchanged": 2}
    assert contents(tmp_path) == before
    assert held(uri).data.tags[FOLDER] == folder_id(tmp_path / "a")
    MlflowClient(uri).delete_tag(held(uri).info.run_id, "stage.arena_hard")
    assert second.sync([state]) == {"kept": 1, "replaced": 1}
    assert held(uri).data.tags[FOLDER] == folder_id(tmp_path / "b")


def test_a_run_that_another_work_folder_computes_is_left_to_it(tmp_path: Path, uri: str) -> None:
    """Until we have it whole, or it gives no sign of life any more."""
    state = TableState(RUNS, [])
    theirs = Store(tmp_path / "a" / "store")
    write(theirs, stages(RUNS)[0])
    computing = mark(tmp_path / "a", RUNS)
    Tracker(tmp_path / "a", theirs, SERVED, uri=uri).sync([state])
    assert (held(uri).info.status, SEEN in held(uri).data.tags) == ("RUNNING", True)
    ours = Store(tmp_path / "b" / "store")
    write(ours, stages(RUNS)[0])
    also = mark(tmp_path / "b", RUNS)
    second = Tracker(tmp_path / "b", ours, SERVED, uri=uri)
    assert second.sync([state]) == {"kept": 2}
    MlflowClient(uri).set_tag(held(uri).info.run_id, SEEN, "1000")
    assert second.sync([state]) == {"replaced": 1, "kept": 1}
    assert held(uri).data.tags[FOLDER] == folder_id(tmp_path / "b")
    for stage in stages(RUNS):
        if theirs.status(stage.fingerprint) != "done":
            write(theirs, stage)
    Tracker(tmp_path / "a", theirs, SERVED, uri=uri).sync([state])
    assert (held(uri).info.status, SEEN in held(uri).data.tags) == ("FINISHED", False)
    assert held(uri).data.tags[FOLDER] == folder_id(tmp_path / "a")
    computing.close()
    also.close()


def test_of_two_that_find_nothing_and_create_one_is_left(
    tmp_path: Path, uri: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other looks, creates and writes between our looking and our creating."""
    for name in ("a", "b"):
        filled(tmp_path / name / "store", RUNS)
    first, second = (
        Tracker(tmp_path / name, Store(tmp_path / name / "store"), SERVED, uri=uri)
        for name in ("a", "b")
    )
    state, real = TableState(RUNS, []), MlflowClient.create_run
    monkeypatch.setattr(Connection, "_lock", lambda _: nullcontext())
    done: list[Counter[str]] = []

    def late(self: MlflowClient, *arguments: object) -> Run:
        if not done:
            done.append(Counter())
            done[0] += second.sync([state])
        return real(self, *arguments)  # type: ignore[arg-type]

    with monkeypatch.context() as patched:
        patched.setattr(MlflowClient, "create_run", late)
        changes = first.sync([state])
    assert done[0] == {"created": 2}
    assert sum(changes.values()) == 2
    assert contents(tmp_path).keys() == {FIRST, "runs/micro | dpo-eva-a_min · seed 0"}
    assert second.sync([state]).total() == 2
    assert {run["info"][0] for run in contents(tmp_path).values()} == {"FINISHED"}


def test_a_run_that_is_deleted_while_it_is_written_is_left_to_the_other(
    tmp_path: Path, uri: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another process creates one with an earlier start between our creating and our writing."""
    store = filled(tmp_path / "store", RUNS)
    client = MlflowClient(uri)
    server = Connection(tmp_path, uri).server()
    real = type(server)._create

    def overtaken(self: object, record: object) -> Run:
        run = real(self, record)  # type: ignore[arg-type]
        tags = {ID: run.data.tags[ID], FOLDER: "another"}
        client.create_run(run.info.experiment_id, run.info.start_time - 1, tags, "theirs")
        client.delete_run(run.info.run_id)
        return run

    with monkeypatch.context() as patched:
        patched.setattr(type(server), "_create", overtaken)
        ours = Tracker(tmp_path, store, SERVED, uri=uri)
        assert ours.sync([TableState(RUNS, [])]) == {"kept": 2}
    assert ours.sync([TableState(RUNS, [])]) == {"replaced": 2}
    assert held(uri).info.status == "FINISHED"
