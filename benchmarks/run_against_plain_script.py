"""How much the harness costs: one run's stages against a plain script doing the same work.

The plain script trains DPO once on human prompts and once on eva's mix, and answers the three
benchmarks, calling TRL and transformers as a paper's script would: no store, no stages, no
provenance. The harness does the same run on one worker, into an empty store. Both use one thread
and run one after the other in one invocation, so that the ratio means something on any machine.

Prints JSON: `plain_s`, `stages_s` (sum over the run's stages), `ratio` = stages_s / plain_s, and
`wall_s` of the engine, in which the start of the worker and its imports are included.

Usage: python benchmarks/run_against_plain_script.py
"""

from __future__ import annotations

import json
import os
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
import torch
from datasets import Dataset
from plain import assistant, dpo_arguments, rollouts, run_row, sample, user
from transformers import AutoModelForCausalLM, AutoModelForSequenceClassification, AutoTokenizer
from trl import DPOTrainer

from harness import quiet
from harness.eva.evolving import Prompt, evolve
from harness.evaluation.files import Answer
from harness.registry.profile import load_profiles
from harness.worlds.embedded.creator import EmbeddedCreator
from harness.worlds.embedded.judge import JUDGES, score_downstream
from harness.worlds.embedded.texts import read_prompts
from harness.worlds.lookup import runtime_of, world_of
from harness.worlds.real.models import resolve

PROFILE = load_profiles()["micro"]
ASSETS = world_of(PROFILE)
GENERATION = PROFILE.generation
DPO = PROFILE.training.of("dpo")
ANSWERED = [name for name in PROFILE.benchmarks if name != "prompt_judge"]
"""The benchmarks that a policy answers."""


def load(path: Path) -> tuple[Any, Any]:
    """Load a policy and its tokenizer as a script would."""
    model = AutoModelForCausalLM.from_pretrained(
        path, dtype=torch.float32, attn_implementation="eager"
    )
    return model.eval(), AutoTokenizer.from_pretrained(path)


@torch.inference_mode()
def reward(model: Any, tokenizer: Any, prompts: list[str], answers: list[list[str]]) -> Any:
    """Score every answer, batched by length; shape (prompts, n)."""
    tokenizer.padding_side = "right"
    texts = [
        tokenizer.apply_chat_template([*user(p), assistant(a)], tokenize=False)
        for p, several in zip(prompts, answers, strict=True)
        for a in several
    ]
    order = sorted(range(len(texts)), key=lambda i: len(texts[i].split()))
    rewards = np.empty(len(texts))
    for start in range(0, len(order), 256):
        part = order[start : start + 256]
        batch = tokenizer(
            [texts[i] for i in part], padding=True, add_special_tokens=False, return_tensors="pt"
        )
        logits = model(input_ids=batch.input_ids, attention_mask=batch.attention_mask).logits
        rewards[part] = logits[:, 0].numpy()
    return rewards.reshape(len(prompts), -1)


def pairs_of(prompts: list[str], answers: list[list[str]], rewards: Any) -> list[dict[str, Any]]:
    """Best against worst of each prompt."""
    return [
        {
            "prompt": user(p),
            "chosen": [assistant(several[int(row.argmax())])],
            "rejected": [assistant(several[int(row.argmin())])],
        }
        for p, several, row in zip(prompts, answers, rewards, strict=True)
    ]


def dpo(path: Path, rows: list[dict[str, Any]], output: Path) -> Path:
    """Train with TRL and save."""
    model, tokenizer = load(path)
    args = dpo_arguments(DPO, output)
    data = Dataset.from_list(rows)
    trainer = DPOTrainer(model=model, args=args, train_dataset=data, processing_class=tokenizer)
    trainer.train()
    trainer.model.save_pretrained(output)
    tokenizer.save_pretrained(output)
    return output


def plain(scratch: Path) -> None:
    """Run DPO, one eva iteration and the benchmarks, as a script."""
    rng = np.random.default_rng(0)
    pool = read_prompts(resolve(str(ASSETS.prompts.identity()["source"])))
    prompts = [pool[i] for i in rng.permutation(len(pool))[: PROFILE.x]]
    rm_path = resolve(ASSETS.reward_model("pointwise"))
    rm = AutoModelForSequenceClassification.from_pretrained(
        rm_path, dtype=torch.float32, attn_implementation="eager"
    ).eval()
    rm_tokenizer = AutoTokenizer.from_pretrained(rm_path)
    policy = resolve(ASSETS.policy())

    def rewarded(path: Path, texts: list[str]) -> tuple[list[list[str]], Any]:
        answers = rollouts(*load(path), texts, GENERATION)
        return answers, reward(rm, rm_tokenizer, texts, answers)

    first = dpo(policy, pairs_of(prompts, *rewarded(policy, prompts)), scratch / "one")
    answers, rewards = rewarded(first, prompts)
    gap = rewards.max(axis=1) - rewards.min(axis=1)
    weight = (gap - gap.min()) / (gap.max() - gap.min())
    chosen = rng.choice(len(prompts), len(prompts) // 4, replace=False, p=weight / weight.sum())
    seeds = [Prompt(str(i), prompts[i]) for i in chosen]
    evolved = evolve(seeds, EmbeddedCreator(), evolutions=4, retries=2, seed=0)
    texts = [p.prompt for p in evolved.prompts]
    new = pairs_of(texts, *rewarded(first, texts))
    old = pairs_of(prompts, answers, rewards)
    size = round(0.8 * PROFILE.x)
    mixed = [new[i] for i in rng.permutation(len(new))[:size]]
    mixed += [old[i] for i in rng.permutation(len(old))[: PROFILE.x - size]]
    model, tokenizer = load(dpo(first, mixed, scratch / "two"))
    for name in ANSWERED:
        evaluate(name, model, tokenizer)


def evaluate(name: str, model: Any, tokenizer: Any) -> None:
    """Answer and judge one benchmark."""
    identity = ASSETS.benchmark(name)
    items = runtime_of(identity).questions(identity)
    temperature = PROFILE.benchmarks[name].temperature
    given = {}
    asked = [user(item.turn_1) for item in items]
    for item, (text,) in zip(
        items, sample(model, tokenizer, asked, GENERATION, temperature), strict=True
    ):
        given[item.item_id] = Answer((text,), len(text.split()))
    if items[0].turn_2 is not None:
        asked = [
            [*user(i.turn_1), assistant(given[i.item_id].turns[0]), *user(str(i.turn_2))]
            for i in items
        ]
        for item, (text,) in zip(
            items, sample(model, tokenizer, asked, GENERATION, temperature), strict=True
        ):
            first = given[item.item_id]
            given[item.item_id] = replace(first, turns=(*first.turns, text))
    JUDGES.get(name, score_downstream)(items, given)


def main() -> None:
    """Measure both and print the ratio."""
    quiet.silence()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        scratch = Path(folder)
        start = time.monotonic()
        plain(scratch)
        plain_s = time.monotonic() - start
        _, stages, wall_s = run_row(PROFILE, "eva-a_min", scratch)
    stages_s = sum(stages.values())
    figures = {
        "plain_s": round(plain_s, 2),
        "stages_s": round(stages_s, 2),
        "wall_s": round(wall_s, 2),
        "ratio": round(stages_s / plain_s, 3),
    }
    print(json.dumps(figures, indent=1))


if __name__ == "__main__":
    main()
