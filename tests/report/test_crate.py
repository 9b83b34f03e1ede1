"""The published results as an RO-Crate follow from the index, and `verify` holds them to it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from harness.errors import HarnessError
from harness.report.publication import read_index
from harness.report.verify import CRATE, check_crate, crate_of, record, verify, write_crate
from harness.runtime.files import sha256_of


@pytest.fixture
def results(tmp_path: Path) -> Path:
    """Return published results: one note and one picture, kept by hand."""
    (tmp_path / "micro").mkdir()
    (tmp_path / "micro" / "log.md").write_text("what was done\n")
    (tmp_path / "a.png").write_bytes(b"a picture")
    record(tmp_path, ["micro/log.md", "a.png"])
    return tmp_path


def test_every_published_file_is_described(results: Path) -> None:
    graph = {node["@id"]: node for node in crate_of(results, read_index(results))["@graph"]}
    assert graph["a.png"]["sha256"] == sha256_of(results / "a.png")
    assert graph["a.png"]["contentSize"] == "9"
    assert graph["micro/log.md"]["encodingFormat"] == "text/markdown"
    assert graph[CRATE]["about"] == {"@id": "./"}
    referred = {part["@id"] for node in graph.values() for part in node.get("hasPart", [])}
    assert referred <= set(graph)


def test_verify_holds_the_description_to_the_index(results: Path) -> None:
    assert verify(results).not_covered == ()
    path = write_crate(results)
    before = path.read_bytes()
    assert verify(results).not_covered == ()
    (results / "b.md").write_text("new\n")
    record(results, ["b.md"])
    with pytest.raises(HarnessError, match="verify --write-crate"):
        verify(results)
    write_crate(results)
    check_crate(results)
    assert path.read_bytes() != before


def test_the_published_results_can_be_described() -> None:
    folder = Path(__file__).resolve().parents[2] / "results"
    crate = crate_of(folder, read_index(folder))
    assert json.dumps(crate) == json.dumps(crate_of(folder, read_index(folder)))
    kinds = {node["@type"] for node in crate["@graph"]}
    assert {"Dataset", "File", "ScholarlyArticle"} <= kinds
