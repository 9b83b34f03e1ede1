"""Records of a table: experiment `<table>/<profile>`, which opens on ours against the paper.

    <row>      one for each row: `ours/…`, `gain/…`, `paper/…` and `cost/…` of each column, the
               recipe as parameters, and links to the runs behind it
    ours       the whole table: its report, forest plot and verdict, and our value of every row
    paper      the paper's value of every row, under the same names, to compare `ours` with

A row's numbers are those of the report's cells and of nothing else; a cell that is not whole has
no metrics, only its state. What is ours minus what is the paper's is never written: gains over the
baseline row are what can be compared. A row that is not whole is KILLED and never RUNNING: what is
computed is its runs.
"""

from __future__ import annotations

import io
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import quote

from harness.registry.profile import Profile
from harness.registry.schema import Column, Row, Table
from harness.report.build import main_column
from harness.report.plots import canvas, plain_frame
from harness.tracking.record import (
    LONGEST_TAG,
    TRAINING,
    Bars,
    Files,
    Parallel,
    Record,
    Status,
    View,
    address,
    flatten,
    join,
    metric_name,
    recipe_file,
    sha256,
)

if TYPE_CHECKING:
    from harness.report.model import Cell, HumanPrompts, Report

_INHERITED = ("policy", "reward_model", "creator", "judge", "benchmarks", "commit", "dirty")
"""Tags that a row has from the runs behind it."""

_CHARTED = 3
"""Most columns that have a chart of their own at first."""

_COMPARED = 5
"""Most settings that the first view compares."""

_FOLDED = ("gain", "ours", "paper", "cost")

_LAST = {"ours": "98", "paper": "99"}
"""Where the two runs of the whole table stand in its order."""


@dataclass(frozen=True)
class Details:
    """What is said of a table beside its cells; made only when it has to be written."""

    report: Report
    finding: str
    page: str


@dataclass(frozen=True)
class TableContent:
    """A table at a profile, from whichever source, with the root seeds and the rows that are shown.

    `behind` has the records of the runs behind each row, by the row's id; a row without any is
    left out. `experiment` and `runs` name the experiments of the table and of its runs, `source`
    is the command that makes it. `details` makes what is said beside the cells; None where nobody
    can.
    """

    table: Table
    profile: Profile
    seeds: Sequence[int]
    rows: Sequence[Row]
    cells: Sequence[Cell]
    behind: Mapping[str, Sequence[Record]]
    experiment: str
    runs: str
    source: str
    details: Callable[[], Details] | None = None

    def records(self) -> list[Record]:
        """Return the records of the rows, then those of the whole table; none without rows."""
        rows = [
            self._row(number, row)
            for number, row in enumerate(self.rows, start=1)
            if self.behind.get(row.id) and self._cells(row)
        ]
        if not rows:
            return []
        return [*rows, self._ours(rows), *self._paper(rows)]

    def _cells(self, row: Row) -> list[Cell]:
        return [cell for cell in self.cells if cell.row == row.id]

    @property
    def _note(self) -> str:
        where = "{experiment:" + self.experiment + "}"
        return (
            f"**{self.table.heading}.** {self.table.question} Scale: {self.profile.scale}. "
            f"[Ours against the paper](#{address(where)[2:]})"
        )

    def _record(
        self,
        name: str,
        order: str,
        behind: Sequence[Record],
        *,
        status: Status,
        params: Mapping[str, str],
        tags: Mapping[str, str],
        metrics: Mapping[str, float],
        files: Files | None,
        describe: Callable[[], str],
        kind: str = "row",
    ) -> Record:
        start_ms = min(record.start_ms for record in behind)
        ends = [record.end_ms for record in behind if record.end_ms is not None]
        own = {
            "table": self.table.id,
            "order": order,
            "scale": self.profile.scale,
            "seeds": join(self.seeds),
        }
        return Record(
            experiment=self.experiment,
            note=self._note,
            view=self._view.tags,
            identity=sha256([kind, *self.experiment.split("/"), name]),
            name=name,
            status=status,
            start_ms=start_ms,
            end_ms=max(ends, default=start_ms),
            params={"table": self.table.id, "profile": self.profile.name, **params},
            tags={**own, **_source(self.source, behind), **tags},
            scores_digest=sha256(dict(metrics)),
            read_scores=lambda: metrics,
            files=files,
            describe=describe,
        )

    def _row(self, number: int, row: Row) -> Record:
        cells, behind = self._cells(row), self.behind[row.id]
        states = {cell.state for cell in cells}
        status: Status = "FAILED" if "failed" in states else "KILLED"
        if states <= {"ok", "not_available"}:
            status = "FINISHED"
        metrics = {name: value for cell in cells for name, value in _metrics(cell).items()}
        recipes = {run_id: recipe.canonical() for run_id, recipe in self.table.recipes(row).items()}
        recipe: dict[str, list[str]] = {}
        for found in recipes.values():
            for key, text in flatten(found, "recipe").items():
                recipe.setdefault(key, []).append(text)
        return self._record(
            row.id,
            f"{number:02}",
            behind,
            status=status,
            params={
                "row": row.id,
                "label": row.label,
                "run": join(recipes),
                "baseline": row.baseline or "none",
                **{key: join(texts) for key, texts in recipe.items()},
            },
            tags=_tags(cells, behind),
            metrics=metrics | _costs(behind),
            files=recipe_file(recipes),
            describe=lambda: self._of_row(row, list(recipes)),
        )

    def _of_row(self, row: Row, runs: Sequence[str]) -> str:
        """Return what a row is, in Markdown."""
        lines = [
            f"### {row.label}",
            f"Row `{row.id}` of {self.table.heading}, profile `{self.profile.name}` "
            f"({self.profile.scale}). {self.table.question}",
            "",
            *_of_row_markdown(self.table, row, self.cells),
            "",
        ]
        here = "{experiment:" + self.runs + "}"
        for run in runs:
            lines.append(f"- [Seeds of run `{run}`]({_filtered(here, 'run', run)})")
        if row.baseline is not None:
            there = "{experiment:" + self.experiment + "}"
            found = _filtered(there, "row", row.baseline)
            lines.append(f"- [Its baseline, `{row.baseline}`]({found})")
        lines.append(f"- `harness why {self.table.id}/{row.id}` names its stages in the store")
        return "\n".join(lines)

    def _ours(self, rows: Sequence[Record]) -> Record:
        metrics = {
            f"rows/{metric_name(cell.column)}/{metric_name(cell.row)}": cell.mean
            for cell in self.cells
            if cell.state == "ok" and cell.mean is not None
        }
        states = {record.status for record in rows}
        status: Status = "FINISHED" if states == {"FINISHED"} else "KILLED"
        files = None
        if self.details is not None:
            said = sha256([[record.digest for record in rows], self.source])
            files = Files(said, self._files)
        return self._record(
            "ours",
            _LAST["ours"],
            rows,
            status=status,
            params={"rows": str(len(rows))},
            tags=_inherited(rows),
            metrics=metrics,
            files=files,
            describe=self._of_table,
            kind="table",
        )

    def _paper(self, rows: Sequence[Record]) -> Iterator[Record]:
        """Yield the record of what the paper prints; none of a table of ours."""
        metrics = {
            f"rows/{metric_name(column)}/{metric_name(row.id)}": printed.value
            for row in self.rows
            for column, printed in row.values.items()
        }
        if not metrics:
            return
        text = (
            f"What the paper prints ({self.table.place}), under the names of the run `ours`: "
            "select both and choose **Compare**. It was trained and judged elsewhere, at another "
            "scale."
        )
        yield self._record(
            "paper",
            _LAST["paper"],
            rows[:1],
            status="FINISHED",
            params={"rows": str(len(rows))},
            tags={},
            metrics=metrics,
            files=None,
            describe=lambda: text,
            kind="table",
        )

    def _of_table(self) -> str:
        """Return what the table says, in Markdown."""
        finding = [] if self.details is None else [f"**{self.details().finding}**", ""]
        runs = "{experiment:" + self.runs + "}"
        return "\n".join(
            [
                f"### {self.table.heading}",
                f"{self.table.question}",
                "",
                *finding,
                *_markdown(self.table, self.rows, self.cells),
                "",
                f"Profile `{self.profile.name}`, scale {self.profile.scale}, seeds "
                f"{join(self.seeds)}. Values of the paper are from {self.table.place}. The whole "
                "report is among the artifacts, or `harness report "
                f"{self.table.id} --profile {self.profile.name}`.",
                f"- [All runs behind it](#/experiments/{runs}/runs?{TRAINING})",
            ]
        )

    def _files(self) -> dict[str, bytes]:
        """Return the table's report in every form, and its forest plot."""
        from harness.report.publication import dumps
        from harness.report.render import as_csv, as_markdown
        from harness.tracking.tables import forest_plots

        assert self.details is not None
        details = self.details()
        return {
            "report.json": dumps(details.report.as_json()).encode(),
            "report.md": as_markdown(details.report).encode(),
            "report.csv": as_csv([details.report]).encode(),
            "report.html": details.page.encode(),
            **forest_plots(self.table, self.rows, self.cells),
        }

    @property
    def _columns(self) -> list[Column]:
        """The columns with numbers, the one of the primary claim first."""
        main = main_column(self.table)
        having = {cell.column for cell in self.cells if cell.state == "ok"}
        rest = [column for column in self.table.columns if column.id != main.id]
        return [column for column in (main, *rest) if column.id in having] or [main]

    @property
    def _view(self) -> View:
        columns: list[str] = []
        charts: list[Bars | Parallel] = []
        for column in self._columns:
            name, has_paper = metric_name(column.id), not self.table.is_ours
            columns += [f"metrics.ours/{name}", f"metrics.gain/{name}"]
            columns += [f"metrics.paper/{name}"] if has_paper else []
            sides = [f"ours/{name}", *([f"paper/{name}"] if has_paper else [])]
            if len(charts) < _CHARTED:
                title = (
                    f"{column_name(column)}: ours and paper" if has_paper else column_name(column)
                )
                charts.append(Bars(title, sides))
        differing = self._differing()
        if differing:
            found = [f"ours/{metric_name(column.id)}" for column in self._columns[:_CHARTED]]
            charts.append(Parallel("What the rows differ in", differing, found))
        folded = [*_FOLDED, *(f"rows/{metric_name(c.id)}" for c in self.table.columns)]
        shown = [f"params.{name}" for name in differing]
        return View([*columns, *shown], "tags.order", charts, "Ours against the paper", folded)

    def _differing(self) -> list[str]:
        """Return the settings that a comparison of the rows is about.

        Those are the settings that rows which have them have different values of.
        """
        values: dict[str, set[str]] = {}
        for row in self.rows:
            for recipe in self.table.recipes(row).values():
                for key, text in flatten(recipe.canonical(), "recipe").items():
                    values.setdefault(key, set()).add(text)
        return [name for name, found in values.items() if len(found) > 1][:_COMPARED]


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
            f"gain/{column}.detectable": cell.gain_detectable,
            **_worth(f"ours/{column}.worth", cell.worth),
            **_worth(f"paper/{column}.worth", cell.paper_worth),
        }
    return {name: float(number) for name, number in numbers.items() if number is not None}


def _worth(name: str, found: HumanPrompts | None) -> dict[str, float | None]:
    """Return a worth in human prompts; what lies outside the curve has no number."""
    if found is None:
        return {}
    return {name: found.times, f"{name}.low": found.low, f"{name}.high": found.high}


def _costs(behind: Sequence[Record]) -> dict[str, float]:
    """Return the mean costs of the runs behind a row; none unless every run has them."""
    found = [record.costs for record in behind]
    names = set.intersection(*(set(costs) for costs in found))
    return {name: sum(costs[name] for costs in found) / len(found) for name in sorted(names)}


def _source(command: str, behind: Sequence[Record]) -> dict[str, str]:
    """Return MLflow's own tags for where a run comes from."""
    commits = [record.tags[_COMMIT] for record in behind if _COMMIT in record.tags]
    tags = {"mlflow.source.name": command, "mlflow.source.type": "LOCAL"}
    return tags | ({_COMMIT: commits[0]} if commits else {})


_COMMIT = "mlflow.source.git.commit"


def _tags(cells: Sequence[Cell], behind: Sequence[Record]) -> dict[str, str]:
    states = {cell.state for cell in cells}
    tags = {
        "state": states.pop() if len(states) == 1 else "mixed",
        **{f"state.{metric_name(cell.column)}": cell.state for cell in cells},
        **_inherited(behind),
    }
    failures = dict.fromkeys(r.tags["failure"] for r in behind if "failure" in r.tags)
    if failures:
        tags["failure"] = "; ".join(failures)[:LONGEST_TAG]
    return tags


def _inherited(behind: Sequence[Record]) -> dict[str, str]:
    """Return what the runs behind a row say of themselves, each value once."""
    found = [record.tags for record in behind]
    names = [*_INHERITED, *sorted({n for t in found for n in t if n.startswith("version.")})]
    # A run that several commits computed says so itself, as a list.
    parts = {name: [p for t in found if name in t for p in t[name].split(", ")] for name in names}
    return {
        name: join(part for part in values if part != "none")
        for name, values in parts.items()
        if values
    }


def _filtered(experiment: str, param: str, value: str) -> str:
    """Return the address of the runs of an experiment that have a value of a parameter."""
    search = quote(f'params.{param} = "{value}"')
    return f"#/experiments/{experiment}/runs?searchFilter={search}&{TRAINING}"


def column_name(column: Column) -> str:
    """Return what a column is called outside its table: the benchmark and the paper's heading."""
    return f"{column.benchmark} · {column.printed}"


def _of_row_markdown(table: Table, row: Row, cells: Sequence[Cell]) -> Iterator[str]:
    """Yield the cells of a row as a table in Markdown, a line for each column."""
    yield "| column | ours | gain | paper |"
    yield "|---|---:|---:|---:|"
    for cell in cells:
        if cell.row == row.id:
            numbers = _three(cell, _decimals(cells, cell.column))
            yield f"| {column_name(table.column(cell.column))} | {numbers} |"


def _decimals(cells: Sequence[Cell], column: str) -> int:
    """Return the decimals of a column as a report has them: three digits of the largest mean."""
    of_column = [cell for cell in cells if cell.column == column]
    printed = [len((cell.paper_printed or "").partition(".")[2]) for cell in of_column]
    means = [abs(cell.mean) for cell in of_column if cell.mean]
    return max([*printed, 2 - math.floor(math.log10(max(means))) if means else 0])


def _markdown(table: Table, rows: Sequence[Row], cells: Sequence[Cell]) -> Iterator[str]:
    """Yield ours against the paper in Markdown, a table for each column."""
    held = {(cell.row, cell.column): cell for cell in cells}
    for column in table.columns:
        if any(cell.column == column.id for cell in cells):
            yield f"**{column_name(column)}**"
            yield ""
            yield "| row | ours | gain | paper |"
            yield "|---|---:|---:|---:|"
            decimals = _decimals(cells, column.id)
            for row in rows:
                label = row.label.replace("|", "/")
                yield f"| {label} | {_three(held.get((row.id, column.id)), decimals)} |"
            yield ""


def _three(cell: Cell | None, decimals: int) -> str:
    """Return ours, gain and the paper's value as three fields of a table."""
    if cell is None:
        return "– | – | –"
    own = _interval(cell.mean, cell.ci_low, cell.ci_high, "", decimals)
    ours = own or cell.state.replace("_", " ")
    gain = _interval(cell.gain, cell.gain_ci_low, cell.gain_ci_high, "+", decimals) or "–"
    return f"{ours} | {gain} | {cell.paper_printed or '–'}"


def _interval(
    mean: float | None, low: float | None, high: float | None, sign: str, decimals: int
) -> str:
    if mean is None or low is None or high is None:
        return ""
    return f"{mean:{sign}.{decimals}f} ±{(high - low) / 2:.{decimals}f}"


OURS = "#1f6f8b"
PAPER = "#c8553d"


def forest_plots(table: Table, rows: Sequence[Row], cells: Sequence[Cell]) -> dict[str, bytes]:
    """Return a picture of each column that has numbers, as SVG by file name."""
    found = {}
    for column in table.columns:
        held = {cell.row: cell for cell in cells if cell.column == column.id}
        shown = [row for row in rows if row.id in held and held[row.id].mean is not None]
        if shown:
            title = f"{column.benchmark} · {column.printed}"
            found[f"forest/{column.id}.svg"] = _forest(title, shown, held)
    return found


def _forest(title: str, rows: Sequence[Row], cells: Mapping[str, Cell]) -> bytes:
    target = io.BytesIO()
    height = 1.1 + 0.3 * len(rows)
    with canvas(target, f"forest {title}", (7.0, height), heading=title) as (_, panels):
        axes = panels[0, 0]
        plain_frame(axes, grid="x")
        places = list(range(len(rows), 0, -1))
        for place, row in zip(places, rows, strict=True):
            cell = cells[row.id]
            assert cell.mean is not None
            if cell.ci_low is not None and cell.ci_high is not None:
                axes.hlines(place, cell.ci_low, cell.ci_high, color=OURS, linewidth=2)
        means = [cells[row.id].mean for row in rows]
        axes.plot(means, places, "o", color=OURS, markersize=5, label="ours, 95% interval")
        printed = [(cells[row.id].paper, place) for place, row in zip(places, rows, strict=True)]
        known = [(value, place) for value, place in printed if value is not None]
        if known:
            axes.plot(*zip(*known, strict=True), "D", color=PAPER, markersize=4.5, label="paper")
        axes.set_yticks(places, [row.id for row in rows])
        axes.legend(
            loc="lower right", bbox_to_anchor=(1.0, 1.0), ncols=2, frameon=False, fontsize=8
        )
    return target.getvalue()
