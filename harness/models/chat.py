"""Conversations as a reward model reads them: its own chat template, one BOS, a limit.

Rules.

- The template is the one in the model's folder. Texts are rendered without what spells its control
  tokens.
- There is exactly one BOS where the tokenizer puts one or the template writes one; models that were
  trained without have none. Of the published templates some write it and some leave it to the
  tokenizer, and doing both doubles it.
- A conversation over the limit loses tokens from the end of its answer, and keeps the tokens that
  close it; the prompt is never cut. If the prompt leaves no room for an answer, that is an error.

Source: model cards of ArmoRM and Skywork-Reward (template, then tokenizer); the rule for long
conversations is ours: the authors' code cuts from the end, with the tokens that close the answer.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from transformers import PreTrainedTokenizerBase

from harness.errors import UserError
from harness.models.loading import Conversation, tokenize
from harness.models.reader import Encoded, control_tokens, spellings, without


class Chat:
    """Renders conversations with a tokenizer's chat template, and encodes them."""

    def __init__(
        self, tokenizer: PreTrainedTokenizerBase, path: Path, limit: int, *, bos: bool = True
    ) -> None:
        """Check that a tokenizer can render and pad.

        Args:
            tokenizer: the reward model's.
            path: the folder it is from, for messages.
            limit: longest conversation, in tokens.
            bos: whether the model was trained with a BOS.

        Raises:
            UserError: it has no chat template.
        """
        if not tokenizer.chat_template:
            raise UserError(
                f"the tokenizer at {path} has no chat template, so what the reward model should "
                "read is not known: take the tokenizer files that were published with it."
            )
        if tokenizer.pad_token_id is None:
            tokenizer.pad_token = tokenizer.eos_token  # masked, so any token would do
        self.tokenizer = tokenizer
        self.limit = limit
        self._path = path
        self._control = spellings(control_tokens(tokenizer))
        self._with_bos = bos
        self._puts_bos = self._begins_with_bos(tokenizer("")["input_ids"])

    def encode(self, conversations: Sequence[Conversation]) -> list[Encoded]:
        """Return the tokens of conversations that end with an answer, cut to the limit.

        Raises:
            UserError: a prompt leaves no room for an answer.
        """
        return [
            Encoded(tuple(ids), False)
            if len(ids) <= self.limit
            else Encoded(tuple(self._cut(conversation, ids)), True)
            for conversation, ids in zip(conversations, self.render(conversations), strict=True)
        ]

    def render(
        self, conversations: Sequence[Conversation], *, add_generation_prompt: bool = False
    ) -> list[list[int]]:
        """Return the tokens of whole conversations, however long they are."""
        cleaned = [
            [{**m, "content": without(self._control, m["content"])} for m in conversation]
            for conversation in conversations
        ]
        ids = tokenize(self.tokenizer, cleaned, add_generation_prompt=add_generation_prompt)
        return [self._with_one_bos(row) for row in ids]

    def _with_one_bos(self, ids: list[int]) -> list[int]:
        """Return tokens with the one BOS that they should have, or none."""
        if self._begins_with_bos(ids):
            return ids if self._with_bos else ids[1:]
        put = self._with_bos and self._puts_bos
        return [self.tokenizer.bos_token_id, *ids] if put else ids

    def _begins_with_bos(self, ids: list[int]) -> bool:
        return bool(ids) and ids[0] == self.tokenizer.bos_token_id

    def _cut(self, conversation: Conversation, ids: list[int]) -> list[int]:
        """Return the first tokens of a conversation and those that close its answer."""
        [empty] = self.render([[*conversation[:-1], {**conversation[-1], "content": ""}]])
        before = _shared(ids, empty)
        closing = _shared(ids[before:][::-1], empty[before:][::-1])
        if before + closing >= self.limit:
            raise UserError(
                f"a prompt of {before} tokens leaves no room for an answer in the {self.limit} "
                f"tokens that the reward model at {self._path} reads: leave it out; it begins with "
                f"{conversation[0]['content'][:60]!r}."
            )
        return [*ids[: self.limit - closing], *ids[len(ids) - closing :]]


def _shared(one: Sequence[int], other: Sequence[int]) -> int:
    """Return how many tokens two sequences begin with in common."""
    pairs = zip(one, other, strict=False)
    return next((i for i, (a, b) in enumerate(pairs) if a != b), min(len(one), len(other)))
