"""Experiments: tables or a figure at a profile, with rows and seeds, planned, run and reported.

Every command and the Python API start here; only this module resolves whether a name is a table, a
figure or a group.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from harness import project
from harness.errors import HarnessError, UserError
from harness.project import work_dir
from harness.registry import declared
from harness.registry.declared import all_profiles
from harness.registry.profile import Profile, table_at
from harness.registry.schema import Table
from harness.runtime import LOCAL, EngineOptions
from harness.selection.names import (
    DEFAULT_PROFILE,
    Say,
    Seeds,
    ignore,
    parse_names,
    seeds_of,
    workers_of,
)
from harness.selection.request import Request

if TYPE_CHECKING:
    from harness.report.plots import Picture
    from harness.report.results import Results
    from harness.runtime import Event
    from harness.selection.planning import PlanSummary
    from harness.selection.reporting import Reports


@dataclass(frozen=True, repr=False)
class Experiment(Request):
    """Tables or a figure at a profile, planned, run and reported."""

    def plan(
        self, seeds: Seeds = None, jobs: int | None = None, *, budget_usd: float | None = None
    ) -> Experiment:
        """Return the experiment with these, after checking that the profile can run it.

        Its `summary` is what a run would compute, and how much is done. A group's tables that the
        profile cannot run are left out.

        Args:
            seeds: Root seeds; by default the experiment's, else 0 to 2.
            jobs: Number of workers; one per core by default.
            budget_usd: Dollars after which no request is sent to an endpoint.
        """
        workers_of(jobs)
        if budget_usd is not None and not 0.0 <= budget_usd < float("inf"):
            raise UserError(f"--budget-usd is {budget_usd:g}; give dollars, 0 or more")
        planned = replace(self, seeds=self._asked(seeds), jobs=jobs, budget_usd=budget_usd)
        assert planned.parts
        return planned

    @cached_property
    def summary(self) -> PlanSummary:
        """What is done and what is left."""
        from harness.selection.planning import summary_of

        return summary_of(self)

    def run(
        self,
        seeds: Seeds = None,
        jobs: int | None = None,
        *,
        engine: EngineOptions = LOCAL,
        on_event: Callable[[Event], None] = ignore,
        watch: AbstractContextManager[Callable[[Event], None]] | None = None,
        on_note: Say = ignore,
        on_tracking: Say = ignore,
        on_report: Callable[[Reports], None] = ignore,
    ) -> Reports:
        """Compute what is missing, track it in MLflow, and report it.

        Completed stages are kept: after an interruption or a failure, the same call resumes.

        Args:
            seeds: Root seeds; by default the experiment's, else 0 to 2.
            jobs: Number of workers; one per core by default.
            engine: Where stages are computed; this machine by default.
            on_event: Called with the engine's events as they happen.
            watch: Entered while stages are computed; yields another such callback.
            on_note: Called with messages about what will not be measured, and an unavailable
                tracking server.
            on_tracking: Called with how far the last writing to MLflow has come.
            on_report: Called with the reports before tracking finishes, which may wait for a
                server.

        Returns:
            The reports; `failed` maps failed stages to reasons.
        """
        from harness.selection.running import Running

        planned = self
        if seeds is not None or jobs is not None:
            planned = self.plan(seeds, jobs or self.jobs, budget_usd=self.budget_usd)
        run = Running(planned, engine, on_note, on_tracking)
        return run.run(watch or nullcontext(on_event), on_report)

    def report(self, seeds: Seeds = None, on_note: Say = ignore) -> Reports:
        """Report what is in the store, without computing anything.

        Args:
            seeds: Root seeds; by default the experiment's, else each table's most complete ones.
            on_note: Called with messages about seeds and tables left out.
        """
        from harness.pipeline.runs import plan_figure
        from harness.report.build import results_of
        from harness.report.controls import KnownControls
        from harness.report.figures.report import assemble_figure
        from harness.selection.reporting import Reports, seeds_shown_of_figure

        if self.figure is not None:
            asked = self._asked(seeds) or seeds_shown_of_figure(
                self.figure, self.declared, self.profile
            )
            runs = plan_figure(self.figure, self.declared, self.profile, asked)
            return Reports(figure=assemble_figure(runs, self.store))
        if not self.is_group:
            tables = [self._stored(self.tables[0], seeds, on_note)]
            return Reports(tuple(tables), page=lambda: self.page(seeds))
        tables, known = [], KnownControls(self.profile, self.store)
        for table in self.tables:
            found = results_of(table, self._shown(table, seeds, on_note), known)
            if found.runs is None:
                on_note(f"{table.id} is left out: {found.absent[table.rows[0].id]}")
            else:
                tables.append(found)
        return Reports(tuple(tables), page=lambda: self.page(seeds))

    def published(self) -> Reports:
        """Return the published reports of the tables or the figure, without reading the store."""
        from harness.report.figures.published import published_figure
        from harness.selection.reporting import Reports

        if self.figure is not None:
            folder = project.publishing_dir() / self.profile.name / self.figure.id
            return Reports(figure=published_figure(self.figure, folder))
        return Reports(self._published(), page=lambda: self.page(published=True))

    def page(self, seeds: Seeds = None, *, published: bool = False, on_note: Say = ignore) -> str:
        """Render an HTML page of the tables, with the figures drawn from their rows.

        Args:
            seeds: Root seeds; by default the experiment's, else each table's most complete ones.
            published: Show published results instead of the store.
            on_note: Called with messages about seeds left out.
        """
        from harness.report.page.page import as_html
        from harness.selection.reporting import page_of

        if published:
            return as_html(self._published(), self._published_pictures())
        shown = {table.id: self._shown(table, seeds, on_note) for table in self.tables}
        return page_of(self.tables, self.profile, shown, self.store)

    def findings(self) -> str:
        """Return `results/README.md`: what is published, by profile, as generated sentences."""
        from harness.report.render import as_findings

        root, asked = project.publishing_dir(), []
        for profile in sorted(all_profiles().values(), key=lambda it: it.name != DEFAULT_PROFILE):
            own = select(self.name, profile.name)
            if tables := tuple(it for it in own.tables if (root / profile.name / it.id).is_dir()):
                asked.append(replace(own, tables=tables))
        return as_findings([(it._published(), it._published_pictures()) for it in asked], root)

    def publish(
        self,
        results_dir: Path,
        seeds: Seeds = None,
        *,
        allow_fewer: bool = False,
        published: bool = False,
        on_note: Say = ignore,
    ) -> Reports | None:
        """Write a report to the folder of published results.

        For a group, publishes every table that was run; a refused one does not stop the others.

        Args:
            results_dir: The folder.
            seeds: As for `report`.
            allow_fewer: Also publish incomplete reports, or ones with less than is published.
            published: Draw and word a figure's published numbers again, instead of the store's.
            on_note: Called with a message for each folder written and each table left out.

        Returns:
            The published reports; None for a group.
        """
        from harness.report.figures.published import publish_figure
        from harness.report.publish import publish
        from harness.selection.reporting import Reports

        if self.is_group:
            self._publish_group(results_dir, allow_fewer, seeds, on_note)
            return None
        if self.figure is not None:
            reports = self.published() if published else self.report(seeds, on_note)
            assert reports.figure is not None
            folder = publish_figure(reports.figure, results_dir, allow_fewer=allow_fewer)
        else:
            stored = self._stored(self.tables[0], seeds, on_note)
            folder = publish(stored, results_dir, allow_fewer=allow_fewer)
            reports = Reports((stored,), page=lambda: self.page(seeds))
        on_note(f"published in {folder}")
        return reports

    def _publish_group(
        self, results_dir: Path, allow_fewer: bool, seeds: Seeds, on_note: Say
    ) -> None:
        from harness.report.publication import Refused
        from harness.report.publish import publish

        refused = []
        for table in self.tables:
            if table.id in self.left_out:
                on_note(f"left out: {table.id}: {self.left_out[table.id]}")
                continue
            # A fresh reader: the controls may just have been published.
            found, name = self._stored(table, seeds, on_note), table.id
            states = [cell.state for cell in found.report.cells]
            idle = [all(it == "not_run" for it in states[i : i + len(table.columns)])
                    for i in range(0, len(states), len(table.columns))]  # fmt: skip
            # Tables share runs: rows of another one do not make this one run.
            if all(idle) or (any(idle) and not allow_fewer):
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
        from harness.pipeline.runs import plan_table
        from harness.report.build import stored_results
        from harness.report.controls import KnownControls

        runs = plan_table(table, self.profile, self._shown(table, seeds, on_note), self.rows)
        return stored_results(runs, KnownControls(self.profile, self.store))

    def _published(self) -> tuple[Results, ...]:
        from harness.report.build import published_tables

        return published_tables(self.tables, self.profile, project.publishing_dir())

    def _published_pictures(self) -> list[Picture]:
        """Return the published pictures that belong to none of the tables."""
        from harness.report.page.pictures import published_pictures

        names = {table.id for table in self.tables}
        return list(published_pictures(project.publishing_dir() / self.profile.name, names))

    def _shown(self, table: Table, seeds: Seeds, on_note: Say) -> tuple[int, ...]:
        """Return the requested seeds, else the table's most complete ones."""
        from harness.selection import reporting

        return self._asked(seeds) or reporting.seeds_shown(table, self.profile, self.rows, on_note)

    def _asked(self, seeds: Seeds) -> tuple[int, ...] | None:
        return self.seeds if seeds is None else seeds_of(seeds)


def select(
    name: str,
    profile: str = DEFAULT_PROFILE,
    rows: str | Iterable[str] | None = None,
    seeds: Seeds = None,
    settings: Sequence[str] | None = None,
) -> Experiment:
    """Select a table, a figure or a group of tables by name.

    Args:
        name: A name, or the path of a YAML file that declares a table.
        profile: A profile's name, or the path of a YAML file that declares one.
        rows: Only these rows of a table and their baselines, as ids or a string `a,b`.
        seeds: Root seeds.
        settings: Overrides of profile settings, such as `profile.training.dpo.beta=0.5`.
    """
    wanted = parse_names(rows if rows is None or isinstance(rows, str) else ",".join(rows))
    asked = None if seeds is None else seeds_of(seeds)
    known: Mapping[str, Table] = declared.all_tables()
    figure, tables = None, tuple[Table, ...]()
    if name in declared.GROUPS:
        if wanted is not None:
            raise UserError(f"rows are those of one table; name that table instead of `{name}`")
        tables = tuple(declared.members(name, known))
    elif is_figure(name):
        figure = declared.named_figure(name)
        if wanted is not None:
            raise UserError(f"`{name}` names its own rows; leave yours out")
    else:
        table, known = declared.named_table(name)
        tables = (table,)
    scale = declared.named_profile(varied(profile, settings) if settings else profile)
    tables = tuple(table_at(table, scale) for table in tables)
    return Experiment(name, scale, wanted, asked, tables, figure, known)


def is_figure(name: str) -> bool:
    """Return whether a name is, or looks like, a figure's."""
    # Tables are recognized without loading the figures.
    if name in declared.all_tables() or declared.own_file(name) is not None:
        return False
    return name.startswith("fig") or name in declared.all_figures()


def varied(profile: str, texts: Sequence[str]) -> str:
    """Write a profile with overrides such as `profile.training.dpo.beta=0.5`; return its file.

    It is a separate profile, with its own name and a file in the work folder, so that requests,
    reports and MLflow runs keep it apart from the original.
    """
    from harness.registry.documents import as_yaml, read_yaml
    from harness.registry.overrides import nested, overridden, settings_of
    from harness.registry.recipe import flattened, merge
    from harness.runtime.files import write_whole
    from harness.runtime.stage import fingerprint_of

    base = declared.named_profile(profile)
    settings = settings_of(texts, ("profile",))["profile"]
    before = base.model_dump(by_alias=True)
    overridden(Profile, before, settings, "profile")
    changed, values = flattened(settings), flattened(before)
    name = f"{base.name}-{fingerprint_of(changed)[:6]}"
    sourced = {  # an omitted section has no source
        path: None if v is None and path not in values else {"value": v, "source": "ours: --set"}
        for path, v in changed.items()
    }
    target = work_dir() / "profiles" / f"{name}.yaml"
    write_whole(target, as_yaml(merge(read_yaml(base.file), {**nested(sourced), "name": name})))
    return str(target)
