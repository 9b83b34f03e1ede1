"""What a table's numbers rest on: each setting of the profile with its source.

A profile's file gives every setting's source beside it. Here the settings that matter to a table
are grouped by who says so: the paper, the authors' code, or this project. What the paper leaves
open is thus in the open, in every report.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from harness.registry.documents import read_document
from harness.registry.profile import benchmark_of, roles_of, sources
from harness.registry.recipe import Online
from harness.report.model import Assumption

if TYPE_CHECKING:
    from harness.trainer.runs import TableRuns

GROUPS: Mapping[str, str] = {
    "paper": "From the paper",
    "code": "From the authors' code",
    "ours": "Ours",
}

_OFFERS = ("algorithms", "arms", "train_modes", "rewriter")
"""Settings that say what a profile can run; they change no number."""


def assumptions_of(table_runs: TableRuns) -> list[Assumption]:
    """Return the settings of a profile that matter to a table, in the order of the file.

    Args:
        table_runs: The runs behind the table.
    """
    found = sources(read_document(table_runs.profile.file))
    irrelevant, unused = _irrelevant(table_runs), _unused_roles(table_runs)
    return online_settings(table_runs) + [
        _assumption(name, _text(value), *_attributed(comment))
        for name, (value, comment) in found.items()
        if comment and not name.startswith(irrelevant) and not unused & set(_beginnings(name))
    ]


def online_settings(table_runs: TableRuns) -> list[Assumption]:
    """Return the settings of a table's online recipes, with the source each is declared with.

    Where the rows differ in a setting, all their values are listed.
    """
    recipes = [run.recipe for run in table_runs.runs.values()]
    blocks = [recipe.online for recipe in recipes if recipe.online is not None]
    kept = [block.canonical() for block in blocks]
    found = []
    for name, field in Online.model_fields.items():
        values = list(dict.fromkeys(_text(block[name]) for block in kept if name in block))
        text = " ".join((field.description or "").split())
        _, ours, why = text.partition("Ours: ")
        paper = text.rpartition("Paper ")[2]
        group, source = ("ours", why) if ours else ("paper", paper)
        if values:
            found.append(_assumption(f"online.{name}", ", ".join(values), group, source))
    return found


def _assumption(name: str, value: str, group: str, source: str) -> Assumption:
    return Assumption(name=name, value=value, group=group, source=source)


def _irrelevant(table_runs: TableRuns) -> tuple[str, ...]:
    """Return the beginnings of names of settings that change no number of a table."""
    profile, table = table_runs.profile, table_runs.table
    used = {str(run.recipe.algorithm) for run in table_runs.runs.values()}
    read = {benchmark_of(profile, column.reads) for column in table.columns}
    return (
        *_OFFERS,
        *(f"training.{name}." for name in type(profile.training).model_fields if name not in used),
        *(f"benchmarks.{name}." for name in profile.benchmarks if name not in read),
        *(f"benchmarks.{name}.columns" for name in profile.benchmarks),
    )


def _unused_roles(table_runs: TableRuns) -> set[str]:
    """Return the names of the settings of reward models that no run of a table asks for."""
    roles = {role for run in table_runs.runs.values() for role in roles_of(run.recipe)}
    profile = table_runs.profile
    found = {f"reward_models.{role}" for role in profile.reward_models if role not in roles}
    trained = profile.trained_reward_models
    return found | {f"trained_reward_models.{role}" for role in trained if role not in roles}


def _beginnings(name: str) -> list[str]:
    """Return a dotted name and the names it lies below."""
    parts = name.split(".")
    return [".".join(parts[:n]) for n in range(1, len(parts) + 1)]


def _attributed(comment: str) -> tuple[str, str]:
    """Return the group a comment belongs to, and what it says."""
    if comment.startswith("paper"):
        return "paper", comment.removeprefix("paper").strip() or "the paper"
    if comment.startswith("authors"):
        return "code", comment
    return "ours", comment.removeprefix("ours:").strip()


def _text(value: Any) -> str:
    if isinstance(value, list):
        return ", ".join(map(_text, value))
    if isinstance(value, bool) or value is None:
        return {True: "yes", False: "no", None: "none"}[value]
    return str(value)
