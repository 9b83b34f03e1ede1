"""A published sweep: what its page says, and the same bytes each time."""

import json
from pathlib import Path
from typing import Any

import pytest
from forging import seal

from harness.errors import HarnessError
from harness.registry.objective import SweepObjective
from harness.report.publication import Refused
from harness.report.scores import write_scores
from harness.report.sweep import (
    SWEEP,
    SweepReport,
    SweepTrial,
    digits,
    publish_sweep,
    sweep_blocks,
    sweep_facts,
    winner_scores,
)
from harness.report.verify import verify

RATIO, N_NEW = "recipe.online.ratio_evol", "recipe.online.n_new"


def trial(number: int, ratio: float, n_new: int, win_rate: float, rollouts: float) -> SweepTrial:
    return SweepTrial(
        number=number,
        state="complete",
        params={RATIO: ratio, N_NEW: n_new},
        values={"win_rate": win_rate, "rollouts": rollouts},
        started="2026-01-01T00:00:00+00:00",
        ended="2026-01-01T00:01:00+00:00",
        seconds=60.0,
        reused=3,
        computed=2,
        failure=None,
    )


MEASURED = {
    ("toy-winner", 100, "ah_wr"): {"p0": 50.0, "p1": 60.0},
    ("toy-winner", 101, "ah_wr"): {"p0": 52.0, "p1": 62.0},
    ("toy-base", 100, "ah_wr"): {"p0": 47.0, "p1": 57.0},
    ("toy-base", 101, "ah_wr"): {"p0": 49.0, "p1": 59.0},
}
"""The winner is 3 better on each prompt with each seed; the means are 56 and 53."""

REPORT = SweepReport(
    name="toy",
    question="How many? | a *lot*",
    profile="micro",
    scale="toy",
    study="toy/micro/12345678",
    space={RATIO: (0.25, 0.5), N_NEW: (1, 4)},
    objectives=(
        SweepObjective(name="win_rate", measure="val_wr", direction="maximize", unit="%"),
        SweepObjective(name="rollouts", measure="rollouts", direction="minimize", unit=""),
    ),
    sampler="grid, seed 0",
    seeds=(0,),
    result_seeds=(100, 101),
    target=4,
    counted=4,
    trials=(
        trial(0, 0.25, 1, 50.0, 6000),
        trial(1, 0.5, 1, 52.0, 7000),
        trial(2, 0.25, 4, 51.0, 9000),
        trial(3, 0.5, 4, 54.0, 12000),
    ),
    winner=3,
    pareto=(3, 1, 0),
    benchmarks=winner_scores(MEASURED, "toy", (100, 101), ("ah_wr",)),
    measured=MEASURED,
)


def replace(report: SweepReport, **changes: Any) -> SweepReport:
    return report.model_copy(update=changes)


def test_a_published_sweep_is_a_page_and_its_data(tmp_path: Path) -> None:
    folder = publish_sweep(REPORT, tmp_path)
    assert folder == tmp_path / "micro" / "sweeps" / "toy"
    names = sorted(path.name for path in folder.iterdir())
    assert names == ["digests.json", "report.json", "report.md", "scores.parquet"]
    page = (folder / "report.md").read_text()
    assert "How many? \\| a \\*lot\\*" in page
    assert json.loads((folder / "report.json").read_text())["winner"] == 3
    assert [path.name for path in (tmp_path / "micro" / "sweeps").iterdir()] == ["toy"]


def test_a_published_winner_follows_from_its_scores_and_a_changed_one_does_not(
    tmp_path: Path,
) -> None:
    folder = publish_sweep(REPORT, tmp_path)
    assert (verify(tmp_path).sweeps, verify(tmp_path).cells) == (("micro/sweeps/toy",), 1)
    write_scores(MEASURED | {("toy-base", 101, "ah_wr"): {"p0": 49.0, "p1": 58.0}},
                 folder / "scores.parquet")  # fmt: skip
    with pytest.raises(HarnessError, match="not what was published"):
        verify(tmp_path)
    seal(folder)
    with pytest.raises(HarnessError, match="benchmarks / ah_wr / base cannot be"):
        SWEEP.check(folder)


def test_a_report_says_which_prompts_its_trials_were_measured_on() -> None:
    for held_out, words in (
        (False, "validation prompts, disjoint from every benchmark"),
        (True, "held-out original prompts, by the reward that trains"),
    ):
        report = replace(REPORT, held_out=held_out)
        assert dict(sweep_facts(report))["Measured on"] == words
        titles = [block.title for block in sweep_blocks(report)]
        assert all(words.partition(",")[0] in title for title in titles[1:])


def test_publishing_again_gives_the_same_bytes(tmp_path: Path) -> None:
    def published() -> dict[str, bytes]:
        folder = publish_sweep(REPORT, tmp_path)
        return {path.name: path.read_bytes() for path in folder.iterdir()}

    assert published() == published()


def test_a_sweep_with_fewer_trials_or_scores_does_not_replace_one_with_more(tmp_path: Path) -> None:
    publish_sweep(REPORT, tmp_path)
    with pytest.raises(Refused, match="has more: 1 of 4 trials"):
        publish_sweep(replace(REPORT, target=3, counted=3), tmp_path)
    with pytest.raises(Refused, match="the published result has more: row `ah_wr`"):
        publish_sweep(replace(REPORT, measured={}, benchmarks=()), tmp_path)
    assert verify(tmp_path).cells == 1


def test_what_is_missing_says_so(tmp_path: Path) -> None:
    empty = replace(
        REPORT,
        trials=(),
        winner=None,
        pareto=(),
        measured={},
        benchmarks=(),
        counted=0,
    )
    with pytest.raises(Refused, match="lacks 4 of 4 trials, the winner on the benchmarks"):
        publish_sweep(empty, tmp_path)
    folder = publish_sweep(empty, tmp_path, allow_fewer=True)
    page = (folder / "report.md").read_text()
    assert "no trial is complete yet" in page
    winner, *_ = sweep_blocks(replace(REPORT, measured={}, benchmarks=()))
    assert winner.notes == ("Trial 3: not run",)


def test_the_page_says_what_became_of_trials_without_values(tmp_path: Path) -> None:
    """One objective; the base recipe is the winner."""

    def ended(number: int, **how: Any) -> SweepTrial:
        return trial(number, 0.5, 1, 0.0, 0.0).model_copy(update={"values": None, **how})

    winner = {key: values for key, values in MEASURED.items() if key[0] == "toy-winner"}
    trials = (
        *REPORT.trials,
        ended(4, state="pruned"),
        ended(5, state="fail", failure="no memory"),
    )
    report = replace(
        REPORT, objectives=REPORT.objectives[:1], seeds=(0, 1), trials=trials, pareto=None,
        benchmarks=winner_scores(winner, "toy", (100, 101), ("ah_wr",)),
    )  # fmt: skip
    folder = publish_sweep(report, tmp_path)
    page = (folder / "report.md").read_text()
    assert "| pruned |" in page
    assert "| failed |" in page
    assert "- trial 5: no memory\n" in page
    assert "| the base recipe is the winner |" in page


def test_a_base_recipe_that_lacks_a_seed_is_not_called_the_winner() -> None:
    lacking = {key: values for key, values in MEASURED.items() if key[:2] != ("toy-base", 101)}
    scores = winner_scores(lacking, "toy", (100, 101), ("ah_wr",))
    winner, *_ = sweep_blocks(replace(REPORT, benchmarks=scores))
    ((score, own, base, gain),) = winner.rows
    assert (score, own[:5], base, gain) == ("ah_wr", "56.00", "", "not run")


def test_with_one_fresh_seed_the_intervals_are_over_prompts_only() -> None:
    winner, *_ = sweep_blocks(replace(REPORT, result_seeds=(100,)))
    assert "; 95%, over prompts only: one seed says nothing" in winner.notes[0]


def test_equal_points_are_ranked_once() -> None:
    twice = (*REPORT.trials, trial(4, 0.5, 4, 54.0, 12000))
    assert [t.number for t in replace(REPORT, trials=twice).best()] == [3, 1, 2, 0]


def test_the_facts_count_stages_and_states() -> None:
    found = dict(sweep_facts(REPORT))
    assert found["Trials"] == "4 of 4 (4 complete)"
    assert found["Stages"] == "12 reused, 8 computed"


@pytest.mark.parametrize(
    ("value", "expected"),
    [(0.123456, "0.123"), (51.234567, "51.2"), (12000.0, "12000"), (-0.0, "0")],
)
def test_no_digit_is_shown_that_means_nothing(value: float, expected: str) -> None:
    assert digits(value) == expected
