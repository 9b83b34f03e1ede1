"""Laws of the templates file: complete, our own words, replaceable word for word, checked."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.errors import UserError
from harness.registry.documents import RegistryError
from harness.worlds.real.creator import (
    METHODS,
    OWN_TEMPLATES,
    PROMPT,
    ReplyFormat,
    Scheme,
    load_scheme,
    read_templates,
)


def words(text: str) -> tuple[str, ...]:
    return tuple(re.findall(r"[^\W_]+", text.casefold()))


FILE = """\
version: 1
schemes:
  evol_instruct:
    system: Be brief.
    reply: {after: "Result:"}
    frames:
      depth: "Do this: {instruction} To: {prompt}"
      own: "{instruction}"
    methods:
      constraints: {frame: depth, instruction: "add a rule"}
      breadth: {frame: own, instruction: "Another than {prompt}"}
"""


def written(folder: Path, text: str) -> Path:
    path = folder / "words.yaml"
    path.write_text(text, encoding="utf-8")
    return path


def test_our_own_file_has_a_message_for_every_method_that_holds_the_prompt_and_its_tag() -> None:
    schemes = read_templates(OWN_TEMPLATES)
    assert set(schemes) == set(METHODS)
    for name, scheme in schemes.items():
        assert set(scheme.messages) == set(METHODS[name])
        for message in scheme.messages.values():
            assert message.count(PROMPT) == 1
            assert "{instruction}" not in message
            assert f"<{scheme.reply.tag}>" in message


def test_evol_complexity_is_evol_instruct_in_depth() -> None:
    """EvolComplexity has EvolInstruct's four methods in depth, and no breadth (table 12)."""
    both = read_templates(OWN_TEMPLATES)
    messages = both["evol_instruct"].messages
    assert both["evol_complexity"].messages == {
        name: messages[name] for name in METHODS["evol_complexity"]
    }


def test_another_file_replaces_a_scheme_word_for_word_and_no_other(tmp_path: Path) -> None:
    scheme = load_scheme("evol_instruct", written(tmp_path, FILE))
    assert scheme.messages == {
        "constraints": "Do this: add a rule To: {prompt}",
        "breadth": "Another than {prompt}",
    }
    assert (scheme.system, scheme.reply) == ("Be brief.", ReplyFormat(after="Result:"))
    assert scheme.methods == ("breadth", "constraints")
    assert scheme.message("constraints", "Hi") == "Do this: add a rule To: Hi"
    lacking = load_scheme("evol_quality", written(tmp_path, FILE))
    assert lacking == load_scheme("evol_quality")


def test_the_digest_is_that_of_the_words_and_of_nothing_else(tmp_path: Path) -> None:
    digest = load_scheme("evol_instruct", written(tmp_path, FILE)).digest
    moved = tmp_path / "other.yml"
    lines = FILE.replace('"add a rule"', "'add a rule'").splitlines()
    lines[-2:] = reversed(lines[-2:])
    moved.write_text("# A comment.\n" + "\n".join(lines).replace("depth", "deep"))
    assert load_scheme("evol_instruct", moved).digest == digest
    for old, new in (("add a rule", "add rules"), ("Be brief.", "Be."), ("Result:", "So:")):
        other = written(tmp_path, FILE.replace(old, new))
        assert load_scheme("evol_instruct", other).digest != digest


@given(st.text())
def test_a_prompt_is_put_in_as_it_is(prompt: str) -> None:
    """Also one that holds braces or placeholders itself."""
    scheme = Scheme(name="self_instruct", messages={"new": "[{prompt}]"})
    for text in (prompt, prompt + "{prompt}", "{" + prompt + "}"):
        assert scheme.message("new", text) == f"[{text}]"


@pytest.mark.parametrize(
    ("reply", "text", "read"),
    [
        (ReplyFormat(), "  Sort it. \n", "Sort it."),
        (ReplyFormat(tag="p"), "Sure! <p>\nSort it.\n</p> Enjoy.", "Sort it."),
        (ReplyFormat(tag="p"), "<p>draft</p> no: <p>Sort it.</p>", "Sort it."),
        (ReplyFormat(tag="p"), "I cannot sort it.", None),
        (ReplyFormat(tag="p"), "<p>Sort", None),
        (ReplyFormat(after="Prompt#:"), "#Old Prompt#: a\n#New Prompt#: Sort it.", "Sort it."),
        (ReplyFormat(after="Prompt#:"), "Sort it.", None),
    ],
)
def test_a_reply_is_read_where_the_file_says(
    reply: ReplyFormat, text: str, read: str | None
) -> None:
    assert reply.read(text) == read


def replaced(old: str, new: str) -> str:
    assert FILE.count(old) == 1
    return FILE.replace(old, new)


@pytest.mark.parametrize(
    ("text", "line", "message"),
    [
        (replaced("  evol_instruct:", "  evol_instrct:"), 3, "did you mean `evol_instruct`"),
        (replaced("constraints:", "constrains:"), 10, "`evol_instruct` has no method `constrains`"),
        (replaced("frame: depth", "frame: dept"), 10, "no frame `dept`; did you mean `depth`"),
        (replaced(" To: {prompt}", ""), 10, "neither `constraints` nor its frame has {prompt}"),
        (replaced("Do this: {instruction}", "Do this"), 7, "frames depth lacks {instruction}"),
        (replaced("than {prompt}", "than this"), 11, "neither `breadth` nor its frame"),
        (replaced("To: {prompt}", "To: {promt}"), 7, "has the placeholder {promt}"),
        (replaced("add a rule", "add {instruction}"), 10, "has the placeholder {instruction}"),
        (replaced("Be brief.", "Be {prompt}"), 4, "system has the placeholder"),
        (replaced("version: 1", "version: 2"), 1, "version"),
        (replaced("    frames:", "    frame:"), 6, "unknown key; did you mean `frames`"),
        (replaced('{after: "Result:"}', '{after: "R", tag: p}'), 5, "not by both"),
        (replaced('{after: "Result:"}', "{tag: a b}"), 5, "tag"),
        (replaced('{after: "Result:"}', '{after: " "}'), 5, "after"),
        (replaced("system: Be brief.", "reply: {}"), 5, "`reply` is given twice"),
        ("version: 1\nschemes: {evol_instruct: {frames: {}, methods: {}}}", 2, "has no method"),
        ("", 1, "the file is empty"),
        ("a: [", 2, "not valid YAML"),
    ],
)
def test_a_mistake_is_found_with_its_line(
    tmp_path: Path, text: str, line: int, message: str
) -> None:
    path = written(tmp_path, text)
    with pytest.raises(RegistryError) as caught:
        read_templates(path)
    found = [p for p in caught.value.problems if message in p.message]
    assert [(p.file, p.line) for p in found] == [(str(path), line)]


def test_all_mistakes_are_found_at_once(tmp_path: Path) -> None:
    text = FILE.replace("constraints:", "constrains:").replace("frame: own", "frame: mine")
    with pytest.raises(RegistryError) as caught:
        read_templates(written(tmp_path, text))
    assert [problem.line for problem in caught.value.problems] == [10, 11]


def test_a_file_that_is_not_there_and_an_unknown_scheme_are_the_users_mistakes(
    tmp_path: Path,
) -> None:
    with pytest.raises(UserError, match="cannot be read"):
        load_scheme("evol_instruct", tmp_path / "none.yaml")
    with pytest.raises(UserError, match=r"no evolving scheme `evol`.*evol_"):
        load_scheme("evol")
