"""Mistaken YAML: data or located sentences, whatever the mistake is."""

import copy
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from fuzzing import Fuzzer, forms
from hypothesis import strategies as st

from harness.errors import UserError
from harness.project import declaration_dirs, figures_dir, profiles_dir
from harness.registry.claims import figure_claims
from harness.registry.declared import deviations, load_tables
from harness.registry.documents import Problem, RegistryError, parse_yaml, read_yaml
from harness.registry.figures import load_figures
from harness.registry.profile import load_profiles
from harness.sweep.declaration import FOLDER, load_sweeps

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
}
"""A file of each kind that people write, and what reads it."""

FAULTS = {
    "too large": ("# x\n" * 300_000, 1, "larger than 1 MiB"),
    "no integer": ("id: !!int abc", 1, "invalid literal"),
    "an object": ("id: !!python/object/apply:os.system [ls]", 1, "for the tag"),
    "a huge number": ("id: " + "9" * 5000, 1, "is not valid YAML"),
    "control characters": ("a: 1\nid: \x07", 1, "control characters are not allowed"),
    "two documents": ("a: 1\n---\nb: 2", 2, "another document"),
    "cut off": ('id: "abc', 1, "is not valid YAML"),
    "a key of several values": ("a: 1\n? [b, c]\n: 2", 2, "has a key that is not a name"),
    "a template left open": ("title: {{ name }}", 1, "has a key that is not a name"),
    "twice": ("a: 1\nb: 2\na: 3", 3, "`a` is given twice, first on line 1"),
}


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("read", [KINDS["table"][1], read_yaml])
def test_a_fault_is_one_located_sentence(
    tmp_path: Path, fault: str, read: Callable[[Path], Any]
) -> None:
    text, line, said = FAULTS[fault]
    path = tmp_path / "fault.yaml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(UserError) as caught:
        read(path)
    sentence = str(caught.value).removeprefix(
        "There is 1 problem in the declarations; correct and try again:\n"
    )
    assert "\n" not in sentence
    assert f"fault.yaml:{line}: " in sentence
    assert said in sentence


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_not_a_regular_file_is_one_sentence(tmp_path: Path, kind: str) -> None:
    """None is skipped in silence, and none is waited for; Emacs' mark of an open file is none."""
    makes: dict[str, tuple[Callable[[Path], Any], str]] = {
        "folder": (Path.mkdir, "Is a directory"),
        "broken link": (lambda path: path.symlink_to("nowhere"), "No such file"),
        "loop": (lambda path: path.symlink_to(path.name), "symbolic links"),
        "pipe": (os.mkfifo, "not a regular file"),
        "device": (lambda path: path.symlink_to("/dev/zero"), "not a regular file"),
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


def located(path: Path, read: Callable[[Path], Any], text: str) -> None:
    """Read a file; whatever is wrong with it must say where, in a line that can be printed."""
    problems: list[Problem] = []
    sentence = str(path)
    try:
        read(path)
    except RegistryError as error:
        problems = error.problems
    except UserError as error:
        sentence = str(error)
    assert str(path) in sentence
    assert sentence.isprintable()
    for problem in problems:
        assert problem.file == str(path)
        assert 1 <= problem.line <= len(text.splitlines()) + 1
        assert problem.message.isprintable()
