"""`doctor` says what a profile lacks here, and never shows a key."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import harness.cli.main


def test_doctor_says_what_each_profile_needs(says: Callable[..., Any]) -> None:
    found = says("doctor", "doctor")
    profiles = {profile["profile"]: profile for profile in found["profiles"]}
    assert profiles["micro"]["ready"]
    assert "table4" in profiles["micro"]["tables"]
    assert not profiles["paper"]["ready"]
    assert profiles["paper"]["tables"] == []


def test_keys_and_passwords_are_never_shown(
    call: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-very-secret")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://me:very-secret@host:5000")
    for arguments in (["doctor"], ["doctor", "--json"]):
        result = call(*arguments)
        assert "very-secret" not in result.output
        assert "host:5000" in result.stdout
    assert json.loads(call("doctor", "--json").stdout)["machine"]["keys"]["OPENAI_API_KEY"]


def test_a_damaged_world_is_found_and_exit_code_1(
    says: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    from world_of_names import write_world

    folder = write_world(tmp_path / "damaged")
    (folder / "theta0" / "config.json").write_text("{}")
    monkeypatch.setenv("HARNESS_WORLD", str(folder))
    found = says("doctor", "doctor", code=1)
    assert "theta0" in found["machine"]["world"]["problem"]


@pytest.mark.parametrize(
    "command",
    ["list", "show", "validate", "plan", "run", "report", "why", "sync", "store", "ui", "doctor",
     "export", "micro build"],
)  # fmt: skip
def test_every_help_has_an_example(call: Callable[..., Any], command: str) -> None:
    result = call(*command.split(), "--help")
    assert result.exit_code == 0
    assert f"harness {command}" in result.stdout.partition("Example: ")[2]


def test_all_verbs_are_listed(call: Callable[..., Any]) -> None:
    text = call("--help").stdout
    for verb in ("list", "show", "validate", "plan", "run", "report", "why", "sync", "store",
                 "ui", "doctor", "export", "micro"):  # fmt: skip
        assert f"\n  {verb} " in text
    assert harness.cli.main.app.info.name == "harness"


def test_a_rebuilt_world_is_compared_with_the_one_in_use(
    call: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    from world_of_names import write_world

    from harness.worlds.embedded import files

    def build(output: Path, seed: int, on_event: Callable[[str], None]) -> files.Card:
        on_event("prompts and benchmarks")
        write_world(output)
        (output / "prompts.parquet").write_text(f"other prompts {seed}")
        return files.write_card(output, {})

    monkeypatch.setattr("harness.worlds.embedded.build.build", build)
    result = call("micro", "build", "--output", str(tmp_path / "new"))
    assert result.exit_code == 0, result.output
    assert "prompts and benchmarks\n" in result.stdout
    assert "prompts differ from the world in use" in result.stdout
