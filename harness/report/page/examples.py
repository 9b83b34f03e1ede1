"""Examples: prompts on their way through the creator, and benchmark answers before and after.

Which prompts are shown is fixed before anything is looked at, so that none is picked for what it
says. The run is the left row of a table's primary claim, or else the table's first row that
evolves prompts, at the first seed; only runs of which every stage needed is done are considered.
Offline the prompts are the first, the middle and the last in the order in which they were drawn.
Online it is the last evolved prompt that was trained on, followed back to its human prompt. Of each
benchmark it is the first, the middle and the last item in the order of their names, answered by the
same run and by that of its row's baseline, with the same seed.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.errors import HarnessError
from harness.registry.claims import Qualitative, places
from harness.report.origin import made_by
from harness.report.rows import creator_stages
from harness.runtime import Stage, Store

if TYPE_CHECKING:
    from harness.trainer.plan import Run
    from harness.trainer.runs import TableRuns

FILE = "examples.json"
"""The file of a published table with its examples; older ones have none."""

Rows = list[dict[str, Any]]

OFFLINE_RULE = (
    "The first, the middle and the last prompt in the order in which the creator drew them, from "
    "the first seed."
)
ONLINE_RULE = (
    "The last evolved prompt that the run was trained on, from the first seed, followed back to "
    "its human prompt."
)

JUDGED_RULE = (
    "Of each benchmark the first, the middle and the last item in the order of their names, from "
    "the first seed: the answers of the baseline row and of the row, with what the judge said."
)


@dataclass(frozen=True)
class Answer:
    """One answer to a prompt; its role is `chosen` or `rejected`, empty for the others."""

    text: str
    reward: float
    role: str


@dataclass(frozen=True)
class Step:
    """A prompt of a chain: a human prompt, or a rewrite by some method.

    Online runs do not keep answers.
    """

    name: str
    text: str
    how: str
    facts: tuple[tuple[str, str], ...]
    answers: tuple[Answer, ...] = ()


@dataclass(frozen=True)
class Lineage:
    """A human prompt with what became of it, and the rule by which it was chosen."""

    table: str
    row: str
    run: str
    rule: str
    reward_model: str
    steps: tuple[Step, ...]
    stages: tuple[str, ...]


@dataclass(frozen=True)
class Turn:
    """What a policy was asked and answered, and what the judge wrote of it, by name."""

    asked: str
    answer: str
    replies: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Judged:
    """One item of a benchmark, answered by the baseline row's run and by the row's.

    The reference is the answer it is compared with; None where answers are rated alone, or where it
    is not at hand.
    """

    table: str
    row: str
    baseline: str
    benchmark: str
    judge: str
    item: str
    reference: str | None
    before: tuple[Turn, ...]
    after: tuple[Turn, ...]
    stages: tuple[str, str]


@dataclass(frozen=True)
class Examples:
    """Prompts on their way through the creator, offline and online, and judged answers."""

    offline: tuple[Lineage, ...] = ()
    online: tuple[Lineage, ...] = ()
    judged: tuple[Judged, ...] = ()

    @property
    def lineages(self) -> tuple[Lineage, ...]:
        """All prompts."""
        return (*self.offline, *self.online)


def examples_of(table_runs: TableRuns, store: Store) -> Examples:
    """Return the examples of a table; answers are those of its offline run, or of its online one.

    Raises:
        StoreError: A stored file is not what was written.
    """
    judged = judged_answers(table_runs, store, online=False)
    return Examples(
        tuple(offline_lineages(table_runs, store)),
        tuple(online_lineage(table_runs, store)),
        tuple(judged or judged_answers(table_runs, store, online=True)),
    )


def write_examples(examples: Examples, folder: Path) -> None:
    """Write examples as JSON into a folder; nothing where there is none."""
    from pydantic import TypeAdapter

    if examples == Examples():
        return
    text = TypeAdapter(Examples).dump_json(examples, indent=1, ensure_ascii=False)
    (folder / FILE).write_bytes(text + b"\n")


def read_examples(path: Path) -> Examples | None:
    """Return the examples that were written to a file, None where there is none.

    Raises:
        HarnessError: It has another form.
    """
    from pydantic import TypeAdapter, ValidationError

    try:
        return TypeAdapter(Examples).validate_json(path.read_bytes())
    except FileNotFoundError:
        return None
    except ValidationError as error:
        raise HarnessError(f"{path} has another form; publish the table again") from error


def shown_run(table_runs: TableRuns, store: Store, *, online: bool) -> tuple[str, Run] | None:
    """Return the row and the run of a table that examples are taken from.

    Returns:
        Row id and run; None where no row that evolves prompts is whole.
    """
    seed = table_runs.seeds[0]
    for row in _in_order(table_runs):
        for column in table_runs.table.columns:
            run = table_runs.runs[row.run_id(column), seed]
            if run.recipe.is_online != online or not _evolves(run):
                continue
            if all(store.status(s.fingerprint) == "done" for s in made_by(run)):
                return row.id, run
    return None


def _in_order(table_runs: TableRuns) -> list[Any]:
    """Return the rows, the left one of the primary claim first."""
    primary = next((claim for claim in table_runs.table.claims if claim.primary), None)
    left = None
    if primary is not None and not isinstance(primary.test, Qualitative):
        left = places(primary.test)[0][0]
    return sorted(table_runs.rows, key=lambda row: row.id != left)


def _evolves(run: Run) -> bool:
    if run.recipe.is_online:
        return run.recipe.online is not None and run.recipe.online.prompts == "eva"
    return "evolve" in creator_stages(run)


def offline_lineages(table_runs: TableRuns, store: Store) -> list[Lineage]:
    """Return the examples of a table's offline run; none where there is none."""
    found = shown_run(table_runs, store, online=False)
    if found is None:
        return []
    row, run = found
    stages = creator_stages(run)
    drawn = read_stage(store, stages["select"], "selected.parquet")
    children: dict[str, Rows] = {}
    for child in read_stage(store, stages["evolve"], "prompts.parquet"):
        children.setdefault(child["parent_id"], []).append(child)
    mix = run.iterations[-1].prompts
    rewarded = mix.inputs["base"].inputs["rewards"]
    answers = rewarded_answers(store, rewarded)
    answers |= rewarded_answers(store, stages["pair"].inputs["rewards"])
    trained = {prompt["prompt_id"] for prompt in read_stage(store, mix, "pairs.parquet")}
    name = f"{run.run_id}/{run.profile}/seed{run.seed}"
    behind_it = tuple(stage.fingerprint[:12] for stage in stages.values())
    places_shown = dict.fromkeys((0, len(drawn) // 2, len(drawn) - 1))
    return [
        Lineage(
            table_runs.table.id,
            row,
            name,
            OFFLINE_RULE,
            str(rewarded.settings["reward_model"]),
            tuple(_steps(drawn[place], children, answers, trained)),
            behind_it,
        )
        for place in places_shown
    ]


def _steps(
    drawn: dict[str, Any],
    children: Mapping[str, Rows],
    answers: Mapping[str, tuple[Answer, ...]],
    trained: set[str],
) -> list[Step]:
    """Return a drawn prompt and all that was made of it."""
    told = (
        ("drawn", f"as number {drawn['draw'] + 1}"),
        ("informativeness", f"{drawn['informativeness']:.3f}"),
        ("weight", f"{drawn['weight']:.5f}"),
    )
    found, waiting = [], [drawn]
    while waiting:
        prompt = waiting.pop(0)
        name = prompt["prompt_id"]
        facts = (*(told if prompt is drawn else ()), ("trained on", _yes(name in trained)))
        how = prompt["method"] or prompt["source"]
        found.append(Step(name, prompt["prompt"], how, facts, answers.get(name, ())))
        waiting += children.get(name, [])
    return found


def _yes(truth: bool) -> str:
    return "yes" if truth else "no, it was left out of the mix"


def online_lineage(table_runs: TableRuns, store: Store) -> list[Lineage]:
    """Return the example of a table's online run; none where there is none."""
    found = shown_run(table_runs, store, online=True)
    if found is None:
        return []
    row, run = found
    trained = [r for stage in run.training for r in read_stage(store, stage, "trained.parquet")]
    last = next((prompt for prompt in reversed(trained) if prompt["generation"] > 0), None)
    if last is None:
        return []
    by_name = {prompt["prompt_id"]: prompt for prompt in reversed(trained)}
    chain: Rows = []
    prompt: dict[str, Any] | None = last
    while prompt is not None:
        chain.insert(0, prompt)
        prompt = by_name.get(prompt["parent_id"])
    steps = tuple(_trained_on(prompt) for prompt in chain)
    name = f"{run.run_id}/{run.profile}/seed{run.seed}"
    segments = tuple(stage.fingerprint[:12] for stage in run.training)
    model = str(run.training[-1].settings["reward_model"])
    return [Lineage(table_runs.table.id, row, name, ONLINE_RULE, model, steps, segments)]


def _trained_on(prompt: dict[str, Any]) -> Step:
    facts = (
        ("step", f"{prompt['step']}, {prompt['phase']}"),
        ("informativeness", f"{prompt['informativeness']:.3f}"),
        ("mean reward", f"{prompt['reward_mean']:.3f}"),
        ("best reward", f"{prompt['reward_best']:.3f}"),
    )
    how = prompt["method"] or prompt["source"]
    return Step(prompt["prompt_id"], prompt["prompt"], how, facts)


def read_stage(store: Store, stage: Stage, file: str) -> Rows:
    """Return the rows of a file of a stage, verified."""
    import pyarrow.parquet as pq

    with pq.ParquetFile(store.file(stage.fingerprint, file)) as parquet:
        found: Rows = parquet.read().to_pylist()
    return found


def rewarded_answers(store: Store, annotate: Stage) -> dict[str, tuple[Answer, ...]]:
    """Return the rewarded answers of each prompt, best and worst marked as pairs mark them."""
    rewards = {
        (r["prompt_id"], r["sample"]): r["reward"]
        for r in read_stage(store, annotate, "rewards.parquet")
    }
    by_prompt: dict[str, Rows] = {}
    for answer in read_stage(store, annotate.inputs["completions"], "completions.parquet"):
        by_prompt.setdefault(answer["prompt_id"], []).append(answer)
    return {
        name: tuple(_marked((a["completion"], rewards[name, a["sample"]]) for a in own))
        for name, own in by_prompt.items()
    }


def _marked(answers: Iterable[tuple[str, float]]) -> list[Answer]:
    """Mark the best and the worst answer, the first of equals; equal rewards teach nothing."""
    known = list(answers)
    rewards = [reward for _, reward in known]
    best, worst = rewards.index(max(rewards)), rewards.index(min(rewards))
    roles = {} if best == worst else {best: "chosen", worst: "rejected"}
    return [Answer(text, reward, roles.get(i, "")) for i, (text, reward) in enumerate(known)]


def judged_answers(table_runs: TableRuns, store: Store, *, online: bool) -> list[Judged]:
    """Return the judged answers of a table that are shown; none where a run is not whole."""
    found = shown_run(table_runs, store, online=online)
    if found is None:
        return []
    name, run = found
    row = table_runs.table.row(name)
    if row.baseline is None:
        return []
    first = table_runs.table.columns[0]
    before = table_runs.runs[table_runs.table.row(row.baseline).run_id(first), run.seed]
    return [
        judged
        for benchmark, judge in run.judged.items()
        if "answers" in judge.inputs and _both_done(store, before, run, benchmark)
        for judged in _of_benchmark(
            store, benchmark, before, run, (table_runs.table.id, row.id, row.baseline)
        )
    ]


def _both_done(store: Store, before: Run, after: Run, benchmark: str) -> bool:
    judges = (before.judged.get(benchmark), after.judged[benchmark])
    return all(judge and store.status(judge.fingerprint) == "done" for judge in judges)


def _of_benchmark(
    store: Store, benchmark: str, before: Run, after: Run, where: tuple[str, str, str]
) -> list[Judged]:
    judges = before.judged[benchmark], after.judged[benchmark]
    turns = [_turns(store, judge) for judge in judges]
    if not all(turns):
        return []
    names = sorted(turns[0])
    references = _references(judges[1])
    return [
        Judged(
            *where,
            benchmark,
            str(judges[1].settings["judge"]),
            item,
            references.get(item),
            turns[0][item],
            turns[1][item],
            (judges[0].fingerprint[:12], judges[1].fingerprint[:12]),
        )
        for item in dict.fromkeys((names[0], names[len(names) // 2], names[-1]))
    ]


def _turns(store: Store, judge: Stage) -> dict[str, tuple[Turn, ...]]:
    """Return the turns of each item: what was asked, answered and said of it.

    Nothing where the judge did not say anything, but marked answers by a rule.
    """
    answers = read_stage(store, judge.inputs["answers"], "answers.parquet")
    replies: dict[str, Rows] = {}
    for reply in read_stage(store, judge, "judgments.parquet"):
        if "reply" not in reply:
            return {}
        replies.setdefault(reply["prompt_id"], []).append(reply)
    several = {answer["prompt_id"] for answer in answers if answer["turn"] > 1}
    found: dict[str, list[Turn]] = {}
    for answer in sorted(answers, key=lambda row: (row["prompt_id"], row["turn"])):
        item, turn = answer["prompt_id"], answer["turn"]
        # A judgment's number is its turn where there are several turns, and its game elsewhere.
        own = [r for r in replies.get(item, []) if item not in several or r["number"] == turn]
        games = item not in several and len(own) > 1
        said = tuple((_name(reply, games=games), str(reply["reply"])) for reply in own)
        asked = json.loads(answer["conversation"])[-1]["content"]
        found.setdefault(item, []).append(Turn(str(asked), answer["completion"], said))
    return {item: tuple(turns) for item, turns in found.items()}


def _name(reply: Mapping[str, Any], *, games: bool) -> str:
    """Return what a judgment is called; of two games the first has the reference as answer A."""
    return f"reference as {'AB'[int(reply['number']) - 1]}" if games else "verdict"


def _references(judge: Stage) -> dict[str, str]:
    """Return the answers that a benchmark compares with."""
    from harness.worlds.lookup import runtime_of

    try:
        items = runtime_of(str(judge.settings["benchmark"])).questions(
            str(judge.settings["benchmark"])
        )
    except HarnessError:  # the files that these answers came from are not those at hand
        return {}
    return {item.item_id: item.reference for item in items if item.reference is not None}
