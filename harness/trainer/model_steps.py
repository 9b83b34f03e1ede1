"""The stages that run a model or ask a judge: generate, annotate, rewrite, train, answer, judge."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Literal, cast

import pyarrow as pa
import pyarrow.parquet as pq

from harness.errors import HarnessError, UserError
from harness.registry.training import Hardware
from harness.runtime import Json, StageContext
from harness.worlds.lookup import (
    Ask,
    answering,
    policy_folder,
    resolve,
    revision_instruction,
    runtime_of,
)
from harness.worlds.stage_io import (
    COMPLETION_SCHEMA,
    PAIR_SCHEMA,
    PROMPT_SCHEMA,
    Rows,
    read_prompts,
    read_rows,
    write_json,
    write_rows,
)

if TYPE_CHECKING:
    from harness.models.loading import Conversation
    from harness.training.launch import OnLog
    from harness.worlds.lookup import PolicyAnswer
    from harness.worlds.protocol import Item

SCORING_BATCH = 256
"""Sequences scored at a time; rewards do not depend on it beyond rounding."""


def generate_stage(ctx: StageContext) -> None:
    """Answer every prompt n times; reads the prompts, writes `completions.parquet`."""
    prompts = read_prompts(ctx.inputs["prompts"])
    with answering(ctx) as ask:
        asked = [user(row["prompt"]) for row in prompts]
        answers = ask(asked, n=cast(int, ctx.settings["n"]), seed=ctx.seed)
    rows = [
        {
            **{name: row[name] for name in PROMPT_SCHEMA.names},
            "sample": sample,
            "completion": answer.text,
            "n_tokens": answer.n_tokens,
        }
        for row, several in zip(prompts, answers, strict=True)
        for sample, answer in enumerate(several)
    ]
    write_rows(ctx.output / "completions.parquet", rows, COMPLETION_SCHEMA)


def annotate_stage(ctx: StageContext) -> None:
    """Score completions with a reward model; writes `rewards.parquet` in the same order.

    `summary.json` says what read them, whether the published model's own files were ever checked,
    and how many of the texts it read were too long for it and were cut.
    """
    rows = read_rows(ctx.inputs["completions"] / "completions.parquet")
    pairwise = ctx.settings.get("rewards") == "win_probability"
    model = reader_of(ctx, "two answers" if pairwise else "one answer")
    cut: list[int] = []
    rewards = (_win_probabilities if pairwise else _rewards)(model, rows, cut.append)
    write_rows(
        ctx.output / "rewards.parquet",
        [
            {"prompt_id": row["prompt_id"], "sample": row["sample"], "reward": float(reward)}
            for row, reward in zip(rows, rewards, strict=True)
        ],
    )
    identity = ctx.settings.get("reward_model")
    # Only the embedded world's are trained by a stage.
    weights = "embedded" if identity is None else runtime_of(str(identity)).weights(str(identity))
    summary = {
        "reward_model": identity or "trained by the stage before",
        "format": model.format,
        "weights": weights,
        "cut": sum(cut),
    }
    write_json(ctx.output / "summary.json", summary)


def reader_of(ctx: StageContext, reads: Literal["one answer", "two answers"]) -> Any:
    """Load a stage's reward model: one that a stage trained, or one that a file holds."""
    from harness.models.reward_model import load_reward_model

    if "reward_model" in ctx.inputs:
        return load_reward_model(ctx.inputs["reward_model"] / "model", reads)
    return load_reader(str(ctx.settings["reward_model"]), ctx.settings, reads)


def load_reader(
    identity: str, settings: Mapping[str, Json], reads: Literal["one answer", "two answers"]
) -> Any:
    """Load the reward model of an identity, in the number format that a stage's settings say.

    The embedded world's run on the processor wherever they are, so that a GPU changes no number of
    theirs; published ones run on the GPU if there is one.
    """
    from harness.models.reward_model import load_reward_model

    runtime = runtime_of(identity)
    return load_reward_model(
        resolve(identity),
        reads,
        device=runtime.reader_device(),
        dtype=str(settings.get("dtype", "float32")),
    )


def _rewards(model: Any, rows: Rows, on_cut: Callable[[int], None] | None = None) -> list[float]:
    """Return the pointwise rewards of completions."""
    from harness.models.reward_model import score

    conversations = [[*user(row["prompt"]), assistant(row["completion"])] for row in rows]
    rewards = score(model, conversations, batch_size=SCORING_BATCH, on_cut=on_cut)
    return [float(reward) for reward in rewards]


def _win_probabilities(model: Any, rows: Rows, on_cut: Callable[[int], None]) -> list[float]:
    """Return each completion's mean win probability over the completions of its prompt."""
    from harness.models.reward_model import mean_win_probabilities, win_probabilities

    n = 1 + max(row["sample"] for row in rows)
    asked = [user(row["prompt"]) for row in rows[::n]]
    answers = [[row["completion"] for row in rows[i : i + n]] for i in range(0, len(rows), n)]
    matrix = win_probabilities(model, asked, answers, batch_size=SCORING_BATCH, on_cut=on_cut)
    means: list[float] = mean_win_probabilities(matrix).reshape(-1).tolist()
    return means


def rewrite_stage(ctx: StageContext) -> None:
    """Let the policy revise the chosen answers; writes `pairs.parquet` and `summary.json`.

    Every revision is kept, whatever its reward, and its reward takes the place of the old one's.
    """
    rows = read_rows(ctx.inputs["pairs"] / "pairs.parquet")
    instruction = user(revision_instruction(ctx.settings))
    asked = [[*user(row["prompt"]), assistant(row["chosen"]), *instruction] for row in rows]
    with answering(ctx) as ask:
        answers = ask(asked, n=1, seed=ctx.seed)
    revised = [answer.text for (answer,) in answers]
    answered = [{**row, "completion": text} for row, text in zip(rows, revised, strict=True)]
    rewards = _rewards(reader_of(ctx, "one answer"), answered)
    summary = {
        "pairs": len(rows),
        "unchanged": sum(r["chosen"] == text for r, text in zip(rows, revised, strict=True)),
        "reward_before": sum(row["reward_chosen"] for row in rows) / len(rows),
        "reward_after": sum(rewards) / len(rows),
    }
    written = [
        {**row, "chosen": text, "reward_chosen": reward}
        for row, text, reward in zip(rows, revised, rewards, strict=True)
    ]
    write_rows(ctx.output / "pairs.parquet", written, PAIR_SCHEMA)
    write_json(ctx.output / "summary.json", summary)


def train_stage(ctx: StageContext) -> None:
    """Train the policy on pairs; writes `model/` and `log.json`.

    A model of the embedded world is trained here, in this process; where the profile has hardware
    for large ones (`numerics` in the settings), under `accelerate`.
    """
    algorithm = str(ctx.settings["algorithm"])
    start = policy_folder(ctx)
    history: Rows = []

    def on_log(step: int, metrics: Mapping[str, float]) -> None:
        history.append({"step": step, **metrics})
        ctx.report(step, metrics)

    pairs = pq.read_table(ctx.inputs["pairs"] / "pairs.parquet")
    if algorithm == "sppo":  # its rewards are win probabilities
        for side in ("chosen", "rejected"):
            pairs = pairs.append_column(f"p_{side}", pairs.column(f"reward_{side}"))
    # A few less where a pair is too long and left out.
    epochs, batch = float(ctx.settings["epochs"]), int(ctx.settings["batch_size"])  # type: ignore[arg-type]
    ctx.expect(math.ceil(epochs * math.ceil(pairs.num_rows / batch)))
    if "numerics" in ctx.settings:
        summary = _train_launched(ctx, algorithm, start, pairs, on_log)
    else:
        from harness.training import offline

        chosen = offline.algorithm_of(algorithm, ctx.settings)
        summary = offline.train(chosen, start, pairs, ctx.output, seed=ctx.seed, on_log=on_log)
    write_json(ctx.output / "log.json", {"history": history, "summary": summary})


def hardware_for_training(ctx: StageContext) -> tuple[Hardware, Path]:
    """Return what a stage is trained on, and the folder of its unfinished work.

    Raises:
        HarnessError: nothing says so.
    """
    if ctx.unfinished is None or "training" not in ctx.hardware:
        raise HarnessError(
            "the stage is trained on hardware of the profile, and nothing says on what hardware: "
            "run it by `harness run` with a profile that has `hardware`"
        )
    return Hardware.model_validate(ctx.hardware["training"]), ctx.unfinished


def _train_launched(
    ctx: StageContext, algorithm: str, start: Path, pairs: pa.Table, on_log: OnLog
) -> dict[str, float]:
    from harness.training.launch import train_launched

    hardware, work = hardware_for_training(ctx)
    with TemporaryDirectory() as scratch:
        file = Path(scratch) / "pairs.parquet"
        pq.write_table(pairs, file)
        return train_launched(
            algorithm=algorithm,
            settings=ctx.settings,
            hardware=hardware,
            policy=start,
            pairs=file,
            output=ctx.output,
            work=work,
            seed=ctx.seed,
            on_log=on_log,
        )


def answer_stage(ctx: StageContext) -> None:
    """Answer a benchmark, turn by turn; writes `answers.parquet`."""
    identity = str(ctx.settings["benchmark"])
    runtime = runtime_of(identity)
    own_answering = runtime.own_answering(identity)
    if own_answering is not None:
        own_answering(ctx, lambda: policy_folder(ctx))
        return
    items = runtime.questions(identity)
    conversations = {item.item_id: user(item.turn_1) for item in items}
    rows: Rows = []
    with answering(ctx) as ask:
        for turn in (1, 2):
            asked = [item for item in items if turn == 1 or item.turn_2 is not None]
            answers = _answers(ask, ctx, asked, conversations, turn)
            for item in asked:
                conversation, answer = conversations[item.item_id], answers[item.item_id]
                rows.append(
                    {
                        "prompt_id": item.item_id,
                        "turn": turn,
                        "conversation": json.dumps(conversation),
                        "completion": answer.text,
                        "n_tokens": answer.n_tokens,
                    }
                )
                follow_up = user(item.turn_2 or "")
                conversations[item.item_id] = [*conversation, assistant(answer.text), *follow_up]
    write_rows(ctx.output / "answers.parquet", rows)


def _answers(
    ask: Ask,
    ctx: StageContext,
    asked: Sequence[Item],
    conversations: Mapping[str, Conversation],
    turn: int,
) -> dict[str, PolicyAnswer]:
    """Return the answer to each item in one turn, those of a temperature sampled together."""
    groups: dict[float, list[Item]] = {}
    for item in asked:
        groups.setdefault(temperature_of(ctx.settings["temperature"], item.category), []).append(
            item
        )
    found: dict[str, PolicyAnswer] = {}
    for number, (temperature, items) in enumerate(groups.items(), start=1):
        answers = ask(
            [conversations[item.item_id] for item in items],
            n=1,
            seed=ctx.seed + turn,
            part=f"turn-{turn}" if len(groups) == 1 else f"turn-{turn}-{number}",
            temperature=temperature,
        )
        found |= {item.item_id: answer for item, (answer,) in zip(items, answers, strict=True)}
    return found


def temperature_of(setting: Json, category: str) -> float:
    """Return the temperature of a category, UserError where a benchmark has it for others only."""
    if not isinstance(setting, Mapping):
        return cast(float, setting)
    if category not in setting:
        raise UserError(
            f"the profile gives no temperature for questions of the category `{category}`; add it "
            "to the benchmark's `temperature`"
        )
    return cast(float, setting[category])


def judge_stage(ctx: StageContext) -> None:
    """Judge answers; writes `judgments.parquet`, `scores.parquet` and `summary.json`."""
    runtime_of(str(ctx.settings["benchmark"])).judge(ctx)


def user(text: str) -> list[dict[str, str]]:
    """Return a conversation that is one user turn."""
    return [{"role": "user", "content": text}]


def assistant(text: str) -> dict[str, str]:
    """Return an assistant's turn."""
    return {"role": "assistant", "content": text}
