"""A published figure holds what its numbers follow from, and what cannot be recomputed is named."""

import functools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from forging import forge, seal
from rich.console import Console
from toy_figures import FIGURES, declared, toy_profile, whole_figure
from toy_tables import change_rows

from harness.errors import HarnessError
from harness.report.build import results_of
from harness.report.controls import KnownControls
from harness.report.figures.published import (
    FIGURE,
    drawn_figures,
    figure_extent,
    figure_markdown,
    print_figure,
    publish_figure,
    published_pictures,
)
from harness.report.figures.report import FigureReport
from harness.report.page.page import as_html
from harness.report.plots import Picture, Target
from harness.report.publication import Refused
from harness.report.verify import verify
from harness.runtime import Store

NAMES = FIGURES[1:]
"""All figures but that of tables whose runs are long."""
Whole = dict[str, FigureReport]
Rows = list[dict[str, Any]]

pytestmark = pytest.mark.usefixtures("toy_world")


@pytest.fixture(autouse=True)
def _drawn_quickly(monkeypatch: pytest.MonkeyPatch) -> None:
    def draw(report: FigureReport, target: Target) -> None:
        if isinstance(target, Path):
            target.write_text("<svg/>")
        else:
            target.write(b"<svg/>")

    monkeypatch.setattr("harness.report.figures.drawing.draw_figure", draw)


@pytest.mark.parametrize("name", NAMES)
def test_a_published_figure_follows_from_its_data(name: str, whole: Whole, tmp_path: Path) -> None:
    report = whole[name]
    folder = publish_figure(report, tmp_path)
    assert folder == tmp_path / "micro" / name
    files = {path.name for path in folder.iterdir()}
    assert files == {"figure.svg", "report.md", "report.json", report.data.file, "digests.json"}
    assert figure_extent(FIGURE.check(folder)).numbers > 0
    held = json.loads((folder / "report.json").read_text(encoding="utf-8"))
    schema = FigureReport.model_json_schema(mode="serialization")
    jsonschema.Draft202012Validator(schema).validate(held)
    assert FIGURE.read(folder).model_dump(mode="json") == held
    page = (folder / "report.md").read_text(encoding="utf-8")
    assert "](figure.svg)" in page
    assert "scale: toy" in page.splitlines()[0]


@pytest.mark.parametrize(
    ("name", "lacking"),
    [
        ("figure5", r"lacks .* / 0 \(partial\)"),
        ("figure7", r"lacks base policy / writing \(partial\)"),
    ],
)
def test_a_figure_with_a_seed_missing_is_published_without_numbers(
    name: str, lacking: str, store: Store, tmp_path: Path
) -> None:
    report = whole_figure(store, name, (0, 1, 2))
    with pytest.raises(Refused, match=rf"{lacking}, .* and \d+ more"):
        publish_figure(report, tmp_path)
    assert not (tmp_path / "micro" / name).exists()
    folder = publish_figure(report, tmp_path, allow_fewer=True)
    assert figure_extent(FIGURE.check(folder)).numbers == 0
    assert "2/3 seeds" in (folder / "report.md").read_text(encoding="utf-8")


def test_a_page_of_the_store_has_no_published_figure(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is published is not shown, and what the store holds is drawn, published or not.

    Figures 9, 10 and 12 are drawn from rows of table 4, figure 3 from tables that are not here.
    """
    # The toy stages hold no prompts that the table's facts could be read from.
    monkeypatch.setattr("harness.report.build.facts_of", lambda *_: ())
    report = whole_figure(store, "figure10")
    publish_figure(report, tmp_path)
    tables, figures = declared()
    table, profile = tables["table4"], toy_profile()
    asked = [figures[name] for name in ("figure9", "figure10", "figure12", "figure3")]

    def drawn(seeds: tuple[int, ...], store: Store) -> list[Picture]:
        found = results_of(table, seeds, KnownControls(profile, store))
        return list(drawn_figures(asked, [found], store))

    assert drawn((0, 1), Store(tmp_path / "empty")) == drawn((7,), store) == []
    nine, ten, twelve = drawn((0, 1), store)
    assert {p.origin for p in (nine, ten, twelve)} == {"drawn from the store, 2 seeds"}
    assert (ten.title, ten.alt, ten.findings) == (
        report.heading, report.alt, tuple(report.findings)
    )  # fmt: skip
    assert [picture.origin for picture in published_pictures(tmp_path / "micro", {"table4"})] == [
        "published in results/micro/figure10/figure.svg"
    ]


def test_a_table_that_cannot_run_is_on_the_page_with_its_reason(store: Store) -> None:
    table = declared()[0]["table4"]
    bare = toy_profile().model_copy(update={"algorithms": ("rloo",)})
    found = results_of(table, (0,), KnownControls(bare, store))
    assert not found.report.has_numbers
    assert {*found.absent} == {row.id for row in table.rows}
    assert {verdict.word for verdict in found.verdicts} == {"not_run"}
    assert "has no algorithm <code>dpo</code>" in as_html([found], ())


def raised(rows: Rows, field: str, by: float = 0.001, at: int = 0) -> None:
    rows[at][field] += by


@pytest.mark.parametrize(
    ("name", "column", "number"),
    [
        ("figure4", "value", "AlpacaEval 2.0 · length-controlled win rate"),
        ("figure10", "reward", "all prompts / Spearman's ρ"),
        ("figure12", "reward", "mean reward / mean reward / writing"),
    ],
)
def test_a_changed_value_of_a_prompt_is_named_and_so_is_the_first_number_it_changes(
    whole: Whole, tmp_path: Path, name: str, column: str, number: str
) -> None:
    report = whole[name]
    folder = publish_figure(report, tmp_path)
    change_rows(folder / report.data.file, functools.partial(raised, field=column, by=50.0))
    with pytest.raises(HarnessError, match="is not what was published"):
        FIGURE.check(folder)
    seal(folder)
    with pytest.raises(HarnessError, match=f"points / {number}.* / value cannot be"):
        FIGURE.check(folder)


@pytest.mark.parametrize(
    ("name", "change", "said"),
    [
        *(
            ("figure6", functools.partial(raised, field=field, at=5),
             f"roleplay / share of training .*/ {field} cannot")
            for field in ("value", "low", "high")
        ),
        ("figure10", lambda points: points.append(points[0]), "points cannot be recomputed"),
        ("figure10", lambda points: points[0].update(series="no prompts"),
         "points / no prompts / Spearman's ρ / series cannot"),
    ],
)  # fmt: skip
def test_a_changed_point_is_named(
    name: str, change: Callable[[Rows], None], said: str, whole: Whole, tmp_path: Path
) -> None:
    folder = publish_figure(whole[name], tmp_path)
    forge(folder, lambda data: change(data["points"]))
    with pytest.raises(HarnessError, match=said):
        FIGURE.check(folder)


@pytest.mark.parametrize("name", ["findings", "missing", "alt"])
def test_a_changed_sentence_of_a_figure_is_named(name: str, whole: Whole, tmp_path: Path) -> None:
    folder = publish_figure(whole["figure10"], tmp_path)
    forge(folder, lambda data: data.update({name: "forged" if name == "alt" else ["forged"]}))
    with pytest.raises(HarnessError, match=f"{name}.* cannot be recomputed"):
        FIGURE.check(folder)


def test_verify_knows_figures_from_tables(store: Store, tmp_path: Path) -> None:
    results = tmp_path / "results"
    for name in ("figure10", "figure6"):
        publish_figure(whole_figure(store, name), results)
    found = verify(results)
    assert found.figures == ("micro/figure10", "micro/figure6")
    assert (found.tables, found.cells, found.points, found.not_covered) == ((), 0, 4 + 32, ())


@pytest.mark.parametrize("name", NAMES)
def test_a_report_says_what_it_says_everywhere(
    name: str, whole: Whole, capsys: pytest.CaptureFixture[str]
) -> None:
    """Every figure of the text is on the terminal and in Markdown, and no place is empty."""
    report = whole[name]
    print_figure(report, Console(width=100, color_system=None))
    printed, page = capsys.readouterr().out, figure_markdown(report)
    figures = [text for block in report.blocks for row in block.rows for text in row[1:]]
    assert figures
    assert all(text.strip() for text in figures)
    assert [text for text in figures if text not in printed or text not in page] == []
    assert max(map(len, printed.splitlines())) <= 100


def test_numbers_are_written_in_their_units(whole: Whole) -> None:
    shares = whole["figure6"].blocks[0].rows[0][1]
    assert shares.endswith("%")
    assert "% ±" in shares
    rho = whole["figure10"].blocks[0].rows[0][1]
    assert len(rho.split(" ±")[0].partition(".")[2]) == 3
    gain = whole["figure4"].blocks[0].rows[0][1]
    assert gain[0] in "+-"
    assert " ±" in gain
    assert "±+" not in gain
