"""How much the harness costs on a real language model: one row of `laptop` against a plain script.

The plain script answers human prompts, rewards the answers by rule, trains DPO once on the pairs
that differ, and answers the held-out prompts, calling TRL and transformers as a paper's script
would. The harness runs the same row on one worker, into an empty store. Both use one thread, one
after the other, at a sixteenth of the profile's sizes or those given.

Prints JSON: `plain_s`, `stages_s` (sum over the run's stages), `ratio` = stages_s / plain_s, and
both in tokens a second of the answers to training prompts.

Usage: python benchmarks/language_model_row.py [--x 16] [--items 32]
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import time
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
import pyarrow.parquet as pq
import torch
from datasets import Dataset
from plain import assistant, dpo_arguments, rollouts, run_row, sample, user
from transformers import AutoModelForCausalLM, AutoTokenizer
from trl import DPOTrainer

from harness import quiet
from harness.registry.profile import Profile, load_profiles
from harness.worlds.instructions.rules import RULES
from harness.worlds.instructions.tasks import prompts
from harness.worlds.instructions.weights import folder
from harness.worlds.lookup import runtime_of, world_of


def at_size(profile: Profile, x: int, items: int) -> Profile:
    """Return the profile with fewer prompts and items."""
    benchmarks = {
        name: bench.model_copy(
            update={
                "items": dict.fromkeys(bench.items, items)
                if isinstance(bench.items, dict)
                else items
            }
        )
        for name, bench in profile.benchmarks.items()
    }
    return profile.model_copy(update={"x": x, "benchmarks": benchmarks})


def plain(profile: Profile, scratch: Path) -> float:
    """Run the row as a script; return the seconds of answering the training prompts."""
    model = AutoModelForCausalLM.from_pretrained(folder(), dtype=torch.float32)
    tokenizer = AutoTokenizer.from_pretrained(folder())
    dpo, generation = profile.training.of("dpo"), profile.generation
    pool = list(prompts("prompts", profile.x))
    start = time.monotonic()
    answers = rollouts(model, tokenizer, pool, generation)
    seconds = time.monotonic() - start
    pairs = []
    for prompt, several in zip(pool, answers, strict=True):
        rewards = np.array(RULES.score(prompt, several))
        if rewards.max() > rewards.min():
            best, worst = (several[int(i)] for i in (rewards.argmax(), rewards.argmin()))
            said = {"chosen": [assistant(best)], "rejected": [assistant(worst)]}
            pairs.append({"prompt": user(prompt), **said})
    args = dpo_arguments(dpo, scratch / "trainer")
    data = Dataset.from_list(pairs)
    DPOTrainer(model=model, args=args, train_dataset=data, processing_class=tokenizer).train()
    model.save_pretrained(scratch / "trained")
    for name, bench in profile.benchmarks.items():
        identity = world_of(profile).benchmark(name)
        asked = [item.turn_1 for item in runtime_of(identity).questions(identity)]
        found = sample(model, tokenizer, [user(it) for it in asked], generation, bench.temperature)
        for prompt, given in zip(asked, found, strict=True):
            RULES.score(prompt, given)
    return seconds


def harness(profile: Profile, scratch: Path) -> tuple[float, float, int]:
    """Run the row on one worker; return seconds in stages, in answering, and tokens answered."""
    store, wall, _ = run_row(profile, "dpo-1", scratch)
    [answering] = [stage for stage in wall if stage.kind == "generate"]
    rows = pq.read_table(
        store.open(answering.fingerprint) / "completions.parquet", columns=["n_tokens"]
    )
    return sum(wall.values()), wall[answering], sum(rows["n_tokens"].to_pylist())


def main() -> None:
    """Measure both and print the ratio."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--x", type=int, default=16)
    parser.add_argument("--items", type=int, default=32)
    given = parser.parse_args()
    quiet.silence()
    torch.set_num_threads(1)
    profile = at_size(load_profiles()["laptop"], given.x, given.items)
    folder()  # made of the package when first asked for, which is not counted
    with tempfile.TemporaryDirectory() as scratch:
        start = time.monotonic()
        plain_generate_s = plain(profile, Path(scratch))
        plain_s = time.monotonic() - start
        stages_s, generate_s, tokens = harness(profile, Path(scratch))
    figures = {
        "plain_s": round(plain_s, 1),
        "stages_s": round(stages_s, 1),
        "ratio": round(stages_s / plain_s, 3),
        "generate_ratio": round(generate_s / plain_generate_s, 3),
        "tokens_per_s": round(tokens / generate_s),
    }
    print(json.dumps(figures, indent=1))


if __name__ == "__main__":
    main()
