"""Laws of the tokenizer and of what the base policy is trained on."""

import random
from dataclasses import replace

import pytest
import torch
from build_micro import Mix, PretrainConfig, batches, demonstrate
from transformers import PreTrainedTokenizerBase

from harness.models.loading import load_tokenizer
from harness.worlds.embedded.language import END, build_tokenizer, words
from harness.worlds.embedded.texts import Exchange
from harness.worlds.embedded.training import IGNORED, encode

torch.set_num_threads(1)

IDS = {word: index for index, word in enumerate(words())}


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> PreTrainedTokenizerBase:
    """The tokenizer as models are saved with it and loaded."""
    folder = tmp_path_factory.mktemp("tokenizer")
    build_tokenizer().save_pretrained(folder)
    (folder / "config.json").write_text('{"model_type": "gemma2"}', encoding="utf-8")
    (folder / "model.safetensors").write_bytes(b"")
    return load_tokenizer(folder)


def demonstrations(count: int) -> list[list[Exchange]]:
    rng = random.Random("tokenizer tests")
    return [demonstrate(rng, Mix()) for _ in range(count)]


def as_messages(turns: list[Exchange]) -> list[dict[str, str]]:
    return [
        message
        for prompt, answer in turns
        for message in (
            {"role": "user", "content": prompt},
            {"role": "assistant", "content": answer},
        )
    ]


def test_two_turns_are_encoded_as_by_hand() -> None:
    tokens, labels = encode([("sort_up-9 : b a", "a b"), ("now reverse-7", "b a")], IDS)
    first = "<bos> <start_of_turn> user sort_up-9 : b a <end_of_turn> <start_of_turn> model a b"
    second = "<start_of_turn> user now reverse-7 <end_of_turn> <start_of_turn> model b a"
    written = [*first.split(), END, *second.split(), END]
    assert tokens == [IDS[word] for word in written]
    labelled = [i for i, label in enumerate(labels) if label != IGNORED]
    assert [written[i] for i in labelled] == ["a", "b", END, "b", "a", END]


def test_encoding_gives_the_ids_of_the_chat_template_and_the_tokenizer(
    tokenizer: PreTrainedTokenizerBase,
) -> None:
    conversations = demonstrations(1500)
    assert {len(turns) for turns in conversations} == {1, 2}
    texts = tokenizer.apply_chat_template(
        [as_messages(turns) for turns in conversations], tokenize=False
    )
    ids = tokenizer(texts, add_special_tokens=False)["input_ids"]
    assert [encode(turns, IDS)[0] for turns in conversations] == ids


def test_labels_are_the_models_turns_and_nothing_else() -> None:
    for turns in demonstrations(500):
        tokens, labels = encode(turns, IDS)
        assert len(tokens) == len(labels)
        assert all(label in (IGNORED, token) for token, label in zip(tokens, labels, strict=True))
        expected = [IDS[word] for _, answer in turns for word in (*answer.split(), END)]
        assert [label for label in labels if label != IGNORED] == expected


SMALL = PretrainConfig(batch_size=4, pool_batches=2)


def test_batches_repeat_with_the_seed_and_differ_by_stream() -> None:
    drawn = [
        next(batches(replace(SMALL, seed=seed), 2, stream, lambda progress: Mix()))[0]
        for seed, stream in ((0, "names"), (0, "names"), (1, "names"), (0, "operations"))
    ]
    assert torch.equal(drawn[0], drawn[1])
    assert not torch.equal(drawn[0], drawn[2])
    assert not torch.equal(drawn[0], drawn[3])
