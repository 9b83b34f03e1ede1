"""Servers that fail cost a warning without a password; others that misbehave are among the faults.

A database that is locked is waited for.
"""

import sqlite3
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from misbehaving import drip, serving
from toy_table import contents, filled, toy_runs, toy_state, toy_tracker

from harness.runtime import Store
from harness.runtime.plan import StageFinished
from harness.tracking import Mlflow, TrackingError
from harness.tracking.connection import uri_text, without_secrets
from harness.tracking.record import Record

RUNS = toy_runs((0,))
STATE = toy_state(RUNS)
RECORDS = [Record("sweeps/toy", "", "1", "trial 0", "FINISHED", 0, 0, {}, {})]
SECRET = "pa55word"
IN_TIME_S = 60.0
"""Far more than is waited for, for a loaded machine; MLflow's own defaults wait for minutes."""


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    return filled(tmp_path_factory.mktemp("full") / "store", RUNS)


def test_a_server_that_drips_bytes_has_a_deadline(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("harness.tracking.connection.DEADLINE", 0.05)
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_TIMEOUT", "10")
    began = time.monotonic()
    with (
        serving(drip) as place,
        pytest.raises(TrackingError, match=r"cannot be written \(it takes too long"),
    ):
        toy_tracker(tmp_path, store, uri=f"http://{place}").sync([STATE])
    assert time.monotonic() - began < IN_TIME_S


def test_a_database_that_another_program_has_locked_is_waited_for(
    store: Store, new_work_dir: Callable[[str], Path]
) -> None:
    """Writes while stages run pass it over; the last ones wait, and say so."""
    work, said = new_work_dir("a"), list[str]()
    other = sqlite3.connect(work / "mlflow.db")
    other.execute("BEGIN EXCLUSIVE")

    def watch(line: str) -> None:
        said.append(line)
        other.rollback()

    tracker = toy_tracker(work, store, watch=watch, every_s=0.0)
    tracker.follow([RUNS])
    tracker.observe(StageFinished(RUNS.runs["dpo-h1", 0].training[0], 0.0))
    assert said == []
    tracker.finish(lambda: [STATE])
    other.close()
    assert f"another program has locked {work / 'mlflow.db'}; Ctrl-C stops" in said[0]
    assert said[1] == "MLflow: 1 of 4 runs; Ctrl-C stops, and the same command writes the rest"
    assert {run["info"][0] for run in contents(work).values()} == {"KILLED", "FINISHED"}
    assert toy_tracker(work, store).sync([STATE]) == {"unchanged": 4}


def test_ctrl_c_leaves_the_rest_to_a_sync(
    store: Store, new_work_dir: Callable[[str], Path]
) -> None:
    """Once the second of four runs is written."""
    work, warnings = new_work_dir("a"), list[str]()

    def stop(line: str) -> None:
        if "2 of 4" in line:
            raise KeyboardInterrupt

    toy_tracker(work, store, warnings.append, watch=stop).finish(lambda: [STATE])
    assert warnings == ["stopped before MLflow had everything: the same command adds the rest"]
    assert len(contents(work)) == 2
    assert toy_tracker(work, store).sync([STATE]) == {"unchanged": 2, "created": 2}


@pytest.mark.parametrize(
    "uri",
    [
        f"postgresql://user:{SECRET}@127.0.0.1/db",
        f"mysql://user:{SECRET}@127.0.0.1/db",
        f"mysql+pymysql://user:{SECRET}@127.0.0.1/db?password={SECRET}",
        f"postgresql://user:{SECRET}@127.0.0.1:port/db",
        f"http://user:{SECRET}@127.0.0.1:port/",
        f"https://user:{SECRET}@[::1",
        f"http://127.0.0.1:9?token={SECRET}",
        f"nothing://user:{SECRET}@127.0.0.1",
        f"sqlite:////dev/null/mlflow.db?token={SECRET}",
    ],
)
def test_a_uri_that_cannot_be_used_is_a_sentence_without_its_password(
    uri: str, store: Store, tmp_path: Path
) -> None:
    """Also for everybody who goes on without MLflow: runs, evaluations and sweeps."""
    warnings: list[str] = []
    mlflow = Mlflow(tmp_path, warnings.append, uri)
    with pytest.raises(TrackingError, match="cannot be written") as raised, mlflow.writing():
        pass
    toy_tracker(tmp_path, store, warnings.append, uri).finish(lambda: [STATE])
    for _ in range(2):  # a sweep goes on without it, and says so once
        mlflow.attempt(lambda: RECORDS)
    assert len(warnings) == 2
    said = [str(raised.value), *warnings]
    assert SECRET not in " ".join(said)


def test_what_fails_of_ours_while_tracking_is_a_warning(store: Store, tmp_path: Path) -> None:
    """The report has been printed by then, and the run was a success."""
    warnings: list[str] = []
    tracker = toy_tracker(tmp_path, store, warnings.append)
    tracker.finish(lambda: 1 / 0)  # type: ignore[arg-type, return-value]
    assert warnings == [
        "MLflow tracking has stopped (ZeroDivisionError: division by zero): the same command "
        "tries again"
    ]


@pytest.mark.parametrize(
    ("uri", "expected"),
    [
        ("http://host:5000/path", "http://host:5000/path"),
        ("sqlite:////data/a@b/mlflow.db", "sqlite:////data/a@b/mlflow.db"),
        ("/srv/a#b/c?d@e", "/srv/a#b/c?d@e"),
        ("http://user:secret@host/x", "http://***@host/x"),
        ("http://token@host", "http://***@host"),
        ("postgresql:///db?user=u&password=secret", "postgresql:///db?***"),
    ],
)
def test_what_is_shown_of_a_uri(uri: str, expected: str) -> None:
    assert uri_text(uri) == expected


def test_a_secret_is_hidden_in_any_text(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whole, in parts, decoded, and where the environment has it; short ones as words."""
    uri = "http://user:pass%40word@host?token=abcdef&n=1"
    text = "password pass@word pass%40word, token=abcdef at 1 of 100 rows as user:pass%40word"
    assert without_secrets(text, uri) == "password *** ***, token=*** at *** of 100 rows as ***"
    database = "postgresql://alice:secret@host/db"
    assert without_secrets('failed for user "alice"', database) == 'failed for user "***"'
    monkeypatch.setenv("MLFLOW_TRACKING_TOKEN", "bearer-of-news")
    assert without_secrets("Bearer bearer-of-news", "http://host") == "Bearer ***"


def test_a_password_of_the_environment_is_hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_PASSWORD", "of-the-server")
    assert without_secrets("as me:of-the-server", "http://host") == "as me:***"
