"""Fixtures of the tracking tests: work folders with an empty database in them."""

import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

DATABASE = "mlflow.db"


CreatedAtOnce = tuple[Path, list[int], list[str]]
"""The folder of a database that two processes created, their exit codes, and what they said."""


@pytest.fixture(autouse=True)
def _no_uri(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)


@pytest.fixture(scope="session")
def created_at_once(tmp_path_factory: pytest.TempPathFactory) -> CreatedAtOnce:
    """Let two processes create the database of one new work folder at once."""
    folder = tmp_path_factory.mktemp("template")
    code = (
        "import sys; from pathlib import Path\n"
        "from harness.tracking import Mlflow\n"
        "with Mlflow(Path(sys.argv[1])).writing(): pass\n"
    )
    command = [sys.executable, "-c", code, str(folder)]
    started = [subprocess.Popen(command, stderr=subprocess.PIPE, text=True) for _ in range(2)]
    said = [process.communicate()[1] for process in started]
    return folder, [process.returncode for process in started], said


@pytest.fixture(scope="session")
def empty_database(created_at_once: CreatedAtOnce) -> Path:
    """Return an empty database: creating one takes seconds, copying it does not."""
    return created_at_once[0] / DATABASE


@pytest.fixture
def new_work_dir(tmp_path: Path, empty_database: Path) -> Callable[[str], Path]:
    """Return a function that makes a work folder with an empty database."""

    def make(name: str) -> Path:
        folder = tmp_path / name
        folder.mkdir()
        shutil.copyfile(empty_database, folder / DATABASE)
        return folder

    return make
