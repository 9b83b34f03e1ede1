"""A YAML file as plain data, and problems that say where in it they are.

Plain data are null, truth values, numbers, texts (dates among them), lists and mappings with text
as keys; whatever else is wrong with a text is one `YamlFault`. A pydantic model checks a
declaration: each complaint is one `Problem` with file, line and, for an unknown name, the nearest
known one. Problems are collected over all files and raised together, as a `RegistryError`.

`{value: 0.05, source: paper table 4}` in place of a value says where it comes from.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import yaml
from pydantic import BaseModel, ValidationError, model_validator

from harness.errors import UserError
from harness.foreign import in_a_line, read_plain
from harness.project import project_root
from harness.strict import Strict, models_in

Loc = tuple[str | int, ...]
Lines = dict[Loc, int]
"""The line of each key and list item."""

MOST_BYTES = 2**20
"""Bytes of a text; the longest declaration has a sixtieth of them."""

DEEPEST = 40
"""Collections inside one another; libyaml overflows the C stack at some tens of thousands."""

MOST_PLACES = 100_000
"""Keys and items; with aliases few bytes could stand for any number."""

_CORE = "tag:yaml.org,2002:"
_TEXT = f"{_CORE}str"
_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_NUMBERS = yaml.constructor.SafeConstructor()

Declared = TypeVar("Declared", bound=BaseModel)
Found = TypeVar("Found")


class YamlFault(Exception):
    """What is wrong with a text, and on which line."""

    def __init__(self, line: int, message: str) -> None:
        self.line = line
        self.message = in_a_line(message)
        super().__init__(f"line {line} {self.message}")


def _fault(at: Any, message: str) -> YamlFault:
    return YamlFault(at.start_mark.line + 1, message)


def read_yaml(path: Path) -> Any:
    """Return the plain data of a YAML file that is no declaration of the project."""
    try:
        return parse_yaml(read_text(path))
    except YamlFault as fault:
        raise UserError(
            f"{path}:{fault.line}: {fault.message}; mend it or name another file"
        ) from fault


def read_text(path: Path) -> str:
    try:
        raw = read_plain(path, MOST_BYTES + 1)
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or str(error)
        raise YamlFault(1, f"cannot be read: {why}") from error
    if len(raw) > MOST_BYTES:
        raise YamlFault(1, f"is larger than {MOST_BYTES // 2**20} MiB; no such file needs to be")
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise YamlFault(line, f"is not UTF-8 text: {error.reason}") from error


def parse_yaml(text: str) -> Any:
    """Return the plain data of a text.

    Raises:
        YamlFault: It is no YAML, or says what is no plain data.
    """
    return _parsed(text)[0]


def _parsed(text: str) -> tuple[Any, Lines]:
    lines: Lines = {}
    try:
        depth = 0
        for event in yaml.parse(text, Loader=_LOADER):
            depth += isinstance(event, yaml.CollectionStartEvent)
            depth -= isinstance(event, yaml.CollectionEndEvent)
            if depth > DEEPEST:
                raise _fault(event, f"is nested deeper than {DEEPEST} levels")
        root = yaml.compose(text, Loader=_LOADER)
        return (None if root is None else _plain(root, (), lines)), lines
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        raise YamlFault(line, f"is not valid YAML: {error.problem}") from error
    except (yaml.YAMLError, UnicodeEncodeError) as error:
        raise YamlFault(1, f"is not valid YAML: {' '.join(str(error).split())}") from error


def _plain(node: Any, loc: Loc, lines: Lines) -> Any:
    """Return what a node holds; the lines of its keys and items are added."""
    if len(loc) > DEEPEST or len(lines) > MOST_PLACES:
        raise _fault(node, "has aliases in their own anchor, or for too much: write it out")
    kind = node.tag.removeprefix(_CORE)
    if kind == "map":
        return _mapping(node, loc, lines)
    if kind == "seq":
        for i, item in enumerate(node.value):
            lines[*loc, i] = item.start_mark.line + 1
        return [_plain(item, (*loc, i), lines) for i, item in enumerate(node.value)]
    if kind in ("str", "timestamp", "null"):
        return None if kind == "null" else node.value
    if kind not in ("bool", "int", "float"):
        raise _fault(node, f"has the tag `{kind[:60]}`; quote the value if it is text")
    try:
        if len(node.value) <= 100:
            return getattr(_NUMBERS, f"construct_yaml_{kind}")(node)
    except (ValueError, LookupError):
        pass
    raise _fault(node, f"cannot read `{node.value[:60]}` as `{kind}`")


def _mapping(node: Any, loc: Loc, lines: Lines) -> dict[str, Any]:
    data: dict[str, Any] = {}
    first: Lines = {}
    for key, _ in node.value:
        if not isinstance(key, yaml.ScalarNode):
            raise _fault(key, "has a list or a mapping as a key; a key is a name")
        # Keys are names, whatever YAML would make of them (`on`, `1.0`, `null`).
        name, line = str(key.value), key.start_mark.line + 1
        if name in data:
            where = f"first on line {first[*loc, name]}; keep one"
            raise _fault(key, f"`{name[:60]}` is given twice, {where}")
        data[name], first[*loc, name] = None, line
    sourced = data.keys() == _SOURCED  # the place of such a value is that of both
    lines |= {} if sourced else first
    for key, value in node.value:
        name = str(key.value)
        if value.tag == _TEXT:
            data[name] = value.value
        else:
            data[name] = _plain(value, loc if sourced else (*loc, name), lines)
    return data


def as_yaml(data: Any) -> str:
    """Return plain data as YAML, keys in their order."""
    return str(yaml.safe_dump(data, sort_keys=False, allow_unicode=True))


@dataclass(frozen=True, order=True)
class Problem:
    """One thing that is wrong in a declaration."""

    file: str
    line: int
    message: str

    def __post_init__(self) -> None:
        # It quotes what somebody else wrote.
        object.__setattr__(self, "message", in_a_line(self.message))

    def __str__(self) -> str:
        """Return the problem as `file:line: message`."""
        return f"{self.file}:{self.line}: {self.message}"


class RegistryError(UserError):
    """Declarations that cannot be used; carries every problem found."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems = sorted(set(problems))
        count = len(self.problems)
        head = "There is 1 problem" if count == 1 else f"There are {count} problems"
        lines = "".join(f"\n  {problem}" for problem in self.problems)
        super().__init__(f"{head} in the declarations; correct and try again:{lines}")


@dataclass(frozen=True)
class Document:
    """A YAML file: its plain data, or what keeps it from being any."""

    path: Path
    text: str
    data: Any
    lines: Lines
    problems: tuple[Problem, ...] = ()

    @property
    def name(self) -> str:
        """The file's path, relative to the project folder where it lies inside."""
        return display_path(self.path)

    def line(self, loc: Loc) -> int:
        """Return the line of a place in the data, or of the nearest enclosing one."""
        while loc not in self.lines and loc:
            loc = loc[:-1]
        return self.lines.get(loc, 1)

    def problem(self, loc: Loc, message: str) -> Problem:
        return Problem(self.name, self.line(loc), message)

    def wrong(self, loc: Loc, message: str) -> Problem:
        """Return a problem at a place in the data that its message names first."""
        return self.problem(loc, f"{_dotted(loc)}: {message}")

    def unknown(self, loc: Loc, what: str, name: str, known: Collection[str]) -> Iterator[Problem]:
        """Yield that there is nothing of a name that stands at a place, unless there is."""
        if name not in known:
            yield self.wrong(loc, f"there is no {what} `{name}`{nearest(name, known)}")


def display_path(path: Path) -> str:
    """Return a path relative to the project folder where it lies inside."""
    root = project_root()
    return str(path.relative_to(root) if path.is_relative_to(root) else path)


def yaml_files(folder: Path) -> list[Path]:
    """Return what is named as a YAML file under a folder, at any depth, in order of the paths.

    What is no file (a folder, a link that leads nowhere) is among them: reading it is a problem,
    passing over it would be a silence. Only hidden ones are left out, such as Emacs' marks.
    """
    found = folder.rglob("*.[yY]*")
    endings = (".yaml", ".yml")
    return sorted(p for p in found if p.suffix.lower() in endings and not p.name.startswith("."))


def at_least_one(files: list[Path], folders: Iterable[Path], what: str) -> list[Path]:
    """Return the files that were found in some folders.

    `what` says what each of them declares: "table".
    """
    if not files:
        message = f"no {what} is declared here; is this the right folder?"
        raise RegistryError(Problem(display_path(folder), 1, message) for folder in folders)
    return files


def read_document(path: Path) -> Document:
    """Read a YAML file; whatever is wrong with it becomes the document's problem."""
    text = ""
    try:
        text = read_text(path)
        return Document(path, text, *_parsed(text))
    except YamlFault as fault:
        problem = Problem(display_path(path), fault.line, fault.message)
        return Document(path, text, None, {}, (problem,))


_SOURCED = {"value", "source"}


class Sourced(Strict):
    """A declaration whose values may have sources beside them."""

    @model_validator(mode="before")
    @classmethod
    def _without_sources(cls, data: Any) -> Any:
        return _values(data)


def _values(data: Any) -> Any:
    if not isinstance(data, Mapping):
        return data
    if data.keys() == _SOURCED:
        return data["value"]
    return {key: _values(value) for key, value in data.items()}


def sources(data: Any, at: str = "", source: str = "") -> Iterator[tuple[str, Any, str]]:
    """Yield each value of a `Sourced` declaration: its dotted name, itself, and its source.

    The source of a mapping is that of all its values; it is empty where none is given.
    """
    if isinstance(data, Mapping) and data.keys() == _SOURCED:
        yield from sources(data["value"], at, str(data["source"]))
    elif isinstance(data, Mapping):
        for key, value in data.items():
            yield from sources(value, f"{at}.{key}" if at else key, source)
    else:
        yield at, data, source


def checked(
    document: Document, model: type[Declared], problems: list[Problem], what: str
) -> Declared | None:
    """Return a document's data as what it declares; what is wrong is added to the problems.

    The document's own come first. `what` says what it declares, for an empty file: "a table". A
    model's `id` or `name` must be that of the file.
    """
    problems += document.problems
    if document.data is None:
        if not document.problems:
            problems.append(document.problem((), f"the file is empty; declare {what}"))
        return None
    try:
        return model.model_validate(document.data)
    except ValidationError as error:
        problems += explain(error, model, document, [()])
        return None


def read_files(
    files: Iterable[Path], model: type[Declared], problems: list[Problem], what: str
) -> Iterator[tuple[Document, Declared]]:
    """Yield what each of some files declares, under the file's name; problems are added."""
    for path in files:
        document = read_document(path)
        found = checked(document, model, problems, what)
        if found is not None:
            problems += misnamed(document, found)
            yield document, found


def misnamed(document: Document, found: BaseModel) -> list[Problem]:
    """Return the problem that a declaration has another id or name than its file, if it has."""
    key, stem = "id" if "id" in type(found).model_fields else "name", document.path.stem
    name = getattr(found, key)
    text = f"`{name}` differs from the name of the file; write `{stem}`, or rename the file"
    return [] if name == stem else [document.wrong((key,), text)]


def read_declared(path: Path, model: type[Declared], what: str) -> tuple[Declared, Document]:
    """Return what a single file declares, and the file as it was read."""
    document = read_document(path)
    problems: list[Problem] = []
    found = checked(document, model, problems, what)
    if problems or found is None:
        raise RegistryError(problems)
    return found, document


def nearest(name: str, known: Iterable[str]) -> str:
    """Return `; did you mean ...?` with the nearest known name, or the names there are."""
    names = list(known)
    close = difflib.get_close_matches(name, names, n=1, cutoff=0.5)
    if close:
        return f"; did you mean `{close[0]}`?"
    return f"; it can be {', '.join(f'`{n}`' for n in names)}" if names else ""


def find(what: str, declared: Mapping[str, Found], name: str) -> Found:
    if name not in declared:
        raise UserError(f"there is no {what} `{name}`{nearest(name, declared)}")
    return declared[name]


def explain(
    error: ValidationError, model: type[BaseModel], document: Document, prefixes: Sequence[Loc]
) -> list[Problem]:
    """Turn what pydantic complains of into problems with lines and nearest names.

    A complaint is placed at the first of some prefixes, the most specific first, under which
    its own place was written.
    """
    problems = []
    for item in error.errors(include_url=False):
        loc = tuple(item["loc"])
        places = [(*prefix, *loc) for prefix in prefixes]
        # A check on the whole, or a missing key, was written nowhere: it belongs to the first.
        written = [p for p in places if p in document.lines] if loc else []
        place = written[0] if written else places[0]
        problems.append(document.wrong(place, _message(item, model, loc)))
    return problems


def _message(item: Mapping[str, Any], model: type[BaseModel], loc: Loc) -> str:
    kind, value = item["type"], item["input"]
    if kind == "extra_forbidden":
        return f"unknown key{nearest(str(loc[-1]), _keys_at(model, loc[:-1]))}"
    if kind == "missing":
        return "this key is missing; add it"
    if kind == "literal_error":
        choices = re.findall(r"'([^']*)'", item["ctx"]["expected"])
        return f"`{_short(value)}` is not known{nearest(str(value), choices)}"
    if kind == "value_error":
        return str(item["ctx"]["error"])
    shown = f", not `{_short(value)}`" if isinstance(value, str | int | float | bool | None) else ""
    return f"{item['msg'][:1].lower()}{item['msg'][1:]}{shown}"


def _dotted(loc: Loc) -> str:
    text = "".join(f"[{part}]" if isinstance(part, int) else f".{_short(part)}" for part in loc)
    return text.lstrip(".") or "the file"


def _short(value: Any) -> str:
    text = str(value)
    return text if len(text) <= 80 else f"{text[:80]}…"


def _keys_at(model: type[BaseModel], loc: Loc) -> list[str]:
    """Return the keys allowed at a place below a model."""
    models = [model]
    for part in loc:
        named = [
            field.annotation
            for model in models
            for name, field in model.model_fields.items()
            if part == (field.alias or name)
        ]
        # An index, a mapping's key and the kind of a union name no field: they stay at the model.
        models = [model for found in named for model in models_in(found)] if named else models
    keys = (f.alias or name for model in models for name, f in model.model_fields.items())
    return list(dict.fromkeys(keys))
