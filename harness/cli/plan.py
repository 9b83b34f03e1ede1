"""`plan` and `why`: what a run would compute, what that costs, and what makes a stage new."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from harness.cli import common
from harness.cli.common import Grid, console, print_json
from harness.errors import UserError
from harness.selection.names import DEFAULT_PROFILE
from harness.words import counted

if TYPE_CHECKING:
    from rich.console import Console

    from harness.cost.pricing import Price
    from harness.report.power import ClaimPower
    from harness.selection.planning import GroupSummary, RunPlan, Summary
    from harness.selection.why import Cause, ExplainedStage, Explanation

GpuOption = Annotated[
    str | None, common.option("--gpu", "NAME", "Price for this GPU.", default="the profile's")
]
GpusOption = Annotated[
    int | None, common.option("--gpus", "N", "... and so many.", default="the profile's")
]
RowArgument = Annotated[
    str,
    common.argument("ROW", "A row, as `table4/eva-a_min` or `./mine.yaml/few`."),
]
PowerOption = Annotated[
    bool,
    common.option(
        "--power", None, "Show the seeds that each claim still needs, from the variance so far."
    ),
]

app = typer.Typer(rich_markup_mode=None)


@app.command("plan", epilog="Example: harness plan table4 --seeds 0-4")
@common.takes(common.Asked, common.Limits)
def plan(
    asked: common.Asked,
    limits: common.Limits,
    gpu: GpuOption = None,
    gpus: GpusOption = None,
    power: PowerOption = False,
    as_json: common.JsonOption = False,
) -> None:
    """Show what a run would compute: stages done, missing, failed, and the time left.

    For a profile with models from outside the embedded world it shows the price instead of the
    time: GPU hours, dollars and disk, and what they assume. Of a group it then leaves
    out what the profile cannot run. The exit code is 1 if a limit is passed.
    """
    if power:
        _show_power(asked, as_json)
        return
    planned = asked.selection.priced(jobs=asked.jobs, price=limits.price(gpu, gpus))
    show(planned, as_json)
    planned.refuse_over_limits()


def _show_power(asked: common.Asked, as_json: bool) -> None:
    from harness.report.power import power_of

    chosen = asked.selection
    found = [power for evidence in chosen.evidence() for power in power_of(evidence)]
    if as_json:
        print_json(found)
        return
    out = console()
    head = ("claim", "verdict", "seeds", "detectable", "sought", "seeds needed")
    out.print(Grid(head, map(power_line, found), right="2345"))
    known = [power.needed for power in found if power.primary and power.needed is not None]
    if known:
        last = max(known) - 1
        again = f"harness plan {chosen.again} --seeds 0-{last}"
        out.print(f"\nWhat the primary claims' seeds cost: {again}", soft_wrap=True)


def power_line(power: ClaimPower) -> tuple[str, ...]:
    from harness.statistics.sequential import MOST_SEEDS

    numbers = ("-" if it is None else f"{it:.2f}" for it in (power.detectable, power.sought))
    none = "-" if power.sought is None else f"more than {MOST_SEEDS}"
    needed = none if power.needed is None else str(power.needed)
    star = " *" if power.primary else ""
    return (f"{power.claim}{star}", power.verdict, str(power.seeds), *numbers, needed)


def show(planned: RunPlan, as_json: bool) -> None:
    from harness.selection.planning import GroupSummary

    summary = planned.summary
    if as_json:
        print_json(summary)
        return
    out = console()
    out.print(planned.headline)
    if isinstance(summary, GroupSummary):
        _print_tables(out, summary)
    _print_stages(out, summary)
    if planned.price is not None:
        _print_price(out, planned.price)
    if summary.stages.done < summary.stages.total:
        out.print(f"\nCompute it: harness run {planned.again}", soft_wrap=True)


def _print_stages(out: Console, summary: Summary) -> None:
    out.print()
    counts = [*((kind.kind, kind) for kind in summary.kinds), ("all", summary.stages)]
    cells = [(name, str(c.total), str(c.done), str(c.missing), str(c.failed)) for name, c in counts]
    out.print(Grid(("stages", "total", "done", "missing", "failed"), cells, right="1234"))
    for failure in summary.failures:
        where = f"{failure.stage} ({failure.fingerprint[:12]})"
        out.print(f"failed: {where}: {failure.reason}")


def _print_tables(out: Console, summary: GroupSummary) -> None:
    """Print a line for each table of a group, and what is left out."""
    lines = []
    for line in summary.tables:
        numbers = (line.rows, line.runs, line.stages.total, line.stages.done)
        lines.append((line.table, *map(str, numbers)))
    headings = ("table", "rows", "runs", "stages", "done")
    out.print()
    out.print(Grid(headings, lines, right="1234"))
    print_left_out(out, summary)


def print_left_out(out: Console, summary: Summary) -> None:
    """Print why tables are left out of a group."""
    from harness.selection.planning import GroupSummary

    for item in summary.left_out if isinstance(summary, GroupSummary) else ():
        out.print(f"left out: {item.table}: {'; '.join(item.reasons)}")


def _print_price(out: Console, price: Price) -> None:
    out.print(
        "\nWhat is left is estimated to take the following: arithmetic on the assumptions below, "
        f"and {_speeds(price)}.",
    )
    for line in (_hours(price), _dollars(price), _disk(price)):
        out.print(line)
    _print_kinds(out, price)
    _print_servers(out, price)
    _print_calls(out, price)
    _print_assumptions(out, price)


def _speeds(price: Price) -> str:
    """Return whose speeds the estimate rests on."""
    timed = [name for name, kind in price.gpu_hours.by_kind.items() if kind.measured]
    if not timed:
        return "nothing of it was measured at this scale"
    return f"for {', '.join(timed)} on the speed of those of its stages that are done"


def _hours(price: Price) -> str:
    hardware, hours, factor = price.hardware, price.gpu_hours, price.uncertainty.gpu
    if hardware is None:
        return "GPU hours: none, the profile names no GPU"
    known = hours.known
    text = (
        f"GPU hours: {known:,.0f}, within a factor of {factor:g} ({known / factor:,.0f} to "
        f"{known * factor:,.0f}), or "
        f"{hours.wall_hours:,.0f} h on {hardware.gpus} x {hardware.gpu}"
    )
    if hours.unknown:
        missing = sum(kind.unknown for kind in hours.by_kind.values())
        text += f", and unknown for {missing} stages more: {'; '.join(hours.unknown)}"
    return text


def _dollars(price: Price) -> str:
    factor, usd = price.uncertainty.money, price.usd.known
    by_role: dict[str, list[float | None]] = {}
    for call in price.usd.calls:
        by_role.setdefault(call.role, []).append(call.usd)
    parts = [f"{role} {_sum(dollars)}" for role, dollars in by_role.items()]
    known = (
        f"{_money(usd)}, within a factor of {factor:g} ({_money(usd / factor)} to "
        f"{_money(usd * factor)})"
    )
    text = f"dollars: {known}" if price.usd.complete else f"dollars: {known}, and more, unknown"
    return f"{text}: {', '.join(parts)}" if parts else "dollars: $0, nobody is asked"


def _sum(dollars: list[float | None]) -> str:
    known = sum(usd for usd in dollars if usd is not None)
    if all(usd is None for usd in dollars):
        return "unknown"
    return _money(known) + (" and unknown" if None in dollars else "")


def _money(usd: float) -> str:
    """Return dollars as text without cents, which an estimate does not know."""
    return "under $1" if 0.0 < usd < 1.0 else f"${usd:,.0f}"


def _disk(price: Price) -> str:
    disk = price.disk_gb
    models = sum(size for size in disk.models.values() if size is not None)
    lacking = [name for name, size in disk.models.items() if size is None]
    text = (
        f"disk: {disk.total:,.0f} GB: {disk.kept:,.0f} in the store, {models:,.0f} of models, "
        f"{disk.in_passing:,.0f} while a training runs"
    )
    if round(disk.spent):
        text += f"; {disk.spent:,.0f} of the store's can be given back with `harness store --prune`"
    return f"{text}; unknown for {', '.join(lacking)}" if lacking else text


def _print_kinds(out: Console, price: Price) -> None:
    rows = [
        (
            name,
            str(kind.stages),
            "unknown" if kind.unknown else f"{kind.gpu_hours:,.1f}",
            f"{kind.gb:,.1f}",
        )
        for name, kind in price.gpu_hours.by_kind.items()
    ]
    out.print()
    out.print(Grid(("stages left", "number", "GPU hours", "GB kept"), rows, right="123"))


def _print_servers(out: Console, price: Price) -> None:
    if not price.servers:
        return
    rows = [(each.role, str(each.starts), f"{each.gpu_hours:,.1f}") for each in price.servers]
    out.print()
    out.print(Grid(("servers started here", "times", "GPU hours"), rows, right="12"))


def _print_calls(out: Console, price: Price) -> None:
    if not price.usd.calls:
        return
    rows = []
    for call in price.usd.calls:
        each, usd = call.usd_per_million, call.usd
        rows.append(
            (
                call.role,
                call.model,
                f"{call.requests:,}",
                f"{call.prompt_tokens / 1e6:,.1f}",
                f"{call.completion_tokens / 1e6:,.1f}",
                "unknown" if each is None else f"{each[0]:g}, {each[1]:g}",
                "unknown" if usd is None else _money(usd).replace("$", ""),
            )
        )
    headings = (
        "asked", "model", "requests", "M tokens in", "M tokens out", "$ per M in, out", "dollars"
    )  # fmt: skip
    out.print()
    out.print(Grid(headings, rows, right="23456"))
    out.print(price.usd.prices)
    for retirement in price.usd.retirements:
        out.print(retirement.sentence)


def _print_assumptions(out: Console, price: Price) -> None:
    rows = [(name, str(one.value), one.source) for name, one in price.assumptions.items()]
    gpu = price.hardware
    if gpu is not None:
        each = ((name, getattr(gpu, name)) for name in ("generating", "reading", "training"))
        said = ", ".join(f"{name} {'unknown' if n is None else f'{n:g}'}" for name, n in each)
        rows.append((f"{gpu.gpu}: parameters x tokens a second", said, gpu.source))
    out.print()
    out.print(Grid(("assumed", "value", "source"), rows, right="1"))


@app.command("why", epilog="Example: harness why table4/eva-a_min")
def why(
    row: RowArgument,
    profile: common.ProfileOption = DEFAULT_PROFILE,
    seed: common.SeedOption = 0,
    as_json: common.JsonOption = False,
) -> None:
    """Explain which stages of a row are shared, and which setting makes the others new.

    A stage is new where its own settings or those of a stage before it differ from every stage of
    the other rows of its table.
    """
    from harness.selection.selection import select

    named, name = _place(row)
    explanation = select(named, profile).why(name, seed)
    print_json(explanation) if as_json else _print_explanation(explanation)


def _place(row: str) -> tuple[str, str]:
    """Return table and row of `table/row`; of a file's path, the last slash is the row's."""
    table, slash, name = row.rpartition("/")
    if not slash or row.endswith((".yaml", ".yml")):
        raise UserError(f"`{row}` is no row of a table; write `table4/ROW` or `./mine.yaml/ROW`")
    return table, name


def _print_explanation(found: Explanation) -> None:
    out = console()
    out.print(f"{found.table}/{found.row} on {found.profile}, seed {found.seed}", style="bold")
    out.print(f"Recipe: {found.recipe}.")
    if found.baseline is not None:
        out.print(f"Baseline {found.baseline.row}: {found.baseline.recipe}.")
    if found.nearest is not None:
        causes = _because(found.nearest.causes)
        out.print(f"Nearest row {found.nearest.row}: here {causes}.")
    for run in found.runs:
        out.print(f"\nrun {run.run}", style="bold")
        lines = [
            (
                stage.label.removeprefix(f"seed {found.seed} · ").removeprefix(f"{run.run} · "),
                stage.state,
                _shared_or_new(stage),
            )
            for stage in run.stages
        ]
        out.print(Grid(("stage", "state", "shared, or new because"), lines))
        _print_missing(out, run.stages)


def _print_missing(out: Console, stages: Sequence[ExplainedStage]) -> None:
    """Print how many stages are not in the store, and which failed."""
    missing = [stage for stage in stages if stage.state != "done"]
    if not missing:
        out.print("\nAll of its stages are in the store.")
        return
    out.print(f"\nNot in the store: {counted(len(missing), 'stage')}.")
    for stage in missing:
        if stage.failure is not None:
            out.print(f"'{stage.label}' failed: {stage.failure}.")


def _shared_or_new(stage: ExplainedStage) -> str:
    """Return which rows share a stage, or which setting makes it new."""
    rows = stage.shared_with
    if rows:
        few = rows if len(rows) <= 3 else (*rows[:2], f"{len(rows) - 2} more")
        return f"shared: {', '.join(few)}"
    if stage.new_among_rows is None:
        return f"no other row has a stage `{stage.kind}`"
    return _because(stage.new_among_rows.causes)


def _because(causes: Iterable[Cause]) -> str:
    """Return causes in words: `select: metric a_min instead of uniform`."""
    from harness.registry.recipe import as_text

    words = []
    for cause in causes:
        kinds = f"{', '.join(cause.kinds)}: " if cause.kinds else ""
        words.append(f"{kinds}{cause.key} {as_text(cause.here)} instead of {as_text(cause.there)}")
    return "; ".join(words) or "nothing differs"
