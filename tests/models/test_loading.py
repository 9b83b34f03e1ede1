"""Tokenizers, template arguments and stop tokens, on random models of the profiles' architectures.

Qwen3 thinks unless its template is told not to; SmolLM2 is a Llama with ChatML. Qwen3's template
is the one that lies in the installed TRL.
"""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from small_checkpoints import qwen_tokenizer
from transformers import LlamaConfig, LlamaForCausalLM, Qwen3Config, Qwen3ForCausalLM

from harness.errors import UserError
from harness.models.loading import (
    Conversation,
    load_tokenizer,
    stop_token_ids,
    tokenize,
    with_template_arguments,
)
from harness.models.policy import generate, load_policy
from harness.worlds.real.models import identity_of, resolve, with_arguments

TALK: Conversation = [{"role": "user", "content": "Why?"}]
CLOSED = "<think>\n\n</think>\n\n"
CHATML = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n"
    "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
SIZES: dict[str, Any] = {
    "hidden_size": 32, "intermediate_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2,
    "num_key_value_heads": 1, "max_position_embeddings": 256, "tie_word_embeddings": True,
}  # fmt: skip


def checkpoint(folder: Path, name: str) -> Path:
    """Save a random model with the tokens that end a turn where its publishers have them."""
    tokenizer = qwen_tokenizer()
    end, text = (tokenizer.convert_tokens_to_ids(t) for t in ("<|im_end|>", "<|endoftext|>"))
    torch.manual_seed(1)
    if name == "Qwen3":
        model = Qwen3ForCausalLM(Qwen3Config(vocab_size=len(tokenizer), head_dim=16, **SIZES))
        stops: Any = [end, text]
    else:
        tokenizer.chat_template = CHATML
        model = LlamaForCausalLM(LlamaConfig(vocab_size=len(tokenizer), **SIZES))
        stops = end
    model.generation_config.eos_token_id = stops
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def qwen(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return checkpoint(tmp_path_factory.mktemp("qwen"), "Qwen3")


@pytest.fixture(scope="module")
def quiet(qwen: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return with_template_arguments(
        qwen, {"enable_thinking": False}, tmp_path_factory.mktemp("made") / "qwen"
    )


def rendered(folder: Path, talk: Conversation = TALK, **how: bool) -> str:
    tokenizer = load_tokenizer(folder)
    [ids] = tokenize(tokenizer, [talk], **{"add_generation_prompt": True, **how})
    return str(tokenizer.decode(ids))


def test_thinking_is_off_for_whoever_renders(qwen: Path, quiet: Path) -> None:
    """The published way, an argument with each call, comes to the same text."""
    asked = load_tokenizer(qwen).apply_chat_template(
        [dict(message) for message in TALK],
        add_generation_prompt=True, enable_thinking=False, tokenize=False,
    )  # fmt: skip
    assert rendered(quiet) == asked
    assert asked.endswith(CLOSED)
    assert not rendered(qwen).endswith(CLOSED)


def test_what_is_generated_after_is_what_is_trained_on(quiet: Path) -> None:
    """The prompt with its header is the beginning of the conversation with its answer."""
    answered = [*TALK, {"role": "assistant", "content": "So."}]
    whole = rendered(quiet, answered, add_generation_prompt=False)
    assert whole == f"{rendered(quiet)}So.<|im_end|>\n"


def test_a_checkpoint_that_a_training_leaves_keeps_them(quiet: Path, tmp_path: Path) -> None:
    load_tokenizer(quiet).save_pretrained(tmp_path)
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "model.safetensors").touch()
    assert rendered(tmp_path) == rendered(quiet)


def test_the_weights_are_links_and_a_second_call_finds_them(qwen: Path, quiet: Path) -> None:
    assert (quiet / "model.safetensors").resolve() == (qwen / "model.safetensors").resolve()
    assert not (quiet / "chat_template.jinja").is_symlink()
    assert with_template_arguments(qwen, {"enable_thinking": False}, quiet) == quiet
    assert {path.name for path in quiet.parent.iterdir()} == {".locks", "qwen"}


def test_models_may_move(qwen: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HARNESS_WORK", str(tmp_path / "work"))
    for place in ("here", "there"):
        if place == "here":
            shutil.copytree(qwen, tmp_path / "here" / "me" / "own")
        else:
            (tmp_path / "here").rename(tmp_path / "there")
        monkeypatch.setenv("HARNESS_MODELS", str(tmp_path / place))
        identity = with_arguments(identity_of("me/own"), {"enable_thinking": False})
        assert rendered(resolve(identity)).endswith(CLOSED)


@pytest.mark.parametrize("value", [True, 3, 0.5, 'a "word" in {{ braces }}'])
def test_an_argument_may_be_any_simple_value(value: Any, tmp_path: Path) -> None:
    folder = checkpoint(tmp_path / "model", "SmolLM2")
    (folder / "chat_template.jinja").write_text("{{ own }}")
    made = with_template_arguments(folder, {"own": value}, tmp_path / "made")
    assert rendered(made) == str(value)


@pytest.mark.parametrize(
    ("name", "stops"), [("Qwen3", ["<|endoftext|>", "<|im_end|>"]), ("SmolLM2", ["<|im_end|>"])]
)
def test_an_answer_ends_where_the_generation_config_says(
    name: str, stops: list[str], tmp_path: Path
) -> None:
    """Of a random model's answers some reach a stop token before they are as long as allowed."""
    folder = checkpoint(tmp_path, name)
    policy = load_policy(folder)
    ids = stop_token_ids(policy.tokenizer)
    assert policy.tokenizer.convert_ids_to_tokens(ids) == stops
    [answers] = generate(
        policy, [TALK], n=32, temperature=1.0, top_p=1.0, max_new_tokens=64, batch_size=32, seed=1
    )
    assert any(answer.n_tokens < 64 for answer in answers)
    assert not any("<|" in answer.text for answer in answers)


def test_a_checkpoint_without_one_ends_with_its_tokenizers_tokens(tmp_path: Path) -> None:
    folder = checkpoint(tmp_path, "SmolLM2")
    (folder / "generation_config.json").write_text(json.dumps({"temperature": 0.2}))
    tokenizer = load_tokenizer(folder)
    assert stop_token_ids(tokenizer) == [tokenizer.eos_token_id]
    (folder / "generation_config.json").unlink()
    assert stop_token_ids(load_tokenizer(folder)) == [tokenizer.eos_token_id]


@pytest.fixture
def copied(policy_path: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(policy_path, tmp_path / "copied"))


def test_a_tokenizer_is_never_made_up(copied: Path) -> None:
    """Made of the configuration alone, it would be one of Gemma with nothing in its vocabulary."""
    for file in copied.glob("tokenizer*"):
        file.unlink()
    with pytest.raises(UserError, match=r"there is no tokenizer at .*complete the download"):
        load_tokenizer(copied)


@pytest.mark.parametrize("text", ['{"version": "1.0", "trunc', "", "[]"])
def test_a_damaged_tokenizer_is_named(copied: Path, text: str) -> None:
    (copied / "tokenizer.json").write_text(text, encoding="utf-8")
    with pytest.raises(UserError, match=f"the tokenizer at {copied} cannot be loaded"):
        load_tokenizer(copied)


@pytest.mark.parametrize("text", ['{"eos', "[]"])
def test_a_damaged_generation_config_is_named(copied: Path, text: str) -> None:
    (copied / "generation_config.json").write_text(text, encoding="utf-8")
    with pytest.raises(UserError, match=r"generation_config\.json cannot be read"):
        stop_token_ids(load_tokenizer(copied))


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
