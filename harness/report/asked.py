"""Which seeds were requested, by table or figure and profile, and which of them a report shows.

Every seed ever requested is recorded, along with the most recent request. Without `--seeds`, a
report shows the most complete seeds: those with the most finished runs. Running a few rows with
another seed therefore hides nothing, and unfinished seeds are listed instead of mixed in.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from pydantic import Field, StrictInt

from harness.errors import HarnessError
from harness.foreign import read_json
from harness.runtime.files import explained, write_whole
from harness.strict import Strict

if TYPE_CHECKING:
    from harness.pipeline.runs import FigureRuns, TableRuns
    from harness.registry.profile import Profile
    from harness.registry.schema import Table
    from harness.runtime import Store


class AskedSeeds(Strict):
    """The seeds requested for a table or figure at a profile."""

    seeds: Annotated[tuple[StrictInt, ...], Field(min_length=1)]
    """Seeds of the latest request."""
    earlier: tuple[StrictInt, ...] = ()
    files: dict[str, str] = Field(default_factory=dict)
    """User files that declare the table (`table`) or the profile (`profile`)."""


def remember(
    work_dir: Path,
    table: str,
    profile: str,
    seeds: Sequence[int],
    files: Mapping[str, str] | None = None,
) -> None:
    """Record the seeds requested for a table at a profile as the latest, keeping earlier ones.

    Raises:
        StoreError: The disk is full, or the folder is not writable.
    """
    try:
        before = ever_asked(work_dir, table, profile)
    except HarnessError:
        before = ()  # a corrupt record must not block a run; replace it
    earlier = tuple(seed for seed in before if seed not in seeds)
    record = AskedSeeds(seeds=tuple(seeds), earlier=earlier, files=dict(files or {}))
    with explained("keeping the seeds asked for", work_dir):
        write_whole(_path(work_dir, table, profile), f"{record.model_dump_json()}\n")


def recall(work_dir: Path, table: str, profile: str) -> tuple[int, ...] | None:
    """Return the seeds last requested for a table at a profile, or None if there were none."""
    found = _read(_path(work_dir, table, profile))
    return None if found is None else found.seeds


def ever_asked(work_dir: Path, table: str, profile: str) -> tuple[int, ...]:
    """Return every seed ever requested for a table at a profile, in ascending order."""
    found = _read(_path(work_dir, table, profile))
    return () if found is None else tuple(sorted({*found.seeds, *found.earlier}))


def _path(work_dir: Path, table: str, profile: str) -> Path:
    return work_dir / "asked" / profile / f"{table}.json"


def _read(path: Path) -> AskedSeeds | None:
    try:
        with explained("reading the seeds asked for", path.parent):
            return AskedSeeds.model_validate(read_json(path.read_bytes()))
    except FileNotFoundError:
        return None
    except ValueError as error:
        raise HarnessError(
            f"the record of the seeds last asked for, {path}, is broken: delete it, or name the "
            "seeds with `--seeds`"
        ) from error


def with_own_files(work_dir: Path) -> tuple[dict[str, Profile], dict[str, Table]]:
    """Return the declared profiles and tables, plus those from user files that have been run.

    Raises:
        HarnessError: A user file or its record cannot be read.
    """
    from harness.registry.declared import all_profiles, all_tables, named_profile, named_table

    profiles, tables = dict(all_profiles()), dict(all_tables())
    for path in sorted((work_dir / "asked").glob("*/*.json")):
        record = _read(path)
        files = {} if record is None else record.files
        try:
            if "profile" in files:
                profile = named_profile(files["profile"])
                profiles[profile.name] = profile
            if "table" in files:
                table, _ = named_table(files["table"])
                tables[table.id] = table
        except HarnessError as error:
            raise HarnessError(
                f"`{path.stem}` was run at `{path.parent.name}` from a file of your own that "
                f"cannot be read now ({error}): put it back, or delete {path} if nothing it "
                "computed is needed"
            ) from error
    return profiles, tables


@dataclass(frozen=True)
class ShownSeeds:
    """The seeds that a report shows.

    Attributes:
        seeds: Root seeds, in ascending order.
        whole: Number of finished runs of each shown seed.
        left_out: Number of finished runs of each other requested seed.
        runs: Number of runs per seed.
    """

    seeds: tuple[int, ...]
    whole: int
    left_out: Mapping[int, int]
    runs: int


def shown_seeds(
    work_dir: Path, store: Store, table: Table, profile: Profile, rows: Sequence[str] | None = None
) -> ShownSeeds | None:
    """Return the seeds that a table's report shows by default.

    `rows` are the ids of its rows, by default all that the profile can run.

    Returns:
        The most complete requested seeds, or those last requested if nothing is done; None if no
        seeds were requested or the profile can run no row.

    Raises:
        HarnessError: The seed record is corrupt.
        UserError: There is no such row.
        StoreError: The store cannot be read.
    """
    from harness.pipeline.runs import plan_table
    from harness.registry.profile import lacking_rows

    asked = ever_asked(work_dir, table.id, profile.name)
    if rows is None:
        lacking = lacking_rows(table, profile)
        rows = [row.id for row in table.rows if row.id not in lacking]
    if not asked or not rows:
        return None
    return shown_of(plan_table(table, profile, asked, rows), store, work_dir)


def shown_of(runs: TableRuns, store: Store, work_dir: Path) -> ShownSeeds:
    """Return the seeds that a table's report shows, out of those its runs have."""
    last = recall(work_dir, runs.table.id, runs.profile.name) or runs.seeds
    return most_complete(runs, store, last)


def most_complete(runs: TableRuns | FigureRuns, store: Store, last: Iterable[int]) -> ShownSeeds:
    """Return the seeds with the most finished runs, or `last` if no run is finished."""
    done = dict.fromkeys(sorted({seed for _, seed in runs.runs}), 0)
    for (_, seed), run in runs.runs.items():
        # Reports show a run's judgments, so the run counts as done once they are.
        ends = run.judged.values() or run.targets
        done[seed] += all(store.status(stage.fingerprint) == "done" for stage in ends)
    most = max(done.values(), default=0)
    seeds = [seed for seed, number in done.items() if number == most] if most else sorted(last)
    left_out = {seed: number for seed, number in done.items() if seed not in seeds}
    return ShownSeeds(tuple(seeds), most, left_out, len({run_id for run_id, _ in runs.runs}))
