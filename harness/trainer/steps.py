"""What each kind of stage does: reads its inputs' files, calls the method, writes its own files.

These functions are the only place where the method's pure parts, the models and the disk meet.
Each takes a `StageContext`; the files it reads and writes are named in its docstring.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from harness.eva.evolving import Prompt, evolve
from harness.eva.informativeness import informativeness, weights
from harness.eva.mixing import mix
from harness.eva.pairs import best_against_worst
from harness.eva.selection import select, selected_count
from harness.store.stage import StageContext
from harness.trainer.assets import resolve

FUNCTIONS: Mapping[str, str] = {
    kind: f"{__name__}:{kind}_stage"
    for kind in (
        "prompts",
        "generate",
        "annotate",
        "select",
        "evolve",
        "pair",
        "mix",
        "train",
        "answer",
        "judge",
    )
}
"""The function of each kind of stage, by dotted name."""

SCORING_BATCH = 256
"""Sequences scored at a time; rewards do not depend on it beyond rounding."""

PROMPT_SCHEMA = pa.schema(
    [
        ("prompt_id", pa.string()),
        ("prompt", pa.string()),
        ("source", pa.string()),
        ("parent_id", pa.string()),
        ("generation", pa.int64()),
        ("method", pa.string()),
    ]
)

Rows = list[dict[str, Any]]


def prompts_stage(ctx: StageContext) -> None:
    """Cut a split out of the shuffled pool of human prompts; writes `prompts.parquet`.

    The pool is the same for every seed; the seed decides the order it is cut in, so that splits
    of one seed never overlap (authors' code, `shuffle_ds.py`). A stage that names a benchmark
    takes that benchmark's first turns instead.
    """
    from harness.micro.benchmarks import read_items, read_prompts

    if "benchmark" in ctx.settings:
        items = read_items(resolve(str(ctx.settings["benchmark"])))
        asked = [vars(Prompt(prompt_id=i.item_id, prompt=i.turn_1, source="benchmark")) for i in items]
        _write(ctx.output / "prompts.parquet", asked, PROMPT_SCHEMA)
        return
    pool = read_prompts(resolve(str(ctx.settings["source"])))
    order = np.random.default_rng(cast(int, ctx.settings["seed"])).permutation(len(pool))
    first, count = cast(int, ctx.settings["first"]), cast(int, ctx.settings["count"])
    chosen = order[first : first + count]
    if len(chosen) < count:
        raise ValueError(f"prompts {first} to {first + count} of a pool of {len(pool)}")
    rows = [vars(Prompt(prompt_id=f"h{i:05d}", prompt=pool[i])) for i in chosen]
    _write(ctx.output / "prompts.parquet", rows, PROMPT_SCHEMA)


def generate_stage(ctx: StageContext) -> None:
    """Answer every prompt n times; reads the prompts, writes `completions.parquet`."""
    from harness.models.policy import generate

    prompts = _prompts(ctx.inputs["prompts"])
    s = ctx.settings
    answers = generate(
        _policy(ctx),
        [_user(row["prompt"]) for row in prompts],
        n=cast(int, s["n"]),
        temperature=cast(float, s["temperature"]),
        top_p=cast(float, s["top_p"]),
        max_new_tokens=cast(int, s["max_new_tokens"]),
        batch_size=cast(int, s["batch_size"]),
        seed=ctx.seed,
    )
    rows = [
        {
            **{key: row[key] for key in ("prompt_id", "prompt", "source")},
            "sample": sample,
            "completion": answer.text,
            "n_tokens": answer.n_tokens,
        }
        for row, several in zip(prompts, answers, strict=True)
        for sample, answer in enumerate(several)
    ]
    _write(ctx.output / "completions.parquet", rows)


def annotate_stage(ctx: StageContext) -> None:
    """Score completions with a reward model; writes `rewards.parquet` in the same order."""
    from harness.models.reward_model import score

    rows = _read(ctx.inputs["completions"] / "completions.parquet")
    conversations = [[*_user(row["prompt"]), _assistant(row["completion"])] for row in rows]
    model = resolve(str(ctx.settings["reward_model"]))
    rewards = score(model, conversations, batch_size=SCORING_BATCH)
    _write(
        ctx.output / "rewards.parquet",
        [
            {"prompt_id": row["prompt_id"], "sample": row["sample"], "reward": float(reward)}
            for row, reward in zip(rows, rewards, strict=True)
        ],
    )


def select_stage(ctx: StageContext) -> None:
    """Draw the informative prompts; writes `selected.parquet` in the order drawn."""
    prompts = {row["prompt_id"]: row for row in _prompts(ctx.inputs["prompts"])}
    ids, rewards = _reward_matrix(ctx.inputs["rewards"])
    metric = str(ctx.settings["metric"])
    values = informativeness(rewards, metric)
    shares = weights(values, metric)
    count = selected_count(len(ids), cast(float, ctx.settings["fraction"]))
    rng = np.random.default_rng(ctx.seed)
    drawn = select(shares, count, str(ctx.settings["sampling"]), rng)
    rows = [
        {
            **prompts[ids[position]],
            "informativeness": float(values[position]),
            "weight": float(shares[position]),
            "draw": draw,
        }
        for draw, position in enumerate(drawn)
    ]
    schema = PROMPT_SCHEMA
    for name, kind in (
        ("informativeness", pa.float64()),
        ("weight", pa.float64()),
        ("draw", pa.int64()),
    ):
        schema = schema.append(pa.field(name, kind))
    _write(ctx.output / "selected.parquet", rows, schema)
    summary = {
        "metric": metric,
        "prompts": len(ids),
        "selected": count,
        "without_spread": float(np.mean(np.ptp(rewards, axis=1) == 0.0)),
    }
    _write_json(ctx.output / "summary.json", summary)


def evolve_stage(ctx: StageContext) -> None:
    """Let the creator evolve the selected prompts; writes `prompts.parquet` and `summary.json`."""
    from harness.micro.creator import EmbeddedCreator

    chosen = [
        Prompt(**{name: row[name] for name in PROMPT_SCHEMA.names})
        for row in _read(ctx.inputs["selected"] / "selected.parquet")
    ]
    s = ctx.settings
    result = evolve(
        chosen,
        EmbeddedCreator(),
        evolutions=cast(int, s["evolutions"]),
        retries=cast(int, s["retries"]),
        seed=ctx.seed,
        iteration=cast(int, s["iteration"]),
    )
    _write(ctx.output / "prompts.parquet", [vars(p) for p in result.prompts], PROMPT_SCHEMA)
    summary = {
        "seeds": len(chosen),
        "prompts": len(result.prompts),
        "calls": result.attempts,
        "dropped": result.dropped,
        "unusable": dict(sorted(result.unusable.items())),
        "duplicates": len(result.prompts) - len({p.prompt for p in result.prompts}),
    }
    _write_json(ctx.output / "summary.json", summary)


def pair_stage(ctx: StageContext) -> None:
    """Pair best against worst; writes `pairs.parquet` (of the prompts in `only`, if given)."""
    completions = _read(ctx.inputs["completions"] / "completions.parquet")
    ids, rewards = _reward_matrix(ctx.inputs["rewards"])
    n = rewards.shape[1]
    pairs = best_against_worst(rewards, drop_ties=cast(bool, ctx.settings["drop_ties"]))
    only = ctx.inputs.get("only")
    wanted = None if only is None else {row["prompt_id"] for row in _prompts(only)}
    rows = []
    for k, position in enumerate(pairs.prompt):
        if wanted is not None and ids[position] not in wanted:
            continue
        best = completions[position * n + pairs.chosen[k]]
        worst = completions[position * n + pairs.rejected[k]]
        rows.append(
            {
                **{key: best[key] for key in ("prompt_id", "prompt", "source")},
                "chosen": best["completion"],
                "rejected": worst["completion"],
                "reward_chosen": float(pairs.reward_chosen[k]),
                "reward_rejected": float(pairs.reward_rejected[k]),
            }
        )
    _write(ctx.output / "pairs.parquet", rows)
    _write_json(ctx.output / "summary.json", {"pairs": len(rows), "ties": pairs.ties})


def mix_stage(ctx: StageContext) -> None:
    """Mix evolved and original pairs; writes `pairs.parquet`."""
    base = _read(ctx.inputs["base"] / "pairs.parquet")
    evolved = _read(ctx.inputs["evolved"] / "pairs.parquet")
    share = cast(float, ctx.settings["evolved_share"])
    rng = np.random.default_rng(ctx.seed)
    rows = mix(base, evolved, cast(int, ctx.settings["size"]), share, rng)
    _write(ctx.output / "pairs.parquet", rows)


def train_stage(ctx: StageContext) -> None:
    """Train the policy on pairs; writes `model/` and `log.json`."""
    from harness.training.dpo import DPOHyperparameters, train_dpo

    s = dict(ctx.settings)
    start = _policy(ctx)
    history: Rows = []

    def on_log(step: int, metrics: Mapping[str, float]) -> None:
        history.append({"step": step, **metrics})
        ctx.report(step, metrics)

    hyper = DPOHyperparameters(
        learning_rate=cast(float, s["learning_rate"]),
        beta=cast(float, s["beta"]),
        epochs=cast(float, s["epochs"]),
        batch_size=cast(int, s["batch_size"]),
        micro_batch_size=cast(int, s["batch_size"]),
        max_length=cast(int, s["max_length"]),
        schedule=str(s["lr_scheduler"]),
        warmup_ratio=cast(float, s["warmup_ratio"]),
        weight_decay=cast(float, s["weight_decay"]),
        max_grad_norm=cast(float, s["max_grad_norm"]),
        optimizer=str(s["optimizer"]),
    )
    pairs = pq.read_table(ctx.inputs["pairs"] / "pairs.parquet")
    summary = train_dpo(start, start, pairs, ctx.output, hyper, seed=ctx.seed, on_log=on_log)
    _write_json(ctx.output / "log.json", {"history": history, "summary": summary})


def answer_stage(ctx: StageContext) -> None:
    """Answer a benchmark, turn by turn; writes `answers.parquet`."""
    from harness.micro.benchmarks import read_items
    from harness.models.policy import generate

    items = read_items(resolve(str(ctx.settings["benchmark"])))
    s = ctx.settings
    conversations = {item.item_id: _user(item.turn_1) for item in items}
    rows: Rows = []
    for turn in (1, 2):
        asked = [item for item in items if turn == 1 or item.turn_2 is not None]
        if not asked:
            break
        answers = generate(
            _policy(ctx),
            [conversations[item.item_id] for item in asked],
            n=1,
            temperature=cast(float, s["temperature"]),
            top_p=cast(float, s["top_p"]),
            max_new_tokens=cast(int, s["max_new_tokens"]),
            batch_size=cast(int, s["batch_size"]),
            seed=ctx.seed + turn,
        )
        for item, (answer,) in zip(asked, answers, strict=True):
            conversation = conversations[item.item_id]
            rows.append(
                {
                    "prompt_id": item.item_id,
                    "turn": turn,
                    "conversation": json.dumps(conversation),
                    "completion": answer.text,
                    "n_tokens": answer.n_tokens,
                }
            )
            follow_up = _user(item.turn_2 or "")
            conversations[item.item_id] = [*conversation, _assistant(answer.text), *follow_up]
    _write(ctx.output / "answers.parquet", rows)


def judge_stage(ctx: StageContext) -> None:
    """Judge answers; writes `judgments.parquet`, `scores.parquet` and `summary.json`."""
    from harness.micro.benchmarks import read_items
    from harness.micro.judge import COLUMNS, JUDGES, Answer

    identity = str(ctx.settings["benchmark"])
    name = identity.partition("/")[2].partition("@")[0]
    items = read_items(resolve(identity))
    answers = {
        (row["prompt_id"], row["turn"]): Answer(row["completion"], row["n_tokens"])
        for row in _read(ctx.inputs["answers"] / "answers.parquet")
    }
    judgments, result = JUDGES[name](items, answers)
    columns = {score: COLUMNS[score][name] for score in result.scores}
    _write(ctx.output / "judgments.parquet", judgments)
    _write(
        ctx.output / "scores.parquet",
        [
            {"prompt_id": prompt_id, "column": columns[score], "value": float(value)}
            for prompt_id, score, value in result.rows()
        ],
    )
    summary = {
        "benchmark": identity,
        "judge": ctx.settings["judge"],
        "scores": {columns[score]: value for score, value in result.scores.items()},
        "n": result.n,
        "n_missing": result.n_missing,
        "per_category": dict(result.per_category),
        "notes": {columns[score]: note for score, note in result.notes.items()},
    }
    _write_json(ctx.output / "summary.json", summary)


def _policy(ctx: StageContext) -> Path:
    """Return the folder of the policy: the one trained before, or the base policy."""
    if "policy" in ctx.inputs:
        return ctx.inputs["policy"] / "model"
    return resolve(str(ctx.settings["policy"]))


def _prompts(folder: Path) -> Rows:
    """Read prompts with their lineage from whichever stage made them."""
    for name in ("prompts.parquet", "selected.parquet", "pairs.parquet"):
        if (folder / name).exists():
            return _read(folder / name)
    raise FileNotFoundError(f"no prompts in {folder}")


def _reward_matrix(folder: Path) -> tuple[list[str], np.ndarray[Any, np.dtype[np.float64]]]:
    """Read rewards as prompt ids and an array of shape (prompts, samples)."""
    table = pq.read_table(folder / "rewards.parquet")
    ids = table.column("prompt_id").to_pylist()
    n = 1 + max(table.column("sample").to_pylist())
    rewards = table.column("reward").to_numpy().reshape(-1, n)
    return [str(i) for i in ids[::n]], rewards


def _user(text: str) -> list[dict[str, str]]:
    return [{"role": "user", "content": text}]


def _assistant(text: str) -> dict[str, str]:
    return {"role": "assistant", "content": text}


def _read(path: Path) -> Rows:
    rows: Rows = pq.read_table(path).to_pylist()
    return rows


def _write(path: Path, rows: Rows, schema: pa.Schema | None = None) -> None:
    pq.write_table(pa.Table.from_pylist(rows, schema), path)


def _write_json(path: Path, data: Mapping[str, Any]) -> None:
    path.write_text(json.dumps(data, indent=1, sort_keys=True) + "\n", encoding="utf-8")
