"""What the creator did behind each row: how it drew prompts, and how its rewrites fared.

A row's gain depends on whether its weights decided anything: where fewer prompts than draws have a
positive weight, the rest of the selection is the same as without the metric. These facts are read
from what the creator's stages of the last iteration say of themselves, the one iteration that
differs between the rows of most tables, and averaged over the seeds. Nothing is computed again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from harness.registry.schema import Row
from harness.report.cells import Failures, State
from harness.report.origin import stage_summary
from harness.runtime import Stage, Store

if TYPE_CHECKING:
    from harness.trainer.plan import Run
    from harness.trainer.runs import TableRuns


@dataclass(frozen=True)
class Creation:
    """What the creator did in the last iteration of one run of a row; means over seeds.

    A number is None while the row is not whole, where the run has no such stage, and where a
    stage was computed before it recorded the number.

    Attributes:
        row: Id of the row.
        run: Id of the run; a row whose columns change the recipe has several.
        state: As a cell's; `not_available` where the last iteration has no creator.
        evolves: Whether selected prompts are evolved, rather than trained on as they are.
        done: Seeds whose creator's stages are all there.
        without_weight: Share of the selected prompts that had no weight, from 0 to 1.
        without_spread: Share of the prompts selected from whose answers got equal rewards.
        evolved_without_spread: The same share of the evolved prompts.
        calls: Calls of the creator.
        unusable: Share of the calls whose rewrite was unusable.
        dropped: Children given up after all retries.
        filled: Original pairs in the training mix in place of evolved ones that were lacking.
    """

    row: str
    run: str
    state: State
    evolves: bool
    done: int
    without_weight: float | None = None
    without_spread: float | None = None
    evolved_without_spread: float | None = None
    calls: float | None = None
    unusable: float | None = None
    dropped: float | None = None
    filled: float | None = None

    def as_json(self) -> dict[str, Any]:
        """Return the facts as JSON data."""
        return asdict(self)


def creations(table_runs: TableRuns, store: Store) -> list[Creation]:
    """Return what the creator did in every offline run of every row, in printed order.

    Raises:
        StoreError: A stored file is not what was written.
    """
    failures = Failures(store)
    return [
        _creation(table_runs, row, run_id, store, failures)
        for row in table_runs.rows
        for run_id in dict.fromkeys(row.run_id(column) for column in table_runs.table.columns)
        if not table_runs.runs[run_id, table_runs.seeds[0]].recipe.is_online
    ]


def creator_stages(run: Run) -> dict[str, Stage]:
    """Return the creator's stages of a run's last iteration by what they do.

    Returns:
        `select`, with `evolve` and `pair` (of the evolved prompts) where the iteration evolves;
        empty where it has no creator.
    """
    # An iteration on the same prompts has those of the one before, whoever made them.
    if not run.iterations or run.recipe.chain[-1:] == ("same",):
        return {}
    prompts = run.iterations[-1].prompts
    if prompts.kind == "select":
        return {"select": prompts}
    if prompts.kind not in ("mix", "join"):
        return {}
    pair = prompts.inputs["evolved"]
    evolve = pair.inputs["completions"].inputs["prompts"]
    return {"select": evolve.inputs["selected"], "evolve": evolve, "pair": pair}


def _creation(
    table_runs: TableRuns, row: Row, run_id: str, store: Store, failures: Failures
) -> Creation:
    runs = [creator_stages(table_runs.runs[run_id, seed]) for seed in table_runs.seeds]
    evolves = "evolve" in runs[0]
    if not runs[0]:
        return Creation(row.id, run_id, "not_available", evolves, 0)
    missing = [
        [stage for stage in stages.values() if store.status(stage.fingerprint) != "done"]
        for stages in runs
    ]
    done = missing.count([])
    if done < len(runs):
        failed = any(failures.behind(stage) for stages in missing for stage in stages)
        state: State = "failed" if failed else "partial" if done else "not_run"
        return Creation(row.id, run_id, state, evolves, done)
    facts = [_facts(_said(store, stages)) for stages in runs]
    for seed, found in zip(table_runs.seeds, facts, strict=True):
        found["filled"] = _filled(store, table_runs.runs[run_id, seed].iterations[-1].prompts)
    means = {name: mean_if_whole([seed[name] for seed in facts]) for name in facts[0]}
    return Creation(row.id, run_id, "ok", evolves, done, **means)


def _facts(said: Mapping[str, Mapping[str, Any]]) -> dict[str, float | None]:
    """Return the numbers of one seed from its stages' summaries."""
    select, evolve, pair = (said.get(name, {}) for name in ("select", "evolve", "pair"))
    reasons = evolve.get("unusable")
    return {
        "without_weight": _share(select.get("without_weight"), select.get("selected")),
        "without_spread": select.get("without_spread"),
        "evolved_without_spread": _share(pair.get("ties"), pair.get("pairs")),
        "calls": evolve.get("calls"),
        "unusable": _share(None if reasons is None else sum(reasons.values()), evolve.get("calls")),
        "dropped": evolve.get("dropped"),
    }


def _filled(store: Store, mix: Stage) -> float | None:
    """Return how many evolved pairs a mix lacks; a mix that says nothing of it lacks none."""
    if mix.kind != "mix" or store.status(mix.fingerprint) != "done":
        return None
    said = stage_summary(store, mix)
    return float(said["asked"] - said["evolved"]) if said else 0.0


def _said(store: Store, stages: Mapping[str, Stage]) -> dict[str, dict[str, Any]]:
    # Where ties are dropped, the pairs that are left say nothing of them.
    telling = {k: stage for k, stage in stages.items() if not stage.settings.get("drop_ties")}
    return {name: stage_summary(store, stage) for name, stage in telling.items()}


def _share(part: int | None, whole: int | None) -> float | None:
    return None if part is None or not whole else part / whole


def mean_if_whole(values: Sequence[float | None]) -> float | None:
    """Return the mean of every seed's value, None where one has none."""
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if len(known) == len(values) else None
