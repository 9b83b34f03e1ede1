"""Why a stage is new: the settings that differ from another stage's, through all inputs.

Two stages of the same kind are compared setting by setting, then input by input. A difference is
attributed to the stage with the setting, however far upstream, so that the answer names causes
rather than consequences.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

from harness.pipeline.runs import plan_table
from harness.registry.profile import Profile, supported_rows
from harness.registry.recipe import flattened, in_short
from harness.registry.schema import Table
from harness.runtime import Plan, Stage, State, Store
from harness.strict import Output, Strict

ABSENT = "(none)"
"""Placeholder for a setting or input that one of the two stages lacks."""

MADE_BY = "made by"
"""Key of the cause for inputs from stages of different kinds."""

_OTHER_KIND = 100
"""Distance penalty for a different kind: more than any number of settings."""


@dataclass(frozen=True)
class Cause:
    """A differing setting: its dotted key, and its value here and in the other stage.

    `kinds` are the kinds of stages that have it, upstream first.
    """

    key: str
    here: Any
    there: Any
    kinds: tuple[str, ...]


class Near(Strict):
    """The stage that differs least from a given one."""

    label: str
    fingerprint: str
    rows: list[str]
    """The rows that need it."""
    causes: list[Cause]


class ExplainedStage(Strict):
    """One stage: who shares it, or what makes it new."""

    kind: str
    label: str
    fingerprint: str
    state: State
    failure: str | None
    shared_with: list[str]
    """Other rows of the table that need the stage."""
    new_among_rows: Near | None
    """The nearest stage of another row, if none shares it."""


class ExplainedRun(Strict):
    """The stages of a run, inputs first."""

    run: str
    stages: list[ExplainedStage]


class Explanation(Output):
    """Which settings make a row's stages new."""

    table: str
    row: str
    profile: str
    seed: int
    recipe: str
    """One-line summary of the recipe."""
    runs: list[ExplainedRun]


def explain_row(table: Table, name: str, profile: Profile, seed: int, store: Store) -> Explanation:
    """Explain the stages of a row, given by id."""
    row = table.row(name)
    # Rows the profile cannot run have no stages to compare with.
    runs = plan_table(table, profile, (seed,), supported_rows(table, profile, asked=[row.id]))
    own = table.recipes(row)
    needed_by: dict[str, dict[str, None]] = {}
    """Other rows that need a stage, by fingerprint."""
    others: dict[str, Stage] = {}
    """Stages of other rows' runs, by fingerprint."""
    for (run_id, _), run in runs.runs.items():
        rows = [r.id for r in runs.rows if run_id in table.recipes(r) and r.id != row.id]
        for stage in Plan(run.targets):
            needed_by.setdefault(stage.fingerprint, {}).update(dict.fromkeys(rows))
            if run_id not in own:
                others[stage.fingerprint] = stage

    def near(stage: Stage) -> Near | None:
        there = nearest_stage(stage, others.values())
        if there is None:
            return None
        return Near(
            label=there.label,
            fingerprint=there.fingerprint,
            rows=list(needed_by[there.fingerprint]),
            causes=list(causes(stage, there)),
        )

    def explained(stage: Stage) -> ExplainedStage:
        shared = list(needed_by[stage.fingerprint])
        state = store.status(stage.fingerprint)
        failure = store.failure(stage.fingerprint) if state == "failed" else None
        return ExplainedStage(
            kind=stage.kind,
            label=stage.label,
            fingerprint=stage.fingerprint,
            state=state,
            failure=failure["reason"] if failure else None,
            shared_with=shared,
            new_among_rows=None if shared else near(stage),
        )

    return Explanation(
        table=table.id,
        row=row.id,
        profile=profile.name,
        seed=seed,
        recipe=in_short(table.recipe_of(row, table.columns[0])),
        runs=[
            ExplainedRun(
                run=run_id, stages=list(map(explained, Plan(runs.runs[run_id, seed].targets)))
            )
            for run_id in own
        ],
    )


@cache
def causes(here: Stage, there: Stage) -> tuple[Cause, ...]:
    """Return the differing settings, upstream first, merging equal ones across stages."""
    if here.fingerprint == there.fingerprint:
        return ()
    found: dict[tuple[str, str, str], Cause] = {}
    for cause in _compared(here, there):
        same = (cause.key, repr(cause.here), repr(cause.there))
        before = found[same].kinds if same in found else ()
        kinds = tuple(dict.fromkeys((*before, *cause.kinds)))
        found[same] = Cause(cause.key, cause.here, cause.there, kinds)
    return tuple(found.values())


def nearest_stage(here: Stage, others: Iterable[Stage]) -> Stage | None:
    """Return the stage of the same kind with the fewest causes; the first on ties."""

    def distance(there: Stage) -> tuple[int, int]:
        found = causes(here, there)
        far = sum(_OTHER_KIND if cause.key == MADE_BY else 1 for cause in found)
        return far, sum(len(cause.kinds) for cause in found)

    return min((it for it in others if it.kind == here.kind), key=distance, default=None)


def _compared(here: Stage, there: Stage) -> Iterator[Cause]:
    kinds = (here.kind,)
    if here.kind != there.kind:
        yield Cause(MADE_BY, here.kind, there.kind, kinds)
        return
    mine, its = _settings(here), _settings(there)
    inputs = {**here.inputs, **there.inputs}
    for name in inputs:
        if name in here.inputs and name in there.inputs:
            yield from causes(here.inputs[name], there.inputs[name])
        else:
            # An input of one stage may be a setting of the other.
            one, other = (
                f"output of {stage.inputs[name].label}"
                if name in stage.inputs
                else settings.pop(name, ABSENT)
                for stage, settings in ((here, mine), (there, its))
            )
            yield Cause(name, one, other, kinds)
    for key in mine | its:
        one, other = mine.get(key, ABSENT), its.get(key, ABSENT)
        if one != other:
            yield Cause(key, one, other, kinds)


def _settings(stage: Stage) -> dict[str, Any]:
    """Return version and settings, with dotted keys."""
    return {"version": stage.version} | flattened(stage.settings)
