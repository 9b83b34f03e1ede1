"""Every figure can be drawn, from whole data and from none, as the same bytes each time."""

import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest
from toy_figures import FIGURES, declared, toy_figure, whole_figure

from harness.report.figures.drawing import draw_figure, figure_picture
from harness.report.figures.report import FigureReport, assemble_figure
from harness.report.plots import INK, MUTED, OURS, PAPERS, STYLES
from harness.runtime import Store

SVG = "{http://www.w3.org/2000/svg}"

pytestmark = pytest.mark.usefixtures("toy_world")


def drawn(report: FigureReport, path: Path) -> ElementTree.Element:
    draw_figure(report, path)
    return ElementTree.parse(path).getroot()


@pytest.mark.parametrize("name", FIGURES)
def test_a_whole_figure_is_drawn_the_same_twice(
    name: str, whole: dict[str, FigureReport], tmp_path: Path
) -> None:
    report = whole[name]
    missing = [point for point in report.points if point.value is None]
    assert {point.state for point in missing} <= {"not_available"}
    root = drawn(report, tmp_path / "a.svg")
    title = root.find(f"{SVG}title")
    assert title is not None
    assert title.text == report.figure.title
    assert report.alt.split(":")[0] in (tmp_path / "a.svg").read_text(encoding="utf-8")
    assert (tmp_path / "a.svg").read_bytes() == figure_picture(report).svg()


@pytest.mark.parametrize("name", FIGURES)
def test_a_figure_without_any_number_is_drawn(name: str, store: Store, tmp_path: Path) -> None:
    report = assemble_figure(toy_figure(name), store)
    assert all(point.value is None for point in report.points)
    assert dict(report.facts)["Numbers"].startswith("0 of ")
    assert ". 0 of " in report.alt
    assert len(list(drawn(report, tmp_path / "a.svg").iter(f"{SVG}path"))) > 10


@pytest.mark.parametrize("name", ["figure6", "figure9", "figure10", "figure12"])
def test_one_seed_is_drawn_without_intervals(name: str, store: Store, tmp_path: Path) -> None:
    report = whole_figure(store, name, (0,))
    assert {(p.low, p.high) for p in report.points} == {(None, None)}
    assert dict(report.facts)["Intervals"] == "none: one seed has no spread"
    assert drawn(report, tmp_path / "a.svg").tag == f"{SVG}svg"


def test_a_drawing_has_a_background_of_its_own(
    whole: dict[str, FigureReport], tmp_path: Path
) -> None:
    """The first thing painted is the whole sheet, in white: it reads the same on a dark page."""
    root = drawn(whole["figure12"], tmp_path / "a.svg")
    first = next(root.iter(f"{SVG}path"))
    assert first.get("style") == "fill: #ffffff"


def luminance(colour: str) -> float:
    """Return the relative luminance of `#rrggbb` as WCAG 2 defines it."""
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


@pytest.mark.parametrize("colour", [INK, MUTED, OURS, PAPERS])
def test_text_stands_out_from_white(colour: str) -> None:
    """At least 4.5 to 1, which WCAG asks of small text."""
    assert 1.05 / (luminance(colour) + 0.05) >= 4.5


def test_no_series_is_told_by_its_colour_alone() -> None:
    markers, dashes = [style[1] for style in STYLES], [str(style[2]) for style in STYLES]
    assert len(set(markers)) == len(set(dashes)) == len(STYLES)
    _, figures = declared()
    lines = {line for panel in figures["figure5"].panels.values() for line in panel}  # type: ignore[attr-defined]
    assert len(lines) <= len(STYLES)


def test_what_is_missing_is_named_in_its_place(store: Store, tmp_path: Path) -> None:
    report = assemble_figure(toy_figure("figure4"), store)
    draw_figure(report, tmp_path / "a.svg")
    assert (tmp_path / "a.svg").read_text(encoding="utf-8").count("<!-- not run -->") == 8
