"""Conversations as the tokens that every engine is given.

Engines are sent token ids and never text: a server that renders or tokenises by itself would put a
second BOS before the one of the template (as the authors' code does), or use another template than
the training. The ids are those that the training renders, so an engine's log-probabilities and the
trainer's are about the same sequence.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from transformers import AutoConfig, PreTrainedTokenizerBase

from harness.errors import UserError
from harness.models.loading import (
    Conversation,
    load_tokenizer,
    read_config,
    stop_token_ids,
    tokenize,
)
from harness.solver.request import Asked, seed_of

GENERATES = ("ForCausalLM", "LMHeadModel", "ForConditionalGeneration")
"""Ends of the names of architectures that write text."""


class Renderer:
    """A policy's tokenizer with what is known of its model.

    Attributes:
        tokenizer: the policy's.
        context: longest sequence its model reads, in tokens.
        stops: token ids that end an answer.
    """

    def __init__(self, folder: Path) -> None:
        """Read a policy's configuration and tokenizer.

        Raises:
            HarnessError: no checkpoint at `folder`, one of an architecture that writes no text, or
                a tokenizer without chat template.
        """
        check_writes_text(folder)
        self.tokenizer: PreTrainedTokenizerBase = load_tokenizer(folder)
        if not self.tokenizer.chat_template:
            raise UserError(
                f"the tokenizer at {folder} has no chat template, so how the policy is asked is "
                "not known: take the tokenizer files of the instruction-tuned model."
            )
        if self.tokenizer.pad_token_id is None:
            self.tokenizer.pad_token = self.tokenizer.eos_token  # masked, so any token would do
        config: Any = AutoConfig.from_pretrained(
            folder, local_files_only=True, trust_remote_code=False
        )
        self.context = int(config.get_text_config().max_position_embeddings)
        self.stops = tuple(stop_token_ids(self.tokenizer))
        self._folder = folder

    def asked(
        self, conversations: Sequence[Conversation], *, n: int, seed: int, max_new_tokens: int
    ) -> list[Asked]:
        """Return what an engine is asked for n answers to each conversation.

        An answer is cut where the context ends if that comes before `max_new_tokens`.

        Raises:
            UserError: a prompt leaves no room for an answer.
        """
        rendered = tokenize(self.tokenizer, conversations, add_generation_prompt=True)
        return [
            Asked(
                position,
                tuple(tokens),
                tuple(seed_of(seed, position, sample) for sample in range(n)),
                min(max_new_tokens, self._room(conversations[position], tokens)),
            )
            for position, tokens in enumerate(rendered)
        ]

    def text(self, tokens: Sequence[int]) -> str:
        """Return an answer's text without special tokens and surrounding blanks."""
        text = self.tokenizer.decode(
            list(tokens), skip_special_tokens=True, clean_up_tokenization_spaces=False
        )
        return str(text).strip()

    def count(self, text: str) -> int:
        """Return how many tokens a text is."""
        return len(self.tokenizer(text, add_special_tokens=False)["input_ids"])

    def _room(self, conversation: Conversation, tokens: Sequence[int]) -> int:
        room = self.context - len(tokens)
        if room < 1:
            raise UserError(
                f"a prompt of {len(tokens)} tokens is longer than the {self.context} that the "
                f"model at {self._folder} reads: leave it out; it begins with "
                f"{conversation[0]['content'][:60]!r}."
            )
        return room


def check_writes_text(folder: Path) -> None:
    """Check that a checkpoint is a model that writes text.

    Raises:
        HarnessError: no checkpoint there, or one of another architecture.
    """
    names = read_config(folder).get("architectures") or []
    if not any(str(name).endswith(GENERATES) for name in names):
        found = ", ".join(map(str, names)) or "none"
        raise UserError(
            f"the checkpoint at {folder} has the architecture {found}, which writes no text: a "
            "policy is a causal language model."
        )
