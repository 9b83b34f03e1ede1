"""PairRM: compares two answers by the embeddings of three marks in one sequence.

The model. A DeBERTa reads prompt and both answers in one sequence, each with a mark before it,

    [CLS] <|source|> P [SEP] [CLS] <|candidate1|> A [SEP] [CLS] <|candidate2|> B [SEP]

and its outputs at the marks are the vectors s, a and b. A head of two layers scores the pairs of
vectors (s, a) and (s, b); the logit for "A is better" is the first score minus the second, the
mean over tasks if there are several. Both orders are read, and the mean of the logits decides, as
in the authors' own ranker.

Rules. The prompt is cut to 1,224 tokens, and each answer to half of what it leaves of 2,048. The
marks and control tokens are taken out of the texts, so that each mark stands where it belongs. The
authors' form for several turns is not built: a conversation has one.

Published names of parameters: `pretrained_model.*` as in DeBERTa-v2, `head_layer.1` and
`head_layer.4` (0 and 3 are dropout, 2 is tanh).

Source: Jiang et al. (2023), "LLM-Blender"; model card and configuration of llm-blender/PairRM-hf.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar, Self

import torch
from torch import nn
from transformers import (
    DebertaV2Config,
    DebertaV2Model,
    DebertaV2PreTrainedModel,
    PreTrainedTokenizerBase,
)

from harness.errors import HarnessError, UserError
from harness.models.loading import load_strictly, load_tokenizer
from harness.models.reader import (
    Average,
    Comparison,
    Encoded,
    PairModel,
    control_tokens,
    single_tokens,
    spellings,
    without,
)

ARCHITECTURE = "DebertaV2PairRM"
"""Name of the architecture in the published `config.json`."""

MARKS = ("<|source|>", "<|candidate1|>", "<|candidate2|>")
"""Marks of the prompt, the first and the second answer."""

SINGLE = "<|candidate|>"
"""A mark of the tokenizer that this format does not use."""

MAX_SOURCE = 1224
"""Longest prompt, in tokens with its mark, [CLS] and [SEP]."""

MAX_LENGTH = 2048
"""Longest sequence, in tokens."""


class PairRMModel(DebertaV2PreTrainedModel):  # type: ignore[misc]
    """The network, with the published names of its parameters."""

    config_class = DebertaV2Config
    base_model_prefix = "pretrained_model"
    _keep_in_fp32_modules_strict = ("head_layer",)

    def __init__(self, config: DebertaV2Config) -> None:
        """Build the network that a configuration describes."""
        super().__init__(config)
        width, drop_out = config.hidden_size, config.drop_out
        self.pretrained_model = DebertaV2Model(config)
        self.head_layer = nn.Sequential(
            nn.Dropout(drop_out),
            nn.Linear(2 * width, width),
            nn.Tanh(),
            nn.Dropout(drop_out),
            nn.Linear(width, config.n_tasks),
        )
        self.post_init()

    def forward(self, ids: torch.Tensor, mask: torch.Tensor, marks: torch.Tensor) -> torch.Tensor:
        """Return B logits for "the first is better", given B x 3 positions of the marks."""
        hidden = self.pretrained_model(input_ids=ids, attention_mask=mask).last_hidden_state
        rows = torch.arange(len(ids), device=ids.device)[:, None]
        source, first, second = hidden[rows, marks].float().unbind(dim=1)
        left = self.head_layer(torch.cat([source, first], dim=-1))
        right = self.head_layer(torch.cat([source, second], dim=-1))
        return (left - right).mean(dim=-1)


class PairRM(PairModel):
    """PairRM, which compares two answers to a prompt."""

    format: ClassVar[str] = "PairRM"
    averages: ClassVar[Average] = "logits"

    def __init__(self, model: Any, tokenizer: PreTrainedTokenizerBase, marks: list[int]) -> None:
        """Keep what `load` has loaded, with the ids of the marks."""
        super().__init__(model, tokenizer)
        self._taken_out = spellings({*control_tokens(tokenizer), *MARKS, SINGLE})
        self._marks = torch.tensor(marks)

    @classmethod
    def load(cls, path: Path, config: dict[str, Any], device: str, dtype: str) -> Self:
        """Load PairRM; UserError if the files are others."""
        lacking = [name for name in ("n_tasks", "drop_out") if name not in config]
        if lacking:
            raise UserError(f"config.json at {path} has no `{lacking[0]}`, so it is not PairRM's.")
        tokenizer = load_tokenizer(path)
        marks = single_tokens(tokenizer, MARKS, path)
        return cls(load_strictly(PairRMModel, path, device, dtype), tokenizer, marks)

    def encode_pairs(self, pairs: Sequence[Comparison]) -> list[Encoded]:
        """Return the tokens of prompts with both answers, each cut to its limit.

        Raises:
            HarnessError: a conversation has several turns.
        """
        if any(len(pair.conversation) != 1 for pair in pairs):
            raise HarnessError(
                "PairRM compares answers to one turn of a user, and a conversation here has more."
            )
        parts = [(pair.conversation[0]["content"], pair.first, pair.second) for pair in pairs]
        marked = [
            [mark + without(self._taken_out, text) for mark, text in zip(MARKS, part, strict=True)]
            for part in parts
        ]
        distinct = list(dict.fromkeys(text for part in marked for text in part))
        ids = self.tokenizer(distinct)["input_ids"] if distinct else []
        known = dict(zip(distinct, ids, strict=True))
        return [self._joined(*(known[text] for text in part)) for part in marked]

    def _joined(self, source: list[int], first: list[int], second: list[int]) -> Encoded:
        """Return one sequence of three, each cut to its limit and closed by its last token."""
        prompt = _cut(source, MAX_SOURCE)
        room = (MAX_LENGTH - len(prompt)) // 2
        tokens = (*prompt, *_cut(first, room), *_cut(second, room))
        return Encoded(tokens, len(tokens) < len(source) + len(first) + len(second))

    def read(self, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        """Return B logits for "the first is better"."""
        marks = self._marks.to(ids.device)
        positions = (ids[:, :, None] == marks).int().argmax(dim=1)
        logits: torch.Tensor = self.model(ids, mask, positions)
        return logits


def _cut(ids: list[int], limit: int) -> list[int]:
    """Return the first tokens of a text and the one that closes it."""
    return ids if len(ids) <= limit else [*ids[: limit - 1], ids[-1]]
