"""Experiments: tables or a figure at a profile, with rows and seeds, planned, run and reported.

Every command and the Python API start here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from harness import project
from harness.endpoint.budget import check_budget
from harness.errors import HarnessError, UserError
from harness.pipeline.runs import plan_figure, plan_table, shown_seeds
from harness.project import work_dir
from harness.registry import declared
from harness.registry.documents import as_yaml, laid_over, read_yaml
from harness.registry.overrides import nested, overrides_of
from harness.registry.profile import table_at
from harness.registry.recipe import flattened
from harness.registry.schema import Table
from harness.report.build import published_results, published_tables, results_of, stored_results
from harness.report.controls import KnownControls
from harness.report.figures.published import publish_figure, published_figure
from harness.report.figures.report import assemble_figure
from harness.report.joined import joined
from harness.report.publication import Refused
from harness.report.publish import publish
from harness.report.results import Results
from harness.report.verify import findings
from harness.runtime import EngineOptions, Event
from harness.runtime.engine import LOCAL
from harness.runtime.files import write_whole
from harness.runtime.stage import fingerprint_of
from harness.selection import running
from harness.selection.names import (
    DEFAULT_PROFILE,
    Seeds,
    check_jobs,
    parse_names,
    seeds_of,
)
from harness.selection.planning import PlanSummary, summary_of
from harness.selection.reporting import Reports, seeds_shown, table_seeds
from harness.selection.request import Request
from harness.words import Say, ignore


@dataclass(frozen=True, repr=False)
class Experiment(Request):
    """Tables or a figure at a profile, planned, run and reported.

    Methods take root seeds, by default the experiment's; without any, 0 to 2 are planned and run,
    and each table's most complete ones are reported. `on_note` is called with messages to the user.
    """

    @property
    def summary(self) -> PlanSummary:
        """What a run would compute, and how much of it is done."""
        return summary_of(self)

    def plan(
        self, seeds: Seeds = None, jobs: int | None = None, *, budget_usd: float | None = None
    ) -> Experiment:
        """Return the experiment with what is given, after checking that the profile can run it.

        A group's tables that the profile cannot run are left out.
        """
        check_jobs(jobs)
        check_budget(budget_usd)
        planned = replace(
            self,
            seeds=self._asked(seeds),
            jobs=self.jobs if jobs is None else jobs,
            budget_usd=self.budget_usd if budget_usd is None else float(budget_usd),
        )
        _ = planned.parts  # raises `UserError` if the profile can run none of it
        return planned

    def run(
        self,
        seeds: Seeds = None,
        jobs: int | None = None,
        *,
        engine: EngineOptions = LOCAL,
        watch: AbstractContextManager[Callable[[Event], None]] | None = None,
        on_note: Say = ignore,
        on_tracking: Say = ignore,
        on_report: Callable[[Reports], None] = ignore,
    ) -> Reports:
        """Compute what is missing, track it in MLflow, and report it.

        Completed stages are kept: after an interruption or a failure, the same call resumes.

        Args:
            seeds: Root seeds.
            jobs: Number of workers; by default as many as there are cores or GPUs for.
            engine: Where stages are computed.
            watch: Entered while stages are computed; yields a callback for the engine's events.
            on_note: Called with what will not be measured, and an unavailable tracking server.
            on_tracking: Called with how far the last writing to MLflow has come.
            on_report: Called with the reports before tracking has ended, which may take a while.
        """
        planned = self
        if seeds is not None or jobs is not None:
            planned = self.plan(seeds, jobs)
        return running.run(planned, engine, watch, on_note, on_tracking, on_report)

    def report(self, seeds: Seeds = None, on_note: Say = ignore) -> Reports:
        """Report what is in the store, without computing anything."""
        if self.figure is not None:
            plan = partial(plan_figure, self.figure, self.declared, self.profile)
            asked = self._asked(seeds)
            asked = asked or seeds_shown(self.id, shown_seeds(plan, self.store), on_note)
            return Reports(figure=assemble_figure(plan(asked), self.store))
        if not self.is_group:
            return Reports((self._stored(self.tables[0], seeds, on_note),))
        tables = []
        for found in self._stored_whole(seeds, on_note):
            if found.runs is None:
                on_note(f"{found.table.id} is left out: {found.absent[found.table.rows[0].id]}")
            else:
                tables.append(found)
        return Reports(tuple(tables))

    def published(self) -> Reports:
        """Return the published reports of the tables or the figure, without reading the store."""
        folder = project.publishing_dir()
        if self.figure is not None:
            place = folder / self.profile.name / self.figure.id
            return Reports(figure=published_figure(self.figure, place))
        return Reports(published_tables(self.tables, self.profile, folder), published=True)

    def page(self, seeds: Seeds = None, *, published: bool = False, on_note: Say = ignore) -> str:
        """Render an HTML page of all rows of the tables, with the figures drawn from them."""
        if published:
            return self.published().text("html")
        return Reports(self._stored_whole(seeds, on_note)).text("html")

    def findings(self) -> str:
        """Return `results/README.md`: what is published, by profile, as generated sentences."""
        return findings(project.publishing_dir())

    def publish(
        self,
        results_dir: Path,
        seeds: Seeds = None,
        *,
        allow_fewer: bool = False,
        published: bool = False,
        add: bool = False,
        on_note: Say = ignore,
    ) -> Reports | None:
        """Write a report to the folder of published results, and return it; None for a group.

        Of a group, every table that was run is published; a refused one does not stop the others.
        With `allow_fewer`, so are incomplete reports, and ones with less than is published. With
        `published`, the published numbers are rendered again instead of the store's, a table's
        beside the controls as they are now. With `add`, a table's seeds or rows are added to those
        that are published.
        """
        if add and (self.is_group or self.figure is not None):
            raise UserError("seeds and rows can be added to a single table only")
        if self.is_group:
            self._publish_group(results_dir, allow_fewer, seeds, on_note)
            return None
        place = results_dir / self.profile.name / self.id
        if self.figure is None and (published or add) and not place.is_dir():
            raise UserError(f"`{self.id}` is not published for the profile `{self.profile.name}`")
        if self.figure is None and published:
            reports = Reports((self._renewed(place),), published=True)
        else:
            reports = self.published() if published else self.report(seeds, on_note)
        if add:
            reports = replace(reports, tables=(self._joined(reports.tables[0], place),))
        if reports.figure is not None:
            folder = publish_figure(reports.figure, results_dir, allow_fewer=allow_fewer)
        else:
            before = place if add or published else None
            folder = publish(reports.tables[0], results_dir, allow_fewer=allow_fewer, joined=before)
        on_note(f"published in {folder}")
        return reports

    def _renewed(self, folder: Path) -> Results:
        """Return the published results in a folder, beside the controls that are published now."""
        known = KnownControls(self.profile, None, folder.parents[1])
        return published_results(self.tables[0], folder, known, renewed=True)

    def _joined(self, found: Results, folder: Path) -> Results:
        """Return stored results together with the published ones in a folder."""
        plan = partial(plan_table, found.table, self.profile)
        return joined(plan, found, folder, KnownControls(self.profile, self.store))

    def _publish_group(
        self, results_dir: Path, allow_fewer: bool, seeds: Seeds, on_note: Say
    ) -> None:
        refused = []
        for table in self.tables:
            if table.id in self.left_out:
                on_note(f"left out: {table.id}: {self.left_out[table.id]}")
                continue
            # A fresh reader: the controls may just have been published.
            found, name = self._stored(table, seeds, on_note), table.id
            ran = {cell.row for cell in found.report.cells if cell.state != "not_run"}
            # Tables share runs: rows of another one do not make this one run.
            if not ran or (len(ran) < len(found.report.rows) and not allow_fewer):
                on_note(f"{name} was not run, and is not published")
                continue
            try:
                folder = publish(found, results_dir, allow_fewer=allow_fewer)
                on_note(f"published in {folder}")
            except Refused as error:
                refused.append(name)
                on_note(str(error))
        if refused:
            raise HarnessError(f"not published, for the reasons above: {', '.join(refused)}")

    def _stored(self, table: Table, seeds: Seeds, on_note: Say) -> Results:
        runs = plan_table(table, self.profile, self._shown(table, seeds, on_note), self.rows)
        return stored_results(runs, KnownControls(self.profile, self.store))

    def _stored_whole(self, seeds: Seeds, on_note: Say) -> tuple[Results, ...]:
        """Return what the store has of every table, with all rows, whether or not they can run."""
        known = KnownControls(self.profile, self.store)
        return tuple(results_of(it, self._shown(it, seeds, on_note), known) for it in self.tables)

    def _shown(self, table: Table, seeds: Seeds, on_note: Say) -> tuple[int, ...]:
        """Return the requested seeds, else the table's most complete ones."""
        asked = self._asked(seeds)
        return asked or table_seeds(table, self.profile, self.store, self.rows, on_note)

    def _asked(self, seeds: Seeds) -> tuple[int, ...] | None:
        return self.seeds if seeds is None else seeds_of(seeds)


def select(
    name: str,
    profile: str = DEFAULT_PROFILE,
    rows: str | Iterable[str] | None = None,
    seeds: Seeds = None,
    settings: Sequence[str] | None = None,
) -> Experiment:
    """Select what a name stands for, as `harness.load` says.

    `settings` override the profile's, as in `profile.training.dpo.beta=0.5`.
    """
    wanted = parse_names(rows)
    asked = None if seeds is None else seeds_of(seeds)
    known: Mapping[str, Table] = declared.all_tables()
    figure, tables = None, tuple[Table, ...]()
    if name in declared.GROUPS:
        if wanted is not None:
            raise UserError(f"rows are those of one table; name that table instead of `{name}`")
        tables = tuple(declared.members(name, known))
    elif declared.is_figure(name):
        figure = declared.named_figure(name)
        if wanted is not None:
            raise UserError(f"`{name}` names its own rows; leave yours out")
    else:
        table, known = declared.named_table(name)
        tables = (table,)
    scale = declared.named_profile(varied(profile, settings) if settings else profile)
    tables = tuple(table_at(table, scale) for table in tables)
    return Experiment(name, scale, wanted, asked, tables, figure, known)


def varied(profile: str, texts: Sequence[str]) -> str:
    """Write a profile with overrides such as `profile.training.dpo.beta=0.5`; return its file.

    It is a separate profile, with its own name and a file in the work folder, so that requests,
    reports and MLflow runs keep it apart from the original.
    """
    base = declared.named_profile(profile)
    changed, values = overrides_of(base, texts), flattened(base.model_dump(by_alias=True))
    name = f"{base.name}-{fingerprint_of(changed)[:6]}"
    sourced = {  # an omitted section has no source
        path: None if v is None and path not in values else {"value": v, "source": "ours: --set"}
        for path, v in changed.items()
    }
    target = work_dir() / "profiles" / f"{name}.yaml"
    write_whole(target, as_yaml(laid_over(read_yaml(base.file), {**nested(sourced), "name": name})))
    return str(target)
