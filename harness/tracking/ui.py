"""MLflow's own pages over a database, on this machine only."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from harness.errors import UserError
from harness.quiet import QUIET
from harness.tracking.database import (
    artifacts_path,
    chosen_uri,
    database_path,
    open_server,
    reached,
    write_lock,
)
from harness.tracking.marks import Marks
from harness.tracking.secrets import shown


def ui_command(
    work_dir: Path, port: int = 5000, uri: str | None = None
) -> tuple[list[str], dict[str, str]]:
    """Return the command that serves MLflow's pages on the loopback interface, and its environment.

    Runs of processes that were killed are ended first, so that RUNNING means what it says.

    One worker and no job execution: MLflow's defaults start a dozen processes.

    Args:
        work_dir: Folder of the default database, which is created where absent.
        port: Port to listen at.
        uri: Tracking URI; `MLFLOW_TRACKING_URI` where not given, else the default database.

    Raises:
        UserError: The tracking URI is a server, which serves its pages itself.
        TrackingError: The database cannot be created or reached.
    """
    where = chosen_uri(work_dir, uri)
    if where.startswith(("http://", "https://")):
        raise UserError(f"MLflow at {shown(where)} is a server: open that address in a browser")
    server = open_server(where, work_dir)
    with reached(where), write_lock(work_dir, where):
        server.end_stale(Marks(work_dir))
    path = database_path(where)
    command = [sys.executable, "-m", "mlflow", "server"]
    if path is not None:
        command += ["--artifacts-destination", str(artifacts_path(path))]
    command += ["--host", "127.0.0.1", "--port", str(port), "--workers", "1"]
    command += ["--uvicorn-opts", "--log-level warning"]
    environment = {
        **QUIET,
        **os.environ,
        "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false",
        # Whoever lists this machine's processes would read a password in the command.
        "MLFLOW_BACKEND_STORE_URI": where,
    }
    return command, environment
