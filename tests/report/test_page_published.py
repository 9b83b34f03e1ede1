"""The page of what is published: as a browser shows it, and number by number."""

from __future__ import annotations

import json
import random
import re
from pathlib import Path
from typing import Any

import pytest
from page_reader import numbers_of

from harness.project import results_dir
from harness.registry.declared import load_tables
from harness.registry.profile import load_profiles
from harness.report.page.contents import from_results
from harness.report.page.page import as_html
from harness.report.publication import published_folders, read_published
from harness.report.view import our_decimals

MOST_BYTES = 8_000_000
MOST_PAGES = 50
MOST_STOPS = 30
"""Stops of the keyboard before the first table: the contents are one of them, the picture another,
and those between are what a page has at its head."""


@pytest.fixture(scope="module")
def html() -> str:
    return as_html(
        from_results(list(load_tables().values()), load_profiles()["micro"], results_dir())
    )


def test_fifty_numbers_are_those_of_the_published_json(html: str) -> None:
    """On the page and in the Markdown, a mean and a gain are the JSON's, rounded."""
    folders = {folder.name: folder for folder in published_folders(results_dir())}
    places = [
        (name, cell)
        for name, folder in folders.items()
        for cell in json.loads((folder / "report.json").read_text(encoding="utf-8"))["cells"]
        if cell["gain"] is not None
    ]
    shown = {
        name: numbers_of(
            html.partition(f'<section class="table" id="{name}"')[2].partition("<section class=")[0]
        )
        for name in folders
    }
    drawn = random.Random(17).sample(places, 50)
    reports = {name: read_published(folders[name])[0] for name in {name for name, _ in drawn}}
    for name, cell in drawn:
        report = reports[name]
        column = report.table.column(cell["column"])
        decimals = our_decimals(report, column)
        mean = f"{cell['mean']:.{decimals}f} ±{cell['ci_high'] - cell['mean']:.{decimals}f}"
        half = cell["gain_ci_high"] - cell["gain"]
        gain = f"{round(cell['gain'], decimals) + 0.0:+.{decimals}f} ±{half:.{decimals}f}"
        assert shown[name][cell["column"], cell["row"]][:2] == [mean, gain], (name, cell["row"])
        exact = f"{cell['mean']:.6g}, 95% from {cell['ci_low']:.6g} to {cell['ci_high']:.6g}"
        card = html.partition(f'id="c-{name}-{cell["row"]}-{cell["column"]}"')[2]
        assert exact in card.partition("</dl>")[0]
        markdown = (folders[name] / "report.md").read_text(encoding="utf-8")
        assert f"| {mean} | {gain} |" in markdown, (name, cell["row"])


def test_the_page_is_small_and_every_link_leads_somewhere(html: str) -> None:
    assert len(html.encode("utf-8")) < MOST_BYTES
    named = set(re.findall(r' id="([^"]+)"', html))
    assert {link for link in re.findall(r'href="#([^"]+)"', html) if "/" in link} <= named
    figures = re.findall(r"<h3>Figure (\d+)", html)
    assert figures == sorted(figures, key=int)


def test_the_first_screen_is_a_picture_of_all_tables(browser: Any, page_file: Path) -> None:
    page = browser.new_page(viewport={"width": 1280, "height": 900})
    page.goto(page_file.as_uri())
    fields = page.locator("#overview .field")
    assert fields.count() >= 15
    assert fields.first.bounding_box()["y"] < 900
    targets = fields.evaluate_all("all => all.map(it => decodeURIComponent(it.hash.slice(1)))")
    assert len(set(targets)) == len(targets)
    assert page.evaluate("all => all.every(id => document.getElementById(id))", targets)
    first = page.locator("section.table table").first
    stops = first.evaluate(
        """table => [...document.querySelectorAll("a[href], button, input, summary, [tabindex]")]
        .filter(it => it.tabIndex >= 0 && it.checkVisibility())
        .filter(it => it.compareDocumentPosition(table) & Node.DOCUMENT_POSITION_FOLLOWING)
        .length"""
    )
    assert stops <= MOST_STOPS
    page.locator("nav a").first.focus()
    page.keyboard.press("ArrowDown")
    assert page.evaluate("document.activeElement.hash") == "#findings"
    page.close()


@pytest.mark.parametrize("width", [390, 1280])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_nothing_is_lost_beside_the_screen(
    browser: Any, page_file: Path, width: int, scheme: str
) -> None:
    page = browser.new_page(viewport={"width": width, "height": 844}, color_scheme=scheme)
    page.goto(page_file.as_uri())
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    background = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert (background == "rgb(255, 255, 255)") == (scheme == "light")
    page.close()


def test_it_prints_on_fewer_than_fifty_pages(browser: Any, page_file: Path) -> None:
    page = browser.new_page()
    page.goto(page_file.as_uri())
    printed = page.pdf(prefer_css_page_size=True)
    page.close()
    assert len(re.findall(rb"/Type\s*/Page[^s]", printed)) < MOST_PAGES


@pytest.fixture(scope="module")
def page_file(html: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("page") / "page.html"
    path.write_text(html, encoding="utf-8")
    return path
