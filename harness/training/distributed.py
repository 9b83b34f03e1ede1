"""The processes of one training: what they share, roll out together, and leave behind.

The first process decides, all of them compute. Process r of R has the rows r B/R ...
(r + 1) B/R - 1 of a batch of B, so that what all processes have, put one after the other, is in
the order of the batch. Without `accelerate launch` there is one process, which has everything.
What passes between the processes are pickles of their own making; nothing from outside is read so.

*Rollouts.* The weights of a `SharedPolicy` may be spread over the processes, so none of them can
generate alone. The first process asks for rollouts (`generate`) while the others wait for what it
asks (`follow`); each generates its share, and everybody gets all of it. What decides a rollout are
its own random numbers, derived from a root, the place of its prompt and the number of the rollout.
So rollouts do not depend on how many processes there are, up to rounding in the forward pass, which
now and then tips a draw.

*What is left behind* is safetensors, as the trainers' own checkpoints are pickles, which are not to
be read from anybody. It does not show how it was spread over processes, so that a segment may go on
on other devices: weights as a checkpoint like any other (adapters merged into it), the optimizer's
state as one tensor for each parameter and moment (AdamW's running means), by the parameter's
number. It is gathered one tensor at a time, by every process.

- *Whole in each process*: taken as it is.
- *FSDP*: each tensor is a `DTensor`.
- *ZeRO-3*: DeepSpeed keeps float32 weights and moments in partitions, beside the bfloat16 weights
  that the model computes with. Its functions for each parameter read and set them. Were only the
  bfloat16 weights kept, most of what a segment learned would be lost to rounding at its end.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
from accelerate import PartialState
from accelerate.utils import broadcast_object_list, gather_object
from numpy.typing import NDArray
from safetensors import safe_open
from safetensors.torch import save_file
from transformers import (
    GenerationConfig,
    LogitsProcessor,
    LogitsProcessorList,
    PreTrainedTokenizerBase,
    TrainerCallback,
)
from trl.models.utils import unwrap_model_for_generation

from harness.errors import HarnessError
from harness.models.loading import DTYPES, Conversation, load_model, pad, stop_token_ids, tokenize
from harness.models.policy import Completion, next_tokens
from harness.training.placement import Placement

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
    """The policy of one of TRL's online trainers, as all processes of the training have it."""

    def __init__(self, trainer: Any, tokenizer: Any, sampling: Any, share: int) -> None:
        """`sampling` says how rollouts are sampled, `share` how many a process makes at once."""
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


# What is left behind.

MOMENTS = ("exp_avg", "exp_avg_sq")
"""AdamW's, by the names of torch and DeepSpeed."""


def save_policy(
    trainer: Any,
    tokenizer: PreTrainedTokenizerBase,
    start: Path,
    folder: Path,
    place: Placement,
    *,
    to_go_on: bool = False,
) -> None:
    """Write the policy that was trained from a checkpoint; every process calls this.

    The first process writes. `to_go_on` writes float32 with all that was learned, whatever the
    placement's number format.
    """
    accelerator = trainer.accelerator
    if to_go_on and trainer.is_deepspeed_enabled:
        weights = _master_weights(trainer)
    else:
        weights = accelerator.get_state_dict(trainer.model_wrapped)
    if is_first():
        if place.lora is None:
            policy = whole_model(start, weights)
        else:
            with plain_loading():
                policy = load_model(start)
            policy = _merged(policy, accelerator.unwrap_model(trainer.model), weights)
        policy.to(DTYPES["float32" if to_go_on else place.dtype]).save_pretrained(folder)
        tokenizer.save_pretrained(folder)
    accelerator.wait_for_everyone()


def _merged(policy: Any, adapted: Any, weights: dict[str, Any]) -> Any:
    """Return a policy with the adapters of its adapted twin merged into it."""
    from peft import PeftModel

    with tempfile.TemporaryDirectory() as scratch:
        adapted.save_pretrained(scratch, state_dict=weights)
        return PeftModel.from_pretrained(policy, scratch).merge_and_unload()


def save_optimizer(trainer: Any, path: Path) -> None:
    """Write the optimizer's state as safetensors, `<parameter>.<name>` each.

    Every process calls this, the first one writes.
    """
    kept = {name: value for name, value in _optimizer_state(trainer) if value is not None}
    if is_first():
        save_file(kept, path)


class GivenOptimizer(TrainerCallback):  # type: ignore[misc]
    """Gives the optimiser the state that a segment left, once everything lies on its devices.

    Under ZeRO-3 also the weights in float32, of which the model took the nearest in bfloat16.
    """

    def __init__(self, trainer: Any, policy: Path, state: Path | None) -> None:
        self._trainer = trainer
        self._policy = policy
        self._state = state

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Read the state; called in each process when weights and optimiser are in place."""
        if self._trainer.is_deepspeed_enabled:
            _set_master_weights(self._trainer, self._policy)
        if self._state is not None:
            _give_optimizer(self._trainer, self._state)


def _give_optimizer(trainer: Any, path: Path) -> None:
    """Set the optimiser's state to one that was written; every process calls this."""
    with safe_open(path, "pt") as file:
        if trainer.is_deepspeed_enabled:
            _set_partitioned_state(trainer, file)
            return
        optimizer = trainer.optimizer
        parameters = _in_order(optimizer)
        state: dict[int, dict[str, torch.Tensor]] = {}
        for key in file.keys():  # noqa: SIM118 (the file is no mapping)
            index, _, name = key.partition(".")
            value = _laid_like(file.get_tensor(key), parameters[int(index)])
            state.setdefault(int(index), {})[name] = value
        optimizer.load_state_dict({**optimizer.state_dict(), "state": state})


def _optimizer_state(trainer: Any) -> Iterator[tuple[str, torch.Tensor | None]]:
    """Yield the whole state one by one, on the processor; None in all processes but the first."""
    if trainer.is_deepspeed_enabled:
        yield from _partitioned_state(trainer)
        return
    state = trainer.optimizer.state_dict()["state"]
    for index, kept in state.items():
        for name, value in kept.items():
            yield f"{index}.{name}", _on_first(_whole(value))


def _whole(value: torch.Tensor) -> torch.Tensor:
    return value.full_tensor() if hasattr(value, "full_tensor") else value


def _on_first(value: torch.Tensor) -> torch.Tensor | None:
    return value.detach().cpu().contiguous() if is_first() else None


def _laid_like(value: torch.Tensor, parameter: torch.Tensor) -> torch.Tensor:
    """Return a part of the state spread as its parameter is; a step's count is whole everywhere."""
    from torch.distributed.tensor import DTensor, distribute_tensor

    if not isinstance(parameter, DTensor) or value.ndim == 0:
        return value
    local = value.to(parameter.device)
    return distribute_tensor(local, parameter.device_mesh, parameter.placements)


def _in_order(optimizer: Any) -> list[torch.Tensor]:
    """Return the parameters in the order in which an optimiser numbers them."""
    return [parameter for group in optimizer.param_groups for parameter in group["params"]]


def whole_model(start: Path, weights: Mapping[str, torch.Tensor]) -> Any:
    """Return the model of a checkpoint with other weights, on the processor, in float32."""
    with plain_loading():
        model = load_model(start)
    model.load_state_dict(weights, strict=False)
    missing = model.state_dict().keys() - weights.keys() - _second_names(model)
    if missing:
        raise HarnessError(f"the processes gave no weights for {sorted(missing)[0]}; report this.")
    return model


@contextmanager
def plain_loading() -> Iterator[None]:
    """Load a model whole in this process, where under ZeRO-3 it would be spread over all of them.

    Without it the first process, loading alone, would wait for the others for ever.
    """
    from transformers.integrations import deepspeed as integration

    found = integration._hf_deepspeed_config_weak_ref
    integration.unset_hf_deepspeed_config()
    try:
        yield
    finally:
        integration._hf_deepspeed_config_weak_ref = found


def _second_names(model: Any) -> set[str]:
    """Return the names of weights that are other weights under a second name."""
    named = dict(model.named_parameters(remove_duplicate=False))
    return set(named) - {name for name, _ in model.named_parameters()}


# ZeRO-3.


def _numbered(trainer: Any) -> list[tuple[int, str, Any]]:
    """Return number, name and parameter as an optimiser of one process would number them."""
    model = trainer.accelerator.unwrap_model(trainer.model_wrapped)
    decayed = set(trainer.get_decay_parameter_names(model))
    named = [(name, p) for name, p in model.named_parameters() if p.requires_grad]
    ordered = [row for row in named if row[0] in decayed]
    ordered += [row for row in named if row[0] not in decayed]
    return [(i, name, parameter) for i, (name, parameter) in enumerate(ordered)]


def _master_weights(trainer: Any) -> dict[str, torch.Tensor]:
    from deepspeed.utils import safe_get_full_fp32_param

    weights = {}
    for _, name, parameter in _numbered(trainer):
        value = _on_first(safe_get_full_fp32_param(parameter))
        if value is not None:
            weights[name] = value
    return weights


def _set_master_weights(trainer: Any, policy: Path) -> None:
    from deepspeed.utils import safe_set_full_fp32_param

    with plain_loading():
        weights = dict(load_model(policy).named_parameters())
    for _, name, parameter in _numbered(trainer):
        value = weights[name].detach().to(parameter.device)
        safe_set_full_fp32_param(parameter, value)


def _partitioned_state(trainer: Any) -> Iterator[tuple[str, torch.Tensor | None]]:
    from deepspeed.utils import safe_get_full_optimizer_state

    step = _steps_taken(trainer)
    for index, _, parameter in _numbered(trainer):
        for name in MOMENTS:
            value = safe_get_full_optimizer_state(parameter, name)
            yield f"{index}.{name}", _on_first(value)
        yield f"{index}.step", _on_first(torch.tensor(float(step)))


def _set_partitioned_state(trainer: Any, file: Any) -> None:
    from deepspeed.utils import safe_set_full_optimizer_state

    step = float(file.get_tensor("0.step"))
    for flat in trainer.model_wrapped.optimizer.fp32_partitioned_groups_flat:
        # Before its first step the optimiser has no state.
        _inner(trainer).state[flat] = {
            "step": torch.tensor(step),
            **{name: torch.zeros_like(flat) for name in MOMENTS},
        }
    for index, _, parameter in _numbered(trainer):
        for name in MOMENTS:
            value = file.get_tensor(f"{index}.{name}").to(parameter.device)
            safe_set_full_optimizer_state(parameter, value, name)


def _steps_taken(trainer: Any) -> float:
    return max(float(kept["step"]) for kept in _inner(trainer).state.values())


def _inner(trainer: Any) -> Any:
    """Return the optimiser of torch that DeepSpeed runs on its partitions."""
    return trainer.model_wrapped.optimizer.optimizer
