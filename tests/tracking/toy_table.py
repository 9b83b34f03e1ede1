"""A toy table: real rows of table 4 at the profile `micro`, with stages written by hand."""

import json
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from mlflow import MlflowClient
from toy_identities import PROVENANCE, toy_planned

from harness.pipeline.runs import TableRuns
from harness.registry.declared import load_tables
from harness.registry.profile import load_profiles
from harness.report.build import without_runs
from harness.report.controls import KnownControls
from harness.report.model import Cell
from harness.report.results import Results
from harness.runtime import Plan, Stage, Store
from harness.runtime.stage import PROGRESS, append_point
from harness.tracking import Mlflow, TableState, Tracker
from harness.tracking.connection import default_uri

ROWS = ("dpo-1", "eva-a_min")
BENCHMARKS = ("arena_hard", "alpaca_eval", "mt_bench")


def toy_runs(seeds: Iterable[int] = (0, 1)) -> TableRuns:
    """Return the runs of two rows of table 4, which share their first iteration."""
    table, profile = load_tables()["table4"], load_profiles()["micro"]
    planned = toy_planned(table, profile, tuple(seeds), [table.row(name) for name in ROWS])
    return replace(planned, runs={at: it.asking(BENCHMARKS) for at, it in planned.runs.items()})


def losses(stage: Stage) -> list[float]:
    """Return the toy loss of each step, from step 1 on; the last is not a number."""
    return [0.5 + stage.seed / 2**32, 0.25, float("nan")]


def score(stage: Stage, column: str) -> float:
    """Return the toy score of a judged column: two prompts, this and 2 more, mean this plus 1."""
    return float(stage.seed % 40) + len(column)


def write(store: Store, stage: Stage) -> None:
    with store.writing(stage, PROVENANCE) as output:
        if stage.kind == "train":
            for step, loss in enumerate(losses(stage), start=1):
                metrics = {"loss": loss, "rewards/margins": step / 8, "grad norm %": 1.0}
                append_point(output / PROGRESS, step, metrics)
        elif stage.kind == "online":
            first = int(str(stage.settings["first_step"]))
            for step in range(first, first + 3):
                append_point(output / PROGRESS, step, {"reward": step / 8})
        elif stage.kind == "judge":
            named = str(stage.settings["benchmark"])
            columns = ("ah_wr", "ah_len") if "arena" in named else ("mt_avg",)
            columns = ("ae_lc",) if "alpaca" in named else columns
            values = [(c, score(stage, c) + extra) for c in columns for extra in (0.0, 2.0)]
            names, numbers = zip(*values, strict=True)
            ids = [f"p{i}" for i in range(len(names))]
            table = pa.table({"prompt_id": ids, "column": names, "value": numbers})
            pq.write_table(table, output / "scores.parquet")
        else:
            name = "pairs" if stage.kind in ("pair", "mix") else "prompts"
            pq.write_table(pa.table({"prompt": [stage.label]}), output / f"{name}.parquet")


def stages(runs: TableRuns) -> tuple[Stage, ...]:
    return Plan(runs.targets).stages


def filled(root: Path, runs: TableRuns) -> Store:
    store = Store(root)
    for stage in stages(runs):
        write(store, stage)
    return store


def toy_cell(row: str, column: str, **changes: Any) -> Cell:
    whole = Cell(
        table="table4", row=row, column=column, profile="micro", scale="toy", seeds=(0,),
        mean=54.25, ci_low=52.0, ci_high=56.5, baseline_row=None, gain=None, gain_ci_low=None,
        gain_ci_high=None, paper=51.6, paper_printed="51.6", paper_gain=None, state="ok", runs=(),
        judge="toy/oracle", reward_models=(), creators=(),
    )  # fmt: skip
    return whole.model_copy(update=changes)


def toy_cells(**changes: Any) -> list[Cell]:
    """Return the cells of both rows in two columns; changes are to `eva-a_min` in `ah_wr`."""
    none = dict.fromkeys(("mean", "ci_low", "ci_high"))
    gain = {"gain": 1.5, "gain_ci_low": 0.5, "gain_ci_high": 2.5, "paper_gain": 8.5}
    return [
        toy_cell("dpo-1", "ah_wr"),
        toy_cell("dpo-1", "mt_avg", mean=6.5, ci_low=6.0, ci_high=7.0, paper=8.66),
        toy_cell("eva-a_min", "ah_wr", **{**gain, **changes}),
        toy_cell("eva-a_min", "mt_avg", state="partial", paper=8.9, paper_gain=0.24, **none),
    ]


def toy_results(cells: Iterable[Cell], seeds: tuple[int, ...] = (0,)) -> Results:
    """Return the results of both rows; other columns have no numbers, and none of the paper's."""
    known = {(cell.row, cell.column): cell for cell in cells}
    controls = KnownControls(load_profiles()["micro"], None)
    empty = without_runs(load_tables()["table4"], controls, "a toy", {})
    nothing = {"state": "not_available", "paper": None, "paper_gain": None}
    found = [
        known.get((cell.row, cell.column)) or cell.model_copy(update={**nothing, "seeds": seeds})
        for cell in empty.report.cells
        if cell.row in ROWS
    ]
    rows = [row for row in empty.report.rows if row.id in ROWS]
    update = {"seeds": seeds, "rows": tuple(rows), "cells": tuple(found)}
    return replace(empty, report=empty.report.model_copy(update=update))


def toy_state(runs: TableRuns, **changes: Any) -> TableState:
    """Return what tracking is told of the toy table; changes are to its cell with a gain."""
    return TableState(runs, toy_results(toy_cells(**changes), runs.seeds))


def toy_tracker(
    work_dir: Path,
    store: Store,
    warn: Callable[[str], None] = pytest.fail,
    uri: str | None = None,
    watch: Callable[[str], None] = lambda line: None,
    **options: float,
) -> Tracker:
    return Tracker(Mlflow(work_dir, warn, uri, watch), store, **options)


def contents(work_dir: Path) -> dict[str, Any]:
    """Return all that MLflow's database holds of active runs, but the ids of runs and folders."""
    client = MlflowClient(default_uri(work_dir))
    found: dict[str, Any] = {}
    for experiment in client.search_experiments():
        runs = client.search_runs([experiment.experiment_id])
        names = {run.info.run_id: run.info.run_name for run in runs}
        for run in runs:
            history = {
                key: sorted(
                    (m.step, m.timestamp, repr(m.value))
                    for m in client.get_metric_history(run.info.run_id, key)
                )
                for key in run.data.metrics
            }
            name = f"{experiment.name} | {run.info.run_name}"
            assert name not in found, f"{name} is there twice"
            tags = dict(run.data.tags)
            parent = tags.pop("mlflow.parentRunId", None)
            found[name] = {
                "info": (run.info.status, run.info.start_time, run.info.end_time),
                "parent": names.get(parent, parent),
                "params": run.data.params,
                "tags": tags,
                "metrics": history,
                "datasets": sorted(
                    (i.dataset.name, i.dataset.digest, i.dataset.source, i.tags[0].value)
                    for i in run.inputs.dataset_inputs
                ),
            }
    return json.loads(json.dumps(found))  # type: ignore[no-any-return]
