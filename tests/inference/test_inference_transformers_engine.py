"""Laws of the transformers engine."""

import shutil
from functools import partial
from pathlib import Path
from typing import Any

import asked
import pytest
import torch
from asked import CONVERSATIONS, TEXTS
from tiny_gemma import build_tiny_gemma
from transformers import AutoModelForCausalLM, GPT2Config, GPT2LMHeadModel

from harness.errors import HarnessError, UserError
from harness.inference import transformers_engine
from harness.inference.request import Renderer
from harness.inference.solver import Solver, started
from harness.models.loading import from_folder, load_tokenizer, text_of
from harness.models.policy import Completion, decode
from harness.serving.engines import identity

SAMPLING: Any = asked.SAMPLING | {"temperature": 1.0, "top_p": 0.95}


def solver(policy: Path, keep: Path, batch_size: int = 6) -> Solver:
    keep.mkdir(exist_ok=True)
    how: Any = {"identity": identity("transformers"), "dtype": "float32", "batch_size": batch_size}
    return Solver(policy, partial(started, folder=policy, log=keep / "log", **how), keep)


def answers(policy: Path, keep: Path, batch_size: int = 6, **other: Any) -> Any:
    with solver(policy, keep, batch_size) as solving:
        return solving.generate(CONVERSATIONS, **{**SAMPLING, **other})


def test_greedy_answers_are_those_of_transformers_generate(
    policy_path: Path, tmp_path: Path
) -> None:
    [[answer], *_] = answers(policy_path, tmp_path / "a", n=1, temperature=0.0)
    model, renderer = from_folder(AutoModelForCausalLM, policy_path), Renderer(policy_path)
    [first, *_] = renderer.requests(CONVERSATIONS, n=1, seed=0, max_new_tokens=12)
    output = model.generate(
        torch.tensor([first.tokens]), max_new_tokens=12, do_sample=False, eos_token_id=[1, 5]
    )[0, len(first.tokens) :].tolist()
    tokens = [token for token in output if token not in (1, 5)]
    assert answer == Completion(text_of(renderer.tokenizer, tokens), len(tokens))


def test_no_batching_changes_an_answer_and_a_batch_that_does_not_fit_is_halved(
    policy_path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Memory for five answers: 24 are tried, then 12, 6 and 3, and from then on never above 3."""
    expected = answers(policy_path, tmp_path / "a", 256)
    assert len({sample.text for own in expected for sample in own}) > len(TEXTS)
    for size in (1, 7):
        assert answers(policy_path, tmp_path / str(size), size) == expected
    tried = limited_memory(monkeypatch, 5)
    assert answers(policy_path, tmp_path / "b", 256) == expected
    assert tried[:4] == [24, 12, 6, 3]
    assert max(tried[3:]) <= 3


def test_one_prompts_answers_are_divided_where_they_do_not_fit_down_to_a_single_one(
    policy_path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = answers(policy_path, tmp_path / "a", 3)
    with monkeypatch.context() as small:
        tried = limited_memory(small, 1)
        assert answers(policy_path, tmp_path / "b", 3) == expected
        assert tried[:2] == [3, 1]
    limited_memory(monkeypatch, 0)
    with pytest.raises(HarnessError, match="a single answer to a prompt of 7 tokens does not fit"):
        answers(policy_path, tmp_path / "c")


def test_a_run_that_was_stopped_goes_on_to_the_same_answers(
    policy_path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Stopped in its third batch of two prompts, with half of its last line on the disk."""
    undisturbed = answers(policy_path, tmp_path / "a")
    whole = decode
    calls: list[int] = []
    stopping = True

    def stops(*arguments: Any, **keywords: Any) -> Any:
        calls.append(len(arguments[1]))
        if stopping and len(calls) == 3:
            raise KeyboardInterrupt
        return whole(*arguments, **keywords)

    monkeypatch.setattr(transformers_engine, "decode", stops)
    with pytest.raises(KeyboardInterrupt):
        answers(policy_path, tmp_path / "b")
    (file,) = (tmp_path / "b").glob("*.jsonl")
    assert len(file.read_bytes().splitlines()) == 4
    file.write_bytes(file.read_bytes()[:-20])
    del calls[:]
    stopping = False
    assert answers(policy_path, tmp_path / "b") == undisturbed
    assert calls == [2, 2, 2], "the batch that lacks a prompt is answered whole"


def test_a_prompt_longer_than_the_context_is_left_out_and_counted(
    policy_path: Path, tmp_path: Path
) -> None:
    """The model reads 128 tokens; six more than the words go to the turns and the BOS."""
    long = [{"role": "user", "content": " ".join(["a"] * 122)}]
    told: list[tuple[int, int]] = []

    def on_progress(done: int, of: int) -> None:
        told.append((done, of))

    with solver(policy_path, tmp_path / "a") as solving:
        none, *others = solving.generate(
            [long, *CONVERSATIONS], **SAMPLING, on_progress=on_progress
        )
        assert (solving.asked, solving.left_out) == (len(CONVERSATIONS), 1)
    assert none == []
    assert (told[0][0], told[-1][0]) == (1, told[-1][1])
    assert all(len(samples) == SAMPLING["n"] for samples in others)


def test_an_answer_ends_where_the_context_does_and_that_is_counted(
    policy_path: Path, tmp_path: Path
) -> None:
    """A prompt of 125 tokens leaves room for three."""
    near = [[{"role": "user", "content": " ".join(["a"] * 119)}], *CONVERSATIONS]
    with solver(policy_path, tmp_path / "a") as solving:
        first, *_ = solving.generate(near, **SAMPLING)
        assert (solving.asked, solving.shortened) == (9, 1)
    assert max(sample.n_tokens for sample in first) <= 3


def test_absolute_positions_end_with_the_context_whoever_shares_the_batch(
    policy_path: Path, tmp_path: Path
) -> None:
    """A prompt of 22 tokens leaves room for two, its neighbor of seven for twelve."""
    gpt2 = Path(shutil.copytree(policy_path, tmp_path / "gpt2"))
    torch.manual_seed(0)
    small = {"n_positions": 24, "n_embd": 16, "n_layer": 1, "n_head": 2}
    size = len(load_tokenizer(policy_path))
    GPT2LMHeadModel(
        GPT2Config(vocab_size=size, **small, bos_token_id=2, eos_token_id=1)
    ).save_pretrained(gpt2)
    asked = [[{"role": "user", "content": " ".join("a" * words)}] for words in (16, 1)]

    def said(keep: Path, batch_size: int) -> Any:
        with solver(gpt2, keep, batch_size) as solving:
            return solving.generate(asked, **SAMPLING | {"n": 1})

    assert said(tmp_path / "together", 2) == said(tmp_path / "alone", 1)


def test_a_checkpoint_that_cannot_be_asked_or_writes_no_text_is_one_sentence(
    policy_path: Path, tmp_path: Path
) -> None:
    bare = Path(shutil.copytree(policy_path, tmp_path / "bare"))
    (bare / "chat_template.jinja").unlink()
    with pytest.raises(UserError, match="has no chat template"):
        answers(bare, tmp_path / "a")
    other = build_tiny_gemma(tmp_path / "rm", outputs=1)
    with pytest.raises(UserError, match="Gemma2ForSequenceClassification, which writes no text"):
        solver(other, tmp_path / "a")


def limited_memory(monkeypatch: pytest.MonkeyPatch, answers_at_once: int) -> list[int]:
    """Have sampling more answers at once run out of memory; return the numbers that were tried."""
    whole = decode
    tried: list[int] = []

    def limited(model: Any, ids: torch.Tensor, *rest: Any, n: int, **keywords: Any) -> Any:
        tried.append(n * len(ids))
        if n * len(ids) > answers_at_once:
            raise torch.OutOfMemoryError("the GPU is full")
        return whole(model, ids, *rest, n=n, **keywords)

    monkeypatch.setattr(transformers_engine, "decode", limited)
    return tried
