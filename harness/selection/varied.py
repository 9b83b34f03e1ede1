"""A shipped profile with other values of some settings: `run --set profile.KEY=VALUE`.

It is a profile of its own, with a name of its own and a file in the work folder, so that all that
is said of a profile (what was asked for, reports, MLflow) is said of it, and of no other.
"""

from __future__ import annotations

from collections.abc import Sequence

from harness.project import work_dir
from harness.registry.declared import named_profile
from harness.registry.documents import as_yaml, read_yaml
from harness.registry.overrides import nested, overridden, settings_of
from harness.registry.profile import Profile
from harness.registry.recipe import flattened, merge
from harness.runtime.files import write_whole
from harness.runtime.stage import canonical_json, digest


def varied(profile: str, texts: Sequence[str]) -> str:
    """Return the file of a profile with some settings changed, as `profile.training.dpo.beta=0.5`.

    Raises:
        UserError: A setting does not exist, or has a wrong value.
    """
    base = named_profile(profile)
    settings = settings_of(texts, ("profile",))["profile"]
    declared = base.model_dump(by_alias=True)
    overridden(Profile, declared, settings, "profile")
    changed = flattened(settings)
    name = f"{base.name}-{digest(canonical_json(changed))[:6]}"
    values = flattened(declared)
    sourced = {  # a section that is left out has no source
        path: None if v is None and path not in values else {"value": v, "source": "ours: --set"}
        for path, v in changed.items()
    }
    data = merge(read_yaml(base.file), {**nested(sourced), "name": name})
    target = work_dir() / "profiles" / f"{name}.yaml"
    write_whole(target, as_yaml(data))
    return str(target)
