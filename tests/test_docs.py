"""The documentation: what it tells a reader to write works, and what it names exists."""

import ast
import html
import io
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
FINDINGS = ROOT / "results" / "README.md"
PAGES = sorted(DOCS.glob("*.md"))

BLOCK = re.compile(
    r"^```(?P<language>\w+)(?: title=\"(?P<title>[^\"]+)\")?\n(?P<text>.*?)^```$", re.M | re.S
)
WALK = re.compile(r"<!-- walk: (\w+) -->\n(.*?)<!-- end of walk -->", re.S)
STEP = re.compile(r"^\d+\. `([\w/]+\.py)` · ((?:`[\w.]+`(?:, )?)+):", re.M)
ROWS = re.compile(r"^rows:\n(?:(?:[ #].*)?\n)*", re.M)
AT_THE_END = ", at the end of rows"

DOES = re.compile(r"^```(?:bash|diff|\w+ title=)", re.M)
TRIED = [page.stem for page in PAGES if DOES.search(page.read_text(encoding="utf-8"))]
"""Pages with something to write or to type; a command that takes long is in a block of `text`."""


class Block(NamedTuple):
    language: str
    title: str | None
    text: str


def blocks(page: Path) -> Iterator[Block]:
    """Yield the fenced blocks of a page, in order."""
    for found in BLOCK.finditer(page.read_text(encoding="utf-8")):
        yield Block(found["language"], found["title"], found["text"])


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """Return a copy of the project that a reader may write to."""
    for name in ("harness", "experiments", "ablations"):
        shutil.copytree(ROOT / name, tmp_path / name)  # with what Python has compiled of it
    for name in ("pyproject.toml", "results"):
        (tmp_path / name).symlink_to(ROOT / name)
    return tmp_path


def type_in(
    folder: Path, command: str, stdin: str | None = None, package: Path | None = None
) -> str:
    """Type a command in a folder, and return what it printed.

    `harness` and `python` are those of this interpreter, which finds the package in the folder, or
    where it is told to.
    """
    said = f'harness() {{ "{sys.executable}" -m harness "$@"; }}\n'
    said += f'python() {{ "{sys.executable}" "$@"; }}\n{command}'
    environment = {"PATH": "/usr/bin:/bin", "HOME": str(folder)}
    environment["PYTHONPATH"] = str(package or folder)
    done = subprocess.run(
        ["bash", "-euc", said], cwd=folder, env=environment, input=stdin, text=True,
        capture_output=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
    return done.stdout


def follow(block: Block, folder: Path, exported: str) -> None:
    """Do what a block says, in a shell that has done these exports."""
    if block.language == "diff":
        type_in(folder, "git apply --unidiff-zero -", block.text)
    elif block.language == "bash":
        type_in(folder, exported + block.text)
    elif block.title is not None and block.title.endswith(AT_THE_END):
        path = folder / block.title.removesuffix(AT_THE_END)
        text = path.read_text(encoding="utf-8")
        rows = ROWS.search(text)
        assert rows is not None
        end = rows.start() + len(rows[0].rstrip())
        path.write_text(f"{text[:end]}\n{block.text}{text[end:]}", encoding="utf-8")
    elif block.title is not None:
        (folder / block.title).write_text(block.text, encoding="utf-8")
        if block.language == "python":
            type_in(folder, f"python {block.title}")


@pytest.mark.parametrize("name", TRIED)
def test_what_a_page_says_to_write_and_to_type_works(name: str, copy: Path) -> None:
    exported = ""
    for block in blocks(DOCS / f"{name}.md"):
        follow(block, copy, exported)
        if block.language == "bash":
            exported += "".join(line for line in block.text.splitlines(True) if "export " in line)


def test_the_walks_name_functions_that_are_there_each_file_once() -> None:
    walks = dict(WALK.findall((DOCS / "architecture.md").read_text(encoding="utf-8")))
    assert sorted(walks) == ["prompt", "run"]
    for walk in walks.values():
        steps = STEP.findall(walk)
        assert len(steps) == len(re.findall(r"^\d+\.", walk, re.M))
        files = [file for file, _ in steps]
        assert len(files) == len(set(files))
        missing = [
            f"{file}: {name}"
            for file, names in steps
            for name in re.findall(r"`([\w.]+)`", names)
            if name not in defined_in(ROOT / file)
        ]
        assert not missing, "\n".join(missing)


def defined_in(path: Path) -> set[str]:
    """Return the functions and classes of a module, and the methods as `Class.method`."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
    found = {node.name for node in tree.body if isinstance(node, kinds)}
    classes = [node for node in tree.body if isinstance(node, ast.ClassDef)]
    return found | {f"{c.name}.{node.name}" for c in classes for node in c.body
                    if isinstance(node, kinds)}  # fmt: skip


def test_the_architecture_names_every_package() -> None:
    text = (DOCS / "architecture.md").read_text(encoding="utf-8")
    packages = {path.parent.name for path in (ROOT / "harness").glob("*/__init__.py")}
    assert not {name for name in packages if f"`harness/{name}/`" not in text}


def test_every_page_is_in_the_navigation() -> None:
    entries = re.findall(r": ([\w-]+\.md)", (ROOT / "mkdocs.yml").read_text(encoding="utf-8"))
    assert sorted({*entries} - {"findings.md"}) == [page.name for page in PAGES]


def answer_in(text: str) -> str:
    """Return the answers in a page of Markdown: what was used, in bold, the terms and the lines."""
    found = re.search(r"(?:^\*\*.+\*\*\n\n\w.+\n\n(?:- .+\n)+\n?)+", text, re.MULTILINE)
    return found[0] if found else ""


TERMINAL = DOCS / "images" / "terminal.svg"
SHOWN = "report table4 --published"


def terminal_picture() -> str:
    """Return what a command prints on a terminal of 80 columns, as an SVG."""
    environment = {**os.environ, "COLUMNS": "80", "FORCE_COLOR": "1", "TERM": "xterm-256color"}
    command = [sys.executable, "-m", "harness", *SHOWN.split()]
    done = subprocess.run(
        command, cwd=ROOT, env=environment, text=True, capture_output=True, check=True
    )
    screen = Console(record=True, width=80, file=io.StringIO(), force_terminal=True)
    screen.print(Text.from_ansi(done.stdout.strip()))
    picture = screen.export_svg(title=f"harness {SHOWN}", unique_id="terminal")

    def measured(found: re.Match[str]) -> str:
        """Correct a text's length: `rich` counts a combining character as a column."""
        start, length, rest, text = found.groups()
        own = html.unescape(text)
        return f"{start}{float(length) * cell_len(own) / len(own):g}{rest}{text}<"

    return re.sub(r'(<text[^>]* textLength=")([\d.]+)("[^>]*>)([^<]+)<', measured, picture)


def test_the_picture_of_the_terminal_is_what_the_command_prints() -> None:
    """After other findings, `python tests/test_docs.py` draws it again."""
    assert TERMINAL.read_text(encoding="utf-8") == terminal_picture()


def test_the_notebook_reads_the_published_runs(tmp_path: Path) -> None:
    cells = json.loads((DOCS / "published.ipynb").read_text(encoding="utf-8"))["cells"]
    code = "\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "code")
    type_in(tmp_path, "python -", f"{code}\nassert len(gains) == 9, gains\n", ROOT)
    assert not (tmp_path / ".harness").exists()


if __name__ == "__main__":
    readme = ROOT / "README.md"
    text = readme.read_text(encoding="utf-8")
    answer = answer_in(FINDINGS.read_text(encoding="utf-8"))
    readme.write_text(text.replace(answer_in(text), answer), encoding="utf-8")
    TERMINAL.write_text(terminal_picture(), encoding="utf-8")
