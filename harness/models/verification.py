"""Which published reward models have been loaded here from their real files.

The readers were written from descriptions and are tested on small random checkpoints of the same
form. That a published model is read rightly is known only once its own files have loaded strictly
and given its card's reference values. Until then it is `unverified`, and whatever is scored with
it says so.
"""

from __future__ import annotations

from pathlib import Path

from pydantic import BaseModel, ConfigDict, RootModel

TABLE = Path(__file__).with_name("verified_reward_models.json")
"""The models that were loaded: name on the hub -> revision and date. Nothing is in it yet."""

UNVERIFIED = "unverified"


class Verified(BaseModel):
    """When which files of a model were loaded strictly, and gave its reference values."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    revision: str
    """Commit of the model's repository."""
    date: str
    """Day, as 2026-01-31."""


class _Table(RootModel[dict[str, Verified]]):
    pass


def verification(identity: str, table: Path = TABLE) -> str:
    """Return whether a model's real files have been loaded, and which.

    Args:
        identity: the model's name on the hub, with its revision after an `@` if known.
        table: file of the models that were.

    Returns:
        `unverified`, or `verified on <date> at revision <commit>`.
    """
    name, _, revision = identity.partition("@")
    known = _Table.model_validate_json(table.read_text(encoding="utf-8")).root.get(name)
    if known is None or revision != known.revision:
        return UNVERIFIED
    return f"verified on {known.date} at revision {known.revision}"
