"""YAML files as plain data, and problems with their locations.

Keys and dates are strings, and a key that is given twice is a `YamlFault`. The problems of all
files are raised together, as a `RegistryError`. `{value: 0.05, source: paper table 4}` in place of
a value says where it comes from.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

import yaml
from pydantic import BaseModel, ValidationError, model_validator

from harness.errors import UserError
from harness.foreign import in_a_line, read_plain, reason_of
from harness.project import project_root
from harness.strict import Strict, models_in

Loc = tuple[str | int, ...]
"""A location in plain data: keys and list indices."""

MOST_BYTES = 2**20
"""Maximum size of a file; the longest declaration is a sixtieth of it."""

_SOURCED = {"value", "source"}

Declared = TypeVar("Declared", bound=BaseModel)
Found = TypeVar("Found")


class YamlFault(Exception):
    def __init__(self, line: int, message: str) -> None:
        self.line = line
        self.message = in_a_line(message)
        super().__init__(f"line {line} {self.message}")


def read_yaml(path: Path) -> Any:
    """Return the plain data of a YAML file that is not one of the project's declarations."""
    try:
        return parse_yaml(read_text(path))
    except YamlFault as fault:
        raise UserError(
            f"{path}:{fault.line}: {fault.message}; fix it or name another file"
        ) from fault


def read_text(path: Path) -> str:
    try:
        raw = read_plain(path, MOST_BYTES + 1)
    except (OSError, ValueError) as error:
        raise YamlFault(1, f"cannot be read: {reason_of(error)}") from error
    if len(raw) > MOST_BYTES:
        raise YamlFault(1, f"is larger than {MOST_BYTES // 2**20} MiB; no such file needs to be")
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise YamlFault(line, f"is not UTF-8 text: {error.reason}") from error


def parse_yaml(text: str) -> Any:
    try:
        return _Reader(text).get_single_data()
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        raise YamlFault(line, f"is not valid YAML: {error.problem}") from error
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise YamlFault(1, f"is not valid YAML: {' '.join(str(error).split())}") from error


class _Reader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]
    """PyYAML's safe loader, with keys and dates as strings, and each key once."""


def _mapping(reader: Any, node: Any) -> dict[str, Any]:
    data: dict[str, Any] = {}
    for key, value in node.value:
        if not isinstance(key, yaml.ScalarNode):
            raise YamlFault(key.start_mark.line + 1, "has a key that is not a name")
        name = str(key.value)  # whatever YAML would make of `on`, `1.0` or `null`
        if name in data:
            first = next(other for other, _ in node.value if other.value == name)
            where = f"first on line {first.start_mark.line + 1}; keep one"
            raise YamlFault(key.start_mark.line + 1, f"`{name}` is given twice, {where}")
        data[name] = reader.construct_object(value, deep=True)
    return data


_Reader.add_constructor("tag:yaml.org,2002:map", _mapping)
_Reader.add_constructor("tag:yaml.org,2002:timestamp", yaml.SafeLoader.construct_yaml_str)


def as_yaml(data: Any) -> str:
    """Dump plain data as YAML, preserving key order."""
    return str(yaml.safe_dump(data, sort_keys=False, allow_unicode=True))


@dataclass(frozen=True, order=True)
class Problem:
    file: str
    line: int
    message: str

    def __post_init__(self) -> None:
        # The message quotes untrusted text.
        object.__setattr__(self, "message", in_a_line(self.message))

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.message}"


class RegistryError(UserError):
    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems = sorted(set(problems))
        count = len(self.problems)
        head = "There is 1 problem" if count == 1 else f"There are {count} problems"
        lines = "".join(f"\n  {problem}" for problem in self.problems)
        super().__init__(f"{head} in the declarations; correct and try again:{lines}")


@dataclass(frozen=True)
class Document:
    """A YAML file and its plain data."""

    path: Path
    text: str
    data: Any

    @property
    def name(self) -> str:
        return display_path(self.path)

    @cached_property
    def _root(self) -> Any:
        return yaml.compose(self.text, Loader=_Reader)

    def written(self, loc: Loc) -> Any:
        """Return the YAML node of a key or list item, or None if the file does not contain it."""
        written, node = None, self._root
        for part in loc:
            if isinstance(node, yaml.SequenceNode):
                items = dict(enumerate((item, item) for item in node.value))
            elif isinstance(node, yaml.MappingNode):
                items = {key.value: (key, value) for key, value in node.value}
            else:
                return None
            if part not in items:
                return None
            written, node = items[part]
            while isinstance(node, yaml.MappingNode):
                inner = {key.value: value for key, value in node.value}
                if inner.keys() != _SOURCED:
                    break
                node = inner["value"]
        return written

    def line(self, loc: Loc) -> int:
        """Return the line of a location, or of its nearest enclosing one in the file."""
        while loc:
            if (node := self.written(loc)) is not None:
                return int(node.start_mark.line) + 1
            loc = loc[:-1]
        return 1

    def problem(self, loc: Loc, message: str) -> Problem:
        return Problem(self.name, self.line(loc), message)

    def wrong(self, loc: Loc, message: str) -> Problem:
        """Return a problem whose message starts with its location."""
        return self.problem(loc, f"{_dotted(loc)}: {message}")

    def unknown(self, loc: Loc, what: str, name: str, known: Collection[str]) -> Iterator[Problem]:
        if name not in known:
            yield self.wrong(loc, f"there is no {what} `{name}`{nearest(name, known)}")


def display_path(path: Path, folder: Path | None = None) -> str:
    """Return a path, relative to a folder (by default, the project root) if inside it."""
    root = folder or project_root()
    return str(path.relative_to(root) if path.is_relative_to(root) else path)


def yaml_files(folder: Path) -> list[Path]:
    """Return everything named like a YAML file under a folder, sorted; nothing hidden."""
    hidden, endings = re.compile(r"(^|/)\."), (".yaml", ".yml")
    found = (path for path in folder.rglob("*.[yY]*") if path.suffix.lower() in endings)
    return sorted(it for it in found if not hidden.search(it.relative_to(folder).as_posix()))


def at_least_one(files: list[Path], folders: Iterable[Path], what: str) -> list[Path]:
    """Return `files`, raising if there are none; `what` is what each declares: "table"."""
    if not files:
        message = f"no {what} is declared here; is this the right folder?"
        raise RegistryError(Problem(display_path(folder), 1, message) for folder in folders)
    return files


def read_document(path: Path) -> Document:
    """Read a YAML file, raising a RegistryError if it cannot be parsed."""
    try:
        text = read_text(path)
        return Document(path, text, parse_yaml(text))
    except YamlFault as fault:
        raise RegistryError([Problem(display_path(path), fault.line, fault.message)]) from fault


class Sourced(Strict):
    """A declaration whose values may carry sources."""

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


def sources(data: Any, at: str = "", source: str = "") -> list[tuple[str, Any, str]]:
    """Return the dotted name, value and source (or "") of each value of a `Sourced` declaration."""
    if not isinstance(data, Mapping):
        return [(at, data, source)]
    if data.keys() == _SOURCED:
        return sources(data["value"], at, str(data["source"] or ""))
    found = []
    for key, value in data.items():
        found += sources(value, f"{at}.{key}" if at else key, source)
    return found


def laid_over(written: Any, changes: Mapping[str, Any]) -> dict[str, Any]:
    """Return the data of a `Sourced` declaration with sourced values, nested, in place of its own.

    A source that was written for several values together is then written for each of them.
    """
    if changes.keys() == _SOURCED:
        return dict(changes)
    if isinstance(written, Mapping) and written.keys() == _SOURCED:
        each, source = written["value"] or {}, written["source"]
        written = {key: {"value": value, "source": source} for key, value in each.items()}
    found = dict(written or {})
    for key, value in changes.items():
        below = found.get(key)
        found[key] = laid_over(below, value) if isinstance(value, Mapping) else value
    return found


def read_declared(
    path: Path,
    model: type[Declared],
    what: str,
    kind_of: Callable[[Document], type[Declared]] | None = None,
) -> tuple[Document, Declared]:
    """Read a file and validate it as a model, or as that of its kind."""
    document = read_document(path)
    if document.data is None:
        raise RegistryError([document.problem((), f"the file is empty; declare {what}")])
    chosen = model if kind_of is None else kind_of(document)
    try:
        return document, chosen.model_validate(document.data)
    except ValidationError as error:
        raise RegistryError(problems_of(error, chosen, document, [()])) from None


def read_files(
    files: Iterable[Path],
    model: type[Declared],
    problems: list[Problem],
    what: str,
    kind_of: Callable[[Document], type[Declared]] | None = None,
) -> Iterator[tuple[Document, Declared]]:
    """Yield each file's document and valid declaration, appending to `problems`.

    Each has the name of its file, and no other file has it.
    """
    names: list[Named] = []
    key = "id" if "id" in model.model_fields else "name"
    for path in files:
        try:
            document, found = read_declared(path, model, what, kind_of)
        except RegistryError as error:
            problems += error.problems
        else:
            name, stem, place = getattr(found, key), document.path.stem, (key,)
            if name != stem:
                text = f"`{name}` differs from the name of the file; write `{stem}`"
                problems.append(document.wrong(place, f"{text}, or rename the file"))
            names.append((name, document, place))
            yield document, found
    problems += repeated(names)


Named = tuple[str, Document, Loc]
"""A name, and where it is declared."""


def repeated(named: Iterable[Named]) -> Iterator[Problem]:
    first: dict[str, tuple[Document, Loc]] = {}
    for name, document, place in named:
        if name in first:
            other, at = first[name]
            yield document.wrong(place, f"`{name}` is already in {other.name}:{other.line(at)}")
        first.setdefault(name, (document, place))


def nearest(name: str, known: Iterable[str]) -> str:
    """Return `; did you mean ...?` with the nearest known name, or list them if at most 60."""
    names = list(known)
    close = difflib.get_close_matches(name, names, n=1, cutoff=0.5)
    if close:
        return f"; did you mean `{close[0]}`?"
    return f"; it can be {', '.join(f'`{n}`' for n in names)}" if 0 < len(names) <= 60 else ""


def find(what: str, declared: Mapping[str, Found], name: str) -> Found:
    if name not in declared:
        raise UserError(f"there is no {what} `{name}`{nearest(name, declared)}")
    return declared[name]


def problems_of(
    error: ValidationError, model: type[BaseModel], document: Document, prefixes: Sequence[Loc]
) -> list[Problem]:
    """Turn a pydantic error into problems, under the first of `prefixes` where it is written."""
    problems = []
    for item in error.errors(include_url=False):
        loc = tuple(item["loc"])
        places = [(*prefix, *loc) for prefix in prefixes]
        # A failed model-level check or a missing key is not in the file: use the first prefix.
        place = next((p for p in places if loc and document.written(p) is not None), places[0])
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
    return f"{must_be(item)}{shown}"


_KINDS = {
    "int": "a whole number",
    "float": "a number",
    "bool": "true or false",
    "string": "a text",
    "tuple": "a list",
    "list": "a list",
    "dict": "settings by name",
    "model": "settings by name",
}


def must_be(item: Mapping[str, Any]) -> str:
    """Return what pydantic expected of a value, such as `must be a whole number`."""
    kind, _, what = item["type"].partition("_")
    if kind in _KINDS and what in ("type", "parsing", "from_float", "attributes_type"):
        return f"must be {_KINDS[kind]}"
    text = str(item["msg"])
    says, said = "Input should ", text.removeprefix("Input should ")
    return f"must {said}" if text.startswith(says) else f"{text[:1].lower()}{text[1:]}"


def _dotted(loc: Loc) -> str:
    text = "".join(f"[{part}]" if isinstance(part, int) else f".{_short(part)}" for part in loc)
    return text.lstrip(".") or "the file"


def _short(value: Any) -> str:
    text = str(value)
    return text if len(text) <= 80 else f"{text[:80]}…"


def _keys_at(model: type[BaseModel], loc: Loc) -> list[str]:
    models = [model]
    for part in loc:
        named = [
            field.annotation
            for model in models
            for name, field in model.model_fields.items()
            if part == (field.alias or name)
        ]
        # Indices, mapping keys and union tags name no field: stay at the same models.
        models = [model for found in named for model in models_in(found)] if named else models
    keys = (f.alias or name for model in models for name, f in model.model_fields.items())
    return list(dict.fromkeys(keys))
