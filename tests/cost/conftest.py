"""A planner of the paper's profile whose assets lie nowhere, and the parts of the cost model."""

from __future__ import annotations

import pytest

from harness.cost.assumptions import Gpus, priced_gpus
from harness.cost.work import Costing
from harness.pipeline.algorithm import Planner
from harness.registry.profile import Profile
from harness.worlds.real.world import World


class NamedWorld(World):
    """Identities made of a profile's names, as on a machine where nothing is downloaded."""

    def policy(self) -> str:
        return f"{self.profile.policy}@not-downloaded"

    def reward_model(self, role: str) -> str:
        return f"{self.profile.reward_models[role]}@not-downloaded"  # type: ignore[index]

    def benchmark(self, name: str) -> str:
        known = name.replace("_", "-")
        return f"{'lm-eval' if name == 'downstream' else known}@not-downloaded"


@pytest.fixture(autouse=True)
def _list_prices(monkeypatch: pytest.MonkeyPatch) -> None:
    for role in ("CREATOR", "SCORER", "JUDGE"):
        monkeypatch.delenv(f"HARNESS_{role}_PRICE", raising=False)


@pytest.fixture
def planner(paper: Profile) -> Planner:
    return Planner(NamedWorld(paper))


@pytest.fixture
def h100s(paper: Profile) -> Gpus:
    """Eight H100."""
    found = priced_gpus(paper)
    assert found is not None
    return found


@pytest.fixture
def costing(paper: Profile) -> Costing:
    return Costing(paper)
