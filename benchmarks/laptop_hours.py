"""How long `laptop` takes on this machine: its stages timed with random weights of the true shapes.

A policy of SmolLM2-135M's shape answers, is rewarded, trained and judged by `harness run`, on a few
prompts; a creator of Qwen3-0.6B's shape is served by vLLM and asked to write. Weights are random,
so that every answer has the longest length: what is printed is an upper bound. Prompts and answers
have typical lengths. Nothing else should run meanwhile.

Prints one JSON object: seconds measured, and hours of one seed of table 4 for its first row, for a
row of eva beside it, and for all nine. It takes ten minutes.

    HARNESS_VLLM_PYTHON=.../bin/python python benchmarks/laptop_hours.py
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import torch
from transformers import LlamaConfig, LlamaForCausalLM, Qwen3Config, Qwen3ForCausalLM

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests"))

from small_checkpoints import llama_tokenizer, qwen_tokenizer, write_qwen_classifier  # noqa: E402

from harness.endpoint.connection import Connection  # noqa: E402
from harness.project import profiles_dir  # noqa: E402
from harness.registry.declared import named_profile  # noqa: E402
from harness.registry.documents import as_yaml, read_yaml  # noqa: E402
from harness.serving.engines import Model, here  # noqa: E402
from harness.serving.servers import serving  # noqa: E402

PROMPTS, REQUESTS = 16, 16
QUESTIONS = {"arena_hard": 500, "alpaca_eval": 805, "mt_bench": 160}
WORDS = 185
"""Tokens of a prompt, as UltraFeedback's are assumed to have."""

SMOLLM2 = {
    "hidden_size": 576,
    "intermediate_size": 1536,
    "num_hidden_layers": 30,
    "num_attention_heads": 9,
    "num_key_value_heads": 3,
    "vocab_size": 49152,
    "max_position_embeddings": 8192,
    "tie_word_embeddings": True,
}
QWEN3: dict[str, Any] = {
    "num_hidden_layers": 28,
    "num_attention_heads": 16,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "vocab_size": 151936,
    "max_position_embeddings": 40960,
    "initializer_range": 0.02,
}
SMALL = {"hidden_size": 1024, "intermediate_size": 3072}
LARGE = {"hidden_size": 2048, "intermediate_size": 6144}


def write(folder: Path, model: Any, tokenizer: Any) -> None:
    """Write a model that says tokens of a small tokenizer alone, and never that it has ended."""
    ends = model.config.eos_token_id = model.generation_config.eos_token_id = tokenizer.eos_token_id
    model.config.pad_token_id = tokenizer.pad_token_id
    words = model.get_input_embeddings().weight.data
    words.mul_(1 / words.std())
    words[len(tokenizer) :] = 0
    words[[ends, tokenizer.pad_token_id]] = 0
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def write_models(hub: Path) -> None:
    """Write the profile's models where the hub's cache has them."""
    profile = read_yaml(profiles_dir() / "laptop.yaml")
    policy, reward, judge, creator = (
        profile["policy"]["value"],
        profile["reward_models"]["pointwise"]["value"],
        profile["benchmarks"]["arena_hard"]["judge"]["value"].removeprefix("reward:"),
        profile["serving"]["creator"]["model"]["value"],
    )
    torch.manual_seed(0)
    write(_at(hub, policy), LlamaForCausalLM(LlamaConfig(**SMOLLM2)), llama_tokenizer())
    tied = {**QWEN3, **SMALL, "tie_word_embeddings": True}
    write(_at(hub, creator), Qwen3ForCausalLM(Qwen3Config(**tied)), qwen_tokenizer())
    write_qwen_classifier(_at(hub, reward), **QWEN3, **SMALL)
    write_qwen_classifier(_at(hub, judge), **QWEN3, **LARGE)


def _at(hub: Path, model: str) -> Path:
    name, _, commit = model.partition("@")
    return hub / f"models--{name.replace('/', '--')}" / "snapshots" / commit


def write_project(folder: Path) -> None:
    """Write a project with a table of one column and one row, and a profile with few prompts."""
    declared = read_yaml(profiles_dir() / "laptop.yaml")
    declared |= {
        "name": "timed",
        "benchmarks": {"arena_hard": declared["benchmarks"]["arena_hard"]},
    }
    prompts = folder / "prompts.jsonl"
    _lines(prompts, [{"prompt": text(number)} for number in range(8 * PROMPTS)])
    declared["prompts"] = {
        "source": {"value": str(prompts), "source": "ours: made up"},
        "available": declared["prompts"]["available"],
    }
    declared["x"]["value"] = PROMPTS
    declared["benchmarks"]["arena_hard"]["items"]["value"] = PROMPTS
    placed = {**dict.fromkeys(["paper", "deviations"]), "table1": TABLE, "../timed": declared}
    placed["paper"] = dict.fromkeys(
        ("title", "authors", "address", "cited", "method", "question"), "none"
    )
    placed["deviations"] = {"discrepancies": []}
    (folder / "experiments").mkdir()
    for name, held in placed.items():
        path = folder / "experiments" / f"{name}.yaml"
        path.write_text(as_yaml(held), encoding="utf-8")


TABLE = {
    "id": "table1",
    "kind": "experiment",
    "title": "Timed",
    "question": "How long does it take?",
    "source": "ours",
    "columns": [
        {"id": "ah_wr", "benchmark": "Arena-Hard v0.1", "metric": "win rate",
         "printed": "WR (%)", "unit": "%", "direction": "higher"}
    ],
    "recipe": {"algorithm": "dpo"},
    "rows": [{"id": "dpo", "label": "DPO", "run": "dpo-h1", "baseline": None,
              "recipe": {"chain": ["human"]}}],
}  # fmt: skip


def write_benchmark(folder: Path) -> None:
    """Write questions of Arena-Hard's length, and what its reader wants beside them."""
    folder.mkdir(parents=True)
    asked = [text(number)[: 4 * 102] for number in range(1000, 1000 + PROMPTS)]
    questions = [
        {"question_id": str(i), "category": "made up", "turns": [{"content": it}]}
        for i, it in enumerate(asked)
    ]
    answers = [
        {"question_id": str(i), "model_id": "made up",
         "choices": [{"turns": [{"content": it, "token_len": 20}]}]}
        for i, it in enumerate(asked)
    ]  # fmt: skip
    _lines(folder / "question.jsonl", questions)
    _lines(folder / "answer_gpt-4-0314.jsonl", answers)
    judge = {"system_prompt": "none", "prompt_template": ["{question_1}{answer_1}{answer_2}"]}
    (folder / "judge_config.yaml").write_text(json.dumps(judge), encoding="utf-8")


def text(number: int) -> str:
    """Return a made-up prompt of about `WORDS` tokens."""
    return " ".join(f"{number} the quick brown fox" for _ in range(WORDS // 6))


def _lines(path: Path, records: list[dict[str, Any]]) -> None:
    path.write_text("".join(json.dumps(it) + "\n" for it in records), encoding="utf-8")


def run(folder: Path) -> dict[str, float]:
    """Run the table; return the seconds of each kind of stage, those of the whole as `run`."""
    variables = {
        **os.environ,
        "HF_HUB_CACHE": str(folder / "hub"),
        "HARNESS_BENCHMARKS": str(folder / "benchmarks"),
        "HARNESS_WORK": str(folder / "work"),
    }
    command = "run table1 --profile timed.yaml --seeds 0".split()
    begun = time.perf_counter()
    subprocess.run(
        [sys.executable, "-m", "harness.cli.main", *command], cwd=folder, env=variables, check=True
    )
    took: dict[str, float] = {"run": time.perf_counter() - begun}
    for file in (folder / "work" / "store" / "stages").glob("*/*/stage.json"):
        stage = json.loads(file.read_text(encoding="utf-8"))
        took[stage["kind"]] = took.get(stage["kind"], 0.0) + stage["wall_s"]
    return took


def create(folder: Path) -> dict[str, float]:
    """Serve the creator; return the seconds until it answers, and of a rewrite of 200 tokens."""
    declared = named_profile("laptop").serving
    assert declared is not None
    served = declared.roles["creator"]
    assert served.model is not None
    checkpoint = _at(folder / "hub", served.model)
    begun = time.perf_counter()
    with serving(
        here("vllm"), Model.declared(served, checkpoint, "creator"), folder / "creator.log"
    ) as server:
        start = time.perf_counter() - begun
        connection = Connection(server.url, None)

        def ask(number: int) -> None:
            asked = {"prompt": text(number), "max_tokens": 200, "ignore_eos": True}
            connection.post("/completions", {"model": "creator", **asked}, "a rewrite")

        begun = time.perf_counter()
        with ThreadPoolExecutor(served.at_once) as threads:
            list(threads.map(ask, range(REQUESTS)))
        return {"start": start, "rewrite": (time.perf_counter() - begun) / REQUESTS}


def hours(took: dict[str, float], creator: dict[str, float]) -> dict[str, float]:
    """Return the hours of a seed of table 4: its first row, one more of eva, and all nine.

    A set of answers is one for each prompt; a policy is judged on all questions, and the base one
    answers them too. Evolving asks for four rewrites of a quarter of the prompts, each up to three
    times.
    """
    more = 150 / PROMPTS
    trained = more * (took["generate"] + took["annotate"] + took["train"])
    judged = sum(QUESTIONS.values()) / PROMPTS * (took["answer"] / 2 + took["judge"])
    base = sum(QUESTIONS.values()) / PROMPTS * took["answer"] / 2
    evolved = creator["start"] + 3 * 150 * creator["rewrite"]
    again = more * (took["generate"] + took["annotate"])
    first = trained + judged + base
    eva = again + evolved + trained + judged
    return {"first": first / 3600, "eva": eva / 3600, "all": (first + 8 * eva - 7 * again) / 3600}


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_models(folder / "hub")
        write_project(folder)
        write_benchmark(folder / "benchmarks" / "arena-hard")
        creator = create(folder)
        took = run(folder)
    found = {"seconds": {**took, **creator}, "hours": hours(took, creator)}
    print(json.dumps(found, indent=1, default=lambda x: round(x, 1)))


if __name__ == "__main__":
    main()
