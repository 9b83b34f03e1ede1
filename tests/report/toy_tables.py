"""A small table whose stages are written by hand: nothing here runs a model."""

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from toy_identities import PROVENANCE, toy_planned

from harness.pipeline.runs import TableRuns
from harness.registry.profile import load_profiles
from harness.registry.schema import Table
from harness.report.build import stored_results
from harness.report.controls import KnownControls
from harness.report.model import Cell
from harness.report.results import Results
from harness.runtime import Plan, Stage, Store

DECLARATION: dict[str, Any] = {
    "id": "table90",
    "kind": "ablation",
    "title": "A toy",
    "question": "Does it matter?",
    "source": {"section": "4", "table": 90, "caption": "Toy."},
    "columns": [
        {"id": "ah_wr", "benchmark": "Arena-Hard v0.1", "metric": "win rate", "printed": "WR (%)",
         "unit": "%", "direction": "higher"},
        {"id": "mt_avg", "benchmark": "MT-Bench", "metric": "mean rating", "printed": "avg.",
         "unit": "1-10", "direction": "higher"},
        {"id": "gsm8k", "benchmark": "GSM8K", "metric": "accuracy", "printed": "GSM8K",
         "unit": "%", "direction": "higher"},
    ],
    "recipe": {"algorithm": "dpo", "chain": ["human", "eva"]},
    "rows": [
        {"id": "base", "label": "θ_0: SFT", "run": "base", "baseline": "dpo-1",
         "recipe": {"algorithm": None}, "values": {"ah_wr": "41.3"}},
        {"id": "dpo-1", "label": "θ_{0→1}: DPO", "run": "dpo-h1",
         "recipe": {"chain": ["human"]}, "values": {"ah_wr": "51.6", "mt_avg": "8.66"}},
        {"id": "eva-uniform", "label": "θ_{1→1̄}: + eva", "run": "dpo-eva-uniform",
         "baseline": "dpo-1", "recipe": {"creator": {"metric": "uniform"}},
         "values": {"ah_wr": "57.5", "mt_avg": "8.71"}},
        {"id": "eva-a_min", "label": "θ_{1→1̄}: + eva", "run": "dpo-eva-a_min",
         "baseline": "dpo-1", "recipe": {"creator": {"metric": "a_min"}},
         "values": {"ah_wr": "60.1", "mt_avg": "8.90"}},
    ],
    "notes": ["A note."],
}  # fmt: skip

CLAIM: dict[str, Any] = {
    "id": "it", "primary": True, "statement": "A_min beats DPO.", "source": "here",
    "test": {"kind": "compare", "left": "eva-a_min", "op": ">", "right": "dpo-1",
             "column": "ah_wr"},
}  # fmt: skip
"""That the last row of the table is above its baseline."""

BENCHMARK = {"ah_wr": "arena_hard", "mt_avg": "mt_bench", "ae_lc": "alpaca_eval"}


def toy_runs(
    seeds: Sequence[int] = (0, 1), scale: str = "toy", table: Mapping[str, Any] = DECLARATION
) -> TableRuns:
    """Plan the toy table, at a profile with three benchmarks."""
    checked = Table.model_validate(table)
    micro = load_profiles()["micro"]
    benchmarks = {name: b for name, b in micro.benchmarks.items() if name in BENCHMARK.values()}
    profile = micro.model_copy(update={"scale": scale, "benchmarks": benchmarks})
    return toy_planned(checked, profile, seeds)


def judge_of(runs: TableRuns, run_id: str, seed: int, score: str) -> Stage:
    return runs.runs[run_id, seed].judged[BENCHMARK[score]]


def write_files(store: Store, stage: Stage, **files: Any) -> None:
    """Write a stage that is not done: rows as Parquet, others as JSON, by names without ending."""
    if store.status(stage.fingerprint) == "done":
        return
    with store.writing(stage, PROVENANCE) as output:
        for name, content in files.items():
            if isinstance(content, list):
                pq.write_table(pa.Table.from_pylist(content), output / f"{name}.parquet")
            else:
                (output / f"{name}.json").write_text(json.dumps(content), encoding="utf-8")


def write_scores(
    store: Store, runs: TableRuns, run_id: str, seed: int, **scores: Mapping[str, float]
) -> None:
    """Write the judge's stages of a run: `ah_wr={"p0": 50.0, ...}`."""
    for score, values in scores.items():
        rows = score_rows(score, values)
        write_files(store, judge_of(runs, run_id, seed, score), scores=rows)


def score_rows(score: str, values: Mapping[str, float]) -> list[dict[str, Any]]:
    return [{"prompt_id": p, "column": score, "value": value} for p, value in values.items()]


def write_all(store: Store, runs: TableRuns) -> None:
    """Write every judge's stage; dpo-h1 < base < uniform < a_min in both columns."""
    levels = {"dpo-h1": 50.0, "base": 51.0, "dpo-eva-uniform": 53.0, "dpo-eva-a_min": 54.5}
    for run_id, seed in runs.runs:
        wins = {f"p{i}": levels[run_id] + 2 * i + 2 * seed for i in range(4)}
        rating = {f"m{i}": levels[run_id] / 10 + i + seed / 7 for i in range(3)}
        write_scores(store, runs, run_id, seed, ah_wr=wins, mt_avg=rating)


def write_luck(store: Store, runs: TableRuns) -> None:
    """Let the last row's gain of 4.5 differ a little from prompt to prompt and from seed to seed.

    To be called before `write_all`.
    """
    for seed in runs.seeds:
        luck = (0.01, -0.01, -0.01 * (1 + seed), 0.01 * (1 + seed))
        wins = {f"p{i}": 54.5 + 2 * i + 2 * seed + luck[i] for i in range(4)}
        write_scores(store, runs, "dpo-eva-a_min", seed, ah_wr=wins)


def stored(runs: TableRuns, store: Store) -> Results:
    """Return what a store holds of some runs."""
    return stored_results(runs, KnownControls(runs.profile, store))


def write_prompts(store: Store, runs: TableRuns) -> None:
    """Write the prompts and pairs of every run, and the answers to the pairwise benchmarks."""
    for stage in Plan(runs.targets):
        if stage.kind == "prompts":
            write_files(store, stage, prompts=[{"prompt": "sort 3 1 2"}])
        elif stage.kind in ("pair", "mix"):
            text = "now sort 3 1 2" if stage.kind == "mix" else "sort 3 1 2"
            pair = {"prompt": text, "reward_rejected": 0.0, "reward_chosen": 1.0}
            write_files(store, stage, pairs=[pair])
        elif stage.kind == "answer":
            asked = [{"role": "user", "content": "hello"}, {"role": "assistant", "content": "hi"},
                     {"role": "user", "content": "now sort 1 2"}]  # fmt: skip
            write_files(store, stage, answers=[{"conversation": json.dumps(asked)}])


def write_whole(store: Store, runs: TableRuns) -> None:
    """Write all that a report reads: scores, prompts and the benchmarks' answers."""
    write_all(store, runs)
    write_prompts(store, runs)


def by_place(cells: Sequence[Cell]) -> dict[tuple[str, str], Cell]:
    return {(cell.row, cell.column): cell for cell in cells}


def scores_file(folder: Path) -> Path:
    return folder / "scores.parquet"


def change_rows(file: Path, change: Callable[[list[dict[str, Any]]], object]) -> None:
    """Change the rows of a published file, whose digest stays what it was."""
    rows = pq.read_table(file).to_pylist()
    change(rows)
    pq.write_table(pa.Table.from_pylist(rows), file)
