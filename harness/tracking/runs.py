"""Records of runs: one MLflow run for each row of a table, recipe and seed, shown under its row.

A run appears once a stage of it is done if a command asked for it, else once one of its end stages
is in the store or a stage has failed, because shared stages may belong to another run. Its identity
covers the fingerprints of its training and of all its judges: changed settings make a new run, and
the old one stays as history.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from harness.pipeline.factory import reward_models_named
from harness.report.view import plain
from harness.runtime import Plan, Stage, Store
from harness.runtime.manifest import FailureRecord, Manifest
from harness.runtime.stage import fingerprint_of
from harness.tracking.record import (
    COMMIT_TAG,
    Dataset,
    Files,
    MetricValue,
    Record,
    Status,
    flatten,
    join,
    milliseconds,
    recipe_file,
)
from harness.worlds.stage_io import read_rows

if TYPE_CHECKING:
    from harness.pipeline.algorithm import Run
    from harness.pipeline.runs import TableRuns
    from harness.registry.profile import Profile
    from harness.registry.schema import Row, Table

SCORES = "scores.parquet"
ANSWERS = "answers.parquet"
LONGEST_TABLE = 2000
"""Maximum number of rows of a table artifact; the store has all."""


class RowRun(NamedTuple):
    """A run behind a row of a table."""

    table: Table
    profile: Profile
    row: Row
    run: Run

    @property
    def identity(self) -> str:
        """The value of the tag `ID`."""
        run = self.run
        ends = sorted(stage.fingerprint for stage in (*run.judges.values(), *run.training[-1:]))
        return fingerprint_of(["run", self.parent, run.run_id, run.seed, ends])

    @property
    def parent(self) -> str:
        return row_identity(self.table, self.profile.name, self.row.id)


def row_identity(table: Table, profile: str, row: str) -> str:
    return fingerprint_of(["row", table.id, profile, row])


def experiment_note(table: Table, profile: Profile) -> str:
    return plain(f"{table.heading}. {table.question} Scale: {profile.scale}.")


def runs_of(runs: TableRuns) -> list[RowRun]:
    """Return the runs behind each row of a table, by row, run id and seed."""
    return [
        RowRun(runs.table, runs.profile, row, runs.runs[run_id, seed])
        for row in runs.rows
        for run_id in dict.fromkeys(row.run_id(column) for column in runs.table.columns)
        for seed in runs.seeds
    ]


def run_record(of: RowRun, store: Store, *, is_asked: bool = False) -> Record | None:
    """Return what MLflow should hold for a run, or None if nothing of it has run yet.

    `is_asked` tells that a command asked for this run, and not only for one that shares its stages.
    """
    state = _Stored(of, store)
    return state.record() if state.is_there or (is_asked and state.done) else None


class _Stored:
    """What the store holds of a run."""

    def __init__(self, of: RowRun, store: Store) -> None:
        self.of, self.run, self.store = of, of.run, store
        # The requested judges, and finished ones that another table or figure requested.
        judged = [
            stage
            for name, stage in self.run.judges.items()
            if name in self.run.asked or store.status(stage.fingerprint) == "done"
        ]
        self.stages = list(Plan((*self.run.targets, *judged)))
        names = [stage.fingerprint for stage in self.stages]
        self.done: dict[str, Manifest] = {
            n: store.manifest(n) for n in names if store.status(n) == "done"
        }
        """Manifests of the finished stages by fingerprint, inputs first."""
        self.failures: list[FailureRecord] = [
            failure for n in names if n not in self.done and (failure := store.failure(n))
        ]
        self.judges = [  # stages with scores; a sweep without a judge has only rewards
            stage for stage in judged if self._digest(stage, SCORES)
        ]

    @property
    def is_there(self) -> bool:
        """Whether anything was computed for this run rather than for one that shares its stages."""
        if self.failures:
            return True
        ends = self.run.judged.values() if self.run.asked else self.run.targets
        return any(stage.fingerprint in self.done for stage in ends)

    def record(self) -> Record:
        of, run, (status, end_ms), start_ms = self.of, self.run, self._end(), self._start()
        trained = [stage.fingerprint for stage in run.training if stage.fingerprint in self.done]
        return Record(
            experiment=f"{of.table.id}/{run.profile}",
            note=experiment_note(of.table, of.profile),
            identity=of.identity,
            parent=of.parent,
            name=f"{run.run_id}-seed{run.seed}",
            status=status,
            start_ms=start_ms,
            end_ms=end_ms,
            params=self._params(),
            tags=self._tags(status),
            scores=self._costs(),
            datasets=self._datasets(),
            basis={
                "scores": [self._digest(judge, SCORES) for judge in self.judges],
                "answers": [judge.fingerprint for judge in self.judges],
                "curves": trained,
                "stages": sorted(self.done),
            },
            metrics=lambda: self._metrics(trained, start_ms),
            files=self._files,
        )

    def _start(self) -> int:
        first = self.done.get(self.stages[0].fingerprint)
        starts = [manifest["started"] for manifest in ([first] if first else self.done.values())]
        return min(map(milliseconds, starts or [failure["at"] for failure in self.failures]))

    def _end(self) -> tuple[Status, int]:
        ends = [manifest["finished"] for manifest in self.done.values()]
        if all(target.fingerprint in self.done for target in self.run.targets):
            return "FINISHED", max(map(milliseconds, ends))
        if self.failures:
            ends += [failure["at"] for failure in self.failures]
            return "FAILED", max(map(milliseconds, ends))
        return "SCHEDULED", max(map(milliseconds, ends))

    def _params(self) -> dict[str, str]:
        run, profile = self.run, self.of.profile
        params = {
            "table": self.of.table.id,
            "row": self.of.row.id,
            "run": run.run_id,
            "seed": str(run.seed),
            "profile": profile.name,
            "x": str(profile.x),
            "dtype": profile.dtype,
        }
        params |= flatten(run.recipe.canonical(), "recipe")
        if run.recipe.algorithm is not None:
            hyper = profile.training.of(run.recipe.algorithm)
            params |= flatten(hyper.model_dump(by_alias=True, exclude_none=True), "train")
            params |= flatten(profile.generation.model_dump(), "generate")
        for name in run.judges:
            shown = {"items", "temperature", "top_p", "max_new_tokens"}
            settings = profile.benchmarks[name].model_dump(include=shown, exclude_none=True)
            params |= flatten(settings, f"answer.{name}")
        return params

    def _tags(self, status: Status) -> dict[str, str]:
        found = [manifest["provenance"] for manifest in self.done.values()]
        known = [provenance["commit"] for provenance in found if provenance["commit"]]
        tags = {
            "mlflow.source.name": f"harness run {self.of.table.id} --rows {self.of.row.id} "
            f"--profile {self.of.profile.name}",
            "mlflow.source.type": "LOCAL",
            "label": plain(self.of.row.label),
            "scale": self.of.profile.scale,
            "stages": f"{len(self.done)}/{len(self.stages)}",
            "policy": self._named("policy"),
            "reward_model": join(reward_models_named(self.stages)),
            "creator": self._named("creator"),
            "judge": join(stage.settings.get("judge") for stage in self.judges),
            "dirty": join(p["dirty"] if p["dirty"] is not None else "unknown" for p in found),
        }
        if known:
            tags[COMMIT_TAG] = known[-1]
        if status == "FAILED":
            tags["failure"] = "; ".join(f"{f['label']}: {f['reason']}" for f in self.failures)
        return tags

    def _named(self, setting: str) -> str:
        return join(s.settings[setting] for s in self.stages if setting in s.settings)

    def _datasets(self) -> tuple[Dataset, ...]:
        """Return the tables that each iteration trained on and drew its prompts from."""
        return tuple(
            Dataset(
                f"{number}/{name.removesuffix('.parquet')}",
                file["sha256"],
                str(self.store.path(stage.fingerprint) / name),
            )
            for number, iteration in enumerate(self.run.iterations, start=1)
            for stage in dict.fromkeys((iteration.prompts, iteration.pairs))
            if stage.fingerprint in self.done
            for name, file in sorted(self.done[stage.fingerprint]["files"].items())
            if name.endswith(".parquet")
        )

    def _files(self) -> Files:
        judged = {
            f"judgments/{stage.settings['benchmark']}.json": self._judgments(stage)
            for stage in self.judges
            if "benchmark" in stage.settings
        }
        return {**recipe_file({self.run.run_id: self.run.recipe.canonical()}), **judged}

    def _judgments(self, stage: Stage) -> Mapping[str, Sequence[object]]:
        """Return the columns of prompts, answers and scores, as far as the stages have them."""
        found: dict[str, dict[str, object]] = {}
        answered = stage.inputs.get("answers")
        if answered is not None and self._digest(answered, ANSWERS):
            for row in read_rows(self.store.file(answered.fingerprint, ANSWERS)):
                asked = json.loads(row["conversation"])
                if len(asked) == 1:  # of two turns, show only the first
                    said = {"prompt": asked[0]["content"], "answer": row["completion"]}
                    found[row["prompt_id"]] = said
        scores = self._scores(stage)
        columns = dict.fromkeys(row["column"] for row in scores)
        for row in scores:
            found.setdefault(row["prompt_id"], {})[row["column"]] = row["value"]
        rows = [{**row, "prompt_id": prompt} for prompt, row in found.items()][:LONGEST_TABLE]
        # MLflow's page groups by the first column and compares the second.
        named = [*dict.fromkeys(n for row in rows for n in row if n not in columns), *columns]
        return {name: [row.get(name) for row in rows] for name in named}

    def _costs(self) -> dict[str, float]:
        """Return the seconds taken by a finished run's stages, counting shared ones in full."""
        if len(self.done) < len(self.stages):
            return {}
        return {
            "cost/wall_s": math.fsum(manifest["wall_s"] for manifest in self.done.values()),
            "cost/cpu_s": math.fsum(manifest["cpu_s"] for manifest in self.done.values()),
        }

    def _metrics(self, trained: Sequence[str], start_ms: int) -> Iterator[MetricValue]:
        """Yield the mean of each score, then the curves of training."""
        values: dict[str, list[float]] = {}
        for row in (row for stage in self.judges for row in self._scores(stage)):
            values.setdefault(row["column"], []).append(row["value"])
        for column, found in values.items():
            yield MetricValue(f"ours/{column}", math.fsum(found) / len(found), start_ms)
        before = 0  # iterations follow each other in one curve; online segments do so already
        for fingerprint in trained:
            step = before
            for point in self.store.progress(fingerprint):
                step = before + point.step
                for name, value in point.metrics.items():
                    yield MetricValue(f"train/{name}", value, start_ms + 1000 * step, step)
            before = 0 if self.run.recipe.is_online else step

    def _scores(self, judge: Stage) -> list[dict[str, Any]]:
        return read_rows(self.store.file(judge.fingerprint, SCORES))

    def _digest(self, stage: Stage, name: str) -> str | None:
        """Return the digest of a stage's file, or None if there is none."""
        manifest = self.done.get(stage.fingerprint)
        file = manifest["files"].get(name) if manifest else None
        return file["sha256"] if file else None
