"""`--set key=value`: overrides of settings, typed and validated like declarations."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from harness.errors import UserError
from harness.registry.documents import YamlFault, must_be, nearest, parse_yaml
from harness.registry.recipe import flattened, merge
from harness.strict import models_in

Model = TypeVar("Model", bound=BaseModel)


def settings_of(texts: Iterable[str], parts: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Parse `part.path=value` strings into nested settings by part; values are YAML."""
    found: dict[str, Any] = {}
    for text in texts:
        path, equals, value = text.partition("=")
        part, _, rest = path.partition(".")
        if not equals or part not in parts or not all(rest.split(".")):
            forms = " or ".join(f"`{part}.NAME=VALUE`" for part in parts)
            raise UserError(f"--set {text}: write {forms}")
        if path in found:
            raise UserError(f"--set {path} is given twice: leave one out")
        try:
            found[path] = parse_yaml(value)
        except YamlFault as fault:
            raise UserError(f"--set {text}: the value is not valid YAML: {fault}") from fault
    settings = nested(found)
    return {part: settings.get(part, {}) for part in parts}


def overridden(
    model: type[Model], data: Mapping[str, Any], settings: Mapping[str, Any], part: str
) -> Model:
    """Validate `data` with `settings` merged over it; `part` prefixes names in error messages."""
    known = {*paths_of(model), *flattened(model.model_validate(data).model_dump(by_alias=True))}
    for path in flattened(settings):
        if path not in known and not any(name.startswith(f"{path}.") for name in known):
            full = f"{part}.{path}"
            near = nearest(full, [f"{part}.{name}" for name in sorted(known)])
            raise UserError(f"--set {full}: there is no such setting{near}")
    try:
        return model.model_validate(merge(data, settings))
    except ValidationError as error:
        now = flattened(model.model_validate(data).model_dump(mode="json", by_alias=True))
        raise UserError(f"--set {part}: {first_fault(error, now)}") from error


def first_fault(error: ValidationError, now: Mapping[str, Any] = MappingProxyType({})) -> str:
    """Return what is wrong with the first setting that is; `now` are values that are right."""
    first = error.errors(include_url=False)[0]
    where = ".".join(str(part) for part in first["loc"])
    if first["type"] == "value_error":
        what = str(first["ctx"]["error"])
        return f"{where}: {what}" if where else what
    example = f", e.g. {json.dumps(now[where])}" if where in now else ""
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
        inner, path = models_in(field.annotation), prefix + name
        found += paths_of(inner[0], f"{path}.") if inner else [path]
    return found
