"""Hostile and mistaken YAML: data or one located sentence within a second, whatever the text is."""

from __future__ import annotations

import copy
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from fuzzing import Fuzzer, forms
from hypothesis import strategies as st

from harness.endpoint.prices import SHIPPED, read_prices
from harness.errors import UserError
from harness.project import declaration_dirs, figures_dir, profiles_dir
from harness.registry.claims import figure_claims
from harness.registry.declared import deviations, load_tables
from harness.registry.documents import Problem, RegistryError, YamlFault, parse_yaml
from harness.registry.figures import load_figures
from harness.registry.profile import load_profiles
from harness.sweep.declaration import FOLDER, load_sweeps
from harness.worlds.real.creator import OWN_TEMPLATES, read_templates

EXPERIMENTS, ABLATIONS = declaration_dirs()
TABLES = load_tables()

KINDS: dict[str, tuple[Path, Callable[[Path], Any]]] = {
    "table": (ABLATIONS / "table4.yaml", lambda path: load_tables([path.parent])),
    "online table": (EXPERIMENTS / "table1.yaml", lambda path: load_tables([path.parent])),
    "figure": (figures_dir() / "figure5.yaml", lambda path: load_figures(TABLES, path.parent)),
    "profile": (profiles_dir() / "paper.yaml", lambda path: load_profiles(path.parent)),
    "sweep": (FOLDER / "online-evolve.yaml", lambda path: load_sweeps(path.parent)),
    "claims": (EXPERIMENTS / "claims" / "figures.yaml", figure_claims),
    "deviations": (EXPERIMENTS / "deviations.yaml", deviations),
    "templates": (OWN_TEMPLATES, read_templates),
    "prices": (SHIPPED, read_prices),
}
"""A file of each kind that people write, and what reads it."""

LAUGHS = "a: &a [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"{this}: &{this} [{', '.join([f'*{last}'] * 9)}]\n"
    for last, this in zip("abcdefgh", "bcdefghi", strict=True)
)

ATTACKS = {
    "recursive list": ("a: &a [*a]", 1, "recursive"),
    "recursive mapping": ("x: 1\na: &a\n  b: *a", 2, "recursive"),
    "billion laughs": (LAUGHS, 5, "more than 30 aliases"),
    "no such anchor": ("a: *b", 1, "undefined alias"),
    "open brackets": ("[" * 100_000, 1, "nested deeper than 40 levels"),
    "open braces": ("{a: " * 100_000, 1, "nested deeper than 40 levels"),
    "dashes": ("- " * 100_000, 1, "nested deeper than 40 levels"),
    "indented": ("".join(f"{' ' * i}a:\n" for i in range(1000)), 41, "nested deeper than 40"),
    "question marks": ("? " * 100_000, 1, ""),
    "too large": ("# x\n" * 300_000, 1, "larger than 1 MiB"),
    "a long line": ("x" * 2_000_000, 1, "larger than 1 MiB"),
    "no integer": ("id: !!int abc", 1, "cannot read `abc` as `int`"),
    "no number": ("id: !!float abc", 1, "cannot read `abc` as `float`"),
    "no truth": ("id: !!bool abc", 1, "cannot read `abc` as `bool`"),
    "bytes": ("id: !!binary abcde", 1, "has the tag `binary`"),
    "an object": ("id: !!python/object/apply:os.system [ls]", 1, "has the tag"),
    "a name": ("id: !!python/name:os.system ''", 1, "has the tag"),
    "a set": ("a: 1\nid: !!set {a, b}", 2, "has the tag `set`"),
    "a huge number": ("id: " + "9" * 5000, 1, "cannot read `999"),
    "a huge hexadecimal": ("id: 0x" + "f" * 5000, 1, "cannot read `0xfff"),
    "sixties": ("id: " + ":".join(["59"] * 50_000), 1, "cannot read `59:59"),
    "control characters": ("a: 1\nid: \x07", 1, "control characters are not allowed"),
    "two documents": ("a: 1\n---\nb: 2", 2, "another document"),
    "a list as a key": ("[a, b]: 1", 1, "as a key"),
    "cut off": ('id: "abc', 1, "is not valid YAML"),
    "a directive": ("%YAML 9.9\n---\nid: x", 1, "is not valid YAML"),
}


LONGEST_S = 10.0
"""Processor seconds. It takes less than one on an idle machine, and took minutes without limits."""


@pytest.mark.parametrize("attack", ATTACKS)
@pytest.mark.parametrize("kind", ["table", "templates", "prices"])
def test_an_attack_is_one_located_sentence_within_a_second(
    tmp_path: Path, attack: str, kind: str
) -> None:
    text, line, said = ATTACKS[attack]
    path = tmp_path / "attack.yaml"
    path.write_text(text, encoding="utf-8")
    began = time.process_time()
    with pytest.raises(UserError) as caught:
        KINDS[kind][1](path)
    assert time.process_time() - began < LONGEST_S
    sentence = str(caught.value).removeprefix(
        "There is 1 problem in the declarations; correct and try again:\n"
    )
    assert "\n" not in sentence
    assert f"attack.yaml:{line}: " in sentence
    assert said in sentence


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_no_plain_file_is_one_sentence(tmp_path: Path, kind: str) -> None:
    """None is skipped in silence, and none is waited for; Emacs' mark of an open file is none."""
    makes: dict[str, tuple[Callable[[Path], Any], str]] = {
        "folder": (Path.mkdir, "Is a directory"),
        "broken link": (lambda path: path.symlink_to("nowhere"), "No such file"),
        "loop": (lambda path: path.symlink_to(path.name), "symbolic links"),
        "pipe": (os.mkfifo, "no plain file"),
        "device": (lambda path: path.symlink_to("/dev/zero"), "no plain file"),
    }
    for name, (make, said) in makes.items():
        path = tmp_path / name / "x.yaml"
        path.parent.mkdir()
        make(path)
        (path.parent / ".#y.yaml").symlink_to("nobody@nowhere")
        with pytest.raises(UserError) as caught:
            KINDS[kind][1](path)
        assert f"{path}:1: cannot be read" in str(caught.value)
        assert said in str(caught.value)
        assert ".#y" not in str(caught.value)


def test_an_alias_is_data() -> None:
    assert parse_yaml("a: &a [1, {b: 2}]\nc: [*a, *a]") == {
        "a": [1, {"b": 2}],
        "c": [[1, {"b": 2}], [1, {"b": 2}]],
    }


MARKS = """a b : - [ ] { } , &a *a &b *b !!int !!set !x | > " ' # ? --- ... %YAML << ~ 1 0x1 1e9
.inf 2024-01-01 1:30 \\x1b é \U0001f600 null @ ` = key"""

PIECES = st.sampled_from(
    [*MARKS.split(), "\n", "\r\n", "  ", "\t", "\x85", ": ", "- ", ", ", "&a ", "*a ", "---\n"]
)


@forms(quick=300)
def test_any_text_is_data_or_a_located_fault(fuzzer: Fuzzer) -> None:
    def attempt(text: str) -> None:
        lines = text.count("\n") + text.count("\r") + text.count("\x85") + 2
        message, found = "", [1]
        try:
            parse_yaml(text)
        except YamlFault as fault:
            message, found = fault.message, [fault.line]
        assert message.isprintable()
        assert all(1 <= line <= lines for line in found)

    fuzzer.fuzz(attempt, st.lists(PIECES, max_size=25).map("".join) | st.text(max_size=60))


JUNK: st.SearchStrategy[Any] = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(10**30), 10**30),
    st.floats(),
    st.text(max_size=20),
    st.dates(),
    st.sampled_from(
        ["x" * 5000, "../../x", "\u202e", "", ".", "0", "-1", "1e999999999", "Infinity", "nan",
         "recipe.", "profile.", "profile.training.x", "eva", "dpo", "human", "[[", "(" * 50, 2**31,
         10**18, -1, 0, 1e300, 1e-300, [], {}, [[]], {"": ""}, {"a": {"b": {"c": 1}}}]
    ),
    st.lists(st.text(max_size=5) | st.integers(), max_size=3),
    st.dictionaries(st.text(max_size=8), st.integers() | st.text(max_size=5), max_size=3),
)  # fmt: skip


def places(value: Any, at: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield every place in some data."""
    if at:
        yield at
    if isinstance(value, dict | list):
        inner = value.items() if isinstance(value, dict) else enumerate(value)
        for key, item in inner:
            yield from places(item, (*at, key))


def changed(data: Any, place: tuple[Any, ...], how: str, junk: Any) -> Any:
    """Return data in which one place is another."""
    made = copy.deepcopy(data)
    inner = made
    for key in place[:-1]:
        inner = inner[key]
    last = place[-1]
    match how:
        case "replace":
            inner[last] = junk
        case "remove":
            del inner[last]
        case "rename" if isinstance(inner, dict):
            inner[str(junk)] = inner.pop(last)
        case _:
            inner[last] = [copy.deepcopy(inner[last])] * 3
    return made


@forms(quick=40)
@pytest.mark.parametrize("kind", KINDS)
def test_a_declaration_with_a_mistake_is_located_problems_or_a_declaration(
    tmp_path: Path, kind: str, fuzzer: Fuzzer
) -> None:
    source, read = KINDS[kind]
    path = tmp_path / source.name
    text = source.read_text(encoding="utf-8")
    data = yaml.safe_load(text)

    def attempt(place: tuple[Any, ...], how: str, junk: Any) -> None:
        try:
            made = yaml.safe_dump(changed(data, place, how, junk), allow_unicode=True)
        except yaml.YAMLError:
            return
        path.write_text(made, encoding="utf-8", errors="replace")
        located(path, read, made)

    hows = st.sampled_from(["replace", "replace", "remove", "rename", "repeat"])
    fuzzer.fuzz(attempt, st.sampled_from(list(places(data))), hows, JUNK, share=len(KINDS))


@forms(quick=20)
@pytest.mark.parametrize("kind", KINDS)
def test_a_declaration_with_changed_bytes_is_located_problems_or_a_declaration(
    tmp_path: Path, kind: str, fuzzer: Fuzzer
) -> None:
    source, read = KINDS[kind]
    path = tmp_path / source.name
    raw = source.read_bytes()

    def attempt(where: float, by: bytes, lost: int) -> None:
        at = int(where * len(raw))
        made = raw[:at] + by + raw[at + lost :]
        path.write_bytes(made)
        located(path, read, made.decode("utf-8", "replace"))

    inserted = st.binary(max_size=6) | PIECES.map(str.encode)
    fuzzer.fuzz(attempt, st.floats(0, 1), inserted, st.integers(0, 40), share=len(KINDS))


def located(path: Path, read: Callable[[Path], Any], text: str) -> None:
    """Read a file; whatever is wrong with it must say where, in a line that can be printed."""
    began = time.process_time()
    problems: list[Problem] = []
    sentence = str(path)
    try:
        read(path)
    except RegistryError as error:
        problems = error.problems
    except UserError as error:
        sentence = str(error)
    assert time.process_time() - began < 5.0
    assert str(path) in sentence
    assert sentence.isprintable()
    for problem in problems:
        assert problem.file == str(path)
        assert 1 <= problem.line <= len(text.splitlines()) + 1
        assert problem.message.isprintable()
