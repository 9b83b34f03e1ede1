"""`why`: for each stage of a row, who shares it, or which setting makes it new."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from harness.cli.options import JsonOption, ProfileOption
from harness.cli.output import console, grid, print_json
from harness.errors import UserError
from harness.project import store_dir
from harness.selection.names import DEFAULT_PROFILE, LARGEST_SEED
from harness.words import counted

RowArgument = Annotated[
    str, typer.Argument(metavar="ROW", help="A row, as `table4/eva-a_min`, or with --table.")
]
TableOption = Annotated[
    str | None, typer.Option("--table", metavar="TABLE", help="The table the row is in.")
]
SeedOption = Annotated[
    int, typer.Option("--seed", metavar="ID", min=0, max=LARGEST_SEED, help="The seed.")
]

app = typer.Typer(rich_markup_mode=None)


@app.command("why", epilog="Example: harness why table4/eva-a_min")
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
    from harness.registry.declared import named_profile, named_table
    from harness.selection.why import explain
    from harness.store import Store

    named, name = _place(table, row)
    declared, _ = named_table(named)
    explanation = explain(declared, name, named_profile(profile), seed, Store(store_dir()))
    if as_json:
        print_json(explanation)
    else:
        _print(explanation)


def _place(table: str | None, row: str) -> tuple[str, str]:
    """Return table and row of `table/row`, or of a row and an option.

    Raises:
        UserError: No table is named, or two are.
    """
    named, slash, name = row.partition("/")
    if not slash:
        if table is None:
            raise UserError(f"`{row}` names no table; write `table4/{row}` or add `--table table4`")
        return table, row
    if table not in (None, named):
        raise UserError(f"`{row}` is not in `{table}`; leave out `--table`")
    return named, name


def _print(explanation: dict[str, Any]) -> None:
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
    from harness.registry.wording import as_text

    words = []
    for cause in causes:
        kinds = f"{', '.join(cause['kinds'])}: " if cause["kinds"] else ""
        here, there = as_text(cause["here"]), as_text(cause["there"])
        words.append(f"{kinds}{cause['key']} {here} instead of {there}")
    return "; ".join(words) or "nothing differs"
