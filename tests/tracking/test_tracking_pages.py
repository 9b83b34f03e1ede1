"""The first view of MLflow's pages, in a browser: our gain beside the paper's, without a click."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from harness.project import results_dir
from harness.registry.declared import load_tables
from harness.report.publication import read_index, write_index
from harness.tracking import Mlflow, ui_command
from harness.tracking.tables import published_records

PATIENCE_S = 240
SHOTS = Path(os.environ["HARNESS_SCREENSHOTS"]) if "HARNESS_SCREENSHOTS" in os.environ else None


@contextmanager
def served(work_dir: Path, port: int) -> Iterator[dict[str, str]]:
    """Serve the pages of a work folder; yield their addresses by experiment."""
    command, environment, views = ui_command(work_dir, port)
    with subprocess.Popen(command, env=environment, stderr=subprocess.DEVNULL) as server:
        try:
            until = time.monotonic() + PATIENCE_S
            while not _answers(port):
                assert server.poll() is None, "MLflow's server ended"
                assert time.monotonic() < until, "MLflow's server does not answer"
                time.sleep(0.5)
            yield {name: f"http://127.0.0.1:{port}{view}" for name, view in views.items()}
        finally:
            server.terminate()


def _answers(port: int) -> bool:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=5):
            return True
    except (urllib.error.URLError, OSError):
        return False


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def opened(browser: Any, address: str) -> Any:
    """Return a page of 1280 by 900 dots."""
    page = browser.new_page(viewport={"width": 1280, "height": 900})
    page.set_default_timeout(1000 * PATIENCE_S)
    page.goto(address, wait_until="domcontentloaded")
    return page


def heads(page: Any) -> list[str]:
    """Return the headings of a list's columns that name metrics, from left to right."""
    found = page.eval_on_selector_all(
        ".ag-header-cell", "cells => cells.map(c => [c.getBoundingClientRect().x, c.innerText])"
    )
    return [text.strip() for _, text in sorted(found) if "/" in text]


def names(page: Any) -> list[str]:
    """Return the names of the runs in a list, from top to bottom."""
    found = page.eval_on_selector_all(
        "a[href*='/runs/']", "links => links.map(a => [a.getBoundingClientRect().y, a.innerText])"
    )
    return list(dict.fromkeys(text.strip() for _, text in sorted(found) if text.strip()))


@pytest.mark.timeout(600)
def test_a_published_table_opens_on_our_gain_and_the_papers(
    tmp_path: Path, new_work_dir: Callable[[str], Path], browser: Any
) -> None:
    """Of a clone in which nothing was run: the whole table is in the first view, in its order."""
    table = "table6"
    shutil.copytree(results_dir() / "micro" / table, tmp_path / "results" / "micro" / table)
    place = f"micro/{table}"
    write_index(tmp_path / "results", {place: read_index(results_dir())[place]})
    work = new_work_dir("a")
    assert Mlflow(work).write(published_records(tmp_path / "results"))["created"] > 0
    rows = [row.label for row in load_tables()[table].rows]
    with served(work, _free_port()) as pages:
        page = opened(browser, pages[f"{table}/micro/published"])
        page.wait_for_selector("[col-id*='paper/ah_wr']")
        page.screenshot(path=(SHOTS or tmp_path) / "published.png")
        assert heads(page)[:2] == ["gain/ah_wr", "paper/ah_wr.gain"]
        assert names(page) == rows
        page.goto(pages[f"{table}/micro/published"] + "&compareRunsMode=CHART")
        page.locator("text=gain/ah_wr vs paper/ah_wr.gain").first.wait_for()
        page.screenshot(path=(SHOTS or tmp_path) / "charts.png")
