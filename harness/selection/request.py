"""What an experiment consists of, and the runs behind it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from harness.errors import UserError
from harness.pipeline.algorithm import Run, Unfit
from harness.pipeline.estimate import Timings, timings_of
from harness.pipeline.factory import workers_of
from harness.pipeline.runs import FigureRuns, TableRuns, plan_figure, plan_table
from harness.project import store_dir
from harness.registry import declared
from harness.registry.figures import Figure
from harness.registry.profile import Profile, table_unsupported
from harness.registry.schema import Table
from harness.runtime import Plan, Stage, Store
from harness.selection.names import DEFAULT_SEEDS, again, seeds_of
from harness.words import seeds_text


@dataclass(frozen=True, repr=False)
class Request:
    """Tables or a figure, rows, a profile and seeds.

    Attributes:
        name: The name it was requested by, as commands take it.
        rows: Row ids of a table; None for all.
        seeds: Root seeds, or None.
        tables: The tables: one, or the group's; empty for a figure.
        declared: All declared tables, by id.
        jobs: Maximum concurrent stages; None for as many as there are GPUs or cores for.
        budget_usd: Dollars after which no request is sent to an endpoint.
    """

    name: str
    profile: Profile
    rows: tuple[str, ...] | None
    seeds: tuple[int, ...] | None
    tables: tuple[Table, ...]
    figure: Figure | None
    declared: Mapping[str, Table]
    jobs: int | None = None
    budget_usd: float | None = None

    def __repr__(self) -> str:
        seeds = "" if self.seeds is None else f", seeds {seeds_text(self.seeds)}"
        rows = "" if self.rows is None else f", rows {', '.join(self.rows)}"
        return f"<{self.id} on {self.profile.name}{rows}{seeds}>"

    @property
    def is_group(self) -> bool:
        """Whether it is a group of tables."""
        return self.name in declared.GROUPS

    @property
    def id(self) -> str:
        """The id of the table, figure or group."""
        if self.figure is not None:
            return self.figure.id
        return self.name if self.is_group else self.tables[0].id

    @property
    def again(self) -> str:
        """The `harness run` arguments that compute it."""
        rows: Sequence[str] = ()
        if len(self.tables) == 1 and len(self.parts[0].rows) < len(self.tables[0].rows):
            rows = self.parts[0].row_ids
        return again(self.name, self.profile.asked_as, self.planned_seeds, rows)

    @property
    def planned_seeds(self) -> tuple[int, ...]:
        """Its seeds, or the first three."""
        return self.seeds or seeds_of(DEFAULT_SEEDS)

    @cached_property
    def store(self) -> Store:
        """What has been computed."""
        return Store(store_dir())

    @cached_property
    def figure_runs(self) -> FigureRuns | None:
        """The runs behind a figure."""
        if self.figure is None:
            return None
        return plan_figure(self.figure, self.declared, self.profile, self.planned_seeds)

    @property
    def left_out(self) -> dict[str, str]:
        """Why tables of a group are left out."""
        return self._planned[1]

    @cached_property
    def _planned(self) -> tuple[list[TableRuns], dict[str, str]]:
        """The runs behind each table, and why tables of a group have none."""
        found: list[TableRuns] = []
        lacking: dict[str, str] = {}
        for table in self.tables:
            if self.is_group and (reasons := table_unsupported(table, self.profile)):
                lacking[table.id] = "; ".join(reasons)
                continue
            try:
                found.append(plan_table(table, self.profile, self.planned_seeds, self.rows))
            except Unfit as error:
                if not self.is_group:
                    raise
                lacking[table.id] = str(error)
        return found, lacking

    @cached_property
    def parts(self) -> tuple[TableRuns, ...]:
        """The runs behind each table, or behind a figure's rows by table."""
        lacking: Mapping[str, str]
        found, lacking = self._planned
        if self.figure_runs is not None:
            found, lacking = [*self.figure_runs.parts.values()], self.figure_runs.lacking
        if not found:
            reasons = "".join(f"\n  {name}: {why}" for name, why in lacking.items())
            raise UserError(
                f"`{self.name}` cannot run on the profile `{self.profile.name}`:{reasons}"
            )
        return tuple(found)

    @cached_property
    def runs(self) -> Mapping[tuple[str, int], Run]:
        """All distinct runs, by run id and seed."""
        return {key: run for part in self.parts for key, run in part.runs.items()}

    @cached_property
    def stages(self) -> Plan:
        """All distinct stages, inputs first."""
        if self.figure_runs is not None:
            return Plan(self.figure_runs.targets)
        return Plan(stage for part in self.parts for stage in part.targets)

    @property
    def pending(self) -> tuple[Stage, ...]:
        """The stages that are not done."""
        return self.stages.pending(self.store)

    @cached_property
    def timings(self) -> Timings:
        """What its stages should take."""
        return timings_of(self.stages, self.store, self.profile)

    @property
    def workers(self) -> int:
        """Number of stages computed at once."""
        return workers_of(self.profile, self.jobs)
