"""Hostile texts, wherever a text can come from, are words in every form of a report."""

import json
import random
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
from markdown_it import MarkdownIt
from page_reader import Page
from scene import Scene, rounds
from toy_page import page_of, write_lineage, write_training
from toy_tables import DECLARATION, judge_of, stored, toy_runs

from harness.pipeline.runs import TableRuns
from harness.report.page.page import SCRIPT, TEMPLATES
from harness.report.render import as_markdown, as_text
from harness.report.results import Results
from harness.runtime import Store
from harness.selection.reporting import Reports
from harness.tracking.tables import TableState, state_records

PIECES = (
    "<script>alert(1)</script>", "\"'><img src=x onerror=alert(2)>", "</td></table></style></div>",
    "<svg/onload=alert(3)>", "javascript:alert(4)", "{{ 7 * 7 }}", "{% raw %}", "&lt;b&gt;", "<!--",
    "[a](javascript:alert(5))", "![b](https://example.org/x)", "| c | d |", "# e", "- f", "1. g",
    "```h", "***", "[ref]: https://example.org", "<https://example.org>", "~~i~~", "\\|",
    "\\input{/etc/passwd}", "\\write18{id}", "$x$", "%", "}", "\\end{document}", "~^_&#",
    "\\catcode`", "=cmd|'/c calc'!A0", "+1+1", "-2+3", "@SUM(A1)", '"', ",", ";", "\t",
    "\x1b[31m", "\x1b]0;title\x07", "\x9b2J", "\x08\x08", "\r", "\n", "\x00", "\u202e", "\u2066",
    "\u2028", "[red]j[/red]", "[link=https://example.org]k[/link]", ":smile:", "%s %d {0}", "Ａ",
    "a\u0300\u0301\u0302", "👩‍👩‍👧", "θ_{0→1}", "x" * 300,
)  # fmt: skip
"""What means something to a browser, Markdown, a terminal or a template."""


def text(dice: random.Random) -> str:
    """Return a text of a few pieces, with something that can be seen in it."""
    pieces = dice.choices(PIECES, k=dice.randrange(1, 5))
    return dice.choice(("", " ")).join([*pieces, "seen"])


def declared(dice: random.Random) -> dict[str, Any]:
    """Return the toy table with a hostile text in every place that has one."""
    table: dict[str, Any] = deepcopy(DECLARATION)
    table["title"], table["question"], table["notes"] = text(dice), text(dice), [text(dice)]
    for row in table["rows"]:
        row["label"] = text(dice)
    for column in table["columns"]:
        column["benchmark"], column["metric"] = text(dice), text(dice)
        column["printed"] = text(dice)
    test = {"kind": "compare", "left": "dpo-1", "op": ">", "right": "base", "column": "ah_wr"}
    table["claims"] = [
        {"id": "c", "primary": True, "statement": text(dice), "source": text(dice), "test": test}
    ]
    return table


def filled(folder: Path, dice: random.Random) -> tuple[TableRuns, Store]:
    """Return the table's runs, with models, judges and errors that say hostile things."""
    store, runs = Store(folder / "store"), toy_runs(seeds=[0], table=declared(dice))
    write_lineage(store, runs, text=text(dice))
    write_training(store, runs)
    broken = judge_of(runs, "base", 0, "ah_wr")
    # What the system says of a file may hold halves of characters.
    store.record_failure(broken, text(dice) + "\udcff\ud83d", text(dice))
    return runs, store


@pytest.mark.parametrize("scene", rounds(2), indirect=True)
def test_hostile_texts_in_every_form(scene: Scene) -> None:
    runs, store = filled(scene.folder, scene.dice)
    found = stored(runs, store)
    check_page(page_of(runs, store))
    check_markdown(as_markdown(found))
    check_terminal(as_text(found, width=100))
    said = Reports((found,)).text("json")
    assert json.loads(said)
    check_mlflow(runs, found, store)
    for form in (said, as_markdown(found), as_text(found)):
        form.encode()


def check_page(html: str) -> None:
    """Fail where a planted text is more than text."""
    page = Page(html)
    (script,) = (text for text, where in page.texts if "script" in where)
    assert script == (TEMPLATES / SCRIPT).read_text(encoding="utf-8")
    assert len(page.all("script")) == 1
    assert page.all("svg/onload=alert(3)") == []
    handlers = {name for _, named, _ in page.elements for name in named if name.startswith("on")}
    assert handlers == set()
    links = [*page.values("href"), *page.values("src")]
    assert not [link for link in links if "alert" in link or "example.org/x" in link]
    assert {c for c in html if not c.isprintable()} <= {"\n", "\t"}
    html.encode()


def check_markdown(page: str) -> None:
    """Fail where a planted text makes an element, or breaks a table."""
    tokens = MarkdownIt("commonmark", {"html": True}).enable(["table", "strikethrough"]).parse(page)
    inner = [child for token in tokens for child in token.children or []]
    kinds = {token.type for token in [*tokens, *inner]}
    assert not kinds & {"html_block", "html_inline", "image", "s_open", "fence"}, kinds
    links = [dict(token.attrs) for token in inner if token.type == "link_open"]
    assert not [link for link in links if "alert" in str(link) or "example.org" in str(link)]
    widths = [line.replace(r"\|", "").count("|") for line in page.splitlines() if line[:1] == "|"]
    tables = [token for token in tokens if token.type == "tr_open"]
    # The line of dashes under a head is no row.
    heads = sum(token.type == "thead_open" for token in tokens)
    assert len(widths) == len(tables) + heads
    assert {c for c in page if not c.isprintable()} <= {"\n"}


def check_terminal(shown: str) -> None:
    """Fail where a terminal would obey."""
    assert {c for c in shown if not c.isprintable()} <= {"\n"}


def check_mlflow(runs: TableRuns, results: Results, store: Store) -> None:
    """Fail where MLflow is given what a database of its cannot keep; its pages show texts."""
    for record in state_records(TableState(runs, results), store):
        for said in [record.name, record.note, *record.tags.values(), *record.params.values()]:
            said.encode()
            assert "\x00" not in said
