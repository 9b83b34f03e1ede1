"""Sync: MLflow holds what the store holds, however often and wherever it is written."""

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from datetime import datetime
from pathlib import Path

import mlflow
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from mlflow import MlflowClient
from toy_identities import PROVENANCE, toy_planned
from toy_table import contents, filled, score, stages, toy_runs, toy_state, toy_tracker, write

from harness.registry.profile import Profile
from harness.registry.schema import Table
from harness.report.answer import answer_to
from harness.report.view import plain
from harness.runtime import Plan, Store
from harness.runtime.files import StoreError
from harness.tracking import Mlflow, TableState, TrackingError
from harness.tracking.connection import default_uri
from harness.tracking.runs import run_record, runs_of
from harness.tracking.tables import state_records

NewWorkDir = Callable[[str], Path]
RUNS = toy_runs((0,))
FIRST, EVA = "table4/micro | dpo-h1-seed0", "table4/micro | dpo-eva-a_min-seed0"
STATE = toy_state(RUNS)


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    return filled(tmp_path_factory.mktemp("full") / "store", RUNS)


def parent_of(client: MlflowClient, experiment: str) -> str:
    (run,) = client.search_runs([experiment], f"run_name = '{EVA.partition(' | ')[2]}'")
    return str(run.data.tags["mlflow.parentRunId"])


@pytest.fixture
def synced(store: Store, new_work_dir: NewWorkDir) -> Path:
    """Return a work folder whose database holds the store."""
    work = new_work_dir("synced")
    assert toy_tracker(work, store).sync([STATE]) == {"created": 4}
    return work


def test_a_run_says_all_about_itself(store: Store, synced: Path) -> None:
    """The score is the mean of s and s + 2, so s + 1; a point's time is start + step seconds.

    The eva run has two trainings of three steps, one curve of six; the first is the run `dpo-h1`'s.
    """
    found = contents(synced)
    assert set(found) == {FIRST, EVA, "table4/micro | dpo-1", "table4/micro | eva-a_min"}
    run, held = RUNS.runs["dpo-eva-a_min", 0], found[EVA]
    first = store.manifest(run.iterations[0].prompts.fingerprint)
    start = round(datetime.fromisoformat(first["started"]).timestamp() * 1000)
    assert held["info"][:2] == ["FINISHED", start]
    assert (held["parent"], found[FIRST]["parent"]) == ("eva-a_min", "dpo-1")
    judge = run.judged["arena_hard"]
    assert held["metrics"]["ours/ah_wr"] == [[0, start, repr(score(judge, "ah_wr") + 1)]]
    loss = held["metrics"]["train/loss"]
    assert [step for step, *_ in loss] == [1, 2, 3, 4, 5, 6]
    assert loss[1] == [2, start + 2000, "0.25"]
    assert loss[2] == [3, start + 3000, "nan"]
    assert loss[4] == [5, start + 5000, "0.25"]
    assert loss[:3] == found[FIRST]["metrics"]["train/loss"]
    assert {"train/rewards/margins", "train/grad norm _"} <= set(held["metrics"])
    wanted = {
        "row": "eva-a_min",
        "run": "dpo-eva-a_min",
        "seed": "0",
        "recipe.chain": "human, eva",
        "train.beta": str(RUNS.profile.training.of("dpo").beta),  # type: ignore[union-attr]
    }
    wanted |= {"recipe.creator.metric": "a_min", "generate.n": "6"}
    assert wanted.items() <= held["params"].items()
    tags = {"label": plain(RUNS.table.row("eva-a_min").label), "scale": "toy"}
    tags |= {"dirty": "no", "judge": "toy-1/oracle"}
    tags |= {"reward_model": "toy-1/rm_pointwise@bb", "creator": "micro-4/evol_instruct"}
    assert tags.items() <= held["tags"].items()
    pairs = store.manifest(run.iterations[1].pairs.fingerprint)["files"]["pairs.parquet"]["sha256"]
    assert ["2/pairs", pairs[:16]] in [dataset[:2] for dataset in held["datasets"]]


def test_a_run_is_a_whole_run_of_mlflows(synced: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Source, user, commit, data, and tables of judgments; its experiment says what it is."""
    client = MlflowClient(default_uri(synced))
    experiment = client.get_experiment_by_name("table4/micro")
    assert experiment.tags["mlflow.experimentKind"] == "custom_model_development"
    described = experiment.tags["mlflow.note.content"]
    assert RUNS.table.question in described
    assert STATE.results is not None
    for line in answer_to([STATE.results], STATE.results.verdicts).lines:
        assert line in described
    found = client.search_runs([experiment.experiment_id], "run_name = 'dpo-eva-a_min-seed0'")
    (run,) = found
    tags = run.data.tags
    assert tags["mlflow.source.git.commit"] == PROVENANCE["commit"]
    assert tags["mlflow.user"]
    assert tags["mlflow.source.name"] == "harness run table4 --rows eva-a_min --profile micro"
    monkeypatch.setenv("MLFLOW_TRACKING_URI", default_uri(synced))
    table = "judgments/toy-1/arena_hard@dd.json"
    frame = client.load_table(experiment.experiment_id, table, [run.info.run_id])
    assert list(frame.columns) == ["prompt_id", "ah_wr", "ah_len"]
    judged = score(RUNS.runs["dpo-eva-a_min", 0].judged["arena_hard"], "ah_wr")
    assert frame["ah_wr"].dropna().tolist() == [judged, judged + 2]
    dataset = run.inputs.dataset_inputs[0].dataset
    assert type(mlflow.data.get_source(dataset)).__name__ == "LocalArtifactDatasetSource"
    artifacts = {entry.path for entry in client.list_artifacts(run.info.run_id)}
    assert {"recipe.yaml", "judgments"} <= artifacts


def test_a_row_has_the_numbers_of_whole_cells_and_never_ours_minus_the_papers(synced: Path) -> None:
    row = contents(synced)["table4/micro | eva-a_min"]
    latest = {name: float(points[-1][2]) for name, points in row["metrics"].items()}
    costs = {name: latest.pop(name) for name in list(latest) if name.startswith("cost/")}
    assert costs.keys() == {"cost/wall_s", "cost/cpu_s"}
    assert latest == {
        "ours/ah_wr": 54.25,
        "ours/ah_wr_low": 52.0,
        "ours/ah_wr_high": 56.5,
        "gain/ah_wr": 1.5,
        "gain/ah_wr_low": 0.5,
        "gain/ah_wr_high": 2.5,
        "paper/ah_wr": 51.6,
        "paper/ah_wr_gain": 8.5,
        "paper/mt_avg": 8.9,
        "paper/mt_avg_gain": 0.24,
    }
    assert row["params"]["recipe.creator.metric"] == "a_min"
    assert row["params"]["run"] == "dpo-eva-a_min"
    states = {"seeds": "0", "order": "02", "label": plain(RUNS.table.row("eva-a_min").label)}
    assert states.items() <= row["tags"].items()
    assert row["info"][0] == "KILLED"


def test_our_numbers_come_before_the_papers(store: Store) -> None:
    """MLflow compares runs by what was logged first."""
    rows = [record for record in state_records(STATE, store) if record.parent is None]
    assert rows
    for row in rows:
        are_papers = [name.startswith("paper/") for name in row.scores]
        assert are_papers == sorted(are_papers)
        assert True in are_papers


def test_syncing_twice_changes_nothing_and_an_empty_server_gets_the_same(
    store: Store, synced: Path, new_work_dir: NewWorkDir
) -> None:
    before, second = contents(synced), new_work_dir("b")
    assert toy_tracker(synced, store).sync([STATE]) == {"unchanged": 4}
    assert contents(synced) == before
    toy_tracker(second, store).sync([STATE])
    assert contents(second) == before


def test_a_store_synced_as_it_grows_ends_like_one_synced_once(
    store: Store, tmp_path: Path, new_work_dir: NewWorkDir
) -> None:
    """Seen after every few stages: missing, failed, unfinished, and whole."""
    growing, once = new_work_dir("a"), new_work_dir("b")
    partial = Store(tmp_path / "growing")
    assert toy_tracker(growing, partial).sync([STATE]) == {}
    seen = set()
    for number, stage in enumerate(stages(RUNS)):
        if failed := number == 14:
            partial.record_failure(stage, "the loss is not a number", "")
        if number % 7 == 0:
            toy_tracker(growing, partial).sync([TableState(RUNS)])
            found = contents(growing).values()
            seen |= {run["info"][0] for run in found}
            failures = {run["tags"].get("failure") for run in found} - {None}
            assert not failed or failures == {f"{stage.label}: the loss is not a number"}
        write(partial, stage)
    assert seen == {"FAILED", "SCHEDULED", "FINISHED"}
    toy_tracker(growing, partial).sync([STATE])
    toy_tracker(once, partial).sync([STATE])
    assert contents(growing) == contents(once)


def test_numbers_that_have_changed_replace_the_row_and_leave_no_trace(
    store: Store, synced: Path, new_work_dir: NewWorkDir
) -> None:
    """A cell changes its value, and then lacks a seed: the first metric must not stay."""
    changed, direct = synced, new_work_dir("b")
    partial = dict.fromkeys(("mean", "ci_low", "ci_high", "gain", "gain_ci_low", "gain_ci_high"))
    for state in (toy_state(RUNS, mean=55.0), toy_state(RUNS, state="partial", **partial)):
        assert toy_tracker(changed, store).sync([state]) == {
            "replaced": 1,  # the row; its run is shown under the new one
            "unchanged": 3,
        }
    toy_tracker(direct, store).sync([state])
    assert contents(changed) == contents(direct)
    left = contents(changed)["table4/micro | eva-a_min"]["metrics"]
    assert not [name for name in left if name.startswith(("ours/", "gain/"))]


def test_runs_that_are_not_written_now_move_to_the_row_that_replaces_theirs(
    store: Store, synced: Path
) -> None:
    client = MlflowClient(default_uri(synced))
    place = client.get_experiment_by_name("table4/micro").experiment_id
    row = parent_of(client, place)
    tags = {"harness.id": "table4/micro | a run of before", "mlflow.parentRunId": row}
    before = client.create_run(place, 1, tags).info.run_id
    toy_tracker(synced, store).sync([toy_state(RUNS, mean=55.0)])
    assert parent_of(client, place) == client.get_run(before).data.tags["mlflow.parentRunId"] != row


def test_what_others_did_to_the_server_is_put_right(store: Store, synced: Path) -> None:
    """A second copy of a run, a deleted run, and an experiment deleted as a whole."""
    before = contents(synced)
    client = MlflowClient(default_uri(synced))
    place = client.get_experiment_by_name("table4/micro").experiment_id
    some, other = client.search_runs([place])[:2]
    client.create_run(place, some.info.start_time + 1, {"harness.id": some.data.tags["harness.id"]})
    client.delete_run(other.info.run_id)
    assert toy_tracker(synced, store).sync([STATE]) == {"created": 1, "unchanged": 3}
    assert contents(synced) == before
    client.delete_experiment(place)
    assert toy_tracker(synced, store).sync([STATE]) == {"unchanged": 4}
    assert contents(synced) == before


def test_segments_of_an_online_run_are_one_curve_over_its_steps(
    tables: dict[str, Table], micro: Profile, tmp_path: Path, new_work_dir: NewWorkDir
) -> None:
    table, profile = tables["table1"], micro.model_copy(update={"benchmarks": {}})
    runs = toy_planned(table, profile, (0,), [table.row("rloo-eva-2x")])
    first, second = runs.runs["rloo-eva-2x", 0].training
    assert [stage.settings["first_step"] for stage in (first, second)] == [1, 51]
    store, work = Store(tmp_path / "store"), new_work_dir("work")
    for stage in Plan([second]):
        write(store, stage)
    toy_tracker(work, store).sync([TableState(runs)])
    rewards = contents(work)["table1/micro | rloo-eva-2x-seed0"]["metrics"]["train/reward"]
    assert [step for step, *_ in rewards] == [1, 2, 3, 51, 52, 53]


def test_a_broken_stage_is_named_and_not_projected(
    store: Store, tmp_path: Path, new_work_dir: NewWorkDir
) -> None:
    broken = Store(shutil.copytree(store.root, tmp_path / "broken"))
    judge = RUNS.runs["dpo-h1", 0].judged["arena_hard"]
    (broken.path(judge.fingerprint) / "scores.parquet").write_bytes(b"cut off")
    with pytest.raises(StoreError, match=r"scores\.parquet has 7 bytes"):
        toy_tracker(new_work_dir("a"), broken).sync([STATE])


def test_two_processes_create_one_database(
    created_at_once: tuple[Path, list[int], list[str]],
) -> None:
    """Both find none; one creates it, the other waits, and neither says a word."""
    folder, exit_codes, said = created_at_once
    assert (exit_codes, said) == ([0, 0], ["", ""])
    assert list(MlflowClient(default_uri(folder)).search_experiments()) == []
    assert {path.name for path in folder.iterdir()} == {"mlflow.db", "mlflow.db.lock"}


def test_a_broken_database_is_one_sentence(store: Store, tmp_path: Path) -> None:
    """Neither MLflow's ten attempts nor the traceback of its database."""
    database = tmp_path / "broken.db"
    database.write_bytes(b"no database at all" * 100)
    broken = toy_tracker(tmp_path, store, uri=f"sqlite:///{database}")
    with pytest.raises(TrackingError, match=r"broken\.db cannot be written .*not a database"):
        broken.sync([STATE])


def test_an_unchanged_store_needs_no_mlflow(
    store: Store, synced: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once synced, `finish` neither imports MLflow nor opens a stage.

    A database that was deleted and created anew is not mistaken for the one that was synced.
    """
    code = "import harness.tracking, sys; sys.exit('mlflow' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)
    with monkeypatch.context() as patched:
        patched.setitem(sys.modules, "mlflow", None)  # importing it now raises
        patched.setattr(Store, "open", None)
        patched.setattr(Mlflow, "writing", None)
        toy_tracker(synced, store).finish(lambda: [STATE])
    (synced / "mlflow.db").unlink()
    toy_tracker(synced, store).finish(lambda: [STATE])
    assert len(contents(synced)) == 4


def test_nothing_of_a_copied_work_folder_is_written_to_the_original(
    store: Store, synced: Path, tmp_path: Path
) -> None:
    """MLflow keeps absolute addresses of artifacts."""
    copied = shutil.copytree(synced, tmp_path / "copied")
    with pytest.raises(TrackingError, match=r"was moved.*`rm .*mlflow.db && harness sync`; the"):
        toy_tracker(copied, store).sync([toy_state(RUNS, gain=2.5)])


def test_judgments_show_the_prompt_and_the_answer_of_a_first_turn(tmp_path: Path) -> None:
    run, store = RUNS.runs["dpo-h1", 0], Store(tmp_path)
    judge = run.judged["arena_hard"]
    talks = [[{"role": "user", "content": "why?"}]]
    talks.append(
        [*talks[0], {"role": "assistant", "content": "so"}, {"role": "user", "content": "?"}]
    )
    rows = [
        {"prompt_id": "p0", "conversation": json.dumps(talk), "completion": f"turn {turn}"}
        for turn, talk in enumerate(talks, start=1)
    ]
    with store.writing(judge.inputs["answers"], PROVENANCE) as output:
        pq.write_table(pa.Table.from_pylist(rows), output / "answers.parquet")
    write(store, judge)
    record = run_record(next(of for of in runs_of(RUNS) if of.run is run), store)
    assert record is not None
    (table,) = (table for path, table in record.files().items() if path.startswith("judgments/"))
    assert (table["prompt"][0], table["answer"][0]) == ("why?", "turn 1")  # type: ignore[call-overload, index]


def test_a_run_that_was_deleted_is_written_again_by_the_same_command(
    tmp_path: Path, new_work_dir: Callable[[str], Path]
) -> None:
    store, work = filled(tmp_path / "store", RUNS), new_work_dir("a")
    toy_tracker(work, store).finish(lambda: [STATE])
    client = MlflowClient(default_uri(work))
    place = client.get_experiment_by_name("table4/micro").experiment_id
    before = contents(work)
    client.delete_run(client.search_runs([place])[0].info.run_id)
    toy_tracker(work, store).finish(lambda: [STATE])
    assert contents(work) == before
