"""The page on over-optimisation says what its numbers say."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from harness.errors import HarnessError
from harness.report.over_optimisation import OVER_OPTIMISATION, PUSHED_FOLDER, OverOptimisation
from harness.report.publication import Refused
from harness.runtime.files import sha256_of

SETTING = {
    "learning_rate": 3e-4, "beta": 0.0, "seed": 100, "prompts": 20, "n": 6,
    "reward_model": "world/rm@00", "commit": "abc", "stages": {"0x": "f" * 64},
}  # fmt: skip


def pushed(*pairs: tuple[float, float]) -> OverOptimisation:
    points = [{"size": i, "reward": r, "oracle": o} for i, (r, o) in enumerate(pairs)]
    return OverOptimisation.model_validate({"points": points, "setting": SETTING})


def test_a_reward_that_rises_while_the_oracle_falls_is_told() -> None:
    said = pushed((0.0, 0.5), (1.0, 0.7), (2.0, 0.6)).finding
    assert "highest at 1x (0.700)" in said
    assert "to 2x it fell by 0.100, and the learned reward rose (+1.000)" in said


def test_a_run_not_pushed_far_enough_says_so() -> None:
    assert "not pushed far enough" in pushed((0.0, 0.5), (1.0, 0.7)).finding


def test_both_can_fall() -> None:
    said = pushed((1.0, 0.5), (0.5, 0.4)).finding
    assert "highest at the start" in said
    assert "fell as well (-0.500)" in said


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
    digests = json.loads((folder / "digests.json").read_text())

    def forge(text: str, without: str = "") -> None:
        (folder / "report.json").write_text(text)
        files = {**digests["files"], "report.json": sha256_of(folder / "report.json")}
        files.pop(without, None)
        (folder / "digests.json").write_text(json.dumps({"files": files}))

    report = given.model_dump(mode="json")
    report["points"][0]["reward"] = 9.0
    forge(json.dumps(report))
    with pytest.raises(HarnessError, match=r"report\.md does not follow from report\.json"):
        OVER_OPTIMISATION.check(folder)
    forge("[]")
    with pytest.raises(HarnessError, match=r"report\.json was published in another form"):
        OVER_OPTIMISATION.check(folder)
    forge(json.dumps(given.model_dump(mode="json")), without="figure.svg")
    with pytest.raises(HarnessError, match=r"figure\.svg is not what was published"):
        OVER_OPTIMISATION.check(folder)
