"""Fuzzing with hypothesis: a few cases in the quick form, thousands behind the marker `faults`.

    HARNESS_FUZZ_CASES   cases of each fuzzer in the long form; 10,000

The quick form tries the same cases every time, the long form others each time; a case that fails is
printed as small as it can be made.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis.strategies import SearchStrategy

LONG = int(os.environ.get("HARNESS_FUZZ_CASES", "10000"))


def forms(quick: int) -> pytest.MarkDecorator:
    """Return what runs a test in both forms, with its number of cases as `cases`.

    Args:
        quick: Cases of the quick form.
    """
    long = pytest.param(LONG, id="long", marks=[pytest.mark.faults, pytest.mark.timeout(0)])
    return pytest.mark.parametrize("cases", [pytest.param(quick, id="quick"), long])


def fuzz(cases: int, attempt: Callable[..., None], *of: SearchStrategy[Any]) -> None:
    """Try many cases; fail with the smallest that fails.

    Args:
        cases: How many.
        attempt: What is done with a case; it raises where something is wrong.
        of: What a case is made of.
    """
    tried = settings(
        max_examples=cases,
        deadline=None,
        database=None,
        derandomize=cases != LONG,
        phases=[Phase.generate, Phase.shrink],
        suppress_health_check=list(HealthCheck),
    )(given(*of)(attempt))
    tried()
