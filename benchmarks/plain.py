"""What the comparisons with plain scripts share.

Sampling and DPO as a paper's script would call them, and a row of table 4 by the harness.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import torch
from trl import DPOConfig

from harness.pipeline.algorithm import Planner
from harness.pipeline.factory import engine_of
from harness.registry.declared import load_tables
from harness.registry.profile import Generation, Profile, table_at
from harness.runtime import EngineOptions, Plan, Stage, Store
from harness.worlds.lookup import world_of


def user(text: str) -> list[dict[str, str]]:
    """One user message."""
    return [{"role": "user", "content": text}]


def assistant(text: str) -> dict[str, str]:
    """One assistant message."""
    return {"role": "assistant", "content": text}


@torch.inference_mode()
def sample(
    model: Any,
    tokenizer: Any,
    conversations: list[Any],
    generation: Generation,
    temperature: float,
    n: int = 1,
) -> list[list[str]]:
    """Sample n answers to each conversation, batched by length."""
    tokenizer.padding_side = "left"
    texts = [
        tokenizer.apply_chat_template(c, tokenize=False, add_generation_prompt=True)
        for c in conversations
        for _ in range(n)
    ]
    order = sorted(range(len(texts)), key=lambda i: len(texts[i].split()))
    answers: list[str] = [""] * len(texts)
    for start in range(0, len(order), generation.batch_size):
        part = order[start : start + generation.batch_size]
        batch = tokenizer(
            [texts[i] for i in part], padding=True, add_special_tokens=False, return_tensors="pt"
        )
        out = model.generate(
            input_ids=batch.input_ids,
            attention_mask=batch.attention_mask,
            do_sample=temperature > 0,
            temperature=temperature or None,
            top_p=1.0,
            top_k=0,
            max_new_tokens=generation.max_new_tokens,
        )
        decoded = tokenizer.batch_decode(
            out[:, batch.input_ids.shape[1] :], skip_special_tokens=True
        )
        for i, text in zip(part, decoded, strict=True):
            answers[i] = text.strip()
    return [answers[i : i + n] for i in range(0, len(answers), n)]


def rollouts(
    model: Any, tokenizer: Any, prompts: list[str], generation: Generation
) -> list[list[str]]:
    """Sample a profile's answers to each prompt."""
    conversations = [user(prompt) for prompt in prompts]
    temperature, n = generation.temperature, generation.n
    sampled: list[list[str]] = sample(model, tokenizer, conversations, generation, temperature, n)
    return sampled


def run_row(profile: Profile, row: str, scratch: Path) -> tuple[Store, dict[Stage, float], float]:
    """Run a row of table 4 on one worker into an empty store.

    Returns the store, the seconds of each stage, and those of the engine.
    """
    table = table_at(load_tables()["table4"], profile)
    recipe = table.recipe_of(table.row(row), table.columns[0])
    store = Store(scratch / "store")
    plan = Plan(Planner(world_of(profile)).run(f"dpo-{row}", recipe, 0).targets)
    engine = engine_of(profile, store, scratch / "logs", plan.stages, jobs=1, where=EngineOptions())
    start = time.monotonic()
    engine.run(plan)
    seconds = time.monotonic() - start
    stages = {stage: store.manifest(stage.fingerprint)["wall_s"] for stage in plan}
    return store, stages, seconds


def dpo_arguments(dpo: Any, output: Path) -> DPOConfig:
    """TRL's arguments for a profile's DPO."""
    return DPOConfig(
        output_dir=str(output),
        use_cpu=True,
        bf16=False,
        gradient_checkpointing=False,
        report_to="none",
        save_strategy="no",
        logging_steps=1,
        disable_tqdm=True,
        seed=0,
        num_train_epochs=dpo.epochs,
        per_device_train_batch_size=dpo.batch_size,
        learning_rate=dpo.learning_rate,
        lr_scheduler_type=dpo.lr_scheduler,
        warmup_steps=dpo.warmup_ratio,
        beta=dpo.beta,
        max_length=dpo.max_length,
        precompute_ref_log_probs=True,
    )
