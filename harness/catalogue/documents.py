"""A YAML file with the line of every key, and problems that say where they are.

A declaration is read in two steps. First the file is composed into plain data, remembering the
line of each key and refusing duplicate keys, which YAML loaders otherwise drop in silence. Then
a pydantic model checks the data, and each of its complaints is turned into one `Problem`: file,
line, what is wrong and, for a name that is not known, the nearest one that is. Problems are
collected over all files and raised together.
"""

from __future__ import annotations

import difflib
import re
import types
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Union, get_args, get_origin

import yaml
from pydantic import BaseModel, ValidationError

from harness.errors import UserError
from harness.project import project_root

Loc = tuple[str | int, ...]

# libyaml's loader is several times faster; both accept the same safe subset.
_Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


@dataclass(frozen=True, order=True)
class Problem:
    """One thing that is wrong in a declaration."""

    file: str
    line: int
    message: str

    def __str__(self) -> str:
        """Return the problem as `file:line: message`."""
        return f"{self.file}:{self.line}: {self.message}"


class CatalogueError(UserError):
    """Declarations that cannot be used; carries every problem found."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems = sorted(set(problems))
        count = len(self.problems)
        head = "There is 1 problem" if count == 1 else f"There are {count} problems"
        lines = "".join(f"\n  {problem}" for problem in self.problems)
        super().__init__(f"{head} in the declarations; correct and try again:{lines}")


@dataclass(frozen=True)
class Document:
    """A YAML file as plain data, with the line of each key and list item."""

    path: Path
    data: Any
    lines: Mapping[Loc, int]
    comments: Mapping[int, str]
    problems: tuple[Problem, ...]

    @property
    def name(self) -> str:
        """Return the file's path, relative to the project folder where it lies inside."""
        return display_path(self.path)

    def line(self, loc: Loc) -> int:
        """Return the line of a place in the data, or of the nearest enclosing one."""
        while loc not in self.lines and loc:
            loc = loc[:-1]
        return self.lines.get(loc, 1)

    def problem(self, loc: Loc, message: str) -> Problem:
        """Return a problem at a place in the data."""
        return Problem(self.name, self.line(loc), message)


def display_path(path: Path) -> str:
    """Return a path relative to the project folder where it lies inside."""
    root = project_root()
    return str(path.relative_to(root) if path.is_relative_to(root) else path)


def yaml_files(folder: Path) -> list[Path]:
    """Return the YAML files under a folder, at any depth, in order of their paths."""
    return sorted(p for p in folder.rglob("*") if p.suffix in (".yaml", ".yml") and p.is_file())


def read_document(path: Path) -> Document:
    """Read a YAML file; syntax errors and duplicate keys become the document's problems."""
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        problem = Problem(display_path(path), 1, f"cannot be read: {error.strerror}")
        return Document(path, None, {}, {}, (problem,))
    except UnicodeDecodeError as error:
        problem = Problem(display_path(path), 1, f"is not UTF-8 text: {error.reason}")
        return Document(path, None, {}, {}, (problem,))
    comments = {
        number: line.split(" # ", 1)[1].strip()
        for number, line in enumerate(text.splitlines(), start=1)
        if " # " in line
    }
    walker = _Walker(display_path(path))
    try:
        data = walker.compose(text)
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        problem = Problem(display_path(path), line, f"is not valid YAML: {error.problem}")
        return Document(path, None, {}, comments, (problem,))
    except yaml.YAMLError as error:
        problem = Problem(display_path(path), 1, f"is not valid YAML: {error}")
        return Document(path, None, {}, comments, (problem,))
    return Document(path, data, walker.lines, comments, tuple(walker.problems))


class _Walker:
    """Turns composed YAML nodes into data while noting lines and duplicate keys."""

    def __init__(self, file: str) -> None:
        self.file = file
        self.lines: dict[Loc, int] = {}
        self.problems: list[Problem] = []

    def compose(self, text: str) -> Any:
        loader = _Loader(text)
        try:
            node = loader.get_single_node()
            return None if node is None else self._value(loader, node, ())
        finally:
            loader.dispose()

    def _value(self, loader: Any, node: Any, loc: Loc) -> Any:
        self.lines.setdefault(loc, node.start_mark.line + 1)
        if isinstance(node, yaml.MappingNode):
            return self._mapping(loader, node, loc)
        if isinstance(node, yaml.SequenceNode):
            return [self._value(loader, item, (*loc, i)) for i, item in enumerate(node.value)]
        return loader.construct_object(node)

    def _mapping(self, loader: Any, node: Any, loc: Loc) -> dict[str, Any]:
        data: dict[str, Any] = {}
        for key_node, value_node in node.value:
            # Keys are names, whatever YAML would make of them (`on`, `1.0`, `null`).
            key = str(key_node.value)
            line = key_node.start_mark.line + 1
            if key in data:
                first = self.lines[(*loc, key)]
                message = f"`{key}` is given twice, first on line {first}; keep one"
                self.problems.append(Problem(self.file, line, message))
                continue
            self.lines[(*loc, key)] = line
            data[key] = self._value(loader, value_node, (*loc, key))
        return data


def nearest(name: str, known: Iterable[str]) -> str:
    """Return `; did you mean ...?` with the nearest known name, or the names there are."""
    names = list(known)
    close = difflib.get_close_matches(name, names, n=1, cutoff=0.5)
    if close:
        return f"; did you mean `{close[0]}`?"
    return f"; it can be {', '.join(f'`{n}`' for n in names)}" if names else ""


def explain(
    error: ValidationError, model: type[BaseModel], document: Document, prefixes: Sequence[Loc]
) -> list[Problem]:
    """Turn what pydantic complains of into problems with lines and nearest names.

    Args:
        error: What validating some data of the document against `model` raised.
        model: That model.
        document: Where the data was written.
        prefixes: Where in the document the data may stand, the most specific first; a complaint
            is placed at the first of them under which its own place was written.
    """
    problems = []
    for item in error.errors(include_url=False):
        loc = tuple(item["loc"])
        places = [(*prefix, *loc) for prefix in prefixes]
        # A check on the whole, or a missing key, was written nowhere: it belongs to the first.
        written = [p for p in places if p in document.lines] if loc else []
        place = written[0] if written else places[0]
        problems.append(document.problem(place, f"{_dotted(place)}: {_message(item, model, loc)}"))
    return problems


def _message(item: Mapping[str, Any], model: type[BaseModel], loc: Loc) -> str:
    kind, value = item["type"], item["input"]
    if kind == "extra_forbidden":
        return f"unknown key{nearest(str(loc[-1]), _keys_at(model, loc[:-1]))}"
    if kind == "missing":
        return "this key is missing; add it"
    if kind == "literal_error":
        choices = re.findall(r"'([^']*)'", item["ctx"]["expected"])
        return f"`{value}` is not known{nearest(str(value), choices)}"
    if kind == "value_error":
        return str(item["ctx"]["error"])
    message = item["msg"][:1].lower() + item["msg"][1:]
    shown = f", not `{value}`" if isinstance(value, str | int | float | bool | None) else ""
    return f"{message}{shown}"


def _dotted(loc: Loc) -> str:
    text = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in loc)
    return text.lstrip(".") or "the file"


def _keys_at(model: type[BaseModel], loc: Loc) -> list[str]:
    """Return the keys allowed at a place below a model."""
    current: Any = model
    for part in loc:
        current = _unwrapped(current)
        if isinstance(current, type) and issubclass(current, BaseModel):
            fields = {field.alias or name: field for name, field in current.model_fields.items()}
            current = fields[str(part)].annotation if part in fields else None
        elif get_origin(current) in (dict, Mapping):
            current = get_args(current)[1]
        elif get_args(current):
            current = get_args(current)[0]
    current = _unwrapped(current)
    if isinstance(current, type) and issubclass(current, BaseModel):
        return [field.alias or name for name, field in current.model_fields.items()]
    return []


def _unwrapped(annotation: Any) -> Any:
    """Return the one type that is left of an optional one."""
    if get_origin(annotation) in (Union, types.UnionType):
        rest = [arg for arg in get_args(annotation) if arg is not type(None)]
        return rest[0]
    return annotation
