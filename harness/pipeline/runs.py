"""The runs behind a table or a figure, which shows the rows that the profile can run."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from harness.errors import UserError
from harness.pipeline.algorithm import Planner, Run
from harness.pipeline.factory import KINDS
from harness.pipeline.studies import RewardStudy, plan_study
from harness.registry.declared import all_profiles
from harness.registry.figures import (
    Figure,
    RatingsFigure,
    SharesFigure,
    TopicsFigure,
    figure_unsupported,
    find_row,
)
from harness.registry.profile import (
    Profile,
    benchmark_of,
    lacking_rows,
    table_at,
    table_unsupported,
)
from harness.registry.recipe import Recipe
from harness.registry.schema import Row, RowKind, Table
from harness.runtime import Store
from harness.runtime.stage import Stage
from harness.worlds import Topics
from harness.worlds.lookup import world_of


@dataclass(frozen=True)
class TableRuns:
    """The runs behind a table on one profile: one per distinct recipe and seed."""

    table: Table
    profile: Profile
    seeds: tuple[int, ...]
    rows: tuple[Row, ...]
    runs: Mapping[tuple[str, int], Run]
    study: RewardStudy | None = None

    @property
    def row_ids(self) -> list[str]:
        return [row.id for row in self.rows]

    def of(self, run_id: str) -> list[Run]:
        return [self.runs[run_id, seed] for seed in self.seeds]

    @cached_property
    def targets(self) -> list[Stage]:
        studied = [] if self.study is None else self.study.targets
        return [*(stage for run in self.runs.values() for stage in run.targets), *studied]


def plan_table(
    table: Table, profile: Profile, seeds: Sequence[int], rows: Sequence[str] | None = None
) -> TableRuns:
    """Plan the runs of a table, each with the benchmarks that its columns read."""
    table = table_at(table, profile)
    if rows is None and (table.controls or profile.columns):
        # Only those the profile can run; the report lists the others.
        lacking = lacking_rows(table, profile)
        rows = [row.id for row in table.rows if row.id not in lacking] or None
    wanted = table.rows
    if rows is not None:
        named = {table.row(name).id for name in rows}
        named |= {baseline for name in named if (baseline := table.row(name).baseline)}
        wanted = tuple(row for row in table.rows if row.id in named)
    reasons = table_unsupported(table, profile, wanted)
    if reasons:
        able = [n for n, p in all_profiles().items() if not table_unsupported(table, p, wanted)]
        others = f"; on {', '.join(f'`{name}`' for name in able)} it can" if able else ""
        raise UserError(
            f"`{table.id}` cannot run on the profile `{profile.name}`: {'; '.join(reasons)}{others}"
        )
    recipes: dict[str, tuple[Recipe, RowKind]] = {}
    benchmarks: dict[str, set[str | None]] = {}
    for row in wanted:
        for column in table.columns:
            run_id = row.run_id(column)
            recipes.setdefault(run_id, (table.recipe_of(row, column), row.kind))
            benchmarks.setdefault(run_id, set()).add(benchmark_of(profile, column.reads))
    planner = Planner(world_of(profile))
    runs = {
        (run_id, seed): planner.run(run_id, recipe, seed, kind).asking(benchmarks[run_id])
        for seed in seeds
        for run_id, (recipe, kind) in recipes.items()
    }
    study = None if table.reward_model_study is None else plan_study(planner, table, wanted, seeds)
    return TableRuns(table, profile, tuple(seeds), wanted, runs, study)


def runnable(
    table: Table, profile: Profile, seeds: Sequence[int]
) -> tuple[TableRuns | None, dict[str, str]]:
    """Plan the rows of a table that a profile can run; return also why the others cannot."""
    lacking = lacking_rows(table, profile)
    rows = [row.id for row in table.rows if row.id not in lacking]
    return (plan_table(table, profile, seeds, rows) if rows else None), lacking


@dataclass(frozen=True)
class ShownSeeds:
    """The seeds that a report shows by default, at all of which `whole` of the `runs` are done."""

    seeds: tuple[int, ...]
    whole: int
    left_out: Mapping[int, int]
    runs: int


def shown_seeds(
    plan: Callable[[Sequence[int]], TableRuns | FigureRuns | None], store: Store
) -> ShownSeeds | None:
    """Return the seeds that a report of some runs shows; None if the store has no finished run.

    Those with every run, or else those that together show the most: with three seeds of two rows
    and one seed of a third, the three.
    """
    seeds = store.seeds()
    if not seeds or (planned := plan(seeds)) is None:
        return None
    done: dict[int, set[str]] = {seed: set() for seed in seeds}
    for (run_id, seed), run in planned.runs.items():
        # Reports show a run's judgments, so the run counts as done once they are.
        ends = run.judged.values() or run.targets
        if all(store.status(stage.fingerprint) == "done" for stage in ends):
            done[seed].add(run_id)
    runs = len({run_id for run_id, _ in planned.runs})
    ranked = sorted(seeds, key=lambda seed: -len(done[seed]))

    def whole_at(own: Sequence[int]) -> int:
        return len(set.intersection(*(done[seed] for seed in own)))

    shown = [seed for seed in seeds if len(done[seed]) == runs] or max(
        [
            *(ranked[:n] for n in range(1, len(ranked) + 1)),
            *([seed for seed in seeds if done[seed] >= done[one]] for one in seeds),
        ],
        key=lambda own: (len(own) * whole_at(own), len(own)),
    )
    if not (whole := whole_at(shown)):
        return None
    left_out = {seed: len(own) for seed, own in done.items() if own and seed not in shown}
    return ShownSeeds(tuple(sorted(shown)), whole, left_out, runs)


def shown_of(
    table: Table, profile: Profile, store: Store, rows: Sequence[str] | None = None
) -> ShownSeeds | None:
    """Return the seeds that a report of a table shows, or of some of its rows."""

    def plan(seeds: Sequence[int]) -> TableRuns | None:
        if rows is not None:
            return plan_table(table, profile, seeds, rows)
        return runnable(table, profile, seeds)[0]

    return shown_seeds(plan, store)


@dataclass(frozen=True)
class FigureRuns:
    """The runs behind a figure on one profile.

    `places` has the table and row of each reference `table/row`, `lacking` why rows cannot run, and
    `parts` the others' runs by table, including their baselines.
    """

    figure: Figure
    profile: Profile
    seeds: tuple[int, ...]
    places: Mapping[str, tuple[Table, Row]]
    parts: Mapping[str, TableRuns]
    lacking: Mapping[str, str]

    @property
    def row_ids(self) -> list[str]:
        return [ref for ref in self.figure.rows if ref not in self.lacking]

    @cached_property
    def runs(self) -> Mapping[tuple[str, int], Run]:
        """The runs by run id and seed; tables share identical ones."""
        return {key: run for part in self.parts.values() for key, run in part.runs.items()}

    @cached_property
    def targets(self) -> list[Stage]:
        return [*(stage for run in self.runs.values() for stage in run.targets), *self._topics]

    @property
    def _topics(self) -> list[Stage]:
        """The stages that assign the figure's topics; empty if no model is asked."""
        topics = world_of(self.profile).prompts.topics()
        if topics is None or not isinstance(self.figure, SharesFigure | TopicsFigure):
            return []
        run_ids = (self.places[ref][1].run for ref in self.row_ids)
        runs = [self.runs[run_id, seed] for run_id in run_ids if run_id for seed in self.seeds]
        if isinstance(self.figure, SharesFigure):
            prompts = [iteration.pairs for run in runs for iteration in run.iterations]
        else:
            at = self.figure.iteration - 1
            prompts = [run.iterations[at].rewards.inputs["completions"] for run in runs]
        return [found for stage in prompts if (found := topics_stage(topics, stage)) != stage]


def plan_figure(
    figure: Figure, tables: Mapping[str, Table], profile: Profile, seeds: Sequence[int]
) -> FigureRuns:
    """Plan the runs of a figure's rows, each with the benchmarks that any of its tables reads."""
    lacking = figure_unsupported(figure, tables, profile)
    places = {ref: find_row(tables, ref) for ref in figure.rows}
    wanted: dict[str, list[str]] = {}
    for ref, (table, row) in places.items():
        if ref not in lacking:
            wanted.setdefault(table.id, []).append(row.id)
    planned = {it: plan_table(tables[it], profile, seeds, rows) for it, rows in wanted.items()}
    own = benchmark_of(profile, figure.score) if isinstance(figure, RatingsFigure) else None
    asked: dict[tuple[str, int], set[str | None]] = {}
    for key, run in (it for part in planned.values() for it in part.runs.items()):
        asked.setdefault(key, {own}).update(run.asked)
    parts = {
        name: replace(part, runs={key: run.asking(asked[key]) for key, run in part.runs.items()})
        for name, part in planned.items()
    }
    return FigureRuns(figure, profile, tuple(seeds), places, parts, lacking)


def topics_stage(topics: Topics, prompts: Stage) -> Stage:
    """Return the stage with the topics of prompts: a model's, or `prompts` if none is asked."""
    if topics.settings is None:
        return prompts
    # A model needs only the prompts, so that they need not be answered first.
    asked = prompts.inputs["prompts"] if prompts.kind == "generate" else prompts
    label = f"{asked.label} · topics"
    return Stage("topics", KINDS["topics"].version, topics.settings, {"prompts": asked}, label)
