"""Where each number comes from: the runs behind it, and what they were computed with.

A number on the page names its runs; the appendix lists every run once, with the fingerprints of
its judges' stages and trainings, models, creator, judges, and the commits that computed it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from harness.registry.profile import Profile, benchmark_of
from harness.report.origin import behind, makers_of, origin_of_stages
from harness.report.publication import DIGESTS
from harness.report.publish import OF_STUDY, Published
from harness.runtime import Store

if TYPE_CHECKING:
    from harness.trainer.plan import Run
    from harness.trainer.runs import TableRuns

SHORT = 12
"""Digits of a fingerprint that are shown; they are enough to find the folder."""


@dataclass(frozen=True)
class SeedTrace:
    """One run: a recipe at a profile with a seed.

    Attributes:
        seed: Its root seed.
        stages: The beginning of the fingerprint of each judge and training that is done, by what
            it is.
        commits: Commits of the code behind them.
        done: Stages that are done, and stages in all; None where that is not known.
        finished: When the last of them was finished; None where that is not known.
    """

    seed: int
    stages: Mapping[str, str]
    commits: tuple[str, ...]
    done: tuple[int, int] | None = None
    finished: str | None = None

    @property
    def whole(self) -> bool:
        """Whether all its stages are done; what is published of a run counts as all."""
        return bool(self.stages) if self.done is None else self.done[0] == self.done[1]


@dataclass
class RunTrace:
    """One recipe at a profile, with all its seeds.

    Attributes:
        run: Its id.
        profile: The profile.
        serves: The rows it stands behind, as `table/row`.
        policies: Base policies.
        reward_models: Reward models that annotate.
        creators: What evolves prompts; empty where nothing evolves.
        judges: What judges, by benchmark.
        seeds: Its runs, by seed.
    """

    run: str
    profile: str
    serves: dict[str, None] = field(default_factory=dict)
    policies: tuple[str, ...] = ()
    reward_models: tuple[str, ...] = ()
    creators: tuple[str, ...] = ()
    judges: Mapping[str, str] = field(default_factory=dict)
    seeds: dict[int, SeedTrace] = field(default_factory=dict)


Traces = dict[str, RunTrace]
"""Runs by their ids."""


def trace_store(table_runs: TableRuns, store: Store, traces: Traces) -> None:
    """Add the runs behind a table to those known, from what a store holds."""
    _serve(table_runs.table.id, _rows(table_runs), table_runs.profile.name, traces)
    for (run_id, seed), run in table_runs.runs.items():
        trace = traces[run_id]
        if seed in trace.seeds:
            continue
        origin = origin_of_stages(list(behind(run.targets)), store)
        if not trace.policies:
            makers = makers_of([run], store)
            trace.policies, trace.creators = origin.policies, makers.creators
            trace.reward_models = makers.reward_models
            judges = {name: str(stage.settings["judge"]) for name, stage in run.judged.items()}
            trace.judges = judges
        done = (origin.stages_done, origin.stages)
        stages = {
            name: fingerprint[:SHORT]
            for name, fingerprint in _targets(run).items()
            if store.status(fingerprint) == "done"
        }
        trace.seeds[seed] = SeedTrace(seed, stages, origin.commits, done, origin.finished)


def trace_published(published: Published, profile: Profile, traces: Traces) -> None:
    """Add the runs behind a published table to those known.

    What is published names the commits for a table as a whole, so that each of a run's is among
    those that all its tables have.
    """
    report = published.report
    origin = report.origin
    rows = {row.id: row.runs.values() for row in report.rows}
    _serve(report.table_id, rows, report.profile_id, traces)
    stages = json.loads((published.folder / DIGESTS).read_text(encoding="utf-8"))["stages"]
    of_runs = {name: found for name, found in stages.items() if name != OF_STUDY}
    for name, fingerprints in of_runs.items():
        run_id, _, seed = name.split("/")
        trace, number = traces[run_id], int(seed.removeprefix("seed"))
        trace.policies = _joined(trace.policies, origin.policies)
        known = trace.seeds.get(number)
        short = {what: fingerprint[:SHORT] for what, fingerprint in fingerprints.items()}
        commits = tuple(c for c in origin.commits if known is None or c in known.commits)
        both = short if known is None else {**known.stages, **short}
        trace.seeds[number] = SeedTrace(number, both, commits)
    for cell in report.cells:
        trace = traces[report.run_of(cell.row, cell.column)]
        trace.reward_models, trace.creators = cell.reward_models, cell.creators
        benchmark = benchmark_of(profile, report.score_of(cell.column))
        if benchmark is not None and cell.judge is not None:
            trace.judges = {**trace.judges, benchmark: cell.judge}


def _serve(table: str, rows: Mapping[str, Iterable[str]], profile: str, traces: Traces) -> None:
    for row, names in rows.items():
        for name in names:
            traces.setdefault(name, RunTrace(name, profile)).serves[f"{table}/{row}"] = None


def _rows(table_runs: TableRuns) -> dict[str, list[str]]:
    columns = table_runs.table.columns
    return {row.id: [row.run_id(column) for column in columns] for row in table_runs.rows}


def _targets(run: Run) -> dict[str, str]:
    stages = {f"judge {name}": stage for name, stage in run.judged.items()}
    stages |= {f"train {i}": stage for i, stage in enumerate(run.training, start=1)}
    return {name: stage.fingerprint for name, stage in stages.items()}


def _joined(known: Iterable[str], more: Iterable[Any]) -> tuple[str, ...]:
    return tuple(dict.fromkeys([*known, *map(str, more)]))
