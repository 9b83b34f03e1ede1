"""A report as Markdown, from one template; every text that is data is escaped."""

from __future__ import annotations

import functools
import re
from pathlib import Path
from typing import TYPE_CHECKING

from harness.report import view
from harness.report.report import Report
from harness.report.view_details import detail_blocks
from harness.report.view_study import study_blocks

if TYPE_CHECKING:
    from jinja2 import Template

_TEMPLATES = Path(__file__).parent / "templates"

_MEANS_SOMETHING = re.compile(r"([\\`*_{}\[\]<>|~&$!#])")
_OPENS = re.compile(r"^(\d*)([-+=.)])(?=\s|$|[-=])")


def as_markdown(report: Report) -> str:
    """Return a report as GitHub-flavoured Markdown."""
    notes_title, notes = view.table_notes(report)
    return template("report.md.j2").render(
        heading=view.heading(report),
        facts=view.facts(report),
        blocks=[*view.blocks(report), *study_blocks(report)],
        failures=view.failures(report),
        details=detail_blocks(report),
        figures=view.figures(report),
        groups=view.assumption_groups(report),
        notes_title=notes_title,
        notes=notes,
    )


def escape(text: str) -> str:
    """Return a text that Markdown shows as it is, on one line and within one table cell."""
    escaped = _MEANS_SOMETHING.sub(r"\\\1", view.plain(text))
    # At the start of a line these would open a list or underline a heading.
    return _OPENS.sub(r"\1\\\2", escaped)


@functools.cache
def template(name: str) -> Template:
    """Return a packaged template of Markdown; every text in it goes through the filter `md`."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    environment = Environment(
        loader=FileSystemLoader(_TEMPLATES),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        # The output is Markdown, whose own escaping every text goes through in the template.
        autoescape=False,
    )
    environment.filters["md"] = escape
    return environment.get_template(name)
