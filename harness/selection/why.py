"""Why a stage is new: the settings in which it differs from another, through all inputs.

Two stages of one kind are compared setting by setting, then input by input. A difference is
charged to the stage that has the setting, however far upstream, so that the answer names causes
and not their consequences.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from harness.pipeline.algorithm import Run
from harness.pipeline.runs import plan_table
from harness.registry.profile import Profile, supported_rows
from harness.registry.recipe import Recipe, flattened, in_short
from harness.registry.schema import Row, Table
from harness.runtime import Plan, Stage, State, Store
from harness.strict import Output, Strict

ABSENT = "(none)"
"""Stands for a setting or an input that one of the two stages does not have."""

MADE_BY = "made by"
"""Key of the cause that two inputs come from stages of different kinds."""

_OTHER_KIND = 100
"""What a different kind counts against a neighbour: more than any number of settings."""


@dataclass(frozen=True)
class Cause:
    """A setting that differs, and the kinds of the stages that have it, upstream first.

    Attributes:
        key: The setting, dotted.
        here: Its value in this row.
        there: Its value in the other.
        kinds: Kinds of the stages that have it; none of recipes.
    """

    key: str
    here: Any
    there: Any
    kinds: tuple[str, ...]


class Versus(Strict):
    """How a row's recipe differs from another row's."""

    row: str
    recipe: str
    causes: list[Cause]


class Near(Strict):
    """The stage that differs least from one."""

    label: str
    fingerprint: str
    rows: list[str]
    """The rows that need it."""
    causes: list[Cause]


class ExplainedStage(Strict):
    """Why one stage is what it is."""

    kind: str
    label: str
    fingerprint: str
    state: State
    failure: str | None
    shared_with: list[str]
    """Other rows of the table that need the stage."""
    new_among_rows: Near | None
    """The nearest stage of another row, where none shares it."""


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
    """The recipe in a line."""
    baseline: Versus | None
    nearest: Versus | None
    """The row whose recipe differs in the fewest settings."""
    runs: list[ExplainedRun]


class Comparison:
    """Compares stages; remembers what it has compared."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, str], tuple[Cause, ...]] = {}

    def causes(self, here: Stage, there: Stage) -> tuple[Cause, ...]:
        """Return the differing settings, upstream first; equal ones of several stages are one."""
        pair = (here.fingerprint, there.fingerprint)
        if here.fingerprint == there.fingerprint:
            return ()
        if pair not in self._known:
            self._known[pair] = _merged(self._compare(here, there))
        return self._known[pair]

    def nearest(
        self, here: Stage, others: Iterable[Stage]
    ) -> tuple[Stage, tuple[Cause, ...]] | None:
        """Return the stage of the same kind with the fewest causes; the first of equals."""
        compared = [
            (there, self.causes(here, there)) for there in others if there.kind == here.kind
        ]
        return min(compared, key=_distance, default=None)

    def _compare(self, here: Stage, there: Stage) -> Iterable[Cause]:
        if here.kind != there.kind:
            yield Cause(MADE_BY, here.kind, there.kind, (here.kind,))
            return
        for name in {**here.inputs, **there.inputs}:
            if name in here.inputs and name in there.inputs:
                yield from self.causes(here.inputs[name], there.inputs[name])
            else:
                yield Cause(name, _input(here, name), _input(there, name), (here.kind,))
        mine, its = _flat(here), _flat(there)
        for key in mine | its:
            # An input of one and a setting of the other is said above.
            if key not in here.inputs and key not in there.inputs:
                values = mine.get(key, ABSENT), its.get(key, ABSENT)
                if values[0] != values[1]:
                    yield Cause(key, *values, (here.kind,))


def _flat(stage: Stage) -> dict[str, Any]:
    """Return the version and the settings, with dotted keys."""
    return {"version": stage.version} | flattened(stage.settings)


def _input(stage: Stage, name: str) -> Any:
    """Return what stands for an input where only one of two stages has it."""
    if name in stage.inputs:
        return f"output of {stage.inputs[name].label}"
    return _flat(stage).get(name, ABSENT)


def _distance(compared: tuple[Stage, tuple[Cause, ...]]) -> tuple[int, int]:
    """Return how far the compared stage is: its causes, then how many stages have them."""
    causes = compared[1]
    far = sum(_OTHER_KIND if cause.key == MADE_BY else 1 for cause in causes)
    return far, sum(len(cause.kinds) for cause in causes)


def _merged(causes: Iterable[Cause]) -> tuple[Cause, ...]:
    """Return causes with equal key and values made one."""
    kinds: dict[tuple[str, str, str], dict[str, None]] = {}
    first: dict[tuple[str, str, str], Cause] = {}
    for cause in causes:
        same = (cause.key, repr(cause.here), repr(cause.there))
        first.setdefault(same, cause)
        kinds.setdefault(same, {}).update(dict.fromkeys(cause.kinds))
    return tuple(
        Cause(cause.key, cause.here, cause.there, tuple(kinds[same]))
        for same, cause in first.items()
    )


def explain(table: Table, name: str, profile: Profile, seed: int, store: Store) -> Explanation:
    """Return why the stages of a row, named by its id, are what they are."""
    row = table.row(name)
    # Rows this profile cannot run have no stages to compare with.
    runs = plan_table(table, profile, (seed,), supported_rows(table, profile, asked=[row.id]))
    around = _Around(store, Comparison(), {}, {})
    own = set(runs.table.recipes(row))
    for (run_id, _), run in runs.runs.items():
        rows = [r.id for r in runs.rows if run_id in runs.table.recipes(r) and r.id != row.id]
        for stage in Plan(run.targets):
            around.rows.setdefault(stage.fingerprint, {}).update(dict.fromkeys(rows))
            if run_id not in own:
                around.others[stage.fingerprint] = stage
    nearest = _nearest_row(runs.table, row)
    baseline = None if row.baseline is None else runs.table.row(row.baseline)
    return Explanation(
        table=runs.table.id,
        row=row.id,
        profile=runs.profile.name,
        seed=seed,
        recipe=in_short(_recipe(runs.table, row)),
        baseline=_versus(runs.table, row, baseline),
        nearest=_versus(runs.table, row, nearest),
        runs=[
            ExplainedRun(run=run_id, stages=around.stages(runs.runs[run_id, seed]))
            for run_id in runs.table.recipes(row)
        ],
    )


@dataclass
class _Around:
    """What a row's stages are compared with: the other rows' stages.

    `rows` are the other rows that need a stage, `others` the stages of the other rows' runs, both
    by fingerprint.
    """

    store: Store
    comparison: Comparison
    rows: dict[str, dict[str, None]]
    others: dict[str, Stage]

    def stages(self, run: Run) -> list[ExplainedStage]:
        """Return what is to be said about each stage of a run, inputs first."""
        return [self._stage(stage) for stage in Plan(run.targets)]

    def _stage(self, stage: Stage) -> ExplainedStage:
        shared = list(self.rows.get(stage.fingerprint, {}))
        state = self.store.status(stage.fingerprint)
        failure = self.store.failure(stage.fingerprint) if state == "failed" else None
        return ExplainedStage(
            kind=stage.kind,
            label=stage.label,
            fingerprint=stage.fingerprint,
            state=state,
            failure=failure["reason"] if failure else None,
            shared_with=shared,
            new_among_rows=None if shared else self._nearest(stage),
        )

    def _nearest(self, stage: Stage) -> Near | None:
        found = self.comparison.nearest(stage, self.others.values())
        if found is None:
            return None
        there, causes = found
        return Near(
            label=there.label,
            fingerprint=there.fingerprint,
            rows=list(self.rows.get(there.fingerprint, {})),
            causes=list(causes),
        )


def _versus(table: Table, row: Row, other: Row | None) -> Versus | None:
    """Return how a row's recipe differs from another row's."""
    if other is None:
        return None
    recipe, causes = in_short(_recipe(table, other)), _recipe_causes(table, row, other)
    return Versus(row=other.id, recipe=recipe, causes=causes)


def _recipe(table: Table, row: Row) -> Recipe:
    """Return a row's recipe; rows differ in every column alike, so the first speaks for all."""
    return table.recipe_of(row, table.columns[0])


def _recipe_causes(table: Table, row: Row, other: Row) -> list[Cause]:
    here = flattened(_recipe(table, row).canonical())
    there = flattened(_recipe(table, other).canonical())
    return [
        Cause(key, here.get(key, ABSENT), there.get(key, ABSENT), ())
        for key in here | there
        if here.get(key, ABSENT) != there.get(key, ABSENT)
    ]


def _nearest_row(table: Table, row: Row) -> Row | None:
    """Return the other row whose recipe differs in the fewest settings; the first of equals."""
    others = [other for other in table.rows if other.id != row.id]
    return min(others, key=lambda other: len(_recipe_causes(table, row, other)), default=None)
