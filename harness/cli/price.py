"""How the price of a plan is printed: totals, their parts, and what they assume."""

from __future__ import annotations

from typing import TYPE_CHECKING

from harness.cli.output import grid

if TYPE_CHECKING:
    from rich.console import Console

    from harness.cost.pricing import Price


def print_price(out: Console, price: Price) -> None:
    """Print a price: totals, their parts, and what they assume."""
    factor = price.assumed.uncertainty
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
    out.print(
        f"\nGPU hours may be {factor.gpu:g} times more or fewer, dollars {factor.money:g} times.",
        soft_wrap=True,
    )


def _hours(price: Price) -> str:
    hardware, factor = price.hardware, price.assumed.uncertainty.gpu
    if hardware is None:
        return "GPU hours: none, the profile names no GPU"
    hours = price.gpu_hours
    text = (
        f"GPU hours: {hours:,.0f} ({hours / factor:,.0f} to {hours * factor:,.0f}), or "
        f"{price.wall_hours:,.0f} h on {hardware.count} x {hardware.name}"
    )
    if price.unknown:
        missing = sum(kind.unknown for kind in price.kinds)
        text += f", and unknown for {missing} stages more: {'; '.join(price.unknown)}"
    return text


def _dollars(price: Price) -> str:
    factor, usd = price.assumed.uncertainty.money, price.usd
    by_role: dict[str, list[float | None]] = {}
    for call in price.calls:
        by_role.setdefault(call.role.lower(), []).append(call.usd)
    parts = [f"{role} {_sum(dollars)}" for role, dollars in by_role.items()]
    known = f"${usd:,.2f} (${usd / factor:,.2f} to ${usd * factor:,.2f})"
    text = f"dollars: {known}" if not price.unpriced else f"dollars: {known}, and more, unknown"
    return f"{text}: {', '.join(parts)}" if parts else "dollars: $0.00, nobody is asked"


def _sum(dollars: list[float | None]) -> str:
    known = sum(usd for usd in dollars if usd is not None)
    if all(usd is None for usd in dollars):
        return "unknown"
    return f"${known:,.2f}" + (" and unknown" if None in dollars else "")


def _disk(price: Price) -> str:
    from harness.cost.pricing import GB

    kept = sum(kind.kept for kind in price.kinds) / GB
    models = [size for size in price.models.values() if size is not None]
    lacking = [name for name, size in price.models.items() if size is None]
    text = (
        f"disk: {price.disk / GB:,.0f} GB: {kept:,.0f} in the store, {sum(models) / GB:,.0f} of "
        f"models, {price.passing / GB:,.0f} while a training runs"
    )
    return f"{text}; unknown for {', '.join(lacking)}" if lacking else text


def _print_kinds(out: Console, price: Price) -> None:
    from harness.cost.pricing import GB

    rows = [
        (
            kind.kind,
            str(kind.stages),
            "unknown" if kind.unknown else f"{kind.gpu_hours:,.1f}",
            f"{kind.kept / GB:,.1f}",
        )
        for kind in price.kinds
    ]
    out.print()
    out.print(grid(("stages left", "number", "GPU hours", "GB kept"), rows, right="123"))


def _print_calls(out: Console, price: Price) -> None:
    from harness.cost.costing import price_of
    from harness.endpoint.prices import read_prices

    if not price.calls:
        return
    rows = []
    for call in price.calls:
        each, usd = price_of(call.role, call.model), call.usd
        rows.append(
            (
                call.role.lower(),
                call.model,
                f"{call.requests:,.0f}",
                f"{call.prompt_tokens / 1e6:,.1f}",
                f"{call.completion_tokens / 1e6:,.1f}",
                "unknown" if each is None else f"{each.prompt:g}, {each.completion:g}",
                "unknown" if usd is None else f"{usd:,.2f}",
            )
        )
    headings = (
        "asked", "model", "requests", "M tokens in", "M tokens out", "$ per M in, out", "dollars"
    )  # fmt: skip
    out.print()
    out.print(grid(headings, rows, right="23456"))
    out.print(read_prices().origin, soft_wrap=True)
    for retirement in price.retirements:
        out.print(retirement.sentence, soft_wrap=True)


def _print_assumptions(out: Console, price: Price) -> None:
    from harness.cost.assumptions import listed

    rows = [(name, str(value), source) for name, (value, source) in listed().items()]
    hardware = price.hardware
    if hardware is not None:
        sheet = hardware.gpu
        peak = f"{sheet.flops / 1e12:g} TFLOP/s, {sheet.bandwidth / 1e12:g} TB/s"
        rows.append((hardware.name, f"{peak}, {sheet.memory / 1e9:g} GB", "its maker's data sheet"))
    out.print()
    out.print(grid(("assumed", "value", "source"), rows, right="1"))
