"""The results in the repository are what their per-prompt scores say."""

from __future__ import annotations

import re

from harness.project import results_dir
from harness.registry.declared import load_tables
from harness.registry.profile import load_profiles
from harness.report.page.contents import from_results
from harness.report.publication import published_folders, read_published
from harness.selection.selection import select

FOLDERS = list(published_folders(results_dir()))
PUBLISHED = (
    "choosing components controls reward-models selectors table1 table10 table11 table12 table13 "
    "table14 table15 table16 table2 table4 table5 table6 table7 table8 table9"
).split()


def test_the_published_tables_are_those_expected() -> None:
    """Of `micro-4`, with ten seeds each."""
    assert [folder.relative_to(results_dir()).as_posix() for folder in FOLDERS] == [
        f"micro/{name}" for name in PUBLISHED
    ]


def test_every_published_table_is_on_the_page_with_a_trace_of_each_run() -> None:
    from harness.report.page.page import as_html

    profile = load_profiles()["micro"]
    contents = from_results(list(load_tables().values()), profile, results_dir())
    with_numbers = [report.table_id for report in contents.reports if report.seeds]
    assert sorted(with_numbers) == sorted(folder.name for folder in FOLDERS)
    behind = {run for folder in FOLDERS for run, *_ in read_published(folder)[1]}
    assert behind <= set(contents.traces)
    page = as_html(contents)
    assert all(f'id="{folder.name}"' in page for folder in FOLDERS)
    made = {}
    for row in ("dpo-1", "eva-a_min"):
        card = page.partition(f'id="c-table4-{row}-ah_wr"')[2].partition("</dl>")[0]
        found = dict(re.findall(r"<dt>([^<]*)</dt><dd>([^<]*)</dd>", card))
        made[row] = (found["reward model"], found["creator"], found["judge"])
    reward, judge = "micro-4/rm_pointwise@129a55389283a069", "micro-4/oracle"
    assert made == {
        "dpo-1": (reward, "none", judge),
        "eva-a_min": (reward, "micro-4/evol_instruct", judge),
    }


def test_the_page_of_findings_is_what_the_published_scores_say() -> None:
    """Write it again with the command in its head."""
    page = select("all", "micro").findings()
    assert page == (results_dir() / "README.md").read_text(encoding="utf-8")
