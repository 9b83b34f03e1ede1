"""Reward models of every kind: how one is found and loaded, and what it says of answers.

A role asks for a model that reads one answer or two. The architecture in the folder's `config.json`
decides which reader that is (`harness.models.formats`); what fits no reader, or reads another
number of answers than the role asks for, is an error. No code from a model's folder is ever run.

The readers were written from descriptions and are tested on small random checkpoints of the same
form. Until a published model's own files have loaded strictly and given its card's reference values
it is `unverified`, and whatever is scored with it says so.

Source: paper appendix A, section 4.2.3 and appendix G; authors' code (`src/reward_hf.py`), which
scores without a mask: harmless on the right, wrong on the left, where Gemma's tokenizer pads.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import permutations
from pathlib import Path
from typing import Any, Literal, Protocol, cast, overload

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from harness.errors import HarnessError, UserError
from harness.models import formats
from harness.models.loading import FIRST_IS_BETTER, Conversation, read_config, stamp
from harness.models.reader import Average, Comparison, PairModel, RewardModel, read_all

Reads = Literal["one answer", "two answers"]

KINDS: dict[str, type[Any]] = {
    kind.architecture: kind for kind in (formats.Armo, formats.PairRM, formats.PairPreferenceLLM)
}
"""The reader of each architecture that is no sequence classifier."""


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


class Rewards(Protocol):
    """A reward model at work: a checkpoint, or a function of prompt and answers."""

    @property
    def format(self) -> str:
        """What reads the answers, in a few words."""

    @property
    def weights(self) -> str:
        """What is known of its weights: `embedded`, `none`, or whether they were verified."""

    def score(self, prompts: Sequence[Conversation], answers: Sequence[Sequence[str]]) -> Rewarded:
        """Return the rewards of equally many answers to each prompt, which a user's turn ends."""


@dataclass(frozen=True)
class CheckpointRewards:
    """The rewards of a checkpoint.

    A pairwise one's reward of an answer is its mean probability of winning against the others.
    """

    reader: RewardModel | PairModel
    weights: str = "embedded"
    batch_size: int = 256

    @property
    def format(self) -> str:
        """The kind of model."""
        return self.reader.format

    def score(self, prompts: Sequence[Conversation], answers: Sequence[Sequence[str]]) -> Rewarded:
        """Return the rewards; rewards do not depend on the batch size beyond rounding."""
        cut: list[int] = []
        how: Any = {"batch_size": self.batch_size, "on_cut": cut.append}
        if isinstance(self.reader, PairModel):
            wins = win_probabilities(self.reader, prompts, answers, **how)
            return Rewarded(mean_win_probabilities(wins), sum(cut))
        answered = [
            [*prompt, {"role": "assistant", "content": answer}]
            for prompt, some in zip(prompts, answers, strict=True)
            for answer in some
        ]
        rewards = score(self.reader, answered, **how)
        return Rewarded(rewards.reshape(len(prompts), -1), sum(cut))


@overload
def load_reward_model(
    path: Path, reads: Literal["one answer"] = ..., *, device: str = ..., dtype: str = ...
) -> RewardModel: ...


@overload
def load_reward_model(
    path: Path, reads: Literal["two answers"], *, device: str = ..., dtype: str = ...
) -> PairModel: ...


def load_reward_model(
    path: Path, reads: Reads = "one answer", *, device: str = "cpu", dtype: str = "float32"
) -> RewardModel | PairModel:
    """Load a reward model of any kind, or return it from the process's cache.

    Its tensors are exactly those in the files of its folder. `dtype` is `float32` or `bfloat16`.

    Raises:
        HarnessError: There is no model at `path`, its files are incomplete, pickled or another
            model's, it has no chat template, or it is of the wrong kind.
    """
    return _load(path.resolve(), stamp(path), reads, device, dtype)


@lru_cache(maxsize=2)  # online, one rewards and another ranks
def _load(
    path: Path, stamp: tuple[Any, ...], reads: Reads, device: str, dtype: str
) -> RewardModel | PairModel:
    del stamp  # part of the key only
    config = read_config(path)
    model: RewardModel | PairModel = _kind(path, config, reads).load(path, config, device, dtype)
    return model


def _kind(path: Path, config: dict[str, Any], reads: Reads) -> type[Any]:
    """Return the reader for a checkpoint."""
    architecture = str((config.get("architectures") or ["nameless model"])[0])
    if architecture.endswith("ForSequenceClassification"):
        pairwise = FIRST_IS_BETTER in (config.get("id2label") or {}).values()
        kind: Any = formats.TwoTurnClassifier if pairwise else formats.SequenceClassifier
    else:
        kind = KINDS.get(architecture)
    if kind is None or (kind is formats.PairPreferenceLLM and reads == "one answer"):
        raise UserError(
            f"the model at {path} is a {architecture}, which is no reward model that can be read "
            f"here: give a sequence classifier with one output, or one of {', '.join(KINDS)} (the "
            "last in a pairwise role)."
        )
    if reads == "one answer" and issubclass(kind, PairModel):
        raise HarnessError(
            f"the model at {path} compares two answers and cannot score one: give it a pairwise "
            "role in the profile."
        )
    if reads == "two answers" and not issubclass(kind, PairModel):
        raise HarnessError(
            f"the model at {path} is no pairwise reward model, it scores one answer: give it a "
            "pointwise role in the profile."
        )
    return cast(type[Any], kind)


def score(
    reward_model: RewardModel | Path,
    conversations: Sequence[Conversation],
    *,
    batch_size: int,
    on_cut: Callable[[int], None] | None = None,
) -> NDArray[np.float64]:
    """Return the rewards of P conversations that each end with the answer to be scored, shape (P,).

    They are the model's outputs in its own units, never normalised, and NaN where the prompt leaves
    no room for an answer. Conversations that render to
    the same tokens are scored once, so equal answers have exactly equal rewards; scored in
    different batches they would differ in the last digits, and min-max weights would act on that.
    `on_cut` is called once with how many of the conversations were too long and were cut.
    """
    if isinstance(reward_model, Path):
        reward_model = load_reward_model(reward_model)
    encoded = reward_model.encode(conversations)
    if on_cut is not None:
        on_cut(sum(e.cut and bool(e.tokens) for e in encoded))
    distinct = list(dict.fromkeys(e.tokens for e in encoded))
    rewards = read_all(reward_model, distinct, batch_size=batch_size)
    place = {tokens: i for i, tokens in enumerate(distinct)}
    return np.asarray(rewards[[place[e.tokens] for e in encoded]])


def win_probabilities(
    pair_model: PairModel | Path,
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
    if len(answers) != p or any(len(own) != k for own in answers):
        raise HarnessError(
            f"win probabilities need equally many answers to each of {p} conversations; "
            f"got {sorted({len(own) for own in answers})} answers to {len(answers)}"
        )
    if isinstance(pair_model, Path):
        pair_model = load_reward_model(pair_model, "two answers")
    asked = [c for c, own in zip(conversations, answers, strict=True) for _ in own]
    answered = [a for own in answers for a in own]
    # An answer is known by what is read of it against itself; of equal ones the first stands for
    # all. What does not fit is known by its place.
    single = pair_model.encode_pairs(
        [Comparison(c, a, a) for c, a in zip(asked, answered, strict=True)]
    )
    known = [e.tokens or (-1, position) for position, e in enumerate(single)]
    first = {own: position for position, own in reversed(list(enumerate(known)))}
    stands = np.array([first[own] for own in known], dtype=int).reshape(p, k)
    rows = stands.tolist()
    pairs = list(dict.fromkeys(pair for row in rows for pair in permutations(sorted(set(row)), 2)))
    both = pair_model.encode_pairs(
        [Comparison(asked[a], answered[a], answered[b]) for a, b in pairs]
    )
    if on_cut is not None:
        on_cut(sum(e.cut and bool(e.tokens) for e in both))
    logits = read_all(pair_model, [e.tokens for e in both], batch_size=batch_size)
    logit = dict(zip(pairs, logits.tolist(), strict=True))
    read = [[[0.0 if a == b else logit[a, b] for b in row] for a in row] for row in rows]
    return _both_orders(np.array(read, dtype=np.float64).reshape(p, k, k), pair_model.averages)


def _both_orders(logits: NDArray[np.float64], averages: Average) -> NDArray[np.float64]:
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


VERIFIED: Mapping[str, tuple[str, str]] = {}
"""The published models whose own files loaded strictly and gave their reference values: name on the
hub -> revision and day, as 2026-01-31. There is none yet."""

UNVERIFIED = "unverified"


def verification(identity: str) -> str:
    """Return `unverified`, or `verified on <date> at revision <commit>`, for `name@revision`."""
    name, _, revision = identity.partition("@")
    known, date = VERIFIED.get(name, ("", ""))
    # Without a revision, which one is used is not known.
    return f"verified on {date} at revision {known}" if known and revision == known else UNVERIFIED
