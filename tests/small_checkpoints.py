"""Small random checkpoints in the form of the published reward models.

Files are written by hand, tensor by tensor and field by field, as the published ones are described,
and not by the classes under test: what these take for the published names and settings is compared
with a second account of them.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
import trl
from safetensors.torch import load_file, save_file
from tokenizers import Regex, Tokenizer, decoders, pre_tokenizers
from tokenizers.models import BPE
from tokenizers.processors import TemplateProcessing
from tokenizers.trainers import BpeTrainer
from transformers import (
    DebertaV2Tokenizer,
    Gemma2Config,
    Gemma2ForSequenceClassification,
    PreTrainedTokenizerFast,
    Qwen3Config,
    Qwen3ForSequenceClassification,
)

TEXT = [
    "user assistant model system source candidate response turn answer better",
    "\n\n\n\n\n\n one two three four five six seven eight nine ten",
    "the quick brown fox jumps over the lazy dog; A or B, C and D",
]
LLAMA_SPECIAL = [
    "<|begin_of_text|>",
    "<|end_of_text|>",
    "<|start_header_id|>",
    "<|end_header_id|>",
    "<|eot_id|>",
    "[PAD]",
]
LLAMA_TEMPLATE = (
    "{% for message in messages %}{{ bos_token if loop.first else '' }}"
    "{{ '<|start_header_id|>' + message['role'] + '<|end_header_id|>\n\n' }}"
    "{{ message['content'] | trim }}<|eot_id|>{% endfor %}"
    "{% if add_generation_prompt %}"
    "{{ '<|start_header_id|>assistant<|end_header_id|>\n\n' }}{% endif %}"
)
GEMMA_SPECIAL = ["<pad>", "<eos>", "<bos>", "<start_of_turn>", "<end_of_turn>"]
GEMMA_TEMPLATE = (  # without BOS, as Skywork publishes it
    "{% for m in messages %}<start_of_turn>"
    "{{ 'model' if m['role'] == 'assistant' else m['role'] }}\n"
    "{{ m['content'] | trim }}<end_of_turn>\n{% endfor %}"
    "{% if add_generation_prompt %}<start_of_turn>model\n{% endif %}"
)
QWEN_SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<think>", "</think>"]
PAIRRM_MARKS = ["<|source|>", "<|candidate1|>", "<|candidate2|>", "<|candidate|>"]


def byte_tokenizer(
    special: list[str], bos: str | None, texts: Sequence[str] = TEXT, size: int = 500, **named: str
) -> PreTrainedTokenizerFast:
    """Return a byte-level tokenizer that puts a BOS itself if one is given.

    Its words are those of some texts, and it has no more tokens than `size`.
    """
    tokenizer = Tokenizer(BPE())
    words = Regex(r"[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+")
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(words, "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = BpeTrainer(
        vocab_size=size, special_tokens=special, initial_alphabet=alphabet, show_progress=False
    )
    tokenizer.train_from_iterator([*texts, *texts, *texts, *["assistant"] * 9], trainer)
    if bos is not None:
        tokenizer.post_processor = TemplateProcessing(
            single=f"{bos} $A",
            pair=f"{bos} $A {bos} $B",
            special_tokens=[(bos, special.index(bos))],
        )
        named["bos_token"] = bos
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, **named)


def llama_tokenizer(**changes: Any) -> PreTrainedTokenizerFast:
    """Return a small tokenizer with Llama-3's control tokens and template."""
    tokenizer = byte_tokenizer(
        LLAMA_SPECIAL, "<|begin_of_text|>", eos_token="<|eot_id|>", pad_token="[PAD]"
    )
    tokenizer.chat_template = LLAMA_TEMPLATE
    for name, value in changes.items():
        setattr(tokenizer, name, value)
    return tokenizer


def gemma_tokenizer() -> PreTrainedTokenizerFast:
    """Return a small tokenizer with Gemma's control tokens, and Skywork's template."""
    tokenizer = byte_tokenizer(GEMMA_SPECIAL, "<bos>", eos_token="<eos>", pad_token="<pad>")
    tokenizer.chat_template = GEMMA_TEMPLATE
    return tokenizer


def qwen_tokenizer(
    texts: Sequence[str] = TEXT, size: int = 500, template: str = "qwen3"
) -> PreTrainedTokenizerFast:
    """Return a small tokenizer with Qwen3's control tokens and a template of the installed TRL."""
    tokenizer = byte_tokenizer(
        QWEN_SPECIAL, None, texts, size, eos_token="<|im_end|>", pad_token="<|endoftext|>"
    )
    templates = Path(trl.__file__).parent / "chat_templates"
    tokenizer.chat_template = (templates / f"{template}.jinja").read_text()
    return tokenizer


def pairrm_tokenizer() -> DebertaV2Tokenizer:
    """Return a small tokenizer of DeBERTa's kind with PairRM's marks."""
    letters = "abcdefghijklmnopqrstuvwxyz0123456789.,!?'\"<>[]|*:;()-"
    pieces = [("[PAD]", 0.0), ("[CLS]", 0.0), ("[SEP]", 0.0), ("[UNK]", 0.0), ("▁", -3.0)]
    pieces += [(letter, -5.0) for letter in letters] + [
        (letter, -5.5) for letter in letters.upper()
    ][:26]
    pieces += [(f"▁{word}", -6.0) for text in TEXT for word in dict.fromkeys(text.split())]
    tokenizer = DebertaV2Tokenizer(list(dict(pieces).items()), unk_id=3)
    tokenizer.add_tokens(PAIRRM_MARKS)
    return tokenizer


def llama_config(vocab: int, **changes: Any) -> dict[str, Any]:
    """Return a small Llama-3 as its `config.json` describes it."""
    return {
        "model_type": "llama",
        "attention_bias": False,
        "attention_dropout": 0.0,
        "bos_token_id": 0,
        "eos_token_id": 1,
        "hidden_act": "silu",
        "hidden_size": 32,
        "initializer_range": 0.02,
        "intermediate_size": 48,
        "max_position_embeddings": 128,
        "num_attention_heads": 4,
        "num_hidden_layers": 2,
        "num_key_value_heads": 2,
        "rms_norm_eps": 1e-05,
        "rope_scaling": None,
        "rope_theta": 500000.0,
        "tie_word_embeddings": False,
        "torch_dtype": "float32",
        "use_cache": True,
        "vocab_size": vocab,
        **changes,
    }


def llama_shapes(config: Mapping[str, Any]) -> dict[str, tuple[int, ...]]:
    width, inner = config["hidden_size"], config["intermediate_size"]
    keys = width // config["num_attention_heads"] * config["num_key_value_heads"]
    shapes: dict[str, tuple[int, ...]] = {
        "model.embed_tokens.weight": (config["vocab_size"], width)
    }
    for i in range(config["num_hidden_layers"]):
        layer = {
            "self_attn.q_proj": (width, width),
            "self_attn.k_proj": (keys, width),
            "self_attn.v_proj": (keys, width),
            "self_attn.o_proj": (width, width),
            "mlp.gate_proj": (inner, width),
            "mlp.up_proj": (inner, width),
            "mlp.down_proj": (width, inner),
            "input_layernorm": (width,),
            "post_attention_layernorm": (width,),
        }
        shapes |= {f"model.layers.{i}.{name}.weight": shape for name, shape in layer.items()}
    return {**shapes, "model.norm.weight": (width,)}


def armo_shapes(config: Mapping[str, Any]) -> dict[str, tuple[int, ...]]:
    width, hidden, k = config["hidden_size"], config["gating_hidden_dim"], config["num_objectives"]
    return {
        "regression_layer.weight": (k, width),
        "reward_transform_matrix": (k, k),
        "gating.logit_scale": (1,),
        "gating.layers.0.weight": (hidden, width),
        "gating.layers.0.bias": (hidden,),
        "gating.layers.1.weight": (hidden, hidden),
        "gating.layers.1.bias": (hidden,),
        "gating.layers.2.weight": (hidden, hidden),
        "gating.layers.2.bias": (hidden,),
        "gating.layers.3.weight": (k, hidden),
        "gating.layers.3.bias": (k,),
    }


def pairrm_shapes(config: Mapping[str, Any]) -> dict[str, tuple[int, ...]]:
    width, inner = config["hidden_size"], config["intermediate_size"]

    def linear(name: str, out: int, into: int) -> dict[str, tuple[int, ...]]:
        return {f"{name}.weight": (out, into), f"{name}.bias": (out,)}

    def norm(name: str) -> dict[str, tuple[int, ...]]:
        return {f"{name}.weight": (width,), f"{name}.bias": (width,)}

    body: dict[str, tuple[int, ...]] = {
        "embeddings.word_embeddings.weight": (config["vocab_size"], width),
        **norm("embeddings.LayerNorm"),
        "encoder.rel_embeddings.weight": (2 * config["position_buckets"], width),
        **norm("encoder.LayerNorm"),
    }
    for i in range(config["num_hidden_layers"]):
        at = f"encoder.layer.{i}"
        for name in ("query_proj", "key_proj", "value_proj"):
            body |= linear(f"{at}.attention.self.{name}", width, width)
        body |= linear(f"{at}.attention.output.dense", width, width)
        body |= norm(f"{at}.attention.output.LayerNorm")
        body |= linear(f"{at}.intermediate.dense", inner, width)
        body |= linear(f"{at}.output.dense", width, inner)
        body |= norm(f"{at}.output.LayerNorm")
    return {
        **{f"pretrained_model.{name}": shape for name, shape in body.items()},
        **linear("head_layer.1", width, 2 * width),
        **linear("head_layer.4", config["n_tasks"], width),
    }


def random_tensors(shapes: Mapping[str, tuple[int, ...]], seed: int) -> dict[str, torch.Tensor]:
    """Return random weights, wide enough for pronounced opinions; norms are near 1."""
    generator = torch.Generator().manual_seed(seed)
    tensors = {}
    for name, shape in shapes.items():
        scale = 0.5 if len(shape) < 2 else 2.0 / shape[-1] ** 0.5
        tensors[name] = scale * torch.randn(shape, generator=generator)
        if "norm" in name.lower() and name.endswith("weight"):
            tensors[name] = 1 + 0.1 * tensors[name]
    return tensors


def write_model(path: Path, config: Mapping[str, Any], tensors: Mapping[str, torch.Tensor]) -> Path:
    """Write a configuration and two shards with their index, as the large models have."""
    path.mkdir(parents=True, exist_ok=True)
    (path / "config.json").write_text(json.dumps(config), encoding="utf-8")
    names = list(tensors)
    shards = {
        "model-00001-of-00002.safetensors": names[:5],
        "model-00002-of-00002.safetensors": names[5:],
    }
    for file, held in shards.items():
        save_file({name: tensors[name] for name in held}, path / file, {"format": "pt"})
    where = {name: file for file, held in shards.items() for name in held}
    index = {"metadata": {"total_size": 0}, "weight_map": where}
    (path / "model.safetensors.index.json").write_text(json.dumps(index), encoding="utf-8")
    return path


def tensors_of(path: Path) -> dict[str, torch.Tensor]:
    """Return all tensors of a checkpoint, as they lie in its files."""
    return {k: v for file in sorted(path.glob("*.safetensors")) for k, v in load_file(file).items()}


def write_armo(path: Path, **changes: Any) -> Path:
    """Write a small ArmoRM: body in bfloat16, heads in float32."""
    tokenizer = llama_tokenizer()
    config = llama_config(
        len(tokenizer),
        architectures=["LlamaForRewardModelWithGating"],
        auto_map={
            "AutoModelForSequenceClassification": "modeling_custom.LlamaForRewardModelWithGating"
        },
        gating_hidden_dim=16,
        gating_n_hidden=3,
        gating_temperature=10,
        id2label={"0": "LABEL_0"},
        label2id={"LABEL_0": 0},
        num_objectives=19,
        pad_token_id=LLAMA_SPECIAL.index("[PAD]"),
        **changes,
    )
    body = random_tensors(llama_shapes(config), 1)
    tensors = {name: tensor.bfloat16() for name, tensor in body.items()}
    tensors |= random_tensors(armo_shapes(config), 2)
    tokenizer.save_pretrained(path)
    return write_model(path, config, tensors)


def write_pair_llm(path: Path, **changes: Any) -> Path:
    """Write a small pair-preference model: a Llama-3 with an output for each token."""
    tokenizer = llama_tokenizer(pad_token="<|end_of_text|>")
    config = llama_config(len(tokenizer), architectures=["LlamaForCausalLM"], **changes)
    shapes = {**llama_shapes(config), "lm_head.weight": (config["vocab_size"], 32)}
    tokenizer.save_pretrained(path)
    return write_model(path, config, random_tensors(shapes, 3))


SMALL: dict[str, Any] = {
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "num_labels": 1,
    "max_position_embeddings": 128,
    "initializer_range": 0.3,
}
"""Sizes of a decoder with one number at the last token."""


def write_classifier(path: Path, **changes: Any) -> Path:
    """Write a small Skywork-Reward of the Gemma-2 kind, with its soft-capping and window."""
    tokenizer = gemma_tokenizer()
    config = Gemma2Config(
        **{
            **SMALL,
            "vocab_size": len(tokenizer),
            "attn_logit_softcapping": 50.0,
            "final_logit_softcapping": 30.0,
            "query_pre_attn_scalar": 8,
            "sliding_window": 16,
            "pad_token_id": GEMMA_SPECIAL.index("<pad>"),
            "eos_token_id": GEMMA_SPECIAL.index("<eos>"),
            "bos_token_id": GEMMA_SPECIAL.index("<bos>"),
            **changes,
        }
    )
    torch.manual_seed(5)
    Gemma2ForSequenceClassification(config).bfloat16().save_pretrained(path)
    tokenizer.save_pretrained(path)
    return path


def write_qwen_classifier(path: Path, **changes: Any) -> Path:
    """Write a small Skywork-Reward-V2 of the Qwen3 kind."""
    tokenizer = qwen_tokenizer()
    config = Qwen3Config(
        **SMALL | {"vocab_size": len(tokenizer), "pad_token_id": tokenizer.pad_token_id} | changes
    )
    torch.manual_seed(6)
    Qwen3ForSequenceClassification(config).bfloat16().save_pretrained(path)
    tokenizer.save_pretrained(path)
    return path


def write_pairrm(path: Path, **changes: Any) -> Path:
    tokenizer = pairrm_tokenizer()
    config = {
        "architectures": ["DebertaV2PairRM"],
        "model_type": "deberta-v2",
        "attention_probs_dropout_prob": 0.1,
        "drop_out": 0.05,
        "hidden_act": "gelu",
        "hidden_dropout_prob": 0.1,
        "hidden_size": 32,
        "initializer_range": 0.02,
        "intermediate_size": 48,
        "layer_norm_eps": 1e-07,
        "max_position_embeddings": 512,
        "max_relative_positions": -1,
        "n_tasks": 1,
        "norm_rel_ebd": "layer_norm",
        "num_attention_heads": 4,
        "num_hidden_layers": 2,
        "pad_token_id": 0,
        "pos_att_type": ["p2c", "c2p"],
        "position_biased_input": False,
        "position_buckets": 256,
        "relative_attention": True,
        "share_att_key": True,
        "torch_dtype": "float32",
        "type_vocab_size": 0,
        "vocab_size": len(tokenizer),
        **changes,
    }
    tokenizer.save_pretrained(path)
    return write_model(path, config, random_tensors(pairrm_shapes(config), 4))
