"""Reward models that are a transformer with one number at the last token of a conversation.

The model. A decoder of transformers (Gemma-2, Llama, Qwen, Mistral …) reads the conversation; a
linear head without bias on its output at the last token is the reward. Skywork-Reward is of this
kind, and so are the embedded world's reward models.

The embedded world has a pairwise kind of the same shape, which reads two answers as two turns of
the model in a row; its configuration names the output `FIRST_IS_BETTER`.

Source: Skywork-Reward's model card and report; paper section 4.2.3 and appendix G.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar, Self

import torch
import transformers
from transformers import PreTrainedTokenizerBase
from transformers.modeling_layers import GenericForSequenceClassification

from harness.errors import UserError
from harness.models.loading import Conversation, load_strictly, load_tokenizer
from harness.models.reader import (
    Average,
    Chat,
    Comparison,
    Encoded,
    PairModel,
    Reader,
    RewardModel,
    last_tokens,
)

MAX_LENGTH = 16_384
"""Longest conversation, in tokens, where the model's own limit is not lower: what the longest of
the Skywork models was trained on."""


class _Classifier(Reader):
    """What both kinds have in common: how they are loaded, and where the number is."""

    def __init__(self, model: Any, tokenizer: PreTrainedTokenizerBase, chat: Chat) -> None:
        """Keep what `load` has loaded."""
        super().__init__(model, tokenizer)
        self._chat = chat

    @classmethod
    def load(cls, path: Path, config: dict[str, Any], device: str, dtype: str) -> Self:
        """Load a classifier with one output and a chat template, else UserError."""
        architecture = config["architectures"][0]
        kind: Any = getattr(transformers, architecture, object)
        if not issubclass(kind, GenericForSequenceClassification):
            raise UserError(
                f"the model at {path} is a {architecture}, which is no decoder with a number at "
                "its last token: that kind of reward model cannot be read here."
            )
        settings = kind.config_class.from_pretrained(path, local_files_only=True)
        if settings.num_labels != 1:
            raise UserError(
                f"the reward model at {path} has {settings.num_labels} outputs: one is needed."
            )
        tokenizer = load_tokenizer(path)
        chat = Chat(tokenizer, path, min(settings.max_position_embeddings, MAX_LENGTH))
        model = load_strictly(kind, path, device, dtype)
        model.score.float()
        return cls(model, tokenizer, chat)

    def read(self, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        """Return the B numbers at the rows' last tokens."""
        model = self.model
        hidden = model.model(input_ids=ids, attention_mask=mask, use_cache=False).last_hidden_state
        outputs: torch.Tensor = model.score(hidden.float())[:, :, 0]
        return outputs.gather(1, last_tokens(mask)[:, None])[:, 0]


class SequenceClassifier(_Classifier, RewardModel):
    """A sequence classifier with one output, which scores one answer."""

    format: ClassVar[str] = "sequence classifier"

    def encode(self, conversations: Sequence[Conversation]) -> list[Encoded]:
        """Return the tokens of conversations that end with the answer to be scored."""
        return self._chat.encode(conversations)


class TwoTurnClassifier(_Classifier, PairModel):
    """A sequence classifier with one output, which reads two answers as two turns."""

    format: ClassVar[str] = "sequence classifier of two turns"
    averages: ClassVar[Average] = "logits"

    def encode_pairs(self, pairs: Sequence[Comparison]) -> list[Encoded]:
        """Return the tokens of the conversations with both answers at their ends."""
        return self._chat.encode(
            [
                [*pair.conversation, *({"role": "assistant", "content": text} for text in pair[1:])]
                for pair in pairs
            ]
        )
