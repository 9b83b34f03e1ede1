"""A Llama written out, one unpadded sequence at a time, in double precision; what it is told."""

import json
from collections.abc import Sequence
from pathlib import Path

import torch
from small_checkpoints import tensors_of

from harness.models.reader import Answered

ASSISTANT = "<|start_header_id|>assistant<|end_header_id|>\n\n"


def talk(answer: str, prompt: str = "one two") -> Answered:
    return Answered([{"role": "user", "content": prompt}], (answer,))


def told(prompt: str) -> str:
    """Return a prompt as Llama-3's template writes it, up to the answer."""
    return f"<|start_header_id|>user<|end_header_id|>\n\n{prompt}<|eot_id|>{ASSISTANT}"


def weights_of(path: Path) -> dict[str, torch.Tensor]:
    """Return the tensors of a checkpoint, in float64."""
    return {name: tensor.double() for name, tensor in tensors_of(path).items()}


def llama_outputs(path: Path, ids: Sequence[int]) -> torch.Tensor:
    """Return the T x H outputs after the last norm, in float64."""
    weights = weights_of(path)
    config = json.loads((path / "config.json").read_text(encoding="utf-8"))
    heads, shared = config["num_attention_heads"], config["num_key_value_heads"]
    size = config["hidden_size"] // heads
    length = len(ids)

    def normed(x: torch.Tensor, name: str) -> torch.Tensor:
        mean_square = (x * x).mean(dim=-1, keepdim=True)
        return x / torch.sqrt(mean_square + config["rms_norm_eps"]) * weights[name]

    def rotated(x: torch.Tensor) -> torch.Tensor:
        """Turn each pair (i, i + size / 2) of a head by position times frequency i."""
        frequency = config["rope_theta"] ** (-2 * torch.arange(size // 2).double() / size)
        angle = torch.outer(torch.arange(length).double(), frequency)
        a, b = x[..., : size // 2], x[..., size // 2 :]
        return torch.cat(
            [a * angle.cos() - b * angle.sin(), b * angle.cos() + a * angle.sin()], dim=-1
        )

    def split(x: torch.Tensor, n: int) -> torch.Tensor:
        return x.view(length, n, size).transpose(0, 1)

    x = weights["model.embed_tokens.weight"][torch.tensor(ids)]
    for i in range(config["num_hidden_layers"]):
        at = f"model.layers.{i}"
        given = normed(x, f"{at}.input_layernorm.weight")
        q, k, v = (given @ weights[f"{at}.self_attn.{p}_proj.weight"].T for p in "qkv")
        queries, keys, values = (
            rotated(split(q, heads)),
            rotated(split(k, shared)),
            split(v, shared),
        )
        keys, values = (y.repeat_interleave(heads // shared, dim=0) for y in (keys, values))
        scores = queries @ keys.transpose(1, 2) / size**0.5
        later = torch.ones(length, length).triu(1).bool()
        mixed = scores.masked_fill(later, -torch.inf).softmax(dim=-1) @ values
        joined = mixed.transpose(0, 1).reshape(length, -1)
        x = x + joined @ weights[f"{at}.self_attn.o_proj.weight"].T
        given = normed(x, f"{at}.post_attention_layernorm.weight")
        gate = given @ weights[f"{at}.mlp.gate_proj.weight"].T
        up = given @ weights[f"{at}.mlp.up_proj.weight"].T
        x = x + (gate * torch.sigmoid(gate) * up) @ weights[f"{at}.mlp.down_proj.weight"].T
    return normed(x, "model.norm.weight")
