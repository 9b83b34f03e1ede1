"""The benchmarks of real models as a run knows them: by their files, in the folder of benchmarks.

Arena-Hard, AlpacaEval and MT-Bench are answered and judged as stages here, through the same code
and from the same files as with `harness evaluate`. A benchmark's identity is the digest of what it
asks and tells its judge: questions, references or the baseline's answers, and the judge's prompts.
Where they are not there yet, it ends in `not-downloaded`.

Table 9's tasks have their questions inside lm-evaluation-harness; of them the package's version is
what is known.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from harness.catalogue.profile import Benchmark as Declared
from harness.errors import UserError
from harness.micro.sources import Item
from harness.project import benchmarks_dir
from harness.trainer.model_places import DIGITS, NOT_DOWNLOADED

if TYPE_CHECKING:
    from harness.evaluation.benchmark_kinds import Benchmark

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
        columns: the catalogue's column of each of its scores.
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
        return f"{LM_EVAL}@{_lm_eval_version()}"
    if name not in KINDS:
        raise UserError(
            f"no benchmark of real models is called `{name}`; call it one of "
            f"{', '.join([*KINDS, DOWNSTREAM])}"
        )
    kind = KINDS[name]
    if not folder_of(kind.name).is_dir():
        return f"{kind.name}@{NOT_DOWNLOADED}"
    benchmark = read_benchmark(kind.name)
    there, said = len(benchmark.questions), declared.items
    if there != said:
        raise UserError(
            f"{folder_of(kind.name)} has {there} questions and the profile says {said}; give the "
            f"whole benchmark, or correct `benchmarks.{name}.items`"
        )
    if declared.against != kind.against:
        raise UserError(
            f"{kind.name} compares with {kind.against or 'nobody'} and the profile says "
            f"{declared.against or 'nobody'}; correct `benchmarks.{name}.against`"
        )
    return f"{kind.name}@{_digest(kind.name)}"


def is_benchmark(identity: str) -> bool:
    """Return whether an identity is that of a real benchmark whose answers a judge rates."""
    return identity.partition("@")[0] in BY_NAME


def is_lm_eval(identity: str) -> bool:
    """Return whether an identity is that of table 9's tasks."""
    return identity.partition("@")[0] == LM_EVAL


def benchmark_of_identity(identity: str) -> Benchmark:
    """Return a benchmark, after checking that its files are those the identity means.

    Raises:
        UserError: they are not there, cannot be read, or are others.
    """
    name, _, digest = identity.partition("@")
    if digest == NOT_DOWNLOADED or not folder_of(name).is_dir():
        raise UserError(
            f"the files of {name} are not on this machine; type {fetch_line(name)}, and plan the "
            "run again"
        )
    if _digest(name) != digest:
        raise UserError(
            f"the files in {folder_of(name)} are not those that this run was planned with; put "
            "them back, or plan the run again"
        )
    return read_benchmark(name)


def questions_of(identity: str) -> list[Item]:
    """Return a benchmark's questions in its order.

    Raises:
        UserError: its files are not those the identity means.
    """
    return [
        Item(q.prompt_id, q.category, q.turns[0], q.turns[1] if len(q.turns) > 1 else None)
        for q in benchmark_of_identity(identity).questions
    ]


def folder_of(name: str) -> Path:
    """Return the folder of a benchmark's files."""
    return benchmarks_dir() / name


def fetch_line(name: str) -> str:
    """Return what to type for a benchmark whose files are not there."""
    return (
        f"`harness evaluate fetch {name}` (or put its files at {folder_of(name)}; "
        "HARNESS_BENCHMARKS names the folder of all benchmarks)"
    )


def read_benchmark(name: str) -> Benchmark:
    """Read a benchmark's files; those read before are not read again unless they changed.

    Raises:
        UserError: a file is absent or has another form.
    """
    return _read(name, folder_of(name), _stamp(folder_of(name)))


def _digest(name: str) -> str:
    return _digest_at(name, folder_of(name), _stamp(folder_of(name)))


_Stamp = tuple[tuple[str, int, int], ...]


def _stamp(folder: Path) -> _Stamp:
    """Return names, sizes and times of change of a folder's files."""
    if not folder.is_dir():
        raise UserError(f"the files of {folder.name} are gone; type {fetch_line(folder.name)}")
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return tuple((str(f), f.stat().st_size, f.stat().st_mtime_ns) for f in files)


@lru_cache(maxsize=8)
def _read(name: str, folder: Path, stamp: _Stamp) -> Benchmark:
    del stamp  # part of the key only
    from harness.evaluation.benchmark_kinds import AlpacaEval, ArenaHard, MtBench
    from harness.evaluation.benchmark_length_control import FILE_NAME, LengthControl

    if name == "arena-hard":
        return ArenaHard(folder)
    if name == "mt-bench":
        return MtBench(folder)
    data = folder / FILE_NAME
    return AlpacaEval(folder, LengthControl(data if data.is_file() else None))


@lru_cache(maxsize=8)
def _digest_at(name: str, folder: Path, stamp: _Stamp) -> str:
    return _read(name, folder, stamp).digest[:DIGITS]


def _lm_eval_version() -> str:
    from importlib import metadata

    try:
        return metadata.version("lm_eval")
    except metadata.PackageNotFoundError:
        return NOT_INSTALLED
