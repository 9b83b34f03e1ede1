"""`calibrate`: hold a profile's judges against published judgments, before their word counts."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from harness.benchmarking.options import JudgeOptions
from harness.cli.evaluate_options import AnnotatorOption, takes
from harness.cli.options import JsonOption, ProfileOption
from harness.cli.output import console, grid, print_json
from harness.errors import UserError
from harness.project import calibrations_dir

if TYPE_CHECKING:
    from harness.benchmarking.live import Voice
    from harness.evaluation.benchmark_kinds import Benchmark
    from harness.evaluation.benchmark_result import Evaluation
    from harness.evaluation.calibration_record import Calibration, Candidate
    from harness.registry.profile import Profile

BenchmarkOption = Annotated[
    str | None,
    typer.Option("--benchmark", metavar="NAME", help="A benchmark of the profile."),
]
PublishedOption = Annotated[
    Path | None,
    typer.Option("--published", metavar="FILE", help="Published judgments of --answers."),
]
ToleranceOption = Annotated[
    float | None,
    typer.Option(
        "--tolerance",
        metavar="X",
        help="How far the difference may lie from zero.",
        show_default="the benchmark's",
    ),
]

app = typer.Typer(rich_markup_mode=None)


@app.command(
    "calibrate",
    epilog="Example: harness calibrate --profile paper --benchmark mt_bench --data mt_bench "
    "--answers answers.jsonl --published judgments.jsonl",
)
@takes(JudgeOptions)
def calibrate(
    options: JudgeOptions,
    profile: ProfileOption = "paper",
    benchmark: BenchmarkOption = None,
    published: PublishedOption = None,
    annotator: AnnotatorOption = None,
    tolerance: ToleranceOption = None,
    as_json: JsonOption = False,
) -> None:
    """Judge a released checkpoint's outputs, and compare with their published judgments.

    Without --benchmark, say which judges of the profile have passed.
    """
    from harness.cli.evaluate_printing import voice
    from harness.evaluation.calibration_record import BENCHMARKS, is_judged
    from harness.registry.declared import named_profile

    scale = named_profile(profile)
    if not is_judged(scale):
        raise UserError(
            f"The profile `{profile}` is judged by the embedded world, which needs no calibration"
        )
    if benchmark is None:
        _show_states(scale, as_json)
        return
    if benchmark not in BENCHMARKS or benchmark not in scale.benchmarks:
        raise UserError(
            f"The profile `{profile}` has no benchmark `{benchmark}` with a judge that published "
            f"judgments can be held against; it has {', '.join(BENCHMARKS)}"
        )
    if published is None or options.answers is None:
        raise UserError(
            "A calibration needs a released checkpoint's outputs with --answers, and their "
            "published judgments with --published"
        )
    found = _calibrate(
        scale,
        benchmark,
        options,
        options.answers,
        published,
        annotator,
        tolerance,
        voice(as_json=as_json),
    )
    if found is None:
        return
    _show([_candidate(scale, found)], as_json)
    if not found.passed:
        raise typer.Exit(1)


def _calibrate(
    profile: Profile,
    name: str,
    options: JudgeOptions,
    outputs: Path,
    published: Path,
    annotator: str | None,
    tolerance: float | None,
    talk: Voice,
) -> Calibration | None:
    """Judge, compare, and keep the record; None where only the price was asked for."""
    from harness.benchmarking import live
    from harness.endpoint.budget import Ledger
    from harness.evaluation import benchmark_archive
    from harness.evaluation.benchmark_alpaca_eval import OWN_ANNOTATOR
    from harness.evaluation.calibration import choose, compare
    from harness.evaluation.calibration_record import BENCHMARKS, record_path

    options.check()
    benchmark, theirs = _read(name, options.data_folder(BENCHMARKS[name]), published)
    answers = benchmark.read_answers(outputs, options.model)
    expected = choose(theirs, answers.model)
    if name != "alpaca_eval":
        benchmark.restrict(expected.score.prompts)
    judge = live.judge_of(
        options,
        options.judge or profile.benchmarks[name].judge,
        annotator or OWN_ANNOTATOR,
        Ledger(options.budget_usd),
    )
    output = calibrations_dir() / "evaluations"
    ours = live.judged(benchmark, options, judge, answers, output=output, voice=talk)
    if ours is None:
        return None
    digests = {
        "published": hashlib.sha256(published.read_bytes()).hexdigest(),
        "answers": hashlib.sha256(outputs.read_bytes()).hexdigest(),
        "data": benchmark.digest,
    }
    found = compare(profile.name, name, ours, expected, digests, tolerance)
    path = record_path(calibrations_dir(), profile.name, name, found.judge)
    benchmark_archive.write_json(path, found.as_json())
    return found


def _read(name: str, data: Path, published: Path) -> tuple[Benchmark, list[Evaluation]]:
    """Return a benchmark, and what was published of some outputs on it."""
    from harness.benchmarking import benchmarks as files
    from harness.evaluation.benchmark_kinds import AlpacaEval, ArenaHard, MtBench
    from harness.evaluation.benchmark_length_control import LengthControl

    if name == "mt_bench":
        return MtBench(data), files.mt_bench(published, None)
    if name == "arena_hard":
        return ArenaHard(data), files.arena_hard(None, published, None, None)
    control = LengthControl()
    return AlpacaEval(data, control), files.alpaca_eval(published, control, data)


def _show_states(profile: Profile, as_json: bool) -> None:
    """Print which judges of a profile, and successors, have passed, failed, or were not tried."""
    from harness.evaluation.calibration_record import candidates

    _show(candidates(profile, calibrations_dir()), as_json)


def _candidate(profile: Profile, done: Calibration) -> Candidate:
    """Return the judge that was calibrated: one of the profile's candidates, or another."""
    from harness.evaluation.calibration_record import Candidate, candidates

    for one in candidates(profile, calibrations_dir()):
        if (one.benchmark, one.judge) == (done.benchmark, done.judge):
            return one
    return Candidate(done.benchmark, done.judge, done.judge, None, None, done)


def _show(found: Sequence[Candidate], as_json: bool) -> None:
    """Print benchmarks and judges with their calibrations."""
    if as_json:
        print_json(
            [
                {
                    "benchmark": one.benchmark,
                    "judge": one.judge,
                    "retirement": None if one.retirement is None else one.retirement.as_json(),
                    "successor_of": one.successor_of,
                    "state": "not_calibrated" if one.held is None else one.held.state,
                    "calibration": None if one.held is None else one.held.as_json(),
                }
                for one in found
            ]
        )
        return
    rows = [
        (
            one.benchmark,
            one.judge,
            _standing(one),
            one.held.text if one.held else "not calibrated",
        )
        for one in found
    ]
    console().print(grid(("benchmark", "judge", "standing", "calibration"), rows))


def _standing(one: Candidate) -> str:
    """Return in a few words whether a judge is served, and whose place it takes."""
    words = [] if one.successor_of is None else [f"successor of {one.successor_of}"]
    if one.retirement is not None:
        words.append(f"{'retired' if one.retirement.is_past else 'retires'} {one.retirement.on}")
    return ", ".join(words)
