"""Shared by stage functions: the files they exchange, and progress reporting."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from operator import itemgetter
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from harness.errors import HarnessError
from harness.evaluation.files import Answer
from harness.runtime.stage import StageContext

Rows = list[dict[str, Any]]


def schema_of(*columns: tuple[str, pa.DataType] | str | pa.Field) -> pa.Schema:
    """Return the schema of columns; a bare name is a text column."""
    return pa.schema([(column, TEXT) if isinstance(column, str) else column for column in columns])


TEXT, INT, REAL = pa.string(), pa.int64(), pa.float64()

PROMPT_SCHEMA = schema_of(
    "prompt_id", "prompt", "source", "parent_id", ("generation", INT), "method"
)
"""Columns of `prompts.parquet`: the fields of `harness.eva.evolving.Prompt`."""

ATTEMPT_SCHEMA = schema_of(
    "child_id", "parent_id", ("attempt", INT), "method", "reason", "written", "creator"
)
"""Columns of `attempts.parquet`: the fields of `harness.eva.evolving.Attempt`, and the creator's
identity, which for a model includes the digest of its templates."""

SELECTED_SCHEMA = schema_of(
    *PROMPT_SCHEMA, ("informativeness", REAL), ("weight", REAL), ("draw", INT)
)
"""Columns of `selected.parquet`."""

COMPLETION_SCHEMA = schema_of(*PROMPT_SCHEMA, ("sample", INT), "completion", ("n_tokens", INT))
"""Columns of `completions.parquet`."""

PAIR_SCHEMA = schema_of(
    *PROMPT_SCHEMA, "chosen", "rejected", ("reward_chosen", REAL), ("reward_rejected", REAL)
)
"""Columns of `pairs.parquet`; it has the lineage because a mix's prompts can be evolved again."""

OPEN_PAIR_SCHEMA = schema_of(
    *PAIR_SCHEMA, ("chosen_open", pa.bool_()), ("rejected_open", pa.bool_())
)
"""The same where it matters whether an answer was cut off at the limit of tokens."""


def pair_schema(rows: Rows) -> pa.Schema:
    return OPEN_PAIR_SCHEMA if rows and "chosen_open" in rows[0] else PAIR_SCHEMA


SCORE_SCHEMA = schema_of("prompt_id", "column", ("value", REAL))
"""Columns of `scores.parquet`, which may have no rows."""


PROMPT_FILES = ("prompts.parquet", "selected.parquet", "pairs.parquet")


def read_prompts(folder: Path, files: Sequence[str] = PROMPT_FILES) -> Rows:
    """Read prompts with their lineage from the folder of any stage: the first of `files` there."""
    for name in files:
        if (folder / name).exists():
            return read_rows(folder / name)
    raise FileNotFoundError(f"no prompts in {folder}")


def read_topics(folder: Path, topic_of: Callable[[str], str]) -> list[tuple[str, str]]:
    """Return the id and topic of each prompt in the folder of a stage that has prompts."""
    rows = read_prompts(folder, ("completions.parquet", "trained.parquet", *PROMPT_FILES))
    return [(row["prompt_id"], topic_of(row["prompt"])) for row in rows]


def draw_prompts(
    settings: Mapping[str, Any], texts_of: Callable[[str], Sequence[str]]
) -> dict[int, str]:
    """Return a stage's prompts by position, from a pool that the seed shuffles.

    Off-target ones come after the first `on_target`, numbered after the pool.
    """
    seed, first, count = (settings[name] for name in ("seed", "first", "count"))
    pool = texts_of(settings["source"])
    others = texts_of(settings["off_target"]) if "off_target" in settings else ()
    human = settings.get("on_target", count)
    order = np.random.default_rng(seed).permutation(len(pool))
    found = {int(i): pool[i] for i in order[first : first + human]}
    order = np.random.default_rng(seed).permutation(len(others))
    found |= {len(pool) + int(i): others[i] for i in order[: count - human]}
    if len(found) < count:
        raise HarnessError(
            f"`{settings['source']}` has too few prompts for {count} from position {first}"
        )
    return found


def read_rewards(folder: Path) -> tuple[list[str], NDArray[np.float64]]:
    """Read rewards as prompt ids and an array of shape (prompts, samples)."""
    rows = read_rows(folder / "rewards.parquet")
    n = 1 + max(row["sample"] for row in rows)
    rewards = np.array([row["reward"] for row in rows], np.float64).reshape(-1, n)
    return [row["prompt_id"] for row in rows[::n]], rewards


def read_answers(folder: Path) -> dict[str, Answer]:
    """Read a policy's answers to a benchmark; `tokens` is the length of the first turn."""
    turns: dict[str, Rows] = {}
    for row in sorted(read_rows(folder / "answers.parquet"), key=itemgetter("turn")):
        turns.setdefault(row["prompt_id"], []).append(row)
    return {
        prompt_id: Answer(tuple(row["completion"] for row in rows), rows[0]["n_tokens"])
        for prompt_id, rows in turns.items()
    }


def read_rows(path: Path, *columns: str) -> Rows:
    """Read a Parquet file as rows, with the given columns or all."""
    with pq.ParquetFile(path) as file:  # `read_table` would load pandas
        rows: Rows = file.read(columns=list(columns) or None).to_pylist()
    return rows


Result = tuple[Rows, Mapping[str, Any] | None]


def writes(
    name: str, schema: pa.Schema | Callable[[Rows], pa.Schema] | None = None
) -> Callable[[Callable[[StageContext], Result]], Callable[[StageContext], None]]:
    """Turn a function that returns rows and a summary (or None) into a stage that writes both."""

    def stage_of(function: Callable[[StageContext], Result]) -> Callable[[StageContext], None]:
        @wraps(function)
        def stage(ctx: StageContext) -> None:
            rows, summary = function(ctx)
            own = schema(rows) if callable(schema) else schema
            write_rows(ctx.output / f"{name}.parquet", rows, own)
            if summary is not None:
                write_json(ctx.output / "summary.json", summary)

        return stage

    return stage_of


def write_rows(path: Path, rows: Rows, schema: pa.Schema | None = None) -> None:
    pq.write_table(pa.Table.from_pylist(rows, schema), path)


def write_judged(
    ctx: StageContext,
    judgments: Rows,
    scores: Rows,
    summary: Mapping[str, Any],
    schema: pa.Schema | None = None,
) -> None:
    """Write the files of a judging stage; `schema` is needed if there may be no judgments."""
    write_rows(ctx.output / "judgments.parquet", judgments, schema)
    write_rows(ctx.output / "scores.parquet", scores, SCORE_SCHEMA)
    judged = {name: ctx.settings[name] for name in ("benchmark", "judge")}
    write_json(ctx.output / "summary.json", {**judged, **summary})


def write_json(path: Path, data: Mapping[str, Any]) -> None:
    path.write_text(json.dumps(data, indent=1, sort_keys=True) + "\n", encoding="utf-8")


def progress_callback(ctx: StageContext, name: str, before: int = 0) -> Callable[[int, int], None]:
    """Return a callback that takes the number of prompts done, and of all, and reports every 5%.

    They finish in any order; in steps of 5% the curve, from 0 to 1, is the same in every run.
    """
    last = 0

    def done(count: int, of: int) -> None:
        nonlocal last
        ctx.expect(before + of)
        for twentieth in range(1, 20 * count // of + 1):
            reached = -(-of * twentieth // 20)
            if reached > last:
                last = reached
                ctx.report(before + reached, {name: reached / of})

    return done
