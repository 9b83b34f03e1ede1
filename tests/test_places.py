"""Where declarations, published results and the work folder are, by where a command runs."""

from pathlib import Path

import pytest

from harness import project
from harness.errors import UserError


def make_checkout(folder: Path) -> Path:
    """Make what a checkout is known by."""
    (folder / "experiments").mkdir(parents=True)
    (folder / "experiments" / "paper.yaml").touch()
    return folder


@pytest.fixture(autouse=True)
def outside(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Run as an installed package, in an empty folder; return that."""
    installed = tmp_path / "site-packages" / "harness"
    monkeypatch.setattr(project, "PACKAGE", installed)
    monkeypatch.setattr(project, "SHIPPED", installed / "shipped")
    monkeypatch.delenv("HARNESS_WORK", raising=False)
    (tmp_path / "empty").mkdir()
    monkeypatch.chdir(tmp_path / "empty")
    return tmp_path / "empty"


def test_outside_a_checkout_all_is_read_from_the_package(outside: Path) -> None:
    shipped = outside.parent / "site-packages" / "harness" / "shipped"
    assert project.checkout() is None
    assert project.declaration_dirs() == [shipped / "experiments", shipped / "ablations"]
    assert project.figures_dir() == shipped / "experiments" / "figures"
    assert project.results_dir() == shipped / "results"
    assert project.work_dir() == outside / ".harness"


def test_outside_a_checkout_nothing_is_published(outside: Path) -> None:
    with pytest.raises(UserError, match=r"in a clone of the project: .*/empty is in none"):
        project.publishing_dir()


@pytest.mark.parametrize("below", [".", "tests/eva"])
def test_a_checkout_wins_in_all_its_folders(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, below: str
) -> None:
    mine = make_checkout(tmp_path / "mine")
    (mine / below).mkdir(parents=True, exist_ok=True)
    monkeypatch.chdir(mine / below)
    assert project.checkout() == project.project_root() == mine
    assert project.results_dir() == project.publishing_dir() == mine / "results"
    assert project.work_dir() == mine / ".harness"


def test_code_that_runs_from_a_checkout_reads_it_and_writes_to_the_current_folder(
    monkeypatch: pytest.MonkeyPatch, outside: Path
) -> None:
    """As an editable installation does, used in another folder."""
    mine = make_checkout(outside.parent / "mine")
    monkeypatch.setattr(project, "PACKAGE", mine / "harness")
    assert project.project_root() == mine
    assert project.publishing_dir() == mine / "results"
    assert project.work_dir() == outside / ".harness"


def test_a_folder_of_experiments_that_names_no_paper_is_no_checkout(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    theirs = make_checkout(tmp_path / "theirs")
    (theirs / "experiments" / "paper.yaml").rename(theirs / "paper.yaml")
    monkeypatch.chdir(theirs)
    assert project.checkout() is None
    assert project.work_dir() == theirs / ".harness"


def test_the_variable_names_the_work_folder(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("HARNESS_WORK", "elsewhere")
    assert project.work_dir() == tmp_path / "empty" / "elsewhere"
    monkeypatch.setenv("HARNESS_WORK", str(tmp_path / "there"))
    assert project.work_dir() == tmp_path / "there"


def test_the_variable_names_the_store(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HARNESS_WORK", str(tmp_path / "work"))
    assert project.store_dir() == tmp_path / "work" / "store"
    monkeypatch.setenv("HARNESS_STORE", str(tmp_path / "mounted"))
    assert project.store_dir() == tmp_path / "mounted"


def test_a_bucket_is_not_taken_for_a_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HARNESS_STORE", "s3://runs/store")
    with pytest.raises(UserError, match="a bucket can be mounted as one"):
        project.store_dir()


def test_a_current_folder_that_was_deleted_is_said_in_a_sentence(outside: Path) -> None:
    outside.rmdir()
    with pytest.raises(UserError, match="current folder was deleted"):
        project.work_dir()
