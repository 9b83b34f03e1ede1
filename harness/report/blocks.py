"""The text tables that make up a report, shared by all output formats.

They cover each column (ours next to the paper's), worth in human prompts, controls, column-level
comparison, training prompts, creator, online training, cost, and assumptions.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TypeVar

from harness.registry.profile import benchmark_of
from harness.registry.schema import Column
from harness.report.league import league_blocks
from harness.report.model import GROUPS, ColumnSummary, Report
from harness.report.parts import Creation, OfRow, OnlineCost, PromptDistance, RowCost
from harness.report.reward_study import study_blocks
from harness.report.view import (
    APPLIES_NOT,
    NO_COMPARISON,
    NO_PAPER,
    UNKNOWN,
    Block,
    came_out,
    gain,
    our_decimals,
    ours,
    paper_gain,
    plain,
    printed_decimals,
    row_names,
    signed,
    state,
    state_words,
)
from harness.statistics import share_interval
from harness.words import counted

Found = TypeVar("Found", bound=OfRow)

_DIRECTIONS = {"higher": "higher is better", "lower": "lower is better", "none": "no better end"}


def number_blocks(report: Report, full: bool = True) -> list[Block]:
    """Return the result blocks and what is missing; unless `full`, only the main column."""
    columns = [_column_block(report, report.table.main_column)]
    if full:
        columns = [*column_blocks(report), *worth_blocks(report)]
    found = [*control_blocks(report), *summary_blocks(report), *found_blocks(report)]
    missing = [Block("Missing", items=tuple(report.failures))] if report.failures else []
    return [*columns, *found, *missing]


def found_blocks(report: Report) -> list[Block]:
    """Return the results of a table's reward model study and its leagues."""
    return [*study_blocks(report), *league_blocks(report)]


def column_blocks(report: Report) -> list[Block]:
    return [_column_block(report, column) for column in report.table.columns]


def _column_block(report: Report, column: Column) -> Block:
    head, is_ours = ["row", "ours\n± 95%", "gain\n± 95%"], not report.table.paper_values
    at_paper = report.profile.scale == "paper" and not is_ours
    head += [] if is_ours else ["paper", "paper\ngain"]
    head += ["ours −\npaper"] if at_paper else []
    names, decimals = row_names(report), our_decimals(report, column)
    printed, rows = printed_decimals(report, column), []
    for row in report.rows:
        cell = report.cell(row, column)
        figures = [names[row.id], ours(cell, decimals), gain(cell, decimals)]
        if not is_ours:
            figures += [cell.paper_printed or NO_PAPER, paper_gain(cell, printed)]
        if at_paper:
            both = cell.mean is not None and cell.paper is not None
            less = cell.mean - cell.paper if both else None  # type: ignore[operator]
            figures.append(state(cell) if less is None else signed(less, decimals))
        rows.append(tuple(figures))
    caption = plain(_caption(report, column))
    return Block(plain(_title(report, column)), (caption,), tuple(head), tuple(rows))


def _title(report: Report, column: Column) -> str:
    panel = f" · {column.panel}" if column.panel else ""
    return f"{report.profile.called(column)} · {column.printed}{panel}"


def _caption(report: Report, column: Column) -> str:
    """Describe what our values measure; below `paper` scale, that differs from the paper's."""
    profile, direction = report.profile, _DIRECTIONS[column.direction]
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
    judge = report.origin.judges[name]
    if name in report.calibrations:
        held = report.calibrations[name]
        judge += ", not calibrated" if held is None else f", which {held.short}"
    items = f"{benchmark.items_of(column.reads)} {counted}, judge {judge}"
    said = [f"{where}{what}, in {column.unit} ({items})"]
    said += [f"the paper's is{link}{theirs}"] if theirs else []
    return "; ".join([*said, direction])


def worth_blocks(report: Report) -> list[Block]:
    known = {cell.column for cell in report.cells if cell.worth or cell.paper_worth}
    columns = [column for column in report.table.columns if column.id in known]
    return [_worth_block(report, column) for column in columns]


def _worth_block(report: Report, column: Column) -> Block:
    names, rows = row_names(report), []
    cells = [cell for cell in report.cells if cell.column == column.id]
    theirs = any(cell.paper_worth for cell in cells)
    for cell in cells:
        if cell.worth is None and cell.paper_worth is None:
            continue
        own = cell.worth
        figures = (APPLIES_NOT, APPLIES_NOT) if own is None else (own.text, own.interval)
        paper = APPLIES_NOT if cell.paper_worth is None else cell.paper_worth.text
        rows.append((names[cell.row], *figures, *((paper,) if theirs else ())))
    notes = (
        "How many times as many human prompts, in one training, give the row's score: read off the "
        "dose-response of the controls, of DPO for offline rows and of RLOO for online ones"
        + ("; the paper's off the one it prints." if theirs else "."),
    )
    head = ("row", "ours", "95%", *(("paper",) if theirs else ()))
    return Block(
        f"Worth in human prompts · {plain(_title(report, column))}", notes, head, tuple(rows)
    )


def control_blocks(report: Report) -> list[Block]:
    """Return the controls block, only for the table that declares them."""
    if not report.table.controls or not report.controls:
        return []
    rows = []
    for control in report.controls:
        found, errors = APPLIES_NOT, control.standard_errors
        if control.distance is not None:
            in_errors = "" if errors is None else f" ({signed(errors, 1)} SE)"
            found = f"{signed(control.distance, 2)}{in_errors}"
        limit = f"at least {control.needed:g} SE"
        if control.kind == "less":
            limit = f"{control.share:g} of the gain, {limit}"
        if control.kind == "alike":
            known = control.margin is not None
            limit = f"within {control.margin:.2f}" if known else f"within {control.share:g}"
        rows.append((control.id, found, limit, came_out(control.state)))
    notes = tuple(
        plain(f"{it.id}: {it.statement}" + (f" ({it.reason})" if it.reason else ""))
        for it in report.controls
    )
    return [Block("Controls", notes, ("control", "last − first", "needed", "result"), tuple(rows))]


def summary_blocks(report: Report, intervals: bool = False) -> list[Block]:
    """Return the block comparing each column with the paper's; none if it prints none of them.

    `intervals` adds an interval for the share of signs, which does not fit in 80 columns.
    """
    if not report.table.paper_values:
        return []
    titles = {column.id: plain(_title(report, column)) for column in report.table.columns}
    rows = []
    for found in report.summary:
        signs, *spearman = _comparison(found, len(report.seeds))
        beside = (_signs_interval(found),) if intervals else ()
        rows.append((titles[found.column], signs, *beside, *spearman, found.scale))
    notes: tuple[str, ...] = (
        "Signs: gains over the baseline row that point the way the paper's do. "
        "ρ: Spearman's rank correlation of ours with the paper's over the rows but the baseline. "
        "Range: the middle 95% of ρ over resampled seeds and prompts, not an interval around it; "
        "over few rows ρ takes few values, and can stand at an end of its range.",
        *_orders(report, titles),
    )
    if intervals:
        notes += (
            "The interval of the share of signs is Clopper and Pearson's, as if gains over one "
            "baseline were independent of each other: a coin would agree in half of them.",
        )
    head = ("column", "signs", *(("95%",) if intervals else ()), "ρ", "range", "scale")
    return [Block("Beside the paper", notes, head, tuple(rows))]


def _orders(report: Report, titles: Mapping[str, str]) -> Iterator[str]:
    """Say in how many columns the rows are ordered as in the paper, and where they are not."""
    ranked = [
        (titles[found.column], rho, low, high)
        for found in report.summary
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


def _signs_interval(summary: ColumnSummary) -> str:
    if not summary.signs or summary.signs_agree is None:
        return APPLIES_NOT
    low, high = share_interval(summary.signs_agree, summary.signs)
    return f"{low:.0%} to {high:.0%}"


def _comparison(summary: ColumnSummary, seeds: int) -> tuple[str, str, str]:
    if summary.rows and seeds == 1:
        return NO_COMPARISON, APPLIES_NOT, APPLIES_NOT
    unfinished = f"{summary.done}/{summary.rows} rows" if summary.rows else NO_PAPER
    signs = f"{summary.signs_agree} of {summary.signs}" if summary.signs else "no gains"
    if summary.signs is None:
        signs = unfinished
    low, high = summary.spearman_low, summary.spearman_high
    if summary.ranked is None:
        return signs, unfinished, APPLIES_NOT
    if summary.spearman is None or low is None or high is None:
        return signs, f"undefined ({summary.ranked} rows)", APPLIES_NOT
    rho = f"{signed(summary.spearman, 2)} ({summary.ranked} rows)"
    return signs, rho, f"{signed(low, 2)} to {signed(high, 2)}"


# --- Details ---


def detail_blocks(report: Report) -> list[Block]:
    blocks = [distance_block(report)] if report.distances else []
    if any(found.state != "not_available" for found in report.creation):
        blocks.append(creation_block(report))
    if report.online:
        blocks.append(online_block(report))
    return blocks


def distance_block(report: Report) -> Block:
    benchmarks = list(report.distances[0].to_benchmarks)

    def figures(found: PromptDistance) -> list[str]:
        if found.to_seed is None:
            return [_why_not(found, report, "not trained")] * (1 + len(benchmarks))
        to = [found.to_seed, *(found.to_benchmarks[benchmark] for benchmark in benchmarks)]
        return ["not run" if value is None else f"{value:.3f}" for value in to]

    note = (
        "Jensen-Shannon distance between word bigrams, from 0 (same wording) to 1 (nothing in "
        "common), from the last iteration's training prompts to the seed prompts of the same run"
        f"{' and to the benchmarks' if benchmarks else ''}; mean over seeds."
    )
    head = ("row", "seed\nprompts", *(name.replace("_", "\n") for name in benchmarks))
    return Block("Training prompts", (note,), head, _rows(report, report.distances, figures))


def creation_block(report: Report) -> Block:
    def figures(found: Creation) -> list[str]:
        if found.state != "ok":
            word = _why_not(found, report, f"{APPLIES_NOT} no creator")
            return [word, *[APPLIES_NOT] * 5]
        evolved = [_percent(found.evolved_without_spread), _count(found.calls),
                   _percent(found.unusable), _count(found.dropped)]  # fmt: skip
        selected = [_percent(found.without_weight), _percent(found.without_spread)]
        return selected + (evolved if found.evolves else [APPLIES_NOT] * 4)

    names = row_names(report)
    notes = (
        "The last iteration's creator, mean over seeds. No weight: share of the selected prompts "
        "that were drawn without weight, because fewer prompts than draws had a positive weight. "
        "No spread: share of the prompts selected from, and of the evolved ones, whose answers "
        "all got the same reward. Calls of the creator, the share of them that gave an unusable "
        "rewrite, and children dropped after all retries.",
        *(
            f"{plain(names[found.row])}: {found.filled:.1f} pairs of its training mix are original "
            "ones, in place of evolved ones that were lacking."
            for found in report.creation
            if found.filled
        ),
    )
    head = ("row", "no\nweight", "no\nspread", "evolved:\nno spread", "calls", "unusable",
            "dropped")  # fmt: skip
    return Block("Creator", notes, head, _rows(report, report.creation, figures))


def online_block(report: Report) -> Block:
    def figures(found: OnlineCost) -> list[str]:
        if found.state != "ok":
            return [_why_not(found, report), *[APPLIES_NOT] * 6]
        dropped = APPLIES_NOT if found.dropped is None else _percent(found.dropped)
        return [*_counted(found), _percent(found.evolved_share), dropped, _count(found.buffer)]

    names = row_names(report)
    notes = (
        "What a run cost up to this row's checkpoint, mean over seeds; rollouts and tokens are "
        "those of training prompts and of rewrites on entering the buffer. Evolved: share of the "
        "prompts trained on. Dropped: share of the rewrites given up after all retries. Buffer: "
        "prompts left in it.",
        *(
            f"{plain(names[found.row])}: {found.repeated:.1f} prompts went back into the buffer "
            "after a step on them, because rewrites were lacking."
            for found in report.online
            if found.repeated
        ),
    )
    head = ("row", "rollouts", "tokens", "steps", "creator\ncalls", "evolved", "dropped", "buffer")
    return Block("Online training", notes, head, _rows(report, report.online, figures))


def cost_block(report: Report, costs: Sequence[RowCost]) -> Block:
    def figures(found: RowCost) -> list[str]:
        seconds = found.judging_seconds
        judging = APPLIES_NOT if seconds is None else _seconds(seconds)
        if found.state != "ok":
            return [_why_not(found, report, "not trained"), judging, *[APPLIES_NOT] * 4]
        time = UNKNOWN if found.seconds is None else _seconds(found.seconds)
        return [time, judging, *_counted(found)]

    note = (
        "Means over seeds, of all stages behind a row's policy, as if it had been computed alone: "
        "what rows share is counted in each. Times are those of the machine that computed it. "
        "Rollouts and tokens are the policy's own, for training."
    )
    head = ("row", "time", "judging", "rollouts", "tokens", "steps", "creator\ncalls")
    return Block("Cost", (note,), head, _rows(report, costs, figures))


def _rows(
    report: Report, found: Sequence[Found], figures: Callable[[Found], list[str]]
) -> tuple[tuple[str, ...], ...]:
    """Return a line for each run of each row, with the run id if the row has several."""
    names, several = row_names(report), Counter(part.row for part in found)
    return tuple(
        (
            plain(names[part.row] + (f" [{part.run}]" if several[part.row] > 1 else "")),
            *figures(part),
        )
        for part in found
    )


def _why_not(found: OfRow, report: Report, none: str = "not available") -> str:
    """Say why a row has no figures; `none` if they do not apply to it."""
    if found.state == "not_available":
        return none
    return state_words(found.state, found.done, len(report.seeds))


def _counted(found: OnlineCost | RowCost) -> list[str]:
    counts = (found.rollouts, found.tokens, found.gradient_steps, found.creator_calls)
    return [UNKNOWN if count is None else f"{count:,.0f}" for count in counts]


def _count(number: float | None) -> str:
    return UNKNOWN if number is None else f"{number:.0f}"


def _percent(share: float | None) -> str:
    return UNKNOWN if share is None else f"{100 * share:.1f}%"


def _seconds(seconds: float) -> str:
    return f"{seconds / 60:.1f} min" if seconds >= 90 else f"{seconds:.1f} s"


def assumption_blocks(report: Report) -> Iterator[Block]:
    """Yield the assumptions grouped by origin, each reason once, then the table's notes."""
    yield Block("Assumptions")
    for key, title in GROUPS.items():
        by_source: dict[str, list[str]] = {}
        for item in report.assumptions:
            if item.group == key:
                by_source.setdefault(item.source, []).append(f"{item.name} = {item.value}")
        if by_source:
            items = [f"{'; '.join(what)} — {why}" for why, what in by_source.items()]
            yield Block(title, items=tuple(map(plain, items)), level=3)
    if report.notes:
        title = "On this table" if report.table.is_ours else "On the paper's table"
        yield Block(title, items=tuple(map(plain, report.notes)), level=3)
