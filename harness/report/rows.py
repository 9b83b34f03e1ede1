"""Per-row statistics other than cells: cost, creator, and prompt distances.

All are computed alike: for each run of each row, look up the stages that its numbers need for every
seed. If any seed lacks one, the row has a state and no numbers; otherwise the seeds' numbers are
read from the stages' summaries and files and averaged.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

from harness import project
from harness.registry.objective import COSTS
from harness.registry.profile import Profile
from harness.report.cells import Failures
from harness.report.controls import KnownControls
from harness.report.origin import JUDGING, made_by, stage_summary
from harness.report.parts import Creation, OnlineCost, PromptDistance, RowCost
from harness.runtime import Stage, Store
from harness.statistics.distance import Bigrams, Mask, bigrams, jensen_shannon
from harness.worlds.stage_io import read_rows

if TYPE_CHECKING:
    from harness.pipeline.algorithm import Run
    from harness.pipeline.runs import TableRuns

Numbers = dict[str, float | None]
"""One seed's numbers by name; None if a stage does not record one."""


def _runs_of_rows(table_runs: TableRuns) -> Iterator[tuple[dict[str, Any], Sequence[Run]]]:
    """Yield each run of each row in printed order: its row and run ids, and its runs by seed."""
    for row in table_runs.rows:
        for run_id in dict.fromkeys(row.run_id(column) for column in table_runs.table.columns):
            yield {"row": row.id, "run": run_id}, table_runs.of(run_id)


def _means(
    failures: Failures,
    runs: Sequence[Run],
    needed: Callable[[Run], Sequence[Stage]],
    numbers: Callable[[Run], Numbers],
) -> dict[str, Any]:
    """Return the state of a run's numbers, the number of finished seeds, and means if all are done.

    `needed` returns the stages that a run's numbers depend on, empty if they do not apply;
    `numbers` returns the numbers of a finished run.
    """
    state, done = failures.state([needed(run) for run in runs])
    seeds = [numbers(run) for run in runs] if state == "ok" else [{}]
    means = {name: mean_if_whole([seed[name] for seed in seeds]) for name in seeds[0]}
    return {"state": state, "done": done, **means}


def sum_if_whole(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) if len(known) == len(values) else None


def mean_if_whole(values: Sequence[float | None]) -> float | None:
    """Return the mean of the values, or None if any is None."""
    total = sum_if_whole(values)
    return None if total is None else total / len(values)


def _number(summary: Mapping[str, Any], name: str) -> float | None:
    value = summary.get(name)
    return None if value is None else float(value)


def _share(part: int | None, whole: int | None) -> float | None:
    return None if part is None or not whole else part / whole


# --- Cost ---


class StoreReader:
    """Reads and caches the costs and prompts of stages.

    Rows and tables share stages, so a page of all tables uses one reader.
    """

    def __init__(self, store: Store) -> None:
        self.store = store
        self._controls: dict[str, KnownControls] = {}
        self._amounts: dict[str, Numbers] = {}
        self._bags: dict[str, Bigrams] = {}

    def controls(self, profile: Profile) -> KnownControls:
        if profile.name not in self._controls:
            self._controls[profile.name] = KnownControls(profile, self.store, project.results_dir())
        return self._controls[profile.name]

    def amounts(self, stage: Stage) -> Numbers:
        if stage.fingerprint not in self._amounts:
            nothing: Numbers = dict.fromkeys(COSTS, 0.0)
            self._amounts[stage.fingerprint] = nothing | self._counted(stage)
        return self._amounts[stage.fingerprint]

    def _counted(self, stage: Stage) -> Numbers:
        """Return a stage's recorded costs other than time, if its kind has any."""
        if stage.kind == "generate":
            longest = cast(int, stage.settings["max_new_tokens"])
            rows = read_rows(self.store.file(stage.fingerprint, "completions.parquet"), "n_tokens")
            # n_tokens excludes the end token, which every answer under the limit has.
            tokens = sum(row["n_tokens"] + (row["n_tokens"] < longest) for row in rows)
            return {"rollouts": float(len(rows)), "tokens": float(tokens)}
        if stage.kind == "train":
            log = self.store.file(stage.fingerprint, "log.json")
            summary = json.loads(log.read_text(encoding="utf-8"))["summary"]
            return {"gradient_steps": _number(summary, "steps")}
        if stage.kind not in ("rewrite", "evolve", "online"):
            return {}
        said = stage_summary(self.store, stage)
        if stage.kind == "rewrite":  # records revisions but not their tokens
            return {"rollouts": _number(said, "pairs"), "tokens": None}
        if stage.kind == "evolve":
            return {"creator_calls": _number(said, "calls")}
        return {name: _number(said, name) for name in COSTS}

    def seconds(self, stages: Iterable[Stage]) -> float | None:
        stages = list(stages)
        if any(self.store.status(stage.fingerprint) != "done" for stage in stages):
            return None
        return sum(self.store.manifest(stage.fingerprint)["wall_s"] for stage in stages)

    def bigrams(self, stage: Stage, mask: Mask) -> Bigrams:
        """Return the bigrams of the prompts a stage makes, draws, pairs, answers, or trains on."""
        if stage.fingerprint not in self._bags:
            file, column = _PROMPTS_OF.get(stage.kind, ("pairs.parquet", "prompt"))
            rows = read_rows(self.store.file(stage.fingerprint, file), column)
            texts = [row[column] for row in rows]
            if column == "conversation":
                texts = last_asked(texts)
            self._bags[stage.fingerprint] = bigrams(texts, mask)
        return self._bags[stage.fingerprint]


def row_costs(table_runs: TableRuns, reader: StoreReader) -> list[RowCost]:
    """Return the cost of every run of every row of a table, in printed order.

    A row's cost covers all stages behind its policy (or its prompts, if those are measured) as if
    computed alone: stages shared between rows count in each. Times depend on the machine and are
    comparable only between rows computed on the same one; the other numbers do not.
    """

    def judging(run: Run) -> float | None:
        judges = list(run.judged.values())
        answers = [stage for judge in judges for stage in judge.inputs.values()]
        return reader.seconds([*judges, *(it for it in answers if it.kind in JUDGING)])

    def numbers(run: Run) -> Numbers:
        stages = made_by(run)
        # An online segment records cumulative costs, so only the last one counts.
        last = [stage for stage in stages if stage.kind != "online"] + [
            stage for stage in run.training[-1:] if stage.kind == "online"
        ]
        amounts = [reader.amounts(stage) for stage in last]
        counted = {name: sum_if_whole([amount[name] for amount in amounts]) for name in COSTS}
        return {"seconds": reader.seconds(stages), "judging_seconds": judging(run), **counted}

    failures, found = Failures(reader.store), []
    for names, runs in _runs_of_rows(table_runs):
        means = _means(failures, runs, made_by, numbers)
        if not made_by(runs[0]):
            means["judging_seconds"] = mean_if_whole([judging(run) for run in runs])
        found.append(RowCost(**names, **means))
    return found


# --- Online training ---


def online_costs(table_runs: TableRuns, store: Store) -> list[OnlineCost]:
    """Return the costs of every online run of every row, in printed order.

    Costs are those of the last segment, which are cumulative and include children's rollouts.
    `evolved_share` is over all training prompts of the run, `dropped` over all requested rewrites.
    """

    def numbers(run: Run) -> Numbers:
        said = [stage_summary(store, stage) for stage in run.training]
        trained = [sum(segment["phases"].values()) for segment in said]
        evolved = sum(n * s["evolved_share"] for n, s in zip(trained, said, strict=True))
        dropped = sum(segment["dropped"] for segment in said)
        children = dropped + sum(segment["children"] for segment in said)
        repeated = sum(segment.get("repeated", 0) for segment in said)
        return {
            **{name: float(said[-1][name]) for name in COSTS},
            "dropped": dropped / children if children else None,
            "evolved_share": evolved / sum(trained),
            "buffer": float(said[-1]["buffer"]),
            "repeated": float(repeated),
        }

    failures = Failures(store)
    return [
        OnlineCost(**names, **_means(failures, runs, lambda run: run.training, numbers))
        for names, runs in _runs_of_rows(table_runs)
        if runs[0].recipe.is_online
    ]


# --- The creator ---


def creations(table_runs: TableRuns, store: Store) -> list[Creation]:
    """Return the creator's statistics for every offline run of every row, in printed order.

    They show whether the metric's weights mattered: if fewer prompts than draws have positive
    weight, the rest of the selection ignores the metric. They come from the stages of the last
    iteration, the one that differs between rows in most tables.
    """

    def numbers(run: Run) -> Numbers:
        said = {name: stage_summary(store, it) for name, it in creator_stages(run).items()}
        select, evolve, pair = (said.get(name, {}) for name in ("select", "evolve", "pair"))
        reasons, calls = evolve.get("unusable"), evolve.get("calls")
        return {
            "without_weight": _share(select.get("without_weight"), select.get("selected")),
            "without_spread": select.get("without_spread"),
            "evolved_without_spread": _share(pair.get("ties"), pair.get("pairs")),
            "calls": calls,
            "unusable": _share(None if reasons is None else sum(reasons.values()), calls),
            "dropped": evolve.get("dropped"),
            "filled": _filled(store, run.iterations[-1].prompts),
        }

    failures, found = Failures(store), []
    for names, runs in _runs_of_rows(table_runs):
        if not runs[0].recipe.is_online:
            means = _means(failures, runs, lambda run: [*creator_stages(run).values()], numbers)
            evolves = "evolve" in creator_stages(runs[0])
            found.append(Creation(**names, evolves=evolves, **means))
    return found


def creator_stages(run: Run) -> dict[str, Stage]:
    """Return the creator's stages in a run's last iteration, by role.

    Returns:
        `select`, plus `evolve` and `pair` (of the evolved prompts) if the iteration evolves; empty
        if it has no creator.
    """
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


def _filled(store: Store, mix: Stage) -> float | None:
    """Return how many evolved pairs a mix lacks; 0 if its summary is missing."""
    if mix.kind != "mix" or store.status(mix.fingerprint) != "done":
        return None
    said = stage_summary(store, mix)
    return float(said["asked"] - said["evolved"]) if said else 0.0


# --- Prompt distances ---

_PROMPTS_OF = {
    "prompts": ("prompts.parquet", "prompt"),
    "select": ("selected.parquet", "prompt"),
    "choose": ("selected.parquet", "prompt"),
    "online": ("trained.parquet", "prompt"),
    "answer": ("answers.parquet", "conversation"),
}
"""File and column of prompts by kind of stage; other kinds have pairs."""


def prompt_distances(table_runs: TableRuns, reader: StoreReader) -> list[PromptDistance]:
    """Return the distances of every run's training prompts from seed and benchmark prompts.

    A creator could win by drifting toward the test distribution; these distances show whether it
    does. They compare the prompts of the last iteration's pairs (or its prompts, if prompts
    themselves are scored) with the human prompts of the same run's first iteration and with each of
    the table's pairwise benchmarks.
    """
    from harness.worlds.lookup import world_of

    mask = functools.cache(world_of(table_runs.profile).prompts.shown_word)
    benchmarks = {
        name: _answered(table_runs, name, reader.store) for name in pairwise_benchmarks(table_runs)
    }

    def numbers(run: Run) -> Numbers:
        trained = reader.bigrams(run.last_prompts, mask)
        seed = reader.bigrams(run.iterations[0].prompts, mask)
        found: Numbers = {"to_seed": jensen_shannon(trained, seed)}
        for name, answers in benchmarks.items():
            tested = None if answers is None else reader.bigrams(answers, mask)
            found[name] = None if tested is None else jensen_shannon(trained, tested)
        return found

    def needed(run: Run) -> list[Stage]:
        return [run.last_prompts, run.iterations[0].prompts] if run.iterations else []

    failures, found = Failures(reader.store), []
    for names, runs in _runs_of_rows(table_runs):
        means = _means(failures, runs, needed, numbers)
        to = {name: means.pop(name, None) for name in benchmarks}
        found.append(PromptDistance(**names, **means, to_benchmarks=to))
    return found


def pairwise_benchmarks(table_runs: TableRuns) -> list[str]:
    """Return the table's benchmarks that compare answers with a reference's."""
    asked = {name for run in table_runs.runs.values() for name in run.asked}
    benchmarks = table_runs.profile.benchmarks.items()
    return [name for name, b in benchmarks if b.against is not None and name in asked]


def _answered(table_runs: TableRuns, benchmark: str, store: Store) -> Stage | None:
    """Return the first finished stage that answered a benchmark and so holds its prompts."""
    judges = (run.judged.get(benchmark) for run in table_runs.runs.values())
    answers = (judge.inputs["answers"] for judge in judges if judge is not None)
    return next((it for it in answers if store.status(it.fingerprint) == "done"), None)


def last_asked(conversations: Iterable[str]) -> list[str]:
    """Return the last user message of each conversation, a JSON list of messages."""
    found = []
    for conversation in conversations:
        asked = ""
        for message in json.loads(conversation):
            if message["role"] == "user":
                asked = str(message["content"])
        found.append(asked)
    return found
