"""How often the code of the verdicts decides where there is nothing to find, measured and kept.

    results/<profile>/error-rates/report.json    the counts, and all that repeats them
                                  report.md      for people
                                  digests.json   sha256 of the files

Measured are simulated nulls of every declared table, and one recipe under two names from the
published scores of every table with enough seeds (`harness.report.aa`). The page of a report shows
what was measured, and never a number of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from harness import foreign
from harness.errors import HarnessError
from harness.registry.schema import Table
from harness.report.aa import one_recipe_twice, rate_of, simulated_nulls
from harness.report.publication import (
    PAGE,
    REPORT,
    SCORES,
    Extent,
    Kind,
    check_files,
    check_page,
    dumps,
    publish_folder,
    read_json,
    sha256,
)
from harness.report.publish import published_folders, read_published
from harness.report.verdicts import ALPHA, Verdict
from harness.runtime import collect_provenance

FOLDER = "error-rates"

SEEDS = (3, 5)
"""Seeds of the simulated runs."""

PROMPTS = 40
"""Prompts of the simulated benchmarks."""

ROOT = 0
"""Seed of the simulations and of the dealing."""

FEWEST_SEEDS = 4
"""Seeds that one recipe needs to be dealt to two names."""

TEXT = """# How often a verdict is reached where there is nothing to find

At most {level:.0%} of the verdicts should be. Primary claims are tested at that level each; the
others are corrected within their table and reach far fewer.

| what | seeds | verdicts | decided | share | primary claims | decided | share |
|---|---:|---:|---:|---:|---:|---:|---:|
{rows}

Simulated: all declared tables, every row with the same true mean. One recipe under two names: the
published scores, whose seeds are dealt to two names without one in common, {deals} times; the deals
of one table share its seeds and so are not independent of one another. Five seeds leave each name
two, and the share of one table alone says little. Commit: {commit}.
"""


def measure(
    tables: Mapping[str, Table],
    profile_results: Path,
    *,
    repetitions: int,
    deals: int,
    said: Callable[[str], None] = lambda _: None,
) -> dict[str, Any]:
    """Measure the error rates.

    Args:
        tables: The declared tables, which are simulated.
        profile_results: Folder of a profile's published tables.
        repetitions: How often each table is simulated.
        deals: How often the seeds of a published run are dealt.
        said: Told what is being measured.

    Returns:
        JSON data: `level`, `commit`, and under `simulated` and `one_recipe_twice` an entry for
        each setting, with all that is needed to measure it again.

    Raises:
        HarnessError: A published table is not what was published.
    """
    simulated = []
    for seeds in SEEDS:
        said(f"simulating {len(tables)} tables {repetitions} times with {seeds} seeds")
        found = simulated_nulls(
            tables.values(), repetitions, seeds=seeds, prompts=PROMPTS, root=ROOT
        )
        setting = {"tables": list(tables), "seeds": seeds, "prompts": PROMPTS}
        simulated.append(setting | {"repetitions": repetitions, "root": ROOT} | _counted(found))
    twice = []
    for folder in published_folders(profile_results.parent):
        if folder.parent != profile_results:
            continue
        published = read_published(folder)
        seeds_published: Sequence[int] = published.report["seeds"]
        if len(seeds_published) < FEWEST_SEEDS:
            continue
        said(f"dealing the {len(seeds_published)} seeds of {folder.name} {deals} times")
        found = one_recipe_twice(published.measured, seeds_published, deals, ROOT)
        setting = {"table": folder.name, "seeds": list(seeds_published), "deals": deals}
        digest = {"scores": sha256(folder / SCORES), "root": ROOT}
        twice.append(setting | digest | _counted(found))
    return {
        "level": ALPHA,
        "commit": _commit(),
        "simulated": simulated,
        "one_recipe_twice": twice,
    }


def _commit() -> str:
    provenance = collect_provenance()
    if provenance["commit"] is None:
        return "none"
    return provenance["commit"][:12] + (" (changed)" if provenance["dirty"] else "")


def _counted(verdicts: Iterable[Verdict]) -> dict[str, int]:
    known = list(verdicts)
    all_, primary = rate_of(known), rate_of(verdict for verdict in known if verdict.primary)
    return {
        "judged": all_.judged,
        "decided": all_.decided,
        "primary_judged": primary.judged,
        "primary_decided": primary.decided,
    }


def write(
    found: Mapping[str, Any], results_dir: Path, profile: str, *, allow_fewer: bool = False
) -> Path:
    """Write what was measured at a profile, in place of what was published before.

    Args:
        found: What was measured.
        results_dir: The folder of published results.
        profile: Name of the profile.
        allow_fewer: Publish it though it is not whole, or has less than what stands there.

    Returns:
        The folder that was written.

    Raises:
        Refused: It is not whole, or has less than what stands there, and that is not allowed.
        StoreError: The folder cannot be written.
    """

    def write_files(draft: Path) -> None:
        (draft / REPORT).write_text(dumps(dict(found)), encoding="utf-8")
        (draft / PAGE).write_text(as_markdown(found), encoding="utf-8")

    place = f"{profile}/{FOLDER}"
    return publish_folder(ERROR_RATES, place, results_dir, write_files, allow_fewer=allow_fewer)


def as_markdown(found: Mapping[str, Any]) -> str:
    """Return what was measured for people."""
    return TEXT.format(
        level=found["level"],
        rows="\n".join(f"| {' | '.join(row)} |" for row in lines(found)),
        deals=max((entry["deals"] for entry in found["one_recipe_twice"]), default=0),
        commit=found["commit"],
    )


def extent(found: Mapping[str, Any]) -> Extent:
    """Return how much was measured; its rows are tables, simulated or dealt."""
    simulated, twice = found["simulated"], found["one_recipe_twice"]
    rows = [
        f"{table} simulated with {entry['seeds']} seeds"
        for entry in simulated
        for table in entry["tables"]
    ]
    rows += [f"{entry['table']} dealt" for entry in twice]
    return Extent(
        rows=tuple(rows),
        seeds=(),
        counts={
            "repetitions": min((entry["repetitions"] for entry in simulated), default=0),
            "deals": min((entry["deals"] for entry in twice), default=0),
        },
        lacking=() if twice else (f"a published table with {FEWEST_SEEDS} seeds to deal",),
    )


def check(folder: Path) -> int:
    """Check what was published: its files, and the page, which follows from the counts.

    Returns:
        How many rates the page has.

    Raises:
        HarnessError: A file is missing or changed, or the page does not follow.
    """
    check_files(folder, (PAGE, REPORT), "error rates")
    found = read_json(folder / REPORT, "error rates")
    check_page(folder, lambda: as_markdown(found), "error rates")
    return len(lines(found))


def read(profile_results: Path) -> dict[str, Any] | None:
    """Return what was measured last, None where nothing was.

    Raises:
        HarnessError: The file is broken.
    """
    path = profile_results / FOLDER / REPORT
    try:
        found: dict[str, Any] = foreign.read_json(path.read_bytes())
        lines(found)
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError) as error:
        raise HarnessError(
            f"{path} is broken; measure again with `harness error-rates --publish`"
        ) from error
    return found


HEAD = (
    "what",
    "seeds",
    "verdicts",
    "decided",
    "share",
    "primary claims",
    "decided",
    "share",
)


def lines(found: Mapping[str, Any]) -> list[tuple[str, ...]]:
    """Return what was measured as rows of text under `HEAD`."""
    rows = [
        (f"simulated, {len(entry['tables'])} tables", str(entry["seeds"]), entry)
        for entry in found["simulated"]
    ]
    twice = found["one_recipe_twice"]
    if len(twice) > 1:
        counts = ("judged", "decided", "primary_judged", "primary_decided")
        all_ = {count: sum(entry[count] for entry in twice) for count in counts}
        seeds = sorted({len(entry["seeds"]) for entry in twice})
        rows.append(("one recipe under two names, all tables", ", ".join(map(str, seeds)), all_))
    rows += [
        (f"one recipe under two names, {entry['table']}", str(len(entry["seeds"])), entry)
        for entry in twice
    ]
    return [
        (
            what,
            seeds,
            *_rate(entry["judged"], entry["decided"]),
            *_rate(entry["primary_judged"], entry["primary_decided"]),
        )
        for what, seeds, entry in rows
    ]


def _rate(judged: int, decided: int) -> tuple[str, str, str]:
    share = f"{100 * decided / judged:.1f}%" if judged else "–"
    return f"{judged:,}", f"{decided:,}", share


ERROR_RATES = Kind("error rates", "simulated", extent, check)
"""How often a verdict is reached where there is nothing to find; a command measures it again."""
