"""The processes of one training: what they share, and the policy that all of them roll out.

The first process decides, all of them compute. Process r of R has the rows r B/R ...
(r + 1) B/R - 1 of a batch of B, so that what all processes have, put one after the other, is in
the order of the batch. Without `accelerate launch` there is one process, which has everything.
What passes between the processes are pickles of their own making; nothing from outside is read so.

The weights of a `SharedPolicy` may be spread over the processes, so none of them can generate
alone. The first process asks for rollouts (`generate`) while the others wait for what it asks
(`follow`); each generates its share, and everybody gets all of it. What decides a rollout are its
own random numbers, derived from a root, the place of its prompt and the number of the rollout. So
rollouts do not depend on how many processes there are, up to rounding in the forward pass, which
now and then tips a draw.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

import numpy as np
import torch
from accelerate import PartialState
from accelerate.utils import broadcast_object_list, gather_object
from numpy.typing import NDArray
from transformers import GenerationConfig, LogitsProcessor, LogitsProcessorList
from trl.models.utils import unwrap_model_for_generation

from harness.models.loading import Conversation, pad, stop_token_ids, tokenize
from harness.models.policy import Completion, next_tokens

Row = TypeVar("Row")

Draw = tuple[int, int, int]
"""Root of the random numbers, place of the prompt, number of the rollout."""

SAMPLING = ("temperature", "top_p", "max_new_tokens")
"""What is said of how rollouts are sampled, by the names of `harness.models.policy.generate`."""


def count() -> int:
    """Return the number of processes."""
    return int(PartialState().num_processes)


def is_first() -> bool:
    """Return whether this is the process that decides."""
    return bool(PartialState().is_main_process)


def all_gather(rows: Sequence[Row]) -> list[Row]:
    """Return the rows of all processes in their order; every process calls this."""
    return list(gather_object(list(rows)))


def broadcast(thing: Any = None) -> Any:
    """Return what the first process gives; every process calls this."""
    return broadcast_object_list([thing])[0]


def local_shard(rows: Sequence[Row]) -> list[Row]:
    """Return this process's share of a batch that the number of processes divides."""
    share = len(rows) // count()
    first = int(PartialState().process_index) * share
    return list(rows[first : first + share])


class SharedPolicy:
    """The policy of a trainer, as all processes of the training have it.

    Attributes:
        tokenizer: the policy's tokenizer.
    """

    def __init__(self, trainer: Any, tokenizer: Any, sampling: Any, share: int) -> None:
        """Take the policy of one of TRL's online trainers.

        `sampling` says how a step's rollouts are sampled, `share` how many of them a process
        generates together.
        """
        self.tokenizer = tokenizer
        self._trainer = trainer
        self._share = share
        self._sampling = {name: getattr(sampling, name) for name in SAMPLING}
        self._stops = stop_token_ids(tokenizer)

    @property
    def model(self) -> Any:
        """The model that is trained; what lays it on devices may replace it."""
        return self._trainer.model

    def generate(
        self,
        conversations: Sequence[Conversation],
        *,
        n: int,
        batch_size: int,
        seed: int,
        **sampling: Any,
    ) -> list[list[Completion]]:
        """Roll P conversations out n times each with all processes; the first one calls this.

        The arguments are those of `harness.models.policy.generate`.
        """
        request = {
            "conversations": [[dict(message) for message in c] for c in conversations],
            "n": n,
            "seed": seed,
            "together": min(batch_size, self._share),
            "sampling": sampling,
        }
        return self._roll_out(broadcast(request))

    def dismiss(self, answer: Any) -> None:
        """Let the others go on, with what the first process has for them."""
        broadcast({"answer": answer})

    def follow(self) -> Any:
        """Take part in what the first process asks for, and return what it dismisses with."""
        while "answer" not in (request := broadcast()):
            self._roll_out(request)
        return request["answer"]

    def sample(self, prompts: Sequence[Sequence[int]], draws: Sequence[Draw]) -> list[list[int]]:
        """Roll out this process's rows of a step; every process calls this with as many.

        Given the token ids of B prompts, and where the random numbers of each come from, return B
        rollouts with the token that ends the turn, where there is one.
        """
        return self._sampled(prompts, draws, **self._sampling)

    def _roll_out(self, request: dict[str, Any]) -> list[list[Completion]]:
        n, seed, together = request["n"], request["seed"], request["together"]
        ids = tokenize(self.tokenizer, request["conversations"], add_generation_prompt=True)
        rows = [(ids[i], (seed, i, j)) for i in range(len(ids)) for j in range(n)]
        # Everybody has to have as many, as forward passes over spread weights are made together.
        even = rows + rows[-1:] * (-len(rows) % count())
        own = local_shard(even)
        sampled: list[list[int]] = []
        for first in range(0, len(own), together):
            prompts, draws = zip(*own[first : first + together], strict=True)
            sampled += self._sampled(prompts, draws, **request["sampling"])
        completions = [self._completion(tokens) for tokens in all_gather(sampled)[: len(rows)]]
        return [completions[i : i + n] for i in range(0, len(rows), n)]

    def _completion(self, tokens: list[int]) -> Completion:
        kept = tokens[:-1] if tokens and tokens[-1] in self._stops else tokens
        text = self.tokenizer.decode(
            kept, skip_special_tokens=True, clean_up_tokenization_spaces=False
        )
        return Completion(str(text).strip(), len(kept))

    def _sampled(
        self,
        prompts: Sequence[Sequence[int]],
        draws: Sequence[Draw],
        *,
        temperature: float,
        top_p: float,
        max_new_tokens: int,
    ) -> list[list[int]]:
        accelerator, training = self._trainer.accelerator, self.model.training
        device = str(accelerator.device)
        ids, mask = pad(self.tokenizer, prompts, "left", device)
        uniforms = np.stack([np.random.default_rng(draw).random(max_new_tokens) for draw in draws])
        drawn = Drawn(uniforms, ids.shape[1], temperature, top_p)
        config = GenerationConfig(
            max_new_tokens=max_new_tokens,
            do_sample=False,  # `Drawn` leaves one token to choose
            pad_token_id=self.tokenizer.pad_token_id,
            eos_token_id=self._stops,
            use_cache=True,  # switched off by the trainers
            disable_compile=True,
        )
        self.model.eval()
        with (
            unwrap_model_for_generation(
                self._trainer.model_wrapped,
                accelerator,
                gradient_checkpointing_kwargs=self._trainer.args.gradient_checkpointing_kwargs,
            ) as model,
            torch.no_grad(),
        ):
            output = model.generate(
                input_ids=ids,
                attention_mask=mask,
                generation_config=config,
                logits_processor=LogitsProcessorList([drawn]),
                synced_gpus=count() > 1,
            )
        self.model.train(training)
        return [self._until_the_end(row) for row in output[:, ids.shape[1] :].tolist()]

    def _until_the_end(self, tokens: list[int]) -> list[int]:
        ends = [i for i, token in enumerate(tokens) if token in self._stops]
        return tokens[: ends[0] + 1] if ends else tokens


class Drawn(LogitsProcessor):  # type: ignore[misc]
    """Draws each row's next token with its own random numbers, and leaves only that one."""

    def __init__(
        self, uniforms: NDArray[np.float64], start: int, temperature: float, top_p: float
    ) -> None:
        """Begin a generation after `start` tokens of padded prompts, with B x M random numbers."""
        self._uniforms = torch.from_numpy(uniforms)
        self._start = start
        self._temperature = temperature
        self._top_p = top_p

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        """Return B x V scores that are 0 for the token drawn and minus infinity for the rest."""
        uniforms = self._uniforms[:, input_ids.shape[1] - self._start].to(scores.device)
        tokens = next_tokens(scores, self._temperature, self._top_p, uniforms)
        return torch.full_like(scores, -torch.inf).scatter(1, tokens[:, None], 0.0)
