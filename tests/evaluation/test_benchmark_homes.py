"""The benchmarks' files at their homes: kept only with the digest they must have."""

import hashlib
import http.client
from dataclasses import replace
from pathlib import Path

import pytest

from harness.errors import HarnessError
from harness.evaluation.benchmark import benchmark_class
from harness.evaluation.files import HomeFile, fetch
from harness.extensions import BENCHMARKS

CONTENT = b"the questions\n"
HOMES = {
    (name, file.name): file for name in BENCHMARKS.shipped for file in benchmark_class(name).homes
}
NOBODY = "http://127.0.0.1:9/file"


@pytest.fixture
def home(tmp_path: Path) -> HomeFile:
    path = tmp_path / "home"
    path.write_bytes(CONTENT)
    return HomeFile("question.jsonl", path.as_uri(), hashlib.sha256(CONTENT).hexdigest())


def test_a_file_is_fetched_once_and_again_where_it_is_not_whole(
    home: HomeFile, tmp_path: Path
) -> None:
    path = tmp_path / "mt-bench" / "question.jsonl"
    assert fetch(home, path.parent) is False
    assert path.read_bytes() == CONTENT
    assert fetch(replace(home, url=NOBODY), path.parent) is True
    path.write_bytes(CONTENT[:3])
    assert fetch(home, path.parent) is False
    assert path.read_bytes() == CONTENT


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"sha256": "0" * 64}, f"has the digest {hashlib.sha256(CONTENT).hexdigest()}"),
        ({"url": NOBODY}, "Cannot fetch"),
        ({"url": Path("/nowhere").as_uri()}, "Cannot fetch"),
    ],
)
def test_what_cannot_be_fetched_or_is_another_file_is_one_sentence_and_not_kept(
    home: HomeFile, tmp_path: Path, change: dict[str, str], says: str
) -> None:
    with pytest.raises(HarnessError, match=says):
        fetch(replace(home, **change), tmp_path / "mt-bench")
    assert not (tmp_path / "mt-bench").exists()


def test_every_home_is_pinned_to_a_revision() -> None:
    for file in HOMES.values():
        revisions = [part for part in file.url.split("/") if len(part) == 40]
        assert len(revisions) == 1, file.url
        assert file.url.startswith("https://")
        assert len(file.sha256) == 64
    assert len(HOMES) == 9


def test_the_digests_are_those_of_the_published_copies(shared_dir: Path) -> None:
    """The judge's settings are a shorter copy there, and `df_gamed.csv` is not there at all."""
    compared = 0
    for (benchmark, _), file in HOMES.items():
        path = shared_dir / "benchmarks" / benchmark.replace("-", "_") / file.name
        if path.is_file() and file.name != "judge_config.yaml":
            assert hashlib.sha256(path.read_bytes()).hexdigest() == file.sha256, file.name
            compared += 1
    assert compared == 6


def test_a_download_that_breaks_off_is_one_sentence(
    home: HomeFile, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def read(*_: object, **__: object) -> bytes:
        raise http.client.IncompleteRead(CONTENT[:3], 11)

    monkeypatch.setattr("urllib.response.addinfourl.read", read, raising=False)
    with pytest.raises(HarnessError, match="Cannot fetch"):
        fetch(home, tmp_path / "mt-bench")
