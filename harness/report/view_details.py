"""The blocks of a report beside its columns: prompts, creator, online training, cost."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from harness.report.costs import RowCost
from harness.report.creation import Creation
from harness.report.online import OnlineCost
from harness.report.report import Report
from harness.report.view import APPLIES_NOT, UNKNOWN, Block, plain, row_names, state_words


def detail_blocks(report: Report) -> list[Block]:
    """Return the blocks on where training prompts lie, and what became of them."""
    blocks = [distance_block(report)]
    if any(found.state != "not_available" for found in report.creations):
        blocks.append(creation_block(report))
    if report.online:
        blocks.append(online_block(report))
    return blocks


def distance_block(report: Report) -> Block:
    """Return the block that says where each row's training prompts lie."""
    names = row_names(report)
    benchmarks = list(report.distances[0].to_benchmarks)
    several = Counter(distance.row for distance in report.distances)
    rows = []
    for found in report.distances:
        name = names[found.row] + (f" [{found.run}]" if several[found.row] > 1 else "")
        if found.to_seed is None:
            words = "not trained" if found.state == "not_available" else state_words(
                found.state, found.done, len(report.seeds)
            )  # fmt: skip
            rows.append((plain(name), *[words] * (1 + len(benchmarks))))
            continue
        to = [found.to_benchmarks[benchmark] for benchmark in benchmarks]
        figures = ["not run" if value is None else f"{value:.3f}" for value in to]
        rows.append((plain(name), f"{found.to_seed:.3f}", *figures))
    and_to = " and to the benchmarks" if benchmarks else ""
    notes = (
        "Jensen-Shannon distance between word bigrams, from 0 (same wording) to 1 (nothing in "
        "common), from the last iteration's training prompts to the seed prompts of the same run"
        f"{and_to}; mean over seeds.",
    )
    head = ("row", "seed\nprompts", *(name.replace("_", "\n") for name in benchmarks))
    return Block("Training prompts", notes, head, tuple(rows))


def creation_block(report: Report) -> Block:
    """Return the block that says what the creator did behind each row."""
    names = row_names(report)
    several = Counter(found.row for found in report.creations)
    rows = tuple(
        (
            plain(names[found.row] + (f" [{found.run}]" if several[found.row] > 1 else "")),
            *_created(found, len(report.seeds)),
        )
        for found in report.creations
    )
    notes = (
        "The last iteration's creator, mean over seeds. No weight: share of the selected prompts "
        "that were drawn without weight, because fewer prompts than draws had a positive weight. "
        "No spread: share of the prompts selected from, and of the evolved ones, whose answers "
        "all got the same reward. Calls of the creator, the share of them that gave an unusable "
        "rewrite, and children dropped after all retries.",
        *(
            f"{plain(names[found.row])}: {found.filled:.1f} pairs of its training mix are original "
            "ones, in place of evolved ones that were lacking."
            for found in report.creations
            if found.filled
        ),
    )
    head = (
        "row",
        "no\nweight",
        "no\nspread",
        "evolved:\nno spread",
        "calls",
        "unusable",
        "dropped",
    )
    return Block("Creator", notes, head, rows)


def _created(found: Creation, seeds: int) -> list[str]:
    """Return a row's figures; without any, the first place says why."""
    if found.state != "ok":
        none = found.state == "not_available"
        word = f"{APPLIES_NOT} no creator" if none else state_words(found.state, found.done, seeds)
        return [word, *[APPLIES_NOT] * 5]
    selected = [_percent(found.without_weight), _percent(found.without_spread)]
    if not found.evolves:
        return [*selected, *[APPLIES_NOT] * 4]
    calls, dropped = (
        UNKNOWN if number is None else f"{number:.0f}" for number in (found.calls, found.dropped)
    )
    evolved, unusable = _percent(found.evolved_without_spread), _percent(found.unusable)
    return [*selected, evolved, calls, unusable, dropped]


def online_block(report: Report) -> Block:
    """Return the block that says what online training cost."""
    names = row_names(report)
    several = Counter(found.row for found in report.online)
    rows = tuple(
        (
            plain(names[found.row] + (f" [{found.run}]" if several[found.row] > 1 else "")),
            *_costs(found, len(report.seeds)),
        )
        for found in report.online
    )
    notes = (
        "What a run cost up to this row's checkpoint, mean over seeds; rollouts and tokens are "
        "those of training prompts and of rewrites on entering the buffer. Evolved: share of the "
        "prompts trained on. Dropped: share of the rewrites given up after all retries. Buffer: "
        "prompts left in it.",
    )
    head = ("row", "rollouts", "tokens", "steps", "creator\ncalls", "evolved", "dropped", "buffer")
    return Block("Online training", notes, head, rows)


def cost_block(report: Report, costs: Sequence[RowCost]) -> Block:
    """Return the block that says what each row cost."""
    names = row_names(report)
    several = Counter(found.row for found in costs)
    rows = tuple(
        (
            plain(names[found.row] + (f" [{found.run}]" if several[found.row] > 1 else "")),
            *_row_cost(found, len(report.seeds)),
        )
        for found in costs
    )
    notes = (
        "Means over seeds, of all stages behind a row's policy, as if it had been computed alone: "
        "what rows share is counted in each. Times are those of the machine that computed it. "
        "Rollouts and tokens are the policy's own, for training.",
    )
    head = ("row", "time", "judging", "rollouts", "tokens", "steps", "creator\ncalls")
    return Block("Cost", notes, head, rows)


def _row_cost(found: RowCost, seeds: int) -> list[str]:
    """Return a row's figures; without any, the first place says why."""
    judging = APPLIES_NOT if found.judging_seconds is None else _seconds(found.judging_seconds)
    if found.state != "ok":
        none = found.state == "not_available"
        word = "not trained" if none else state_words(found.state, found.done, seeds)
        return [word, judging, *[APPLIES_NOT] * 4]
    counts = (found.rollouts, found.tokens, found.gradient_steps, found.creator_calls)
    return [
        UNKNOWN if found.seconds is None else _seconds(found.seconds),
        judging,
        *(UNKNOWN if count is None else f"{count:,.0f}" for count in counts),
    ]


def _seconds(seconds: float) -> str:
    return f"{seconds / 60:.1f} min" if seconds >= 90 else f"{seconds:.1f} s"


def _costs(found: OnlineCost, seeds: int) -> list[str]:
    """Return a row's figures; without any, the first place says why."""
    if found.state != "ok":
        return [state_words(found.state, found.done, seeds), *[APPLIES_NOT] * 6]
    counts = (found.rollouts, found.tokens, found.gradient_steps, found.creator_calls)
    dropped = APPLIES_NOT if found.dropped is None else _percent(found.dropped)
    buffer = UNKNOWN if found.buffer is None else f"{found.buffer:.0f}"
    return [
        *(UNKNOWN if count is None else f"{count:,.0f}" for count in counts),
        _percent(found.evolved_share),
        dropped,
        buffer,
    ]


def _percent(share: float | None) -> str:
    return UNKNOWN if share is None else f"{100 * share:.1f}%"
