"""The built wheel, installed in a folder of its own, is in an empty folder what a checkout is."""

import json
import shutil
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Callable
from email.parser import Parser
from pathlib import Path

import pytest
from running import bare

from harness.project import PACKAGE

ROOT = Path(__file__).resolve().parents[1]
FOLDERS = ("ablations", "experiments", "results")
SOURCES = ("harness", *FOLDERS)
FILES = ("LICENSE", "NOTICE", "MANIFEST.in", "README.md", "pyproject.toml", "setup.py")

MOST_BYTES = 15 * 10**6
"""How large the wheel may become before somebody decides that it should."""

Harness = Callable[..., subprocess.CompletedProcess[str]]


def run(command: list[str], folder: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a command in a folder, without what would lead it to this checkout."""
    env = bare("HARNESS_", "PYTHON") | environment
    return subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, check=False)


def build(source: Path, target: Path, kind: str) -> Path:
    """Build a distribution (`wheel`, `sdist`) as a frontend does, with the setuptools here."""
    code = (
        "import sys; from setuptools import build_meta as b; getattr(b, sys.argv[1])(sys.argv[2])"
    )
    target.mkdir()
    done = run([sys.executable, "-c", code, f"build_{kind}", str(target)], source)
    assert done.returncode == 0, done.stderr
    (built,) = target.iterdir()
    return built


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a copy of the sources, because a build writes beside them."""
    folder = tmp_path_factory.mktemp("source")
    for name in SOURCES:
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in FILES:
        shutil.copy(ROOT / name, folder)
    return folder


@pytest.fixture(scope="module")
def wheel(source: Path) -> Path:
    return build(source, source / "wheel", "wheel")


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder that the wheel alone is installed in; its dependencies are those here."""
    target = tmp_path_factory.mktemp("installed")
    install = ["install", "--no-deps", "--no-index", "--no-compile", "--target", str(target)]
    done = run([sys.executable, "-m", "pip", *install, str(wheel)], target)
    assert done.returncode == 0, done.stderr
    return target


@pytest.fixture
def empty(tmp_path: Path) -> Path:
    return tmp_path


@pytest.fixture
def harness(installed: Path, empty: Path) -> Harness:
    """Return a function that runs the installed command in the empty folder."""
    script = str(installed / "bin" / "harness")

    def call(*arguments: str, code: int = 0) -> subprocess.CompletedProcess[str]:
        done = run([sys.executable, script, *arguments], empty, PYTHONPATH=str(installed))
        assert done.returncode == code, done.stdout + done.stderr
        return done

    return call


def in_checkout(*arguments: str) -> str:
    """Return what a command prints in the checkout that the tests are in."""
    command = [sys.executable, "-m", "harness", *arguments]
    done = run(command, ROOT, HARNESS_WORK="no such folder")
    assert done.returncode == 0, done.stderr
    return done.stdout


def contents(folder: Path) -> dict[str, int]:
    """Return the size of each file of a folder, less what Python compiles."""
    return {
        path.relative_to(folder).as_posix(): path.stat().st_size
        for path in folder.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }


def test_the_wheel_holds_the_package_the_declarations_and_the_controls(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        held = {
            i.filename: i.file_size for i in archive.infolist() if ".dist-info/" not in i.filename
        }
    expected = {f"harness/{name}": size for name, size in contents(PACKAGE).items()}
    for folder in FOLDERS:
        for name, size in contents(ROOT / folder).items():
            if folder != "results" or name.startswith(("index.json", "micro/controls/")):
                expected[f"harness/shipped/{folder}/{name}"] = size
    assert held == expected
    assert wheel.stat().st_size < MOST_BYTES


def test_a_source_archive_builds_the_same_wheel(source: Path, wheel: Path, tmp_path: Path) -> None:
    with tarfile.open(build(source, source / "sdist", "sdist")) as archive:
        archive.extractall(tmp_path, filter="data")
    (unpacked,) = tmp_path.iterdir()
    with (
        zipfile.ZipFile(build(unpacked, tmp_path / "wheel", "wheel")) as again,
        zipfile.ZipFile(wheel) as first,
    ):
        assert {i.filename: i.CRC for i in again.infolist() if "RECORD" not in i.filename} == {
            i.filename: i.CRC for i in first.infolist() if "RECORD" not in i.filename
        }


def test_the_description_has_no_link_that_leads_nowhere(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (n for n in archive.namelist() if n.endswith("/METADATA"))
        metadata = Parser().parsestr(archive.read(name).decode("utf-8"))
    text = metadata.get_payload()
    assert isinstance(text, str)
    assert "](https://arxiv.org/abs/2411.00062)" in text
    assert "](results/" not in text
    assert "](harness/" not in text
    assert "What `harness report table4 --published` prints" in text


def test_a_release_names_its_repository_and_links_to_it(source: Path, tmp_path: Path) -> None:
    """Metadata alone, which needs no build of the wheel."""
    code = (
        "import sys; from setuptools import build_meta as b; "
        "b.prepare_metadata_for_build_wheel(sys.argv[1])"
    )
    home = "https://host.example/eva-harness/"
    done = run([sys.executable, "-c", code, str(tmp_path)], source, HARNESS_HOME_URL=home)
    assert done.returncode == 0, done.stderr
    (file,) = tmp_path.glob("*/METADATA")
    metadata = Parser().parsestr(file.read_text(encoding="utf-8"))
    text = str(metadata.get_payload())
    at = "https://host.example/eva-harness"
    assert f"]({at}/raw/v0.2.0/docs/images/terminal.svg)" in text
    assert f"]({at}/blob/v0.2.0/docs/limits.md)" in text
    urls = dict(line.split(", ", 1) for line in metadata.get_all("Project-URL", []))
    assert set(urls) == {"Paper", "Homepage", "Documentation", "Source", "Changelog"}
    assert urls["Changelog"] == f"{at}/blob/v0.2.0/CHANGELOG.md"


def test_all_that_is_declared_is_there(harness: Harness, empty: Path) -> None:
    for asked in ("list", "validate", "sweep list"):
        command = [*asked.split(), "--json"]
        assert json.loads(harness(*command).stdout) == json.loads(in_checkout(*command))
    assert not any(empty.iterdir())


def test_the_published_results_need_a_clone(harness: Harness) -> None:
    """But for the controls, by which the claims of every report are judged."""
    for asked in (("verify",), ("report", "table4", "--published"), ("claims", "--published")):
        refused = harness(*asked, code=2).stderr
        assert "results are published in a clone of the project" in refused


def test_nothing_is_written_to_the_installation(
    harness: Harness, installed: Path, empty: Path
) -> None:
    before = contents(installed)
    assert "not run" in harness("report", "table4").stdout
    assert str(empty / ".harness") in harness("doctor").stdout
    refused = harness("report", "table4", "--publish", code=2).stderr
    assert "results are published in a clone of the project" in refused
    assert contents(installed) == before


def test_a_run_computes_in_the_current_folder(
    harness: Harness, installed: Path, empty: Path
) -> None:
    """A profile of one's own that differs from the embedded one in sizes alone."""
    before = contents(installed)
    text = (PACKAGE / "profiles" / "micro.yaml").read_text(encoding="utf-8")
    text = text.replace("name: micro\n", "name: tiny\n").replace("x: {value: 400", "x: {value: 24")
    text = text.replace("max_new_tokens: {value: 14", "max_new_tokens: {value: 2")
    (empty / "tiny.yaml").write_text(text, encoding="utf-8")
    asked = ("table4", "--rows", "dpo-1", "--seeds", "0", "--jobs", "1")
    harness("run", *asked, "--profile", "tiny.yaml")
    stages = [json.loads(p.read_text()) for p in (empty / ".harness").rglob("stage.json")]
    assert {"train", "judge"} <= {stage["kind"] for stage in stages}
    assert {stage["provenance"]["commit"] for stage in stages} == {None}
    assert contents(installed) == before
