"""Calibrations on disk: which judge was held against published judgments, and what came out.

A calibration belongs to a profile, a benchmark and a judge, and the last one counts. A report
reads these records and says, of every benchmark with a real judge, whether that judge has passed.
Nothing here asks or scores anything.
"""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from harness.endpoint.prices import Retirement, read_prices
from harness.errors import HarnessError
from harness.foreign import read_json
from harness.registry.profile import Profile

BENCHMARKS = {
    "arena_hard": "arena-hard",
    "alpaca_eval": "alpaca-eval",
    "mt_bench": "mt-bench",
}
"""A profile's benchmarks with a judge that published judgments can be held against."""

State = Literal["passed", "failed", "not_calibrated"]


@dataclass(frozen=True)
class Calibration:
    """One judge held against published judgments of the same answers.

    Attributes:
        profile: The profile it was done for.
        benchmark: The profile's name of the benchmark.
        judge: The judge that was tested, as its scores are filed.
        published_judge: Who gave the published judgments; None where the file does not say.
        model: The checkpoint whose outputs were judged.
        column: The score that was compared.
        ours: That score under the judge, in the column's unit.
        published: That score under the published judgments.
        prompts: Questions that both judged.
        difference: Ours less the published, over the same questions.
        low: Lower end of its 95% interval.
        high: Upper end of its 95% interval.
        tolerance: How far from zero the whole interval may reach.
        passed: Whether it does not reach further.
        finished: When, ISO 8601 in UTC.
        digests: The sha256 of the published judgments, the answers and the benchmark's files.
    """

    profile: str
    benchmark: str
    judge: str
    published_judge: str | None
    model: str
    column: str
    ours: float
    published: float
    prompts: int
    difference: float
    low: float
    high: float
    tolerance: float
    passed: bool
    finished: str
    digests: dict[str, str]

    def as_json(self) -> dict[str, Any]:
        """Return the calibration as JSON data."""
        return asdict(self)

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


def is_judged(profile: Profile) -> bool:
    """Return whether a profile's judges are real ones, which can be calibrated."""
    return not profile.in_embedded_world


@dataclass(frozen=True)
class Candidate:
    """A judge whose word counts for a profile's benchmark once it is calibrated.

    Attributes:
        benchmark: The profile's name of the benchmark.
        model: The model that judges.
        judge: Its name as its scores are filed.
        retirement: When its seller retires it; None where nothing is known of that.
        successor_of: The profile's own judge whose place it takes; None for that judge itself.
        held: Its last calibration; None where there is none.
    """

    benchmark: str
    model: str
    judge: str
    retirement: Retirement | None
    successor_of: str | None
    held: Calibration | None


def candidates(profile: Profile, folder: Path) -> list[Candidate]:
    """Return the judges of each benchmark of a profile: its own, and its successor if it ends.

    Args:
        profile: The profile; one of the embedded world has none.
        folder: The folder of all calibrations.
    """
    known, found = read_prices().retirements, []
    for name in profile.benchmarks if is_judged(profile) else ():
        if name not in BENCHMARKS:
            continue
        own = profile.benchmarks[name].judge
        end = known.get(own)
        after = [] if end is None or end.successor is None else [(end.successor, own)]
        for model, successor_of in [(own, None), *after]:
            judge = filed_judge(name, model)
            held = find(folder, profile.name, name, judge)
            found.append(Candidate(name, model, judge, known.get(model), successor_of, held))
    return found


def expected_judge(profile: Profile, benchmark: str) -> str:
    """Return the judge of a profile's benchmark, as its scores are filed."""
    return filed_judge(benchmark, profile.benchmarks[benchmark].judge)


def filed_judge(benchmark: str, model: str) -> str:
    """Return the name under which a model's scores of a benchmark are filed."""
    if benchmark != "alpaca_eval":
        return model
    # Reports import this module, and the scorers' libraries are slow to load.
    from harness.evaluation.benchmark_alpaca_eval import judge_name

    return judge_name(model)


def record_path(folder: Path, profile: str, benchmark: str, judge: str) -> Path:
    """Return where a calibration is kept, below the folder of all calibrations."""
    name = re.sub(r"[^\w.@+-]+", "_", judge)
    return folder / profile / benchmark / f"{name}.json"


def find(folder: Path, profile: str, benchmark: str, judge: str) -> Calibration | None:
    """Return the last calibration of a judge, None where there is none.

    Raises:
        HarnessError: The record cannot be read.
    """
    path = record_path(folder, profile, benchmark, judge)
    if not path.is_file():
        return None
    try:
        return Calibration(**read_json(path.read_bytes()))
    except (OSError, ValueError, TypeError) as error:
        raise HarnessError(f"Cannot read {path} ({error}); calibrate that judge again") from error


def states(profile: Profile, folder: Path) -> dict[str, Calibration | None]:
    """Return the last calibration of each benchmark of a profile that has a judge.

    Args:
        profile: The profile; one of the embedded world has none.
        folder: The folder of all calibrations.
    """
    if not is_judged(profile):
        return {}
    return {
        name: find(folder, profile.name, name, expected_judge(profile, name))
        for name in profile.benchmarks
        if name in BENCHMARKS
    }
