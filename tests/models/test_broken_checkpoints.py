"""Checkpoints that lack something are refused with what lacks, and never stand for another."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from safetensors.torch import load_file, save_file

from harness.errors import UserError
from harness.models.loading import load_model, load_tokenizer, tokenize


@pytest.fixture
def copied(policy_path: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(policy_path, tmp_path / "copied"))


def test_a_tokenizer_is_never_made_up(copied: Path) -> None:
    """Made of the configuration alone, it would be one of Gemma with nothing in its vocabulary."""
    for file in copied.glob("tokenizer*"):
        file.unlink()
    with pytest.raises(UserError, match=r"there is no tokenizer at .*complete the download"):
        load_tokenizer(copied)


def test_without_a_chat_template_nobody_is_asked(copied: Path) -> None:
    (copied / "chat_template.jinja").unlink(missing_ok=True)
    config = copied / "tokenizer_config.json"
    kept = json.loads(config.read_text(encoding="utf-8"))
    kept.pop("chat_template", None)
    config.write_text(json.dumps(kept), encoding="utf-8")
    tokenizer = load_tokenizer(copied)
    user = [{"role": "user", "content": "a b"}]
    with pytest.raises(UserError, match=f"at {copied} has no chat template"):
        tokenize(tokenizer, [user], add_generation_prompt=True)


def test_weights_that_were_cut_off_are_named(copied: Path) -> None:
    weights = copied / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:100])
    with pytest.raises(UserError, match=r"the weights at .* cannot be read"):
        load_model(copied)


def test_weights_that_lack_a_tensor_are_not_filled_up_at_random(copied: Path) -> None:
    weights = load_file(copied / "model.safetensors")
    name = next(name for name in weights if "q_proj" in name)
    del weights[name]
    save_file(weights, copied / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(UserError, match=f"lack {name}"):
        load_model(copied)
