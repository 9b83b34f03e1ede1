"""`calibrate`: hold a profile's judges against published judgments, before their word counts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from harness.cli.options import JsonOption, ProfileOption, takes
from harness.cli.output import console, grid, print_json
from harness.errors import UserError
from harness.evaluation.options import CalibrateOptions
from harness.project import calibrations_dir

if TYPE_CHECKING:
    from harness.evaluation.calibration import Candidate

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
    from harness.evaluation import calibration
    from harness.registry.declared import named_profile

    scale = named_profile(profile)
    if not calibration.judged_benchmarks(scale):
        raise UserError(
            f"The profile `{profile}` is judged by the embedded world, which needs no calibration"
        )
    if benchmark is None:
        _show(calibration.candidates(scale, calibrations_dir()), as_json)
        return
    found = calibration.calibrate(scale, benchmark, options, voice(as_json=as_json))
    if found is None:
        return
    _show([calibration.candidate_of(scale, found, calibrations_dir())], as_json)
    if not found.passed:
        raise typer.Exit(1)


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
