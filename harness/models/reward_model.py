"""Reward models of every kind: how one is found and loaded, and what it says of answers.

A role asks for a model that reads one answer or two. The architecture in the folder's `config.json`
decides which reader that is (`harness.models.formats`); what fits no reader, or reads another
number of answers than the role asks for, is an error. No code from a model's folder is ever run.

The readers were written from descriptions and are tested on small random checkpoints of the same
form. No published model's own files have been loaded yet, so that all of them are `unverified`, and
whatever is scored with one says so.

Source: paper appendix A, section 4.2.3 and appendix G; authors' code (`src/reward_hf.py`), which
scores without a mask: harmless on the right, wrong on the left, where Gemma's tokenizer pads.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import permutations
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from harness.errors import HarnessError, UserError
from harness.foreign import error_in_a_line
from harness.models import formats
from harness.models.loading import FIRST_IS_BETTER, Conversation, read_config, stamp
from harness.models.reader import Answered, Average, Encoded, Reader, read_all

Reads = Literal["one answer", "two answers"]

KINDS: dict[str, type[Any]] = {
    kind.architecture: kind for kind in (formats.Armo, formats.PairRM, formats.PairPreferenceLLM)
}
"""The reader of each architecture that is no sequence classifier."""

UNVERIFIED = "unverified"


@dataclass(frozen=True)
class Rewarded:
    """The rewards of the answers to some prompts.

    Attributes:
        values: Shape (prompts, answers); NaN where a prompt has no rewards.
        cut: Texts that were too long for the model and were cut.
    """

    values: NDArray[np.float64]
    cut: int = 0

    @property
    def left_out(self) -> NDArray[np.bool_]:
        """Which prompts have no rewards: too long to be read, or nothing to check them by."""
        return np.asarray(np.isnan(self.values).any(axis=1))


@dataclass(frozen=True)
class CheckpointRewards:
    """The rewards of a checkpoint.

    A pairwise one's reward of an answer is its mean probability of winning against the others.
    `weights` says what is known of its weights.
    """

    reader: Reader
    weights: str = "embedded"
    batch_size: int = 256

    @property
    def format(self) -> str:
        return self.reader.format

    def score(self, prompts: Sequence[Conversation], answers: Sequence[Sequence[str]]) -> Rewarded:
        """Return the rewards of equally many answers to each prompt, which a user's turn ends.

        They do not depend on the batch size beyond rounding.
        """
        cut: list[int] = []
        how: Any = {"batch_size": self.batch_size, "on_cut": cut.append}
        if self.reader.averages is not None:
            wins = win_probabilities(self.reader, prompts, answers, **how)
            return Rewarded(mean_win_probabilities(wins), sum(cut))
        answered = [
            [*prompt, {"role": "assistant", "content": answer}]
            for prompt, some in zip(prompts, answers, strict=True)
            for answer in some
        ]
        rewards = score(self.reader, answered, **how)
        return Rewarded(rewards.reshape(len(prompts), -1), sum(cut))


@dataclass(frozen=True)
class FunctionRewards:
    """The rewards that a function gives to the answers of one prompt at a time.

    It reads a prompt of one turn as its text, and one of several with who speaks.
    """

    name: str
    function: Callable[[str, list[str]], Sequence[float] | None]
    weights: str = "none"

    @property
    def format(self) -> str:
        return f"function {self.name}"

    def score(self, prompts: Sequence[Conversation], answers: Sequence[Sequence[str]]) -> Rewarded:
        """Return the rewards; a prompt of which the function returns None has none."""
        rows = [
            self._checked(_text(prompt), list(some))
            for prompt, some in zip(prompts, answers, strict=True)
        ]
        return Rewarded(np.array(rows, dtype=np.float64).reshape(len(prompts), -1))

    def _checked(self, prompt: str, answers: list[str]) -> list[float]:
        try:
            found = self.function(prompt, answers)
        except HarnessError:
            raise
        except Exception as error:  # code of the user's
            said = error_in_a_line(error)
            raise UserError(f"the reward `{self.name}` fails at a prompt: {said}") from error
        if found is None:
            return [math.nan] * len(answers)
        numbers = [float(reward) for reward in found]
        if len(numbers) != len(answers) or not all(map(math.isfinite, numbers)):
            raise UserError(
                f"the reward `{self.name}` returned {numbers} for {len(answers)} answers; let it "
                "return one finite number for each, or None to leave the prompt out"
            )
        return numbers


Rewards = CheckpointRewards | FunctionRewards
"""A reward model at work."""


def _text(conversation: Conversation) -> str:
    if len(conversation) == 1:
        return conversation[0]["content"]
    return "\n\n".join(f"{turn['role'].capitalize()}: {turn['content']}" for turn in conversation)


def load_reward_model(
    path: Path, reads: Reads = "one answer", *, device: str = "cpu", dtype: str = "float32"
) -> Reader:
    """Load a reward model of any kind, or return it from the process's cache.

    Its tensors are exactly those in the files of its folder. `dtype` is `float32` or `bfloat16`.

    Raises:
        HarnessError: There is no model at `path`, its files are incomplete, pickled or another
            model's, it has no chat template, or it is of the wrong kind.
    """
    return _load(path.resolve(), stamp(path), reads, device, dtype)


@lru_cache(maxsize=2)  # online, one rewards and another ranks
def _load(path: Path, stamp: tuple[Any, ...], reads: Reads, device: str, dtype: str) -> Reader:
    del stamp  # part of the key only
    config = read_config(path)
    architecture = str((config.get("architectures") or ["nameless model"])[0])
    is_classifier = architecture.endswith("ForSequenceClassification")
    kind = formats.Classifier if is_classifier else KINDS.get(architecture)
    if kind is None or (kind is formats.PairPreferenceLLM and reads == "one answer"):
        raise UserError(
            f"the model at {path} is a {architecture}, which is no reward model that can be read "
            f"here: give a sequence classifier with one output, or one of {', '.join(KINDS)} (the "
            "last in a pairwise role)."
        )
    named = (config.get("id2label") or {}).values()
    pairwise = FIRST_IS_BETTER in named if is_classifier else kind.averages is not None
    if pairwise != (reads == "two answers"):
        does = "compares two answers" if pairwise else "scores one answer"
        role = "pairwise" if pairwise else "pointwise"
        raise UserError(f"the model at {path} {does}: give it a {role} role in the profile.")
    found: Reader = kind.load(path, config, device, dtype)
    return found


def score(
    reader: Reader,
    conversations: Sequence[Conversation],
    *,
    batch_size: int,
    on_cut: Callable[[int], None] | None = None,
) -> NDArray[np.float64]:
    """Return the rewards of P conversations that each end with the answer to be scored, shape (P,).

    They are the model's outputs in its own units, never normalised, and NaN where the prompt leaves
    no room for an answer. Conversations that render to the same tokens are scored once, so equal
    answers have exactly equal rewards; scored in different batches they would differ in the last
    digits, and min-max weights would act on that. `on_cut` is called once with how many of the
    conversations were too long and were cut.
    """
    encoded = reader.encode([Answered(c[:-1], (c[-1]["content"],)) for c in conversations])
    if on_cut is not None:
        on_cut(_count_cut(encoded))
    distinct = list(dict.fromkeys(e.tokens for e in encoded))
    rewards = read_all(reader, distinct, batch_size=batch_size)
    place = {tokens: i for i, tokens in enumerate(distinct)}
    return np.asarray(rewards[[place[e.tokens] for e in encoded]])


def _count_cut(encoded: Sequence[Encoded]) -> int:
    return sum(e.cut and bool(e.tokens) for e in encoded)


def win_probabilities(
    reader: Reader,
    conversations: Sequence[Conversation],
    answers: Sequence[Sequence[str]],
    *,
    batch_size: int,
    on_cut: Callable[[int], None] | None = None,
) -> NDArray[np.float64]:
    """Compare the K answers to each of P conversations with one another.

    A model reads a conversation and two answers to it, a and b; its output is a logit l(a, b) for
    "the first is the better one". A reader has a leaning towards a position, so both orders are
    read. What is averaged is each model's own affair, the logits or the probabilities:

        p(a, b) = sigmoid((l(a, b) - l(b, a)) / 2)  or  (sigmoid(l(a, b)) + sigmoid(-l(b, a))) / 2

    `on_cut` is called once with how many of the pairs read were too long and were cut.

    Returns:
        P x K x K probabilities; [p, i, j] that answer i to conversation p is better than answer j.
        An element and its mirror image sum to exactly 1; the diagonal is 1/2. Answers that render
        to the same tokens are the same answer, and are never read against each other. NaN is what
        does not fit.
    """
    p, k = len(conversations), len(answers[0]) if answers else 0
    asked = [c for c, own in zip(conversations, answers, strict=True) for _ in own]
    answered = [a for own in answers for a in own]
    # An answer is known by what is read of it against itself; of equal ones the first stands for
    # all. What does not fit is known by its place.
    single = reader.encode([Answered(c, (a, a)) for c, a in zip(asked, answered, strict=True)])
    known = [e.tokens or (-1, position) for position, e in enumerate(single)]
    first = {own: position for position, own in reversed(list(enumerate(known)))}
    stands = np.array([first[own] for own in known], dtype=int).reshape(p, k)
    rows = stands.tolist()
    pairs = list(dict.fromkeys(pair for row in rows for pair in permutations(sorted(set(row)), 2)))
    both = reader.encode([Answered(asked[a], (answered[a], answered[b])) for a, b in pairs])
    if on_cut is not None:
        on_cut(_count_cut(both))
    logits = read_all(reader, [e.tokens for e in both], batch_size=batch_size)
    logit = dict(zip(pairs, logits.tolist(), strict=True))
    read = [[[0.0 if a == b else logit[a, b] for b in row] for a in row] for row in rows]
    return _both_orders(np.array(read, dtype=np.float64).reshape(p, k, k), reader.averages)


def _both_orders(logits: NDArray[np.float64], averages: Average | None) -> NDArray[np.float64]:
    """Return probabilities from P x K x K logits of which [p, i, j] is of i in the first place."""
    mirrored = logits.transpose(0, 2, 1)
    # From the side that leads, since 1 - p is exact there and sigmoid(-x) rounds otherwise.
    high, low = np.maximum(logits, mirrored), np.minimum(logits, mirrored)
    of_logits = averages == "logits"
    winning = expit((high - low) / 2) if of_logits else (expit(high) + expit(-low)) / 2
    return np.where(high == low, 0.5, np.where(logits == high, winning, 1.0 - winning))


def mean_win_probabilities(probabilities: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return each answer's mean probability of winning, over all K answers and itself, P x K.

    Source: SPPO (Wu et al., 2024), section 4, and its code, which includes the diagonal.
    """
    means: NDArray[np.float64] = probabilities.mean(axis=-1)
    return means
