"""What a sweep may say: the shipped ones hold, and every mistake is named before anything runs."""

from pathlib import Path
from typing import Any

import pytest
import yaml
from toy_sweep import METRIC, OFFLINE, SHARE, choice, micro, toy

from harness.errors import UserError
from harness.registry.documents import RegistryError
from harness.registry.recipe import Recipe
from harness.sweep.conduct import shared_stages
from harness.sweep.declaration import FOLDER, Parameter, load_sweeps, named_sweep
from harness.sweep.space import base_candidate, validation_runs

SHARES = choice(0.2, 0.4)


def test_the_shipped_sweeps_can_run_at_every_point_on_micro() -> None:
    """Offline, the first iteration of each seed and the rollouts on its prompts are shared.

    That is prompts, generate, annotate, pair, train, generate, annotate and pair, twice. Online,
    only the prompts are.
    """
    sweeps = load_sweeps()
    tuned = ["tune-dpo", "tune-oaif", "tune-orpo", "tune-rloo", "tune-simpo", "tune-sppo"]
    assert list(sweeps) == ["laptop-evolve", "offline-evolve", "online-evolve", *tuned]
    assert len(shared_stages(sweeps["offline-evolve"], micro())) == 2 * 8
    assert [s.kind for s in shared_stages(sweeps["online-evolve"], micro())] == ["prompts"]


def test_every_algorithm_is_tuned_alike_on_human_prompts_alone() -> None:
    """As many trials for each, judged first on the score at the end; no row of eva."""
    sweeps = load_sweeps()
    for algorithm in micro().algorithms:
        sweep = sweeps[f"tune-{algorithm}"]
        recipe = Recipe.model_validate(sweep.recipe)
        assert recipe.algorithm == algorithm
        assert set(recipe.chain) <= {"human"}
        assert recipe.online is None or recipe.online.prompts == "human"
        assert sweep.trials == sweep.grid_size == 12
        measured = [(objective.measure, objective.after) for objective in sweep.objectives]
        assert measured == [
            ("val_score", None),
            ("val_exact", None),
            ("val_score", 1),
            ("val_exact", 1),
        ]


@pytest.mark.parametrize("name", ["tune-dpo", "tune-rloo"])
def test_what_is_measured_earlier_is_the_beginning_of_the_same_training(name: str) -> None:
    sweep = load_sweeps()[name]
    found = base_candidate(sweep, micro())
    for whole, early in zip(
        validation_runs(sweep, found, "t"), validation_runs(sweep, found, "t", 1), strict=True
    ):
        assert len(early.training) == 1 < len(whole.training) == 3
        assert early.training[0].fingerprint == whole.training[0].fingerprint
        assert early.judged != whole.judged


def test_a_measure_within_the_first_pass_takes_the_prompts_of_that_pass_once() -> None:
    online = {"prompts": "human", "size": 2, "passes": 2}
    sweep = toy(recipe={"algorithm": "rloo", "online": online}, seeds=[0])
    found = base_candidate(sweep, micro())
    [whole], [early] = (validation_runs(sweep, found, "t", after) for after in (None, 1))
    parts = [stage.fingerprint for stage in early.training]
    assert parts == [stage.fingerprint for stage in whole.training[: len(parts)]]
    assert len(whole.training) == 4 * len(parts)


def test_the_paper_s_setting_is_a_point_of_offline_evolve() -> None:
    space = load_sweeps()["offline-evolve"].space
    paper = {"fraction": 0.25, "evolutions": 4, "evolved_share": 0.8, "metric": "a_min"}
    for name, value in paper.items():
        assert value in space[f"recipe.creator.{name}"].values()


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"name": "other"}, "differs from the name of the file"),
        ({"trails": 3}, "unknown key; did you mean `trials`?"),
        ({"space": {}}, "at least 1 item"),
        (
            {"space": {"recipe.creator.evolved_shar": SHARES}},
            f"cannot vary `recipe.creator.evolved_shar`; did you mean `{SHARE}`?",
        ),
        (
            {"space": {"profile.training.dpo.bet": SHARES}},
            "cannot vary `profile.training.dpo.bet`; did you mean `profile.training.dpo.beta`?",
        ),
        (
            {"space": {"profile.benchmarks.arena_hard.items": choice(1, 2)}},
            "cannot vary `profile.benchmarks.arena_hard.items`",
        ),
        ({"space": {SHARE: {"suggest_float": {"low": 0.8, "high": 0.2}}}}, "less than `high`"),
        ({"space": {SHARE: choice(1)}}, "two or more different"),
        ({"space": {SHARE: {"suggest_float": {"low": 0, "high": 1, "log": True}}}}, "above 0"),
        ({"space": {SHARE: {"suggest_int": {"low": 0.5, "high": 2}}}}, "low: "),
        ({"space": {SHARE: {"suggest_floats": {"low": 0, "high": 2}}}}, "`suggest_float`?"),
        ({"space": {SHARE: {"suggest_int": {"low": 1, "high": 10**12}}}}, "larger `step`"),
        ({"space": {SHARE: {}}}, "give one of `suggest_categorical`"),
        ({"space": {SHARE: {"suggest_int": None}}}, "give one of `suggest_categorical`"),
        ({"objectives": []}, "at least 1 item"),
        (
            {"objectives": [{"name": "c", "measure": "rollouts", "direction": "minimize"}]},
            "`rollouts` is counted in online runs only",
        ),
        (
            {"objectives": [{"name": "c", "measure": "wins", "direction": "minimize"}]},
            "`wins` is not known",
        ),
        ({"seeds": [0, 10]}, "seed 10 is in both `seeds` and `result.seeds`"),
        ({"seeds": [1, 1]}, "different whole numbers"),
        (
            {"sampler": {"kind": "grid", "seed": 0},
             "space": {SHARE: {"suggest_float": {"low": 0.2, "high": 0.8}}}},
            "a grid has no points for",
        ),
        ({"sampler": {"kind": "tpe"}}, "this key is missing"),
        ({"recipe": {"algorithm": "dpo"}}, "needs a `chain`"),
        (
            {"objectives": [{**OFFLINE["objectives"][0], "after": 9}]},
            "`after` 9 of a training of 2",
        ),
        ({"trials": 0}, "greater than or equal to 1"),
        ({"enqueue": [{SHARE: 0.4}]}, "names every setting"),
        ({"enqueue": [{SHARE: 0.5, METRIC: "var"}]}, "which is not in its space"),
    ],
)  # fmt: skip
def test_a_mistake_in_a_declaration_is_named_with_its_file(
    tmp_path: Path, changes: dict[str, Any], words: str
) -> None:
    path = tmp_path / "toy.yaml"
    path.write_text(yaml.safe_dump({**OFFLINE, **changes}))
    with pytest.raises(RegistryError) as raised:
        load_sweeps(tmp_path)
    assert words in str(raised.value)
    assert "toy.yaml:" in str(raised.value)


def test_a_sweep_is_run_from_a_file_of_ones_own(tmp_path: Path) -> None:
    path = tmp_path / "toy.yaml"
    path.write_text(yaml.safe_dump(dict(OFFLINE)))
    assert named_sweep(str(path)) == toy()
    path.write_text(yaml.safe_dump({**OFFLINE, "space": {"recipe.creator.share": SHARES}}))
    with pytest.raises(RegistryError, match=r"toy.yaml.* did you mean"):
        named_sweep(str(path))


def test_a_file_that_changes_a_shipped_sweep_needs_a_name_of_its_own(tmp_path: Path) -> None:
    shipped = (FOLDER / "tune-dpo.yaml").read_text(encoding="utf-8")
    path = tmp_path / "tune-dpo.yaml"
    path.write_text(shipped)
    assert named_sweep(str(path)) == load_sweeps()["tune-dpo"]
    path.write_text(shipped.replace("trials: 12", "trials: 8"))
    with pytest.raises(UserError, match="give yours a name of its own"):
        named_sweep(str(path))


def test_the_worked_example_of_the_docs_can_run_at_every_point(tmp_path: Path) -> None:
    text = (Path(__file__).resolve().parents[2] / "docs" / "sweeps.md").read_text("utf-8")
    (tmp_path / "rewrites.yaml").write_text(text.split("```yaml\n")[1].split("```")[0])
    sweep = named_sweep(str(tmp_path / "rewrites.yaml"))
    assert sweep.grid_size == sweep.trials == 4
    assert shared_stages(sweep, micro())


@pytest.mark.parametrize(
    ("parameter", "values"),
    [
        ({"suggest_int": {"low": 1, "high": 7, "step": 3}}, (1, 4, 7)),
        ({"suggest_float": {"low": 0.1, "high": 0.4, "step": 0.1}}, (0.1, 0.2, 0.3, 0.4)),
        (choice("a", None, 2), ("a", None, 2)),
    ],
)
def test_the_values_of_a_finite_parameter(
    parameter: dict[str, Any], values: tuple[object, ...]
) -> None:
    """From `low` in steps up to `high`: 0.1, 0.2, 0.3 and 0.4 as they are typed."""
    assert Parameter.model_validate(parameter).values() == values


def test_a_grid_has_no_more_trials_than_points() -> None:
    """4 shares x 2 metrics = 8 points."""
    sweep = toy(sampler={"kind": "grid", "seed": 0}, trials=100)
    assert (sweep.grid_size, sweep.target(), sweep.target(3)) == (8, 8, 3)
    assert toy(trials=100).target() == 100
    assert set(sweep.space) == {SHARE, METRIC}
