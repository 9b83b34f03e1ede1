"""The blocks that make up a report, shared by all output formats: `f(results) -> list[Block]`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping

from harness.registry.profile import benchmark_of
from harness.registry.schema import Column
from harness.report import view
from harness.report.facts import FACTS, NOTES, Fact
from harness.report.league import league_blocks
from harness.report.model import GROUPS, Cell, ColumnSummary
from harness.report.results import Results
from harness.report.reward_study import study_blocks
from harness.report.view import APPLIES_NOT, Block, grouped, plain, signed
from harness.words import counted

_DIRECTIONS = {"higher": "higher is better", "lower": "lower is better", "none": "no better end"}


def number_blocks(results: Results, full: bool = True) -> list[Block]:
    """Return the results and what is missing; unless `full`, only those of the main column."""
    main, failures = results.table.main_column, results.report.failures
    found = column_blocks(results) if full else [_column_block(results, main)]
    found += control_blocks(results, full)
    found += summary_blocks(results) if full else []
    found += found_blocks(results)
    return found + ([Block("Missing", items=failures)] if failures else [])


def found_blocks(results: Results) -> list[Block]:
    """Return the results of a table's reward model study and its leagues."""
    return [*study_blocks(results), *league_blocks(results)]


def column_blocks(results: Results) -> list[Block]:
    return [_column_block(results, column) for column in results.table.columns]


def _column_block(results: Results, column: Column) -> Block:
    report, table = results.report, results.table
    names, decimals = view.row_names(report), view.our_decimals(results, column)
    printed, cells = view.printed_decimals(results, column), report.of_column(column.id)
    signs = any(cell.paper_sign is not None for cell in cells)
    shown: dict[str, Callable[[Cell], str]] = {
        "row": lambda cell: names[cell.row],
        "ours\n± 95%": lambda cell: view.ours(cell, decimals),
        "gain\n± 95%": lambda cell: view.gain(cell, decimals),
    }
    if table.paper_values:
        shown["paper"] = lambda cell: cell.paper_printed or view.NO_PAPER
        shown["paper\ngain"] = lambda cell: view.paper_gain(cell, printed)
    if signs:
        shown["paper's\nsign"] = lambda cell: view.paper_gain(cell, printed)
    if table.paper_values and results.profile.scale == "paper":
        shown["ours −\npaper"] = lambda cell: view.beyond_paper(cell, decimals)
    rows = tuple(tuple(show(cell) for show in shown.values()) for cell in cells)
    caption = _caption(results, column)
    caption += "; paper's sign: that of the paper's gain in its own main column" * signs
    return Block(plain(_title(results, column)), (plain(caption),), tuple(shown), rows)


def _title(results: Results, column: Column) -> str:
    panel = f" · {column.panel}" if column.panel else ""
    return f"{results.profile.called(column)} · {column.printed}{panel}"


def _caption(results: Results, column: Column) -> str:
    """Describe what our values measure; below `paper` scale, that differs from the paper's."""
    profile, direction = results.profile, _DIRECTIONS[column.direction]
    name = benchmark_of(profile, column.reads)
    if name is None:
        return (
            f"the paper's: {column.metric}, in {column.unit}; {direction}; "
            f"the profile `{profile.name}` has no such benchmark"
        )
    benchmark, stand_in = profile.benchmarks[name], profile.in_embedded_world
    link = " of " if benchmark.of_prompts else " against "
    where, what, theirs = "", column.metric, ""
    if profile.scale != "paper" or stand_in:
        where = f"stand-in for {column.benchmark}: " if stand_in else f"at scale {profile.scale}: "
        what, _, theirs = column.metric.partition(link)
        if benchmark.against is not None and what.endswith("win rate"):
            # Constructed for the benchmark, not produced by a model.
            fixed = "the profile's fixed answers" if stand_in else benchmark.against
            what += f" against {fixed}"
    counted = "prompts a seed" if benchmark.of_prompts else "items"
    judge = results.report.origin.judges[name]
    if name in results.calibrations:
        held = results.calibrations[name]
        judge += ", not calibrated" if held is None else f", which {held.short}"
    items = f"{benchmark.items_of(column.reads)} {counted}, judge {judge}"
    said = [f"{where}{what}, in {column.unit} ({items})"]
    said += [f"the paper's is{link}{theirs}"] if theirs else []
    return "; ".join([*said, direction])


def control_blocks(results: Results, full: bool = True) -> list[Block]:
    """Return the controls of the table that declares them; what each says only if `full`."""
    controls = results.report.controls
    if not results.table.controls or not controls:
        return []
    rows = []
    for control in controls:
        found, errors = APPLIES_NOT, control.standard_errors
        if control.distance is not None:
            in_errors = "" if errors is None else f" ({signed(errors, 1)} SE)"
            found = f"{signed(control.distance, 2)}{in_errors}"
        limit = f"≥ {control.needed:g} SE"
        if control.kind == "less":
            limit = f"{control.share:g} of gain, {limit}"
        if control.kind == "alike":
            known = control.margin is not None
            limit = f"within {control.margin:.2f}" if known else f"within {control.share:g} of edge"
        rows.append((control.id, found, limit, control.state.replace("_", " ")))
    notes = tuple(
        plain(f"{it.id}: {it.statement}" + (f" ({it.reason})" if it.reason else ""))
        for it in (controls if full else ())
    )
    return [Block("Controls", notes, ("control", "last − first", "needed", "result"), tuple(rows))]


def summary_blocks(results: Results) -> list[Block]:
    """Return the block comparing each column with the paper's; none if it prints none of them."""
    table, report = results.table, results.report
    if not table.paper_values:
        return []
    titles = {column.id: plain(_title(results, column)) for column in table.columns}
    rows = [
        (titles[found.column], *_comparison(found, len(report.seeds)), found.scale)
        for found in report.summary
    ]
    notes = (
        "Signs: gains over the baseline row that point the way the paper's do. "
        "ρ: Spearman's rank correlation of ours with the paper's over the rows but the baseline. "
        "Range: the middle 95% of ρ over resampled seeds and prompts, not an interval around it; "
        "over few rows ρ takes few values, and can stand at an end of its range.",
        *_orders(results, titles),
    )
    head = ("column", "signs", "ρ", "range", "scale")
    return [Block("Beside the paper", notes, head, tuple(rows))]


def _orders(results: Results, titles: Mapping[str, str]) -> Iterator[str]:
    """Say in how many columns the rows are ordered as in the paper, and where they are not."""
    ranked = [
        (titles[found.column], rho, low, high)
        for found in results.report.summary
        if (rho := found.spearman) is not None
        and (low := found.spearman_low) is not None
        and (high := found.spearman_high) is not None
    ]
    if not ranked:
        return
    like = sum(low > 0 for _, _, low, _ in ranked)
    against = [f"{name} (ρ {signed(rho, 2)})" for name, rho, _, high in ranked if high < 0]
    leaning = [f"{name} (ρ {signed(rho, 2)})" for name, rho, low, high in ranked if rho < 0 <= high]
    yield (
        f"Rows are ordered as in the paper (range above 0) in {like} of "
        f"{counted(len(ranked), 'column')}; the other way round (range below 0) in "
        f"{', '.join(against) or 'none'}; leaning that way, undecided, in "
        f"{', '.join(leaning) or 'none'}."
    )


def _comparison(summary: ColumnSummary, seeds: int) -> tuple[str, str, str]:
    if summary.rows and seeds == 1:
        return view.NO_COMPARISON, APPLIES_NOT, APPLIES_NOT
    unfinished = f"{summary.done}/{summary.rows} rows" if summary.rows else view.NO_PAPER
    signs = f"{summary.signs_agree} of {summary.signs}" if summary.signs else "no gains"
    low, high = summary.spearman_low, summary.spearman_high
    if summary.signs is None or summary.ranked is None:
        return unfinished if summary.signs is None else signs, unfinished, APPLIES_NOT
    if summary.spearman is None or low is None or high is None:
        return signs, f"undefined ({summary.ranked} rows)", APPLIES_NOT
    rho = f"{signed(summary.spearman, 2)} ({summary.ranked} rows)"
    return signs, rho, view.between(low, high, 2)


# --- Facts ---


def fact_blocks(results: Results) -> list[Block]:
    """Return a block for each kind of fact, with the columns that any row has a value in."""
    names = dict.fromkeys(name for it in results.facts for name in it.values)
    known = {name: fact for name, fact in FACTS.items() if name in names}
    for name in names:
        label = name.removeprefix("to_").replace("_", "\n")
        known.setdefault(name, Fact("Training prompts", label, "number"))
    return [
        _fact_block(results, title, {n: it for n, it in known.items() if it.block == title})
        for title in NOTES
        if any(it.block == title for it in known.values())
    ]


def _fact_block(results: Results, title: str, facts: Mapping[str, Fact]) -> Block:
    names, several = view.row_names(results.report), Counter(it.row for it in results.facts)
    asked = {cell.row: cell.seeds for cell in results.report.cells}
    rows = []
    for it in results.facts:
        name = plain(names[it.row] + (f" [{it.run}]" if several[it.row] > 1 else ""))
        figures = [_text(it.values.get(fact), shown) for fact, shown in facts.items()]
        if it.state not in ("ok", "not_available"):
            figures[0] = view.state_words(it.state, it.done, len(asked[it.row]))
        rows.append((name, *figures))
    said = [NOTES[title], *(it.note for it in facts.values() if it.note)]
    if "seconds" in facts and len(results.report.origin.processors) > 1:
        said.append("Those here are of several kinds of processor, and cannot be compared.")
    return Block(
        title, (" ".join(said),), ("row", *(it.label for it in facts.values())), tuple(rows)
    )


def _text(value: float | None, fact: Fact) -> str:
    if value is None:
        return APPLIES_NOT
    if fact.form == "share":
        return f"{100 * value:.1f}%"
    if fact.form == "seconds":
        return f"{value / 60:.1f} min" if value >= 90 else f"{value:.1f} s"
    return f"{value:.3f}" if fact.form == "number" else f"{value:,.0f}"


def assumption_blocks(results: Results) -> Iterator[Block]:
    """Yield the assumptions grouped by origin, each reason once, then the table's notes."""
    report = results.report
    yield Block("Assumptions")
    for key, title in GROUPS.items():
        own = (it for it in report.assumptions if it.group == key)
        if by_source := grouped((it.source, f"{it.name} = {it.value}") for it in own):
            items = [f"{'; '.join(what)} — {why}" for why, what in by_source.items()]
            yield Block(title, items=tuple(map(plain, items)), level=3)
    if report.notes:
        title = "On this table" if results.table.is_ours else "On the paper's table"
        yield Block(title, items=tuple(map(plain, report.notes)), level=3)
