"""`--set profile.NAME=VALUE`: overrides of a profile, typed and validated like declarations."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from pydantic import BaseModel, ValidationError

from harness.errors import UserError
from harness.registry.documents import YamlFault, must_be, nearest, parse_yaml
from harness.registry.profile import Profile
from harness.registry.recipe import flattened, merge
from harness.strict import models_in


def overrides_of(profile: Profile, texts: Iterable[str]) -> dict[str, Any]:
    """Parse `profile.path=value` strings into settings of a profile, by path; values are YAML."""
    found: dict[str, Any] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        part, _, path = name.partition(".")
        if not equals or part != "profile" or not all(path.split(".")):
            raise UserError(f"--set {text}: write `profile.NAME=VALUE`")
        if any(f"{path}.".startswith(f"{it}.") or f"{it}.".startswith(f"{path}.") for it in found):
            raise UserError(f"--set {name} is given twice: leave one out")
        if path == "name":
            raise UserError(f"--set {text}: what is set gets a name of its own; leave it out")
        try:
            found[path] = parse_yaml(value)
        except YamlFault as fault:
            raise UserError(f"--set {text}: the value {fault.message}") from fault
        if found[path] == {}:
            raise UserError(f"--set {text}: no setting changes nothing; name one that does")
    settings, now = nested(found), profile.model_dump(mode="json", by_alias=True)
    known = {*paths_of(Profile), *flattened(now)}
    for path in flattened(settings):
        if path not in known and not any(name.startswith(f"{path}.") for name in known):
            near = nearest(f"profile.{path}", [f"profile.{name}" for name in sorted(known)])
            raise UserError(f"--set profile.{path}: there is no such setting{near}")
    try:
        varied = Profile.model_validate(merge(now, settings))
    except ValidationError as error:
        raise UserError(f"--set profile: {first_fault(error, flattened(now))}") from error
    if found and varied.model_dump() == profile.model_dump():
        said = ", ".join(f"profile.{path}" for path in found)
        raise UserError(f"--set {said}: `{profile.name}` has that value; leave it out")
    return flattened(settings)


def first_fault(error: ValidationError, now: Mapping[str, Any] | None = None) -> str:
    """Return what is wrong with the first setting that is; `now` are values that are right."""
    first = error.errors(include_url=False)[0]
    where = ".".join(str(part) for part in first["loc"])
    if first["type"] == "value_error":
        what = str(first["ctx"]["error"])
        return f"{where}: {what}" if where else what
    example = f", e.g. {json.dumps(now[where])}" if now and where in now else ""
    return f"`{where}` {must_be(first)}{example}"


def nested(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Turn settings keyed by dotted path into nested mappings."""
    found: dict[str, Any] = {}
    for path, value in settings.items():
        *parents, name = path.split(".")
        inner = found
        for parent in parents:
            inner = inner.setdefault(parent, {})
        inner[name] = value
    return found


def paths_of(model: type[BaseModel], prefix: str = "") -> list[str]:
    """Return the dotted path of every setting of a model, such as `creator.metric`."""
    found: list[str] = []
    for name, field in model.model_fields.items():
        inner, path = models_in(field.annotation), prefix + (field.alias or name)
        found += paths_of(inner[0], f"{path}.") if inner else [path]
    return found
