"""YAML under limits: the one reader of the project.

A few bytes of YAML can stand for any amount of data (an alias of aliases), for data without an end
(an alias inside its own anchor) or for nesting that exhausts the stack of the parser. So a text is
first read as a stream of events, which takes no more memory than the text, and held against limits
on size, depth and what its aliases stand for; only then is anything built of it. A file is opened
only if it is a plain one. Whatever is wrong is one `YamlFault` with its line.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from harness.errors import UserError
from harness.foreign import in_a_line, read_plain

Loc = tuple[str | int, ...]

MOST_BYTES = 2**20
"""Bytes of a text; the longest declaration has a sixtieth of them."""

MOST_NODES = 20_000
"""Values, keys and collections of a text, each alias counted as all it stands for."""

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
    """Return the plain data of a YAML file that is no declaration of the project.

    Raises:
        UserError: The file cannot be read, or what it holds is not as it must be.
    """
    try:
        return parse_yaml(read_text(path))
    except YamlFault as fault:
        raise UserError(
            f"{path}:{fault.line}: {fault.message}; mend it or name another file"
        ) from fault


def parse_yaml(text: str) -> Any:
    """Return the plain data of a text.

    Raises:
        YamlFault: It is no YAML, goes beyond a limit or gives a key twice.
    """
    marked = load(text)
    if marked.repeated:
        raise YamlFault(*marked.repeated[0])
    return marked.data


def read_text(path: Path) -> str:
    """Return the text of a plain file.

    Raises:
        YamlFault: It cannot be read, is no plain file, is too large or is not text.
    """
    try:
        raw = read_plain(path, MOST_BYTES + 1)
    except IsADirectoryError as error:
        raise YamlFault(1, "cannot be read: it is a folder") from error
    except FileNotFoundError as error:
        link = path.is_symlink()
        why = "it is a link that leads nowhere" if link else "there is no such file"
        raise YamlFault(1, f"cannot be read: {why}") from error
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
    """Return the data of a text with its lines.

    Raises:
        YamlFault: It is no YAML, or goes beyond a limit.
    """
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


@dataclass
class _Value:
    """A value that is being read or was: what is in it, itself included, and how deep that is."""

    anchor: str | None
    nodes: int = 1
    depth: int = 0


def _check(text: str) -> None:
    """Hold the events of a text against the limits, before anything is built of them."""
    known: dict[str, _Value] = {}
    above: list[_Value] = []
    total = documents = 0
    for event in yaml.parse(text, Loader=_Loader):
        assert event.start_mark is not None  # the parser marks every event
        line = event.start_mark.line + 1
        whole: _Value | None = None
        if isinstance(event, yaml.DocumentStartEvent):
            documents += 1
        elif isinstance(event, yaml.CollectionStartEvent):
            above.append(_Value(event.anchor, depth=1))
            total += 1
        elif isinstance(event, yaml.CollectionEndEvent):
            whole = above.pop()
        elif isinstance(event, yaml.ScalarEvent):
            whole = _Value(event.anchor)
            total += 1
        elif isinstance(event, yaml.AliasEvent):
            whole = _meant(str(event.anchor), known, above, line)
            total += whole.nodes
        if documents > 1:
            raise YamlFault(line, "holds more than one document; keep one")
        if total > MOST_NODES:
            raise YamlFault(line, f"holds more than {MOST_NODES} values, aliases counted in full")
        if len(above) + (whole.depth if whole else 0) > DEEPEST:
            raise YamlFault(line, f"is nested deeper than {DEEPEST} levels")
        if whole is not None:
            _add(whole, known, above)


def _add(whole: _Value, known: dict[str, _Value], above: list[_Value]) -> None:
    """Count a value that was read whole in the collection around it."""
    if whole.anchor is not None:
        known[whole.anchor] = whole
    if above:
        above[-1].nodes += whole.nodes
        above[-1].depth = max(above[-1].depth, whole.depth + 1)


def _meant(anchor: str, known: dict[str, _Value], above: list[_Value], line: int) -> _Value:
    """Return what an alias stands for."""
    if any(collection.anchor == anchor for collection in above):
        raise YamlFault(line, f"has the alias `*{anchor[:60]}` inside its own anchor")
    if anchor not in known:
        raise YamlFault(line, f"has the alias `*{anchor[:60]}` and no such anchor before it")
    return _Value(None, known[anchor].nodes, known[anchor].depth)


class _Walker:
    """Turns composed YAML nodes into data while noting lines and repeated keys."""

    def __init__(self) -> None:
        self._marked = Marked()

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
        if isinstance(node, yaml.ScalarNode):
            return _scalar(loader, node)
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
    if node.tag == f"{_CORE}str":
        return node.value
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
