"""Records of a table: its rows, and the table as a whole.

    <table>/<profile>   one run for each row: gain, score and cost of each column beside the paper's
                        value, the recipe as parameters; its page opens on our gains and the paper's
    tables/<profile>    one run for each table: its report, finding and claims

A row's numbers are those of the report's cells and of nothing else, with four digits; a cell that
is not whole has no metrics, only its state. What is ours minus what is the paper's is never
written: gains over the baseline row are what can be compared. A row that is not whole is KILLED and
never RUNNING: what is computed is its runs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from harness.registry.profile import Profile
from harness.registry.schema import Column, Row, Table
from harness.report.view import plain
from harness.tracking.record import (
    LONGEST_TAG,
    NOTE_TAG,
    Columns,
    Files,
    Record,
    Status,
    flatten,
    join,
    metric_name,
    recipe_file,
    sha256,
    shown,
)
from harness.tracking.view import KIND_TAG, Bars, View

if TYPE_CHECKING:
    from harness.report.model import Cell, Report, Verdict

_INHERITED = ("policy", "reward_model", "creator", "judge", "benchmarks", "commit", "dirty")
"""Tags that a row has from the runs behind it."""

_CHARTED = 3
"""Most columns that have a chart of their own at first."""

_FOLDED = ("gain", "ours", "paper", "seeds", "cost")

_COMMIT = "mlflow.source.git.commit"


@dataclass(frozen=True)
class Details:
    """What is said of a table beside its cells; made only when it has to be written.

    `files` makes its report in every form.
    """

    finding: str
    verdicts: Sequence[Verdict]
    files: Callable[[], Mapping[str, bytes]]

    @classmethod
    def of(
        cls, report: Report, finding: str, verdicts: Sequence[Verdict], page: Callable[[], str]
    ) -> Details:
        """Return the details of a report; `page` makes its page in HTML."""

        def files() -> dict[str, bytes]:
            from harness.report.render import as_csv, as_markdown
            from harness.runtime.files import dumps

            return {
                "report.json": dumps(report.as_json()).encode(),
                "report.md": as_markdown(report).encode(),
                "report.csv": as_csv([report]).encode(),
                "report.html": page().encode(),
            }

        return cls(finding, verdicts, files)


@dataclass(frozen=True)
class TableContent:
    """A table at a profile, from whichever source, with the root seeds and the rows that are shown.

    `behind` has the records of the runs behind each row, by the row's id; a row without any is
    left out. `suffix` ends the names of its experiments, `source` is the command that makes it.
    `details` makes what is said beside the cells; None where nobody can.
    """

    table: Table
    profile: Profile
    seeds: Sequence[int]
    rows: Sequence[Row]
    cells: Sequence[Cell]
    behind: Mapping[str, Sequence[Record]]
    source: str
    suffix: str = ""
    details: Callable[[], Details] | None = None

    def records(self) -> list[Record]:
        """Return the records of the rows, then that of the whole table; none without rows."""
        rows = [
            self._row(number, row)
            for number, row in enumerate(self.rows, start=1)
            if self.behind.get(row.id) and self._cells(row)
        ]
        return [*rows, self._whole(rows)] if rows else []

    def _cells(self, row: Row) -> list[Cell]:
        return [cell for cell in self.cells if cell.row == row.id]

    def _row(self, number: int, row: Row) -> Record:
        cells, behind = self._cells(row), self.behind[row.id]
        states = {cell.state for cell in cells}
        status: Status = "FAILED" if "failed" in states else "KILLED"
        if states <= {"ok", "not_available"}:
            status = "FINISHED"
        numbers = {name: value for cell in cells for name, value in _metrics(cell).items()}
        numbers |= _costs(behind)
        # MLflow compares runs by what was logged first.
        metrics = dict(sorted(numbers.items(), key=lambda item: item[0].startswith("paper/")))
        recipes = {run_id: recipe.canonical() for run_id, recipe in self.table.recipes(row).items()}
        recipe: dict[str, list[str]] = {}
        for found in recipes.values():
            for key, text in flatten(found, "recipe").items():
                recipe.setdefault(key, []).append(text)
        experiment = f"{self.table.id}/{self.profile.name}{self.suffix}"
        start_ms, end_ms = _times(behind)
        tags = {
            "order": f"{number:02}",
            NOTE_TAG: plain(
                f"Row {row.id} of {self.table.heading} on the profile {self.profile.name} "
                f"({self.profile.scale}). harness why {self.table.id}/{row.id} names its stages."
            ),
            "state": states.pop() if len(states) == 1 else "mixed",
            **{f"interval/{metric_name(cell.column)}": _interval(cell) for cell in cells},
            **{f"verdict/{metric_name(cell.column)}": _verdict(cell) for cell in cells},
            **_failures(behind),
        }
        return Record(
            experiment=experiment,
            note=plain(f"{self.table.heading}. {self.table.question} Scale: {self.profile.scale}."),
            view=self._view.tags,
            identity=sha256(["row", *experiment.split("/"), row.id]),
            name=plain(row.label),
            status=status,
            start_ms=start_ms,
            end_ms=end_ms,
            params={
                **self._params,
                "row": row.id,
                "run": join(recipes),
                "baseline": row.baseline or "none",
                **{key: join(texts) for key, texts in recipe.items()},
            },
            tags={**self._tags(behind), **tags},
            scores_digest=sha256(metrics),
            read_scores=lambda: metrics,
            by_step=behind[0].by_step,
            files=behind[0].files if self.suffix else recipe_file(recipes),
        )

    def _whole(self, rows: Sequence[Record]) -> Record:
        states = {record.status for record in rows}
        start_ms, end_ms = _times(rows)
        said = sha256([[record.digest for record in rows], self.source])
        details = self.details
        return Record(
            experiment=f"tables/{self.profile.name}{self.suffix}",
            note=f"One run for each table on the profile {self.profile.name}: what it says, its "
            "report, and how many of the paper's claims came out how.",
            view=KIND_TAG,
            identity=sha256(["table", self.table.id, self.profile.name, self.suffix]),
            name=plain(self.table.heading),
            status="FINISHED" if states == {"FINISHED"} else "KILLED",
            start_ms=start_ms,
            end_ms=end_ms,
            params={**self._params, "rows": str(len(rows))},
            tags=self._tags(rows),
            scores_digest=said,
            read_scores=lambda: {} if details is None else _claims(details().verdicts),
            files=None if details is None else Files(said, lambda: _files(details())),
            describe=None if details is None else lambda: details().finding,
        )

    @property
    def _params(self) -> dict[str, str]:
        return {"table": self.table.id, "profile": self.profile.name}

    def _tags(self, behind: Sequence[Record]) -> dict[str, str]:
        own = {
            "table": self.table.id,
            "scale": self.profile.scale,
            "seeds": join(self.seeds),
            "mlflow.source.name": self.source,
            "mlflow.source.type": "LOCAL",
        }
        commits = [record.tags[_COMMIT] for record in behind if _COMMIT in record.tags]
        return {**own, **({_COMMIT: commits[0]} if commits else {}), **_inherited(behind)}

    @property
    def _columns(self) -> list[Column]:
        """The columns with numbers, the one of the primary claim first."""
        main = self.table.main_column
        having = {cell.column for cell in self.cells if cell.state == "ok"}
        rest = [column for column in self.table.columns if column.id != main.id]
        return [column for column in (main, *rest) if column.id in having] or [main]

    @property
    def _view(self) -> View:
        columns: list[str] = []
        charts: list[Bars] = []
        papers = [] if self.table.is_ours else ["paper"]
        for column in self._columns:
            name = metric_name(column.id)
            columns += [f"metrics.gain/{name}", *(f"metrics.{it}/{name}.gain" for it in papers)]
            columns += [f"tags.interval/{name}", f"tags.verdict/{name}"]
            columns += [f"metrics.{side}/{name}" for side in ("ours", *papers)]
            if len(charts) < _CHARTED:
                beside = " and the paper's" if papers else ""
                sides = [f"gain/{name}", *(f"{it}/{name}.gain" for it in papers)]
                charts.append(Bars(f"{column_name(column)}: our gain{beside}", sides))
        title = "Gain over the baseline, ours and the paper's" if papers else "Gain"
        return View(columns, "tags.order", charts, title, _FOLDED)


def _metrics(cell: Cell) -> dict[str, float]:
    """Return a cell's numbers by metric name: the paper's, and ours where the cell is whole."""
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
    return {name: shown(number) for name, number in numbers.items() if number is not None}


def _interval(cell: Cell) -> str:
    """Return the 95% interval of a cell's gain, of a baseline row that of its mean."""
    low, high = cell.gain_ci_low, cell.gain_ci_high
    sign = "+"
    if cell.gain is None:
        low, high, sign = cell.ci_low, cell.ci_high, ""
    if low is None or high is None:
        return cell.state.replace("_", " ")
    return f"{shown(low):{sign}g} to {shown(high):{sign}g}"


def _verdict(cell: Cell) -> str:
    """Return on which side of zero the interval of a cell's gain lies."""
    if cell.gain is None or cell.gain_ci_low is None or cell.gain_ci_high is None:
        return "baseline" if cell.baseline_row is None and cell.state == "ok" else "none"
    if cell.gain_ci_low > 0:
        return "higher"
    return "lower" if cell.gain_ci_high < 0 else "no difference"


def _claims(verdicts: Sequence[Verdict]) -> dict[str, float]:
    return {f"claims/{word}": float(n) for word, n in Counter(v.verdict for v in verdicts).items()}


def _files(details: Details) -> dict[str, bytes | Columns]:
    claims: dict[str, list[str]] = {
        "claim": [verdict.statement for verdict in details.verdicts],
        "verdict": [verdict.text for verdict in details.verdicts],
        "reason": [verdict.reason or "" for verdict in details.verdicts],
    }
    return {**details.files(), "claims.json": claims}


def _costs(behind: Sequence[Record]) -> dict[str, float]:
    """Return the mean costs of the runs behind a row; none unless every run has them."""
    found = [record.costs for record in behind]
    names = set.intersection(*(set(costs) for costs in found))
    return {n: shown(sum(costs[n] for costs in found) / len(found)) for n in sorted(names)}


def _times(behind: Sequence[Record]) -> tuple[int, int]:
    start_ms = min(record.start_ms for record in behind)
    ends = [record.end_ms for record in behind if record.end_ms is not None]
    return start_ms, max(ends, default=start_ms)


def _failures(behind: Sequence[Record]) -> dict[str, str]:
    found = dict.fromkeys(r.tags["failure"] for r in behind if "failure" in r.tags)
    return {"failure": "; ".join(found)[:LONGEST_TAG]} if found else {}


def _inherited(behind: Sequence[Record]) -> dict[str, str]:
    """Return what the runs behind a row say of themselves, each value once."""
    parts = {
        name: [part for r in behind if name in r.tags for part in r.tags[name].split(", ")]
        for name in _INHERITED
    }
    return {
        name: join(part for part in values if part != "none")
        for name, values in parts.items()
        if values
    }


def column_name(column: Column) -> str:
    """Return what a column is called outside its table: the benchmark and the paper's heading."""
    return f"{column.benchmark} · {column.printed}"
