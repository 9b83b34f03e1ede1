"""A planner of the paper's profile whose assets lie nowhere, and the parts of the cost model."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

import pytest
from toy_identities import NamedWorld

from harness.cost.assumptions import priced_gpus
from harness.cost.price import PlanPrice
from harness.cost.pricing import price
from harness.cost.work import Costing
from harness.pipeline.algorithm import Planner
from harness.registry.profile import Profile
from harness.runtime.stage import Stage


@pytest.fixture(autouse=True)
def _list_prices(monkeypatch: pytest.MonkeyPatch) -> None:
    for role in ("CREATOR", "SCORER", "JUDGE"):
        monkeypatch.delenv(f"HARNESS_{role}_PRICE", raising=False)


@pytest.fixture
def planner(paper: Profile) -> Planner:
    return Planner(NamedWorld(paper))


@pytest.fixture
def priced(paper: Profile) -> Callable[..., PlanPrice]:
    """Return a function that prices stages at the paper's profile, on eight H100."""

    def of(stages: Iterable[Stage], done: Mapping[str, float | None] | None = None) -> PlanPrice:
        return price(stages, paper, priced_gpus(paper), done)

    return of


@pytest.fixture
def costing(paper: Profile) -> Costing:
    return Costing(paper)
