"""How the price of a plan is printed: totals, their parts, and what they assume."""

from __future__ import annotations

from typing import TYPE_CHECKING

from harness.cli.output import grid

if TYPE_CHECKING:
    from rich.console import Console

    from harness.cost.pricing import Price


def print_price(out: Console, price: Price) -> None:
    """Print a price: totals, their parts, and what they assume."""
    out.print(
        "\nWhat is left is estimated to take the following. It is arithmetic on the assumptions "
        "below; nothing of it was measured at this scale.",
        soft_wrap=True,
    )
    for line in (_hours(price), _dollars(price), _disk(price)):
        out.print(line, soft_wrap=True)
    _print_kinds(out, price)
    _print_calls(out, price)
    _print_assumptions(out, price)


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
    out.print(grid(("stages left", "number", "GPU hours", "GB kept"), rows, right="123"))


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
    out.print(grid(headings, rows, right="23456"))
    out.print(price.usd.prices, soft_wrap=True)
    for retirement in price.usd.retirements:
        out.print(retirement.sentence, soft_wrap=True)


def _print_assumptions(out: Console, price: Price) -> None:
    rows = [(name, str(one.value), one.source) for name, one in price.assumptions.items()]
    sheet = price.hardware
    if sheet is not None:
        peak = f"{sheet.flops / 1e12:g} TFLOP/s, {sheet.bandwidth / 1e12:g} TB/s"
        rows.append((sheet.gpu, f"{peak}, {sheet.memory / 1e9:g} GB", "its maker's data sheet"))
    out.print()
    out.print(grid(("assumed", "value", "source"), rows, right="1"))
