"""`calibrate`: hold a profile's judges against published judgments, before their word counts."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from harness.benchmarking.options import CalibrateOptions
from harness.cli.options import JsonOption, ProfileOption, takes
from harness.cli.output import console, grid, print_json
from harness.errors import UserError
from harness.project import calibrations_dir
from harness.runtime.files import sha256_of

if TYPE_CHECKING:
    from harness.benchmarking.live import Voice
    from harness.evaluation.calibration import Calibration, Candidate
    from harness.registry.profile import Profile

BenchmarkOption = Annotated[
    str | None,
    typer.Option("--benchmark", metavar="NAME", help="A benchmark of the profile."),
]

app = typer.Typer(rich_markup_mode=None)


@app.command(
    "calibrate",
    epilog="Example: harness calibrate --profile paper --benchmark mt_bench --data mt_bench "
    "--answers answers.jsonl --published judgments.jsonl",
)
@takes(CalibrateOptions)
def calibrate(
    options: CalibrateOptions,
    profile: ProfileOption = "paper",
    benchmark: BenchmarkOption = None,
    as_json: JsonOption = False,
) -> None:
    """Judge a released checkpoint's outputs, and compare with their published judgments.

    Without --benchmark, say which judges of the profile have passed.
    """
    from harness.cli.evaluate import voice
    from harness.evaluation.calibration import BENCHMARKS, candidates, is_judged
    from harness.registry.declared import named_profile

    scale = named_profile(profile)
    if not is_judged(scale):
        raise UserError(
            f"The profile `{profile}` is judged by the embedded world, which needs no calibration"
        )
    if benchmark is None:
        _show(candidates(scale, calibrations_dir()), as_json)
        return
    if benchmark not in BENCHMARKS or benchmark not in scale.benchmarks:
        raise UserError(
            f"The profile `{profile}` has no benchmark `{benchmark}` with a judge that published "
            f"judgments can be held against; it has {', '.join(BENCHMARKS)}"
        )
    if options.published is None or options.answers is None:
        raise UserError(
            "A calibration needs a released checkpoint's outputs with --answers, and their "
            "published judgments with --published"
        )
    found = _calibrate(
        scale, benchmark, options, options.answers, options.published, voice(as_json=as_json)
    )
    if found is None:
        return
    _show([_candidate(scale, found)], as_json)
    if not found.passed:
        raise typer.Exit(1)


def _calibrate(
    profile: Profile,
    name: str,
    options: CalibrateOptions,
    outputs: Path,
    published: Path,
    voice: Voice,
) -> Calibration | None:
    """Judge, compare, and keep the record; None where only the price was asked for."""
    from harness.benchmarking import live
    from harness.endpoint.budget import Ledger
    from harness.evaluation.archive import write_json
    from harness.evaluation.benchmark import benchmark_class
    from harness.evaluation.calibration import BENCHMARKS, choose, compare, record_path

    options.check()
    kind = benchmark_class(BENCHMARKS[name])
    data = options.data_folder(kind.name)
    benchmark = kind.load(data)
    expected = kind.score_file(published, data if name == "alpaca_eval" else None)
    answers = benchmark.read_answers(outputs, options.model)
    theirs = choose(expected, answers.model)
    if name != "alpaca_eval":
        benchmark.restrict(theirs.score.prompts)
    judge = live.judge_of(
        options,
        options.judge or profile.benchmarks[name].judge,
        live.checked_annotator(options),
        Ledger(options.budget_usd),
    )
    output = calibrations_dir() / "evaluations"
    ours = live.judged(benchmark, options, judge, answers, output=output, voice=voice)
    if ours is None:
        return None
    digests = {
        "published": sha256_of(published),
        "answers": sha256_of(outputs),
        "data": benchmark.digest,
    }
    found = compare(profile.name, name, ours, theirs, digests, options.tolerance)
    path = record_path(calibrations_dir(), profile.name, name, found.judge)
    write_json(path, found.model_dump(mode="json"))
    return found


def _candidate(profile: Profile, done: Calibration) -> Candidate:
    """Return the judge that was calibrated: one of the profile's candidates, or another."""
    from harness.evaluation.calibration import Candidate, candidates

    for one in candidates(profile, calibrations_dir()):
        if (one.benchmark, one.judge) == (done.benchmark, done.judge):
            return one
    return Candidate(
        benchmark=done.benchmark,
        model=done.judge,
        judge=done.judge,
        retirement=None,
        successor_of=None,
        calibration=done,
    )


def _show(found: Sequence[Candidate], as_json: bool) -> None:
    """Print benchmarks and judges with their calibrations."""
    if as_json:
        print_json([one.model_dump(mode="json") for one in found])
        return
    rows = [
        (
            one.benchmark,
            one.judge,
            _standing(one),
            "not calibrated" if one.calibration is None else one.calibration.text,
        )
        for one in found
    ]
    console().print(grid(("benchmark", "judge", "standing", "calibration"), rows))


def _standing(one: Candidate) -> str:
    """Return in a few words whether a judge is served, and whose place it takes."""
    words = [] if one.successor_of is None else [f"successor of {one.successor_of}"]
    if one.retirement is not None:
        words.append(f"{'retired' if one.retirement.past else 'retires'} {one.retirement.on}")
    return ", ".join(words)
