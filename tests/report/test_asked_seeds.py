"""The seeds last asked for are kept by table and profile."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.errors import HarnessError
from harness.report.asked import recall, remember


def test_the_last_seeds_asked_for_are_recalled(tmp_path: Path) -> None:
    assert recall(tmp_path, "table4", "micro") is None
    remember(tmp_path, "table4", "micro", [0, 1, 2])
    remember(tmp_path, "table4", "paper", [7])
    remember(tmp_path, "table4", "micro", (0, 4))
    assert recall(tmp_path, "table4", "micro") == (0, 4)
    assert recall(tmp_path, "table4", "paper") == (7,)
    assert recall(tmp_path, "table5", "micro") is None


@pytest.mark.parametrize("text", ["{", "[]", "{}", '{"seeds": []}', '{"seeds": ["0"]}', "7"])
def test_a_broken_record_is_one_sentence(tmp_path: Path, text: str) -> None:
    remember(tmp_path, "table4", "micro", [0])
    (tmp_path / "asked" / "micro" / "table4.json").write_text(text)
    with pytest.raises(HarnessError, match="is broken: delete it"):
        recall(tmp_path, "table4", "micro")
