"""Fingerprints: what changes the numbers is identity, nothing else is."""

import enum
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import settings as options
from hypothesis import strategies as st

from harness.runtime import Stage
from harness.runtime.stage import FingerprintError, canonical_json

scalars = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=5)
)
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner),
    max_leaves=8,
)
settings_of_stages = st.dictionaries(st.text(max_size=4), values, max_size=5)


def stage(settings: dict[str, Any], **other: Any) -> Stage:
    usual: dict[str, Any] = {"kind": "train", "version": 1, "settings": settings, "inputs": {}}
    return Stage(**usual | other)


def reordered(value: Any) -> Any:
    """Return an equal value whose dicts are in the opposite order."""
    if isinstance(value, dict):
        return {key: reordered(value[key]) for key in reversed(value)}
    return [reordered(item) for item in value] if isinstance(value, list) else value


@options(deadline=None)
@given(settings_of_stages, st.text(max_size=4), values)
def test_any_change_of_a_setting_changes_it(settings: dict[str, Any], key: str, value: Any) -> None:
    changed = {**settings, key: value}
    same = canonical_json(settings) == canonical_json(changed)
    assert (stage(settings).fingerprint == stage(changed).fingerprint) == same


def test_kind_version_and_inputs_are_identity_and_the_label_is_not() -> None:
    """Also an input under another name is another stage, and a change reaches all downstream."""
    up, other = stage({"seed": 0}), stage({"seed": 1})
    base = stage({})
    assert stage({}, label="seed 0").fingerprint == base.fingerprint
    different = [
        base,
        stage({}, kind="judge"),
        stage({}, version=2),
        stage({}, inputs={"policy": up}),
        stage({}, inputs={"reference": up}),
        stage({}, inputs={"policy": other}),
        stage({}, inputs={"policy": stage({}, inputs={"policy": up})}),
    ]
    assert len({one.fingerprint for one in different}) == len(different)


def test_the_fingerprint_is_the_sha256_of_the_stated_json() -> None:
    """By hand: sha256 of {"inputs":{},"kind":"train","settings":{"lr":0.5},"version":1}."""
    expected = "aadd36e5a4779bc5"
    assert stage({"lr": 0.5}).fingerprint.startswith(expected)


def test_numbers_of_different_types_are_different_settings() -> None:
    assert len({stage({"x": x}).fingerprint for x in (1, 1.0, True, "1")}) == 4


def test_a_stage_keeps_the_settings_it_was_made_with() -> None:
    settings: dict[str, Any] = {"creator": {"fraction": 0.25}}
    one = stage(settings)
    settings["creator"]["fraction"] = 0.5
    assert one.settings == {"creator": {"fraction": 0.25}}
    assert one.fingerprint == stage({"creator": {"fraction": 0.25}}).fingerprint


def test_the_seed_has_31_bits_and_follows_from_the_fingerprint() -> None:
    for number in range(20):
        one = stage({"number": number})
        assert one.seed == int(one.fingerprint[:8], 16) % 2**31


class Colour(enum.StrEnum):
    RED = "red"


@pytest.mark.parametrize(
    "bad",
    [
        math.nan,
        math.inf,
        (1, 2),
        {1, 2},
        b"x",
        Path("x"),
        np.float64(0.5),
        np.int64(1),
        Colour.RED,
        object(),
        {1: "x"},
    ],
    ids=lambda bad: "object" if type(bad) is object else repr(bad),
)
def test_what_has_no_single_json_form_is_refused_by_its_key_path(bad: object) -> None:
    with pytest.raises(FingerprintError, match=r"train\.settings\.creator\[1\]\.metric "):
        stage({"creator": [{}, {"metric": bad}]})
