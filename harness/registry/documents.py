"""A YAML file under limits, with the line of every key, and problems that say where they are.

Whatever is wrong with a text, its size included, is one `YamlFault`. A declaration then becomes
plain data with the line of each key, and a pydantic model checks it: each complaint is one
`Problem` with file, line and, for an unknown name, the nearest known one. Problems are collected
over all files and raised together, as a `RegistryError`.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, TypeVar

import yaml
from pydantic import BaseModel, ValidationError

from harness.errors import UserError
from harness.foreign import in_a_line, read_plain
from harness.project import project_root
from harness.strict import models_in
from harness.words import counted

Loc = tuple[str | int, ...]

MOST_BYTES = 2**20
"""Bytes of a text; the longest declaration has a sixtieth of them."""

MOST_VALUES = 100_000
"""Values of a text: a few bytes can stand for any number, by aliases of aliases."""

DEEPEST = 40
"""Collections inside one another."""

LONGEST_SCALAR = 100
"""Characters of a number, a date or a truth value."""

# libyaml's loader is several times faster; both accept the same safe subset.
_Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

_CORE = "tag:yaml.org,2002:"


class YamlFault(Exception):
    """What is wrong with a text, and on which line."""

    def __init__(self, line: int, message: str) -> None:
        self.line = line
        self.message = in_a_line(message)
        super().__init__(f"line {line} {self.message}")


@dataclass
class Marked:
    """The data of a text with the line of each place in it.

    Attributes:
        data: Plain data; the keys of its mappings are text.
        lines: The line of each key and list item.
        repeated: The line of each key that its mapping has already, with what is to be said.
    """

    data: Any = None
    lines: dict[Loc, int] = field(default_factory=dict)
    repeated: list[tuple[int, str]] = field(default_factory=list)


def read_yaml(path: Path) -> Any:
    """Return the plain data of a YAML file that is no declaration of the project."""
    try:
        return parse_yaml(read_text(path))
    except YamlFault as fault:
        raise UserError(
            f"{path}:{fault.line}: {fault.message}; mend it or name another file"
        ) from fault


def parse_yaml(text: str) -> Any:
    marked = load(text)
    if marked.repeated:
        raise YamlFault(*marked.repeated[0])
    return marked.data


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


def load(text: str) -> Marked:
    if len(text) > MOST_BYTES:
        raise YamlFault(1, f"is longer than {MOST_BYTES} characters")
    strange = yaml.reader.Reader.NON_PRINTABLE.search(text)
    if strange is not None:
        line = text.count("\n", 0, strange.start()) + 1
        raise YamlFault(line, f"is not valid YAML: it has the character U+{ord(strange[0]):04X}")
    try:
        _check(text)
        return _Walker().walk(text)
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        raise YamlFault(line, f"is not valid YAML: {error.problem}") from error
    except yaml.YAMLError as error:
        raise YamlFault(1, f"is not valid YAML: {' '.join(str(error).split())}") from error


def _check(text: str) -> None:
    """Refuse what is nested too deep for libyaml, whose own stack it would use up."""
    depth = 0
    for event in yaml.parse(text, Loader=_Loader):
        depth += isinstance(event, yaml.CollectionStartEvent)
        depth -= isinstance(event, yaml.CollectionEndEvent)
        if depth > DEEPEST:
            assert event.start_mark is not None  # the parser marks every event
            raise _too_deep(event.start_mark.line)


def _too_deep(line: int) -> YamlFault:
    return YamlFault(line + 1, f"is nested deeper than {DEEPEST} levels")


class _Walker:
    """Turns composed YAML nodes into data while noting lines and repeated keys."""

    def __init__(self) -> None:
        self._marked = Marked()
        self._left = MOST_VALUES

    def walk(self, text: str) -> Marked:
        loader = _Loader(text)
        try:
            node = loader.get_single_node()
            self._marked.data = None if node is None else self._value(loader, node, ())
        finally:
            loader.dispose()
        return self._marked

    def _value(self, loader: Any, node: Any, loc: Loc) -> Any:
        self._marked.lines.setdefault(loc, node.start_mark.line + 1)
        # An alias is the node that it stands for, which may hold the alias itself.
        self._left -= 1
        if self._left < 0:
            message = f"holds more than {MOST_VALUES} values, aliases counted in full"
            raise YamlFault(node.start_mark.line + 1, message)
        if len(loc) > DEEPEST:
            raise _too_deep(node.start_mark.line)
        if isinstance(node, yaml.ScalarNode):
            return node.value if node.tag == f"{_CORE}str" else _scalar(loader, node)
        plain = "map" if isinstance(node, yaml.MappingNode) else "seq"
        if node.tag != f"{_CORE}{plain}":
            raise YamlFault(node.start_mark.line + 1, f"has the tag {_tag(node)}; leave it out")
        if isinstance(node, yaml.MappingNode):
            return self._mapping(loader, node, loc)
        return [self._value(loader, item, (*loc, i)) for i, item in enumerate(node.value)]

    def _mapping(self, loader: Any, node: Any, loc: Loc) -> dict[str, Any]:
        data: dict[str, Any] = {}
        for key_node, value_node in node.value:
            line = key_node.start_mark.line + 1
            if not isinstance(key_node, yaml.ScalarNode):
                raise YamlFault(line, "has a list or a mapping as a key; a key is a name")
            # Keys are names, whatever YAML would make of them (`on`, `1.0`, `null`).
            key = str(key_node.value)
            if key in data:
                first = self._marked.lines[(*loc, key)]
                message = f"`{key[:60]}` is given twice, first on line {first}; keep one"
                self._marked.repeated.append((line, message))
                continue
            self._marked.lines[(*loc, key)] = line
            data[key] = self._value(loader, value_node, (*loc, key))
        return data


def _scalar(loader: Any, node: Any) -> Any:
    """Return a single value; what its text cannot be as what it says to be is a fault."""
    line = node.start_mark.line + 1
    if len(node.value) > LONGEST_SCALAR:
        what = f"longer than {LONGEST_SCALAR} characters; quote it if it is text"
        raise YamlFault(line, f"has a {_tag(node)} {what}")
    try:
        return loader.construct_object(node)
    except (yaml.YAMLError, ValueError, ArithmeticError, LookupError, TypeError, AttributeError):
        raise YamlFault(
            line, f"cannot read `{node.value}` as {_tag(node)}; quote it if it is text"
        ) from None


def _tag(node: Any) -> str:
    return f"`{node.tag.replace(_CORE, '!!')[:60]}`"


def as_yaml(data: Any) -> str:
    """Return plain data as YAML, keys in their order."""
    return str(yaml.safe_dump(data, sort_keys=False, allow_unicode=True))


Declared = TypeVar("Declared", bound=BaseModel)
Found = TypeVar("Found")


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
    """Read a YAML file; whatever is wrong with it becomes the document's problems."""
    name = display_path(path)
    try:
        text = read_text(path)
        marked = load(text)
    except YamlFault as fault:
        return Document(path, None, {}, {}, (Problem(name, fault.line, fault.message),))
    comments = {
        number: line.split(" # ", 1)[1].strip()
        for number, line in enumerate(text.splitlines(), start=1)
        if " # " in line
    }
    problems = tuple(Problem(name, line, message) for line, message in marked.repeated)
    return Document(path, marked.data, marked.lines, comments, problems)


def checked(
    document: Document, model: type[Declared], problems: list[Problem], what: str
) -> Declared | None:
    """Return a document's data as what it declares; what is wrong is added to the problems.

    The document's own come first. `what` says what it declares, for an empty file: "a table".
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
    """Yield what each of some files declares, under the file's name; problems are added.

    The model's `id` or `name` must be that of the file.
    """
    for path in files:
        document = read_document(path)
        found = checked(document, model, problems, what)
        if found is not None:
            problems += misnamed(document, "id" if "id" in model.model_fields else "name", found)
            yield document, found


def misnamed(document: Document, key: str, found: BaseModel) -> list[Problem]:
    """Return the problem that a declaration has another name than its file, if it has."""
    name = getattr(found, key)
    if name == document.path.stem:
        return []
    stem = document.path.stem
    text = f"`{name}` differs from the name of the file; write `{stem}`, or rename the file"
    return [document.wrong((key,), text)]


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


_FORMS: Final[Mapping[tuple[str, ...], str]] = {
    ("dict_type", "mapping_type", "model_type", "model_attributes_type"): "keys with values",
    ("tuple_type", "list_type", "set_type", "frozen_set_type"): "a list, as `[a, b]`",
    ("int_type", "int_parsing", "int_from_float"): "a whole number",
    ("float_type", "float_parsing"): "a number",
    ("bool_type", "bool_parsing"): "`true` or `false`",
    ("string_type",): "a text",
}
"""How a value of a kind is written in YAML, by what pydantic calls its absence."""


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
    if kind in ("too_short", "too_long"):
        word = "at least" if kind == "too_short" else "at most"
        bound = item["ctx"]["min_length" if kind == "too_short" else "max_length"]
        return f"give {word} {counted(bound, 'item')}, not {item['ctx']['actual_length']}"
    # What pydantic says of a kind of value is about Python: tuples, dictionaries and instances.
    wanted = next((form for kinds, form in _FORMS.items() if kind in kinds), None)
    message = item["msg"][:1].lower() + item["msg"][1:] if wanted is None else f"give {wanted}"
    shown = f", not `{_short(value)}`" if isinstance(value, str | int | float | bool | None) else ""
    return f"{message}{shown}"


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
