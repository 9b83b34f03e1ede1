"""What a host on a node is told, what it refuses, and that all hosts draw on one budget."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import ExitStack
from importlib.util import find_spec
from pathlib import Path

import pytest
import slurm_cluster
from judge_stand_in import StandIn
from toy_stages import FUNCTIONS, toy

from harness.endpoint.budget import VARIABLE
from harness.project import spending_dir
from harness.runtime import Engine, EngineOptions, Plan, Store
from harness.runtime.host import HostOrder, fault, order
from harness.runtime.manifest import collect_provenance

HERE = Path(__file__).resolve().parent
BUDGET = 0.02
PRICE = "10,30"
REPLY_USD = 0.0013
"""100 tokens of prompt and 10 of completion, as the endpoint counts them."""

MOST_USD = 0.0025
"""What a request can cost at most is less, whatever is added to its text."""


@pytest.fixture
def told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> HostOrder:
    """Return the order of a driver whose work folder is named by the current folder alone."""
    (tmp_path / "store").mkdir()
    monkeypatch.delenv("HARNESS_WORK", raising=False)
    monkeypatch.chdir(tmp_path)
    return asked_by(tmp_path / "store")


def asked_by(root: Path) -> HostOrder:
    setup = {
        "root": str(root),
        "functions": FUNCTIONS,
        "preload": [],
        "provenance": collect_provenance(),
        "hardware": {},
    }
    return order(setup, 1, root.parent / "logs")  # type: ignore[arg-type]


def test_a_host_is_told_the_drivers_work_folder_in_full(told: HostOrder, tmp_path: Path) -> None:
    assert told["environment"]["HARNESS_WORK"] == str(tmp_path / ".harness")


def test_keys_and_addresses_with_a_password_stay_with_the_driver(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "store").mkdir()
    given = {
        "HARNESS_BUDGET_USD": "1.5",
        "HARNESS_JUDGE_URL": "http://127.0.0.1:1/v1",
        "HARNESS_JUDGE_KEY": "sk-secret",
        "HARNESS_SCORER_URL": "http://me:secret@127.0.0.1:1/v1",
        "OPENAI_API_KEY": "sk-secret",
    }
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    found = asked_by(tmp_path / "store")
    assert "secret" not in json.dumps(found)
    assert found["environment"].items() >= dict(list(given.items())[:2]).items()


def test_a_node_of_another_version_or_without_the_shared_folders_says_so(
    told: HostOrder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sentence = fault(told)
    assert sentence is not None
    assert f"cannot write to {tmp_path / '.harness'}: it must be on a disk that all" in sentence
    (tmp_path / ".harness").mkdir()
    assert fault(told) is None
    assert "is not the driver's (another): install" in str(fault({**told, "code": "another"}))
    monkeypatch.setattr(os, "access", lambda path, _: path != told["setup"]["root"])
    assert f"cannot write to {tmp_path / 'store'}: it must be" in str(fault(told))


@pytest.fixture(params=["local", "ray", "slurm"])
def engine(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[EngineOptions]:
    """Return what asks for an engine that is there, with two cores."""
    name = request.param
    with ExitStack() as stack, pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", f"{HERE}:{os.environ.get('PYTHONPATH', '')}")
        if name == "ray" and find_spec("ray") is None:
            pytest.skip("the extra `ray` is not installed")
        if name == "slurm":
            if (why_not := slurm_cluster.why_not()) is not None:
                pytest.skip(why_not)
            conf = stack.enter_context(slurm_cluster.running(tmp_path / "slurm"))
            patch.setenv("SLURM_CONF", str(conf))
        yield EngineOptions(engine=name)


def test_workers_of_every_engine_draw_on_one_budget(
    engine: EngineOptions, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Four stages, two at a time, would spend 5.2 cents; together they stop before 2."""
    monkeypatch.setenv("HARNESS_WORK", str(tmp_path / "work"))
    monkeypatch.setenv("HARNESS_BUDGET_USD", str(BUDGET))
    monkeypatch.setenv("HARNESS_JUDGE_PRICE", PRICE)
    file = spending_dir() / "ledger.json"
    monkeypatch.setenv(VARIABLE, str(file))  # as the command does
    with StandIn() as server:
        monkeypatch.setenv("HARNESS_JUDGE_URL", server.url)
        store = Store(tmp_path / "work" / "store")
        made = Engine(store, FUNCTIONS, tmp_path / "work" / "logs", jobs=2, where=engine)
        outcome = made.run(Plan([toy("asks", number=number) for number in range(4)]))
        answered = server.requests
    (spent,) = json.loads(file.read_bytes()).values()
    assert spent == pytest.approx(answered * REPLY_USD)
    # The stop is no earlier than a request of each worker at its most before the budget.
    assert BUDGET - 2 * MOST_USD < spent <= BUDGET
    reasons = set(outcome.failed.values())
    assert all("Stopped before the budget of $0.02 is passed" in reason for reason in reasons)
    assert 2 <= len(outcome.failed) <= 4
