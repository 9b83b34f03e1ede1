"""The embedded world while stages run: its files, creator and judges."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np

from harness.errors import HarnessError
from harness.runtime.stage import Json, StageContext
from harness.worlds.embedded import downstream, world
from harness.worlds.embedded.creator import embedded_creator
from harness.worlds.embedded.judge import (
    COLUMNS,
    EXACT_MATCH,
    JUDGE,
    JUDGES,
    Answer,
    Answers,
    judge_downstream,
)
from harness.worlds.embedded.prompt_scores import RULES, SCORERS, complexity, quality
from harness.worlds.embedded.sources import read_items, read_prompts
from harness.worlds.protocol import Evolver, HumanPrompts, Item
from harness.worlds.stage_io import Rows, read_rows, write_json, write_rows
from harness.worlds.stage_io import read_prompts as prompts_of_stage


class EmbeddedRuntime:
    """Loads, rewrites and judges what is the embedded world's (a `Runtime`)."""

    def resolve(self, identity: str) -> Path:
        """Return where the files of an asset lie, after checking their digest."""
        return world.resolve(identity)

    def reader_device(self) -> str:
        """Return the processor wherever it is, so that a GPU changes no number."""
        return "cpu"

    def weights(self, identity: str) -> str:
        """Return that they are embedded."""
        return "embedded"

    def human_prompts(self, settings: Mapping[str, Json]) -> HumanPrompts:
        """Return prompts of the shipped pool; it is as large as a profile says."""
        seed, first, count = (cast(int, settings[name]) for name in ("seed", "first", "count"))
        pool = read_prompts(world.resolve(str(settings["source"])))
        order = np.random.default_rng(seed).permutation(len(pool))
        positions = [int(i) for i in order[first : first + count]]
        if len(positions) < count:
            raise ValueError(f"prompts {first} to {first + count} of a pool of {len(pool)}")
        return HumanPrompts(pool, positions)

    def evolver(
        self, settings: Mapping[str, Json], done: Callable[[int], None] | None = None
    ) -> Evolver:
        """Return the embedded creator; it rewrites at once, so nobody is told how far it is."""
        return Evolver(embedded_creator(str(settings["creator"])))

    def tree_score(self, settings: Mapping[str, Json]) -> Callable[[str], float]:
        """Return the quality that is read from a prompt's text."""
        return quality

    def prompt_metrics(self) -> Mapping[str, Callable[[str], float]]:
        """Return how much a prompt asks for, as far as the embedded language goes."""
        return {"complexity": complexity}

    def questions(self, identity: str) -> Sequence[Item]:
        """Return the items of a benchmark: a file's, or those made anew."""
        if world.name_of(identity) == downstream.NAME:
            return downstream.items_of(identity)
        return read_items(world.resolve(identity))

    def own_answering(self, identity: str) -> None:
        """Return nothing: every question is asked here."""
        return

    def judge(self, ctx: StageContext) -> None:
        """Judge answers by the oracle, those to downstream questions by exact match."""
        identity, judge = str(ctx.settings["benchmark"]), str(ctx.settings["judge"])
        name = world.name_of(identity)
        by_match = name == downstream.NAME
        expected = EXACT_MATCH if by_match else JUDGE
        if judge.partition("/")[2] != expected:
            raise HarnessError(
                f"the embedded world's benchmark `{name}` has no judge `{judge}`; use `{expected}`"
            )
        items = self.questions(identity)
        answers = {
            (row["prompt_id"], row["turn"]): Answer(row["completion"], row["n_tokens"])
            for row in read_rows(ctx.inputs["answers"] / "answers.parquet")
        }
        judgments, scores, summary = (
            _exactly(items, answers) if by_match else _by_oracle(name, items, answers)
        )
        write_rows(ctx.output / "judgments.parquet", judgments)
        write_rows(ctx.output / "scores.parquet", scores)
        write_json(ctx.output / "summary.json", {"benchmark": identity, "judge": judge, **summary})

    def rate(self, ctx: StageContext) -> None:
        """Score prompts from their text."""
        judge = str(ctx.settings["judge"])
        if judge.partition("/")[2] != RULES:
            raise HarnessError(
                f"the embedded world has no judge of prompts `{judge}`; use `{RULES}`"
            )
        prompts = prompts_of_stage(ctx.inputs["prompts"])
        rows = [
            {"prompt_id": row["prompt_id"], "column": column, "value": score(row["prompt"])}
            for column, score in SCORERS.items()
            for row in prompts
        ]
        write_rows(ctx.output / "scores.parquet", rows)
        write_json(ctx.output / "summary.json", {"judge": judge, "n": len(prompts)})


def _by_oracle(
    name: str, items: Sequence[Item], answers: Answers
) -> tuple[Rows, Rows, dict[str, Any]]:
    """Return judgments, per-prompt values and summary of a benchmark that the oracle judges."""
    judgments, result = JUDGES[name](items, answers)
    columns = {score: COLUMNS[score][name] for score in result.scores}
    scores = [
        {"prompt_id": prompt_id, "column": columns[score], "value": float(value)}
        for prompt_id, score, value in result.rows()
    ]
    summary = {
        "scores": {columns[score]: value for score, value in result.scores.items()},
        "n": result.n,
        "n_missing": result.n_missing,
        "per_category": dict(result.per_category),
        "notes": {columns[score]: note for score, note in result.notes.items()},
    }
    return judgments, scores, summary


def _exactly(items: Sequence[Item], answers: Answers) -> tuple[Rows, Rows, dict[str, Any]]:
    """Return judgments, per-prompt values and summary of the downstream tasks."""
    judgments = judge_downstream(items, answers)
    scores = [
        {"prompt_id": j["prompt_id"], "column": j["category"], "value": j["value"]}
        for j in judgments
    ]
    by_task: dict[str, list[float]] = {}
    for row in scores:
        by_task.setdefault(row["column"], []).append(row["value"])
    means = {task: sum(values) / len(values) for task, values in by_task.items()}
    return judgments, scores, {"scores": means, "n": len(scores), "n_missing": 0}
