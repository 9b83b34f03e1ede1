"""What a node of a cluster is told, and what it refuses."""

import json
import os
from pathlib import Path
from typing import Any

import pytest
from toy_stages import FUNCTIONS

from harness.runtime import ray_engine
from harness.runtime.manifest import collect_provenance
from harness.runtime.ray_engine import NodeOrder, fault, order


@pytest.fixture
def told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> NodeOrder:
    """Return the order of a driver whose work folder is named by the current folder alone."""
    (tmp_path / "store").mkdir()
    monkeypatch.delenv("HARNESS_WORK", raising=False)
    monkeypatch.chdir(tmp_path)
    return asked_by(tmp_path / "store")


def asked_by(root: Path) -> NodeOrder:
    setup = {
        "root": str(root),
        "functions": FUNCTIONS,
        "preload": [],
        "provenance": collect_provenance(),
        "hardware": {},
    }
    return order(setup, 1, root.parent / "logs", {})  # type: ignore[arg-type]


def test_a_node_is_told_the_drivers_work_folder_in_full(told: NodeOrder, tmp_path: Path) -> None:
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
    told: NodeOrder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sentence = fault(told)
    assert sentence is not None
    assert f"cannot write to {tmp_path / '.harness'}: it must be on a disk that all" in sentence
    (tmp_path / ".harness").mkdir()
    assert fault(told) is None
    assert "is not the driver's (another): install" in str(fault({**told, "code": "another"}))
    monkeypatch.setattr(os, "access", lambda path, _: path != told["setup"]["root"])
    assert f"cannot write to {tmp_path / 'store'}: it must be" in str(fault(told))


def test_a_stage_that_needs_no_gpu_sees_none_on_a_node(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,5")
    (tmp_path / "store").mkdir()
    made: list[str] = []

    def started(setup: Any, environment: dict[str, str], logs: Path) -> None:
        made.append(environment["CUDA_VISIBLE_DEVICES"])

    monkeypatch.setattr(ray_engine, "WorkerProcess", started)
    for gpus in (0, 1):
        ray_engine._started(asked_by(tmp_path / "store"), gpus)
    assert made == ["", "4,5"]
