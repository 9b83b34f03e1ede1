"""The identity of every stage that anything declared asks for, as it was recorded.

A fingerprint is the address of a stored result: where one changes by accident, all that was
computed is lost and all that is published can no longer be traced. Nothing but a decision may
change what `fingerprints.json` records, and then it is written again with

    python tests/pipeline/test_fingerprints.py

Judging depends on the benchmarks' own packages, so it is recorded as if none were installed.
"""

import hashlib
import json
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from harness.evaluation import benchmark
from harness.pipeline.runs import plan_figure, plan_table
from harness.project import results_dir
from harness.registry.declared import load_tables
from harness.registry.figures import load_figures
from harness.registry.profile import Profile, load_profiles, table_unsupported
from harness.report.publication import read_digests
from harness.runtime import Plan, Stage
from harness.sweep.declaration import load_sweeps
from harness.sweep.space import candidate, points, validation_runs

RECORD = Path(__file__).with_name("fingerprints.json")
SEEDS = (0, 1)
PROFILES = ("micro", "laptop", "consumer-gpu", "single-gpu", "paper")


def test_every_profile_is_recorded() -> None:
    assert set(PROFILES) == set(load_profiles())
    assert {name.partition("/")[0] for name in recorded()} == set(PROFILES)


@pytest.mark.parametrize("name", PROFILES)
def test_no_stage_has_changed_its_identity(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("HARNESS_WORLD", raising=False)
    monkeypatch.setenv("HARNESS_WORK", str(tmp_path))
    monkeypatch.setattr(benchmark, "version_of", lambda _package: benchmark.NOT_INSTALLED)
    expected = {key: it for key, it in recorded().items() if key.partition("/")[0] == name}
    assert dict(identities(load_profiles()[name])) == expected


def test_what_is_published_was_computed_by_the_stages_that_are_planned() -> None:
    """At seed 0, the stages behind each published table of `micro` are those of today's plan."""
    profile = load_profiles()["micro"]
    for table in load_tables().values():
        folder = results_dir() / "micro" / table.id
        published = read_digests(folder).stages or {}
        stages = plan_table(table, profile, [0]).runs.values()
        planned = {stage.fingerprint for run in stages for stage in Plan(run.targets)}
        own = {key: of for key, of in published.items() if key.endswith("/seed0")}
        assert own
        behind = {found for of in own.values() for found in of.values()}
        assert behind <= planned, table.id


def recorded() -> dict[str, dict[str, str]]:
    found: dict[str, dict[str, str]] = json.loads(RECORD.read_text(encoding="utf-8"))
    return found


def identities(profile: Profile) -> Iterator[tuple[str, dict[str, str]]]:
    """Yield `profile/name` of all that can run, with number and digest of its stages by kind."""
    tables = load_tables()
    for table in tables.values():
        can = {row.id for row in table.rows if not table_unsupported(table, profile, [row])}
        rows = [it.id for it in table.rows if it.id in can and it.baseline in {None, *can}]
        if rows:
            runs = plan_table(table, profile, SEEDS, rows)
            yield f"{profile.name}/{table.id}", by_kind(runs.targets)
    for figure in load_figures(tables).values():
        planned = plan_figure(figure, tables, profile, SEEDS)
        yield f"{profile.name}/{figure.id}", by_kind(planned.targets)
    if profile.name == "micro":
        for sweep in load_sweeps().values():
            stages = [
                stage
                for point in points(sweep)[:3]
                for run in validation_runs(sweep, candidate(sweep, profile, point), "trial")
                for stage in run.targets
            ]
            yield f"{profile.name}/{sweep.name}", by_kind(stages)


def by_kind(targets: Iterable[Stage]) -> dict[str, str]:
    kinds: dict[str, list[str]] = defaultdict(list)
    for stage in Plan(targets):
        kinds[stage.kind].append(stage.fingerprint)
    digests = {
        kind: hashlib.sha256("".join(sorted(found)).encode()).hexdigest()
        for kind, found in kinds.items()
    }
    return {kind: f"{len(kinds[kind])} {digests[kind][:16]}" for kind in sorted(kinds)}


if __name__ == "__main__":
    import os
    import tempfile

    with tempfile.TemporaryDirectory() as work:
        os.environ["HARNESS_WORK"] = work
        benchmark.version_of = lambda package: benchmark.NOT_INSTALLED
        found = dict(it for name in PROFILES for it in identities(load_profiles()[name]))
        RECORD.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
