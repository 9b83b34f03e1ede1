"""Figures on the page: drawn from the runs, or published beside the tables.

A figure is published as a folder `results/<profile>/<name>/` that holds no table: `report.md`,
whose heading and pictures with their alternative texts are taken over, the pictures as SVG, and
`report.json`, whose `findings` are, where it has any. Whatever is published in this form is on the
page; nothing has to be declared for it.

On a page made from a store, figures are drawn from that store instead.

Pictures become data in the page itself, as images, where nothing they hold can run.
"""

from __future__ import annotations

import base64
import re
import tempfile
from dataclasses import dataclass
from pathlib import Path

from harness import foreign
from harness.report import view
from harness.report.curves import draw_curves
from harness.report.figures.drawing import picture
from harness.report.figures.report import FigureReport
from harness.report.model import Report
from harness.report.publication import PAGE, REPORT
from harness.report.publish import is_table
from harness.report.reward_study_plot import draw_study

_HEADING = re.compile(r"^# +(.+)$", re.MULTILINE)
_PICTURE = re.compile(r"!\[((?:[^\]\\]|\\.)*)\]\(([\w.-]+\.svg)\)")
_ESCAPED = re.compile(r"\\(.)")


@dataclass(frozen=True)
class Picture:
    """A figure.

    Attributes:
        title: Its title.
        alt: What it shows, for those who do not see it.
        svg: The picture.
        origin: Where it comes from.
        findings: What it shows in sentences, where those were published.
    """

    title: str
    alt: str
    svg: bytes
    origin: str
    findings: tuple[str, ...] = ()

    @property
    def data(self) -> str:
        """The picture as an address that holds it."""
        return f"data:image/svg+xml;base64,{base64.b64encode(self.svg).decode('ascii')}"


def drawn(report: Report) -> list[Picture]:
    """Return the figures of a table's report, drawn now."""
    pictures = []
    with tempfile.TemporaryDirectory() as folder:
        for title, file, alt in view.figures(report):
            path = Path(folder) / file
            if file == view.STUDY and report.study is not None:
                draw_study(report.study, path)
            else:
                draw_curves(report.curves, path)
            pictures.append(Picture(title, alt, path.read_bytes(), "drawn from the store"))
    return pictures


def drawn_figure(report: FigureReport) -> Picture:
    """Return a figure of the paper, drawn now."""
    svg = picture(report).svg()
    origin = f"drawn from the store, {report.seed_count}"
    return Picture(report.heading, report.alt, svg, origin, tuple(report.findings))


def beside(folder: Path) -> list[Picture]:
    """Return the figures published in a folder."""
    page = folder / PAGE
    if not page.is_file():
        return []
    text = page.read_text(encoding="utf-8")
    heading = _HEADING.search(text)
    title = _plain(heading[1]) if heading else folder.name
    origin = f"published in results/{folder.parent.name}/{folder.name}"
    return [
        Picture(title, _plain(alt), (folder / file).read_bytes(), f"{origin}/{file}",
                _findings(folder))
        for alt, file in _PICTURE.findall(text)
        if (folder / file).is_file()
    ]  # fmt: skip


def published(profile_results: Path) -> list[Picture]:
    """Return the figures published of a profile that belong to no table, by their folders."""
    folders = sorted(path.parent for path in profile_results.glob(f"*/{PAGE}"))
    return [
        picture
        for folder in folders
        if not ((folder / REPORT).is_file() and is_table(folder))
        for picture in beside(folder)
    ]


def _findings(folder: Path) -> tuple[str, ...]:
    try:
        found = foreign.read_json((folder / REPORT).read_bytes())
    except (FileNotFoundError, ValueError):
        return ()
    findings = found.get("findings") if isinstance(found, dict) else None
    return tuple(view.plain(str(said)) for said in findings or ())


def _plain(markdown: str) -> str:
    return view.plain(_ESCAPED.sub(r"\1", markdown))
