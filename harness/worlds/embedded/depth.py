"""Making a trained model shallower or deeper without training it from scratch.

A shallower model keeps the first layers. A deeper one gets copies of layers, evenly spread, each
right behind the layer it copies, whose two branches (attention and feed-forward) add nothing at
first: Gemma-2 normalises a branch before adding it to the residual stream, with scale 1 + weight,
so a weight of -1 silences it. The deeper model therefore starts as the very function that the
original computes, and the copies join in as training moves their scales off zero.

Source: block expansion of LLaMA Pro (Wu et al., 2024), which zeroes output projections instead;
behind Gemma-2's normalisation that would give those projections gradients a thousand times the
others'.
"""

from __future__ import annotations

import copy
import math
from typing import Any

SILENCED = ("post_attention_layernorm.weight", "post_feedforward_layernorm.weight")
"""Parameters of a copied layer that start at -1."""

LAYERS = "model.layers."


def layer_sources(have: int, want: int) -> list[tuple[int, bool]]:
    """Return, for each layer of the model wanted, the layer it comes from and if it is an extra.

    Args:
        have: layers of the original.
        want: layers of the result.
    """
    if want <= have:
        return [(layer, False) for layer in range(want)]
    extra = want - have
    copied = [math.ceil(k * have / extra) - 1 for k in range(1, extra + 1)]
    return [
        (layer, is_copy)
        for layer in range(have)
        for is_copy in (False, *(True for source in copied if source == layer))
    ]


def with_layers(model: Any, layers: int) -> Any:
    """Return a Gemma-2 with a given number of layers; the model itself if it has that many.

    Args:
        model: a Gemma-2 with any head, on the CPU.
        layers: number of layers wanted, 1 or more.
    """
    import torch

    if layers == model.config.num_hidden_layers:
        return model
    sources = layer_sources(model.config.num_hidden_layers, layers)
    config = copy.deepcopy(model.config)
    config.num_hidden_layers = layers
    config.layer_types = [model.config.layer_types[source] for source, _ in sources]
    weights = model.state_dict()
    kept = {name: value for name, value in weights.items() if not name.startswith(LAYERS)}
    for position, (source, is_copy) in enumerate(sources):
        prefix = f"{LAYERS}{source}."
        for name, value in weights.items():
            if name.startswith(prefix):
                part = name.removeprefix(prefix)
                silent = is_copy and part in SILENCED
                started = torch.full_like(value, -1.0) if silent else value
                kept[f"{LAYERS}{position}.{part}"] = started
    resized = type(model)(config)
    resized.load_state_dict(kept)
    return resized.to(model.dtype)
