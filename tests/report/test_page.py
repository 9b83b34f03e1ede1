"""The page: it stands alone, obeys nobody's text, and says the same as the terminal."""

import base64
import hashlib
import re
from collections import Counter
from dataclasses import replace
from typing import BinaryIO

import pytest
from page_reader import Page, numbers_of
from toy_page import page_of, shown, write_lineage, write_training
from toy_tables import CLAIM, DECLARATION, toy_runs, write_all, write_luck

from harness.registry.paper import the_paper
from harness.report.page.page import as_html
from harness.report.plots import Picture
from harness.report.results import Results
from harness.runtime import Store

SVG = b'<svg><text>it\'s 5% "x" &lt;b&gt; #1</text></svg>\n'


def draw(target: BinaryIO) -> None:
    target.write(SVG)


PICTURE = Picture("t", "f", "a", draw)


@pytest.fixture
def whole(store: Store) -> str:
    """Return a page of which every part is there."""
    runs = toy_runs(seeds=[0])
    write_lineage(store, runs)
    write_all(store, runs)
    write_training(store, runs)
    return page_of(runs, store, PICTURE)


@pytest.fixture
def toy(store: Store) -> Results:
    runs = toy_runs()
    write_all(store, runs)
    return shown(runs, store)


def test_nothing_outside_the_page_is_asked_for(whole: str) -> None:
    page = Page(whole)
    tags = Counter(tag for tag, _, _ in page.elements)
    assert tags["script"] == 1
    for tag in ("link", "iframe", "object", "embed", "base", "form", "audio", "video"):
        assert tags[tag] == 0
    assert page.values("src") == [PICTURE.data]
    outside = [link for link in page.values("href") if not link.startswith("#")]
    assert outside == [the_paper().address]
    assert not [a for _, named, _ in page.elements for a in named if a.startswith(("on", "srcset"))]
    style = "".join(text for text, where in page.texts if "style" in where)
    assert style
    assert not re.search(r"url\(|@import|https?:", style)
    assert not [v for v in page.values("style") if "url(" in v]


def test_the_page_forbids_itself_other_scripts_and_requests(whole: str) -> None:
    policies = [
        named["content"] or ""
        for named in Page(whole).all("meta")
        if named.get("http-equiv") == "Content-Security-Policy"
    ]
    assert len(policies) == 1
    rules = dict(rule.strip().partition(" ")[::2] for rule in policies[0].split(";"))
    assert rules["default-src"] == "'none'"
    assert rules["img-src"] == "data:"
    (script,) = (text for text, where in Page(whole).texts if "script" in where)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert rules["script-src"] == f"'sha256-{digest}'"
    assert "connect-src" not in rules


def test_links_buttons_and_labels_lead_somewhere(whole: str) -> None:
    page = Page(whole)
    ids = page.values("id")
    assert len(ids) == len(set(ids))
    targets = [link[1:] for link in page.values("href") if link.startswith("#")]
    targets += page.values("aria-labelledby")
    assert {"claims", "tables", "table90", "figures", "examples", "claim/txt-opus",
            "claims-title", "tables-title", "table90-title"} <= {*targets}  # fmt: skip
    assert sorted(set(targets) - set(ids)) == []


def test_a_keyboard_a_screen_reader_and_a_small_screen_are_served(whole: str) -> None:
    page = Page(whole)
    assert page.all("html") == [{"lang": "en"}]
    assert len(page.all("h1")) == 1
    assert {"name": "viewport", "content": "width=device-width, initial-scale=1"} in page.all(
        "meta"
    )
    assert [image["alt"] for image in page.all("img")] == ["a"]
    for drawing in page.all("svg"):
        hidden = drawing.get("aria-hidden") == "true" or drawing.get("class") == "mark"
        assert hidden or (drawing.get("role") == "img" and drawing.get("aria-label"))
    for region in page.all("div"):
        if region.get("class") == "scroll":
            assert region.get("aria-label")
    wide = [where for tag, named, where in page.elements if tag == "table"]
    assert wide
    for tag, named, where in page.elements:
        if tag == "table" and named.get("class") not in ("answers", "ledger"):
            assert where[-1] == "div"
    style = "".join(text for text, where in page.texts if "style" in where)
    for rule in ("prefers-color-scheme: dark", "@media print", "max-width: 40rem"):
        assert rule in style


def test_each_number_says_where_it_comes_from(toy: Results) -> None:
    html = as_html([toy], ())
    assert numbers_of(html)["ah_wr", "eva-a_min"][1] == "+4.5 ±0.0"
    text = Page(html).text
    for words in ("toy-1/oracle", "0123456789ab", "dpo-eva-a_min"):
        assert words in text


def test_the_page_of_one_table_opens_on_its_numbers(toy: Results) -> None:
    for tables, opened in (([toy], [True]), ([toy, toy], [False, False])):
        page = Page(as_html(tables, ()))
        numbers = [named for named in page.all("details") if named.get("class") == "numbers"]
        assert ["open" in named for named in numbers] == opened


def test_a_page_without_a_store_says_what_it_lacks(toy: Results) -> None:
    text = Page(as_html([replace(toy, runs=None)], ())).text
    assert "Prompts and answers are not published" in text


def test_the_first_screen_shows_each_claim_in_points_beside_its_verdict(store: Store) -> None:
    """Ours of eva-a_min over dpo-1 is +4.5, the paper's +8.5: of that, the sign alone is drawn."""
    claims = [
        CLAIM | {"id": "c", "primary": True, "paper_margin": "+8.5"},
        CLAIM | {"id": "d", "primary": False, "paper_margin": "-0.5"},
    ]
    runs = toy_runs(seeds=[0, 1, 2], table=DECLARATION | {"claims": claims})
    write_luck(store, runs)
    write_all(store, runs)
    html = page_of(runs, store)
    ledger = html.partition('<table class="ledger">')[2].partition("</table>")[0]
    rows = dict(re.findall(r'<tr class="([^"]*)" id="claim/(.)"', ledger))
    assert rows == {"claim supported primary": "c", "claim supported": "d"}
    page = Page(ledger)
    said = [named["aria-label"] or "" for named in page.all("svg") if named.get("role") == "img"]
    assert [words.partition(",")[0] for words in said] == ["our gain +4.50"] * 2
    assert [words.rpartition("is ")[2] for words in said] == ["above zero", "below zero"]
    assert page.text.count("+4.50 ") == 2
    assert html.index('class="answer"') < html.index('id="claims"') < html.index('id="tables"')
    ids = {attributes.get("id") for _, attributes, _ in Page(html).elements}
    assert {"table90", "table90/eva-a_min", "table90/eva-a_min/ah_wr"} <= ids


def test_names_in_the_answer_are_set_as_code(store: Store) -> None:
    """The toy profile has no benchmark for the claim's column."""
    claim = CLAIM | {"test": CLAIM["test"] | {"column": "gsm8k"}}
    runs = toy_runs(table=DECLARATION | {"claims": [claim]})
    write_all(store, runs)
    answer = page_of(runs, store).partition('<div class="answer">')[2].partition("</div>")[0]
    assert "<code>gsm8k</code>" in answer
    assert "`" not in answer
