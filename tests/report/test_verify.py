"""What is published is checked as a whole, and the first difference is named."""

import shutil
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from forging import copy_published, forge

from harness.errors import HarnessError
from harness.project import results_dir
from harness.registry.declared import all_tables
from harness.report import verify as verification
from harness.report.build import summarise
from harness.report.model import Report
from harness.report.publication import (
    ARCHIVED,
    IndexEntry,
    archived_entry,
    read_digests,
    read_index,
    write_index,
)
from harness.report.publish import TABLE
from harness.report.scores import RunScores
from harness.report.verify import (
    FINDINGS,
    KINDS,
    findings,
    verify,
    verify_controls,
    verify_findings,
    verify_freeze,
)
from harness.runtime.files import sha256_of


@pytest.fixture
def results(folder: Path) -> Path:
    return folder.parents[1]


def test_what_is_published_is_verified(results: Path) -> None:
    """Four rows in two columns with scores."""
    found = verify(results)
    assert found.model_dump(mode="json") == {
        "ok": True, "difference": None,
        "tables": ["micro/table90"], "sweeps": [], "cells": 8, "figures": [], "points": 0,
        "archived": [], "not_covered": [],
    }  # fmt: skip


def test_a_publication_that_the_index_does_not_name_is_an_error(results: Path) -> None:
    index = results / "index.json"
    index.unlink()
    with pytest.raises(HarnessError, match=r"index\.json is missing"):
        verify(results)
    index.write_text("{}\n", encoding="utf-8")
    with pytest.raises(HarnessError, match="nothing is published"):
        verify(results)
    known = read_index(results_dir())["micro/table4"].model_copy(update={"kind": "pie"})
    write_index(results, {"micro/table90": known})
    with pytest.raises(HarnessError, match="nothing of the kind of `micro/table90` is published"):
        verify(results)
    entry = {"micro/elsewhere": IndexEntry(kind="table", rows=(), seeds=(), counts={}, digests="0")}
    write_index(results, entry)
    with pytest.raises(HarnessError, match="micro/elsewhere is missing"):
        verify(results)
    copy_published("micro/over-optimisation", results)
    index_of = read_index(results)
    write_index(results, {"micro/over-optimisation": index_of["micro/over-optimisation"]})
    with pytest.raises(HarnessError, match=r"table90 is not in index\.json"):
        verify(results)


def test_of_an_archived_publication_only_the_files_are_checked(results: Path) -> None:
    place = "micro/table90"
    files = read_digests(results / place).files
    write_index(results, {place: archived_entry(results / place)})
    (entry,) = read_index(results).values()
    assert (entry.kind, entry.counts, entry.rows) == ("archived", {"files": len(files)}, ())
    found = verify(results)
    assert (found.archived, found.tables, found.cells) == ((place,), (), 0)
    write_index(results, {place: entry.model_copy(update={"counts": {"files": 1}})})
    with pytest.raises(HarnessError, match="has other rows, seeds or counts"):
        verify(results)
    write_index(results, {place: entry})
    (results / place / "report.md").write_text("another")
    with pytest.raises(HarnessError, match=r"report\.md is not what was published"):
        verify(results)


def test_other_files_are_named_as_not_covered(results: Path) -> None:
    (results / "micro" / "notes.txt").write_text("mine")
    (results / "micro" / "table90" / "stray.svg").write_text("<svg/>")
    (results / "micro" / ".table7.part" / "new").mkdir(parents=True)
    (results / "micro" / ".table7.part" / "new" / "report.json").write_text("{")
    assert verify(results).not_covered == (
        "micro/.table7.part/new/report.json", "micro/notes.txt", "micro/table90/stray.svg",
    )  # fmt: skip


def lose_a_row(report: dict[str, Any]) -> None:
    """Take a row away as if it had never been there: its cells, and its place in the summary."""
    report["rows"] = [row for row in report["rows"] if row["id"] != "eva-uniform"]
    report["cells"] = [cell for cell in report["cells"] if cell["row"] != "eva-uniform"]
    found = Report.model_validate(report)
    measured = {
        (row.runs[column.id], seed, column.score): {"p": 1.0, "q": 2.0}
        for row in found.rows
        for column in found.columns
        for seed in found.seeds
    }
    # Too few rows are left for their order to be in it.
    scores = RunScores(measured, found.seeds, found.rows, found.columns)
    report["summary"] = [summary.as_json() for summary in summarise(found.cells, scores)]


@pytest.mark.parametrize(
    ("lose", "lost"),
    [
        (lose_a_row, "has other rows, seeds or counts than index.json"),
        (lambda report: report["seeds"].remove(1), "seeds.* cannot be recomputed"),
    ],
)
def test_a_row_or_a_seed_that_is_lost_is_named(
    folder: Path, results: Path, lose: Callable[[dict[str, Any]], None], lost: str
) -> None:
    """All digests are new ones. Of the row the report is consistent, and only the index knows."""
    forge(folder, lose)
    known = read_index(results)["micro/table90"]
    again = known.model_copy(update={"digests": sha256_of(folder / "digests.json")})
    write_index(results, {"micro/table90": again})
    with pytest.raises(HarnessError, match=lost):
        verify(results)


def passed(report: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = next(it for it in report["controls"] if it["state"] == "passed")
    return found


@pytest.mark.parametrize(
    ("change", "lost"),
    [
        (
            lambda report: passed(report).update(state="failed"),
            "controls / .*scarcity-offline / state",
        ),
        (lambda report: report["controls"].pop(0), "controls"),
        (lambda report: report.pop("power"), "its fields"),
    ],
)
def test_what_the_controls_found_is_recomputed(
    tmp_path: Path, change: Callable[[dict[str, Any]], None], lost: str
) -> None:
    """Whether other tables' verdicts count rests on what this report says."""
    copy_published("laptop/controls", tmp_path)
    folder = tmp_path / "laptop" / "controls"
    TABLE.check(folder)
    forge(folder, change)
    with pytest.raises(HarnessError, match=f": {lost} cannot be recomputed from scores"):
        TABLE.check(folder)


@pytest.mark.parametrize(
    ("change", "lost"),
    [
        (
            lambda report: passed(report).update(state="failed"),
            "controls / .*scarcity-offline / state",
        ),
        (lambda report: report.pop("power"), "its fields"),
        (lambda report: report.pop("inadmissible"), "its fields"),
    ],
)
def test_what_a_table_says_of_the_controls_is_what_these_say(
    tmp_path: Path, change: Callable[[dict[str, Any]], None], lost: str
) -> None:
    for name in ("controls", "table2"):
        copy_published(f"laptop/{name}", tmp_path)
    folder = tmp_path / "laptop" / "table2"
    as_published = TABLE.read(folder)
    verify_controls(tmp_path, [as_published])
    forge(folder, change)
    changed = TABLE.read(folder)
    with pytest.raises(HarnessError, match=f"{lost} is not what the published laptop/controls"):
        verify_controls(tmp_path, [changed])
    # Controls of other runs, or none at all, say nothing of the table.
    cells = [
        cell.model_copy(update={"runs": tuple(f"{run}0" for run in cell.runs)})
        for cell in changed.cells
    ]
    verify_controls(tmp_path, [changed.model_copy(update={"cells": tuple(cells)})])
    shutil.rmtree(tmp_path / "laptop" / "controls")
    verify_controls(tmp_path, [changed])


@pytest.mark.parametrize("name", ["detectable", "seeds"])
def test_the_power_of_a_table_is_recomputed_without_the_controls(tmp_path: Path, name: str) -> None:
    copy_published("laptop/table2", tmp_path)
    folder = tmp_path / "laptop" / "table2"
    TABLE.check(folder)
    forge(folder, lambda report: report["power"][0].update({name: 2}))
    with pytest.raises(HarnessError, match=f": power / .*{name} cannot be recomputed from scores"):
        TABLE.check(folder)


def test_controls_of_a_profile_that_is_not_declared_here_are_read_as_published(
    tmp_path: Path,
) -> None:
    """A user's own profile is in a file that `verify` is not given."""
    copy_published("laptop/controls", tmp_path)
    folder = tmp_path / "laptop" / "controls"
    forge(folder, lambda report: report.update(profile="mine"))
    TABLE.check(folder)


def one_of_each() -> list[tuple[str, str]]:
    """Return a place and a file there for every kind of file that the project has published."""
    index, found = read_index(results_dir()), {}
    for place in sorted(
        index, key=lambda place: -sum(path.stat().st_size for path in files_of(place))
    ):
        for path in files_of(place):
            found[index[place].kind, path.name] = (place, path.name)  # the smallest is the last
    return list(found.values())


def files_of(place: str) -> list[Path]:
    return sorted(path for path in (results_dir() / place).iterdir() if path.is_file())


def flipped(content: bytes, steps: Iterable[int]) -> Iterator[bytes]:
    """Yield the content with one bit changed, at each of some places."""
    for at in steps:
        yield content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :]


@pytest.mark.parametrize(("place", "name"), one_of_each(), ids=lambda text: text)
def test_a_flipped_byte_of_every_kind_of_published_file_is_named(
    place: str, name: str, tmp_path: Path
) -> None:
    """Digests of stages, pictures, pages and logs as well as numbers; and files that are lost."""
    copy_published(place, tmp_path)
    path = tmp_path / place / name
    content = path.read_bytes()
    length = len(content)
    damaged = (b"", b"\xff\xfe", b"{", b"[]", b"{}", b"null", b"[" * 100_000)
    for changed in (*flipped(content, (0, length // 3, length // 2, length - 1)), *damaged):
        path.write_bytes(changed)
        with pytest.raises(HarnessError) as caught:
            verify(tmp_path)
        assert str(path) in str(caught.value)
    path.unlink()
    for is_folder in (False, True):
        if is_folder:
            path.mkdir()
        with pytest.raises(HarnessError, match=rf"{name} (is missing|cannot be read)"):
            verify(tmp_path)
    path.rmdir()
    path.write_bytes(content)
    verify(tmp_path)


def test_every_kind_of_publication_has_its_bytes_flipped() -> None:
    index = read_index(results_dir())
    assert {index[place].kind for place, _ in one_of_each()} == {*KINDS, ARCHIVED}


def test_every_flipped_byte_of_the_index_is_named(tmp_path: Path) -> None:
    copy_published("micro/over-optimisation", tmp_path)
    path = tmp_path / "index.json"
    content = path.read_bytes()
    damaged = (b"", b"\xff\xfe", b"[]", b"null", b"[" * 100_000)
    for changed in (*flipped(content, range(0, len(content), 7)), *damaged):
        path.write_bytes(changed)
        with pytest.raises(HarnessError, match=r"index\.json|over-optimi"):
            verify(tmp_path)


def test_prompts_that_a_metric_chose_before_the_freeze_are_refused_but_in_its_controls() -> None:
    early = SimpleNamespace(by_metric_since="2001-01-01T00:00:00+00:00")
    verify_freeze({"micro/controls": early, "elsewhere/table4": early})
    with pytest.raises(HarnessError, match="micro/table4 has prompts that a metric chose at 2001"):
        verify_freeze({"micro/controls": early, "micro/table4": early})


def test_the_headline_of_the_findings_is_that_of_the_published_scores(tmp_path: Path) -> None:
    """A line with another number in it is named; what is published is itself left as it is."""
    text = (results_dir() / FINDINGS).read_text(encoding="utf-8")
    for name in ("micro", "laptop", "index.json"):
        (tmp_path / name).symlink_to(results_dir() / name)
    (tmp_path / FINDINGS).write_text(text, encoding="utf-8")
    verify_findings(tmp_path)
    (tmp_path / FINDINGS).write_text(text.replace("(-1.4 to +0.3)", "(+1.4 to +2.3)", 1), "utf-8")
    with pytest.raises(HarnessError, match=r"README\.md does not say .*Eva for one more round"):
        verify_findings(tmp_path)
    for changed in (text.replace("±0.6", "±9.6", 1), text.removesuffix("\n"), f"{text}more\n"):
        assert changed != text
        (tmp_path / FINDINGS).write_text(changed, "utf-8")
        with pytest.raises(HarnessError, match=r"README\.md does not say what the published"):
            verify_findings(tmp_path)
    (tmp_path / FINDINGS).unlink()
    verify_findings(tmp_path)


def test_the_findings_of_one_table_are_those_of_the_published_scores(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a project with one table, a sentence on it is the answer."""
    monkeypatch.setattr(verification, "all_tables", lambda: {"table2": all_tables()["table2"]})
    copy_published("micro/table2", tmp_path)
    page = findings(tmp_path)
    assert page.startswith("# Findings\n\n**Inadmissible (trivial)")
    assert "log.md" not in page, "there is none"
    (tmp_path / FINDINGS).write_text(page, "utf-8")
    verify_findings(tmp_path)
