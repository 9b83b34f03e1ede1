"""Score policies on IFEval: lm-eval's task and checks, the harness's own generation.

    python tools/ifeval.py answers.jsonl one-round=FOLDER,FOLDER eva=FOLDER,FOLDER

Each row has a name and the folders of its policies, one a seed; `harness store path` prints them.
Answers are greedy. For each row it prints the strict scores over prompts and over instructions, in
%, and by how many points more prompts are followed than in the row before, with a 95% interval over
seeds and prompts. The first file gets what was answered, a line a policy; one whose line is there,
for the same task and limit of tokens, is not asked again. Needs the package `lm-eval[ifeval]`.

lm-eval's generation waits for the longest answer of each batch, which takes hours on a CPU.

Source: Zhou et al. (2023), arXiv 2311.07911; lm-eval 0.4.13, `tasks/ifeval`.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from lm_eval import simple_evaluate
from lm_eval.api.model import LM
from lm_eval.tasks import TaskManager

from harness.foreign import read_json
from harness.models.policy import Completion, generate
from harness.runtime.files import write_whole
from harness.statistics import ScoreMatrix, paired_difference

BATCH_SIZE = 32


class Policy(LM):  # type: ignore[misc]
    """A policy for lm-eval, which keeps its completions."""

    def __init__(self, folder: Path, max_new_tokens: int) -> None:
        super().__init__()
        self.folder, self.max_new_tokens = folder, max_new_tokens
        self.completions: list[Completion] = []

    def generate_until(self, requests: Sequence[Any], disable_tqdm: bool = False) -> list[str]:
        sampled = generate(
            self.folder,
            [[{"role": "user", "content": request.args[0]}] for request in requests],
            n=1,
            temperature=0.0,
            top_p=1.0,
            max_new_tokens=self.max_new_tokens,
            batch_size=BATCH_SIZE,
            seed=0,
        )
        self.completions = [one for (one,) in sampled]
        return [one.text for one in self.completions]

    def loglikelihood(self, requests: Any) -> Any:
        raise NotImplementedError("IFEval only generates")

    loglikelihood_rolling = loglikelihood


def answer(folder: Path, task: str, tasks: Path | None, max_new_tokens: int) -> dict[str, Any]:
    """Return a policy's answers, their lengths in tokens, and which instructions they follow."""
    policy = Policy(folder, max_new_tokens)
    manager = TaskManager(include_path=None if tasks is None else str(tasks))
    results = simple_evaluate(policy, tasks=[task], task_manager=manager, bootstrap_iters=0)
    samples = sorted(results["samples"][task], key=lambda sample: sample["doc_id"])
    return {
        "policy": str(folder),
        "task": task,
        "limit": max_new_tokens,
        "followed": [sample["inst_level_strict_acc"] for sample in samples],
        "tokens": [one.n_tokens for one in policy.completions],
        "answers": [one.text for one in policy.completions],
    }


def read_rows(given: Sequence[str]) -> dict[str, list[str]]:
    return {name: folders.split(",") for name, _, folders in (row.partition("=") for row in given)}


def scores_of(policies: Sequence[Mapping[str, Any]]) -> ScoreMatrix:
    """Return whether each prompt's instructions are all followed, in %."""
    return ScoreMatrix.of([[100.0 * all(one) for one in it["followed"]] for it in policies])


def line_of(name: str, policies: Sequence[Mapping[str, Any]], most: int) -> str:
    instructions = [np.concatenate(policy["followed"]).mean() for policy in policies]
    tokens = np.array([policy["tokens"] for policy in policies])
    return (
        f"{name}: seeds {len(policies)}, prompts {scores_of(policies).mean:.1f}, "
        f"instructions {100.0 * np.mean(instructions):.1f}, tokens {tokens.mean():.0f}, "
        f"cut off {100.0 * (tokens >= most).mean():.1f}"
    )


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="Score policies on IFEval.")
    parser.add_argument("file", type=Path, help="gets what was answered, as JSON lines")
    parser.add_argument("rows", nargs="+", metavar="NAME=FOLDER,...", help="a folder a seed")
    parser.add_argument("--task", default="ifeval", help="the task's name in lm-eval")
    parser.add_argument("--include-path", type=Path, help="a folder with tasks of your own")
    parser.add_argument("--tokens", type=int, default=1280, help="most tokens of an answer")
    asked = parser.parse_args(argv)
    rows = read_rows(asked.rows)
    written = asked.file.read_text(encoding="utf-8") if asked.file.exists() else ""
    known = {
        line["policy"]: line
        for line in map(read_json, written.splitlines())
        if (line["task"], line["limit"]) == (asked.task, asked.tokens)
    }
    for folder in dict.fromkeys(folder for folders in rows.values() for folder in folders):
        if folder not in known:
            known[folder] = answer(Path(folder), asked.task, asked.include_path, asked.tokens)
            written += f"{json.dumps(known[folder])}\n"
            write_whole(asked.file, written)  # whole, so that a kill leaves no half line
    before: ScoreMatrix | None = None
    for name, folders in rows.items():
        policies = [known[folder] for folder in folders]
        scores, line = scores_of(policies), line_of(name, policies, asked.tokens)
        if before is not None and before.seeds == scores.seeds:
            more = paired_difference(scores, before)
            line += f"; prompts {more.mean:+.1f} ({more.low:+.1f} to {more.high:+.1f})"
        print(line)
        before = scores


if __name__ == "__main__":
    main()
