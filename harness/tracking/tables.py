"""Records of tables, made from their reports: from a store, or from published results.

    <table>/<profile>   one run per row: gain, score and cost of each column next to the paper's
                        value, the recipe as parameters; its page opens on our gains and the paper's
    tables/<profile>    one run per table: its report, finding and claims

A row's metrics are its report's cells, to four digits; an incomplete cell has a state and no
metrics. Ours minus the paper's is never written: only gains over the baseline row are comparable.
An incomplete row is KILLED, never RUNNING: what is computed is its runs.

Published results get their own experiments, whose names end in `/published`, and need no store:
`harness sync --published` shows them in a fresh clone. They have scores but no training curves,
data or policies. All seeds of a row are one MLflow run, with its scores as a curve over the seeds.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from harness.errors import HarnessError
from harness.registry.declared import all_profiles, all_tables
from harness.report.answer import finding
from harness.report.controls import KnownControls
from harness.report.publication import published_folders
from harness.report.publish import published_report
from harness.report.view import plain, side
from harness.runtime import Store
from harness.runtime.stage import fingerprint_of
from harness.tracking.record import (
    COMMIT_TAG,
    KIND_TAG,
    LONGEST_TAG,
    NOTE_TAG,
    Chart,
    Files,
    MetricValue,
    Record,
    Status,
    first_view,
    flatten,
    join,
    metric_name,
    milliseconds,
    recipe_file,
    rounded,
)
from harness.tracking.runs import run_record
from harness.tracking.trials import published_trials

if TYPE_CHECKING:
    from harness.pipeline.runs import TableRuns
    from harness.report.model import Cell, Report, ReportRow

SUFFIX = "/published"

_INHERITED = ("policy", "reward_model", "creator", "judge", "benchmarks", "commit", "dirty")
"""Tags that a row takes from the runs behind it."""

_CHARTED = 3
"""Maximum number of columns with a chart in the first view."""


class TableState(NamedTuple):
    """A table's runs at a profile, its report (None to show only runs), and its HTML page."""

    runs: TableRuns
    report: Report | None = None
    page: Callable[[], str] = str


@dataclass(frozen=True)
class Behind:
    """What a row takes from its runs, or a table from its rows.

    Attributes:
        costs: Means over the runs; a cost is left out unless every run has it.
        by_seed: Scores with the seed as their step, if all seeds are one MLflow run.
    """

    start_ms: int
    end_ms: int
    tags: Mapping[str, str]
    costs: Mapping[str, float] = field(default_factory=dict)
    by_seed: Sequence[MetricValue] = ()

    @classmethod
    def of(cls, records: Sequence[Record]) -> Behind:
        start_ms = min(record.start_ms for record in records)
        ends = [record.end_ms for record in records if record.end_ms is not None]
        commits = [record.tags[COMMIT_TAG] for record in records if COMMIT_TAG in record.tags]
        tags = {COMMIT_TAG: commits[0]} if commits else {}
        for name in _INHERITED:
            parts = [p for it in records if name in it.tags for p in it.tags[name].split(", ")]
            if parts:
                tags[name] = join(part for part in parts if part != "none")
        failures = dict.fromkeys(it.tags["failure"] for it in records if "failure" in it.tags)
        if failures:
            tags["failure"] = "; ".join(failures)[:LONGEST_TAG]
        costs = {
            name: rounded(sum(record.scores[name] for record in records) / len(records))
            for name in sorted(records[0].scores)
            if name.startswith("cost/") and all(name in record.scores for record in records)
        }
        return cls(start_ms, max(ends, default=start_ms), tags, costs)


def state_records(
    state: TableState, store: Store, served: Mapping[str, Sequence[str]]
) -> list[Record]:
    """Return the records of a table's runs and, if there is a report, of its rows and the table."""
    runs = {
        key: record
        for key, run in state.runs.runs.items()
        if (record := run_record(run, state.runs.profile, store, served))
    }
    report = state.report
    if report is None:
        return [*runs.values()]
    of_rows = {
        row.id: [record for (name, _), record in runs.items() if name in row.runs.values()]
        for row in report.rows
    }
    behind = {row: Behind.of(own) for row, own in of_rows.items() if own}
    source = f"harness run {report.table_id} --profile {report.profile_id}"
    table = _Table(report, source, lambda: _written(report, state.page))
    return [*runs.values(), *table.records(behind)]


def _written(report: Report, page: Callable[[], str]) -> Files:
    from harness.report.render import as_csv, as_markdown
    from harness.runtime.files import dumps

    return {
        "report.json": dumps(report.as_json()).encode(),
        "report.md": as_markdown(report).encode(),
        "report.csv": as_csv([report]).encode(),
        "report.html": page().encode(),
    }


@dataclass(frozen=True)
class _Table:
    """A report's records; `source` is its command or folder, `suffix` ends experiment names."""

    report: Report
    source: str
    files: Callable[[], Files]
    suffix: str = ""

    def records(self, behind: Mapping[str, Behind]) -> list[Record]:
        """Return a record of each row in `behind`, then the table's; none without rows."""
        rows = [
            self._row(number, row, behind[row.id])
            for number, row in enumerate(self.report.rows, start=1)
            if row.id in behind
        ]
        return [*rows, self._whole(rows)] if rows else []

    def _row(self, number: int, row: ReportRow, behind: Behind) -> Record:
        report, table, profile = self.report, self.report.table, self.report.profile
        cells = [cell for cell in report.cells if cell.row == row.id]
        states = {cell.state for cell in cells}
        status: Status = "FAILED" if "failed" in states else "KILLED"
        if states <= {"ok", "not_available"}:
            status = "FINISHED"
        numbers = {name: value for cell in cells for name, value in _metrics(cell).items()}
        numbers |= behind.costs
        recipes = {name: it.canonical() for name, it in table.recipes(table.row(row.id)).items()}
        settings: dict[str, list[str]] = {}
        for recipe in recipes.values():
            for key, text in flatten(recipe, "recipe").items():
                settings.setdefault(key, []).append(text)
        about = f"Row {row.id} of {table.heading} on the profile {profile.name} ({profile.scale})."
        return Record(
            experiment=f"{table.id}/{profile.name}{self.suffix}",
            note=plain(f"{table.heading}. {table.question} Scale: {profile.scale}."),
            view=_view(report),
            identity=fingerprint_of(["row", table.id, f"{profile.name}{self.suffix}", row.id]),
            name=plain(row.label),
            status=status,
            start_ms=behind.start_ms,
            end_ms=behind.end_ms,
            params={
                **self._params,
                "row": row.id,
                "run": join(recipes),
                "baseline": row.baseline or "none",
                **{key: join(texts) for key, texts in settings.items()},
            },
            tags={
                **self._tags(behind),
                "order": f"{number:02}",
                NOTE_TAG: plain(about),
                "state": states.pop() if len(states) == 1 else "mixed",
                **{f"interval/{metric_name(cell.column)}": _interval(cell) for cell in cells},
                **{f"verdict/{metric_name(cell.column)}": _verdict(cell) for cell in cells},
            },
            # MLflow compares runs by the metrics logged first, so ours come first.
            scores=dict(sorted(numbers.items(), key=lambda it: it[0].startswith("paper/"))),
            basis=repr(behind.by_seed),
            metrics=lambda: behind.by_seed,
            files=lambda: recipe_file(recipes),
        )

    def _whole(self, rows: Sequence[Record]) -> Record:
        report, table, profile = self.report, self.report.table, self.report.profile.name
        behind = Behind.of(rows)

        def claims() -> list[MetricValue]:
            words = Counter(verdict.word for verdict in report.verdicts)
            return [MetricValue(f"claims/{it}", n, behind.start_ms) for it, n in words.items()]

        def files() -> Files:
            listed = {
                "claim": [verdict.statement for verdict in report.verdicts],
                "verdict": [verdict.text for verdict in report.verdicts],
                "reason": [verdict.reason or "" for verdict in report.verdicts],
            }
            return {**self.files(), "claims.json": listed}

        return Record(
            experiment=f"tables/{profile}{self.suffix}",
            note=f"One run for each table on the profile {profile}: what it says, its report, and "
            "how many of the paper's claims came out how.",
            view=KIND_TAG,
            identity=fingerprint_of(["table", table.id, profile, self.suffix]),
            name=plain(table.heading),
            status="FINISHED" if {record.status for record in rows} == {"FINISHED"} else "KILLED",
            start_ms=behind.start_ms,
            end_ms=behind.end_ms,
            params={**self._params, "rows": str(len(rows))},
            tags=self._tags(behind),
            basis=[record.digest for record in rows],
            metrics=claims,
            files=files,
            describe=lambda: finding(report, report.verdicts),
        )

    @property
    def _params(self) -> dict[str, str]:
        return {"table": self.report.table_id, "profile": self.report.profile_id}

    def _tags(self, behind: Behind) -> dict[str, str]:
        return {
            "table": self.report.table_id,
            "scale": self.report.scale,
            "seeds": join(self.report.seeds),
            "mlflow.source.name": self.source,
            "mlflow.source.type": "LOCAL",
            **behind.tags,
        }


def _view(report: Report) -> dict[str, str]:
    """Return the first view of a table's rows; the primary claim's column comes first."""
    main, papers = report.table.main_column, [] if report.table.is_ours else ["paper"]
    having = {cell.column for cell in report.cells if cell.state == "ok"}
    ordered = [main, *(column for column in report.table.columns if column.id != main.id)]
    columns: list[str] = []
    charts: list[Chart] = []
    for column in [column for column in ordered if column.id in having] or [main]:
        name = metric_name(column.id)
        sides = [f"gain/{name}", *(f"{it}/{name}.gain" for it in papers)]
        columns += [f"metrics.{side}" for side in sides]
        columns += [f"tags.interval/{name}", f"tags.verdict/{name}"]
        columns += [f"metrics.{side}/{name}" for side in ("ours", *papers)]
        title = f"{column.benchmark} · {column.printed}: our gain"
        charts.append(Chart(title + (" and the paper's" if papers else ""), sides))
    return first_view(
        "Gain over the baseline, ours and the paper's" if papers else "Gain",
        columns,
        charts[:_CHARTED],
        order_by="tags.order",
        folded=("gain", "ours", "paper", "seeds", "cost"),
    )


def _metrics(cell: Cell) -> dict[str, float]:
    """Return a cell's numbers by metric name: the paper's, and ours if the cell is complete."""
    column = metric_name(cell.column)
    numbers = {f"paper/{column}": cell.paper, f"paper/{column}.gain": cell.paper_gain}
    if cell.state == "ok":
        numbers |= {
            f"ours/{column}": cell.mean,
            f"ours/{column}.low": cell.ci_low,
            f"ours/{column}.high": cell.ci_high,
            f"gain/{column}": cell.gain,
            f"gain/{column}.low": cell.gain_ci_low,
            f"gain/{column}.high": cell.gain_ci_high,
        }
    return {name: rounded(number) for name, number in numbers.items() if number is not None}


def _interval(cell: Cell) -> str:
    """Return the 95% interval of a cell's gain, or of its mean if it has no gain."""
    low, high, sign = cell.gain_ci_low, cell.gain_ci_high, "+"
    if cell.gain is None:
        low, high, sign = cell.ci_low, cell.ci_high, ""
    if low is None or high is None:
        return cell.state.replace("_", " ")
    return f"{rounded(low):{sign}g} to {rounded(high):{sign}g}"


def _verdict(cell: Cell) -> str:
    """Return which side of zero the interval of a cell's gain lies on."""
    if cell.gain is None or cell.gain_ci_low is None:
        return "baseline" if cell.baseline_row is None and cell.state == "ok" else "none"
    return {1: "higher", -1: "lower", 0: "no difference"}[side(cell)]


# --- Published ---


def published_records(results_dir: Path) -> list[Record]:
    """Return the records of all published tables and sweeps.

    Raises:
        HarnessError: A published file is missing, was modified, or matches no declaration.
    """
    controls = cache(lambda name: KnownControls(all_profiles()[name], None, results_dir))
    records = {
        record.identity: record
        for folder in published_folders(results_dir)
        for record in _published_table(folder, controls(folder.parent.name))
    }
    return [*records.values(), *published_trials(results_dir, SUFFIX)]


def _published_table(folder: Path, controls: KnownControls) -> list[Record]:
    report = published_report(all_tables()[folder.name], folder, controls)

    def files() -> Files:
        return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}

    table = _Table(report, f"results/{report.profile.name}/{report.table.id}", files, SUFFIX)
    return table.records({row.id: _published(report, row) for row in report.rows})


def _published(report: Report, row: ReportRow) -> Behind:
    """Return what a published report says about the runs behind a row."""
    origin, runs = report.origin, {*row.runs.values()}
    if origin.finished is None:
        raise HarnessError("a published table names no finished stage; publish it again")
    end = milliseconds(origin.finished)
    by_seed = [
        MetricValue(f"seeds/{score}", sum(values.values()) / len(values), end, seed)
        for (run, seed, score), values in report.measured.items()
        if run in runs
    ]
    costs: dict[str, float] = {}
    for cost in report.costs or ():
        if cost.run in runs:
            named = {"wall_s": cost.seconds, "rollouts": cost.rollouts, "tokens": cost.tokens,
                     "gradient_steps": cost.gradient_steps,
                     "creator_calls": cost.creator_calls}  # fmt: skip
            costs = {f"cost/{n}": rounded(value) for n, value in named.items() if value is not None}
    tags = {
        "policy": join(origin.policies),
        "reward_model": join(origin.reward_models),
        "creator": join(origin.creators),
        "judge": join(origin.judges.values()),
        "commit": join(origin.commits),
        COMMIT_TAG: join(origin.commits[-1:]),
    }
    return Behind(end, end, tags, costs, by_seed)
