"""Where the paper, its authors' code and this project part, and what the paper leaves open.

A discrepancy is a place where the printed paper and the published code do not say the same; an
ambiguity is one where the paper can be read in several ways. Each carries the choice made here and
names what embodies it: settings of a profile (`profile.training.dpo.epochs`) or of a recipe
(`recipe.online.warm_up`), or modules. A name that points nowhere is an error.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, get_args, get_origin

from pydantic import BaseModel, Field

from harness.project import PACKAGE, project_root
from harness.registry.documents import (
    Document,
    Problem,
    RegistryError,
    few,
    nearest,
    read_declared,
)
from harness.registry.profile import Profile
from harness.registry.recipe import Recipe
from harness.registry.yaml_reader import Loc
from harness.strict import Strict, models_in

FILE = Path("experiments") / "deviations.yaml"
"""The file, below the project's folder."""

_ROOTS: Mapping[str, type[BaseModel]] = {"profile": Profile, "recipe": Recipe}


class Choice(Strict):
    """What this project does about it, and where."""

    choice: str
    """What is done here."""
    settings: tuple[str, ...] = ()
    """The settings that embody the choice, as `profile.NAME` or `recipe.NAME`."""
    modules: tuple[str, ...] = ()
    """The files that embody it, below the project's folder."""


class Discrepancy(Choice):
    """A place where the paper and its authors' code do not say the same."""

    number: Annotated[int, Field(ge=1)]
    """Its number."""
    topic: str
    """What it is about."""
    paper: str
    """What the paper says."""
    code: str
    """What the authors' code does, or what was found otherwise."""


class Ambiguity(Choice):
    """A place where the paper can be read in several ways."""

    number: Annotated[int, Field(ge=1)]
    """Its number."""
    topic: str
    """What it is about."""
    open: str
    """What is said, and what is not."""


class Deviations(Strict):
    """All of them."""

    discrepancies: tuple[Discrepancy, ...]
    """Between the paper and the code."""
    ambiguities: tuple[Ambiguity, ...]
    """Of the paper on online training."""


def deviations(path: Path | None = None) -> Deviations:
    """Read and check the deviations.

    Raises:
        RegistryError: The file is not what it must be, or names what there is not.
    """
    found, document = read_declared(path or project_root() / FILE, Deviations, "deviations")
    problems = few(_problems(document, found))
    if problems:
        raise RegistryError(problems)
    return found


def value_in(profile: Profile, setting: str) -> tuple[str, Any]:
    """Return what a setting of a recipe or a profile is.

    A setting is named as `Choice.settings` has it.

    Returns:
        `value` and the profile's; `default` and a recipe's default; or `absent` and None, where
        the profile does not have what the setting belongs to.
    """
    root, _, name = setting.partition(".")
    if root == "recipe":
        return "default", _recipe_default(name.split("."))
    value: Any = profile
    for part in name.split("."):
        value = value.get(part) if isinstance(value, Mapping) else getattr(value, part, None)
        if value is None:
            return "absent", None
    return "value", value


def _recipe_default(parts: list[str]) -> Any:
    model: type[BaseModel] = Recipe
    for part in parts[:-1]:
        model = models_in(model.model_fields[part].annotation)[0]
    return model.model_fields[parts[-1]].get_default(call_default_factory=True)


def _problems(document: Document, found: Deviations) -> Iterator[Problem]:
    for group in ("discrepancies", "ambiguities"):
        entries: tuple[Discrepancy | Ambiguity, ...] = getattr(found, group)
        for i, entry in enumerate(entries):
            place: Loc = (group, i)
            if entry.number != i + 1:
                text = f"`{entry.number}` should be {i + 1}: they are counted"
                yield document.wrong((*place, "number"), text)
            for setting in entry.settings:
                wrong = _unknown(setting)
                if wrong is not None:
                    yield document.wrong((*place, "settings"), wrong)
            for module in entry.modules:
                # An installed package has code and declarations in two places.
                if not any((top / module).is_file() for top in (project_root(), PACKAGE.parent)):
                    yield document.wrong((*place, "modules"), f"there is no file `{module}`")


def _unknown(setting: str) -> str | None:
    """Return what is wrong with the name of a setting, None where there is such a setting."""
    root, *parts = setting.split(".")
    if root not in _ROOTS or not parts:
        return f"`{setting}` begins with neither `profile.` nor `recipe.`"
    models: list[type[BaseModel]] = [_ROOTS[root]]
    anything = False
    for part in parts:
        if anything:  # the keys of a mapping are the profile's own
            anything = False
            continue
        fields = {name: field for model in models for name, field in model.model_fields.items()}
        if part not in fields:
            return f"there is no setting `{setting}`{nearest(part, fields)}"
        annotation = fields[part].annotation
        anything = any(
            get_origin(a) in (dict, Mapping) for a in (annotation, *get_args(annotation))
        )
        models = models_in(annotation)
    return None
