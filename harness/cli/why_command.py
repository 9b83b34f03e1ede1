"""`why`: for each stage of a row, who shares it, or which setting makes it new."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from harness.cli.options import DEFAULT_PROFILE, LARGEST_SEED, JsonOption, ProfileOption

if TYPE_CHECKING:
    from harness.catalogue.recipe import Recipe
    from harness.catalogue.schema import Row, Table
    from harness.cli.comparison import Cause, Comparison, Node, Nodes
    from harness.store import Store
    from harness.trainer.plan import Run
    from harness.trainer.table_runs import TableRuns

RowArgument = Annotated[
    str, typer.Argument(metavar="ROW", help="A row, as `table4/eva-a_min`, or with --table.")
]
TableOption = Annotated[
    str | None, typer.Option("--table", metavar="TABLE", help="The table the row is in.")
]
SeedOption = Annotated[
    int, typer.Option("--seed", metavar="ID", min=0, max=LARGEST_SEED, help="The seed.")
]


def register(app: typer.Typer) -> None:
    """Add the verb to the command line."""
    app.command("why", epilog="Example: harness why table4/eva-a_min")(why)


def why(
    row: RowArgument,
    table: TableOption = None,
    profile: ProfileOption = DEFAULT_PROFILE,
    seed: SeedOption = 0,
    as_json: JsonOption = False,
) -> None:
    """Explain which stages of a row are shared, and which setting makes the others new.

    A stage is new where its own settings or those of a stage before it differ from every stage
    computed so far. The row is compared with the other rows of its table, and what is missing
    with what is in the store.
    """
    from harness.cli.asking import found, supported_rows
    from harness.cli.output import print_json
    from harness.project import store_dir
    from harness.store import Store
    from harness.trainer.table_runs import plan_table

    named, name = _place(table, row)
    declared, scale = found(named, profile)
    asked = declared.row(name)
    # Rows this profile cannot run have no stages to compare with.
    rows = supported_rows(declared, scale, asked=[asked.id])
    runs = plan_table(declared, scale, (seed,), rows)
    explanation = explain(runs, asked, Store(store_dir()))
    if as_json:
        print_json(explanation)
    else:
        _print(explanation)


def _place(table: str | None, row: str) -> tuple[str, str]:
    """Return table and row of `table/row`, or of a row and an option.

    Raises:
        UserError: No table is named, or two are.
    """
    from harness.errors import UserError

    named, slash, name = row.partition("/")
    if not slash:
        if table is None:
            raise UserError(f"`{row}` names no table; write `table4/{row}` or add `--table table4`")
        return table, row
    if table not in (None, named):
        raise UserError(f"`{row}` is not in `{table}`; leave out `--table`")
    return named, name


def explain(runs: TableRuns, row: Row, store: Store) -> dict[str, Any]:
    """Return why a row's stages are what they are, as JSON data.

    Args:
        runs: The whole table's runs with one seed.
        row: The row.
        store: What has been computed.
    """
    from harness.cli.comparison import Comparison, Nodes
    from harness.cli.wording import in_short
    from harness.engine import Plan

    nodes = Nodes(store)
    around = _Around(store, Comparison(), nodes, nodes.stored(), {}, {})
    own = set(runs.table.recipes(row))
    for (run_id, _), run in runs.runs.items():
        rows = [r.id for r in runs.rows if run_id in runs.table.recipes(r) and r.id != row.id]
        for stage in Plan(run.targets):
            around.rows.setdefault(stage.fingerprint, {}).update(dict.fromkeys(rows))
            if run_id not in own:
                around.others[stage.fingerprint] = nodes.of(stage)
    nearest = _nearest_row(runs.table, row)
    baseline = None if row.baseline is None else runs.table.row(row.baseline)
    return {
        "table": runs.table.id,
        "row": row.id,
        "profile": runs.profile.name,
        "seed": runs.seeds[0],
        "recipe": in_short(_recipe(runs.table, row)),
        "baseline": _versus(runs.table, row, baseline),
        "nearest": _versus(runs.table, row, nearest),
        "runs": [
            {"run": run_id, "stages": around.stages(runs.runs[run_id, runs.seeds[0]])}
            for run_id in runs.table.recipes(row)
        ],
    }


@dataclass
class _Around:
    """What a row's stages are compared with: the other rows' stages and the store's.

    `rows` are the other rows that need a stage, `others` the stages of the other rows' runs, both
    by fingerprint.
    """

    store: Store
    comparison: Comparison
    nodes: Nodes
    stored: Sequence[Node]
    rows: dict[str, dict[str, None]]
    others: dict[str, Node]

    def stages(self, run: Run) -> list[dict[str, Any]]:
        """Return what is to be said about each stage of a run, inputs first."""
        from harness.engine import Plan

        return [self._stage(self.nodes.of(stage)) for stage in Plan(run.targets)]

    def _stage(self, node: Node) -> dict[str, Any]:
        shared = list(self.rows.get(node.fingerprint, {}))
        state = self.store.status(node.fingerprint)
        others = [] if shared else list(self.others.values())
        stored = [] if state == "done" else self.stored
        failure = self.store.failure(node.fingerprint) if state == "failed" else None
        return {
            "kind": node.kind,
            "label": node.label,
            "fingerprint": node.fingerprint,
            "state": state,
            "failure": failure["reason"] if failure else None,
            "shared_with": shared,
            "new_among_rows": self._against(node, others),
            "new_in_store": self._against(node, stored),
        }

    def _against(self, node: Node, others: Sequence[Node]) -> dict[str, Any] | None:
        found = self.comparison.nearest(node, others)
        if found is None:
            return None
        there, causes = found
        return {
            "label": there.label,
            "fingerprint": there.fingerprint,
            "rows": list(self.rows.get(there.fingerprint, {})),
            "causes": [cause.as_json() for cause in causes],
        }


def _versus(table: Table, row: Row, other: Row | None) -> dict[str, Any] | None:
    """Return how a row's recipe differs from another row's."""
    if other is None:
        return None
    from harness.cli.wording import in_short

    causes = [cause.as_json() for cause in _recipe_causes(table, row, other)]
    return {"row": other.id, "recipe": in_short(_recipe(table, other)), "causes": causes}


def _recipe(table: Table, row: Row) -> Recipe:
    """Return a row's recipe; rows differ in every column alike, so the first speaks for all."""
    return table.recipe_of(row, table.columns[0])


def _recipe_causes(table: Table, row: Row, other: Row) -> list[Cause]:
    from harness.cli.comparison import ABSENT, Cause
    from harness.cli.wording import flattened

    here = flattened(_recipe(table, row).canonical())
    there = flattened(_recipe(table, other).canonical())
    return [
        Cause(key, here.get(key, ABSENT), there.get(key, ABSENT), ())
        for key in here | there
        if here.get(key, ABSENT) != there.get(key, ABSENT)
    ]


def _nearest_row(table: Table, row: Row) -> Row | None:
    """Return the other row whose recipe differs in the fewest settings; the first of equals."""
    others = [other for other in table.rows if other.id != row.id]
    return min(others, key=lambda other: len(_recipe_causes(table, row, other)), default=None)


def _print(explanation: dict[str, Any]) -> None:
    from harness.cli.output import console, grid

    out = console()
    where = f"{explanation['table']}/{explanation['row']}"
    out.print(f"{where} on {explanation['profile']}, seed {explanation['seed']}", style="bold")
    out.print(f"Recipe: {explanation['recipe']}.", soft_wrap=True)
    baseline, nearest = explanation["baseline"], explanation["nearest"]
    if baseline is not None:
        out.print(f"Baseline {baseline['row']}: {baseline['recipe']}.", soft_wrap=True)
    if nearest is not None:
        causes = _because(nearest["causes"])
        out.print(f"Nearest row {nearest['row']}: here {causes}.", soft_wrap=True)
    for run in explanation["runs"]:
        out.print(f"\nrun {run['run']}", style="bold")
        lines = [
            (stage["label"], stage["state"], _shared(stage), _why_new(stage))
            for stage in run["stages"]
        ]
        out.print(grid(("stage", "state", "shared with", "new because of"), lines))
        _print_missing(out, run["stages"])


def _print_missing(out: Any, stages: list[dict[str, Any]]) -> None:
    """Print why stages are not in the store, each reason once, with the first stage it meets."""
    from harness.cli.output import counted

    reasons: dict[str, tuple[str, list[str]]] = {}
    for stage in stages:
        near = stage["new_in_store"]
        if stage["failure"] is not None:
            same = text = f"it failed: {stage['failure']}"
        elif stage["state"] == "done":
            continue
        elif near is None:
            same = text = "nothing of its kind is stored"
        else:
            # Stages after the first have the same cause, at more places.
            same = str([(c["key"], c["here"], c["there"]) for c in near["causes"]])
            text = f"nearest stored is '{near['label']}', here {_because(near['causes'])}"
        reasons.setdefault(same, (text, []))[1].append(stage["label"])
    if not reasons:
        out.print("\nAll of its stages are in the store.")
    for text, labels in reasons.values():
        rest = f" and {counted(len(labels) - 1, 'more stage')}" if len(labels) > 1 else ""
        out.print(f"\nNot in the store: '{labels[0]}'{rest}: {text}.", soft_wrap=True)


def _shared(stage: dict[str, Any]) -> str:
    rows = stage["shared_with"]
    if len(rows) <= 3:
        return ", ".join(rows) or "-"
    return f"{', '.join(rows[:2])} and {len(rows) - 2} more"


def _why_new(stage: dict[str, Any]) -> str:
    near = stage["new_among_rows"]
    if stage["shared_with"]:
        return ""
    if near is None:
        return f"no other row has a stage `{stage['kind']}`"
    return _because(near["causes"])


def _because(causes: list[dict[str, Any]]) -> str:
    """Return causes in words: `select: metric a_min instead of uniform`."""
    from harness.cli.wording import as_text

    words = []
    for cause in causes:
        kinds = f"{', '.join(cause['kinds'])}: " if cause["kinds"] else ""
        here, there = as_text(cause["here"]), as_text(cause["there"])
        words.append(f"{kinds}{cause['key']} {here} instead of {there}")
    return "; ".join(words) or "nothing differs"
