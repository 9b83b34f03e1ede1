"""ArmoRM: a reward that mixes 19 objectives by what the prompt is about.

The model. A Llama reads the conversation. From its output at the last token, a linear layer gives
19 rewards r, one for each objective. From its output at the token that closes the prompt, a small
network gives 19 coefficients: g = softmax(mlp(h) / temperature) · scale. A fixed matrix T takes
from every objective what is only verbosity. The reward is

    g · (r T)

with r a row vector. The heads are used in float32, in which they seem to be published (so say the
sizes of the files).

Published names of parameters: `model.*` as in Llama, `regression_layer.weight`,
`reward_transform_matrix`, `gating.logit_scale`, `gating.layers.{0..n}.{weight,bias}`.

Source: Wang et al. (2024), "Interpretable Preferences via Multi-Objective Reward Modeling and
Mixture-of-Experts"; model card and published code of RLHFlow/ArmoRM-Llama3-8B-v0.1.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, ClassVar, Self

import torch
from torch import nn
from transformers import LlamaConfig, LlamaModel, LlamaPreTrainedModel, PreTrainedTokenizerBase

from harness.errors import HarnessError, UserError
from harness.models.loading import Conversation, load_strictly, load_tokenizer
from harness.models.reader import Chat, Encoded, RewardModel, last_tokens

ARCHITECTURE = "LlamaForRewardModelWithGating"
"""Name of the architecture in the published `config.json`."""

MAX_LENGTH = 4096
"""Longest conversation, in tokens (model card)."""

END_OF_TURN = "<|eot_id|>"

ANSWER_FOLLOWS = f"{END_OF_TURN}<|start_header_id|>assistant<|end_header_id|>\n\n"
"""What stands between prompt and answer; the gate looks at the first token of its last one."""

FIELDS = ("num_objectives", "gating_temperature", "gating_hidden_dim", "gating_n_hidden")
"""What the configuration says of the heads."""


class Gate(nn.Module):  # type: ignore[misc]
    """Gives the coefficients of the objectives, from what the prompt is about."""

    def __init__(self, config: LlamaConfig) -> None:
        """Build the network that a configuration describes."""
        super().__init__()
        width, hidden = config.hidden_size, config.gating_hidden_dim
        sizes = [width, *[hidden] * config.gating_n_hidden, config.num_objectives]
        self.temperature = config.gating_temperature
        self.logit_scale = nn.Parameter(torch.ones(1))
        self.layers = nn.ModuleList(nn.Linear(a, b) for a, b in pairwise(sizes))

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        """Return B x K coefficients from B x H outputs at the end of the prompt."""
        *inner, last = self.layers
        for layer in inner:
            hidden = torch.relu(layer(hidden))
        return torch.softmax(last(hidden) / self.temperature, dim=-1) * self.logit_scale


class ArmoModel(LlamaPreTrainedModel):  # type: ignore[misc]
    """The network, with the published names of its parameters."""

    config_class = LlamaConfig
    base_model_prefix = "model"
    _keep_in_fp32_modules_strict = ("regression_layer", "reward_transform_matrix", "gating")

    def __init__(self, config: LlamaConfig) -> None:
        """Build the network that a configuration describes."""
        super().__init__(config)
        objectives = config.num_objectives
        self.model = LlamaModel(config)
        self.regression_layer = nn.Linear(config.hidden_size, objectives, bias=False)
        self.reward_transform_matrix = nn.Parameter(torch.eye(objectives), requires_grad=False)
        self.gating = Gate(config)
        self.post_init()

    def forward(
        self, ids: torch.Tensor, mask: torch.Tensor, prompt_ends: torch.Tensor
    ) -> torch.Tensor:
        """Return B rewards of B x T token ids, given where the tokens are that close prompts."""
        hidden = self.model(input_ids=ids, attention_mask=mask, use_cache=False).last_hidden_state
        hidden, rows = hidden.float(), torch.arange(len(ids), device=ids.device)
        rewards = self.regression_layer(hidden[rows, last_tokens(mask)])
        coefficients = self.gating(hidden[rows, prompt_ends])
        return (coefficients * (rewards @ self.reward_transform_matrix)).sum(dim=-1)


class Armo(RewardModel):
    """ArmoRM, which scores one answer."""

    format: ClassVar[str] = "ArmoRM"

    def __init__(self, model: Any, tokenizer: PreTrainedTokenizerBase, chat: Chat) -> None:
        """Keep what `load` has loaded."""
        super().__init__(model, tokenizer)
        self._chat = chat
        ids: list[int] = tokenizer(ANSWER_FOLLOWS, add_special_tokens=False)["input_ids"]
        self._answer_follows = torch.tensor(ids)

    @classmethod
    def load(cls, path: Path, config: dict[str, Any], device: str, dtype: str) -> Self:
        """Load ArmoRM; UserError if the files are another model's."""
        lacking = [name for name in FIELDS if name not in config]
        if lacking:
            raise UserError(f"config.json at {path} has no `{lacking[0]}`, so it is not ArmoRM's.")
        tokenizer = load_tokenizer(path)
        settings = LlamaConfig.from_pretrained(path, local_files_only=True)
        chat = Chat(tokenizer, path, min(settings.max_position_embeddings, MAX_LENGTH))
        probe = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]
        [ids] = chat.render([probe])
        if tokenizer.convert_ids_to_tokens(ids[-1]) != END_OF_TURN:
            # Otherwise the gate would look at the end of the answer instead of the prompt's.
            raise UserError(
                f"the chat template at {path} does not end an answer with {END_OF_TURN}: take the "
                "tokenizer files that were published with ArmoRM."
            )
        return cls(load_strictly(ArmoModel, path, device, dtype), tokenizer, chat)

    def encode(self, conversations: Sequence[Conversation]) -> list[Encoded]:
        """Return the tokens of conversations that end with the answer to be scored."""
        return self._chat.encode(conversations)

    def read(self, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        """Return B rewards."""
        rewards: torch.Tensor = self.model(ids, mask, self.prompt_ends(ids))
        return rewards

    def prompt_ends(self, ids: torch.Tensor) -> torch.Tensor:
        """Return the position of the token that closes each row's last prompt, shape (B,).

        Raises:
            HarnessError: a sequence has no place where an answer follows a prompt.
        """
        pattern = self._answer_follows.to(ids.device)
        found = (ids.unfold(1, len(pattern), 1) == pattern).all(dim=-1)
        if not found.any(dim=1).all():
            raise HarnessError("a conversation has no place where an answer follows a prompt.")
        return last_tokens(found)
