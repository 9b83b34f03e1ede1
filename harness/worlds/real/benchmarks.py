"""The benchmarks of real models as a run knows them: by their files, in the folder of benchmarks.

Arena-Hard, AlpacaEval and MT-Bench are answered and judged as stages here, through the same code
and from the same files as with `harness evaluate`. A benchmark's identity is the digest of what it
asks and tells its judge: questions, references or the baseline's answers, and the judge's prompts.
Where they are not there yet, it ends in `not-downloaded`. A benchmark's files lie in the folder of
its name, or where the profile says (`files`), which then names the kind last:
`made-up/arena-hard`.

Table 9's tasks have their questions inside lm-evaluation-harness; of them the package's version is
what is known.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING

from harness.errors import UserError
from harness.project import benchmarks_dir
from harness.registry.profile import Benchmark as Declared
from harness.registry.profile import Profile
from harness.runtime.files import sha256_of
from harness.runtime.stage import Json
from harness.worlds.protocol import Item
from harness.worlds.real.models import DIGITS, NOT_DOWNLOADED

if TYPE_CHECKING:
    from harness.evaluation.benchmark import Benchmark

PACKAGES = {"arena-hard": "tiktoken", "alpaca-eval": "alpaca-eval"}
"""The package that a part of a benchmark's scores needs, by benchmark."""

LM_EVAL_ENGINE = "hf"
"""lm-eval's name for transformers, which runs the model."""

DOWNSTREAM = "downstream"
"""Name of table 9's tasks in a profile."""

LM_EVAL = "lm-eval"
NOT_INSTALLED = "not-installed"


@dataclass(frozen=True)
class Kind:
    """A benchmark that a judge rates answers of.

    Attributes:
        name: its name in the command line, and of its folder.
        against: whose answers it compares with; None where answers are rated alone.
        columns: the registry's column of each of its scores.
    """

    name: str
    against: str | None
    columns: Mapping[str, str]


KINDS: Mapping[str, Kind] = {
    "arena_hard": Kind(
        "arena-hard", "gpt-4-0314", {"win_rate": "ah_wr", "answer_tokens": "ah_len"}
    ),
    "alpaca_eval": Kind(
        "alpaca-eval",
        "gpt-4-1106-preview",
        {"win_rate": "ae_wr", "length_controlled_win_rate": "ae_lc"},
    ),
    "mt_bench": Kind("mt-bench", None, {"average": "mt_avg", "turn_1": "mt_t1", "turn_2": "mt_t2"}),
}
"""The benchmarks by their names in a profile."""

BY_NAME = {kind.name: kind for kind in KINDS.values()}
"""The benchmarks by their names in the command line."""


def benchmark_identity(name: str, declared: Declared) -> str:
    """Return the identity of a benchmark of a profile.

    Args:
        name: its name in the profile.
        declared: what the profile says of it.

    Raises:
        UserError: there is no such benchmark, its files cannot be read, or they are not as many or
            not the opponent's that the profile says.
    """
    if name == DOWNSTREAM:
        return f"{LM_EVAL}@{version_of('lm_eval')}"
    if name not in KINDS:
        raise UserError(
            f"no benchmark of real models is called `{name}`; call it one of "
            f"{', '.join([*KINDS, DOWNSTREAM])}"
        )
    kind = KINDS[name]
    place = declared.files or kind.name
    if place.rpartition("/")[2] != kind.name:
        raise UserError(
            f"`benchmarks.{name}.files` is `{place}`; let it end in `{kind.name}`, which says how "
            "its files are read"
        )
    if not folder_of(place).is_dir():
        return f"{place}@{NOT_DOWNLOADED}"
    there, said = len(_read_at(place).questions), declared.items
    if there != said:
        raise UserError(
            f"{folder_of(place)} has {there} questions and the profile says {said}; give the "
            f"whole benchmark, or correct `benchmarks.{name}.items`"
        )
    if declared.files is None and declared.against != kind.against:
        raise UserError(
            f"{kind.name} compares with {kind.against or 'nobody'} and the profile says "
            f"{declared.against or 'nobody'}; correct `benchmarks.{name}.against`"
        )
    return f"{place}@{_digest(place)}"


def kind_of(identity: str) -> Kind:
    """Return the kind of a benchmark, by its identity or place."""
    return BY_NAME[identity.partition("@")[0].rpartition("/")[2]]


def is_benchmark(identity: str) -> bool:
    """Return whether an identity is that of a real benchmark whose answers a judge rates."""
    return identity.partition("@")[0].rpartition("/")[2] in BY_NAME


def has_own_annotator(identity: str) -> bool:
    """Return whether the judge's words are in the folder, so that no package is needed.

    In AlpacaEval's own place they count for nothing: its scores are its own annotator's.
    """
    from harness.evaluation.benchmarks.own_annotator import FILE_NAME

    place = identity.partition("@")[0]
    return place not in BY_NAME and (folder_of(place) / FILE_NAME).is_file()


def is_lm_eval(identity: str) -> bool:
    """Return whether an identity is that of table 9's tasks."""
    return identity.partition("@")[0] == LM_EVAL


def benchmark_of_identity(identity: str) -> Benchmark:
    """Return a benchmark, after checking that its files are those the identity means.

    Raises:
        UserError: they are not there, cannot be read, or are others.
    """
    place, _, digest = identity.partition("@")
    if digest == NOT_DOWNLOADED or not folder_of(identity).is_dir():
        raise UserError(
            f"the files of {place} are not on this machine; type {fetch_line(place)}, and plan the "
            "run again"
        )
    if _digest(place) != digest:
        raise UserError(
            f"the files in {folder_of(place)} are not those that this run was planned with; put "
            "them back, or plan the run again"
        )
    return _read_at(place)


def questions_of(identity: str) -> list[Item]:
    """Return a benchmark's questions in its order, with the answers it compares with.

    Raises:
        UserError: its files are not those the identity means.
    """
    benchmark = benchmark_of_identity(identity)
    references = benchmark.references
    return [
        Item(
            q.prompt_id,
            q.category,
            q.turns[0],
            q.turns[1] if len(q.turns) > 1 else None,
            references.get(q.prompt_id),
        )
        for q in benchmark.questions
    ]


def folder_of(identity: str) -> Path:
    """Return the folder of a benchmark's files, by its identity or place."""
    return benchmarks_dir() / identity.partition("@")[0]


def fetch_line(place: str) -> str:
    """Return what to type for a benchmark whose files are not there."""
    if place not in BY_NAME:
        return f"nothing for {place}: put its files at {folder_of(place)}"
    return (
        f"`harness evaluate fetch {place}` (or put its files at {folder_of(place)}; "
        "HARNESS_BENCHMARKS names the folder of all benchmarks)"
    )


def _read_at(place: str) -> Benchmark:
    return _read(place, folder_of(place), _stamp(folder_of(place)))


def _digest(place: str) -> str:
    return _digest_at(place, folder_of(place), _stamp(folder_of(place)))


_Stamp = tuple[tuple[str, int, int], ...]


def _stamp(folder: Path) -> _Stamp:
    """Return names, sizes and times of change of a folder's files."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return tuple((str(f), f.stat().st_size, f.stat().st_mtime_ns) for f in files)


@lru_cache(maxsize=8)
def _read(place: str, folder: Path, stamp: _Stamp) -> Benchmark:
    """Read a benchmark's files; those read before are not read again unless they changed."""
    del stamp  # part of the key only
    from harness.evaluation.benchmark import benchmark_class
    from harness.evaluation.benchmarks.own_annotator import OwnAnnotator

    if kind_of(place).name == "alpaca-eval" and has_own_annotator(place):
        return OwnAnnotator.load(folder)
    return benchmark_class(kind_of(place).name).load(folder)


@lru_cache(maxsize=8)
def _digest_at(place: str, folder: Path, stamp: _Stamp) -> str:
    return _read(place, folder, stamp).digest[:DIGITS]


def version_of(package: str) -> str:
    """Return the version of a package, `not-installed` where it is absent."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return NOT_INSTALLED


def judging_settings(identity: str) -> dict[str, Json]:
    """Return what decides, besides judge and answers, which scores of a benchmark there are.

    These are the package it needs, and AlpacaEval's data of its length control. Once they are
    there, the answers are judged anew; what the judge replied before is kept and not asked again.

    Args:
        identity: the benchmark's.
    """
    name = kind_of(identity).name
    if name not in PACKAGES or has_own_annotator(identity):
        return {}
    settings: dict[str, Json] = {"package": version_of(PACKAGES[name])}
    if name == "alpaca-eval":
        settings["length_control"] = _digest_of_length_control(identity)
    return settings


def task_settings(identity: str, profile: Profile) -> dict[str, Json]:
    """Return the settings of the stage that runs the tasks, except for the policy."""
    from harness.evaluation.benchmarks.lm_eval import BATCH_SIZE

    return {
        "benchmark": identity,
        "engine": LM_EVAL_ENGINE,
        "batch_size": BATCH_SIZE,
        "dtype": profile.dtype,
    }


def scorer_of(identity: str) -> str:
    """Return who scores: the package with its version."""
    return f"lm-evaluation-harness {identity.partition('@')[2]}"


def _digest_of_length_control(identity: str) -> str | None:
    """Return the digest of the data of AlpacaEval's length control, None where they are absent."""
    from harness.evaluation.benchmarks.alpaca_package import FILE_NAME

    file = folder_of(identity) / FILE_NAME
    return sha256_of(file)[:DIGITS] if file.is_file() else None
