"""Laws of reward models that are a decoder with one number at the last token."""

from pathlib import Path

import numpy as np
import pytest
import torch
from llama_by_hand import llama_outputs, talk, told, weights_of
from small_checkpoints import (
    gemma_tokenizer,
    llama_config,
    llama_shapes,
    llama_tokenizer,
    random_tensors,
    write_classifier,
    write_model,
)
from tiny_gemma import build_tiny_gemma
from transformers import (
    DebertaV2Config,
    DebertaV2ForSequenceClassification,
    Gemma2ForSequenceClassification,
)

from harness.errors import UserError
from harness.models.reward_model import load_reward_model, score

ANSWERS = ["three", "four five six", "", "seven eight " * 9, "<pad>"]


def write_llama(path: Path) -> Path:
    """Write a small Skywork-Reward of the Llama kind, tensor by tensor."""
    tokenizer = llama_tokenizer(pad_token=None)
    config = llama_config(
        len(tokenizer), architectures=["LlamaForSequenceClassification"], pad_token_id=None,
        id2label={"0": "LABEL_0"}, label2id={"LABEL_0": 0},
    )  # fmt: skip
    shapes = {**llama_shapes(config), "score.weight": (1, 32)}
    tokenizer.save_pretrained(path)
    return write_model(path, config, random_tensors(shapes, 6))


def test_a_gemma_s_reward_is_the_head_at_the_last_token(tmp_path: Path) -> None:
    """Against transformers' own class, each conversation unpadded and on its own, in float32."""
    path = write_classifier(tmp_path)
    model = Gemma2ForSequenceClassification.from_pretrained(
        path, dtype=torch.float32, attn_implementation="eager"
    ).eval()
    tokenizer = gemma_tokenizer()
    expected = []
    for answer in ["three", "four five six", "", ("seven eight " * 9).strip()]:
        text = (
            f"<bos><start_of_turn>user\none two<end_of_turn>\n"
            f"<start_of_turn>model\n{answer}<end_of_turn>\n"
        )
        ids = torch.tensor([tokenizer(text, add_special_tokens=False)["input_ids"]])
        with torch.inference_mode():
            expected.append(float(model.score(model.model(ids).last_hidden_state[0, -1])))
    reader = load_reward_model(path)
    actual, _ = score(reader, [talk(answer) for answer in ANSWERS[:4]], batch_size=8)
    np.testing.assert_allclose(actual, expected, atol=1e-5)
    assert np.ptp(actual) > 0.1, "the test needs a model that tells the answers apart"
    assert reader.model.config._attn_implementation == "eager", "it has no other that soft-caps"


def test_a_llama_s_reward_is_the_head_at_the_last_token(tmp_path: Path) -> None:
    """Against a Llama written out; its tokenizer has no token for padding and needs none."""
    path = write_llama(tmp_path)
    tokenizer, head = llama_tokenizer(), weights_of(path)["score.weight"][0]
    expected = []
    for answer in ANSWERS[:3]:
        text = f"<|begin_of_text|>{told('one two')}{answer}<|eot_id|>"
        outputs = llama_outputs(path, tokenizer(text, add_special_tokens=False).input_ids)
        expected.append(float(outputs[-1] @ head))
    talks = [talk(answer) for answer in ANSWERS[:3]]
    actual, _ = score(load_reward_model(path), talks, batch_size=8)
    np.testing.assert_allclose(actual, expected, rtol=1e-4, atol=1e-5)
    assert np.ptp(actual) > 0.1, "the test needs a model that tells the answers apart"


def test_an_encoder_is_refused(tmp_path: Path) -> None:
    """Its number is not at the last token, and where a text ends in it is not this reader's."""
    tokenizer = gemma_tokenizer()
    config = DebertaV2Config(
        vocab_size=len(tokenizer), hidden_size=32, num_hidden_layers=1, num_attention_heads=4,
        intermediate_size=48, num_labels=1,
    )  # fmt: skip
    DebertaV2ForSequenceClassification(config).save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    with pytest.raises(UserError, match="SequenceClassification, which is not a decoder"):
        load_reward_model(tmp_path)


def test_several_outputs_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="has 2 outputs: one is needed"):
        load_reward_model(write_classifier(tmp_path, num_labels=2))


TALKS = [talk(answer) for answer in ("a", "b c d e f g h", "c d", "", "d e f g h i j", "a", "c d")]


def test_equal_conversations_have_exactly_equal_rewards(tmp_path: Path) -> None:
    reader = load_reward_model(build_tiny_gemma(tmp_path, seed=1, outputs=1))
    for batch_size in (1, 2, 256):
        rewards, _ = score(reader, TALKS, batch_size=batch_size)
        assert rewards[0] == rewards[5]
        assert rewards[2] == rewards[6]
