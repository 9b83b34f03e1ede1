"""What is published: its tables, its page as a browser shows it, and number by number."""

import json
import random
import re
from html import unescape
from pathlib import Path
from typing import Any

import pytest
from page_reader import numbers_of

from harness.cli.common import print_json
from harness.project import results_dir
from harness.registry.claims import figure_claims
from harness.registry.declared import load_tables, named_profile
from harness.registry.profile import load_profiles, table_at
from harness.report.answer import Answer, answer_to
from harness.report.build import published_results, published_tables
from harness.report.claims import all_verdicts
from harness.report.controls import KnownControls
from harness.report.figures.published import published_pictures
from harness.report.page.page import as_html, run_block
from harness.report.publication import read_index, read_published
from harness.report.render import as_markdown
from harness.report.results import Results
from harness.report.view import our_decimals
from harness.selection.experiment import select
from harness.selection.reporting import Reports

MOST_BYTES = 8_000_000
MOST_PAGES = 50
MOST_SCREENS = 15
MOST_STOPS = 90
"""Stops of the keyboard before the first table: the contents, the filters, and two a claim."""


FOLDERS = {
    place.partition("/")[2]: results_dir() / place
    for place, entry in read_index(results_dir()).items()
    if entry.kind == "table" and place.startswith("micro/")
}
PUBLISHED = (
    "choosing components controls reward-models selectors table1 table10 table11 table12 table13 "
    "table14 table15 table16 table2 table4 table5 table6 table7 table8 table9"
).split()


@pytest.fixture(scope="module")
def results() -> tuple[Results, ...]:
    return published_tables(load_tables().values(), load_profiles()["micro"], results_dir())


@pytest.fixture(scope="module")
def html(results: tuple[Results, ...]) -> str:
    return as_html(results, list(published_pictures(results_dir() / "micro", {*load_tables()})))


def test_the_published_tables_are_those_expected() -> None:
    """Of `micro-4`, with ten seeds each."""
    assert [*FOLDERS.values()] == [results_dir() / "micro" / name for name in PUBLISHED]


def test_every_published_table_is_on_the_page_with_a_trace_of_each_run(
    results: tuple[Results, ...], html: str
) -> None:
    with_numbers = [it.table.id for it in results if it.report.seeds]
    assert sorted(with_numbers) == sorted(FOLDERS)
    behind = {run for folder in FOLDERS.values() for run, *_ in read_published(folder)[1]}
    rows = {row[0]: row[1:] for row in run_block(results).rows}
    assert behind <= {*rows}
    assert all(f'id="{name}"' in html for name in FOLDERS)
    reward, judge = "micro-4/rm_pointwise@129a55389283a069", "micro-4/oracle, micro-4/exact_match"
    assert rows["dpo-h1"][2:] == (reward, "–", judge)
    assert rows["dpo-eva-a_min"][2:] == (reward, "micro-4/evol_instruct", judge)


def test_the_page_of_findings_is_what_the_published_scores_say() -> None:
    """Write it again with the command in its head."""
    page = select("all", "micro").findings()
    assert page == (results_dir() / "README.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", ["laptop", "micro"])
def test_the_published_markdown_says_what_is_said_now(name: str) -> None:
    """Publish a table again where it does not: `report T --profile P --published --publish`."""
    profile, places = load_profiles()[name], results_dir() / name
    known = KnownControls(profile, None, results_dir())
    for table in load_tables().values():
        if (folder := places / table.id).is_dir():
            found = published_results(table_at(table, profile), folder, known, renewed=True)
            page = (folder / "report.md").read_text(encoding="utf-8")
            assert as_markdown(found) == page, table.id


def test_fifty_numbers_are_those_of_the_published_json(
    results: tuple[Results, ...], html: str
) -> None:
    """On the page and in the Markdown, a mean and a gain are the JSON's, rounded."""
    places = [
        (name, cell)
        for name, folder in FOLDERS.items()
        for cell in json.loads((folder / "report.json").read_text(encoding="utf-8"))["cells"]
        if cell["gain"] is not None
    ]
    shown = {
        name: numbers_of(
            html.partition(f'<section class="table" id="{name}"')[2].partition("<section class=")[0]
        )
        for name in FOLDERS
    }
    drawn = random.Random(17).sample(places, 50)
    found = {it.table.id: it for it in results}
    for name, cell in drawn:
        column = found[name].table.column(cell["column"])
        decimals = our_decimals(found[name], column)
        mean = f"{cell['mean']:.{decimals}f} ±{cell['ci_high'] - cell['mean']:.{decimals}f}"
        half = cell["gain_ci_high"] - cell["gain"]
        gain = f"{round(cell['gain'], decimals) + 0.0:+.{decimals}f} ±{half:.{decimals}f}"
        assert shown[name][cell["column"], cell["row"]][:2] == [mean, gain], (name, cell["row"])
        markdown = (FOLDERS[name] / "report.md").read_text(encoding="utf-8")
        assert f"| {mean} | {gain} |" in markdown, (name, cell["row"])


def test_the_answer_is_the_same_on_the_page_and_in_json(
    results: tuple[Results, ...], html: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of all that is published at `micro`."""
    verdicts = all_verdicts(results, figure_claims(), named_profile("micro"))
    found = answer_to(results, verdicts)
    assert sum(own.claims for own in found.claims) == len(verdicts) == 146
    print_json([], Reports(results).answer)
    assert Answer.model_validate(json.loads(capsys.readouterr().out)["answer"]) == found
    text = unescape(re.sub(r"<[^>]+>", "", html.split("<main>")[1]))
    for line in (found.heading, found.terms, *found.points):
        assert line in text


def test_the_page_is_small_and_every_link_leads_somewhere(html: str) -> None:
    assert len(html.encode("utf-8")) < MOST_BYTES
    named = set(re.findall(r' id="([^"]+)"', html))
    assert {link for link in re.findall(r'href="#([^"]+)"', html) if "/" in link} <= named
    figures = re.findall(r"<h3>Figure (\d+)", html)
    assert figures == sorted(figures, key=int)


def test_where_no_claim_can_be_judged_the_page_says_so_instead_of_listing_them(html: str) -> None:
    profile = load_profiles()["laptop"]
    tables = [table_at(load_tables()[name], profile) for name in ("table1", "table4")]
    page = as_html(published_tables(tables, profile, results_dir()), [])
    said = "so no claim can be judged here"
    assert (said in page, 'class="claim ' in page) == (True, False)
    assert (said in html, 'class="claim ' in html) == (False, True)


def test_a_page_judges_no_claims_of_tables_that_it_does_not_hold(
    results: tuple[Results, ...], html: str
) -> None:
    """Figure 5 is judged by the rows of `components`, figure 4 by claims of tables 10 and 11."""
    known = {it.table.id: it for it in results}
    figure4, figure5 = "grows with the size of the reward model", "does not reach eva."
    for names, shown in (
        (["table4"], (False, False)),
        (["table10", "components"], (False, True)),
        (["table10", "table11"], (True, False)),
        ([*known], (True, True)),
    ):
        page = html if len(names) > 2 else as_html([known[name] for name in names], [])
        assert (figure4 in page, figure5 in page) == shown


def test_the_first_screen_has_the_primary_claims_and_the_page_is_short(
    browser: Any, page_file: Path
) -> None:
    page = browser.new_page(viewport={"width": 1280, "height": 900})
    page.goto(page_file.as_uri())
    shown = page.locator("tr.claim:visible")
    assert shown.count() == page.locator("tr.primary").count() == 15
    assert shown.first.bounding_box()["y"] < 900
    assert page.evaluate("document.documentElement.scrollHeight") < MOST_SCREENS * 900
    first = page.locator("section.table").first
    stops = first.evaluate(
        """table => [...document.querySelectorAll("a[href], button, input, summary, [tabindex]")]
        .filter(it => it.tabIndex >= 0 && it.checkVisibility())
        .filter(it => it.compareDocumentPosition(table) & Node.DOCUMENT_POSITION_FOLLOWING)
        .length"""
    )
    assert stops <= MOST_STOPS
    page.close()


def test_claims_are_sorted_filtered_and_opened(browser: Any, page_file: Path) -> None:
    page = browser.new_page()
    page.goto(page_file.as_uri())
    gains = "rows => rows.map(row => parseFloat(row.cells[3].textContent))"
    shown = page.locator("tr.claim:visible")
    page.click(".ledger th.num button")
    rising = shown.evaluate_all(gains)
    assert rising == sorted(rising)
    page.click(".ledger th.num button")
    assert shown.evaluate_all(gains) == sorted(rising, reverse=True)
    evidence = page.locator("tr.primary .evidence").first
    assert not evidence.is_visible()
    page.locator("tr.primary summary").first.click()
    assert evidence.is_visible()
    page.check("#show-all")
    assert shown.count() == 146
    page.fill("#filter", "table 12")
    assert shown.count() == 5
    page.goto(f"{page_file.as_uri()}#table4/eva-a_min/ah_wr")
    assert page.locator("#table4 .numbers").get_attribute("open") is not None
    page.close()


@pytest.mark.parametrize("width", [390, 1280])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_nothing_is_lost_beside_the_screen(
    browser: Any, page_file: Path, width: int, scheme: str
) -> None:
    page = browser.new_page(viewport={"width": width, "height": 844}, color_scheme=scheme)
    page.goto(page_file.as_uri())
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    page.evaluate("document.querySelectorAll('details').forEach(it => { it.open = true })")
    texts = page.locator("main :is(p, li, td, th, dd, summary, img)")
    wide = texts.evaluate_all("all => all.filter(it => it.getBoundingClientRect().right > 391)")
    assert width > 390 or not wide
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
