"""Records of runs: experiment `runs/<profile>`, one MLflow run for each recipe and seed.

While a run is being computed, it appears in MLflow once its first stage is done. Otherwise it
appears once one of its end stages is in the store or a stage has failed, because shared stages may
belong to another run. It is RUNNING while a command computes it, and KILLED if none does and
targets are missing. Tables may need different benchmarks of a run; it remains one MLflow run, with
the scores of every judged benchmark. Its identity covers the fingerprints of its training and of
all its judges, requested or not: changed settings make a new run, and the old one stays as history.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.pipeline.factory import reward_models_named
from harness.runtime import FailureRecord, Manifest, Plan, Stage, Store
from harness.runtime.stage import fingerprint_of
from harness.tracking.record import (
    COMMIT_TAG,
    KIND_TAG,
    LONGEST_TAG,
    NOTE_TAG,
    Dataset,
    Files,
    LoggedPolicy,
    MetricValue,
    Record,
    Status,
    curve_metrics,
    flatten,
    join,
    milliseconds,
    recipe_file,
)

if TYPE_CHECKING:
    from harness.pipeline.algorithm import Run
    from harness.registry.profile import Profile

SCORES = "scores.parquet"
ANSWERS = "answers.parquet"
LONGEST_TABLE = 2000
"""Maximum number of rows of a table artifact; the store has all."""

NOTE = (
    "One run for each recipe and seed at the profile {}. Curves are named by iteration; the time "
    "of a point is the run's start plus one second for each step."
)


def run_identity(run: Run) -> str:
    """Return the run's value of the tag `ID`."""
    ends = sorted(stage.fingerprint for stage in (*run.judges.values(), *run.training[-1:]))
    return fingerprint_of(["run", run.run_id, run.profile, run.seed, ends])


def trained_in(run: Run) -> dict[str, list[Stage]]:
    """Return the training stages behind each curve of a run, by metric prefix.

    Each iteration has its own curve, so that different rows line up at step one; the segments of an
    online run form one curve.
    """
    if run.recipe.is_online:
        return {"online/": list(run.training)}
    return {f"iter{number}/": [stage] for number, stage in enumerate(run.training, start=1)}


def run_record(
    run: Run,
    profile: Profile,
    store: Store,
    served: Mapping[str, Sequence[str]],
    *,
    is_computed: bool = False,
) -> Record | None:
    """Return what MLflow should hold for a run, or None if nothing of it has run yet."""
    state = _Stored(run, profile, store, is_computed)
    return state.record(served.get(run.run_id, ())) if state.is_there else None


class _Stored:
    """What the store holds of a run, and whether a command is computing it."""

    def __init__(self, run: Run, profile: Profile, store: Store, is_computed: bool) -> None:
        self.run, self.profile, self.store, self.is_computed = run, profile, store, is_computed
        # The requested judges, and finished ones that another table requested.
        self.judged = {
            name: stage
            for name, stage in run.judges.items()
            if name in run.asked or store.status(stage.fingerprint) == "done"
        }
        self.stages = list(Plan((*run.targets, *self.judged.values())))
        names = [stage.fingerprint for stage in self.stages]
        self.done: dict[str, Manifest] = {
            n: store.manifest(n) for n in names if store.status(n) == "done"
        }
        """Manifests of the finished stages by fingerprint, inputs first."""
        self.failures: list[FailureRecord] = [
            failure for n in names if n not in self.done and (failure := store.failure(n))
        ]

    @property
    def is_there(self) -> bool:
        """Whether anything was computed for this run rather than for one that shares its stages."""
        if self.failures or (self.is_computed and self.done):
            return True
        ends = self.run.judges.values() if self.run.asked else self.run.targets
        return any(stage.fingerprint in self.done for stage in ends)

    def record(self, places: Sequence[str]) -> Record:
        run, (status, end_ms), start_ms = self.run, self._end(), self._start()
        judges = [  # stages with scores; a sweep without a judge has only rewards
            stage for stage in self.judged.values() if self._digest(stage, SCORES)
        ]
        curves = {
            prefix: [stage for stage in stages if stage.fingerprint in self.done]
            for prefix, stages in trained_in(run).items()
        }
        return Record(
            experiment=f"runs/{run.profile}",
            note=NOTE.format(run.profile),
            view=KIND_TAG,
            identity=run_identity(run),
            name=f"{run.run_id} · seed {run.seed}",
            status=status,
            start_ms=start_ms,
            end_ms=end_ms,
            params=self._params(),
            tags=self._tags(places, status),
            scores=self._costs(),
            datasets=self._datasets(),
            policy=self._policy() if status == "FINISHED" and run.training else None,
            basis={
                "scores": [self._digest(judge, SCORES) for judge in judges],
                "answers": [judge.fingerprint for judge in judges],
                "curves": {
                    prefix: [self._digest(stage, "progress.jsonl") for stage in stages]
                    for prefix, stages in curves.items()
                },
            },
            metrics=lambda: self._metrics(judges, curves, start_ms),
            files=lambda: self._files(judges),
        )

    def _start(self) -> int:
        first = self.done.get(self.stages[0].fingerprint)
        starts = [manifest["started"] for manifest in ([first] if first else self.done.values())]
        return min(map(milliseconds, starts or [failure["at"] for failure in self.failures]))

    def _end(self) -> tuple[Status, int | None]:
        ends = [manifest["finished"] for manifest in self.done.values()]
        if all(target.fingerprint in self.done for target in self.run.targets):
            return "FINISHED", max(map(milliseconds, ends))
        if self.failures:
            ends += [failure["at"] for failure in self.failures]
            return "FAILED", max(map(milliseconds, ends))
        return ("RUNNING", None) if self.is_computed else ("KILLED", max(map(milliseconds, ends)))

    def _params(self) -> dict[str, str]:
        run, profile = self.run, self.profile
        params = {
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

    def _tags(self, places: Sequence[str], status: Status) -> dict[str, str]:
        run, judges = self.run, self.judged.values()
        found = [manifest["provenance"] for manifest in self.done.values()]
        known = [provenance["commit"] for provenance in found if provenance["commit"]]
        tags = {
            "mlflow.source.name": f"harness run · {run.run_id} · seed {run.seed}",
            "mlflow.source.type": "LOCAL",
            "tables": join(place.partition("/")[0] for place in places),
            "cells": join(places),
            "scale": self.profile.scale,
            "state": {"FINISHED": "done", "FAILED": "failed"}.get(status, "unfinished"),
            NOTE_TAG: f"The recipe {run.run_id} with seed {run.seed} on the profile {run.profile}, "
            f"behind {join(places)}.",
            "stages": f"{len(self.done)}/{len(self.stages)}",
            "policy": self._named("policy"),
            "reward_model": join(reward_models_named(self.stages)),
            "creator": self._named("creator"),
            "judge": self._judge(),
            "benchmarks": join(
                stage.settings["benchmark"] for stage in judges if "benchmark" in stage.settings
            ),
            "commit": join(provenance["commit"] or "unknown" for provenance in found),
            "dirty": join(p["dirty"] if p["dirty"] is not None else "unknown" for p in found),
        }
        if known:
            tags[COMMIT_TAG] = known[-1]
        if status == "FAILED":
            reasons = "; ".join(f"{f['label']}: {f['reason']}" for f in self.failures)
            tags["failure"] = reasons[:LONGEST_TAG]
        return tags

    def _named(self, setting: str) -> str:
        return join(s.settings[setting] for s in self.stages if setting in s.settings)

    def _judge(self) -> str:
        judges = {name: stage.settings.get("judge") for name, stage in self.judged.items()}
        if len(set(map(str, judges.values()))) <= 1:
            return join(judges.values())
        return join(f"{name}: {judge}" for name, judge in judges.items())

    def _datasets(self) -> tuple[Dataset, ...]:
        """Return the tables that each iteration trained on and drew its prompts from."""
        kind = "online" if self.run.recipe.is_online else "iter"
        return tuple(
            Dataset(
                f"{kind}{number}/{name.removesuffix('.parquet')}",
                file["sha256"],
                partial(self.store.file, stage.fingerprint, name),
            )
            for number, iteration in enumerate(self.run.iterations, start=1)
            for stage in dict.fromkeys((iteration.prompts, iteration.pairs))
            if stage.fingerprint in self.done
            for name, file in sorted(self.done[stage.fingerprint]["files"].items())
            if name.endswith(".parquet")
        )

    def _files(self, judges: Sequence[Stage]) -> Files:
        judged = {
            f"judgments/{stage.settings['benchmark']}.json": self._judgments(stage)
            for stage in judges
            if "benchmark" in stage.settings
        }
        return {**recipe_file({self.run.run_id: self.run.recipe.canonical()}), **judged}

    def _judgments(self, stage: Stage) -> Mapping[str, Sequence[object]]:
        """Return the columns of prompts, answers and scores, as far as the stages have them."""
        found: dict[str, dict[str, object]] = {}
        answered = stage.inputs.get("answers")
        if answered is not None and self._digest(answered, ANSWERS):
            for row in _rows(self.store.file(answered.fingerprint, ANSWERS)):
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

    def _policy(self) -> LoggedPolicy:
        run, last = self.run, self.run.training[-1].fingerprint
        return LoggedPolicy(
            f"{run.run_id}-seed{run.seed}",
            {"run": run.run_id, "seed": str(run.seed), "profile": run.profile},
            {
                "stage": last,
                "policy": self._named("policy"),
                "harness.location": str(self.store.path(last)),
            },
        )

    def _costs(self) -> dict[str, float]:
        """Return the seconds taken by a finished run's stages, counting shared ones in full."""
        if len(self.done) < len(self.stages):
            return {}
        return {
            "cost/wall_s": math.fsum(manifest["wall_s"] for manifest in self.done.values()),
            "cost/cpu_s": math.fsum(manifest["cpu_s"] for manifest in self.done.values()),
        }

    def _metrics(
        self, judges: Sequence[Stage], curves: Mapping[str, Sequence[Stage]], start_ms: int
    ) -> Iterator[MetricValue]:
        """Yield the mean of each score, then the curves."""
        values: dict[str, list[float]] = {}
        for row in (row for stage in judges for row in self._scores(stage)):
            values.setdefault(row["column"], []).append(row["value"])
        for column, found in values.items():
            yield MetricValue(f"ours/{column}", math.fsum(found) / len(found), start_ms)
        for prefix, stages in curves.items():
            for stage in stages:
                for point in self.store.progress(stage.fingerprint):
                    yield from curve_metrics(prefix, start_ms, point)

    def _scores(self, judge: Stage) -> list[dict[str, Any]]:
        return _rows(self.store.file(judge.fingerprint, SCORES))

    def _digest(self, stage: Stage, name: str) -> str | None:
        """Return the digest of a stage's file, or None if there is none."""
        manifest = self.done.get(stage.fingerprint)
        file = manifest["files"].get(name) if manifest else None
        return file["sha256"] if file else None


def _rows(path: Path) -> list[dict[str, Any]]:
    import pyarrow.parquet as pq

    return pq.read_table(path).to_pylist()  # type: ignore[no-any-return]
