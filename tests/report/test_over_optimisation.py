"""The page on over-optimisation says what its numbers say."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from forging import forge, seal

from harness.errors import HarnessError
from harness.report.over_optimisation import OVER_OPTIMISATION, PUSHED_FOLDER, OverOptimisation
from harness.report.publication import DIGESTS, REPORT, Refused

SETTING = {
    "learning_rate": 3e-4, "beta": 0.0, "seed": 100, "prompts": 20, "n": 6,
    "reward_model": "world/rm@00", "commit": "abc", "stages": {"0x": "f" * 64},
}  # fmt: skip


def pushed(*pairs: tuple[float, float]) -> OverOptimisation:
    points = [{"size": i, "reward": r, "oracle": o} for i, (r, o) in enumerate(pairs)]
    return OverOptimisation.model_validate({"points": points, "setting": SETTING})


@pytest.mark.parametrize(
    ("points", "said"),
    [
        ([(0.0, 0.5), (1.0, 0.7), (2.0, 0.6)], r"highest at 1x \(0\.700\).* to 2x it fell by "
         r"0\.100, and the learned reward rose \(\+1\.000\)"),
        ([(0.0, 0.5), (1.0, 0.7)], "not pushed far enough"),
        ([(1.0, 0.5), (0.5, 0.4)], r"highest at the start.* fell as well \(-0\.500\)"),
    ],
)  # fmt: skip
def test_what_is_told_is_whether_the_oracle_falls_and_the_reward_rises(
    points: list[tuple[float, float]], said: str
) -> None:
    assert re.search(said, pushed(*points).finding)


def test_the_page_its_figure_and_its_numbers_are_published(tmp_path: Path) -> None:
    given = pushed((0.0, 0.5), (1.0, 0.7), (2.0, 0.6))
    folder = OVER_OPTIMISATION.publish(given, f"micro/{PUSHED_FOLDER}", tmp_path)
    assert folder == tmp_path / "micro" / "over-optimisation"
    assert json.loads((folder / "report.json").read_text()) == given.model_dump(mode="json")
    assert "| 1x | 1.000 | 0.700 |" in (folder / "report.md").read_text(encoding="utf-8")
    fewer = pushed((0.0, 0.5), (1.0, 0.7))
    with pytest.raises(Refused, match="the published result has more: row `2x`"):
        OVER_OPTIMISATION.publish(fewer, f"micro/{PUSHED_FOLDER}", tmp_path)
    OVER_OPTIMISATION.publish(fewer, f"micro/{PUSHED_FOLDER}", tmp_path, allow_fewer=True)
    assert (folder / "figure.svg").read_text(encoding="utf-8").startswith("<?xml")


def test_a_page_that_does_not_follow_from_its_report_is_named(tmp_path: Path) -> None:
    """The digests are those of the changed files, as a careful forger would have them."""
    given = pushed((0.0, 0.5), (1.0, 0.7))
    folder = OVER_OPTIMISATION.publish(given, f"micro/{PUSHED_FOLDER}", tmp_path)
    as_published = (folder / REPORT).read_text(encoding="utf-8")
    forge(folder, lambda report: report["points"][0].update(reward=9.0))
    with pytest.raises(HarnessError, match=r"report\.md does not follow from report\.json"):
        OVER_OPTIMISATION.check(folder)
    (folder / REPORT).write_text("[]")
    seal(folder)
    with pytest.raises(HarnessError, match=r"report\.json was published in another form"):
        OVER_OPTIMISATION.check(folder)
    (folder / REPORT).write_text(as_published, encoding="utf-8")
    seal(folder)
    digests = json.loads((folder / DIGESTS).read_text())
    del digests["files"]["figure.svg"]
    (folder / DIGESTS).write_text(json.dumps(digests))
    with pytest.raises(HarnessError, match=r"figure\.svg is not what was published"):
        OVER_OPTIMISATION.check(folder)
