"""Examples: prompts on their way through the creator.

Which examples are shown is fixed in advance, so that none are cherry-picked. The run is the left
row of a table's primary claim, or else the table's first row that evolves prompts, at the first
seed. Only runs whose stages are all done are considered. The rules below choose prompts, and are
printed next to them.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from harness.pipeline.algorithm import Run
from harness.pipeline.factory import reward_models_named
from harness.pipeline.runs import TableRuns
from harness.report.facts import creator_stages
from harness.report.model import Part
from harness.report.origin import made_by
from harness.report.publication import read_form
from harness.report.results import Results
from harness.runtime import Stage, Store
from harness.worlds.stage_io import read_rows

FILE = "examples.json"
Rows = list[dict[str, Any]]
Facts = tuple[tuple[str, str], ...]

OFFLINE_RULE = (
    "The first, the middle and the last prompt in the order in which the creator drew them."
)
ONLINE_RULE = (
    "The last evolved prompt that the run was trained on, followed back to its original prompt."
)


class RewardedAnswer(Part):
    """One answer to a prompt; its role is `chosen`, `rejected` or empty."""

    text: str
    reward: float
    role: str


class Step(Part):
    """An original prompt or a rewrite of one; online runs do not keep answers."""

    name: str
    text: str
    how: str
    facts: Facts
    answers: tuple[RewardedAnswer, ...] = ()


class Lineage(Part):
    """An original prompt with its rewrites, and the rule by which it was chosen."""

    table: str
    row: str
    run: str
    rule: str
    reward_model: str
    steps: tuple[Step, ...]
    stages: tuple[str, ...]


class Examples(Part):
    offline: tuple[Lineage, ...] = ()
    online: tuple[Lineage, ...] = ()

    @property
    def lineages(self) -> tuple[Lineage, ...]:
        return (*self.offline, *self.online)


def examples_of(table_runs: TableRuns, store: Store) -> Examples:
    offline, online = (tuple(_lineages(table_runs, store, online=it)) for it in (False, True))
    return Examples(offline=offline, online=online)


def examples_in(results: Results) -> Examples | None:
    """Return a table's examples, or None if what is published of it has none."""
    if results.runs is not None:
        return examples_of(*results.runs)
    return None if results.folder is None else read_examples(results.folder / FILE)


def first_of(given: Iterable[Examples]) -> Examples | None:
    """Return the first offline and online examples; None of none."""
    found = None
    for it in given:
        known = found or it
        found = Examples(offline=known.offline or it.offline, online=known.online or it.online)
        if found.offline and found.online:
            break
    return found


def write_examples(examples: Examples, folder: Path) -> None:
    if examples != Examples():
        (folder / FILE).write_text(f"{examples.model_dump_json(indent=1)}\n", encoding="utf-8")


def read_examples(path: Path) -> Examples | None:
    return read_form(Examples, path, "table") if path.is_file() else None


def _lineages(table_runs: TableRuns, store: Store, *, online: bool) -> Iterator[Lineage]:
    """Yield the examples of the complete runs of the first seed, each run under its first row."""
    left, _ = table_runs.table.main_place
    rows, row_of = sorted(table_runs.rows, key=lambda row: row.id != left), dict[str, str]()
    for row, column in itertools.product(rows, table_runs.table.columns):
        row_of.setdefault(row.run_id(column), row.id)
    for run_id, row_id in row_of.items():
        run = table_runs.runs[run_id, table_runs.seeds[0]]
        of_eva = run.recipe.online is not None and run.recipe.online.prompts == "eva"
        evolves = of_eva if online else "evolve" in creator_stages(run)
        if run.recipe.is_online != online or not evolves:
            continue
        if any(store.status(stage.fingerprint) != "done" for stage in made_by(run)):
            continue
        chains, rewarded, stages = _online(run, store) if online else _offline(run, store)
        for steps in chains:
            yield Lineage(
                table=table_runs.table.id,
                row=row_id,
                run=run.name,
                rule=ONLINE_RULE if online else OFFLINE_RULE,
                reward_model=", ".join(reward_models_named([rewarded, *rewarded.inputs.values()])),
                steps=tuple(steps),
                stages=tuple(stage.fingerprint[:12] for stage in stages),
            )


Chains = tuple[list[list[Step]], Stage, list[Stage]]
"""Chains of prompts, the stage that rewards them, and the stages they come from."""


def _offline(run: Run, store: Store) -> Chains:
    stages = creator_stages(run)
    drawn = _read(store, stages["select"], "selected.parquet")
    children: dict[str, Rows] = defaultdict(list)
    for child in _read(store, stages["evolve"], "prompts.parquet"):
        children[child["parent_id"]].append(child)
    mix = run.iterations[-1].prompts
    base = mix.inputs["base"]  # may be a mix or repeated pairs, which have no rewards of their own
    rewarded = (base if "rewards" in base.inputs else stages["select"]).inputs["rewards"]
    answers = _answers(store, rewarded) | _answers(store, stages["pair"].inputs["rewards"])
    mixed = {pair["prompt_id"]: pair for pair in _read(store, mix, "pairs.parquet")}
    drops_ties = run.training[-1].settings.get("drop_ties")

    def trained_on(name: str) -> str:
        if (pair := mixed.get(name)) is None:
            return "no, it was left out of the mix"
        tie = pair["reward_chosen"] == pair["reward_rejected"]
        return "no, all its answers got one reward" if tie and drops_ties else "yes"

    def steps(prompt: dict[str, Any], told: Facts = ()) -> list[Step]:
        """Return a prompt and all its descendants, parents before children."""
        name = prompt["prompt_id"]
        found = [_step(prompt, (*told, ("trained on", trained_on(name))), answers.get(name, ()))]
        return found + [step for child in children[name] for step in steps(child)]

    chains = []
    for place in dict.fromkeys((0, len(drawn) // 2, len(drawn) - 1)):
        prompt = drawn[place]
        told = (
            ("drawn", f"as number {prompt['draw'] + 1}"),
            ("informativeness", f"{prompt['informativeness']:.3f}"),
            ("weight", f"{prompt['weight']:.5f}"),
        )
        chains.append(steps(prompt, told))
    return chains, rewarded, list(stages.values())


def _step(
    prompt: Mapping[str, Any], facts: Facts, answers: tuple[RewardedAnswer, ...] = ()
) -> Step:
    how = prompt["method"] or prompt["source"]
    name, text = prompt["prompt_id"], prompt["prompt"]
    return Step(name=name, text=text, how=how, facts=facts, answers=answers)


def _online(run: Run, store: Store) -> Chains:
    training = run.training
    trained = [row for stage in training for row in _read(store, stage, "trained.parquet")]
    prompt = next((prompt for prompt in reversed(trained) if prompt["generation"] > 0), None)
    by_name = {prompt["prompt_id"]: prompt for prompt in reversed(trained)}
    steps: list[Step] = []
    while prompt is not None:
        facts = (
            ("step", f"{prompt['step']}, {prompt['phase']}"),
            ("informativeness", f"{prompt['informativeness']:.3f}"),
            ("mean reward", f"{prompt['reward_mean']:.3f}"),
            ("best reward", f"{prompt['reward_best']:.3f}"),
        )
        steps.insert(0, _step(prompt, facts))
        prompt = by_name.get(prompt["parent_id"])
    return ([steps] if steps else []), training[-1], list(training)


def _read(store: Store, stage: Stage, file: str) -> Rows:
    return read_rows(store.file(stage.fingerprint, file))


def _answers(store: Store, annotate: Stage) -> dict[str, tuple[RewardedAnswer, ...]]:
    """Return each prompt's answers with rewards, the best and worst marked as a pair would be."""
    rewards = {
        (r["prompt_id"], r["sample"]): r["reward"]
        for r in _read(store, annotate, "rewards.parquet")
    }
    by_prompt: dict[str, list[tuple[str, float]]] = defaultdict(list)
    for row in _read(store, annotate.inputs["completions"], "completions.parquet"):
        reward = rewards.get((row["prompt_id"], row["sample"]))
        if reward is not None:  # some have none
            by_prompt[row["prompt_id"]].append((row["completion"], reward))
    found = {}
    for name, own in by_prompt.items():
        values = [reward for _, reward in own]
        best, worst = values.index(max(values)), values.index(min(values))
        roles = {} if best == worst else {best: "chosen", worst: "rejected"}
        found[name] = tuple(
            RewardedAnswer(text=text, reward=reward, role=roles.get(i, ""))
            for i, (text, reward) in enumerate(own)
        )
    return found
