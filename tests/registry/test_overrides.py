"""`--set`: values are typed and checked as in a declaration; mistakes are one sentence."""

from pathlib import Path

import pytest

from harness.errors import UserError
from harness.registry.declared import named_profile
from harness.registry.overrides import nested, overrides_of
from harness.registry.profile import Profile
from harness.registry.recipe import flattened, merge
from harness.selection.experiment import varied


def profile(*texts: str) -> Profile:
    micro = named_profile("micro")
    settings = nested(overrides_of(micro, texts))
    return Profile.model_validate(merge(micro.model_dump(by_alias=True), settings))


def test_values_are_typed_as_yaml_has_them() -> None:
    texts = (
        "profile.x=8", "profile.description=small", "profile.arms=[human]",
        "profile.hardware=null", "profile.training.dpo.beta=0.5",
        "profile.selection={too_few: error}",
    )  # fmt: skip
    assert overrides_of(named_profile("micro"), texts) == {
        "x": 8,
        "description": "small",
        "arms": ["human"],
        "hardware": None,
        "training.dpo.beta": 0.5,
        "selection.too_few": "error",
    }
    assert overrides_of(named_profile("micro"), []) == {}


def test_what_is_set_is_what_a_declaration_would_have_said() -> None:
    stated = named_profile("micro").model_dump(by_alias=True) | {"x": 8}
    stated["training"]["dpo"]["beta"] = 0.5
    found = profile("profile.x=8", "profile.training.dpo.beta=0.5")
    assert found == Profile.model_validate(stated)
    assert profile() == named_profile("micro")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("profile.x", "--set profile.x: write `profile.NAME=VALUE`"),
        ("x=2", "--set x=2: write `profile.NAME=VALUE`"),
        ("recipe.size=2", "--set recipe.size=2: write `profile.NAME=VALUE`"),
        ("profile..x=2", "write `profile.NAME=VALUE`"),
        ("profile.treads=2", "there is no such setting; did you mean `profile.threads`"),
        ("profile.training.dpo.beat=1", "did you mean `profile.training.dpo.beta`"),
        ("profile.engine=best", "--set profile: `engine` must be "),
        ("profile.x=many", "--set profile: `x` must be a whole number, e.g. 400"),
        ("profile.arms=[human", "the value is not valid YAML"),
        ("profile.trained_reward_models={}", "no setting changes nothing"),
        ("profile.training.dpo.beta=2", "--set profile.training.dpo.beta: `micro` has that value"),
        ("profile.name=mine", "--set profile.name=mine: what is set gets a name of its own"),
    ],
)
def test_a_mistake_is_one_sentence(text: str, said: str) -> None:
    with pytest.raises(UserError) as raised:
        profile(text)
    assert said in str(raised.value)
    assert "\n" not in str(raised.value)


def test_a_setting_is_given_once() -> None:
    with pytest.raises(UserError, match=r"profile\.x is given twice"):
        profile("profile.x=2", "profile.x=3")
    for path in ("profile.training.dpo", "profile.training.dpo.beta"):
        other = "profile.training.dpo.beta" if path.endswith("dpo") else "profile.training.dpo"
        with pytest.raises(UserError, match=rf"--set {other} is given twice"):
            profile(f"{path}=1", f"{other}=2")


@pytest.mark.parametrize(
    ("name", "path", "value"),
    [
        ("micro", "x", 8),
        ("micro", "trained_reward_models.pointwise_noisy_1.steps", 400),
        ("single-gpu", "serving.policy.template.enable_thinking", True),
        ("paper", "benchmarks.mt_bench.temperature.writing", 0.5),
        ("paper", "benchmarks.mt_bench.temperature", 0.5),
    ],
)
def test_the_file_of_what_is_set_changes_that_setting_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, path: str, value: object
) -> None:
    """However its source was written: for it alone, or for several settings together."""
    monkeypatch.setenv("HARNESS_WORK", str(tmp_path))
    shipped = flattened(named_profile(name).model_dump(by_alias=True))
    own = flattened(
        named_profile(varied(name, [f"profile.{path}={value}"])).model_dump(by_alias=True)
    )
    others = {it for it in shipped if it != "name" and not f"{it}.".startswith(f"{path}.")}
    assert {it for it in others if own[it] != shipped[it]} == set()
    assert own.keys() - others == {"name", path}
    assert own[path] == value
