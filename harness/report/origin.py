"""Provenance of a table's numbers: models, judges, creators, and the code that computed them.

Models come from the settings of the planned stages. Versions come from the manifests of finished
stages; they are not part of a result's key, so a table can have several, and all are listed.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from harness.pipeline.algorithm import Run
from harness.pipeline.factory import reward_models_named
from harness.pipeline.runs import FigureRuns, TableRuns
from harness.report.model import Origin
from harness.runtime import Stage, Store
from harness.runtime.manifest import Manifest
from harness.runtime.plan import inputs_first


def origin_of(
    table_runs: TableRuns | FigureRuns, store: Store, benchmarks: Iterable[str]
) -> Origin:
    runs = list(table_runs.runs.values())
    judges = {
        name: ", ".join(
            distinct(_judge(run.judged[name], store) for run in runs if name in run.judged)
        )
        for name in benchmarks
    }
    stages = list(inputs_first(table_runs.targets))
    found = [(stage, store.find(stage.fingerprint)) for stage in stages]
    done = [(stage, manifest) for stage, manifest in found if manifest is not None]
    manifests = [manifest for _, manifest in done]
    began = [manifest["started"] for stage, manifest in done if chooses_by_metric(stage)]
    return Origin(
        policies=_settings(stages, "policy"),
        prompts=_settings((it for it in stages if it.kind == "prompts"), "source"),
        reward_models=tuple(_reward_models(stages, store)),
        creators=_settings(stages, "creator"),
        judges=judges,
        commits=distinct(map(_commit, manifests)),
        libraries=distinct(map(_libraries, manifests)),
        processors=distinct(manifest["provenance"]["cpu"] for manifest in manifests),
        stages=len(stages),
        stages_done=len(done),
        finished=max((manifest["finished"] for manifest in manifests), default=None),
        by_metric_since=min(began, default=None),
    )


def _judge(stage: Stage, store: Store) -> str:
    """Return the judge a stage requested, and the one that answered if different."""
    name = str(stage.settings["judge"])
    if store.status(stage.fingerprint) != "done":
        return name
    note = stage_summary(store, stage).get("notes", {}).get("judge")
    return f"{name} ({note.removeprefix(f'asked for {name}, ')})" if note else name


def chooses_by_metric(stage: Stage) -> bool:
    online = stage.settings.get("online")
    if isinstance(online, Mapping):
        of_eva = online.get("prompts") == "eva" and online.get("oracle") is None
        return of_eva and online.get("metric") != "uniform"
    return stage.kind == "select" and stage.settings["metric"] != "uniform"


def _reward_models(stages: Sequence[Stage], store: Store) -> Iterator[str]:
    """Yield reward model names, with the weights' verification status for published models."""
    for name in reward_models_named(stages):
        said = (
            stage_summary(store, stage).get("weights")
            for stage in stages
            if stage.kind in ("annotate", "online") and stage.settings.get("reward_model") == name
            if store.status(stage.fingerprint) == "done"
        )
        weights = next(filter(None, said), "embedded")
        # Embedded models ship with the package, and a function has no weights.
        nothing_to_verify = weights in ("embedded", "none")
        yield name if nothing_to_verify else f"{name} (weights: {weights})"


def stage_summary(store: Store, stage: Stage) -> dict[str, Any]:
    """Return a stage's `summary.json`; empty if it has none."""
    path = store.file(stage.fingerprint, "summary.json")
    # The stage may have run before it wrote a summary; its results are still valid.
    if not path.exists():
        return {}
    found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return found


JUDGING = ("answer", "judge", "rate")
"""Kinds of stages that evaluate a run's policy or prompts."""


def made_by(run: Run) -> list[Stage]:
    """Return the stages that produce a run's policy or prompts, without those that judge them."""
    return [stage for stage in inputs_first(run.targets) if stage.kind not in JUDGING]


def makers_of(runs: Iterable[Run], store: Store) -> dict[str, tuple[str, ...]]:
    """Return the `Cell` fields naming the models that made the runs' policies or prompts."""
    stages = [stage for run in runs for stage in made_by(run)]
    named = tuple(_reward_models(stages, store))
    return {"reward_models": named, "creators": _settings(stages, "creator")}


def _settings(stages: Iterable[Stage], name: str) -> tuple[str, ...]:
    """Return the distinct values of a setting, of the stages that have it."""
    values = (stage.settings.get(name) for stage in stages)
    return distinct(value for value in values if value is not None)


def distinct(values: Iterable[object]) -> tuple[str, ...]:
    return tuple(sorted({str(value) for value in values}))


def _commit(manifest: Manifest) -> str:
    provenance = manifest["provenance"]
    if provenance["commit"] is None:
        return "none (not a git checkout, or without a commit)"
    return provenance["commit"][:12] + (" (changed)" if provenance["dirty"] else "")


def _libraries(manifest: Manifest) -> str:
    provenance = manifest["provenance"]
    versions = [f"{name} {v}" for name, v in provenance["versions"].items() if v is not None]
    return ", ".join([f"python {provenance['python']}", *versions])
