"""The tool that builds the embedded world: what it says at the end."""

from pathlib import Path
from types import SimpleNamespace

import build_micro
import pytest


def test_a_rebuilt_world_is_compared_with_the_one_in_use(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    asset, other = {"sha256": "1"}, {"sha256": "2"}
    card = SimpleNamespace(version="w", assets={"a": asset, "b": asset})
    monkeypatch.setattr("build_micro.build", lambda folder, seed: card)
    for held, differing in (({"a": asset, "b": other}, "b"), (card.assets, "no file")):
        known = SimpleNamespace(assets=held)
        monkeypatch.setattr("build_micro.files.card", lambda known=known: known)
        build_micro.main(["build", "--output", str(tmp_path / "world")])
        assert f"Not as in the world in use: {differing}.\n" in capsys.readouterr().out
