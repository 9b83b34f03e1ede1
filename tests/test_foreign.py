"""JSON from outside: whatever is read can be written again, and nothing else is let in."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.foreign import ForeignTextError, in_a_line, printable, read_json, readable

values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters()),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)


@given(values)
def test_what_is_read_can_be_written_as_strict_json_and_utf_8(value: object) -> None:
    found = read_json(json.dumps(value))
    text = json.dumps(found, ensure_ascii=False, allow_nan=False)
    assert read_json(text.encode()) == found


def test_half_a_pair_becomes_the_replacement_and_a_whole_pair_its_character() -> None:
    assert read_json('"a \\ud83d b"') == "a \ufffd b"
    assert read_json('{"\\ude00": "\\ud83d\\ude00"}') == {"\ufffd": "\U0001f600"}
    assert readable("caf\u00e9 \U0001f600") == "caf\u00e9 \U0001f600"


@pytest.mark.parametrize("text", ["", "{", "[1,]", "nope", b'"\xff"', "[" * 100_000])
def test_what_is_no_json_is_one_kind_of_error(text: str | bytes) -> None:
    with pytest.raises(ForeignTextError):
        read_json(text)


def test_a_printable_text_obeys_nobody_and_keeps_its_lines() -> None:
    text = "caf\u00e9\n\x1b]0;t\x07\x9b2J\u202e \ud83d\r\tend"
    assert printable(text) == "caf\u00e9\n\\x1b]0;t\\x07\\x9b2J\\u202e \\ud83d\\r\\tend"
    assert in_a_line(text) == printable(text).replace("\n", "\\n")
    assert in_a_line("x" * 9, 3) == "xxx…"
