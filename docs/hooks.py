"""What the site has beside the pages in this folder, and what no page may have.

Added are the findings, from `results/README.md`, and one page of reference for each package of
`harness/`, so that a package that is added or renamed has its page. A page that would ask another
server for anything fails the build.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files

ROOT = Path(__file__).resolve().parents[1]

REFERENCE = "API reference"

RELATIVE_LINK = re.compile(r"!?\[([^\]]*)\]\((?!https?:|#)[^)]+\)")
"""A link to a published file, which the site has not."""

FETCHED = re.compile(r"<(?:script|img|iframe|source)\b[^>]*\bsrc=\"?(?:https?:)?//[^>]*>"
                     r"|<link\b(?=[^>]*rel=\"?(?:stylesheet|preconnect|icon|preload))"
                     r"[^>]*href=\"?(?:https?:)?//[^>]*>")  # fmt: skip
"""What a browser would fetch from another server when it shows a page."""


def packages() -> dict[str, str]:
    """Return the dotted names of the packages and modules right below `harness`, by their page."""
    below = sorted((ROOT / "harness").iterdir())
    modules = [p.stem for p in below if p.suffix == ".py" and not p.stem.startswith("_")]
    folders = [p.name for p in below if (p / "__init__.py").exists()]
    return {f"reference/{name}.md": f"harness.{name}" for name in sorted([*modules, *folders])}


def on_config(config: Any) -> Any:
    """Give the reference its pages in the navigation."""
    for part in config.nav:
        for entries in part.values():
            for entry in entries if isinstance(entries, list) else ():
                if REFERENCE in entry:
                    entry[REFERENCE] = [{name: page} for page, name in packages().items()]
    return config


def on_files(files: Files, config: Any) -> Files:
    """Add the pages that are made here."""
    findings = (ROOT / "results" / "README.md").read_text(encoding="utf-8")
    made = {page: f"::: {name}\n" for page, name in packages().items()}
    made["findings.md"] = RELATIVE_LINK.sub(r"\1", findings)
    for page, text in made.items():
        files.append(File.generated(config, page, content=text))
    return files


def on_post_page(output: str, page: Any, config: Any) -> str:
    """Refuse a page that is not complete in itself."""
    found = FETCHED.search(output)
    if found:
        raise PluginError(f"{page.file.src_uri} asks another server: {found[0]}")
    return output
