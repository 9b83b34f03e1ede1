"""The servers that the harness starts for a profile: each role, and how its model is served."""

from __future__ import annotations

import os
from typing import Annotated, Any, Literal, TypeAlias, get_args

from pydantic import Field, model_validator

from harness.registry.training import Count
from harness.strict import Strict

ServedRole: TypeAlias = Literal["policy", "creator", "scorer", "judge"]


def variable(role: ServedRole, what: str) -> str:
    """Return the environment variable for a property (such as `URL`) of a role's server."""
    return f"HARNESS_{'SOLVER' if role == 'policy' else role.upper()}_{what}"


def address(role: ServedRole) -> str | None:
    """Return the address of a role's server that runs elsewhere; None if none is named."""
    return os.environ.get(variable(role, "URL")) or None


TemplateArguments: TypeAlias = dict[
    Annotated[str, Field(pattern=r"^[A-Za-z_]\w*$")], bool | int | float | str
]


class Served(Strict):
    engine: Literal["vllm", "sglang"]
    model: str | None = None
    """Weights on the Hub at a commit: `owner/name@<40 digits>`. Null only for the policy, whose
    checkpoint each stage names."""
    dtype: Literal["float32", "bfloat16"]
    """Weight dtype."""
    max_length: Count
    """Maximum length of prompt plus answer, in tokens."""
    gpu_memory: float = Field(gt=0, lt=1)
    """Fraction of GPU memory the server takes. Roles whose fractions add up to at most 1 can be
    served side by side; the others take turns."""
    at_once: Count = 256
    """Maximum concurrent sequences."""
    template: TemplateArguments = Field(default={})
    """Chat template arguments, such as `enable_thinking: false`."""

    @property
    def name(self) -> str | None:
        """The model name in requests: its name on the Hub, or None for the policy."""
        return None if self.model is None else self.model.partition("@")[0]

    def numerics(self) -> dict[str, Any]:
        """Return the settings that change replies, for the identity of a stage that asks."""
        names = {"engine", "model", "dtype", "max_length", "template"}
        return self.model_dump(mode="json", include=names) | {"sampling": {}}


class Serving(Strict):
    """Servers that the harness starts, shares and stops, by role; others run elsewhere."""

    policy: Served | None = None
    creator: Served | None = None
    scorer: Served | None = None
    judge: Served | None = None

    @model_validator(mode="after")
    def _consistent(self) -> Serving:
        for role, served in self.roles.items():
            if (served.model is None) != (role == "policy"):
                named = "its stages name" if role == "policy" else "`model` must name"
                raise ValueError(f"`{role}`: {named} the checkpoint that is served")
        return self

    @property
    def roles(self) -> dict[ServedRole, Served]:
        """The roles served here, in run order."""
        found = {role: getattr(self, role) for role in get_args(ServedRole)}
        return {role: served for role, served in found.items() if served is not None}
