"""Records of runs: experiment `runs/<profile>`, one MLflow run for each recipe and seed.

A run appears in MLflow when the first of its stages is done while it is computed, and otherwise
when one of its ends is in the store, or a stage has failed: shared stages alone may be another
run's. It is RUNNING while a command computes it, and KILLED where none does and not all its targets
are in the store. Tables ask for different benchmarks of one run; it is one MLflow run all the same,
with the scores of every benchmark that is judged. Its identity covers the fingerprints of its
training and of all its judges, asked for or not: a run whose settings have changed is another run,
and the old one stays as history.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from harness.pipeline.factory import reward_models_named
from harness.runtime import FailureRecord, Manifest, Plan, Stage, Store
from harness.tracking.record import (
    LONGEST_TAG,
    NOTE_TAG,
    ONLINE_PREFIX,
    Columns,
    Curves,
    Dataset,
    Files,
    Model,
    Record,
    Status,
    curve_prefix,
    flatten,
    join,
    metric_name,
    milliseconds,
    recipe_file,
    sha256,
)
from harness.tracking.view import KIND_TAG

if TYPE_CHECKING:
    from harness.pipeline.algorithm import Run
    from harness.registry.profile import Profile

SCORES = "scores.parquet"
ANSWERS = "answers.parquet"
LONGEST_TABLE = 2000
"""Most rows of a table among the artifacts; the store has all."""

NOTE = (
    "One run for each recipe and seed at the profile {}. Curves are named by iteration; the time "
    "of a point is the run's start plus one second for each step."
)


def run_identity(run: Run) -> str:
    """Return the tag value by which a run is found again."""
    ends = sorted(stage.fingerprint for stage in (*run.judges.values(), *run.training[-1:]))
    return sha256(["run", run.run_id, run.profile, run.seed, ends])


def trained_in(run: Run) -> dict[str, list[Stage]]:
    """Return the training stages behind each curve of a run, by the prefix of its metrics.

    Each iteration has a curve of its own; the segments of an online run are one.
    """
    if run.recipe.is_online:
        return {ONLINE_PREFIX: list(run.training)}
    return {curve_prefix(number): [stage] for number, stage in enumerate(run.training, start=1)}


def iteration_name(run: Run, number: int) -> str:
    """Return what an iteration, or a segment of an online run, is called; counted from 1."""
    return f"{'online' if run.recipe.is_online else 'iter'}{number}"


def run_record(
    run: Run,
    profile: Profile,
    store: Store,
    served: Mapping[str, Sequence[str]],
    *,
    is_computed: bool = False,
) -> Record | None:
    """Return what MLflow should hold of a run; None where nothing of it was run yet."""
    state = _RunState(run, store, is_computed)
    return state.record(profile, served.get(run.run_id, ())) if state.is_there else None


@dataclass(frozen=True)
class _RunState:
    """Where a run stands in the store, and whether something computes it."""

    run: Run
    store: Store
    is_computed: bool

    @property
    def is_there(self) -> bool:
        """Whether something is there that no other run would have computed for itself."""
        if self.failures or (self.is_computed and self.done):
            return True
        ends = self.run.judges.values() if self.run.asked else self.run.targets
        return any(stage.fingerprint in self.done for stage in ends)

    @cached_property
    def judged(self) -> dict[str, Stage]:
        """The judges that are asked for, and those that another table has asked for."""
        return {
            name: stage
            for name, stage in self.run.judges.items()
            if name in self.run.asked or self.store.status(stage.fingerprint) == "done"
        }

    @cached_property
    def stages(self) -> list[Stage]:
        return list(Plan((*self.run.targets, *self.judged.values())))

    @cached_property
    def done(self) -> dict[str, Manifest]:
        """The manifests of finished stages by fingerprint, inputs first."""
        names = [stage.fingerprint for stage in self.stages]
        return {n: self.store.manifest(n) for n in names if self.store.status(n) == "done"}

    @cached_property
    def failures(self) -> list[FailureRecord]:
        names = [stage.fingerprint for stage in self.stages if stage.fingerprint not in self.done]
        return [failure for name in names if (failure := self.store.failure(name))]

    def record(self, profile: Profile, places: Sequence[str]) -> Record:
        status, end_ms = self._end()
        run = self.run
        judges = [  # where a sweep asks no judge, rewards stand in for scores
            stage
            for stage in self.judged.values()
            if SCORES in self.done.get(stage.fingerprint, {"files": {}})["files"]
        ]
        return Record(
            experiment=f"runs/{run.profile}",
            note=NOTE.format(run.profile),
            view=KIND_TAG,
            identity=run_identity(run),
            name=f"{run.run_id} · seed {run.seed}",
            status=status,
            start_ms=self._start(),
            end_ms=end_ms,
            params=self._params(profile),
            tags=self._tags(profile, places, status),
            scores_digest=sha256(
                [self._costs(), *(self._digest(j.fingerprint, SCORES) for j in judges)]
            ),
            read_scores=lambda: self._costs() | _scores(self.store, judges),
            datasets=self._datasets(),
            costs=self._costs(),
            files=self._files(judges),
            model=self._model(status),
            curves=self._curves(),
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

    def _params(self, profile: Profile) -> dict[str, str]:
        run = self.run
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

    def _tags(self, profile: Profile, places: Sequence[str], status: Status) -> dict[str, str]:
        run = self.run
        tags = {
            "mlflow.source.name": f"harness run · {run.run_id} · seed {run.seed}",
            "mlflow.source.type": "LOCAL",
            "tables": join(place.partition("/")[0] for place in places),
            "cells": join(places),
            "scale": profile.scale,
            "state": {"FINISHED": "done", "FAILED": "failed"}.get(status, "unfinished"),
            NOTE_TAG: f"The recipe {run.run_id} with seed {run.seed} on the profile {run.profile}, "
            f"behind {join(places)}.",
            "stages": f"{len(self.done)}/{len(self.stages)}",
            "policy": self._named("policy"),
            "reward_model": join(reward_models_named(self.stages)),
            "creator": self._named("creator"),
            "judge": self._judge(),
            "benchmarks": join(
                stage.settings["benchmark"]
                for stage in self.judged.values()
                if "benchmark" in stage.settings
            ),
        }
        if status == "FAILED":
            reasons = "; ".join(f"{f['label']}: {f['reason']}" for f in self.failures)
            tags["failure"] = reasons[:LONGEST_TAG]
        return tags | self._provenance()

    def _named(self, setting: str) -> str:
        return join(s.settings[setting] for s in self.stages if setting in s.settings)

    def _judge(self) -> str:
        judges = {name: stage.settings.get("judge") for name, stage in self.judged.items()}
        if len(set(map(str, judges.values()))) <= 1:
            return join(judges.values())
        return join(f"{name}: {judge}" for name, judge in judges.items())

    def _provenance(self) -> dict[str, str]:
        found = [manifest["provenance"] for manifest in self.done.values()]
        known = [provenance["commit"] for provenance in found if provenance["commit"]]
        return {
            "commit": join(provenance["commit"] or "unknown" for provenance in found),
            "dirty": join(p["dirty"] if p["dirty"] is not None else "unknown" for p in found),
            **({"mlflow.source.git.commit": known[-1]} if known else {}),
        }

    def _datasets(self) -> tuple[Dataset, ...]:
        """Return the tables each iteration was trained on and drew its prompts from."""
        return tuple(
            Dataset(
                f"{iteration_name(self.run, number)}/{name.removesuffix('.parquet')}",
                file["sha256"],
                lambda stage=stage, name=name: self._file(stage, name),  # type: ignore[misc]
            )
            for number, iteration in enumerate(self.run.iterations, start=1)
            for stage in dict.fromkeys((iteration.prompts, iteration.pairs))
            if stage.fingerprint in self.done
            for name, file in sorted(self.done[stage.fingerprint]["files"].items())
            if name.endswith(".parquet")
        )

    def _file(self, stage: Stage, name: str) -> Path:
        """Return a file of a finished stage, checked."""
        return self.store.file(stage.fingerprint, name)

    def _files(self, judges: Sequence[Stage]) -> Files:
        """Return the recipe and the judgments of a run as artifacts."""
        recipe = recipe_file({self.run.run_id: self.run.recipe.canonical()})
        judged = {
            f"judgments/{stage.settings['benchmark']}.json": stage
            for stage in judges
            if "benchmark" in stage.settings
        }
        return Files(
            sha256([recipe.digest, *sorted(stage.fingerprint for stage in judged.values())]),
            lambda: {**recipe.make(), **{path: self._judgments(it) for path, it in judged.items()}},
        )

    def _judgments(self, stage: Stage) -> Columns:
        """Return each prompt with its answer and its scores, as far as the stages have them."""
        import pyarrow.parquet as pq

        found: dict[str, dict[str, object]] = {}
        answered = stage.inputs.get("answers")
        if answered is not None and ANSWERS in self.done[answered.fingerprint]["files"]:
            for row in pq.read_table(self._file(answered, ANSWERS)).to_pylist():
                asked = json.loads(row["conversation"])
                if len(asked) == 1:  # of two turns the first is shown
                    said = {"prompt": asked[0]["content"], "answer": row["completion"]}
                    found[row["prompt_id"]] = said
        scores = pq.read_table(self._file(stage, SCORES)).to_pylist()
        columns = dict.fromkeys(row["column"] for row in scores)
        for row in scores:
            found.setdefault(row["prompt_id"], {})[row["column"]] = row["value"]
        rows = [{**row, "prompt_id": prompt} for prompt, row in found.items()][:LONGEST_TABLE]
        # MLflow's page groups by the first column and compares the second.
        named = [*dict.fromkeys(n for row in rows for n in row if n not in columns), *columns]
        return {name: [row.get(name) for row in rows] for name in named}

    def _model(self, status: Status) -> Model | None:
        """Return the trained policy of a run that is whole; None where nothing is trained."""
        run = self.run
        if status != "FINISHED" or not run.training:
            return None
        last = run.training[-1].fingerprint
        return Model(
            name=f"{run.run_id}-seed{run.seed}",
            location=str(self.store.path(last)),
            params={"run": run.run_id, "seed": str(run.seed), "profile": run.profile},
            tags={"stage": last, "policy": self._named("policy")},
        )

    def _curves(self) -> dict[str, Curves]:
        found = {}
        for prefix, stages in trained_in(self.run).items():
            done = [stage.fingerprint for stage in stages if stage.fingerprint in self.done]
            if done:
                digests = [self._digest(name, "progress.jsonl") for name in done]
                found[prefix] = Curves(
                    digests[0] if len(digests) == 1 else sha256(digests),
                    lambda done=done: [p for n in done for p in self.store.progress(n)],  # type: ignore[misc]
                )
        return found

    def _costs(self) -> dict[str, float]:
        """Return the seconds all stages of a finished run took, shared ones counted in full."""
        if len(self.done) < len(self.stages):
            return {}
        return {
            "cost/wall_s": math.fsum(manifest["wall_s"] for manifest in self.done.values()),
            "cost/cpu_s": math.fsum(manifest["cpu_s"] for manifest in self.done.values()),
        }

    def _digest(self, stage: str, name: str) -> str:
        file = self.done[stage]["files"].get(name)
        return file["sha256"] if file else "none"


def _scores(store: Store, judges: Sequence[Stage]) -> dict[str, float]:
    import pyarrow.parquet as pq

    values: dict[str, list[float]] = {}
    for stage in judges:
        table = pq.read_table(store.file(stage.fingerprint, SCORES), columns=["column", "value"])
        for row in table.to_pylist():
            values.setdefault(metric_name(row["column"]), []).append(row["value"])
    return {f"ours/{column}": math.fsum(found) / len(found) for column, found in values.items()}
