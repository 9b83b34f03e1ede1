"""Any published number, taken at random, is in MLflow what the report has, to four digits."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest

from harness.project import results_dir
from harness.tracking.record import Record, metric_name
from harness.tracking.tables import SUFFIX, published_records

TAKEN = 50
SHOWN = {
    "mean": "ours/{}",
    "ci_low": "ours/{}.low",
    "ci_high": "ours/{}.high",
    "gain": "gain/{}",
    "gain_ci_low": "gain/{}.low",
    "gain_ci_high": "gain/{}.high",
    "paper": "paper/{}",
}
"""The metric of a row that shows each field of a cell."""

Number = tuple[str, dict[str, Any], str]


@pytest.fixture(scope="module")
def records() -> dict[tuple[str, str], Record]:
    """Return what MLflow is to hold of everything published, by experiment and row."""
    return {(r.experiment, r.params.get("row", "")): r for r in published_records(results_dir())}


def numbers() -> list[Number]:
    """Return all numbers in the published tables: experiment, cell, and the field."""
    found: list[Number] = []
    for path in sorted(results_dir().glob("*/*/report.json")):
        report = json.loads(path.read_text(encoding="utf-8"))
        if "cells" not in report:  # a figure's
            continue
        place = f"{path.parent.name}/{path.parent.parent.name}{SUFFIX}"
        for cell in report["cells"]:
            found += [(place, cell, name) for name in SHOWN if cell[name] is not None]
    return found


def test_numbers_taken_at_random_are_those_of_the_reports(
    records: dict[tuple[str, str], Record],
) -> None:
    seed, every = random.SystemRandom().randrange(2**32), numbers()
    print(f"random.Random({seed})")  # so that a failure can be had again
    assert len(every) > TAKEN
    for place, cell, name in random.Random(seed).sample(every, TAKEN):
        metric = SHOWN[name].format(metric_name(cell["column"]))
        of_row = records[place, cell["row"]].scores.read()
        assert of_row[metric] == float(f"{cell[name]:.4g}"), (place, cell["row"], metric)
