"""Examples: prompts on their way through the creator, and benchmark answers before and after.

Which examples are shown is fixed in advance, so that none are cherry-picked. The run is the left
row of a table's primary claim, or else the table's first row that evolves prompts, at the first
seed. Only runs whose stages are all done are considered. The rules below choose prompts and
answers, and are printed next to them.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.errors import HarnessError
from harness.report.facts import creator_stages
from harness.report.origin import made_by
from harness.runtime import Stage, Store

if TYPE_CHECKING:
    from harness.pipeline.algorithm import Run
    from harness.pipeline.runs import TableRuns

FILE = "examples.json"
"""The file with a published table's examples; older publications lack it."""

Rows = list[dict[str, Any]]

Facts = tuple[tuple[str, str], ...]
"""Facts about a prompt: pairs of name and text."""

OFFLINE_RULE = (
    "The first, the middle and the last prompt in the order in which the creator drew them."
)
ONLINE_RULE = (
    "The last evolved prompt that the run was trained on, followed back to its human prompt."
)

JUDGED_RULE = (
    "Of each benchmark the first, the middle and the last item in the order of their names, from "
    "the first seed: the answers of the baseline row and of the row, with what the judge said."
)


@dataclass(frozen=True)
class RewardedAnswer:
    """One answer to a prompt; its role is `chosen`, `rejected` or empty."""

    text: str
    reward: float
    role: str


@dataclass(frozen=True)
class Step:
    """A prompt in a chain: a human prompt, or a rewrite by some method.

    Without answers for online runs, which do not keep them.
    """

    name: str
    text: str
    how: str
    facts: Facts
    answers: tuple[RewardedAnswer, ...] = ()


@dataclass(frozen=True)
class Lineage:
    """A human prompt with its rewrites, and the rule by which it was chosen."""

    table: str
    row: str
    run: str
    rule: str
    reward_model: str
    steps: tuple[Step, ...]
    stages: tuple[str, ...]


@dataclass(frozen=True)
class JudgedTurn:
    """What a policy was asked and answered, and the judge's replies, by name."""

    asked: str
    answer: str
    replies: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class JudgedItem:
    """One benchmark item, answered by the baseline row's run and by the row's.

    The reference is the answer it is compared with, or None if answers are rated alone or the
    reference is unavailable.
    """

    table: str
    row: str
    baseline: str
    benchmark: str
    judge: str
    item: str
    reference: str | None
    before: tuple[JudgedTurn, ...]
    after: tuple[JudgedTurn, ...]
    stages: tuple[str, str]


@dataclass(frozen=True)
class Examples:
    """Lineages of prompts, offline and online, and judged answers."""

    offline: tuple[Lineage, ...] = ()
    online: tuple[Lineage, ...] = ()
    judged: tuple[JudgedItem, ...] = ()

    @property
    def lineages(self) -> tuple[Lineage, ...]:
        return (*self.offline, *self.online)


def examples_of(table_runs: TableRuns, store: Store) -> Examples:
    """Return a table's examples; answers are from its offline run, else from its online one."""
    offline, online = (
        list(_shown_runs(table_runs, store, online=online)) for online in (False, True)
    )
    judged = _judged_items(table_runs, offline, store) or _judged_items(table_runs, online, store)
    return Examples(
        tuple(_lineages(table_runs, offline, store)),
        tuple(_lineages(table_runs, online, store)),
        tuple(judged),
    )


def first_of(given: Iterable[Examples]) -> Examples:
    """Return the first examples of each kind, preferring answers of offline runs."""
    found = Examples()
    for it in given:
        judged = found.judged or it.judged
        if it.offline and not found.offline:
            judged = it.judged or judged
        found = Examples(found.offline or it.offline, found.online or it.online, judged)
        if found.offline and found.online and found.judged:
            break
    return found


def write_examples(examples: Examples, folder: Path) -> None:
    from pydantic import TypeAdapter

    if examples == Examples():
        return
    text = TypeAdapter(Examples).dump_json(examples, indent=1, ensure_ascii=False)
    (folder / FILE).write_bytes(text + b"\n")


def read_examples(path: Path) -> Examples | None:
    """Read examples from a file, or return None if it does not exist."""
    from pydantic import TypeAdapter, ValidationError

    try:
        return TypeAdapter(Examples).validate_json(path.read_bytes())
    except FileNotFoundError:
        return None
    except ValidationError as error:
        raise HarnessError(f"{path} has another form; publish the table again") from error


def _shown_runs(table_runs: TableRuns, store: Store, *, online: bool) -> Iterator[tuple[str, Run]]:
    """Yield the rows and runs of the first seed that examples are taken from, each run once.

    None may be complete yet.
    """
    left, _ = table_runs.table.main_place
    rows, shown = sorted(table_runs.rows, key=lambda row: row.id != left), set()
    for row, column in itertools.product(rows, table_runs.table.columns):
        run = table_runs.runs[row.run_id(column), table_runs.seeds[0]]
        if run.run_id in shown or run.recipe.is_online != online or not _evolves(run):
            continue
        if all(store.status(stage.fingerprint) == "done" for stage in made_by(run)):
            shown.add(run.run_id)
            yield row.id, run


def _evolves(run: Run) -> bool:
    if run.recipe.online is not None:
        return run.recipe.online.prompts == "eva"
    return "evolve" in creator_stages(run)


def _lineages(
    table_runs: TableRuns, shown: Sequence[tuple[str, Run]], store: Store
) -> Iterator[Lineage]:
    for row, run in shown:
        online = run.recipe.is_online
        chains, rewarded, stages = _online(run, store) if online else _offline(run, store)
        for steps in chains:
            yield Lineage(
                table=table_runs.table.id,
                row=row,
                run=f"{run.run_id}/{run.profile}/seed{run.seed}",
                rule=ONLINE_RULE if online else OFFLINE_RULE,
                reward_model=str(rewarded.settings["reward_model"]),
                steps=tuple(steps),
                stages=tuple(stage.fingerprint[:12] for stage in stages),
            )


Chains = tuple[list[list[Step]], Stage, list[Stage]]
"""Chains of prompts, the stage that rewards them, and the stages they come from."""


def _offline(run: Run, store: Store) -> Chains:
    stages = creator_stages(run)
    drawn = _read(store, stages["select"], "selected.parquet")
    children: dict[str, Rows] = {}
    for child in _read(store, stages["evolve"], "prompts.parquet"):
        children.setdefault(child["parent_id"], []).append(child)
    mix = run.iterations[-1].prompts
    rewarded = mix.inputs["base"].inputs["rewards"]
    answers = _answers(store, rewarded) | _answers(store, stages["pair"].inputs["rewards"])
    trained = {prompt["prompt_id"] for prompt in _read(store, mix, "pairs.parquet")}

    def steps(prompt: dict[str, Any], told: Facts = ()) -> list[Step]:
        """Return a prompt and all its descendants, parents before children."""
        name = prompt["prompt_id"]
        left_out = "yes" if name in trained else "no, it was left out of the mix"
        found = [_step(prompt, (*told, ("trained on", left_out)), answers.get(name, ()))]
        return found + [step for child in children.get(name, []) for step in steps(child)]

    chains = []
    for prompt in _three(drawn):
        told = (
            ("drawn", f"as number {prompt['draw'] + 1}"),
            ("informativeness", f"{prompt['informativeness']:.3f}"),
            ("weight", f"{prompt['weight']:.5f}"),
        )
        chains.append(steps(prompt, told))
    return chains, rewarded, list(stages.values())


def _three(things: Sequence[Any]) -> list[Any]:
    return [things[i] for i in dict.fromkeys((0, len(things) // 2, len(things) - 1))]


def _step(
    prompt: Mapping[str, Any], facts: Facts, answers: tuple[RewardedAnswer, ...] = ()
) -> Step:
    how = prompt["method"] or prompt["source"]
    return Step(prompt["prompt_id"], prompt["prompt"], how, facts, answers)


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
    """Return the rows of a stage's file, verified."""
    from harness.worlds.stage_io import read_rows

    return read_rows(store.file(stage.fingerprint, file))


def _answers(store: Store, annotate: Stage) -> dict[str, tuple[RewardedAnswer, ...]]:
    """Return each prompt's answers with rewards, the best and worst marked as a pair would be.

    Ties go to the first; if all rewards are equal, none is marked, as there is nothing to learn.
    """
    rewards = {
        (r["prompt_id"], r["sample"]): r["reward"]
        for r in _read(store, annotate, "rewards.parquet")
    }
    by_prompt: dict[str, list[tuple[str, float]]] = {}
    for row in _read(store, annotate.inputs["completions"], "completions.parquet"):
        if (own_id := (row["prompt_id"], row["sample"])) in rewards:  # some have no reward
            rewarded = (row["completion"], rewards[own_id])
            by_prompt.setdefault(row["prompt_id"], []).append(rewarded)
    found = {}
    for name, own in by_prompt.items():
        values = [reward for _, reward in own]
        best, worst = values.index(max(values)), values.index(min(values))
        roles = {} if best == worst else {best: "chosen", worst: "rejected"}
        found[name] = tuple(RewardedAnswer(*it, roles.get(i, "")) for i, it in enumerate(own))
    return found


def _judged_items(
    table_runs: TableRuns, shown: Sequence[tuple[str, Run]], store: Store
) -> list[JudgedItem]:
    """Return the judged answers of the first of the runs and of its baseline."""
    if not shown or (row := table_runs.table.row(shown[0][0])).baseline is None:
        return []
    table, run = table_runs.table, shown[0][1]
    base = table_runs.runs[table.row(row.baseline).run_id(table.columns[0]), run.seed]
    found = []
    for benchmark, judge in run.judged.items():
        before, after = _turns(store, base.judged.get(benchmark)), _turns(store, judge)
        references = _references(judge) if before and after else {}
        found += [
            JudgedItem(
                table.id, row.id, row.baseline, benchmark, str(judge.settings["judge"]), item,
                references.get(item), before[item], after[item],
                (base.judged[benchmark].fingerprint[:12], judge.fingerprint[:12]),
            )
            for item in (_three(sorted(before)) if before and after else ())
        ]  # fmt: skip
    return found


def _turns(store: Store, judge: Stage | None) -> dict[str, tuple[JudgedTurn, ...]]:
    """Return each item's turns: question, answer and the judge's replies.

    Empty if there are no judged answers, or if the judge scores by a rule and gives no replies.
    """
    done = judge is not None and store.status(judge.fingerprint) == "done"
    if judge is None or not done or "answers" not in judge.inputs:
        return {}
    answers = _read(store, judge.inputs["answers"], "answers.parquet")
    replies: dict[str, Rows] = {}
    for reply in _read(store, judge, "judgments.parquet"):
        if "reply" not in reply:
            return {}
        replies.setdefault(reply["prompt_id"], []).append(reply)
    several = {answer["prompt_id"] for answer in answers if answer["turn"] > 1}
    found: dict[str, list[JudgedTurn]] = {}
    for answer in sorted(answers, key=lambda row: (row["prompt_id"], row["turn"])):
        item, turn = answer["prompt_id"], answer["turn"]
        # A judgment's number is its turn for multi-turn items, else its game; the first of two
        # games has the reference as answer A.
        own = [r for r in replies.get(item, []) if item not in several or r["number"] == turn]
        games = item not in several and len(own) > 1
        said = tuple(
            (f"reference as {'AB'[int(r['number']) - 1]}" if games else "verdict", str(r["reply"]))
            for r in own
        )
        asked = json.loads(answer["conversation"])[-1]["content"]
        found.setdefault(item, []).append(JudgedTurn(str(asked), answer["completion"], said))
    return {item: tuple(turns) for item, turns in found.items()}


def _references(judge: Stage) -> dict[str, str]:
    from harness.worlds.lookup import runtime_of

    name = str(judge.settings["benchmark"])
    try:
        items = runtime_of(name).questions(name)
    except HarnessError:  # the benchmark's files are missing or differ from those answered
        return {}
    return {item.item_id: item.reference for item in items if item.reference is not None}
