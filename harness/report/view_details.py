"""The blocks of a report beside its columns: prompts, creator, online training, cost."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import TypeVar

from harness.report.model import Creation, OfRow, OnlineCost, PromptDistance, Report, RowCost
from harness.report.view import APPLIES_NOT, UNKNOWN, Block, plain, row_names, state_words

Found = TypeVar("Found", bound=OfRow)


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
    names = row_names(report)

    def figures(found: Creation) -> list[str]:
        if found.state != "ok":
            word = _why_not(found, report, f"{APPLIES_NOT} no creator")
            return [word, *[APPLIES_NOT] * 5]
        evolved = [_percent(found.evolved_without_spread), _count(found.calls),
                   _percent(found.unusable), _count(found.dropped)]  # fmt: skip
        selected = [_percent(found.without_weight), _percent(found.without_spread)]
        return selected + (evolved if found.evolves else [APPLIES_NOT] * 4)

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
    head = (
        "row",
        "no\nweight",
        "no\nspread",
        "evolved:\nno spread",
        "calls",
        "unusable",
        "dropped",
    )
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
    """Return a line for each run of each row, named by the run where a row has several."""
    names, several = row_names(report), Counter(part.row for part in found)
    return tuple(
        (
            plain(names[part.row] + (f" [{part.run}]" if several[part.row] > 1 else "")),
            *figures(part),
        )
        for part in found
    )


def _why_not(found: OfRow, report: Report, none: str = "not available") -> str:
    """Return why a row has no figures; `none` where there is nothing to have them of."""
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
