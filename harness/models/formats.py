"""Published reward model formats: how each is loaded, what it reads, and where its output is.

- `Armo`: a Llama whose reward is a prompt-dependent mixture of 19 objectives.
- `Classifier`: a decoder with a scalar output at the last token, such as Skywork-Reward. A pairwise
  one reads two answers as two consecutive assistant turns.
- `PairRM`: a DeBERTa that compares two answers by the embeddings of three markers in one sequence.
- `PairPreferenceLLM`: a language model that says which of two answers is better.

The network classes use the published parameter names. Source: the model cards, published code and
reports cited by each class; paper appendix A, section 4.2.3 and appendix G.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, ClassVar, Self

import torch
import transformers
from torch import nn
from transformers import (
    DebertaV2Config,
    DebertaV2Model,
    DebertaV2PreTrainedModel,
    LlamaConfig,
    LlamaForCausalLM,
    LlamaModel,
    LlamaPreTrainedModel,
    PreTrainedTokenizerBase,
)
from transformers.modeling_layers import GenericForSequenceClassification

from harness.errors import HarnessError, UserError
from harness.models import reader
from harness.models.loading import FIRST_IS_BETTER, Conversation, load_strictly, load_tokenizer
from harness.models.reader import Answered, Chat, Encoded, Reader

END_OF_TURN = "<|eot_id|>"

ANSWER_BEGINS = "<|start_header_id|>assistant<|end_header_id|>\n\n"
"""Start of an answer in Llama-3's chat template."""


class _ChatReader(Reader):
    """Reads conversations rendered with the chat template in its folder."""

    def __init__(self, model: Any, tokenizer: PreTrainedTokenizerBase, chat: Chat) -> None:
        super().__init__(model, tokenizer)
        self._chat = chat

    def encode(self, rows: Sequence[Answered]) -> list[Encoded]:
        return self._chat.encode([row.turns for row in rows])


def _check_ending(ids: list[int], ending: str, chat: Chat, path: Path) -> None:
    """Check that a conversation ends as in the published template, where the output is read."""
    expected = chat.tokenizer(ending, add_special_tokens=False)["input_ids"]
    if ids[-len(expected) :] != expected:
        raise UserError(
            f"the chat template at {path} does not end with {ending.split()[0]}, which this kind "
            "of reward model needs: use the tokenizer files published with it."
        )


class Gate(nn.Module):  # type: ignore[misc]
    """ArmoRM's gating network, which computes the objectives' coefficients from the prompt."""

    def __init__(self, config: LlamaConfig) -> None:
        super().__init__()
        width, hidden = config.hidden_size, config.gating_hidden_dim
        sizes = [width, *[hidden] * config.gating_n_hidden, config.num_objectives]
        self.temperature = config.gating_temperature
        self.logit_scale = nn.Parameter(torch.ones(1))
        self.layers = nn.ModuleList(nn.Linear(a, b) for a, b in pairwise(sizes))

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        """Return B x K coefficients from B x H hidden states at the end of the prompt."""
        *inner, last = self.layers
        for layer in inner:
            hidden = torch.relu(layer(hidden))
        return torch.softmax(last(hidden) / self.temperature, dim=-1) * self.logit_scale


class ArmoModel(LlamaPreTrainedModel):  # type: ignore[misc]
    """ArmoRM's network; its heads run in float32, which seems to be their published format."""

    config_class = LlamaConfig
    base_model_prefix = "model"
    _keep_in_fp32_modules_strict = ("regression_layer", "reward_transform_matrix", "gating")

    def __init__(self, config: LlamaConfig) -> None:
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
        """Return B rewards for B x T token ids, given the positions where the prompts end."""
        hidden = self.model(input_ids=ids, attention_mask=mask, use_cache=False).last_hidden_state
        hidden, rows = hidden.float(), torch.arange(len(ids), device=ids.device)
        rewards = self.regression_layer(hidden[rows, reader.last_tokens(mask)])
        coefficients = self.gating(hidden[rows, prompt_ends])
        return (coefficients * (rewards @ self.reward_transform_matrix)).sum(dim=-1)


class Armo(_ChatReader):
    """ArmoRM, which scores one answer.

    A linear layer maps the last token's hidden state to 19 rewards r. A small network maps the
    hidden state h at the token that closes the prompt to 19 coefficients
    g = softmax(mlp(h) / temperature) · scale. A fixed matrix T removes the verbosity component from
    every objective. The reward is g · (r T), with r a row vector.

    Source: Wang et al. (2024), "Interpretable Preferences via Multi-Objective Reward Modeling and
    Mixture-of-Experts"; card and code of RLHFlow/ArmoRM-Llama3-8B-v0.1.
    """

    format = "ArmoRM"
    architecture: ClassVar[str] = "LlamaForRewardModelWithGating"
    max_length: ClassVar[int] = 4096
    """Longest conversation, in tokens (model card)."""

    @classmethod
    def load(cls, path: Path, config: dict[str, Any], device: str, dtype: str) -> Self:
        tokenizer = load_tokenizer(path)
        chat = Chat(tokenizer, min(config["max_position_embeddings"], cls.max_length))
        [ids] = chat.render([Answered([{"role": "user", "content": "a"}], ("b",)).turns])
        _check_ending(ids, f"{END_OF_TURN}{ANSWER_BEGINS}b{END_OF_TURN}", chat, path)
        return cls(load_strictly(ArmoModel, path, device, dtype), tokenizer, chat)

    def read(self, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        rewards: torch.Tensor = self.model(ids, mask, self.prompt_ends(ids))
        return rewards

    def prompt_ends(self, ids: torch.Tensor) -> torch.Tensor:
        """Return the position where each row's last user turn closes, shape (B,)."""
        follows = self.tokenizer(END_OF_TURN + ANSWER_BEGINS, add_special_tokens=False)["input_ids"]
        pattern = torch.tensor(follows, device=ids.device)
        return reader.last_tokens((ids.unfold(1, len(pattern), 1) == pattern).all(dim=-1))


class Classifier(_ChatReader):
    """A sequence classifier with a scalar output at the last token of a conversation.

    A transformers decoder (Gemma-2, Llama, Qwen, Mistral …) reads the conversation, and a linear
    head without bias maps the last token's hidden state to the output. If the configuration names
    the output `FIRST_IS_BETTER`, both answers are read, as two turns.

    Source: Skywork-Reward's model card and report.
    """

    format = "sequence classifier"
    max_length: ClassVar[int] = 16_384
    """Longest conversation, in tokens, unless the model's own limit is lower: the longest training
    length among the Skywork models."""

    @classmethod
    def load(cls, path: Path, config: dict[str, Any], device: str, dtype: str) -> Self:
        architecture = config["architectures"][0]
        kind: Any = getattr(transformers, architecture, object)
        if not issubclass(kind, GenericForSequenceClassification):
            raise UserError(
                f"the model at {path} is a {architecture}, which is not a decoder with a number at "
                "its last token: that kind of reward model cannot be read here."
            )
        settings = kind.config_class.from_pretrained(path, local_files_only=True)
        if settings.num_labels != 1:
            raise UserError(
                f"the reward model at {path} has {settings.num_labels} outputs: one is needed."
            )
        tokenizer = load_tokenizer(path)
        chat = Chat(tokenizer, min(settings.max_position_embeddings, cls.max_length))
        model = load_strictly(kind, path, device, dtype)
        model.score.float()
        found = cls(model, tokenizer, chat)
        if FIRST_IS_BETTER in settings.id2label.values():
            found.format, found.averages = "sequence classifier of two turns", "logits"
        return found

    def read(self, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        model = self.model
        hidden = model.model(input_ids=ids, attention_mask=mask, use_cache=False).last_hidden_state
        outputs: torch.Tensor = model.score(hidden.float())[:, :, 0]
        return outputs.gather(1, reader.last_tokens(mask)[:, None])[:, 0]


class PairRMModel(DebertaV2PreTrainedModel):  # type: ignore[misc]
    config_class = DebertaV2Config
    base_model_prefix = "pretrained_model"
    _keep_in_fp32_modules_strict = ("head_layer",)

    def __init__(self, config: DebertaV2Config) -> None:
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
        """Return B logits for "the first is better", given the B x 3 marker positions."""
        hidden = self.pretrained_model(input_ids=ids, attention_mask=mask).last_hidden_state
        rows = torch.arange(len(ids), device=ids.device)[:, None]
        source, first, second = hidden[rows, marks].float().unbind(dim=1)
        left = self.head_layer(torch.cat([source, first], dim=-1))
        right = self.head_layer(torch.cat([source, second], dim=-1))
        return (left - right).mean(dim=-1)


class PairRM(Reader):
    """PairRM, which compares two answers to a single-turn prompt.

    One sequence has the prompt and both answers, each preceded by a marker,

        [CLS] <|source|> P [SEP] [CLS] <|candidate1|> A [SEP] [CLS] <|candidate2|> B [SEP]

    and a two-layer head scores the pairs of hidden states (s, a) and (s, b) at the markers. The
    logit for "A is better" is the first score minus the second, averaged over tasks if there are
    several. Markers and control tokens are removed from the texts, so each marker occurs only in
    its place. The authors' multi-turn format is not implemented.

    Source: Jiang et al. (2023), "LLM-Blender"; card and configuration of llm-blender/PairRM-hf.
    """

    format = "PairRM"
    averages = "logits"
    architecture: ClassVar[str] = "DebertaV2PairRM"
    max_source: ClassVar[int] = 1224
    """Longest prompt, in tokens, including its marker, [CLS] and [SEP]."""
    max_length: ClassVar[int] = 2048
    """Longest sequence, in tokens; each answer gets half of what the prompt leaves."""
    marks: ClassVar = ("<|source|>", "<|candidate1|>", "<|candidate2|>")
    """Markers of the prompt, the first and the second answer."""

    def __init__(self, model: Any, tokenizer: PreTrainedTokenizerBase, mark_ids: list[int]) -> None:
        super().__init__(model, tokenizer)
        # The tokenizer has a fourth marker, which this format does not use.
        forged = {*reader.control_tokens(tokenizer), *self.marks, "<|candidate|>"}
        self._taken_out = reader.spellings(forged)
        self._mark_ids = torch.tensor(mark_ids)

    @classmethod
    def load(cls, path: Path, config: dict[str, Any], device: str, dtype: str) -> Self:
        tokenizer = load_tokenizer(path)
        mark_ids = reader.single_tokens(tokenizer, cls.marks, path)
        return cls(load_strictly(PairRMModel, path, device, dtype), tokenizer, mark_ids)

    def encode(self, rows: Sequence[Answered]) -> list[Encoded]:
        if any(len(row.conversation) != 1 for row in rows):
            raise HarnessError(
                "PairRM compares answers to one turn of a user, and a conversation here has more."
            )
        marked = [
            [
                mark + reader.without(self._taken_out, turn["content"])
                for mark, turn in zip(self.marks, row.turns, strict=True)
            ]
            for row in rows
        ]
        distinct = list(dict.fromkeys(text for part in marked for text in part))
        ids = self.tokenizer(distinct)["input_ids"] if distinct else []
        known = dict(zip(distinct, ids, strict=True))
        return [self._joined(*(known[text] for text in part)) for part in marked]

    def _joined(self, source: list[int], first: list[int], second: list[int]) -> Encoded:
        """Concatenate the three parts, each truncated to its limit but keeping its last token."""

        def cut(ids: list[int], limit: int) -> list[int]:
            return ids if len(ids) <= limit else [*ids[: limit - 1], ids[-1]]

        prompt = cut(source, self.max_source)
        room = (self.max_length - len(prompt)) // 2
        tokens = (*prompt, *cut(first, room), *cut(second, room))
        return Encoded(tokens, len(tokens) < len(source) + len(first) + len(second))

    def read(self, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        marks = self._mark_ids.to(ids.device)
        logits: torch.Tensor = self.model(ids, mask, (ids[:, :, None] == marks).int().argmax(dim=1))
        return logits


CONTEXT, RESPONSE_A, RESPONSE_B = _DIVIDERS = ("[CONTEXT]", "[RESPONSE A]", "[RESPONSE B]")
_DIVIDING = reader.spellings(_DIVIDERS)


class PairPreferenceLLM(_ChatReader):
    """A language model that compares two answers to a conversation.

    A Llama-3 is given a conversation and two answers in one user message (`question`), and was
    trained to reply with the letter of the better one. The logit for the first is that of the token
    `A` minus that of `B` where its reply would begin. There is no BOS, as its authors remove it.
    Nothing distinguishes such a checkpoint from any other Llama; it is read this way because the
    profile gives it a pairwise role. Texts longer than its context are not read; it was trained on
    up to 3,072 tokens, so longer texts are out of distribution.

    Source: Dong et al. (2024), "RLHF Workflow"; card and training code of
    RLHFlow/pair-preference-model-LLaMA3-8B.
    """

    format = "pair-preference language model"
    averages = "probabilities"
    architecture: ClassVar[str] = "LlamaForCausalLM"

    def __init__(
        self, model: Any, tokenizer: PreTrainedTokenizerBase, chat: Chat, letters: list[int]
    ) -> None:
        super().__init__(model, tokenizer, chat)
        first, second = model.lm_head.weight.detach()[letters].float()
        self._direction = first - second

    @classmethod
    def load(cls, path: Path, config: dict[str, Any], device: str, dtype: str) -> Self:
        tokenizer = load_tokenizer(path)
        letters = reader.single_tokens(tokenizer, ("A", "B"), path)
        chat = Chat(tokenizer, config["max_position_embeddings"], bos=False)
        [ids] = chat.render([[{"role": "user", "content": "a"}]], add_generation_prompt=True)
        _check_ending(ids, ANSWER_BEGINS, chat, path)
        return cls(load_strictly(LlamaForCausalLM, path, device, dtype), tokenizer, chat, letters)

    def encode(self, rows: Sequence[Answered]) -> list[Encoded]:
        messages = [[{"role": "user", "content": question(*row)}] for row in rows]
        read = self._chat.render(messages, add_generation_prompt=True)
        return [Encoded(tuple(ids) if len(ids) <= self._chat.limit else (), False) for ids in read]

    def read(self, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        network = self.model.model
        hidden = network(input_ids=ids, attention_mask=mask, use_cache=False).last_hidden_state
        rows = torch.arange(len(ids), device=ids.device)
        logits: torch.Tensor = hidden[rows, reader.last_tokens(mask)].float() @ self._direction
        return logits


def question(conversation: Conversation, answers: Sequence[str]) -> str:
    """Return the message that asks which answer is better; an answer cannot forge its own end."""
    roles = [message["role"] for message in conversation]
    if roles != [("user", "assistant")[i % 2] for i in range(len(roles))] or len(roles) % 2 == 0:
        raise HarnessError(
            "the pair-preference model reads turns of user and assistant in turn that end with "
            f"the user's, and a conversation here has {', '.join(roles) or 'none'}."
        )
    texts = [reader.without(_DIVIDING, m["content"]) for m in conversation]
    turns = [f"\n<turn> {role}\n {text}" for role, text in zip(roles, texts, strict=True)]
    a, b = (reader.without(_DIVIDING, text) for text in answers)
    return f"{CONTEXT} \n{''.join(turns)}\n {RESPONSE_A} {a} {RESPONSE_B} {b} \n"
