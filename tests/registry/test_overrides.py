"""`--set`: values are typed and checked as in a declaration; mistakes are one sentence."""

import pytest

from harness.errors import UserError
from harness.registry.overrides import overridden, settings_of
from harness.registry.recipe import Recipe

PARTS = ("recipe", "profile")
DATA = {"algorithm": "dpo", "chain": ["human", "eva"]}


def recipe(*texts: str) -> Recipe:
    return overridden(Recipe, DATA, settings_of(texts, PARTS)["recipe"], "recipe")


def test_values_are_typed_as_yaml_has_them() -> None:
    found = settings_of(
        ["recipe.size=2", "recipe.creator.metric=a_avg", "recipe.chain=[human]", "profile.x=8",
         "recipe.online=null", "recipe.creator.fraction=0.5"],
        PARTS,
    )  # fmt: skip
    assert found == {
        "recipe": {
            "size": 2,
            "creator": {"metric": "a_avg", "fraction": 0.5},
            "chain": ["human"],
            "online": None,
        },
        "profile": {"x": 8},
    }
    assert settings_of([], PARTS) == {"recipe": {}, "profile": {}}


def test_what_is_set_is_what_a_declaration_would_have_said() -> None:
    stated = {**DATA, "size": 2, "creator": {"metric": "a_avg"}}
    assert recipe("recipe.size=2", "recipe.creator.metric=a_avg") == Recipe.model_validate(stated)
    assert recipe().canonical() == Recipe.model_validate(DATA).canonical()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("recipe.size", "--set recipe.size: write `recipe.NAME=VALUE` or `profile.NAME=VALUE`"),
        ("size=2", "--set size=2: write `recipe.NAME=VALUE`"),
        ("recipe..size=2", "write `recipe.NAME=VALUE`"),
        ("recipe.sizes=2", "there is no such setting; did you mean `recipe.size`"),
        ("recipe.creator.metrik=var", "did you mean `recipe.creator.metric`"),
        ("recipe.creator.metric=best", "--set recipe: `creator.metric` must be "),
        ("recipe.size=many", "--set recipe: `size` must be a whole number, e.g. 1"),
        ("recipe.chain=[human", "the value is not valid YAML"),
    ],
)
def test_a_mistake_is_one_sentence(text: str, said: str) -> None:
    with pytest.raises(UserError) as raised:
        recipe(text)
    assert said in str(raised.value)
    assert "\n" not in str(raised.value)


def test_a_setting_is_given_once() -> None:
    with pytest.raises(UserError, match="size is given twice"):
        recipe("recipe.size=2", "recipe.size=3")
