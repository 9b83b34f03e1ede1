"""Loading reward models of every kind, and scoring answers with them.

The architecture in a folder's `config.json` determines the reader (`harness.models.formats`). Code
in a model's folder is never run. The readers are tested on small random checkpoints of the same
format. No published model's own files have been loaded yet, so all of them are `unverified`, and
everything scored with one is labeled so.

Source: paper appendix A, section 4.2.3 and appendix G; authors' code (`src/reward_hf.py`), which
scores without a mask: harmless with right padding, wrong with left, which Gemma's tokenizer uses.
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
"""The readers of architectures other than sequence classifiers."""

UNVERIFIED = "unverified"


@dataclass(frozen=True)
class Rewarded:
    """Rewards, P x N, NaN where a prompt has none, and how many texts were `cut` to fit."""

    values: NDArray[np.float64]
    cut: int = 0

    @property
    def left_out(self) -> NDArray[np.bool_]:
        """Which prompts lack a reward: too long to read, or the reward function returned None."""
        return np.asarray(np.isnan(self.values).any(axis=1))


@dataclass(frozen=True)
class CheckpointRewards:
    """Rewards from a checkpoint; a pairwise one's is the mean win probability."""

    reader: Reader
    weights: str = "embedded"
    batch_size: int = 256

    @property
    def format(self) -> str:
        return self.reader.format

    def score(self, prompts: Sequence[Conversation], answers: Sequence[Sequence[str]]) -> Rewarded:
        """Return the rewards of equally many answers to each prompt (ending with a user)."""
        if self.reader.averages is not None:
            wins, cut = win_probabilities(self.reader, prompts, answers, batch_size=self.batch_size)
            # Over all answers, itself included (SPPO, Wu et al. 2024, section 4, and its code).
            return Rewarded(wins.mean(axis=-1), cut)
        both = zip(prompts, answers, strict=True)
        rows = [Answered(prompt, (answer,)) for prompt, some in both for answer in some]
        rewards, cut = score(self.reader, rows, batch_size=self.batch_size)
        return Rewarded(rewards.reshape(len(prompts), -1), cut)


@dataclass(frozen=True)
class FunctionRewards:
    """Rewards from a function that is called with the answers to one prompt at a time."""

    name: str
    function: Callable[[str, list[str]], Sequence[float] | None]
    weights: str = "none"

    @property
    def format(self) -> str:
        return f"function {self.name}"

    def score(self, prompts: Sequence[Conversation], answers: Sequence[Sequence[str]]) -> Rewarded:
        """Return the rewards; a prompt has none if the function returns None."""
        rows = [
            self._checked(_text(prompt), list(some))
            for prompt, some in zip(prompts, answers, strict=True)
        ]
        return Rewarded(np.array(rows, dtype=np.float64).reshape(len(prompts), -1))

    def _checked(self, prompt: str, answers: list[str]) -> list[float]:
        try:
            found = self.function(prompt, answers)
            if found is None:
                return [math.nan] * len(answers)
            numbers = [float(reward) for reward in found]
        except HarnessError:
            raise
        except Exception as error:  # user code
            said = error_in_a_line(error)
            raise UserError(f"the reward `{self.name}` fails at a prompt: {said}") from error
        if len(numbers) != len(answers) or not all(map(math.isfinite, numbers)):
            raise UserError(
                f"the reward `{self.name}` returned {numbers} for {len(answers)} answers; let it "
                "return one finite number for each, or None to leave the prompt out"
            )
        return numbers


Rewards = CheckpointRewards | FunctionRewards


def _text(conversation: Conversation) -> str:
    if len(conversation) == 1:
        return conversation[0]["content"]
    return "\n\n".join(f"{turn['role'].capitalize()}: {turn['content']}" for turn in conversation)


def load_reward_model(
    path: Path, reads: Reads = "one answer", *, device: str = "cpu", dtype: str = "float32"
) -> Reader:
    """Load a reward model of any kind, or return it from the process's cache."""
    return _load(path.resolve(), stamp(path), reads, device, dtype)


@lru_cache(maxsize=2)  # online, one model rewards and another ranks
def _load(path: Path, stamp: tuple[Any, ...], reads: Reads, device: str, dtype: str) -> Reader:
    del stamp  # part of the key only
    config = read_config(path)
    architecture = str((config.get("architectures") or ["nameless model"])[0])
    is_classifier = architecture.endswith("ForSequenceClassification")
    kind = formats.Classifier if is_classifier else KINDS.get(architecture)
    if kind is None or (kind is formats.PairPreferenceLLM and reads == "one answer"):
        raise UserError(
            f"the model at {path} is a {architecture}, which is not a reward model that can be "
            f"read here: give a sequence classifier with one output, or one of {', '.join(KINDS)} "
            "(the last in a pairwise role)."
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
    reader: Reader, rows: Sequence[Answered], *, batch_size: int
) -> tuple[NDArray[np.float64], int]:
    """Return the raw rewards of P answered conversations, and how many were cut.

    A reward is NaN where no answer fits. Rows that render to the same tokens are scored once, so
    equal answers have exactly equal rewards: in different batches they would differ in the last
    digits.
    """
    encoded = reader.encode(rows)
    distinct = list(dict.fromkeys(e.tokens for e in encoded))
    rewards = read_all(reader, distinct, batch_size=batch_size)
    place = {tokens: i for i, tokens in enumerate(distinct)}
    return rewards[[place[e.tokens] for e in encoded]], _count_cut(encoded)


def _count_cut(encoded: Sequence[Encoded]) -> int:
    return sum(e.cut and bool(e.tokens) for e in encoded)


def win_probabilities(
    reader: Reader,
    conversations: Sequence[Conversation],
    answers: Sequence[Sequence[str]],
    *,
    batch_size: int,
) -> tuple[NDArray[np.float64], int]:
    """Return P x K x K probabilities that answer i beats answer j, and how many texts were cut.

    The model outputs a logit l(a, b) for "the first is better". It has position bias, so both
    orders are read and, depending on the model, the logits or the probabilities averaged:

        p(a, b) = sigmoid((l(a, b) - l(b, a)) / 2)  or  (sigmoid(l(a, b)) + sigmoid(-l(b, a))) / 2
    """
    p, k = len(conversations), len(answers[0]) if answers else 0
    asked = [c for c, own in zip(conversations, answers, strict=True) for _ in own]
    answered = [a for own in answers for a in own]
    # Answers are identified by the tokens read when paired with themselves, and the first of equal
    # ones represents them all. Those that do not fit are identified by position.
    single = reader.encode([Answered(c, (a, a)) for c, a in zip(asked, answered, strict=True)])
    known = [e.tokens or (-1, position) for position, e in enumerate(single)]
    first = {own: position for position, own in reversed(list(enumerate(known)))}
    stands = np.array([first[own] for own in known], dtype=int).reshape(p, k)
    rows = stands.tolist()
    pairs = list(dict.fromkeys(pair for row in rows for pair in permutations(sorted(set(row)), 2)))
    both = reader.encode([Answered(asked[a], (answered[a], answered[b])) for a, b in pairs])
    logits = read_all(reader, [e.tokens for e in both], batch_size=batch_size)
    logit = dict(zip(pairs, logits.tolist(), strict=True))
    read = [[[0.0 if a == b else logit[a, b] for b in row] for a in row] for row in rows]
    table = np.array(read, dtype=np.float64).reshape(p, k, k)
    return _both_orders(table, reader.averages), _count_cut(both)


def _both_orders(logits: NDArray[np.float64], averages: Average | None) -> NDArray[np.float64]:
    """Return probabilities from P x K x K logits, where [p, i, j] is with answer i first."""
    mirrored = logits.transpose(0, 2, 1)
    # Computed for the likelier winner: 1 - p is exact for p >= 1/2, but sigmoid(-x) rounds.
    high, low = np.maximum(logits, mirrored), np.minimum(logits, mirrored)
    of_logits = averages == "logits"
    winning = expit((high - low) / 2) if of_logits else (expit(high) + expit(-low)) / 2
    return np.where(high == low, 0.5, np.where(logits == high, winning, 1.0 - winning))
