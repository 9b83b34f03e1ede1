"""Published results in MLflow, for a clone in which nothing was run: `harness sync --published`.

    <table>/<profile>/published          rows, `ours` and `paper`, as of a table that was run here
    runs/<profile>/published             each recipe and seed behind them
    sweeps/<name>/<profile>/published    each trial

They stand apart from what was run here. Everything is read from the published files: there are
scores, per prompt, but neither curves nor data nor policies.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.errors import HarnessError
from harness.registry.declared import all_profiles
from harness.registry.profile import Profile
from harness.registry.recipe import Recipe
from harness.report.claims import judge_published
from harness.report.controls import KnownControls
from harness.report.findings import finding
from harness.report.publication import DIGESTS, REPORT, check_files
from harness.report.publish import Published, published_folders, read_published
from harness.report.sweep import SWEEP, SweepReport
from harness.tracking.projection import StudyName, trial_record
from harness.tracking.record import (
    KIND_TAG,
    TRAINING,
    Files,
    Record,
    both,
    flatten,
    join,
    metric_name,
    milliseconds,
    recipe_file,
    sha256,
)
from harness.tracking.tables import Details, TableContent

if TYPE_CHECKING:
    from harness.report.model import Origin

SUFFIX = "/published"

_NOTE = (
    "One run for each recipe and seed behind the published tables at the profile `{}`. Read from "
    "`results/`: scores by prompt, without curves."
)


def published_records(results_dir: Path) -> list[Record]:
    """Return the records of all published tables and sweeps.

    Raises:
        HarnessError: A published file is missing, was changed, or fits no declaration.
    """
    runs: dict[tuple[str, str, int], _Run] = {}
    tables = []
    for folder in published_folders(results_dir):
        found = read_published(folder)
        tables.append(found)
        for key, run in _runs(found):
            runs.setdefault(key, run).add(found, run.stages)
    records = {key: run.record() for key, run in runs.items()}
    profiles = {published.report.profile.name: published.report.profile for published in tables}
    known = {name: KnownControls(it, None, results_dir) for name, it in profiles.items()}
    for published in tables:
        own = _table(published, records, known[published.report.profile.name])
        records |= {("table", record.identity, 0): record for record in own}
    return [*records.values(), *_sweeps(results_dir)]


@dataclass
class _Run:
    """What published tables say of one recipe and seed."""

    run_id: str
    profile: Profile
    seed: int
    recipe: Recipe
    origin: Origin
    stages: dict[str, str] = field(default_factory=dict)
    values: dict[str, dict[str, float]] = field(default_factory=dict)
    costs: dict[str, float] = field(default_factory=dict)
    places: list[str] = field(default_factory=list)

    def add(self, found: Published, stages: Mapping[str, str]) -> None:
        """Add what another table says of it."""
        report = found.report
        self.stages |= stages
        self.values |= {
            score: values
            for (run, seed, score), values in found.measured.items()
            if (run, seed) == (self.run_id, self.seed)
        }
        for row in report.rows:
            if self.run_id in row.runs.values():
                self.places.append(f"{report.table.id}/{row.id}")
        for cost in report.costs or ():
            if cost.run == self.run_id:
                named = {"wall_s": cost.seconds, "rollouts": cost.rollouts, "tokens": cost.tokens,
                         "gradient_steps": cost.gradient_steps,
                         "creator_calls": cost.creator_calls}  # fmt: skip
                self.costs = {f"cost/{n}": v for n, v in named.items() if v is not None}

    def record(self) -> Record:
        """Return what MLflow should hold of it."""
        origin, end = self.origin, _ended(self.origin)
        scores = {
            f"ours/{metric_name(score)}": sum(values.values()) / len(values)
            for score, values in self.values.items()
        }
        recipe = recipe_file({self.run_id: self.recipe.canonical()})
        stages = {f"stage.{name}": text[:12] for name, text in self.stages.items()}
        return Record(
            experiment=f"runs/{self.profile.name}{SUFFIX}",
            note=_NOTE.format(self.profile.name),
            view=KIND_TAG,
            identity=sha256(["published run", self.run_id, self.profile.name, self.seed]),
            name=f"{self.run_id} · seed {self.seed}",
            status="FINISHED",
            start_ms=end,
            end_ms=end,
            params={
                "run": self.run_id,
                "seed": str(self.seed),
                "profile": self.profile.name,
                **flatten(self.recipe.canonical(), "recipe"),
            },
            tags={
                "scale": self.profile.scale,
                "state": "done",
                "cells": join(self.places),
                "policy": join(origin.policies),
                "reward_model": join(origin.reward_models),
                "creator": join(origin.creators),
                "judge": join(origin.judges.values()),
                "commit": join(origin.commits),
                "mlflow.source.name": f"results/{self.profile.name}",
                "mlflow.source.type": "LOCAL",
                "mlflow.source.git.commit": join(origin.commits[-1:]),
                **stages,
            },
            scores_digest=sha256({name: repr(value) for name, value in scores.items()}),
            read_scores=lambda: scores,
            costs=self.costs,
            files=both(recipe, Files(sha256([stages, sorted(scores)]), self._tables, self._paths)),
            describe=self._described,
        )

    @property
    def _paths(self) -> tuple[str, ...]:
        return tuple(f"scores/{name}.json" for name in self.values)

    def _tables(self) -> dict[str, bytes]:
        """Return the scores of each prompt, a JSON table for each score."""
        return {
            f"scores/{name}.json": json.dumps(
                {"columns": ["prompt", "value"], "data": [list(item) for item in values.items()]}
            ).encode()
            for name, values in self.values.items()
        }

    def _described(self) -> str:
        links = (
            f"- [`{place}`](#/experiments/"
            f"{{experiment:{place.partition('/')[0]}/{self.profile.name}{SUFFIX}}}/runs"
            f"?searchFilter=params.row%20%3D%20%22{place.partition('/')[2]}%22&{TRAINING})"
            for place in self.places
        )
        return "\n".join([f"Run `{self.run_id}`, seed {self.seed}, as published.", "", *links])


def _runs(found: Published) -> Iterator[tuple[tuple[str, str, int], _Run]]:
    """Yield the runs behind a published table, by profile, run id and seed."""
    report = found.report
    table, profile = report.table, report.profile
    recipes = {name: recipe for row in table.rows for name, recipe in table.recipes(row).items()}
    digests: dict[str, Any] = json.loads((found.folder / DIGESTS).read_text(encoding="utf-8"))
    for place, stages in digests["stages"].items():
        run_id, _, rest = place.partition("/")
        if run_id in recipes and rest.startswith(f"{profile.name}/seed"):
            seed = int(rest.rpartition("seed")[2])
            run = _Run(run_id, profile, seed, recipes[run_id], report.origin, dict(stages))
            yield (profile.name, run_id, seed), run


def _table(
    found: Published, runs: Mapping[tuple[str, str, int], Record], known: KnownControls
) -> list[Record]:
    """Return the records of a published table."""
    report = found.report
    table, profile = report.table, report.profile
    behind = {
        row.id: [
            runs[profile.name, run_id, seed]
            for run_id in dict.fromkeys(row.runs.values())
            for seed in report.seeds
            if (profile.name, run_id, seed) in runs
        ]
        for row in report.rows
    }

    @cache
    def details() -> Details:
        from harness.report.page.contents import from_results
        from harness.report.page.page import as_html

        page = from_results([table], profile, found.folder.parent.parent)
        return Details(report, finding(report, judge_published(table, found, known)), as_html(page))

    return TableContent(
        table=table,
        profile=profile,
        seeds=report.seeds,
        rows=[table.row(row.id) for row in report.rows],
        cells=report.cells,
        behind=behind,
        experiment=f"{table.id}/{profile.name}{SUFFIX}",
        runs=f"runs/{profile.name}{SUFFIX}",
        source=f"results/{profile.name}/{table.id}",
        details=details,
    ).records()


def published_sweep(results_dir: Path, profile: str, name: str) -> SweepReport | None:
    """Return a published sweep; None where there is none.

    Raises:
        HarnessError: A published file is missing or was changed.
    """
    folder = results_dir / profile / "sweeps" / name
    if not (folder / REPORT).is_file():
        return None
    check_files(folder, (REPORT,), "sweep")
    return SWEEP.read(folder)


def _sweeps(results_dir: Path) -> Iterator[Record]:
    for path in sorted(results_dir.glob(f"*/sweeps/*/{REPORT}")):
        profile, name = path.parts[-4], path.parts[-2]
        report = published_sweep(results_dir, profile, name)
        if report is None or profile not in all_profiles():
            continue
        best = report.objectives[0].direction == "maximize"
        names = tuple(objective.name for objective in report.objectives)
        study = StudyName(name, profile, report.study, names, best_is_greatest=best)
        for trial in report.trials:
            yield trial_record(study, trial, {}, experiment=f"sweeps/{name}/{profile}{SUFFIX}")


def _ended(origin: Origin) -> int:
    """Return when the last stage behind a table was finished."""
    if origin.finished is None:
        raise HarnessError("a published table names no finished stage; publish it again")
    return milliseconds(origin.finished)
