"""Tables in which there is nothing to find, to count how often a verdict is reached on them.

They go through the code that judges the paper's claims; a verdict counts when it is `supported` or
`contradicted`, and at most 5% should be.

* Simulated nulls: every row of every declared table has the same true mean. What rows, prompts,
  seeds and answers differ in by chance is drawn, and all claims are judged as they are declared.
* One recipe under two names (A/A), from the published scores of every table with enough seeds. The
  seeds of a run that was computed are dealt to the two names without a seed in common, and a table
  is judged that claims of every score, one of them primary, that one name is above the other.
"""

import itertools
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
from toy_tables import CLAIM, DECLARATION

from harness.extensions import SCORES
from harness.registry.claims import Compare
from harness.registry.declared import all_profiles
from harness.registry.schema import PROMPT_SCORES, Table
from harness.report.model import Cell, Report, ReportColumn, ReportRow, Verdict
from harness.report.results import Results
from harness.report.scores import Measured
from harness.report.verdicts import ends_of, judge_all

EFFECTS: Mapping[str, float] = {"prompt": 1.0, "seed": 0.1, "row prompt": 0.1, "row seed": 0.1}
"""Standard deviations of what differs by chance, as multiples of that of a single answer.

Table 4 as published at the profile `micro` shows 0.75 to 1.4 for prompts, 0.03 to 0.05 for seeds,
0.05 to 0.12 for the prompts of a row and 0.02 to 0.03 for its seeds. Seeds are taken to differ
more here, because fewer prompts are simulated than are judged there.
"""


def counted(verdicts: Iterable[Verdict]) -> dict[str, tuple[int, int]]:
    """Return how many verdicts were tested, and how many of them decided: all, and primary ones."""
    known = [verdict for verdict in verdicts if verdict.p is not None]
    return {
        name: (len(own), sum(v.word in ("supported", "contradicted") for v in own))
        for name, own in (("all", known), ("primary", [v for v in known if v.primary]))
    }


def judged_claims(results: Results, inadmissible: Mapping[str, str] | None = None) -> list[Verdict]:
    """Return the verdicts on a table's claims, which no control bars."""
    table = results.table
    return judge_all(results, table.claims, table.id, inadmissible or {})


def simulated_nulls(
    tables: Iterable[Table], repetitions: int, *, seeds: int = 3, prompts: int = 40, root: int = 0
) -> list[Verdict]:
    """Return the verdicts on the claims of tables whose rows do not differ.

    Claims that rows are alike within some points are left out: where nothing differs they are
    true, and to find them supported is no error. A margin that is a share of a gain is zero here.
    """
    rng = np.random.default_rng(root)
    return [
        verdict
        for table in tables
        for _ in range(repetitions)
        for verdict in judged_claims(
            _results(table, null_scores(table, seeds, prompts, rng), seeds)
        )
        if not _is_true_of_equals(table, verdict.claim)
    ]


def one_recipe_twice(
    measured: Measured, seeds: Sequence[int], each: int, deals: int = 20, root: int = 0
) -> list[Verdict]:
    """Return the verdicts on one recipe under two names of so many seeds each, none in common.

    A run that lacks a score is left out.
    """
    rng = np.random.default_rng(root)
    # A study's measures of reward models are no scores, and no claim is about them.
    scores = sorted({score for _, _, score in measured} & {*SCORES})
    table = _two_names(scores)
    verdicts = []
    for run in sorted({run for run, _, _ in measured}):
        if any((run, seed, score) not in measured for seed in seeds for score in scores):
            continue
        for _ in range(deals):
            dealt = rng.permutation(np.asarray(seeds))
            named: Measured = {}
            for name, own in (("a", dealt[:each]), ("b", dealt[each : 2 * each])):
                for (position, seed), score in itertools.product(enumerate(own), scores):
                    named[name, position, score] = measured[run, int(seed), score]
            verdicts += judged_claims(_results(table, named, each))
    return verdicts


def _is_true_of_equals(table: Table, name: str) -> bool:
    test = next(claim.test for claim in table.claims if claim.id == name)
    margin = test.margin if isinstance(test, Compare) else None
    return margin is not None and margin.points is not None


def null_scores(table: Table, seeds: int, prompts: int, rng: np.random.Generator) -> Measured:
    """Draw the scores of every run of a table, all with the same true mean."""
    measured: Measured = {}
    for score, unit in {column.reads: column.unit for column in table.columns}.items():
        # In the middle, because at an end of its scale no claim is tested.
        level = sum(ends_of(unit) or (0.0, 0.0)) / 2.0
        shape = (seeds, prompts)
        # Where prompts themselves are scored, every seed and row has its own.
        own = score in PROMPT_SCORES
        shared = (0.0 if own else EFFECTS["prompt"]) * rng.normal(size=(1, prompts))
        shared = shared + EFFECTS["seed"] * rng.normal(size=(seeds, 1))
        columns = [column for column in table.columns if column.reads == score]
        for run in dict.fromkeys(row.run_id(column) for row in table.rows for column in columns):
            values = level + shared + rng.normal(size=shape)
            of_row = rng.normal(size=(seeds if own else 1, prompts))
            values = values + EFFECTS["row prompt"] * of_row
            values = values + EFFECTS["row seed"] * rng.normal(size=(seeds, 1))
            for seed in range(seeds):
                row = values[seed].tolist()
                measured[run, seed, score] = {f"p{i:04}": v for i, v in enumerate(row)}
    return measured


def results_of(
    table: Table, cells: Sequence[Cell], measured: Measured, absent: Mapping[str, str] | None = None
) -> Results:
    """Return results of some rows of a table; of the report there is what verdicts read."""
    asked = {cell.row for cell in cells}
    report = Report.model_construct(
        table=table.id, profile=cells[0].profile, scale=cells[0].scale, seeds=cells[0].seeds,
        rows=tuple(ReportRow.of(row, table) for row in table.rows if row.id in asked),
        columns=tuple(map(ReportColumn.of, table.columns)), cells=tuple(cells),
    )  # fmt: skip
    profile = all_profiles()["micro"]
    return Results(table, profile, report, lambda *_: (), measured, absent=absent or {})


def _results(table: Table, measured: Measured, seeds: int) -> Results:
    # Of a cell only the state matters: its scores are there.
    cells = [
        Cell(
            table=table.id, row=row.id, column=column.id, profile="none", scale="toy",
            seeds=tuple(range(seeds)), state="ok",
        )
        for row in table.rows
        for column in table.columns
    ]  # fmt: skip
    return results_of(table, cells, measured)


def _two_names(scores: Sequence[str]) -> Table:
    """Return a table of two rows, with a claim on each score; the first is primary."""
    texts = ("benchmark", "metric", "printed", "unit")
    columns = [{"id": s, **dict.fromkeys(texts, "-"), "direction": "none"} for s in scores]
    above = CLAIM["test"] | {"left": "a", "right": "b"}
    claims = [
        CLAIM | {"id": score, "primary": score == scores[0], "test": above | {"column": score}}
        for score in scores
    ]
    rows = [{"id": name, "label": name, "run": name} for name in ("a", "b")]
    fields = {"id": "aa", "columns": columns, "rows": rows, "claims": claims}
    return Table.model_validate(DECLARATION | fields)
