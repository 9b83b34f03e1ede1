"""A page of the toy table, from a store whose texts are written by hand."""

from collections.abc import Mapping, Sequence
from typing import Any

from null_tables import judged_claims
from toy_tables import stored, write_files, write_prompts

from harness.pipeline.runs import TableRuns
from harness.report.build import with_all_rows
from harness.report.facts import creator_stages
from harness.report.page.page import as_html
from harness.report.plots import Picture
from harness.report.results import Results
from harness.runtime import Plan, Stage, Store

RUN = "dpo-eva-a_min"
"""The run whose prompts are shown: that of the only row with a creator whose stages are written."""


def shown(runs: TableRuns, store: Store) -> Results:
    """Return what a page shows of a table, whose claims no control bars."""
    found = with_all_rows(stored(runs, store))
    object.__setattr__(found, "verdicts", judged_claims(found))
    return found


def page_of(runs: TableRuns, store: Store, *pictures: Picture) -> str:
    return as_html([shown(runs, store)], pictures)


def prompt(
    name: str, text: str, parent: str | None = None, method: str | None = None
) -> dict[str, Any]:
    generation = name.count(".")
    source = "human" if parent is None else "evolved"
    return {"prompt_id": name, "prompt": text, "source": source, "parent_id": parent,
            "generation": generation, "method": method}  # fmt: skip


def write_lineage(store: Store, runs: TableRuns, text: str = "7 5", seed: int = 0) -> None:
    """Write the creator's last iteration of a run, and the training after it.

    Four prompts are drawn, h2 first; each has one rewrite, that of h0 has one of its own. Every
    prompt has the answers `text` (reward 1), "b" (3), "c" (3) and "d" (0).
    """
    run = runs.runs[RUN, seed]
    stages = creator_stages(run)
    drawn = [prompt(f"h{i}", f"prompt {i}") for i in (2, 0, 1, 3)]
    selected = [
        row | {"informativeness": 3.0 - i, "weight": 0.25, "draw": i} for i, row in enumerate(drawn)
    ]
    rewrites = [prompt(f"h{i}.2.1", f"rewrite {i}", f"h{i}", "breadth") for i in range(4)]
    rewrites.append(prompt("h0.2.2", "rewrite of a rewrite", "h0.2.1", "deepening"))
    write_files(store, stages["select"], selected=selected)
    write_files(store, stages["evolve"], prompts=rewrites)
    mix = run.iterations[-1].prompts
    base = mix.inputs["base"].inputs.get("rewards", stages["select"].inputs["rewards"])
    for annotate, prompts in ((base, drawn), (stages["pair"].inputs["rewards"], rewrites)):
        write_answers(store, annotate, prompts, text)
    rewards = {"reward_rejected": 0.0, "reward_chosen": 3.0}
    write_files(store, stages["pair"], pairs=[row | rewards for row in rewrites])
    mixed = [row | rewards for row in (rewrites[0], rewrites[4], drawn[3])]
    write_files(store, mix, pairs=mixed)


def write_answers(
    store: Store, annotate: Stage, prompts: Sequence[Mapping[str, Any]], text: str
) -> None:
    """Write four answers to each prompt, and their rewards."""
    answers = [
        {**row, "sample": i, "completion": answer, "n_tokens": 2}
        for row in prompts
        for i, answer in enumerate((text, "b", "c", "d"))
    ]
    rewards = [
        {"prompt_id": row["prompt_id"], "sample": i, "reward": reward}
        for row in prompts
        for i, reward in enumerate((1.0, 3.0, 3.0, 0.0))
    ]
    write_files(store, annotate.inputs["completions"], completions=answers)
    write_files(store, annotate, rewards=rewards)


def write_training(store: Store, runs: TableRuns, seed: int = 0) -> None:
    """Write every stage behind a run's policy.

    Each training took 63 steps, each creator's stage 10 calls, and each generation gave two
    answers, of 3 tokens and of 14, the most there can be. The time of a stage is what it is.
    """
    write_prompts(store, runs)
    answers = [prompt("p", "sort 3 1 2") | {"completion": "b", "n_tokens": n} for n in (3, 14)]
    files: dict[str, dict[str, Any]] = {
        "train": {"log": {"summary": {"steps": 63}}},
        "select": {"selected": [prompt("p", "sort 3 1 2")]},
        "evolve": {"summary": {"calls": 10}},
        "generate": {"completions": answers},
    }
    for stage in Plan(runs.runs[RUN, seed].training[-1:]):
        write_files(store, stage, **files.get(stage.kind, {}))
