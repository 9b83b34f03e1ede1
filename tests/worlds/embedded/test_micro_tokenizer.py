"""Laws of the tokenizer and of what the base policy is trained on."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
import torch
from transformers import PreTrainedTokenizerBase

from harness.models.loading import load_tokenizer, stop_token_ids
from harness.worlds.embedded.language import (
    END,
    MEANING,
    MODEL,
    OPERATIONS,
    PAD,
    START,
    UNK,
    build_tokenizer,
    parse,
    words,
    write_list,
)
from harness.worlds.embedded.pretrain import (
    FIRST_NAMES,
    IGNORED,
    PretrainConfig,
    batches,
    curriculum,
    encode,
)
from harness.worlds.embedded.reward import draw_preference
from harness.worlds.embedded.texts import (
    GENERAL,
    HARD,
    HUMAN,
    Mix,
    Turn,
    demonstrate,
    draw_prompts,
    pairwise_items,
    two_turn_items,
)

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


def demonstrations(count: int) -> list[list[Turn]]:
    rng = random.Random("tokenizer tests")
    return [demonstrate(rng, Mix()) for _ in range(count)]


def as_messages(turns: list[Turn]) -> list[dict[str, str]]:
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


def test_the_generation_prompt_ends_where_the_answer_begins(
    tokenizer: PreTrainedTokenizerBase,
) -> None:
    for turns in demonstrations(50):
        text = tokenizer.apply_chat_template(
            as_messages(turns)[:-1], tokenize=False, add_generation_prompt=True
        )
        head = tokenizer(text, add_special_tokens=False)["input_ids"]
        tokens, _ = encode(turns, IDS)
        assert tokens[: len(head)] == head
        assert head[-2:] == [IDS[START], IDS[MODEL]]
        assert len(tokens) == len(head) + len(turns[-1][1].split()) + 1


def test_labels_are_the_models_turns_and_nothing_else() -> None:
    for turns in demonstrations(500):
        tokens, labels = encode(turns, IDS)
        assert len(tokens) == len(labels)
        assert all(label in (IGNORED, token) for token, label in zip(tokens, labels, strict=True))
        expected = [IDS[word] for _, answer in turns for word in (*answer.split(), END)]
        assert [label for label in labels if label != IGNORED] == expected


def test_no_word_of_the_world_is_unknown(tokenizer: PreTrainedTokenizerBase) -> None:
    taken: set[str] = set()
    texts = draw_prompts("human", HUMAN, 0, 2000)
    for name, distribution in (("arena_hard", HARD), ("alpaca_eval", GENERAL)):
        texts += [item.turn_1 for item in pairwise_items(name, distribution, 0, 300, taken)]
    texts += [f"{item.turn_1} {item.turn_2}" for item in two_turn_items(0, 10, taken)]
    texts += [part for turns in demonstrations(5000) for turn in turns for part in turn]
    rng = random.Random(0)
    texts += [draw_preference(rng, 0.1).chosen for _ in range(200)]
    ids = tokenizer(texts, add_special_tokens=False)["input_ids"]
    used = {token for row in ids for token in row}
    assert IDS[UNK] not in used
    assert {IDS[name] for name in MEANING} < used
    assert [len(row) for row in ids] == [len(text.split()) for text in texts]


def test_ids_are_distinct_and_special_tokens_are_where_the_model_expects_them(
    tokenizer: PreTrainedTokenizerBase,
) -> None:
    assert len(IDS) == len(words()) == len(tokenizer)
    assert (tokenizer.pad_token_id, tokenizer.bos_token_id) == (IDS[PAD], 1) == (0, 1)
    assert tokenizer.eos_token_id == IDS[END] == 4
    assert stop_token_ids(tokenizer) == [4]
    assert tokenizer.convert_ids_to_tokens(list(range(len(IDS)))) == words()


@pytest.mark.parametrize(
    ("progress", "deepest"),
    [(0.0, 1), (0.199, 1), (0.2, 2), (0.4, 3), (0.599, 3), (0.6, 4), (1, 4)],
)
def test_tasks_get_deeper_as_the_first_course_goes_on(progress: float, deepest: int) -> None:
    """One operation in the first fifth, two in the second, three in the third, then four."""
    mix, full = curriculum(progress), Mix()
    assert mix.depths == full.depths[:deepest]
    for share in ("follow_up", "revision", "downstream"):
        assert getattr(mix, share) == getattr(full, share)


def test_the_first_course_has_one_name_of_each_operation_and_no_mistakes() -> None:
    """The full mix has all names and the demonstrator as it is."""
    assert tuple(f"{operation.id}-1" for operation in OPERATIONS) == FIRST_NAMES
    mix, rng = curriculum(1.0), random.Random(0)
    assert (mix.names, mix.lift) == (FIRST_NAMES, 1.0)
    assert (set(Mix().names), Mix().lift) == (set(MEANING), 0.0)
    for _ in range(1000):
        prompt, answer = demonstrate(rng, mix)[0]
        if (task := parse(prompt)) is not None:
            assert answer == write_list(task.answer())
            assert set(task.names) <= set(FIRST_NAMES)


SMALL = PretrainConfig(batch_size=4, pool_batches=2)


def test_batches_are_padded_rows_of_one_conversation_each() -> None:
    """Five steps in pools of two need three pools, six batches; the last one is not used."""
    made = list(batches(SMALL, 5, "names", lambda progress: Mix()))
    assert len(made) == 6
    for tokens, mask, labels in made:
        assert tokens.shape == mask.shape == labels.shape
        assert tokens.shape[0] == 4
        lengths = mask.sum(1)
        assert int(lengths.max()) == tokens.shape[1]
        assert bool(((tokens != IDS[PAD]) == mask.bool()).all())
        assert bool((labels[mask == 0] == IGNORED).all())
        assert bool((labels[labels != IGNORED] == tokens[labels != IGNORED]).all())
        assert bool((tokens[:, 0] == 1).all())


def test_batches_repeat_with_the_seed_and_differ_by_stream() -> None:
    drawn = [
        next(batches(replace(SMALL, seed=seed), 2, stream, lambda progress: Mix()))[0]
        for seed, stream in ((0, "names"), (0, "names"), (1, "names"), (0, "operations"))
    ]
    assert torch.equal(drawn[0], drawn[1])
    assert not torch.equal(drawn[0], drawn[2])
    assert not torch.equal(drawn[0], drawn[3])
