"""What is said of each row beside its cells: its cost, its creator, where its prompts lie.

All of it goes one way: of each run of each row the stages that its numbers need are looked up for
every seed; where a seed lacks one, the row has a state and no number; where none does, the numbers
of the seeds are read from what the stages say of themselves, and averaged.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

from harness.report.cells import Failures
from harness.report.model import Creation, OfRow, OnlineCost, PromptDistance, RowCost
from harness.report.origin import JUDGING, made_by, stage_summary
from harness.report.scores import read_rows
from harness.runtime import Stage, Store
from harness.statistics.distance import Bigrams, bigrams, jensen_shannon

if TYPE_CHECKING:
    from harness.trainer.plan import Run
    from harness.trainer.runs import TableRuns

Numbers = dict[str, float | None]
"""Numbers of one seed by name; None where a stage does not record one."""

Found = TypeVar("Found", bound=OfRow)


def _of_rows(
    part: Callable[..., Found],
    table_runs: TableRuns,
    store: Store,
    needed: Callable[[Run], Sequence[Stage]],
    numbers: Callable[[Run], Numbers],
    always: Callable[[Sequence[Run]], Mapping[str, Any]] = lambda _: {},
    wanted: Callable[[Run], bool] = lambda _: True,
) -> list[Found]:
    """Return what is said of every run of every row, in printed order.

    `part` makes it of its fields; `needed` returns the stages that a run's numbers need, none
    where there is nothing to say; `numbers` the numbers of one seed's run whose stages are all
    there; `always` the fields there are in every state; `wanted` whether anything is said of a
    run at all.
    """
    failures = Failures(store)
    found = []
    for row in table_runs.rows:
        for run_id in dict.fromkeys(row.run_id(column) for column in table_runs.table.columns):
            runs = table_runs.of(run_id)
            if not wanted(runs[0]):
                continue
            state, done = failures.state([needed(run) for run in runs])
            means = _means([numbers(run) for run in runs]) if state == "ok" else {}
            known = {"row": row.id, "run": run_id, "state": state, "done": done}
            found.append(part(**known | dict(always(runs)) | means))
    return found


def _means(seeds: Sequence[Numbers]) -> Numbers:
    return {name: mean_if_whole([seed[name] for seed in seeds]) for name in seeds[0]}


def mean_if_whole(values: Sequence[float | None]) -> float | None:
    """Return the mean of every seed's value, None where one has none."""
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if len(known) == len(values) else None


def _number(summary: Mapping[str, Any], name: str) -> float | None:
    value = summary.get(name)
    return None if value is None else float(value)


# --- Cost ---

COUNTED = ("rollouts", "tokens", "gradient_steps", "creator_calls")


class Costs:
    """Reads what stages cost, each once, however many rows and tables share it.

    A row's cost is that of all stages behind its policy (or its prompts, where they are what is
    measured), as if it had been computed alone: stages that rows share are counted in each of them.
    Times are those the stages took where they ran, so they compare rows computed on one machine and
    nothing else; the other numbers are the same everywhere.
    """

    def __init__(self, store: Store) -> None:
        """Read from a store."""
        self._store = store
        self._known: dict[str, Numbers] = {}

    def of(self, table_runs: TableRuns) -> list[RowCost]:
        """Return the cost of every run of every row of a table, in printed order."""

        def of_untrained(runs: Sequence[Run]) -> dict[str, float | None]:
            if made_by(runs[0]):
                return {}
            return {"judging_seconds": mean_if_whole([self._judging(run) for run in runs])}

        return _of_rows(RowCost, table_runs, self._store, made_by, self._numbers, of_untrained)

    def _numbers(self, run: Run) -> Numbers:
        stages = made_by(run)
        found: Numbers = {
            "seconds": self._seconds(stages),
            "judging_seconds": self._judging(run),
        }
        # An online segment says what its run has cost since it began.
        last = [stage for stage in stages if stage.kind != "online"] + [
            stage for stage in run.training[-1:] if stage.kind == "online"
        ]
        amounts = [self._amounts(stage) for stage in last]
        for name in COUNTED:
            values = [amount[name] for amount in amounts]
            known = [value for value in values if value is not None]
            found[name] = sum(known) if len(known) == len(values) else None
        return found

    def _judging(self, run: Run) -> float | None:
        judges = list(run.judged.values())
        answers = [stage for judge in judges for stage in judge.inputs.values()]
        stages = [*judges, *(stage for stage in answers if stage.kind in JUDGING)]
        if any(self._store.status(stage.fingerprint) != "done" for stage in stages):
            return None
        return self._seconds(stages)

    def _seconds(self, stages: Iterable[Stage]) -> float:
        return sum(self._store.manifest(stage.fingerprint)["wall_s"] for stage in stages)

    def _amounts(self, stage: Stage) -> Numbers:
        if stage.fingerprint not in self._known:
            nothing: Numbers = dict.fromkeys(COUNTED, 0.0)
            self._known[stage.fingerprint] = nothing | self._read(stage)
        return self._known[stage.fingerprint]

    def _read(self, stage: Stage) -> Numbers:
        """Return what a stage of a kind that costs anything besides time says of it."""
        if stage.kind == "generate":
            folder = self._store.open(stage.fingerprint)
            longest = cast(int, stage.settings["max_new_tokens"])
            rollouts, tokens = _generated(folder / "completions.parquet", longest)
            return {"rollouts": rollouts, "tokens": tokens}
        if stage.kind == "rewrite":  # revisions are counted, their tokens are not
            return {"rollouts": _number(stage_summary(self._store, stage), "pairs"), "tokens": None}
        if stage.kind == "evolve":
            return {"creator_calls": _number(stage_summary(self._store, stage), "calls")}
        if stage.kind == "train":
            log = self._store.open(stage.fingerprint) / "log.json"
            summary = json.loads(log.read_text(encoding="utf-8"))["summary"]
            return {"gradient_steps": _number(summary, "steps")}
        if stage.kind == "online":
            summary = stage_summary(self._store, stage)
            return {name: _number(summary, name) for name in COUNTED}
        return {}


def _generated(path: Path, longest: int) -> tuple[float, float]:
    """Return how many answers a file holds, and their tokens, ends of turns included.

    The file counts the tokens before the end; an answer shorter than the longest has ended.
    """
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    with pq.ParquetFile(path) as file:
        tokens = file.read(columns=["n_tokens"]).column("n_tokens")
    ended = pc.sum(pc.less(tokens, longest)).as_py() or 0
    return float(len(tokens)), float((pc.sum(tokens).as_py() or 0) + ended)


# --- Online training ---


def online_costs(table_runs: TableRuns, store: Store) -> list[OnlineCost]:
    """Return the costs of every online run of every row, in printed order.

    The last segment of an online run says what the run has cost since it began, children's
    rollouts included; the shares are over all prompts the run was trained on.
    """

    def numbers(run: Run) -> Numbers:
        said = [stage_summary(store, stage) for stage in run.training]
        trained = [sum(segment["phases"].values()) for segment in said]
        evolved = sum(n * s["evolved_share"] for n, s in zip(trained, said, strict=True))
        dropped = sum(segment["dropped"] for segment in said)
        children = dropped + sum(segment["children"] for segment in said)
        repeated = sum(segment.get("repeated", 0) for segment in said)
        return {
            **{name: float(said[-1][name]) for name in COUNTED},
            "dropped": dropped / children if children else None,
            "evolved_share": evolved / sum(trained),
            "buffer": float(said[-1]["buffer"]),
            "repeated": float(repeated),
        }

    return _of_rows(
        OnlineCost,
        table_runs,
        store,
        lambda run: run.training,
        numbers,
        wanted=lambda run: run.recipe.is_online,
    )


# --- The creator ---


def creations(table_runs: TableRuns, store: Store) -> list[Creation]:
    """Return what the creator did in every offline run of every row, in printed order.

    A row's gain depends on whether its weights decided anything: where fewer prompts than draws
    have a positive weight, the rest of the selection is the same as without the metric. These facts
    are read from what the creator's stages of the last iteration say of themselves, the one
    iteration that differs between the rows of most tables.
    """

    def numbers(run: Run) -> Numbers:
        # Where ties are dropped, the pairs that are left say nothing of them.
        said = {
            name: {} if stage.settings.get("drop_ties") else stage_summary(store, stage)
            for name, stage in creator_stages(run).items()
        }
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

    return _of_rows(
        Creation,
        table_runs,
        store,
        lambda run: list(creator_stages(run).values()),
        numbers,
        always=lambda runs: {"evolves": "evolve" in creator_stages(runs[0])},
        wanted=lambda run: not run.recipe.is_online,
    )


def creator_stages(run: Run) -> dict[str, Stage]:
    """Return the creator's stages of a run's last iteration by what they do.

    Returns:
        `select`, with `evolve` and `pair` (of the evolved prompts) where the iteration evolves;
        empty where it has no creator.
    """
    # An iteration on the same prompts has those of the one before, whoever made them.
    if not run.iterations or run.recipe.chain[-1:] == ("same",):
        return {}
    prompts = run.iterations[-1].prompts
    if prompts.kind == "select":
        return {"select": prompts}
    if prompts.kind not in ("mix", "join"):
        return {}
    pair = prompts.inputs["evolved"]
    evolve = pair.inputs["completions"].inputs["prompts"]
    return {"select": evolve.inputs["selected"], "evolve": evolve, "pair": pair}


def _filled(store: Store, mix: Stage) -> float | None:
    """Return how many evolved pairs a mix lacks; a mix that says nothing of it lacks none."""
    if mix.kind != "mix" or store.status(mix.fingerprint) != "done":
        return None
    said = stage_summary(store, mix)
    return float(said["asked"] - said["evolved"]) if said else 0.0


def _share(part: int | None, whole: int | None) -> float | None:
    return None if part is None or not whole else part / whole


# --- Where prompts lie ---

_FILES = {
    "prompts": "prompts.parquet", "select": "selected.parquet", "online": "trained.parquet"
}  # fmt: skip
"""The file with the prompts of each kind of stage; of others it is that of their pairs."""


def prompt_distances(table_runs: TableRuns, store: Store) -> list[PromptDistance]:
    """Return how far the training prompts of every run of every row lie from other prompts.

    A creator could win by walking to the test distribution; these distances let a reader see it or
    rule it out. Measured are the prompts of the last iteration's pairs (or, where prompts
    themselves are scored, its prompts), against the human prompts of the first iteration of the
    same run and against each benchmark of the table that compares two answers.
    """
    reader = _Bigrams(table_runs, store)
    benchmarks = pairwise_benchmarks(table_runs)

    def numbers(run: Run) -> Numbers:
        trained = reader.prompts(run.last_prompts)
        found: Numbers = {
            "to_seed": jensen_shannon(trained, reader.prompts(run.iterations[0].prompts))
        }
        for name in benchmarks:
            test = reader.benchmark(name)
            found[name] = None if test is None else jensen_shannon(trained, test)
        return found

    def distance(**fields: Any) -> PromptDistance:
        to = {name: fields.pop(name, None) for name in benchmarks}
        return PromptDistance(**fields, to_benchmarks=to)

    return _of_rows(
        distance,
        table_runs,
        store,
        lambda run: [run.last_prompts] if run.iterations else [],
        numbers,
    )


def pairwise_benchmarks(table_runs: TableRuns) -> list[str]:
    """Return the benchmarks a table asks for that compare answers with somebody else's."""
    asked = {name for run in table_runs.runs.values() for name in run.asked}
    benchmarks = table_runs.profile.benchmarks.items()
    return [name for name, b in benchmarks if b.against is not None and name in asked]


class _Bigrams:
    """Bigrams of stored prompts, each set read once."""

    def __init__(self, table_runs: TableRuns, store: Store) -> None:
        self._table_runs = table_runs
        self._store = store
        self._bags: dict[str, Bigrams] = {}
        self._benchmarks: dict[str, Bigrams | None] = {}

    def prompts(self, stage: Stage) -> Bigrams:
        """Return the bigrams of the prompts a stage makes, draws, pairs, or trains on online."""
        return self._bag(stage, _FILES.get(stage.kind, "pairs.parquet"), "prompt", str)

    def benchmark(self, name: str) -> Bigrams | None:
        """Return the bigrams of a benchmark's prompts, from the first run that answered it."""
        if name not in self._benchmarks:
            judges = [run.judged.get(name) for run in self._table_runs.runs.values()]
            answers = (judge.inputs["answers"] for judge in judges if judge is not None)
            done = (s for s in answers if self._store.status(s.fingerprint) == "done")
            stage = next(done, None)
            self._benchmarks[name] = None if stage is None else self._bag(
                stage, "answers.parquet", "conversation", last_asked
            )  # fmt: skip
        return self._benchmarks[name]

    def _bag(self, stage: Stage, file: str, column: str, text: Callable[[str], str]) -> Bigrams:
        from harness.worlds.lookup import world_of

        if stage.fingerprint not in self._bags:
            rows = read_rows(self._store.open(stage.fingerprint) / file, column)
            mask = world_of(self._table_runs.profile).shown_word
            self._bags[stage.fingerprint] = bigrams((text(value) for (value,) in rows), mask)
        return self._bags[stage.fingerprint]


def last_asked(conversation: str) -> str:
    """Return what the user asked last in a conversation kept as a JSON list of messages."""
    asked = [str(m["content"]) for m in json.loads(conversation) if m["role"] == "user"]
    return asked[-1]
