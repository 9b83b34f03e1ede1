"""The pair-preference model: a language model that answers which of two answers is better.

The model. A Llama-3 is shown a conversation and two answers, as one message of a user,

    [CONTEXT] {turns} [RESPONSE A] {first} [RESPONSE B] {second}

and was trained to answer with the letter of the better one. The logit for the first is that of the
token `A` minus that of `B`, where its answer would begin. Both orders are read, and the mean of
the two probabilities counts, as its authors do.

Nothing in such a checkpoint tells it from any other Llama: it is read so because the profile gives
it a pairwise role.

Rules. There is no BOS (its authors take it out). The turns' roles are those of their places: user,
assistant, user. What is longer than the model's context loses tokens from the ends of both answers,
which keep equally many; where the prompt leaves them no room, that is an error. The model was
trained on up to 3,072 tokens, and longer texts are new to it.

Source: Dong et al. (2024), "RLHF Workflow"; model card and training code of
RLHFlow/pair-preference-model-LLaMA3-8B.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar, Self

import torch
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerBase

from harness.errors import HarnessError, UserError
from harness.models.loading import Conversation, load_strictly, load_tokenizer
from harness.models.reader import (
    Average,
    Chat,
    Comparison,
    Encoded,
    PairModel,
    last_tokens,
    single_tokens,
    spellings,
    without,
)

ARCHITECTURE = "LlamaForCausalLM"
"""Name of the architecture in the published `config.json`."""

ANSWER_BEGINS = "<|start_header_id|>assistant<|end_header_id|>\n\n"
"""What a rendered message has to end with."""

LETTERS = ("A", "B")

CONTEXT, RESPONSE_A, RESPONSE_B = MARKS = ("[CONTEXT]", "[RESPONSE A]", "[RESPONSE B]")
"""What divides the message; taken out of the texts, lest an answer end where it does not."""

_TAKEN_OUT = spellings(MARKS)


class PairPreferenceLLM(PairModel):
    """A language model that compares two answers to a conversation."""

    format: ClassVar[str] = "pair-preference language model"
    averages: ClassVar[Average] = "probabilities"

    def __init__(
        self, model: Any, tokenizer: PreTrainedTokenizerBase, chat: Chat, letters: list[int]
    ) -> None:
        """Keep what `load` has loaded, with the ids of the letters."""
        super().__init__(model, tokenizer)
        self._chat = chat
        first, second = model.lm_head.weight.detach()[letters].float()
        self._direction = first - second

    @classmethod
    def load(cls, path: Path, config: dict[str, Any], device: str, dtype: str) -> Self:
        """Load a pair-preference model; UserError if the files are others."""
        tokenizer = load_tokenizer(path)
        letters = single_tokens(tokenizer, LETTERS, path)
        settings = LlamaConfig.from_pretrained(path, local_files_only=True)
        chat = Chat(tokenizer, path, settings.max_position_embeddings, bos=False)
        begins = tokenizer(ANSWER_BEGINS, add_special_tokens=False)["input_ids"]
        [ids] = chat.render([[{"role": "user", "content": "a"}]], add_generation_prompt=True)
        if ids[-len(begins) :] != begins:
            raise UserError(
                f"the chat template at {path} does not begin an answer with "
                f"{ANSWER_BEGINS.strip()}: take the tokenizer files that were published with the "
                "pair-preference model."
            )
        model = load_strictly(LlamaForCausalLM, path, device, dtype)
        return cls(model, tokenizer, chat, letters)

    def encode_pairs(self, pairs: Sequence[Comparison]) -> list[Encoded]:
        """Return the tokens of the messages that ask which answer is better.

        Raises:
            UserError: a prompt leaves no room for answers.
        """
        return [
            Encoded(tuple(ids), False)
            if len(ids) <= self._chat.limit
            else Encoded(self._cut(pair), True)
            for pair, ids in zip(pairs, self._asked(pairs), strict=True)
        ]

    def read(self, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        """Return B logits for "the first is better"."""
        network = self.model.model
        hidden = network(input_ids=ids, attention_mask=mask, use_cache=False).last_hidden_state
        rows = torch.arange(len(ids), device=ids.device)
        logits: torch.Tensor = hidden[rows, last_tokens(mask)].float() @ self._direction
        return logits

    def _asked(self, pairs: Sequence[Comparison]) -> list[list[int]]:
        """Return the tokens of whole messages, however long they are."""
        messages = [[{"role": "user", "content": question(*pair)}] for pair in pairs]
        return self._chat.render(messages, add_generation_prompt=True)

    def _cut(self, pair: Comparison) -> tuple[int, ...]:
        """Return the tokens of a message whose answers are cut until it fits."""
        limit = self._chat.limit
        [empty] = self._asked([pair._replace(first="", second="")])
        room = (limit - len(empty)) // 2
        while room > 0:
            first, second = (self._beginning(text, room) for text in pair[1:])
            [ids] = self._asked([pair._replace(first=first, second=second)])
            if len(ids) <= limit:
                return tuple(ids)
            # Where a text is cut, its last tokens may become more.
            room -= (len(ids) - limit + 1) // 2
        raise UserError(
            f"a prompt of {len(empty)} tokens leaves no room for two answers in the {limit} that "
            "the pair-preference model reads: leave it out; it begins with "
            f"{pair.conversation[0]['content'][:60]!r}."
        )

    def _beginning(self, text: str, tokens: int) -> str:
        """Return the part of a text that is its first tokens."""
        spans = self.tokenizer(text, add_special_tokens=False, return_offsets_mapping=True)
        ends = [end for _, end in spans["offset_mapping"]]
        return text if len(ends) <= tokens else text[: ends[tokens - 1]]


def question(conversation: Conversation, first: str, second: str) -> str:
    """Return the message that asks which answer is better.

    Raises:
        HarnessError: the roles are not user and assistant in turn, ending with the user's.
    """
    roles = [message["role"] for message in conversation]
    if roles != [("user", "assistant")[i % 2] for i in range(len(roles))] or len(roles) % 2 == 0:
        raise HarnessError(
            "the pair-preference model reads turns of user and assistant in turn that end with "
            f"the user's, and a conversation here has {', '.join(roles) or 'none'}."
        )
    texts = [without(_TAKEN_OUT, m["content"]) for m in conversation]
    turns = [f"\n<turn> {role}\n {text}" for role, text in zip(roles, texts, strict=True)]
    a, b = (without(_TAKEN_OUT, text) for text in (first, second))
    return f"{CONTEXT} \n{''.join(turns)}\n {RESPONSE_A} {a} {RESPONSE_B} {b} \n"
