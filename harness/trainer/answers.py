"""The policy's answers: the one place where stages get them.

A stage says which policy answers (its input `policy`, or the identity in its settings) and how
answers are sampled (`temperature`, `top_p`, `max_new_tokens`, `batch_size`); what it gets is text.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, cast

from harness.store import StageContext
from harness.trainer.assets import resolve

if TYPE_CHECKING:
    from harness.models.loading import Conversation
    from harness.models.policy import Completion


class Ask(Protocol):
    """Has the policy answer conversations."""

    def __call__(
        self,
        conversations: Sequence[Conversation],
        *,
        n: int,
        seed: int,
        part: str = "answers",
        temperature: float | None = None,
    ) -> list[list[Completion]]:
        """Return n completions of each conversation, in their order.

        Args:
            conversations: each ends with a user message.
            n: completions of each.
            seed: root of all draws.
            part: name of this call among those of its stage, under which finished answers are
                kept; each call of a stage has its own.
            temperature: in place of the one in the stage's settings; 0 for greedy decoding.
        """
        ...


@contextmanager
def answering(ctx: StageContext) -> Iterator[Ask]:
    """Yield what has a stage's policy answer; an engine that is started for it ends with the block.

    Raises:
        HarnessError: there is no checkpoint of the policy.
    """
    from harness.models.policy import generate

    policy, s = policy_folder(ctx), ctx.settings

    def ask(
        conversations: Sequence[Conversation],
        *,
        n: int,
        seed: int,
        part: str = "answers",
        temperature: float | None = None,
    ) -> list[list[Completion]]:
        del part  # the embedded policy answers in seconds, so nothing is kept
        return generate(
            policy,
            conversations,
            n=n,
            temperature=cast(float, s["temperature"]) if temperature is None else temperature,
            top_p=cast(float, s["top_p"]),
            max_new_tokens=cast(int, s["max_new_tokens"]),
            batch_size=cast(int, s["batch_size"]),
            seed=seed,
        )

    yield ask


def policy_folder(ctx: StageContext) -> Path:
    """Return the folder of a stage's policy: the one trained before, or the base policy."""
    if "policy" in ctx.inputs:
        return ctx.inputs["policy"] / "model"
    return resolve(str(ctx.settings["policy"]))
