"""What the stages behind each row record besides scores: what was chosen, trained on, and spent.

A fact is the mean over seeds of one number. A row whose run lacks stages has a state and no facts;
a fact that a stage does not record, or that does not apply to the run, is absent.
"""

from __future__ import annotations

import functools
import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from math import exp, log
from pathlib import Path
from statistics import fmean
from typing import Any, Literal, NamedTuple, cast

from harness.pipeline.algorithm import Run
from harness.pipeline.runs import TableRuns
from harness.registry.objective import COSTS
from harness.report.cells import Failures
from harness.report.model import RowFacts
from harness.report.origin import JUDGING, made_by, stage_summary
from harness.runtime import Stage, Store
from harness.statistics import spearman
from harness.statistics.distance import Bigrams, Mask, bigrams, jensen_shannon
from harness.worlds.lookup import right_of, world_of
from harness.worlds.stage_io import read_rows

Numbers = dict[str, float | None]
"""Facts of one seed; None if a stage does not record one."""

_ROUNDING = 1e-9
"""Distance of a best from a mean reward that is only rounding."""


class Fact(NamedTuple):
    """How a fact is shown: its block, label and format, and what must be said of it."""

    block: str
    label: str
    form: Literal["share", "count", "number", "seconds"] = "count"
    note: str = ""


FACTS: Mapping[str, Fact] = {
    "mixed": Fact("Groups", "mixed", "share"),
    "right": Fact("Groups", "all\nright", "share"),
    "wrong": Fact("Groups", "all\nwrong", "share"),
    "chosen_mixed": Fact("Groups", "chosen:\nmixed", "share"),
    "chosen_right": Fact("Groups", "chosen:\nall right", "share"),
    "chosen_wrong": Fact("Groups", "chosen:\nall wrong", "share"),
    "evolved_mixed": Fact("Groups", "evolved:\nmixed", "share"),
    "evolved_right": Fact("Groups", "evolved:\nall right", "share"),
    "evolved_wrong": Fact("Groups", "evolved:\nall wrong", "share"),
    "size": Fact("Trained on", "pairs or\nprompts"),
    "signal": Fact("Trained on", "rewards\ndiffer", "share",
                   "Where rewards do not differ, nothing is learned."),
    "distinct": Fact("Trained on", "distinct"),
    "duplicates": Fact("Trained on", "seen\nbefore", "share"),
    "reward": Fact("Trained on", "mean\nreward", "number"),
    "topics": Fact("Trained on", "topics", "number",
                   "Topics: e to the entropy of theirs, k where k topics are trained on alike."),
    "foreseen": Fact("Trained on", "foreseen", "number",
                     "Foreseen: Spearman's correlation of the spread that a selector predicted and "
                     "that of the rewards."),
    "gradient_steps": Fact("Trained on", "steps"),
    "rollouts": Fact("Trained on", "rollouts"),
    "tokens": Fact("Trained on", "tokens", note="Rollouts and tokens are the policy's own."),
    "creator_calls": Fact("Trained on", "creator\ncalls"),
    "trained": Fact("Rollouts", "trained\non"),
    "screened": Fact("Rollouts", "to\nchoose"),
    "insertion": Fact("Rollouts", "on\nentering", note="On entering the pool: of rewrites."),
    "scored_tokens": Fact("Rollouts", "scored\ntokens"),
    "creator_tokens": Fact("Rollouts", "creator's\ntokens"),
    "read_prompts": Fact("Rollouts", "prompts\nread", note="Read by the policy to value them."),
    "without_weight": Fact("Creator", "no\nweight", "share",
                           "No weight: share of the selected prompts that were drawn without "
                           "weight, because fewer prompts than draws had a positive weight."),
    "without_spread": Fact("Creator", "no\nspread", "share",
                           "No spread: share of the prompts whose answers all got one reward."),
    "evolved_without_spread": Fact("Creator", "evolved:\nno spread", "share"),
    "calls": Fact("Creator", "calls"),
    "unusable": Fact("Creator", "unusable", "share"),
    "dropped": Fact("Creator", "dropped", note="Dropped: children given up after all retries."),
    "filled": Fact("Creator", "filled\nup",
                   note="Filled up: original pairs in place of evolved ones that were lacking."),
    "evolved_share": Fact("Creator", "evolved", "share"),
    "dropped_share": Fact("Creator", "given\nup", "share",
                          "Given up: share of the rewrites, after all retries."),
    "buffer": Fact("Creator", "buffer"),
    "repeated": Fact("Creator", "repeated",
                     note="Repeated: prompts that went back into the buffer for lack of rewrites."),
    "to_seed": Fact("Training prompts", "seed\nprompts", "number"),
    "seconds": Fact("Cost", "time", "seconds"),
    "training_seconds": Fact("Cost", "training\nonline", "seconds"),
    "judging_seconds": Fact("Cost", "judging", "seconds"),
}  # fmt: skip
"""Every fact, in printed order; distances to benchmarks (`to_<benchmark>`) follow `to_seed`."""

NOTES: Mapping[str, str] = {
    "Groups": (
        "Share of the prompts whose answers are partly right, all right, and all wrong, by the "
        "oracle or by rule: of those chosen from, of the chosen, and of the evolved ones. Online "
        "runs keep no answers."
    ),
    "Trained on": (
        "The last iteration's pairs, ties among them, or an online run's prompts; then of all "
        "stages behind the row."
    ),
    "Rollouts": "Of online training, by its end.",
    "Creator": "Of the last iteration, or of an online run.",
    "Training prompts": (
        "Jensen-Shannon distance between word bigrams, from 0 (same wording) to 1 (nothing in "
        "common), from the last iteration's training prompts to the seed prompts of the same run "
        "and to the benchmarks'."
    ),
    "Cost": (
        "Of all stages behind a row's policy, as if it had been computed alone: what rows share is "
        "counted in each. Times are those of the machine that computed it."
    ),
}  # fmt: skip
"""What a block of facts is about; all numbers are means over seeds."""


def facts_of(runs: TableRuns, store: Store) -> list[RowFacts]:
    """Return the facts of every run of every row of a table, in printed order."""
    failures, found = Failures(store), []
    answered = _answered(runs, store)
    mask = functools.cache(world_of(runs.profile).prompts.shown_word)
    for row in runs.rows:
        for run_id in dict.fromkeys(row.run_id(column) for column in runs.table.columns):
            own = runs.of(run_id)
            state, done, _ = failures.state([made_by(run) for run in own])
            whole = own if state in ("ok", "not_available") else ()
            values = _means([_numbers(run, runs, store, answered, mask) for run in whole])
            found.append(RowFacts(row=row.id, run=run_id, state=state, done=done, values=values))
    return found


def _means(seeds: Sequence[Numbers]) -> dict[str, float]:
    """Return the mean of each number that every seed has."""
    names = dict.fromkeys(name for seed in seeds for name in seed)
    known = {name: [seed.get(name) for seed in seeds] for name in names}
    return {name: fmean(cast("list[float]", own)) for name, own in known.items() if None not in own}


def _numbers(
    run: Run, runs: TableRuns, store: Store, answered: Mapping[str, Stage], mask: Mask
) -> Numbers:
    judges = list(run.judged.values())
    inputs = (it for judge in judges for it in judge.inputs.values())
    judging = [*judges, *(it for it in inputs if it.kind in JUDGING)]
    found: Numbers = {"judging_seconds": _seconds(judging, store)}
    if not (made := made_by(run)):
        return found
    found |= _costs(run, made, store) | _distances(run, store, answered, mask)
    if run.recipe.is_online:
        return found | _online(run, runs, store)
    return found | _trained(run, store) | _creation(run, runs, store)


# --- Cost ---


def _costs(run: Run, made: Sequence[Stage], store: Store) -> Numbers:
    # An online segment records cumulative costs, so only the last one counts.
    last = [it for it in made if it.kind != "online"]
    last += [it for it in run.training[-1:] if it.kind == "online"]
    amounts = [_amounts(stage, store) for stage in last]
    counted = {name: _sum([amount.get(name, 0.0) for amount in amounts]) for name in COSTS}
    return {"seconds": _seconds(made, store), **counted}


def _sum(values: Sequence[float | None]) -> float | None:
    return None if None in values else sum(cast("Sequence[float]", values))


def _seconds(stages: Iterable[Stage], store: Store) -> float | None:
    names = [stage.fingerprint for stage in stages]
    if any(store.status(name) != "done" for name in names):
        return None
    return sum(store.manifest(name)["wall_s"] for name in names)


def _amounts(stage: Stage, store: Store) -> Numbers:
    """Return a stage's costs other than time, if its kind has any."""
    if stage.kind == "generate":
        longest = stage.settings["max_new_tokens"]
        tokens = _read(store.file(stage.fingerprint, "completions.parquet"), "n_tokens")
        # n_tokens excludes the end token, which every answer under the limit has.
        return {
            "rollouts": float(len(tokens)),
            "tokens": float(sum(n + (n < longest) for n in tokens)),
        }
    if stage.kind == "train":
        log = store.file(stage.fingerprint, "log.json")
        steps = json.loads(log.read_text(encoding="utf-8"))["summary"].get("steps")
        return {"gradient_steps": steps}
    if stage.kind not in ("rewrite", "evolve", "online"):
        return {}
    said = stage_summary(store, stage)
    if stage.kind == "rewrite":  # records revisions but not their tokens
        return {"rollouts": said.get("pairs"), "tokens": None}
    if stage.kind == "evolve":
        return {"creator_calls": said.get("calls")}
    return {name: said.get(name) for name in COSTS}


# --- What was trained on ---


def _trained(run: Run, store: Store) -> Numbers:
    path = _prompts_of(run.last_prompts, store)
    found = _seen(_read(path, "prompt"))
    if path.name == "pairs.parquet":
        both = zip(_read(path, "reward_rejected"), _read(path, "reward_chosen"), strict=True)
        found["signal"] = fmean(worst < best for worst, best in both)
    return found


def _seen(prompts: Sequence[str]) -> Numbers:
    size, distinct = len(prompts), len(set(prompts))
    duplicates = 1.0 - distinct / size if size else None
    return {"size": float(size), "distinct": float(distinct), "duplicates": duplicates}


def _online(run: Run, runs: TableRuns, store: Store) -> Numbers:
    said = [stage_summary(store, stage) for stage in run.training]
    sizes = [sum(segment["phases"].values()) for segment in said]
    evolved = sum(n * s["evolved_share"] for n, s in zip(sizes, said, strict=True))
    dropped = sum(segment["dropped"] for segment in said)
    children = dropped + sum(segment["children"] for segment in said)
    paths = [store.file(stage.fingerprint, "trained.parquet") for stage in run.training]
    prompts, means, bests = (_column(paths, it) for it in ("prompt", "reward_mean", "reward_best"))
    return {
        **_seen(prompts),
        "signal": fmean(best - mean > _ROUNDING for mean, best in zip(means, bests, strict=True)),
        "training_seconds": _seconds(run.training, store),
        "reward": fmean(_read(paths[-1], "reward_mean")),
        "topics": _topics(run, runs, store),
        "dropped_share": dropped / children if children else None,
        "evolved_share": evolved / sum(sizes),
        "buffer": float(said[-1]["buffer"]),
        "repeated": float(sum(segment.get("repeated", 0) for segment in said)),
        **(_selector(said[-1], paths) if "trained" in said[-1] else {}),
    }


def _selector(said: Mapping[str, float], paths: Sequence[Path]) -> Numbers:
    """Return what a selector spent by the end of a run, and whether it foresaw rewards."""
    names = ("trained", "insertion", "scored_tokens", "creator_tokens", "read_prompts")
    found: Numbers = {name: float(said[name]) for name in names}
    found["screened"] = float(said["rollouts"] - said["trained"] - said["insertion"])
    both = zip(_column(paths, "predicted"), _column(paths, "spread"), strict=True)
    pairs = [(predicted, spread) for predicted, spread in both if predicted is not None]
    found["foreseen"] = spearman(*map(list, zip(*pairs, strict=True))) if pairs else None
    return found


def _topics(run: Run, runs: TableRuns, store: Store) -> float | None:
    """Return the exponential of the entropy of the topics trained on: k for k equal shares."""
    topics = world_of(runs.profile).prompts.topics()
    if topics is None or topics.settings is not None:  # a model would have to sort them
        return None
    folders = [store.path(stage.fingerprint) for stage in run.training]
    told = Counter(topic for folder in folders for _, topic in topics.read(folder))
    shares = [number / told.total() for number in told.values()]
    return exp(-sum(share * log(share) for share in shares))


def _creation(run: Run, runs: TableRuns, store: Store) -> Numbers:
    """Return what the creator of the last iteration did, whether the metric's weights mattered."""
    stages = creator_stages(run)
    if not stages:
        return _groups(run.iterations[-1].rewards.inputs["completions"], runs, store)
    said = {name: stage_summary(store, stage) for name, stage in stages.items()}
    select, evolve, pair = (said.get(name, {}) for name in ("select", "evolve", "pair"))
    reasons, mix = evolve.get("unusable"), run.iterations[-1].prompts
    filled = stage_summary(store, mix) if mix.kind == "mix" else {}
    found: Numbers = {
        "without_weight": _share(select.get("without_weight"), select.get("selected")),
        "without_spread": select.get("without_spread"),
        "evolved_without_spread": _share(pair.get("ties"), pair.get("pairs")),
        "unusable": _share(None if reasons is None else sum(reasons.values()), evolve.get("calls")),
        "calls": evolve.get("calls"),
        "dropped": evolve.get("dropped"),
        "filled": filled["asked"] - filled["evolved"] if filled else None,
    }
    if (rewards := stages["select"].inputs.get("rewards")) is not None:
        chosen = _read(store.file(stages["select"].fingerprint, "selected.parquet"), "prompt_id")
        answers = rewards.inputs["completions"]
        found |= _groups(answers, runs, store)
        found |= _groups(answers, runs, store, "chosen_", chosen)
    if "pair" in stages:
        found |= _groups(stages["pair"].inputs["completions"], runs, store, "evolved_")
    return found


def _share(part: int | None, whole: int | None) -> float | None:
    return None if part is None or not whole else part / whole


def creator_stages(run: Run) -> dict[str, Stage]:
    """Return the creator's stages in a run's last iteration: `select`, then `evolve` and `pair`."""
    # A `same` iteration reuses the previous prompts, so it has no creator of its own.
    if not run.iterations or run.recipe.chain[-1:] == ("same",):
        return {}
    prompts = run.iterations[-1].prompts
    if prompts.kind in ("select", "choose"):
        return {"select": prompts}
    if prompts.kind not in ("mix", "join"):
        return {}
    pair = prompts.inputs["evolved"]
    evolve = pair.inputs["completions"].inputs["prompts"]
    return {"select": evolve.inputs["selected"], "evolve": evolve, "pair": pair}


# --- Groups of answers ---


def _groups(
    answers: Stage,
    runs: TableRuns,
    store: Store,
    prefix: str = "",
    chosen: Sequence[str] | None = None,
) -> Numbers:
    """Return the shares of prompts whose answers are partly, all, and never right."""
    right = right_of(runs.profile)
    # Prompts that are only scored have no answers.
    if right is None or store.status(answers.fingerprint) != "done":
        return {}
    shares = _right_shares(store.file(answers.fingerprint, "completions.parquet"), right)
    own = [shares[name] for name in (shares if chosen is None else chosen) if name in shares]
    return {
        f"{prefix}mixed": fmean(0.0 < share < 1.0 for share in own),
        f"{prefix}right": fmean(share == 1.0 for share in own),
        f"{prefix}wrong": fmean(share == 0.0 for share in own),
    }


@functools.lru_cache(maxsize=1024)
def _right_shares(path: Path, right: Callable[[str, str], bool]) -> dict[str, float]:
    of_prompt: dict[str, list[bool]] = {}
    for row in read_rows(path, "prompt_id", "prompt", "completion"):
        of_prompt.setdefault(row["prompt_id"], []).append(right(row["prompt"], row["completion"]))
    return {name: fmean(own) for name, own in of_prompt.items()}


@functools.lru_cache(maxsize=1024)
def _read(path: Path, column: str) -> list[Any]:
    """Return a column of a file; rows and tables share stages."""
    return [row[column] for row in read_rows(path, column)]


def _column(paths: Iterable[Path], name: str) -> list[Any]:
    return [value for path in paths for value in _read(path, name)]


# --- Prompt distances ---

ANSWERS = "answers.parquet"

_FILES = {
    "prompts": "prompts.parquet",
    "select": "selected.parquet",
    "choose": "selected.parquet",
    "online": "trained.parquet",
    "answer": ANSWERS,
}
"""File of prompts by kind of stage; other kinds have pairs."""


def _prompts_of(stage: Stage, store: Store) -> Path:
    return store.file(stage.fingerprint, _FILES.get(stage.kind, "pairs.parquet"))


def _distances(run: Run, store: Store, answered: Mapping[str, Stage], mask: Mask) -> Numbers:
    """Return distances that show whether a creator drifts toward the benchmarks' prompts."""
    stages = {"to_seed": run.iterations[0].prompts}
    stages |= {f"to_{name}": answers for name, answers in answered.items()}
    trained = _bigrams(_prompts_of(run.last_prompts, store), mask)
    return {
        name: jensen_shannon(trained, _bigrams(_prompts_of(stage, store), mask))
        for name, stage in stages.items()
    }


@functools.lru_cache(maxsize=1024)
def _bigrams(path: Path, mask: Mask) -> Bigrams:
    if path.name != ANSWERS:
        return bigrams(_read(path, "prompt"), mask)
    # A conversation is a JSON list of messages; take the user's last.
    conversations = map(json.loads, _read(path, "conversation"))
    asked = ([it["content"] for it in own if it["role"] == "user"] for own in conversations)
    return bigrams([str(texts[-1]) for texts in asked], mask)


def _answered(runs: TableRuns, store: Store) -> dict[str, Stage]:
    """Return the first finished answers to each benchmark that compares with a reference's."""
    found: dict[str, Stage] = {}
    for run in runs.runs.values():
        for name, judge in run.judged.items():
            answers = judge.inputs.get("answers")
            if runs.profile.benchmarks[name].against is None or answers is None or name in found:
                continue
            if store.status(answers.fingerprint) == "done":
                found[name] = answers
    return found
