"""MLflow databases of rounds: an empty one to begin with, and what is in one at the end."""

import json
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

from scene import Scene


def new_database(scene: Scene) -> str:
    """Return the URI of a new and empty database: creating one takes seconds, copying does not."""
    path = scene.folder / "mlflow.db"
    shutil.copyfile(scene.once("an empty MLflow database", _created), path)
    return f"sqlite:///{path}"


def _created(scene: Scene) -> Path:
    from harness.tracking import Mlflow

    with Mlflow(scene.folder).writing():
        pass
    return scene.folder / "mlflow.db"


def held(uri: str) -> dict[str, list[Any]]:
    """Return status, parameters and metrics of active runs, by name; MLflow takes seconds."""
    runs: dict[str, list[Any]] = {}
    with closing(sqlite3.connect(uri.removeprefix("sqlite:///"))) as database:
        found = database.execute(
            "SELECT runs.run_uuid, experiments.name, runs.name, status FROM runs "
            "JOIN experiments USING (experiment_id) WHERE runs.lifecycle_stage = 'active'"
        ).fetchall()
        for run, experiment, name, status in found:
            params = database.execute("SELECT key, value FROM params WHERE run_uuid = ?", (run,))
            points = database.execute(
                "SELECT key, step, value, is_nan FROM metrics WHERE run_uuid = ?", (run,)
            )
            said = [status, sorted(params.fetchall()), sorted(points.fetchall())]
            runs.setdefault(f"{experiment} | {name}", []).append(said)
    return json.loads(json.dumps(runs))  # type: ignore[no-any-return]
