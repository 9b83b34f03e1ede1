"""`plan`: what a run would compute, and how long that takes or what it costs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any

import typer

from harness.cli import common
from harness.cli.common import console, emit, print_all, print_json, text_table, unbroken

if TYPE_CHECKING:
    from harness.cost.price import PlanPrice
    from harness.report.claims import ClaimPower
    from harness.selection.planning import PlanSummary, RunPlan

PowerOption = Annotated[
    bool,
    common.option("--power", None, "Show how many seeds each claim needs, by the variance so far."),
]

app = typer.Typer(rich_markup_mode=None)


@app.command("plan", epilog="Example: harness plan table4 --seeds 0-4")
@common.takes(common.RunArguments, common.LimitOptions)
def plan(
    asked: common.RunArguments,
    limits: common.LimitOptions,
    power: PowerOption = False,
    as_json: common.JsonOption = False,
) -> None:
    """Show what a run would compute: stages done, missing and failed, and the time left.

    For a profile of real models it shows the cost instead of the time: GPU hours, dollars and disk,
    with the assumptions behind them. `all-offline` and `all` skip the tables that the profile can't
    run. Exits with 1 if a limit is exceeded.
    """
    if power:
        _show_power(asked, as_json)
        return
    planned = asked.selection.plan(jobs=asked.jobs, limits=limits.checked)
    show_plan(planned, as_json)
    planned.refuse_over_limits()


def _show_power(asked: common.RunArguments, as_json: bool) -> None:
    from harness.report.claims import power_of

    chosen = asked.selection
    found = [power for evidence in chosen.evidence() for power in power_of(evidence)]
    if as_json:
        print_json(found)
        return
    head = ("claim", "verdict", "seeds", "detectable", "sought", "seeds needed")
    out = console()
    print_all([text_table(head, map(power_line, found), right="2345")], out)
    known = [power.needed for power in found if power.primary and power.needed is not None]
    if known:
        again = f"harness plan {chosen.again} --seeds 0-{max(known) - 1}"
        print_all([unbroken(f"\nThe cost of the seeds that the primary claims need: {again}")], out)


def power_line(power: ClaimPower) -> tuple[str, ...]:
    from harness.statistics.sequential import MOST_SEEDS

    numbers = ("-" if it is None else f"{it:.2f}" for it in (power.detectable, power.sought))
    none = "-" if power.sought is None else f"more than {MOST_SEEDS}"
    needed = none if power.needed is None else str(power.needed)
    star = " *" if power.primary else ""
    return (f"{power.claim}{star}", power.verdict, str(power.seeds), *numbers, needed)


def show_plan(planned: RunPlan, as_json: bool) -> None:
    emit(planned.summary, as_json, lambda summary: _text(summary, planned.again))


def _text(summary: PlanSummary, again: str) -> Iterator[Any]:
    yield summary.headline
    if summary.tables:
        lines = [
            (line.table, *map(str, (line.rows, line.runs, line.stages.total, line.stages.done)))
            for line in summary.tables
        ]
        yield ""
        yield text_table(("table", "rows", "runs", "stages", "done"), lines, right="1234")
    yield from left_out(summary)
    yield ""
    counts = [*((kind.kind, kind) for kind in summary.kinds), ("all", summary.stages)]
    cells = [(name, str(c.total), str(c.done), str(c.missing), str(c.failed)) for name, c in counts]
    yield text_table(("stages", "total", "done", "missing", "failed"), cells, right="1234")
    for failure in summary.failures:
        yield f"failed: {failure.stage} ({failure.fingerprint[:12]}): {failure.reason}"
    if summary.price is not None:
        yield from _price(summary.price)
    if summary.stages.done < summary.stages.total:
        yield unbroken(f"\nCompute it: harness run {again}")


def left_out(summary: PlanSummary) -> Iterator[str]:
    """Yield why tables are left out of a group."""
    for item in summary.left_out:
        yield f"left out: {item.table}: {'; '.join(item.reasons)}"


def _price(price: PlanPrice) -> Iterator[Any]:
    timed = [name for name, kind in price.gpu_hours.by_kind.items() if kind.measured]
    speeds = (
        f"with the measured speed of finished stages for {', '.join(timed)}"
        if timed
        else "with nothing measured at this scale"
    )
    yield f"\nEstimate of what is left: arithmetic on the assumptions below, {speeds}."
    yield _hours(price)
    yield _dollars(price)
    yield _disk(price)
    kinds = [
        (
            name,
            str(kind.stages),
            "unknown" if kind.unknown else f"{kind.gpu_hours:,.1f}",
            f"{kind.gb:,.1f}",
        )
        for name, kind in price.gpu_hours.by_kind.items()
    ]
    yield ""
    yield text_table(("stages left", "number", "GPU hours", "GB kept"), kinds, right="123")
    if price.servers:
        rows = [(each.role, str(each.starts), f"{each.gpu_hours:,.1f}") for each in price.servers]
        yield ""
        yield text_table(("servers started here", "times", "GPU hours"), rows, right="12")
    if price.usd.calls:
        yield from _calls(price)
    assumed = [(name, str(one.value), one.source) for name, one in price.assumptions.items()]
    gpu = price.hardware
    if gpu is not None:
        source = f"parameters x tokens per second; {gpu.source}"
        for name in ("generating", "reading", "training"):
            speed = getattr(gpu, name)
            assumed.append(
                (f"{gpu.gpu}.{name}", "unknown" if speed is None else f"{speed:g}", source)
            )
            source = "likewise"
    yield ""
    yield text_table(("assumed", "value", "source"), assumed, right="1")


def _hours(price: PlanPrice) -> str:
    hardware, hours, factor = price.hardware, price.gpu_hours, price.uncertainty.gpu
    if hardware is None:
        return "GPU hours: none, the profile names no GPU"
    known = hours.known
    text = (
        f"GPU hours: {known:,.0f}, within a factor of {factor:g} ({known / factor:,.0f} to "
        f"{known * factor:,.0f}), or {hours.wall_hours:,.0f} h on {hardware.gpus} x {hardware.gpu}"
    )
    if hours.unknown:
        missing = sum(kind.unknown for kind in hours.by_kind.values())
        text += f", and unknown for {missing} stages more: {'; '.join(hours.unknown)}"
    return text


def _dollars(price: PlanPrice) -> str:
    factor, usd = price.uncertainty.money, price.usd
    if not usd.calls:
        return "dollars: $0, no paid requests"
    by_role: dict[str, list[float | None]] = {}
    for call in usd.calls:
        by_role.setdefault(call.role, []).append(call.usd)
    low, high = _money(usd.known / factor), _money(usd.known * factor)
    more = "" if usd.complete else ", and more, unknown"
    roles = ", ".join(f"{role} {_sum(dollars)}" for role, dollars in by_role.items())
    return (
        f"dollars: {_money(usd.known)}, within a factor of {factor:g} ({low} to {high}){more}: "
        f"{roles}"
    )


def _sum(dollars: list[float | None]) -> str:
    known = [usd for usd in dollars if usd is not None]
    if not known:
        return "unknown"
    return _money(sum(known)) + (" and unknown" if None in dollars else "")


def _money(usd: float) -> str:
    """Format dollars without cents, which an estimate cannot resolve."""
    return "under $1" if 0.0 < usd < 1.0 else f"${usd:,.0f}"


def _disk(price: PlanPrice) -> str:
    disk = price.disk_gb
    models = sum(size for size in disk.models.values() if size is not None)
    lacking = [name for name, size in disk.models.items() if size is None]
    text = (
        f"disk: {disk.total:,.0f} GB: {disk.kept:,.0f} in the store, {models:,.0f} of models, "
        f"{disk.in_passing:,.0f} while a training runs"
    )
    if round(disk.spent):
        text += f"; {disk.spent:,.0f} of the store's can be freed with `harness store --prune`"
    return f"{text}; unknown for {', '.join(lacking)}" if lacking else text


def _calls(price: PlanPrice) -> Iterator[Any]:
    rows = [
        (
            call.role,
            call.model,
            f"{call.requests:,}",
            f"{call.prompt_tokens / 1e6:,.1f}",
            f"{call.completion_tokens / 1e6:,.1f}",
            "{:g}, {:g}".format(*call.usd_per_million) if call.usd_per_million else "unknown",
            "unknown" if call.usd is None else _money(call.usd).replace("$", ""),
        )
        for call in price.usd.calls
    ]
    headings = (
        "role", "model", "requests", "M tokens in", "M tokens out", "$ per M in, out", "dollars"
    )  # fmt: skip
    yield ""
    yield text_table(headings, rows, right="23456")
    yield price.usd.prices
