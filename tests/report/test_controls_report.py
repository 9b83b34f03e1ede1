"""Controls: when they pass, and what they admit."""

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pydantic import ValidationError
from toy_tables import CLAIM, DECLARATION, stored, toy_runs, write_all, write_scores

from harness.registry.claims import Manipulation
from harness.registry.declared import CONTROLS, all_tables
from harness.registry.profile import load_profiles
from harness.registry.schema import Control, Table, TrainingKind
from harness.report.controls import (
    CHOOSING,
    NO_CONTROLS,
    Controls,
    KnownControls,
    checked_runs,
    in_standard_errors,
    inadmissible,
    inadmissible_claims,
)
from harness.report.model import CheckedControl
from harness.report.render import as_markdown, as_text
from harness.report.scores import Measured
from harness.runtime import Store
from harness.statistics import ScoreMatrix

MICRO = load_profiles()["micro"]
SEEDS = (0, 1, 2, 3, 4)

LEVELS = {
    "1x": 40.0, "2x": 43.0, "3x": 46.0, "6x": 50.0,
    "1x-again": 44.0, "matched": 45.0, "flat": 36.0, "other": 40.0, "off-target": 41.0,
    **{f"{what}-{who}": 40.0 + more
       for what in ("eva", "eva-6x", "pool")
       for who, more in {"uniform": 0, "oracle": 2, "worst": -2, "shuffled": 0}.items()},
}  # fmt: skip
"""What the rows of a world score in which prompts matter."""


def table() -> Table:
    return all_tables()["controls"]


def at(seeds: Sequence[int]) -> dict[str, Sequence[int]]:
    return dict.fromkeys((row.id for row in table().rows), seeds)


def measured(
    levels: Mapping[str, float], noise: float = 1.0, exact: Mapping[str, float] = LEVELS
) -> Measured:
    """Return scores of every row, DPO's and RLOO's alike, around levels by the end of its id.

    What is wholly right stays as it is in a world where prompts matter, unless told.
    """
    rng = np.random.default_rng(0)
    found: Measured = {}
    for row, root in itertools.product(table().rows, SEEDS):
        for column, by_row in (("ah_wr", levels), ("ah_exact", exact)):
            values = by_row[row.id.partition("-")[2]] + noise * rng.normal(size=30)
            found[row.run_id(table().columns[0]), root, column] = {
                f"p{i:02}": float(value) for i, value in enumerate(values)
            }
    return found


def controls(
    changed: Mapping[str, float] | None = None, noise: float = 1.0, seeds: tuple[int, ...] = SEEDS
) -> Controls:
    found = LEVELS | dict(changed or {})
    return checked_runs(table(), MICRO, at(seeds), measured(found, noise), {})


def states(found: Controls, training: str = "offline") -> dict[str, str]:
    """Return what came out of the controls that all claims about prompts need."""
    return {
        c.id.partition("-")[0]: c.state
        for c in found.checked
        if c.training == training and not c.id.startswith(CHOOSING)
    }


def test_in_a_world_where_prompts_matter_every_control_passes() -> None:
    found = controls(noise=0.3)
    assert {control.state for control in found.checked} == {"passed"}
    assert found.why_not("offline") is found.why_not("online") is None
    assert found.why_not_choosing("offline") is found.why_not_choosing("online") is None
    dose = next(control for control in found.checked if control.id == "dose-offline")
    assert dose.doses == (1, 2, 3, 6)
    assert dose.distance == pytest.approx(10.0, abs=1.0)
    assert dose.standard_errors is not None
    assert dose.standard_errors > 5.0


@pytest.mark.parametrize(
    ("changed", "failing"),
    [
        ({"2x": 47.5}, {"dose"}),
        ({"1x-again": 50.0}, {"scarcity"}),
        ({"1x-again": 52.0}, {"scarcity"}),
        ({"matched": 40.0}, {"positive"}),
        ({"flat": 40.0}, {"negative"}),
        ({"other": 45.0}, {"aa"}),
        ({"other": 35.0}, {"aa"}),
        ({"1x": 50.0, "2x": 50.0, "3x": 50.0}, {"dose", "positive", "aa"}),
    ],
)
def test_each_control_fails_where_its_effect_is_gone(
    changed: dict[str, Any], failing: set[str]
) -> None:
    """Of one row moved, the controls that compare it, and no other ones."""
    found = controls(changed)
    assert {name for name, state in states(found).items() if state == "failed"} == failing
    why: Any = found.why_not("offline")
    for name in failing:
        assert f"`{name}-offline`" in why


def test_a_score_that_rises_while_fewer_answers_are_right_is_no_dose_response() -> None:
    """A profile that does not tell right from wrong is controlled by the rest."""
    falling = LEVELS | {"2x": 39.0, "3x": 38.0, "6x": 35.0}
    found = checked_runs(table(), MICRO, at(SEEDS), measured(LEVELS, exact=falling), {})
    assert {name for name, state in states(found).items() if state == "failed"} == {"exact"}
    assert "`exact-offline`" in (found.why_not("offline") or "")
    found = checked_runs(table(), load_profiles()["paper"], at(SEEDS), measured(LEVELS), {})
    assert states(found)["exact"] == "not_available"
    assert found.why_not("offline") is None


def test_noise_hides_every_effect_and_what_is_alike() -> None:
    """That no difference is found is no sign of likeness."""
    found = controls(noise=500.0)
    said = states(found)
    assert said.pop("aa") == "open"
    assert set(said.values()) == {"failed"}
    checked = tuple(c for c in found.checked if c.id == "aa-offline")
    assert replace(controls(), checked=(*controls().checked, *checked)).why_not("offline") is None


@pytest.mark.parametrize(
    ("other", "noise", "state"),
    [
        # The oracle's edge is 2, a third of it 0.67.
        (40.2, 0.3, "passed"), (39.8, 0.3, "passed"), (40.9, 0.3, "failed"), (41.0, 0.3, "failed"),
        (40.0, 4.0, "open"), (40.2, 4.0, "open"),
    ],
)  # fmt: skip
def test_rows_are_alike_if_they_are_shown_to_differ_by_less_than_a_third_of_the_edge(
    other: float, noise: float, state: str
) -> None:
    found = controls({"other": other}, noise=noise)
    (aa,) = (control for control in found.checked if control.id == "aa-offline")
    assert (aa.state, aa.edge) == (state, ("dpo-1x", "dpo-pool-oracle"))
    assert aa.margin == pytest.approx(2.0 / 3.0, abs=0.3)


@pytest.mark.parametrize(("more", "passed"), [(6, True), (0, False), (-6, False)])
def test_a_claim_about_better_reward_models_needs_one_that_is_better(
    more: int, passed: bool
) -> None:
    """Of 1,000 pairs, one orders more right than the other; 10 are ordered otherwise by chance."""
    than = [float(i % 10 != 0) for i in range(1000)]
    better = [1.0 if i < 10 * more else value for i, value in enumerate(than)]
    better = better if more >= 0 else [0.0 if i < -10 * more else v for i, v in enumerate(than)]
    matrix = {"better": better, "than": than}
    scores = {
        name: ScoreMatrix.from_seeds({0: {f"p{i}": v for i, v in enumerate(values)}})
        for name, values in matrix.items()
    }
    needs = Manipulation(better="better", than="than")
    found = replace(controls(), accuracies=lambda: scores)
    why = found.why_not_better(needs)
    assert (why is None) == passed
    assert passed or "is not shown to be better than `than`" in (why or "")
    assert "is not measured here" in (controls().why_not_better(needs) or "")


def test_a_claim_is_barred_while_the_reward_model_it_needs_is_not_measured() -> None:
    table10 = all_tables()["table10"]
    needing = {claim.id for claim in table10.claims if claim.needs}
    assert len(needing) == 4
    found = of_claims(table10, controls())
    assert {name for name, why in found.items() if "is not measured here" in why} == needing


def test_a_dose_response_that_falls_says_so() -> None:
    reasons = {c.id: c.reason for c in controls({"2x": 47.5}).checked if c.training == "offline"}
    assert reasons.pop("dose-offline") == "the scores do not rise with each row"
    assert set(reasons.values()) == {None}


@pytest.mark.parametrize(
    ("mean", "error", "distance"),
    [(3.0, 1.5, 2.0), (2.0, 0.0, math.inf), (-2.0, 0.0, -math.inf), (0.0, 0.0, 0.0)],
)
def test_a_distance_without_variance_is_none_or_infinite(
    mean: float, error: float, distance: float
) -> None:
    assert in_standard_errors(mean, error) == distance


def test_two_seeds_decide_no_control_and_three_do() -> None:
    assert {control.state for control in controls(noise=0.3, seeds=(0, 1, 2)).checked} == {"passed"}
    found = controls(seeds=(0, 1))
    assert {control.state for control in found.checked} == {"not_run"}
    assert found.checked[0].reason == "it needs 3 seeds and has 2"
    assert (found.why_not("offline") or "").startswith("offline controls not run: ")


def test_controls_in_their_own_report_are_decided_by_its_seeds(tmp_path: Path) -> None:
    """Whatever the store has beside them."""
    control: dict[str, Any] = {"id": "rises", "statement": "It rises.", "training": "offline"}
    control |= {"column": "ah_wr", "kind": "rising", "standard_errors": 3}
    declared = {**DECLARATION, "controls": [control | {"rows": ["base", "eva-a_min"]}]}
    for seeds, state in (((0, 1), "not_run"), ((0, 1, 2), "passed")):
        runs = toy_runs(seeds, table=declared)
        write_all(store := Store(tmp_path), runs)
        assert [it.state for it in stored(runs, store).report.controls] == [state]


def test_a_control_of_the_store_is_decided_by_the_seeds_that_its_own_rows_have() -> None:
    """Seeds 3 and 4 of the doses alone hide no other control, and a row that never ran only its."""
    doses = {f"dpo{end}-h1" for end in ("", "20k", "30k", "60k")}
    scores = {
        key: own for key, own in measured(LEVELS).items() if key[0] in doses or key[1] in (0, 1, 2)
    }
    whole, three = (
        checked_runs(table(), MICRO, at(seeds), scores, {}) for seeds in (SEEDS, SEEDS[:3])
    )
    found = checked_runs(table(), MICRO, None, scores, {}).checked
    assert found == tuple(
        of_five if of_three.id in ("dose-offline", "exact-offline") else of_three
        for of_five, of_three in zip(whole.checked, three.checked, strict=True)
    )
    assert "not_run" not in {control.state for control in found}
    assert found != three.checked

    never = {key: own for key, own in scores.items() if key[0] not in ("dpo60k-h1", "dpo-matched")}
    found = checked_runs(table(), MICRO, None, never, {}).checked
    reasons = {control.id: control.reason for control in found if control.state == "not_run"}
    six, matched = (f"`{row}` lacks seeds" for row in ("dpo-6x", "dpo-matched"))
    assert reasons == {
        "dose-offline": six, "exact-offline": six, "scarcity-offline": six,
        "positive-offline": matched,
    }  # fmt: skip


def test_the_gain_of_tripled_prompts_is_read_at_the_seeds_that_both_rows_have() -> None:
    """Of 3x seeds 0 to 4 have run, of 1x seeds 2 to 4."""
    scores = {k: own for k, own in measured(LEVELS).items() if k[0] != "dpo-h1" or k[1] > 1}
    found = checked_runs(table(), MICRO, None, scores, {}).tripled
    of_shared = checked_runs(table(), MICRO, at((2, 3, 4)), scores, {}).tripled
    gain = of_shared["offline", "ah_wr"]
    assert gain == pytest.approx(6.0, abs=1.0)
    assert found["offline", "ah_wr"] == gain
    assert checked_runs(table(), MICRO, at((2, 3)), scores, {}).tripled["offline", "ah_wr"] != gain
    none = {key: own for key, own in scores.items() if key[0] != "dpo-h1"}
    assert ("offline", "ah_wr") not in checked_runs(table(), MICRO, None, none, {}).tripled


def test_an_extra_run_at_one_seed_hides_no_control_of_the_store(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Seed 3, which adds 6 where the others add 0, 2 and 4, has all rows but A_min's."""
    control: dict[str, Any] = {"statement": "It rises.", "training": "offline", "column": "ah_wr"}
    control |= {"kind": "rising", "standard_errors": 3}
    both = [
        control | {"id": name, "rows": ["base", row]}
        for name, row in (("a-min", "eva-a_min"), ("uniform", "eva-uniform"))
    ]
    declared = {**DECLARATION, "controls": both}
    all_with = toy_runs((0, 1, 2, 3), table=declared)
    write_all(store, toy_runs((0, 1, 2), table=declared))
    for run, level in (("dpo-h1", 50.0), ("base", 51.0), ("dpo-eva-uniform", 53.0)):
        wins = {f"p{i}": level + 2 * i + 6 for i in range(4)}
        write_scores(store, all_with, run, 3, ah_wr=wins)
    tables = {CONTROLS: all_with.table}
    monkeypatch.setattr("harness.report.controls.declared.all_tables", lambda: tables)
    monkeypatch.setattr("harness.report.controls.runnable", lambda *_: (all_with, {}))
    monkeypatch.setattr(Store, "seeds", lambda _: all_with.seeds)  # judges alone have none
    found = KnownControls(all_with.profile, store).applying_to()
    assert found is not None
    assert [(it.id, it.state) for it in found.checked] == [
        ("a-min", "passed"),
        ("uniform", "passed"),
    ]
    three, four = (pytest.approx(it.means) for it in found.checked)
    assert three == (56.0, 59.5)
    assert four == (57.0, 59.0)


def test_what_has_not_run_or_cannot_is_said() -> None:
    scores = measured(LEVELS)
    del scores["dpo60k-h1", 3, "ah_wr"]
    lacking = {"dpo-matched": "`dpo-matched` cannot run: no prompts are matched"}
    found = checked_runs(table(), MICRO, at(SEEDS), scores, lacking)
    assert states(found) == {
        "dose": "not_run", "exact": "passed", "scarcity": "not_run", "positive": "not_available",
        "negative": "passed", "aa": "passed", "off": "passed",
    }  # fmt: skip
    why = "offline controls not run: `dose-offline`, `scarcity-offline`"
    assert found.why_not("offline") == why
    assert found.why_not("online") is None


def with_state(state: str, which: Callable[[CheckedControl], bool]) -> Controls:
    """Return passed controls, some of which are in another state."""
    found = controls()
    checked = [c.model_copy(update={"state": state}) if which(c) else c for c in found.checked]
    return replace(found, checked=tuple(checked))


def test_a_control_that_cannot_run_is_not_needed_and_a_dose_response_must_pass() -> None:
    without = with_state("not_available", lambda control: "positive" in control.id)
    assert without.why_not("offline") is None
    why = "no dose-response of {} training can run here"
    none = with_state("not_available", lambda control: bool(control.doses))
    assert none.why_not("offline") == why.format("offline")
    assert replace(none, checked=()).why_not("online") == why.format("online")


def test_only_tables_about_prompts_need_controls_and_only_of_their_training() -> None:
    tables = all_tables()
    assert tables["table4"].about_prompts == ("offline",)
    assert tables["table1"].about_prompts == ("online",)
    assert tables["controls"].about_prompts == ()
    assert tables["table7"].about_prompts == (), "it scores prompts, and no policy"
    assert inadmissible(tables["table4"], None) == {"offline": NO_CONTROLS}
    assert inadmissible(tables["table4"], controls()) == {}
    failed = controls({"flat": 40.0})
    assert set(inadmissible(tables["table4"], failed)) == {"offline"}
    assert inadmissible(tables["table1"], failed) == {}


def test_a_table_without_controls_says_so_in_its_first_line(store: Store) -> None:
    runs = toy_runs((0, 1, 2), table=DECLARATION | {"claims": [CLAIM]})
    for i, (run, seed) in enumerate(runs.runs):
        wins = {f"p{p}": 50.0 + i + i * (-1) ** p for p in range(4)}
        write_scores(store, runs, run, seed, ah_wr=wins, mt_avg={"m0": 5.0, "m1": 6.0})
    results = stored(runs, store)
    report = results.report
    assert report.inadmissible == NO_CONTROLS
    said = "whether a difference between prompts can be seen at \\`micro\\` is not shown"
    lines = [line for line in as_markdown(results).splitlines() if line]
    assert lines[1].startswith("Inadmissible, because no controls have run")
    assert said.removeprefix("w") in lines[2]
    assert lines[3].startswith("- **Inadmissible:** " + said)
    assert as_text(results).splitlines()[1].startswith("Inadmissible, because")
    assert stored(runs, store).verdicts[0].word == "inadmissible"


def test_with_controls_a_table_says_its_power(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rows of the toy table score 57 to 62 in five seeds; the curve goes from 57 to 63."""
    runs = toy_runs(SEEDS)
    write_all(store, runs)
    prompts = [f"p{i}" for i in range(4)]
    levels = {"1x": 50.0, "2x": 53.0, "3x": 54.0, "6x": 56.0}
    curve = {
        (row.run_id(table().columns[0]), seed, "ah_wr"): {
            p: levels.get(row.id.partition("-")[2], 50.0) + 2 * i + 2 * seed + (seed - i) / 9
            for i, p in enumerate(prompts)
        }
        for row in table().rows
        for seed in SEEDS
    }
    known = checked_runs(table(), MICRO, at(SEEDS), curve, {})
    monkeypatch.setattr(KnownControls, "published", (known, {}))
    results = stored(runs, store)
    report = results.report
    (power,) = report.power
    assert power.dose == pytest.approx(4.0)
    assert power.in_doses == pytest.approx(power.detectable / 4.0)
    text = as_markdown(results)
    assert "of a tripling of original prompts (+4.0" in text


def test_published_controls_count_while_they_are_of_the_same_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert KnownControls(MICRO, None, tmp_path).applying_to() is None
    known, runs = controls(), {("dpo-h1/micro/seed0", "ah_wr"): "a" * 12}
    monkeypatch.setattr(KnownControls, "published", (known, runs))
    found = KnownControls(MICRO, None, tmp_path)
    same, other = (f"dpo-h1/micro/seed0@{name * 12}" for name in "ab")
    alien = f"dpo-eva/micro/seed0@{'c' * 12}"
    cell = stored(toy_runs(), Store(tmp_path / "store")).report.cells[0]
    judged = cell.model_copy(update={"runs": (same, alien)})
    assert found.applying_to([judged]) is known
    others = cell.model_copy(update={"runs": (other,)})
    assert found.applying_to([others.model_copy(update={"column": "ae_lc"})]) is known
    assert found.applying_to([others]) is None


def test_some_controls_of_the_store_hide_no_published_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rows of `choosing` decide the controls on choosing alone."""
    whole = controls()
    some = [
        it if it.id.startswith(CHOOSING) else it.model_copy(update={"state": "not_run"})
        for it in whole.checked
    ]
    part = replace(whole, checked=tuple(some))
    monkeypatch.setattr(KnownControls, "published", (whole, {}))
    known = KnownControls(MICRO, None, tmp_path)
    monkeypatch.setattr(KnownControls, "stored", part)
    assert known.applying_to() is whole
    monkeypatch.setattr(KnownControls, "stored", replace(whole))
    assert known.applying_to() is known.stored is not whole
    monkeypatch.setattr(KnownControls, "published", None)
    monkeypatch.setattr(KnownControls, "stored", part)
    assert known.applying_to() is part


@pytest.mark.parametrize(
    ("row", "level", "failing"),
    [
        ("oracle", 40.0, ["choose-parents", "choose-prompts"]),
        ("worst", 40.0, ["choose-parents-worst", "choose-prompts-worst"]),
        ("shuffled", 41.0, ["choose-parents-shuffled", "choose-prompts-shuffled"]),
        ("shuffled", 39.0, ["choose-parents-shuffled", "choose-prompts-shuffled"]),
    ],
)
def test_a_failed_control_of_choosing_bars_claims_about_choosing_alone(
    row: str, level: float, failing: list[str]
) -> None:
    """Of parents and of human prompts, chosen so; drawn evenly both score 40."""
    found = controls({f"eva-{row}": level, f"pool-{row}": level})
    failed = [c.id for c in found.checked if (c.training, c.state) == ("offline", "failed")]
    assert failed == failing
    assert found.why_not("offline") is None
    named = ", ".join(f"`{name}`" for name in failing)
    assert found.why_not_choosing("offline") == (f"controls on choosing failed: {named}")


@pytest.mark.parametrize(("off", "state"), [(42.9, "passed"), (43.1, "failed"), (39.0, "passed")])
def test_off_target_prompts_gain_less_than_half(off: float, state: str) -> None:
    """3x gains 6 over 1x; half of it, less what the others gain, is 3 - 2.9, 3 - 3.1 or 3 + 1."""
    found = controls({"off-target": off}, noise=1e-3)
    (own,) = (c for c in found.checked if c.id == "off-target")
    assert own.state == state
    assert own.distance == pytest.approx(43.0 - off, abs=1e-2)
    why = None if state == "passed" else "offline controls failed: `off-target`"
    assert found.why_not("offline") == why


def of_claims(table: Table, known: Controls) -> dict[str, str]:
    return inadmissible_claims(table, table.claims, known)


def test_claims_about_choosing_need_its_controls_and_others_do_not() -> None:
    """None is declared of choosing in a world that only sees what more prompts do."""
    declared = [c for c in controls().checked if not c.id.startswith(CHOOSING)]
    known = replace(controls(), checked=tuple(declared))
    tables = all_tables()
    barred = of_claims(tables["table4"], known)
    assert "t4-uniform-dpo-ah" not in barred
    assert set(barred) == {c.id for c in tables["table4"].claims} - {"t4-uniform-dpo-ah"}
    assert set(of_claims(tables["table5"], known)) == {
        "t5-evolve-vs-sample-ah", "t5-evolve-vs-greedy-ah", "t5-evolve-greedy-pair-ah",
        "t5-sample-vs-greedy-ah", "t5-sample-vs-greedy-mt", "t5-sample-vs-greedy-lc",
        "t5-evolve-vs-sample-wr",
    }  # fmt: skip
    for name in ("table1", "table2", "table6", "table8", "table12", "table13"):
        assert of_claims(tables[name], known) == {}, name
    why = barred["t4-amin-uniform-ah"]
    assert "controls on choosing not declared: `choose-parents`, " in why
    assert of_claims(tables["table4"], controls()) == {}


def test_a_control_of_choosing_bars_claims_about_its_own_training_alone() -> None:
    passed = controls()
    trainings: tuple[TrainingKind, ...] = ("offline", "online")
    for own in passed.checked:
        if own.id.startswith(CHOOSING):
            failed = own.model_copy(update={"state": "failed"})
            checked = tuple(failed if it is own else it for it in passed.checked)
            found = replace(passed, checked=checked)
            barred = [of for of in trainings if found.why_not_choosing(of) is not None]
            assert barred == [own.training], own.id


def test_a_control_of_choosing_that_has_not_run_bars_and_one_that_cannot_does_not() -> None:
    said = {}
    for state in ("not_available", "not_run"):
        found = with_state(state, lambda control: control.id == "choose-prompts")
        said[state] = found.why_not_choosing("offline")
    why = "controls on choosing not run: `choose-prompts`"
    assert said == {"not_available": None, "not_run": why}
    none = with_state("not_available", lambda control: control.id.startswith(CHOOSING))
    assert (
        none.why_not_choosing("online")
        == "no control on choosing prompts of online training can run here"
    )


@pytest.mark.parametrize(
    "changed", [{"share": None}, {"rows": ["1x", "3x"]}, {"kind": "rising"}, {"kind": "alike"}]
)
def test_a_share_belongs_to_three_rows_of_a_gain_that_is_less(changed: dict[str, object]) -> None:
    given = {"id": "off-target", "training": "offline", "column": "ah_wr", "kind": "less",
             "share": 0.5, "rows": ["1x", "off", "3x"], "standard_errors": 0,
             "statement": "So it is."}  # fmt: skip
    assert Control.model_validate(given).share == 0.5
    with pytest.raises(ValidationError):
        Control.model_validate(given | changed)
