"""Which runs stand behind a figure: those of the rows it names, table by table.

A figure is drawn of what a profile can run; of every other row it is known why not.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from harness.errors import UserError
from harness.registry.figures import (
    Figure,
    RatingsFigure,
    SharesFigure,
    TopicsFigure,
    figure_unsupported,
    find_row,
)
from harness.registry.profile import Profile, benchmark_of
from harness.registry.schema import Row, Table
from harness.runtime.stage import Stage
from harness.trainer.factory import VERSIONS
from harness.trainer.plan import Run
from harness.trainer.table_runs import TableRuns, asked_together, plan_table
from harness.worlds.lookup import world_of
from harness.worlds.protocol import Topics


@dataclass(frozen=True)
class FigureRuns:
    """The runs behind a figure at one profile.

    Attributes:
        figure: the figure.
        profile: the profile.
        seeds: root seeds, in order.
        places: table and row of each reference, as `table/row`.
        parts: the runs of the rows that can run, by table; the rows' baselines are among them.
        lacking: why each other row cannot run, by reference.
    """

    figure: Figure
    profile: Profile
    seeds: tuple[int, ...]
    places: Mapping[str, tuple[Table, Row]]
    parts: Mapping[str, TableRuns]
    lacking: Mapping[str, str]

    @property
    def id(self) -> str:
        """Name of what is run."""
        return self.figure.id

    @property
    def row_ids(self) -> list[str]:
        """The rows that can run, as `table/row`."""
        return [ref for ref in self.figure.rows if ref not in self.lacking]

    @cached_property
    def runs(self) -> Mapping[tuple[str, int], Run]:
        """The runs by run id and seed; tables share those that are one."""
        return {key: run for part in self.parts.values() for key, run in part.runs.items()}

    @cached_property
    def targets(self) -> list[Stage]:
        """Return the stages that complete every run, and those that tell topics where needed."""
        return [*(stage for run in self.runs.values() for stage in run.targets), *self._topics]

    @property
    def _topics(self) -> list[Stage]:
        """The stages that tell the topics that the figure shows; none where no model is asked."""
        topics = world_of(self.profile).topics()
        if topics is None:
            return []
        prompts = [
            stage
            for ref in self.row_ids
            for run in self._of_row(ref)
            for stage in _sorted_by_topic(self.figure, run)
        ]
        return [found for stage in prompts if (found := topics_stage(topics, stage)) != stage]

    def _of_row(self, ref: str) -> list[Run]:
        """Return the runs of a row that has one run for all columns, one for each seed."""
        run_id = self.places[ref][1].run
        return [] if run_id is None else [self.runs[run_id, seed] for seed in self.seeds]


def plan_figure(
    figure: Figure, tables: Mapping[str, Table], profile: Profile, seeds: Sequence[int]
) -> FigureRuns:
    """Plan the runs of a figure.

    Args:
        figure: the figure.
        tables: the declared tables.
        profile: the scale to run it at.
        seeds: root seeds.

    Raises:
        UserError: no seed is given.
    """
    if not seeds:
        raise UserError("no seed is given; ask for at least one, for example `--seeds 0-2`")
    lacking = figure_unsupported(figure, tables, profile)
    places = {ref: find_row(tables, ref) for ref in figure.rows}
    wanted: dict[str, list[str]] = {}
    for ref, (table, row) in places.items():
        if ref not in lacking:
            wanted.setdefault(table.id, []).append(row.id)
    planned = [plan_table(tables[name], profile, seeds, rows) for name, rows in wanted.items()]
    parts = {part.id: _reading(figure, part) for part in asked_together(planned)}
    return FigureRuns(figure, profile, tuple(seeds), places, parts, lacking)


def topics_stage(topics: Topics, prompts: Stage) -> Stage:
    """Return the stage that tells the topics of prompts: that of a model, or the prompts' own.

    Args:
        topics: What sorts them.
        prompts: The stage that holds the prompts, or answers to them.
    """
    if topics.settings is None:
        return prompts
    # A model is asked about the prompts, for which nobody need have answered them.
    asked = prompts.inputs["prompts"] if prompts.kind == "generate" else prompts
    label = f"{asked.label} · topics"
    return Stage("topics", VERSIONS["topics"], topics.settings, {"prompts": asked}, label)


def _sorted_by_topic(figure: Figure, run: Run) -> list[Stage]:
    """Return the stages that hold the prompts whose topics a figure shows of a run, if any."""
    if isinstance(figure, SharesFigure):
        return [iteration.pairs for iteration in run.iterations]
    if isinstance(figure, TopicsFigure):
        return [run.iterations[figure.iteration - 1].rewards.inputs["completions"]]
    return []


def _reading(figure: Figure, part: TableRuns) -> TableRuns:
    """Return runs with the benchmark wanted that a figure reads besides its tables' columns."""
    if not isinstance(figure, RatingsFigure):
        return part
    own = benchmark_of(part.profile, figure.score)
    runs = {
        key: run.asking({*run.asked, own} if own is not None else run.asked)
        for key, run in part.runs.items()
    }
    return replace(part, runs=runs)
