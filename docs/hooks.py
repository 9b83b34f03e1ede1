"""What the site has beside the pages in this folder, and what no page may have.

Added are the findings, from `results/README.md`, whose answer and picture stand on the home page as
well, and one page of reference for each module of `harness/`, so that a module that is added or
renamed has its page. A page that would ask another server for anything fails the build.
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

ELSEWHERE = re.compile(r"\[([^\]]*)\]\(\.\./[^)]+\)")
"""A page's link to a file of the repository, which the site has not."""

FETCHED = re.compile(r"<(?:script|img|iframe|source)\b[^>]*\bsrc=\"?(?:https?:)?//[^>]*>"
                     r"|<link\b(?=[^>]*rel=\"?(?:stylesheet|preconnect|icon|preload))"
                     r"[^>]*href=\"?(?:https?:)?//[^>]*>")  # fmt: skip
"""What a browser would fetch from another server when it shows a page."""


ANSWER = "<!-- answer -->"
"""Where the answer stands on a page."""

MADE = {"README.md": "findings.md", "images/report.png": "images/report.png"}
"""What the site has of the results, by its place there; in the repository, pages link the place."""


def modules() -> dict[str, str]:
    """Return the dotted names of the packages and modules of `harness`, by their page."""
    found = {}
    for path in sorted((ROOT / "harness").rglob("*.py")):
        name = ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
        if name != "harness" and "._" not in name and (path.parent / "__init__.py").exists():
            found[f"reference/{name.removeprefix('harness.')}.md"] = name
    return found


def on_config(config: Any) -> Any:
    """Give the reference its pages in the navigation, those of a package under its name."""
    pages: dict[str, list[dict[str, str]]] = {}
    for page, name in modules().items():
        package, _, rest = name.removeprefix("harness.").partition(".")
        pages.setdefault(package, []).append({rest or package: page})
    for part in config.nav:
        for entries in part.values():
            for entry in entries if isinstance(entries, list) else ():
                if REFERENCE in entry:
                    entry[REFERENCE] = [
                        {package: own} if len(own) > 1 else own[0] for package, own in pages.items()
                    ]
    return config


def findings() -> str:
    """Return the findings without links to what the site has not."""
    text = (ROOT / "results" / "README.md").read_text(encoding="utf-8")
    return RELATIVE_LINK.sub(r"\1", text)


def on_files(files: Files, config: Any) -> Files:
    """Add the pages and the picture that are made here."""
    made: dict[str, str | bytes] = {page: f"::: {name}\n" for page, name in modules().items()}
    for published, name in MADE.items():
        made[name] = (ROOT / "results" / published).read_bytes()
    made[MADE["README.md"]] = findings()
    for page, content in made.items():
        files.append(File.generated(config, page, content=content))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Files) -> str:
    """Put the answers where a page asks for them, and lead links to what is made here.

    Answers are the first lines of the findings: what was used, the terms, and a list.
    """
    lines = re.search(r"(?:^\*\*.+\*\*\n\n\w.+\n\n(?:- .+\n)+\n?)+", findings(), re.MULTILINE)
    if lines is None:
        raise PluginError("results/README.md has no answer")
    for published, made in MADE.items():
        markdown = markdown.replace(f"](../results/{published})", f"]({made})")
    return ELSEWHERE.sub(r"\1", markdown).replace(ANSWER, lines[0])


SHIM = '<script src="https://unpkg.com/iframe-worker/shim"></script>'
"""What Material's plug-in for pages that are read as files would have browsers fetch."""


def on_post_page(output: str, page: Any, config: Any) -> str:
    """Let pages be searched as files without asking a server, and refuse one that asks any."""
    worker = (ROOT / "docs" / "worker.js").read_text(encoding="utf-8")
    output = output.replace(SHIM, f"<script>{worker}</script>")
    found = FETCHED.search(output)
    if found:
        raise PluginError(f"{page.file.src_uri} asks another server: {found[0]}")
    return output
