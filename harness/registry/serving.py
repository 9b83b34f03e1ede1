"""The servers that a profile has the harness start: a role of the run, and how its model is served.

What a request leaves out (template arguments, sampling, the longest sequence) changes replies, and
`numerics` is what a stage's identity says of it. Memory and the number of sequences at once do not.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeAlias, get_args

from pydantic import Field, model_validator

from harness.registry.training import Count, Positive
from harness.strict import Strict, refuse

ServedRole: TypeAlias = Literal["policy", "creator", "scorer", "judge"]


def variable(role: ServedRole, what: str) -> str:
    """Return the environment variable that says something of who serves a role, as its `URL`."""
    return f"HARNESS_{'SOLVER' if role == 'policy' else role.upper()}_{what}"


TemplateArguments: TypeAlias = dict[
    Annotated[str, Field(pattern=r"^[A-Za-z_]\w*$")], bool | int | float | str
]


class Served(Strict):
    engine: Literal["vllm", "sglang"]
    model: str | None = None
    """Its weights on the hub, at a commit: `owner/name@<40 digits>`. Null for the policy alone,
    whose checkpoint each stage names."""
    dtype: Literal["float32", "bfloat16"]
    """Number format of its weights."""
    max_length: Count
    """Longest prompt and answer together, in tokens."""
    gpu_memory: float = Field(gt=0, lt=1)
    """Share of the GPU's memory that the server takes. Roles whose shares add up to at most 1 can
    be served beside each other; the others take turns."""
    cache_gb: Positive | None = None
    """Size of the cache of keys and values, in GB of 10^9 bytes; vLLM then does not measure what is
    free, which goes wrong beside another server. Null fills the share."""
    at_once: Count = 256
    """Most sequences at once."""
    template: TemplateArguments = Field(default={})
    """Arguments of the chat template, as in `enable_thinking: false`."""
    sampling: dict[str, int | float] = Field(default={})
    """Sampling that requests leave out, as in `top_k: 20`; the model's own file is not asked."""
    start_s: Count = 1800

    @model_validator(mode="after")
    def _consistent(self) -> Served:
        sglang = self.engine == "sglang"
        refuse(
            (sglang and self.cache_gb is not None,
             "`cache_gb` is vLLM's; SGLang's cache fills its `gpu_memory`"),
            (sglang and self.sampling,
             "`sampling` is vLLM's; SGLang's chats take no defaults of ours"),
        )  # fmt: skip
        return self

    @property
    def name(self) -> str | None:
        """What requests call the model: its name on the hub; None for the policy."""
        return None if self.model is None else self.model.partition("@")[0]

    def numerics(self) -> dict[str, Any]:
        """Return what changes replies, for the settings of a stage that asks."""
        names = {"engine", "model", "dtype", "max_length", "template", "sampling"}
        return self.model_dump(mode="json", include=names)


class Serving(Strict):
    """The servers that the harness starts, shares and stops, by role; the others are elsewhere."""

    policy: Served | None = None
    creator: Served | None = None
    scorer: Served | None = None
    judge: Served | None = None

    @model_validator(mode="after")
    def _consistent(self) -> Serving:
        for role, served in self.roles.items():
            named = "its stages name" if role == "policy" else "`model` must name"
            wrong = (served.model is None) != (role == "policy")
            refuse((wrong, f"`{role}`: {named} the checkpoint that is served"))
        return self

    @property
    def roles(self) -> dict[ServedRole, Served]:
        """The roles that are served here, in the order of a run."""
        found = {role: getattr(self, role) for role in get_args(ServedRole)}
        return {role: served for role, served in found.items() if served is not None}
