"""Fuzzing with hypothesis: a few cases in the quick form, thousands behind the marker `faults`.

    HARNESS_FUZZ_CASES   cases of each fuzzer in the long form; 10,000

The quick form tries the same cases every time, the long form others each time; a case that fails is
printed as small as it can be made.
"""

import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis.strategies import SearchStrategy


@dataclass
class Fuzzer:
    """Tries so many cases, always the same ones or not."""

    cases: int
    same: bool

    def fuzz(self, attempt: Callable[..., None], *of: SearchStrategy[Any], share: int = 1) -> None:
        """Try cases; fail with the smallest. So many tests `share` those of the long form."""
        tried = settings(
            max_examples=self.cases if self.same else max(1, self.cases // share),
            deadline=None,
            database=None,
            derandomize=self.same,
            phases=[Phase.generate, Phase.shrink],
            suppress_health_check=list(HealthCheck),
        )(given(*of)(attempt))
        tried()


def forms(quick: int) -> pytest.MarkDecorator:
    """Return what runs a test in both forms, with its `fuzzer`; the quick one has so many cases."""
    cases = int(os.environ.get("HARNESS_FUZZ_CASES", "10000"))
    marks = [pytest.mark.faults, pytest.mark.timeout(0)]
    return pytest.mark.parametrize(
        "fuzzer",
        [
            pytest.param(Fuzzer(quick, same=True), id="quick"),
            pytest.param(Fuzzer(cases, same=False), id="long", marks=marks),
        ],
    )
