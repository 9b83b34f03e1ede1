"""The benchmarks' files at their homes: kept only with the digest they must have."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from harness.errors import HarnessError
from harness.evaluation.benchmark import benchmark_class
from harness.evaluation.files import HomeFile, fetch
from harness.extensions import BENCHMARKS

CONTENT = b"the questions\n"
HOMES = {
    (name, file.name): file for name in BENCHMARKS.shipped for file in benchmark_class(name).homes
}
DIGEST = hashlib.sha256(CONTENT).hexdigest()


@pytest.fixture
def home() -> Iterator[tuple[str, list[str]]]:
    """Serve one file on loopback; yield its address and the paths that were asked for."""
    asked: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            self.send_response(200 if self.path == "/file" else 404)
            self.end_headers()
            self.wfile.write(CONTENT)

        def log_message(self, *arguments: Any) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_address[1]}", asked
    server.shutdown()
    server.server_close()


def test_a_file_is_fetched_once_and_again_where_it_is_not_whole(
    home: tuple[str, list[str]], tmp_path: Path
) -> None:
    url, asked = home
    file = HomeFile("question.jsonl", f"{url}/file", DIGEST)
    told: list[bool] = []
    (path,) = fetch([file], tmp_path / "mt-bench", lambda _, there: told.append(there))
    assert path.read_bytes() == CONTENT
    assert path == tmp_path / "mt-bench" / "question.jsonl"
    fetch([file], tmp_path / "mt-bench", lambda _, there: told.append(there))
    path.write_bytes(CONTENT[:3])
    fetch([file], tmp_path / "mt-bench", lambda _, there: told.append(there))
    assert path.read_bytes() == CONTENT
    assert told == [False, True, False]
    assert asked == ["/file"] * 2


def test_another_file_is_not_kept(home: tuple[str, list[str]], tmp_path: Path) -> None:
    file = HomeFile("question.jsonl", f"{home[0]}/file", "0" * 64)
    with pytest.raises(HarnessError, match=f"has the digest {DIGEST}"):
        fetch([file], tmp_path / "mt-bench", lambda _, there: None)
    assert list(tmp_path.rglob("*")) == []


def test_a_file_that_cannot_be_fetched_is_one_sentence(
    home: tuple[str, list[str]], tmp_path: Path
) -> None:
    absent = HomeFile("question.jsonl", f"{home[0]}/other", DIGEST)
    with pytest.raises(HarnessError, match="Cannot fetch"):
        fetch([absent], tmp_path / "mt-bench", lambda _, there: None)
    nobody = HomeFile("question.jsonl", "http://127.0.0.1:9/file", DIGEST)
    with pytest.raises(HarnessError, match="Cannot fetch"):
        fetch([nobody], tmp_path / "mt-bench", lambda _, there: None)


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
