"""A shipped profile with other values of some settings: `run --set profile.KEY=VALUE`.

It is a profile of its own, with a name of its own and a file in the work folder, so that all that
is said of a profile (what was asked for, reports, MLflow) is said of it, and of no other.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence

from harness.errors import UserError
from harness.project import work_dir
from harness.registry.declared import named_profile
from harness.registry.documents import read_document
from harness.registry.overrides import overridden, settings_of
from harness.registry.profile import Profile
from harness.registry.recipe import flattened
from harness.runtime.files import write_whole
from harness.runtime.stage import canonical_json, digest


def varied(profile: str, texts: Sequence[str]) -> str:
    """Return the file of a profile with some settings changed, as `profile.training.dpo.beta=0.1`.

    Raises:
        UserError: A setting does not exist, is not written in the profile, or has a wrong value.
    """
    file = named_profile(profile).file
    document = read_document(file)
    settings = settings_of(texts, ("profile",))["profile"]
    overridden(Profile, document.data, settings, "profile")
    changed = flattened(settings)
    name = f"{document.data['name']}-{digest(canonical_json(changed))[:6]}"
    lines = file.read_text(encoding="utf-8").splitlines()
    for path, value in {**changed, "name": name}.items():
        at = document.line(tuple(path.split("."))) - 1
        key = path.rpartition(".")[2]
        found = re.match(rf"\s*{re.escape(key)}: ", lines[at])
        if found is None:
            raise UserError(
                f"--set profile.{path}: the profile `{profile}` has it on no line of its own"
            )
        lines[at] = f"{found[0]}{json.dumps(value)}  # ours: --set"
    target = work_dir() / "profiles" / f"{name}.yaml"
    write_whole(target, "\n".join([*lines, ""]))
    return str(target)
