"""Calibration: does the judge at hand give a released checkpoint its published score?

It judges answers that others published with their judgments. Both have judged the same answers, so
the difference is paired, and what is left of it is the judge. It passes where the whole 95%
interval lies within the tolerance (`Benchmark.compared`, ours: room for a judge's own noise, none
for another judge; gpt-4o-mini gives the paper's base 54.6 on Arena-Hard instead of 41.3). That a
difference is not significant would not do: ten questions would let every judge pass. The last
calibration of a profile, a benchmark and a judge counts, and reports say whether it passed.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from pydantic import computed_field

from harness.endpoint.prices import Retirement, read_prices
from harness.errors import HarnessError, UserError
from harness.extensions import BENCHMARKS, JUDGES
from harness.foreign import read_json
from harness.project import calibrations_dir
from harness.registry.profile import Profile, benchmark_named
from harness.runtime.files import sha256_of
from harness.runtime.manifest import utc_now
from harness.strict import Output, Strict

if TYPE_CHECKING:
    from harness.evaluation.options import CalibrateOptions
    from harness.evaluation.run import Voice
    from harness.evaluation.scores import Evaluation

State = Literal["passed", "failed", "not_calibrated"]


class Calibration(Strict):
    """One judge held against published judgments of the same answers."""

    profile: str
    """The profile it was done for."""
    benchmark: str
    """The profile's name of the benchmark."""
    judge: str
    """The judge that was tested, as its scores are filed."""
    published_judge: str | None
    """Who gave the published judgments; null where the file does not say."""
    model: str
    """The checkpoint whose published outputs were judged."""
    column: str
    """The score that was compared."""
    ours: float
    """That score under the judge, in the column's unit."""
    published: float
    """That score under the published judgments."""
    prompts: int
    """Questions that both judged."""
    difference: float
    """Ours less the published, paired over the questions."""
    low: float
    high: float
    """Lower and upper end of its 95% interval."""
    tolerance: float
    """How far from zero the whole interval may reach."""
    passed: bool
    """Whether it does not reach further."""
    finished: str
    """When, ISO 8601 in UTC."""
    digests: dict[str, str]
    """The sha256 of the published judgments, the answers and the benchmark's files."""

    @property
    def state(self) -> State:
        """Whether the judge passed."""
        return "passed" if self.passed else "failed"

    @property
    def text(self) -> str:
        """What came out, in a line."""
        return (
            f"{self.state} on {self.finished[:10]} with {self.model}: {self.ours:.2f} against "
            f"{self.published:.2f} published, {self.difference:+.2f} ({self.low:+.2f} to "
            f"{self.high:+.2f}) over {self.prompts} questions, tolerance {self.tolerance:g}"
        )


def judged_benchmarks(profile: Profile) -> list[str]:
    """Return a profile's benchmarks with a judge that published judgments can be held against.

    The embedded world's own judges need no calibration.
    """
    return [
        name
        for name, benchmark in profile.benchmarks.items()
        if benchmark_named(name) is not None
        and benchmark.judge not in JUDGES
        and not (profile.in_embedded_world and BENCHMARKS.added(name) is None)
    ]


class Candidate(Output):
    """A judge whose word counts for a profile's benchmark once it is calibrated."""

    benchmark: str
    """The profile's name of the benchmark."""
    model: str
    """The model that judges."""
    judge: str
    """Its name as its scores are filed."""
    retirement: Retirement | None
    """Since when its seller has retired it; null where it is served."""
    successor_of: str | None
    """The profile's own judge whose place it takes; null for that judge itself."""
    calibration: Calibration | None
    """Its last calibration; null where there is none."""

    @computed_field  # type: ignore[prop-decorator]
    @property
    def state(self) -> State:
        """Whether it passed."""
        return "not_calibrated" if self.calibration is None else self.calibration.state


Candidates = list[Candidate]
"""What `harness calibrate` prints."""


def candidates(profile: Profile, folder: Path) -> list[Candidate]:
    """Return the judges of each benchmark of a profile: its own, and its successor if it ends."""
    known, found = read_prices().retirements, []
    for name in judged_benchmarks(profile):
        own = profile.benchmarks[name].judge
        end = known.get(own)
        after = [] if end is None or end.successor is None else [(end.successor, own)]
        for model, successor_of in [(own, None), *after]:
            judge = filed_judge(name, model)
            held = find(folder, profile.name, name, judge)
            found.append(
                Candidate(
                    benchmark=name,
                    model=model,
                    judge=judge,
                    retirement=known.get(model),
                    successor_of=successor_of,
                    calibration=held,
                )
            )
    return found


def expected_judge(profile: Profile, benchmark: str) -> str:
    """Return the judge of a profile's benchmark, as its scores are filed."""
    return filed_judge(benchmark, profile.benchmarks[benchmark].judge)


def filed_judge(benchmark: str, model: str) -> str:
    """Return the name under which a model's scores of a benchmark are filed."""
    # Reports import this module, and the scorers' libraries are slow to load.
    from harness.evaluation.benchmark import benchmark_class

    if benchmark != "alpaca_eval":
        return model
    return benchmark_class("alpaca_eval").filed_judge(model)


def record_path(folder: Path, profile: str, benchmark: str, judge: str) -> Path:
    """Return where a calibration is kept, below the folder of all calibrations."""
    name = re.sub(r"[^\w.@+-]+", "_", judge)
    return folder / profile / benchmark / f"{name}.json"


def find(folder: Path, profile: str, benchmark: str, judge: str) -> Calibration | None:
    """Return the last calibration of a judge, None where there is none."""
    path = record_path(folder, profile, benchmark, judge)
    if not path.is_file():
        return None
    try:
        return Calibration.model_validate(read_json(path.read_bytes()))
    except (OSError, ValueError) as error:
        raise HarnessError(f"Cannot read {path} ({error}); calibrate that judge again") from error


def states(profile: Profile, folder: Path) -> dict[str, Calibration | None]:
    """Return the last calibration of each benchmark of a profile that has a judge."""
    return {
        name: find(folder, profile.name, name, expected_judge(profile, name))
        for name in judged_benchmarks(profile)
    }


def choose(published: list[Evaluation], model: str) -> Evaluation:
    """Return the published evaluation of a model; a file of one model is that model's."""
    found = [e for e in published if e.score.model == model] if len(published) > 1 else published
    if len(found) != 1:
        names = ", ".join(dict.fromkeys(e.score.model for e in published))
        raise UserError(
            f"The published judgments are of {names}, and {len(found)} of them are {model}'s; name "
            "one with --model"
        )
    return found[0]


def calibrate(
    profile: Profile, name: str, options: CalibrateOptions, voice: Voice
) -> Calibration | None:
    """Judge outputs as options say, compare with published judgments, and keep the record.

    It is None where only the price was asked for.
    """
    from harness.endpoint.budget import Ledger
    from harness.evaluation import run
    from harness.evaluation.benchmark import benchmark_class
    from harness.evaluation.scores import write_json

    known, named = judged_benchmarks(profile), benchmark_named(name)
    if name not in known or named is None:
        raise UserError(
            f"The profile `{profile.asked_as}` has no benchmark `{name}` with a judge that "
            f"published judgments can be held against; it has {', '.join(known)}"
        )
    if options.published is None or options.answers is None:
        raise UserError(
            "A calibration needs a released checkpoint's outputs with --answers, and their "
            "published judgments with --published"
        )
    options.check()
    kind = benchmark_class(named)
    data = options.data_folder(kind.name)
    benchmark = kind.load(data)
    expected = kind.score_file(options.published, None)
    answers = benchmark.read_answers(options.answers, options.model)
    theirs = choose(expected, answers.model)
    benchmark.restrict(theirs.score.prompts)
    asked = options.judge or profile.benchmarks[name].judge
    judge = run.judge_of(options, benchmark, asked, Ledger(options.budget_usd))
    folder = calibrations_dir()
    ours = run.judged(benchmark, options, judge, answers, folder / "evaluations", voice)
    if ours is None:
        return None
    digests = {
        "published": sha256_of(options.published),
        "answers": sha256_of(options.answers),
        "data": benchmark.digest,
    }
    found = compare(profile.name, name, ours, theirs, digests, options.tolerance)
    path = record_path(folder, profile.name, name, found.judge)
    write_json(path, found.model_dump(mode="json"))
    return found


def candidate_of(profile: Profile, done: Calibration, folder: Path) -> Candidate:
    """Return the judge that was calibrated: one of the profile's candidates, or another."""
    for one in candidates(profile, folder):
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


def compare(
    profile: str,
    name: str,
    ours: Evaluation,
    published: Evaluation,
    digests: Mapping[str, str],
    tolerance: float | None = None,
) -> Calibration:
    """Hold our evaluation of a checkpoint's outputs against the published one."""
    from harness.evaluation.benchmark import benchmark_class

    column, usual = benchmark_class(ours.score.benchmark).compared
    left, right = ours.score.by_prompt(column), published.score.by_prompt(column)
    if left.keys() != right.keys():
        raise UserError(
            f"The judge has judged {len(left)} questions and the published judgments have "
            f"{len(right)}, of which {len(left.keys() & right.keys())} are the same; give the "
            "published judgments of these answers"
        )
    if len(left) < 2:
        raise UserError("One question calibrates no judge; give published judgments of more")
    from harness.statistics.intervals import paired_difference

    order = list(left)
    found = paired_difference([[left[p] for p in order]], [[right[p] for p in order]])
    bound = usual if tolerance is None else tolerance
    return Calibration(
        profile=profile,
        benchmark=name,
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
