"""Laws that hold for every published reward model, and the one entry to all of them."""

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from small_checkpoints import tensors_of, write_armo, write_pair_llm, write_pairrm
from tiny_gemma import build_tiny_gemma

from harness.errors import HarnessError, UserError
from harness.models.loading import FIRST_IS_BETTER, pad
from harness.models.reader import Answered
from harness.models.reward_model import load_reward_model, score, win_probabilities

PROMPT = [{"role": "user", "content": "one two"}]
ANSWERS = ["three", "four five six", "", "seven eight " * 5, "ten?"]

Write = Callable[[Path], Path]


def write_two_turns(path: Path) -> Path:
    """Write a small sequence classifier of two turns."""
    names = {"id2label": {0: FIRST_IS_BETTER}, "label2id": {FIRST_IS_BETTER: 0}}
    return build_tiny_gemma(path, seed=2, outputs=1, **names)


POINTWISE: dict[str, Write] = {
    "classifier": partial(build_tiny_gemma, seed=1, outputs=1),
    "armo": write_armo,
}
PAIRWISE: dict[str, Write] = {
    "two turns": write_two_turns,
    "pairrm": write_pairrm,
    "pair-preference": write_pair_llm,
}
KINDS = POINTWISE | PAIRWISE


def load(kind: str, path: Path, **options: Any) -> Any:
    """Load a checkpoint of a kind for what it can read."""
    if kind in POINTWISE:
        return load_reward_model(path, **options)
    return load_reward_model(path, "two answers", **options)


def encoded(reader: Any) -> Any:
    """Return what a reader reads of the answers, or of each of them against the first."""
    if reader.averages is not None:
        return reader.encode([Answered(PROMPT, (ANSWERS[0], a)) for a in ANSWERS[1:]])
    return reader.encode([Answered(PROMPT, (a,)) for a in ANSWERS])


@pytest.fixture(scope="module")
def paths(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Return a checkpoint of each kind; not to be changed."""
    return {kind: write(tmp_path_factory.mktemp("kind")) for kind, write in KINDS.items()}


@pytest.mark.parametrize("kind", KINDS)
def test_padding_on_either_side_and_none_give_the_same_number(
    kind: str, paths: dict[str, Path]
) -> None:
    reader = load(kind, paths[kind])
    rows = [e.tokens for e in encoded(reader)]
    assert len(set(map(len, rows))) > 1, "the test needs rows of several lengths"
    with torch.inference_mode():
        alone = [float(reader.read(*pad(reader.tokenizer, [row], "right", "cpu"))) for row in rows]
        for side in ("left", "right"):
            together = reader.read(*pad(reader.tokenizer, rows, side, "cpu"))  # type: ignore[arg-type]
            np.testing.assert_allclose(together.numpy(), alone, atol=2e-5)
    assert np.ptp(alone) > 0.01, "the test needs a model that tells the answers apart"


@pytest.mark.parametrize("batch_size", [1, 2, 5])
@pytest.mark.parametrize("kind", KINDS)
def test_the_batch_changes_no_result(kind: str, batch_size: int, paths: dict[str, Path]) -> None:
    def results(**batching: Any) -> np.ndarray:
        if kind in PAIRWISE:
            return win_probabilities(load(kind, paths[kind]), [PROMPT], [ANSWERS], **batching)[0]
        rows = [Answered(PROMPT, (answer,)) for answer in ANSWERS]
        return score(load(kind, paths[kind]), rows, **batching)[0]

    whole = results(batch_size=256)
    np.testing.assert_allclose(results(batch_size=batch_size), whole, atol=2e-5)


@pytest.mark.parametrize("kind", KINDS)
def test_every_tensor_of_the_files_is_the_model_s(kind: str, paths: dict[str, Path]) -> None:
    """Names, shapes and values, against what the test wrote."""
    held = {name: tensor.float() for name, tensor in tensors_of(paths[kind]).items()}
    loaded = load(kind, paths[kind]).model.state_dict()
    assert loaded.keys() == held.keys()
    assert all(torch.equal(loaded[name], held[name]) for name in held)


def change(path: Path, edit: Callable[[dict[str, torch.Tensor]], object]) -> str:
    """Edit the tensors of a checkpoint's last file; return the name of its last tensor."""
    file = max(path.glob("*.safetensors"))
    tensors = load_file(file)
    name = max(tensors)
    edit(tensors)
    save_file(tensors, file, {"format": "pt"})
    return name


@pytest.mark.parametrize(
    ("edit", "says"),
    [
        (lambda tensors: tensors.pop(max(tensors)), r"the weights at .* lack {} \(1 in all\)"),
        (
            lambda tensors: tensors.update({"value_head.bias": torch.zeros(1)}),
            r"have, beyond the model's, value_head.bias \(1 in all\)",
        ),
        (
            lambda tensors: tensors.update({max(tensors): torch.zeros(3, 7)}),
            r"have another shape of {} \(1 in all\)",
        ),
    ],
    ids=["missing", "extra", "another shape"],
)
@pytest.mark.parametrize("kind", KINDS)
def test_a_tensor_that_is_not_the_models_is_named(
    kind: str, edit: Callable[[dict[str, torch.Tensor]], object], says: str, tmp_path: Path
) -> None:
    path = KINDS[kind](tmp_path)
    name = change(path, edit)
    with pytest.raises(UserError, match=says.format(name)):
        load(kind, path)


@pytest.mark.parametrize("kind", KINDS)
def test_the_number_format_is_the_one_asked_for(kind: str, paths: dict[str, Path]) -> None:
    whole, half = load(kind, paths[kind]), load(kind, paths[kind], dtype="bfloat16")
    found = {p.dtype for p in half.model.parameters()}
    assert torch.bfloat16 in found
    assert {p.dtype for p in whole.model.parameters()} == {torch.float32}
    ids, mask = pad(half.tokenizer, [e.tokens for e in encoded(half)], "right", "cpu")
    with torch.inference_mode():
        rough = half.read(ids, mask)
        assert rough.dtype == torch.float32
        np.testing.assert_allclose(rough.numpy(), whole.read(ids, mask).numpy(), atol=0.5)


@pytest.mark.parametrize("kind", KINDS)
def test_a_model_reads_what_its_role_asks_for(kind: str, paths: dict[str, Path]) -> None:
    if kind in POINTWISE:
        with pytest.raises(HarnessError, match=r"scores one answer.*pointwise role"):
            load_reward_model(paths[kind], "two answers")
    else:
        # A language model is a reward model in a pairwise role only.
        words = "is a LlamaForCausalLM" if kind == "pair-preference" else "compares two answers"
        with pytest.raises(HarnessError, match=words):
            load_reward_model(paths[kind])


@pytest.mark.parametrize("kind", KINDS)
def test_a_loaded_model_is_kept_until_its_files_change(kind: str, tmp_path: Path) -> None:
    path = KINDS[kind](tmp_path)
    first = load(kind, path)
    assert load(kind, path) is first
    change(path, lambda tensors: tensors[max(tensors)].add_(1))
    assert load(kind, path) is not first


@pytest.mark.parametrize(
    ("architectures", "named"),
    [(["MistralForCausalLM"], "MistralForCausalLM"), ([], "nameless model"), (None, "nameless")],
)
def test_another_architecture_is_one_clear_error(
    architectures: list[str] | None, named: str, tmp_path: Path
) -> None:
    path = write_armo(tmp_path)
    config = json.loads((path / "config.json").read_text(encoding="utf-8"))
    config["architectures"] = architectures
    (path / "config.json").write_text(json.dumps(config), encoding="utf-8")
    with pytest.raises(UserError, match=f"is a {named}.*which is not a reward model"):
        load_reward_model(path)


def test_code_beside_the_weights_is_never_run(tmp_path: Path) -> None:
    """ArmoRM's configuration names a module of its own; here it would raise if it were read."""
    path = write_armo(tmp_path)
    (path / "modeling_custom.py").write_text("raise SystemExit('run')", encoding="utf-8")
    config = json.loads((path / "config.json").read_text(encoding="utf-8"))
    assert "modeling_custom" in json.dumps(config["auto_map"])
    assert load_reward_model(path).format == "ArmoRM"


def test_pickled_weights_are_refused_with_a_way_out(tmp_path: Path) -> None:
    path = write_armo(tmp_path)
    for file in path.glob("*.safetensors*"):
        file.unlink()
    (path / "pytorch_model.bin").write_bytes(b"\x80\x04K\x01.")
    with pytest.raises(UserError, match=r"pickled \(pytorch_model.bin\).*safetensors.*convert"):
        load_reward_model(path)


@pytest.mark.parametrize(
    ("file", "says"),
    [
        ("config.json", r"config.json is no.*: download the model again"),
        ("model.safetensors.index.json", r"the weights at .* cannot be read"),
    ],
)
def test_a_missing_folder_or_a_broken_file_is_one_clear_error(
    file: str, says: str, tmp_path: Path
) -> None:
    with pytest.raises(HarnessError, match=r"no checkpoint at .*hf download NAME.*gated"):
        load_reward_model(tmp_path / "nowhere")
    (write_armo(tmp_path) / file).write_text("{", encoding="utf-8")
    with pytest.raises(UserError, match=says):
        load_reward_model(tmp_path)
