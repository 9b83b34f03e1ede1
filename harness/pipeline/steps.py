"""The function of each kind of stage: where the method's pure parts, the models and the disk meet.

Those with `@writes` return a file's rows and a summary. Functions import the model libraries they
need.
"""

from __future__ import annotations

import hashlib
import json
import math
import shutil
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import numpy as np

from harness.endpoint.client import cost_of
from harness.errors import HarnessError, UserError
from harness.eva.evolving import Prompt, evolve
from harness.eva.informativeness import selected_count
from harness.eva.pairs import best_against_worst, evolved_count, mix, repeated
from harness.runtime import StageContext
from harness.runtime.stage import Json
from harness.selectors.eva import Parents, choose
from harness.worlds.lookup import STAGES, Ask, answering, revision_instruction, runtime_of
from harness.worlds.real.models import policy_folder
from harness.worlds.stage_io import (
    ATTEMPT_SCHEMA,
    COMPLETION_SCHEMA,
    PROMPT_SCHEMA,
    SELECTED_SCHEMA,
    Result,
    Rows,
    pair_schema,
    progress_callback,
    read_prompts,
    read_rewards,
    read_rows,
    write_json,
    write_rows,
    writes,
)

if TYPE_CHECKING:
    from harness.models.loading import Conversation
    from harness.models.policy import Completion
    from harness.models.reward_model import Reads, Rewards
    from harness.worlds import Item

FUNCTIONS: Mapping[str, str] = {
    **{
        kind: f"{__name__}:{kind}_stage"
        for kind in (
            *("prompts", "generate", "annotate", "select", "evolve", "pair", "mix", "join"),
            *("rewrite", "repeat", "train", "answer", "judge", "rate"),
        )
    },
    "online": "harness.pipeline.online_steps:online_stage",
    **STAGES,
}


def to_prompts(rows: Rows) -> list[Prompt]:
    """Return the prompts in some rows, ignoring other columns."""
    return [Prompt(**{name: row[name] for name in PROMPT_SCHEMA.names}) for row in rows]


def pairs_of(folder: Path) -> Rows:
    return read_rows(folder / "pairs.parquet")


@writes("prompts", PROMPT_SCHEMA)
def prompts_stage(ctx: StageContext) -> Result:
    """Take a slice of the shuffled pool of new prompts, or a benchmark's first turns."""
    if "benchmark" in ctx.settings:
        identity = ctx.settings["benchmark"]
        items = runtime_of(identity).questions(identity)
        return [vars(Prompt(item.item_id, item.turn_1, "benchmark")) for item in items], None
    human = runtime_of(ctx.settings["source"]).human_prompts(ctx.settings)
    kind, source = ("m", "matched") if "matched" in ctx.settings else ("h", "human")
    prompts = [Prompt(f"{kind}{at:05d}", text, source) for at, text in human.items()]
    return [vars(prompt) for prompt in prompts], None


@writes("selected", SELECTED_SCHEMA)
def select_stage(ctx: StageContext) -> Result:
    """Draw the informative prompts, in the order drawn.

    With a shuffled signal, a prompt's `informativeness` is that of another prompt, which weighted
    it.
    """
    prompts = {row["prompt_id"]: row for row in read_prompts(ctx.inputs["prompts"])}
    ids, rewards = read_rewards(ctx.inputs["rewards"])
    s = ctx.settings
    how = {name: s[name] for name in ("sampling", "too_few")}
    count = selected_count(len(ids), s["fraction"])
    creator = Parents(s["metric"], count, shuffled=s.get("shuffled", False), **how)
    offered = to_prompts([prompts[name] for name in ids])
    groups, chosen = choose(creator, offered, rewards, np.random.default_rng(ctx.seed))
    values = {group.prompt.prompt_id: group.value for group in groups}
    shares = dict(zip(values, creator.chances(groups).tolist(), strict=True))
    rows = [
        {
            **vars(prompt),
            "informativeness": values[prompt.prompt_id],
            "weight": shares[prompt.prompt_id],
            "draw": draw,
        }
        for draw, prompt in enumerate(chosen)
    ]
    return rows, {
        "metric": s["metric"],
        "prompts": len(ids),
        "selected": count,
        "without_weight": sum(row["weight"] == 0.0 for row in rows),
        "without_spread": float(np.mean(np.ptp(rewards, axis=1) == 0.0)),
    }


@writes("prompts", PROMPT_SCHEMA)
def evolve_stage(ctx: StageContext) -> Result:
    """Let the creator evolve the selected prompts."""
    chosen = to_prompts(read_prompts(ctx.inputs["selected"]))
    s = ctx.settings
    evolver = runtime_of(s["creator"]).evolver(s, progress_callback(ctx, "evolved"))
    result = evolve(
        chosen,
        evolver.creator,
        evolutions=s["evolutions"],
        retries=s["retries"],
        seed=ctx.seed,
        iteration=s["iteration"],
        chained=s.get("shape") != "independent",
        over=evolver.over,
    )
    if not result.prompts:
        reasons = ", ".join(f"{n} {why}" for why, n in sorted(result.unusable.items()))
        raise HarnessError(
            f"none of {result.attempts} rewrites by {s['creator']} can be used ({reasons}): look "
            "at the prompts it was given, or name another creator in the profile"
        )
    attempts = [{**vars(a), "creator": s["creator"]} for a in result.tried]
    write_rows(ctx.output / "attempts.parquet", attempts, ATTEMPT_SCHEMA)
    summary = {
        "seeds": len(chosen),
        "prompts": len(result.prompts),
        "calls": result.attempts,
        "dropped": result.dropped,
        "unusable": dict(sorted(result.unusable.items())),
        "duplicates": len(result.prompts) - len({p.prompt for p in result.prompts}),
    }
    if evolver.client is not None:
        summary["cost"] = cost_of([evolver.client])
    return [vars(prompt) for prompt in result.prompts], summary


@writes("pairs", pair_schema)
def pair_stage(ctx: StageContext) -> Result:
    """Pair each prompt's best answer with its worst; only prompts in `only`, if given."""
    ids, rewards = read_rewards(ctx.inputs["rewards"])
    rewarded = set(ids)
    completions = [
        row
        for row in read_rows(ctx.inputs["completions"] / "completions.parquet")
        if row["prompt_id"] in rewarded
    ]
    wanted = rewarded
    if "only" in ctx.inputs:
        wanted = {row["prompt_id"] for row in read_prompts(ctx.inputs["only"])}
    rows, ties = [], 0
    for i, (best, worst) in enumerate(zip(*best_against_worst(rewards), strict=True)):
        if ids[i] not in wanted:
            continue
        ties += int(best == worst)
        answers = completions[i * rewards.shape[1] : (i + 1) * rewards.shape[1]]
        row = {
            **{name: answers[best][name] for name in PROMPT_SCHEMA.names},
            "chosen": answers[best]["completion"],
            "rejected": answers[worst]["completion"],
            "reward_chosen": float(rewards[i, best]),
            "reward_rejected": float(rewards[i, worst]),
        }
        if "open_from" in ctx.settings:
            longest = ctx.settings["open_from"]
            row["chosen_open"] = answers[best]["n_tokens"] >= longest
            row["rejected_open"] = answers[worst]["n_tokens"] >= longest
        rows.append(row)
    return rows, {"pairs": len(rows), "ties": ties}


@writes("pairs", pair_schema)
def mix_stage(ctx: StageContext) -> Result:
    base, evolved = (pairs_of(ctx.inputs[name]) for name in ("base", "evolved"))
    share, size = ctx.settings["evolved_share"], ctx.settings["size"]
    rows = mix(base, evolved, size, share, np.random.default_rng(ctx.seed))
    wanted = evolved_count(size, share)
    return rows, {"asked": wanted, "evolved": min(wanted, len(evolved))}


@writes("pairs", pair_schema)
def join_stage(ctx: StageContext) -> Result:
    """Combine and shuffle all original and all evolved pairs."""
    rows = [row for name in ("base", "evolved") for row in pairs_of(ctx.inputs[name])]
    order = np.random.default_rng(ctx.seed).permutation(len(rows))
    return [rows[i] for i in order], None


@writes("pairs", pair_schema)
def repeat_stage(ctx: StageContext) -> Result:
    size, rng = ctx.settings["size"], np.random.default_rng(ctx.seed)
    return repeated(pairs_of(ctx.inputs["pairs"]), size, rng), None


@writes("completions", COMPLETION_SCHEMA)
def generate_stage(ctx: StageContext) -> Result:
    prompts = read_prompts(ctx.inputs["prompts"])
    with answering(ctx) as ask:
        asked = [user(row["prompt"]) for row in prompts]
        answers = ask(asked, n=ctx.settings["n"], seed=ctx.seed)
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
    if not rows:
        raise UserError(
            f"all {len(prompts)} prompts are too long for the policy to answer; give it others"
        )
    return rows, None


@writes("rewards")
def annotate_stage(ctx: StageContext) -> Result:
    """Score completions with a reward model, keeping their order.

    The summary counts the texts truncated to fit, and the prompts left out: no room for an answer,
    or no reward from a function.
    """
    rows = read_rows(ctx.inputs["completions"] / "completions.parquet")
    pairwise = ctx.settings.get("rewards") == "win_probability"
    model = rewards_of(ctx, "two answers" if pairwise else "one answer")
    n = 1 + max(row["sample"] for row in rows)
    found = model.score(
        [user(row["prompt"]) for row in rows[::n]],
        [[row["completion"] for row in rows[i : i + n]] for i in range(0, len(rows), n)],
    )
    if found.left_out.all():
        raise UserError(
            f"{model.format} has no reward for any of {len(found.values)} prompts: they are too "
            "long for it, or cannot be checked; give it other prompts"
        )
    kept = np.repeat(~found.left_out, n)  # a prompt has all of its rewards, or none
    rewarded = [
        {"prompt_id": row["prompt_id"], "sample": row["sample"], "reward": float(reward)}
        for row, reward, keep in zip(rows, found.values.reshape(-1), kept, strict=True)
        if keep
    ]
    return rewarded, {
        "reward_model": ctx.settings.get("reward_model") or "trained by the stage before",
        "format": model.format,
        "weights": model.weights,
        "cut": found.cut,
        "left_out": int(found.left_out.sum()),
    }


def rewards_of(ctx: StageContext, reads: Reads, setting: str = "reward_model") -> Rewards:
    """Load a stage's reward model: the one trained by an input stage, or the one in `setting`."""
    from harness.models.reward_model import CheckpointRewards, load_reward_model

    if setting in ctx.inputs:
        return CheckpointRewards(load_reward_model(ctx.inputs[setting] / "model", reads))
    identity = ctx.settings[setting]
    return runtime_of(identity).rewards(identity, reads, ctx.settings.get("dtype", "float32"))


@writes("pairs", pair_schema)
def rewrite_stage(ctx: StageContext) -> Result:
    """Let the policy revise the chosen answers; every revision is kept, with its reward."""
    rows = pairs_of(ctx.inputs["pairs"])
    instruction = user(revision_instruction(ctx.settings))
    asked = [[*user(row["prompt"]), assistant(row["chosen"]), *instruction] for row in rows]
    with answering(ctx) as ask:
        answers = ask(asked, n=1, seed=ctx.seed)
    revised = [a[0].text if a else row["chosen"] for row, a in zip(rows, answers, strict=True)]
    model = rewards_of(ctx, "one answer")
    found = model.score([user(row["prompt"]) for row in rows], [[text] for text in revised])
    # A revision without a reward keeps the old one.
    before = [row["reward_chosen"] for row in rows]
    rewards = np.where(found.left_out, before, found.values[:, 0]).tolist()
    summary = {
        "pairs": len(rows),
        "unchanged": sum(r["chosen"] == text for r, text in zip(rows, revised, strict=True)),
        "reward_before": sum(before) / len(rows),
        "reward_after": sum(rewards) / len(rows),
    }
    longest = ctx.settings["max_new_tokens"]
    for row, answer, text, reward in zip(rows, answers, revised, rewards, strict=True):
        row |= {"chosen": text, "reward_chosen": reward}
        if answer and "chosen_open" in row:
            row["chosen_open"] = answer[0].n_tokens >= longest
    return rows, summary


def train_stage(ctx: StageContext) -> None:
    """Train the policy on pairs; writes `model/` and `log.json`.

    If ties are dropped and all pairs are ties, no step is taken: the policy stays as it was.
    """
    s = ctx.settings
    start = policy_folder(ctx)
    history: Rows = []

    def on_log(step: int, metrics: Mapping[str, float]) -> None:
        history.append({"step": step, **metrics})
        ctx.report(step, metrics)

    pairs = pairs_of(ctx.inputs["pairs"])
    if s.get("drop_ties"):
        given = len(pairs)
        pairs = [row for row in pairs if row["reward_chosen"] != row["reward_rejected"]]
        if not pairs:  # nothing to learn from leaves the policy as it was
            shutil.copytree(start, ctx.output / "model")
            unmoved = {"pairs": given, "trained_pairs": 0, "steps": 0}
            write_json(ctx.output / "log.json", {"history": history, "summary": unmoved})
            return
    # An upper bound: pairs that are too long are left out.
    ctx.expect(math.ceil(s["epochs"] * math.ceil(len(pairs) / s["batch_size"])))
    if "numerics" in s:
        from harness.training.launch import launch

        with TemporaryDirectory() as scratch:
            file = Path(scratch) / "pairs.parquet"
            write_rows(file, pairs, pair_schema(pairs))
            part = replace(ctx, inputs={"policy": start, "pairs": file})
            summary = launch("harness.training.offline:train_pairs", part, on_log)
    else:
        from harness.training import offline

        chosen = offline.algorithm_of(s["algorithm"], s)
        summary = offline.train(chosen, start, pairs, ctx.output, seed=ctx.seed, on_log=on_log)
    write_json(ctx.output / "log.json", {"history": history, "summary": summary})


def answer_stage(ctx: StageContext) -> None:
    """Answer a benchmark, turn by turn; writes `answers.parquet`.

    All policies of a seed sample each item with the same random numbers, so that differences
    between policies have less sampling noise (common random numbers).
    """
    identity = ctx.settings["benchmark"]
    runtime = runtime_of(identity)
    if own_answering := runtime.own_answering(identity):
        own_answering(ctx)
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
) -> dict[str, Completion]:
    from harness.models.policy import Completion

    groups: defaultdict[float, list[Item]] = defaultdict(list)
    for item in asked:
        groups[temperature_of(ctx.settings["temperature"], item.category)].append(item)
    found: dict[str, Completion] = {}
    for temperature, items in groups.items():
        answers = ask(
            [conversations[item.item_id] for item in items],
            n=1,
            seed=answer_seed(ctx.settings) + turn,
            temperature=temperature,
        )
        # A question that is too long for the policy gets an empty answer, which is judged.
        found |= {
            item.item_id: several[0] if several else Completion("", 0)
            for item, several in zip(items, answers, strict=True)
        }
    return found


def answer_seed(settings: Mapping[str, Json]) -> int:
    said = f"{settings['benchmark']}/{settings['seed']}"
    return int.from_bytes(hashlib.sha256(said.encode()).digest()[:4], "big") >> 1


def temperature_of(setting: float | Mapping[str, float], category: str) -> float:
    """Return a category's temperature; UserError if it is set only for other categories."""
    if not isinstance(setting, Mapping):
        return setting
    if category not in setting:
        raise UserError(
            f"the profile gives no temperature for questions of the category `{category}`; add it "
            "to the benchmark's `temperature`"
        )
    return setting[category]


def judge_stage(ctx: StageContext) -> None:
    """Judge answers; writes `judgments.parquet`, `scores.parquet` and `summary.json`."""
    runtime_of(ctx.settings["benchmark"]).judge(ctx)


def rate_stage(ctx: StageContext) -> None:
    """Score prompts; writes `scores.parquet` and `summary.json`."""
    runtime_of(ctx.settings["judge"]).rate(ctx)


def user(text: str) -> list[dict[str, str]]:
    return [{"role": "user", "content": text}]


def assistant(text: str) -> dict[str, str]:
    return {"role": "assistant", "content": text}
