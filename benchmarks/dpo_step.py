"""What a DPO step costs at a model's shape, against a bare TRL script, in one run.

Two programs train the same model on the same pairs, each in a process of its own: the harness's
training (`harness.training.offline.train` with a placement: filled batches, precomputed reference,
curves) and a script that calls TRL's `DPOTrainer` as its documentation does, with the same
arguments. Weights are random and pairs are random text: a step's time does not depend on what it
learns. Checkpoints are left out of both.

Printed as JSON for each: median seconds of a step (the first two are left out), peak memory (of
the GPU, or resident on the processor), and model FLOP utilisation. A step computes 6 FLOPs for each
weight and token of chosen and rejected completions with their prompts, padding left out; attention
scores and activations computed again are not counted. Utilisation is that, a second, over
`--peak-tflops` (990: dense bfloat16 of an H100 or H200, NVIDIA's data sheet).

    python benchmarks/dpo_step.py --batch 2 --steps 5 --length 32 --dtype float32   # a processor
    python benchmarks/dpo_step.py --shape gemma-2-2b --length 1024 --gradient-checkpointing

The shapes `gemma-2-2b` and `gemma-2-9b` have the published sizes; they need about 16 bytes of
memory for each weight, 42 and 148 GB.
"""

from __future__ import annotations

import argparse
import json
import random
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
from random_models import SHAPES, WORDS, device_name, write_random_model
from transformers import Gemma2ForCausalLM, TrainerCallback

from harness.models.loading import fastest_device, load_tokenizer
from harness.quiet import silence
from harness.training.offline import quiet

SKIPPED = 2


class Clock(TrainerCallback):  # type: ignore[misc]
    """Takes the time of every step."""

    def __init__(self) -> None:
        self.seconds: list[float] = []
        self._begun = 0.0

    def on_step_begin(self, *args: Any, **kwargs: Any) -> None:
        """Note when a step begins."""
        self._begun = now()

    def on_step_end(self, *args: Any, **kwargs: Any) -> None:
        """Note how long it took."""
        self.seconds.append(now() - self._begun)


def now() -> float:
    """Return the time when all that was asked of the GPU is done."""
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return time.perf_counter()


def random_pairs(count: int, length: int) -> list[dict[str, str]]:
    """Return pairs of random words: a quarter prompt, three quarters completion."""
    draw = random.Random(0)

    def words(n: int) -> str:
        return " ".join(f"w{draw.randrange(WORDS)}" for _ in range(n))

    prompt, rest = length // 4, 3 * length // 4 - 8
    return [
        {"prompt": words(prompt), "chosen": words(rest), "rejected": words(rest)}
        for _ in range(count)
    ]


def by_harness(asked: argparse.Namespace, folder: Path, pairs: Any, clock: Clock) -> None:
    """Train as a stage would, without a launcher."""
    from harness.training import offline
    from harness.training.offline_losses import DPO
    from harness.training.placement import Placement

    train = offline._run

    def timed(trainer: Any, *rest: Any) -> None:
        trainer.add_callback(clock)
        train(trainer, *rest)

    offline._run = timed  # type: ignore[assignment]
    hyper = DPO(
        learning_rate=5e-7, beta=0.05, epochs=1, batch_size=asked.batch,
        micro_batch_size=asked.micro_batch, max_length=asked.length,
    )  # fmt: skip
    place = Placement(
        work=folder / "work", checkpoint_every=10**6, dtype=asked.dtype, attention="eager",
        gradient_checkpointing=asked.gradient_checkpointing,
        device="cuda" if torch.cuda.is_available() else "cpu",
    )  # fmt: skip
    (folder / "out").mkdir()
    offline.train(
        hyper, folder / "model", pairs, folder / "out", seed=0,
        on_log=lambda step, metrics: None, place=place,
    )  # fmt: skip


def by_trl(asked: argparse.Namespace, folder: Path, pairs: Any, clock: Clock) -> None:
    """Train as TRL's documentation does."""
    from datasets import Dataset
    from trl import DPOConfig, DPOTrainer

    from harness.training.offline import as_messages

    trainer = DPOTrainer(
        model=str(folder / "model"),
        args=DPOConfig(
            output_dir=str(folder / "trl"), learning_rate=5e-7, beta=0.05, num_train_epochs=1,
            per_device_train_batch_size=asked.micro_batch,
            gradient_accumulation_steps=asked.batch // asked.micro_batch, max_length=asked.length,
            lr_scheduler_type="cosine", warmup_steps=0.1, bf16=asked.dtype == "bfloat16",
            gradient_checkpointing=asked.gradient_checkpointing, precompute_ref_log_probs=True,
            model_init_kwargs={"dtype": "float32", "attn_implementation": "eager"},
            use_cpu=fastest_device() == "cpu", dataloader_pin_memory=fastest_device() != "cpu",
            seed=0, optim="adamw_torch", save_strategy="no", report_to="none", disable_tqdm=True,
            logging_steps=1,
        ),
        train_dataset=Dataset.from_list([as_messages(pair) for pair in pairs]),
        processing_class=load_tokenizer(folder / "model"),
        callbacks=[clock],
    )  # fmt: skip
    trainer.train()


def measure(asked: argparse.Namespace, folder: Path, weights: int) -> dict[str, Any]:
    """Train by one program, in this process, and return what it cost."""
    pairs, clock = random_pairs(asked.batch * asked.steps, asked.length), Clock()
    with quiet(), tempfile.TemporaryDirectory(dir=folder) as own:
        (Path(own) / "model").symlink_to(folder / "model")
        {"harness": by_harness, "trl": by_trl}[asked.only](asked, Path(own), pairs, clock)
    step = statistics.median(clock.seconds[SKIPPED:])
    # Prompts have a quarter of the words and completions three quarters; both sides are read.
    flops = 6 * weights * 2 * asked.batch * asked.length
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    if fastest_device() == "cuda":
        peak = torch.cuda.max_memory_allocated()
    return {
        "steps": len(clock.seconds),
        "step_s": round(step, 4),
        "utilisation": round(flops / step / (asked.peak_tflops * 1e12), 4),
        "peak_gib": round(peak / 2**30, 2),
    }


def main() -> None:
    """Measure both and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--shape", choices=SHAPES, default="tiny")
    parser.add_argument("--batch", type=int, default=8, help="pairs of a step")
    parser.add_argument("--micro-batch", type=int, default=1, help="pairs of a forward pass")
    parser.add_argument("--length", type=int, default=64, help="tokens of prompt and completion")
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--dtype", choices=["float32", "bfloat16"], default="bfloat16")
    parser.add_argument("--gradient-checkpointing", action="store_true")
    parser.add_argument("--peak-tflops", type=float, default=990.0)
    parser.add_argument("--only", choices=["harness", "trl"], help=argparse.SUPPRESS)
    parser.add_argument("--model", help=argparse.SUPPRESS)
    parser.add_argument("--weights", type=int, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    silence()
    torch.set_num_threads(1 if fastest_device() == "cpu" else torch.get_num_threads())
    if asked.only:
        print(json.dumps(measure(asked, Path(asked.model), asked.weights)))
        return
    with tempfile.TemporaryDirectory() as scratch:
        weights = write_random_model(
            Gemma2ForCausalLM, asked.shape, Path(scratch) / "model", "bfloat16"
        )
        found: dict[str, Any] = {
            "shape": asked.shape, "weights": weights, "device": device_name(), "batch": asked.batch,
            "micro_batch": asked.micro_batch, "length": asked.length, "dtype": asked.dtype,
        }  # fmt: skip
        for program in ("harness", "trl"):
            own = ["--only", program, "--model", scratch, "--weights", str(weights)]
            done = subprocess.run(
                [sys.executable, __file__, *sys.argv[1:], *own], stdout=subprocess.PIPE, check=True
            )
            found[program] = json.loads(done.stdout.decode().splitlines()[-1])
    print(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
