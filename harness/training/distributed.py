"""Multi-process training: shared data, joint rollouts, and saved state.

The first process makes the decisions and all processes compute. Process r of R holds rows r B/R ...
(r + 1) B/R - 1 of a batch of B, so concatenating the shards restores batch order. Processes
exchange pickles that they created themselves; no pickle from outside is ever loaded.

*Rollouts.* The weights of a `SharedPolicy` may be sharded, so no process can generate alone: the
first requests rollouts (`generate`) while the others wait for requests (`follow`). Each rollout has
random numbers of its own, seeded by a root, the prompt's index, and the rollout's index, so
rollouts do not depend on the number of processes, except where rounding changes a draw.

*Saved state* is safetensors, because the trainers' own checkpoints are pickles: weights as an
ordinary checkpoint (adapters merged), and optimizer state as one tensor per parameter and moment,
keyed by parameter number, so the next segment can run on other devices.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
from accelerate import PartialState
from accelerate.utils import broadcast_object_list, gather_object
from numpy.typing import NDArray
from safetensors.torch import load_file, save_file
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_model_state_dict,
    get_optimizer_state_dict,
    set_optimizer_state_dict,
)
from transformers import (
    GenerationConfig,
    LogitsProcessor,
    LogitsProcessorList,
    TrainerCallback,
)
from trl.models.utils import unwrap_model_for_generation

from harness.models.loading import DTYPES, Conversation, load_model, pad, stop_token_ids, tokenize
from harness.models.policy import Completion, completion_of, next_tokens
from harness.training.placement import Placement

Row = TypeVar("Row")

Draw = tuple[int, int, int]
"""Seed of one rollout: root, prompt index, rollout index."""

SAMPLING = ("temperature", "top_p", "max_new_tokens")
"""Sampling settings, named as in `harness.models.policy.generate`."""


def process_count() -> int:
    return int(PartialState().num_processes)


def is_first() -> bool:
    return bool(PartialState().is_main_process)


def all_gather(rows: Sequence[Row]) -> list[Row]:
    """Return the rows of all processes, in process order; every process must call this."""
    return list(gather_object(list(rows)))


def broadcast(thing: Any = None) -> Any:
    """Return the first process's argument; every process must call this."""
    return broadcast_object_list([thing])[0]


def local_shard(rows: Sequence[Row]) -> list[Row]:
    """Return this process's share of a batch whose size the number of processes divides."""
    share = len(rows) // process_count()
    first = int(PartialState().process_index) * share
    return list(rows[first : first + share])


class SharedPolicy:
    """The policy of a TRL online trainer, possibly sharded across the training's processes."""

    def __init__(self, trainer: Any, tokenizer: Any, sampling: Any, share: int) -> None:
        """`sampling` has the attributes in `SAMPLING`; `share` is a process's generation batch."""
        self.tokenizer = tokenizer
        self._trainer = trainer
        self._share = share
        self._sampling = {name: getattr(sampling, name) for name in SAMPLING}
        self._stops = stop_token_ids(tokenizer)
        # A checkpoint's own (a repetition penalty, say) would fill in what ours leaves open.
        self.model.generation_config = GenerationConfig()

    @property
    def model(self) -> Any:
        """The model being trained; placing it on devices may replace the object."""
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
        """Roll out P conversations n times each on all processes; only the first calls this."""
        request = {
            "conversations": [[dict(message) for message in c] for c in conversations],
            "n": n,
            "seed": seed,
            "together": min(batch_size, self._share),
            "sampling": sampling,
        }
        return self._roll_out(broadcast(request))

    def dismiss(self, answer: Any) -> None:
        """Release the other processes from `follow`, which returns `answer` there."""
        broadcast({"answer": answer})

    def follow(self) -> Any:
        """Serve the first process's rollout requests until `dismiss`, and return its answer."""
        while "answer" not in (request := broadcast()):
            self._roll_out(request)
        return request["answer"]

    def sample(self, prompts: Sequence[Sequence[int]], draws: Sequence[Draw]) -> list[list[int]]:
        """Roll out this process's rows of a step; every process calls this with equally many."""
        return self._sampled(prompts, draws, **self._sampling)

    def _roll_out(self, request: dict[str, Any]) -> list[list[Completion]]:
        n, seed, together = request["n"], request["seed"], request["together"]
        ids = tokenize(self.tokenizer, request["conversations"], add_generation_prompt=True)
        rows = [(ids[i], (seed, i, j)) for i in range(len(ids)) for j in range(n)]
        # Pad to equal shares: forward passes over sharded weights are collective.
        even = rows + rows[-1:] * (-len(rows) % process_count())
        own = local_shard(even)
        sampled: list[list[int]] = []
        for first in range(0, len(own), together):
            prompts, draws = zip(*own[first : first + together], strict=True)
            sampled += self._sampled(prompts, draws, **request["sampling"])
        completions = [
            completion_of(self.tokenizer, tokens, self._stops)
            for tokens in all_gather(sampled)[: len(rows)]
        ]
        return [completions[i : i + n] for i in range(0, len(rows), n)]

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
        drawn = OwnDraws(uniforms, ids.shape[1], temperature, top_p)
        config = GenerationConfig(
            max_new_tokens=max_new_tokens,
            do_sample=False,  # `OwnDraws` leaves only one candidate token
            pad_token_id=self.tokenizer.pad_token_id,
            eos_token_id=self._stops,
            use_cache=True,  # the trainers turn it off
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
                synced_gpus=process_count() > 1,
            )
        self.model.train(training)
        rows = output[:, ids.shape[1] :].tolist()
        ends = [[i for i, token in enumerate(row) if token in self._stops] for row in rows]
        return [row[: end[0] + 1] if end else row for row, end in zip(rows, ends, strict=True)]


class OwnDraws(LogitsProcessor):  # type: ignore[misc]
    """Draws each row's next token with its own random numbers and masks all other tokens."""

    def __init__(
        self, uniforms: NDArray[np.float64], start: int, temperature: float, top_p: float
    ) -> None:
        """`start` is the padded prompt length; `uniforms` is B x M, one per row and new token."""
        self._uniforms = torch.from_numpy(uniforms)
        self._start = start
        self._temperature = temperature
        self._top_p = top_p

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        """Return B x V scores: 0 for the drawn token and minus infinity for the rest."""
        uniforms = self._uniforms[:, input_ids.shape[1] - self._start].to(scores.device)
        tokens = next_tokens(scores, self._temperature, self._top_p, uniforms)
        return torch.full_like(scores, -torch.inf).scatter(1, tokens[:, None], 0.0)


# Saved state.

FULL_STATE = StateDictOptions(full_state_dict=True, cpu_offload=True)
"""Gather the full state on the first process only."""


def save_policy(
    trainer: Any,
    tokenizer: Any,
    start: Path,
    folder: Path,
    place: Placement,
    *,
    resumable: bool = False,
) -> None:
    """Save the policy trained from checkpoint `start`; `resumable` keeps full float32 precision."""
    weights = get_model_state_dict(trainer.model_wrapped, options=FULL_STATE)
    if is_first():
        policy = load_model(start)
        if place.lora is None:
            policy.load_state_dict(weights)
        else:
            from peft import PeftModel

            adapted = trainer.accelerator.unwrap_model(trainer.model)
            with tempfile.TemporaryDirectory() as scratch:
                adapted.save_pretrained(scratch, state_dict=weights)
                policy = PeftModel.from_pretrained(policy, scratch).merge_and_unload()
        policy.to(DTYPES["float32" if resumable else place.dtype]).save_pretrained(folder)
        tokenizer.save_pretrained(folder)
    trainer.accelerator.wait_for_everyone()


def save_optimizer(trainer: Any, path: Path) -> None:
    """Save the optimizer state as safetensors with keys `<parameter number>.<name>`."""
    whole = get_optimizer_state_dict(trainer.model_wrapped, _optimizer(trainer), options=FULL_STATE)
    if is_first():
        kept = {
            f"{number}.{name}": value
            for number, parameter in enumerate(_numbered(whole))
            for name, value in whole["state"][parameter].items()
        }
        save_file(kept, path)


class GivenOptimizer(TrainerCallback):  # type: ignore[misc]
    """Loads the previous segment's optimizer state once everything is on its devices."""

    def __init__(self, trainer: Any, path: Path) -> None:
        self._trainer = trainer
        self._path = path

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        model, optimizer = self._trainer.model_wrapped, _optimizer(self._trainer)
        given = get_optimizer_state_dict(model, optimizer)
        if is_first():
            names, whole = _numbered(given), dict[str, dict[str, torch.Tensor]]()
            for key, value in load_file(self._path).items():
                number, _, name = key.partition(".")
                whole.setdefault(names[int(number)], {})[name] = value
            given["state"] = whole
        spread = StateDictOptions(full_state_dict=True, broadcast_from_rank0=process_count() > 1)
        set_optimizer_state_dict(model, optimizer, given, options=spread)


def _optimizer(trainer: Any) -> torch.optim.Optimizer:
    wrapped: torch.optim.Optimizer = trainer.optimizer
    return getattr(wrapped, "optimizer", wrapped)


def _numbered(state: Mapping[str, Any]) -> list[str]:
    """Return the parameter names in the optimizer's order."""
    return [name for group in state["param_groups"] for name in group["params"]]
