"""Calibration: does the judge at hand give a released checkpoint its published score?

Before a judge's word on models of our own counts, it judges answers that others published with
their judgments. Both have judged the same answers to the same questions, so the difference is
paired, and what is left of it is the judge. It passes where the whole 95% interval of the
difference lies within the tolerance. A difference that merely is not significant would not do:
ten questions would let every judge pass.

The tolerances are ours. They leave room for a judge's own noise when it is asked again, and none
for another judge: gpt-4o-mini gives the paper's base 54.6 on Arena-Hard, where the paper prints
41.3 of another judge.
"""

from __future__ import annotations

from collections.abc import Mapping

from harness.errors import UserError
from harness.evaluation.benchmark_result import Evaluation
from harness.evaluation.calibration_record import Calibration
from harness.runtime.manifest import utc_now
from harness.statistics.intervals import paired_difference

COLUMNS = {"arena-hard": "win_rate", "alpaca-eval": "win_rate", "mt-bench": "average"}
"""The score that is compared."""

TOLERANCES = {"arena-hard": 5.0, "alpaca-eval": 5.0, "mt-bench": 0.3}
"""How far the difference may lie from zero: win rates in points, ratings from 1 to 10."""


def choose(published: list[Evaluation], model: str) -> Evaluation:
    """Return the published evaluation of a model; a file of one model is that model's.

    Raises:
        UserError: The file has several models and none of that name, or several judges.
    """
    found = [e for e in published if e.score.model == model] if len(published) > 1 else published
    if len(found) != 1:
        names = ", ".join(dict.fromkeys(e.score.model for e in published))
        raise UserError(
            f"The published judgments are of {names}, and {len(found)} of them are {model}'s; name "
            "one with --model"
        )
    return found[0]


def compare(
    profile: str,
    benchmark: str,
    ours: Evaluation,
    published: Evaluation,
    digests: Mapping[str, str],
    tolerance: float | None = None,
) -> Calibration:
    """Hold our evaluation of a checkpoint's outputs against the published one.

    Args:
        profile: The profile it is done for.
        benchmark: The profile's name of the benchmark.
        ours: The outputs, judged by the judge at hand.
        published: The same outputs, judged by others.
        digests: The sha256 of what was compared, by name.
        tolerance: How far the difference may lie from zero; None takes that of the benchmark.

    Raises:
        UserError: They do not cover the same questions.
    """
    kind = ours.score.benchmark
    column = COLUMNS[kind]
    left, right = ours.score.by_prompt(column), published.score.by_prompt(column)
    if left.keys() != right.keys():
        raise UserError(
            f"The judge has judged {len(left)} questions and the published judgments have "
            f"{len(right)}, of which {len(left.keys() & right.keys())} are the same; give the "
            "published judgments of these answers"
        )
    if len(left) < 2:
        raise UserError("One question calibrates no judge; give published judgments of more")
    order = list(left)
    found = paired_difference([[left[p] for p in order]], [[right[p] for p in order]])
    bound = TOLERANCES[kind] if tolerance is None else tolerance
    return Calibration(
        profile=profile,
        benchmark=benchmark,
        judge=str(ours.judge),
        published_judge=published.judge,
        model=published.score.model,
        column=column,
        ours=float(ours.score.scores[column] or 0.0),
        published=float(published.score.scores[column] or 0.0),
        prompts=len(order),
        difference=found.mean,
        low=found.low,
        high=found.high,
        tolerance=bound,
        passed=-bound <= found.low and found.high <= bound,
        finished=utc_now(),
        digests=dict(digests),
    )
