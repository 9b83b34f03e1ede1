"""Judge calibration: agreement with published judgments, and position and length bias.

The judge sees pairs of answers that others have judged, each pair in both orders. There is no pass
threshold: how much agreement is enough depends on the effect a table should detect.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from pydantic import ValidationError

from harness.errors import HarnessError, UserError
from harness.evaluation import files
from harness.extensions import BENCHMARKS, JUDGES, benchmark_name
from harness.foreign import in_a_line
from harness.project import benchmarks_dir
from harness.registry.profile import Profile
from harness.runtime.files import sha256_of
from harness.runtime.manifest import utc_now
from harness.strict import Strict

PUBLISHED = files.HomeFile(
    "annotations_FuseChat-Gemma-2-9B-Instruct.json",
    "https://raw.githubusercontent.com/tatsu-lab/alpaca_eval/"
    "8d731d8dbeee2900acbc5b685cd71dd2d48eeff2/results/FuseChat-Gemma-2-9B-Instruct/"
    "weighted_alpaca_eval_gpt4_turbo/annotations.json",
    "72945b6a549eadcd18940fee835343d62985fced144e5b7a2b69c79e120d3cab",
)
"""805 comparisons by AlpacaEval's judge. Licensed for non-commercial use only (CC BY-NC 4.0), so
they are fetched, not shipped. The digest is that of the published copy."""


class Annotation(files.Published):
    """A comparison of two outputs in AlpacaEval's format."""

    instruction: str
    output_1: str
    output_2: str
    preference: files.Number | None
    """1 for the first output, 2 for the second, 0 or 1.5 for a tie."""
    annotator: str | None = None


class Calibration(Strict):
    """One judge compared with published judgments of the same answers; shares are in percent."""

    judge: str
    """The judge's name in profiles."""
    identity: str
    """The model's revision, or the plug-in and its version, if available locally."""
    published_judge: str
    """Source of the published judgments."""
    comparisons: int
    """Pairs judged by both, excluding published ties."""
    missing: int
    """Pairs without a verdict from the judge."""
    agreement: float
    """Verdicts that match the published ones; a tie counts half."""
    low: float
    high: float
    """Bounds of the 95% interval of `agreement` over pairs."""
    one_side: float
    """Agreement of always naming the side that is preferred more often."""
    consistent: float
    """Pairs with the same verdict in both orders."""
    first: float
    """Verdicts for the answer shown first; 50 means no position bias."""
    longer: float
    """Verdicts for the longer answer."""
    longer_published: float
    """Published verdicts for the longer answer."""
    finished: str
    """Completion time, ISO 8601 in UTC."""
    digest: str
    """SHA-256 of the published judgments."""

    @property
    def short(self) -> str:
        return f"agrees with {self.published_judge} in {self.agreement:.0f}%"

    @property
    def text(self) -> str:
        return (
            f"agrees with {self.published_judge} in {self.agreement:.1f}% ({self.low:.1f} to "
            f"{self.high:.1f}) of {self.comparisons} comparisons, where one side always would in "
            f"{self.one_side:.1f}%; same verdict in both orders {self.consistent:.1f}%, for the "
            f"first shown {self.first:.1f}%; for the longer {self.longer:.1f}%, published "
            f"{self.longer_published:.1f}%; {self.finished[:10]}"
        )


def record_path(folder: Path, judge: str) -> Path:
    return folder / f"{files.path_part(judge)}.json"


def find(folder: Path, judge: str) -> Calibration | None:
    path = record_path(folder, judge)
    if not path.is_file():
        return None
    try:
        return Calibration.model_validate_json(path.read_bytes())
    except ValidationError as error:
        why = in_a_line(" ".join(str(error).split()), 200)
        raise HarnessError(f"Cannot read {path} ({why}); calibrate that judge again") from error


def states(profile: Profile, folder: Path) -> dict[str, Calibration | None]:
    """Return the latest calibration of each judge that needs one, by benchmark."""
    return {
        name: find(folder, benchmark.judge)
        for name, benchmark in profile.benchmarks.items()
        if benchmark_name(name) in BENCHMARKS
        and benchmark.judge not in JUDGES
        and not (profile.in_embedded_world and BENCHMARKS.added(name) is None)
    }


def published_file(given: Path | None) -> Path:
    """Return the file of published judgments: the given one, or else the fetched one."""
    path = given or benchmarks_dir() / "alpaca-eval" / PUBLISHED.name
    if path.is_file():
        return path
    raise UserError(
        f"there are no published judgments at {path}; type `harness evaluate fetch alpaca_eval`, "
        "or give annotations in AlpacaEval's form with --judgments"
    )


def read_comparisons(path: Path) -> tuple[str, list[Annotation]]:
    """Return the judges and the comparisons in a file of AlpacaEval's format, excluding ties.

    Raises:
        UserError: The file has none.
    """
    read = files.read_as(Annotation, files.read_records(path))
    judges = dict.fromkeys(it.annotator or "not said" for it in read)
    sides = [it for it in read if 1.0 <= (it.preference or 0.0) <= 2.0 and it.preference != 1.5]
    if not sides:
        raise UserError(
            f"{path} has no preference for either output; give annotations with preferences from 1 "
            "(the first output) to 2 (the second)"
        )
    return ", ".join(judges), sides


def measure(
    judge: str,
    identity: str,
    comparisons: Sequence[Annotation],
    verdicts: Sequence[tuple[float | None, float | None]],
    published: tuple[str, Path],
) -> Calibration:
    """Compute a judge's calibration from its verdicts on each comparison in both orders.

    A verdict is 1 for the second answer, 0 for the first, 1/2 for a tie, or None.
    """
    import numpy as np

    from harness.statistics.intervals import mean_interval

    read = [i for i, both in enumerate(verdicts) if None not in both]
    if len(read) < 2:
        raise UserError(
            f"{judge} gave a verdict on {len(read)} of {len(verdicts)} comparisons; at least two "
            "are needed"
        )
    ours = np.array([verdicts[i] for i in read], dtype=np.float64)
    theirs = np.array([(comparisons[i].preference or 0.0) > 1.5 for i in read], dtype=np.float64)
    agrees = 100.0 * (1.0 - np.abs(ours - theirs[:, None])).mean(axis=1)
    lengths = [len(comparisons[i].output_2) - len(comparisons[i].output_1) for i in read]
    sides, second = np.sign(lengths), ours.mean(axis=1)

    def for_longer(shares: np.ndarray) -> float:
        unequal = np.where(sides > 0, shares, 1.0 - shares)[sides != 0]
        return float(100.0 * unequal.mean()) if len(unequal) else 50.0

    interval = mean_interval(agrees[None, :])
    return Calibration(
        judge=judge,
        identity=identity,
        published_judge=published[0],
        comparisons=len(read),
        missing=len(verdicts) - len(read),
        agreement=float(agrees.mean()),
        low=interval.low,
        high=interval.high,
        one_side=float(100.0 * max(theirs.mean(), 1.0 - theirs.mean())),
        consistent=float(100.0 * (ours[:, 0] == ours[:, 1]).mean()),
        first=float(50.0 * (1.0 - ours[:, 0] + ours[:, 1]).mean()),
        longer=for_longer(second),
        longer_published=for_longer(theirs),
        finished=utc_now(),
        digest=sha256_of(published[1]),
    )
