"""The worlds without their files, and where toy stages say that they come from."""

from collections.abc import Sequence

from harness.pipeline.algorithm import Planner
from harness.pipeline.runs import TableRuns
from harness.registry.profile import Profile
from harness.registry.schema import Row, Table
from harness.runtime.manifest import Provenance
from harness.worlds.embedded.world import EmbeddedWorld
from harness.worlds.lookup import world_of
from harness.worlds.real.world import HubWorld

PROVENANCE: Provenance = {
    "commit": "0123456789abcdef0123456789abcdef01234567",
    "dirty": False,
    "python": "3.11.9",
    "platform": "Linux",
    "cpu": "a processor",
    "cores": 2,
    "threads": 1,
    "versions": {"torch": "2.13.0", "trl": None},
}


class ToyWorld(EmbeddedWorld):
    """Identities that mean nothing."""

    def __init__(self, profile: Profile) -> None:
        known = world_of(profile)
        super().__init__(profile, known.prompts, known.creator)

    def policy(self) -> str:
        return "toy-1/theta0@aa"

    def reward_model(self, role: str) -> str:
        return f"toy-1/rm_{role}@bb"

    def benchmark(self, name: str) -> str:
        return f"toy-1/{name}@dd"

    def judge(self, name: str) -> str:
        return f"toy-1/{name}"


def toy_planned(
    table: Table, profile: Profile, seeds: Sequence[int], rows: Sequence[Row] | None = None
) -> TableRuns:
    """Plan a table, or some rows of it, with identities that mean nothing."""
    planner, shown = Planner(ToyWorld(profile)), tuple(table.rows if rows is None else rows)
    runs = {
        (run_id, seed): planner.run(run_id, recipe, seed, row.kind)
        for row in shown
        for run_id, recipe in table.recipes(row).items()
        for seed in seeds
    }
    return TableRuns(table, profile, tuple(seeds), shown, runs)


class NamedWorld(HubWorld):
    """Identities made of a profile's names, as on a machine where nothing is downloaded."""

    def __init__(self, profile: Profile) -> None:
        known = world_of(profile)
        super().__init__(profile, known.prompts, known.creator)

    def policy(self) -> str:
        return f"{self.profile.policy}@not-downloaded"

    def reward_model(self, role: str) -> str:
        return f"{self.profile.reward_models[role]}@not-downloaded"  # type: ignore[index]

    def benchmark(self, name: str) -> str:
        known = name.replace("_", "-")
        return f"{'lm-eval' if name == 'downstream' else known}@not-downloaded"
