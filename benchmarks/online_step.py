"""What buffer and creator add to a step of online training, as a share of the step.

Trains the first steps of table 1's RLOO-eva on the embedded profile, and takes the time spent in
the stream of prompts (drawing, evolving, filling the buffer) apart from that of rollouts, rewards
and the optimiser. Prints one JSON object. Rolling out the rewrites is not counted: it is what the
method asks for, and is counted among the rollouts.

    python benchmarks/online_step.py [--steps 40]
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from harness.pipeline.online_steps import online_stage
from harness.pipeline.runs import plan_table
from harness.pipeline.steps import prompts_stage
from harness.quiet import silence
from harness.registry.declared import named_profile, named_table
from harness.runtime import StageContext
from harness.selectors.stream import PromptStream


def timed(function: Callable[..., Any], spent: list[float], sign: int = 1) -> Callable[..., Any]:
    """Return a function that adds the seconds it takes, or takes them off."""

    def call(*args: Any, **kwargs: Any) -> Any:
        start = time.perf_counter()
        try:
            return function(*args, **kwargs)
        finally:
            spent.append(sign * (time.perf_counter() - start))

    return call


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=40)
    steps = parser.parse_args().steps
    silence()
    torch.set_num_threads(1)
    table, _ = named_table("table1")
    run = plan_table(table, named_profile("micro"), [0], ["rloo-eva-1x"]).runs["rloo-eva-1x", 0]
    prompts, online = run.iterations[0].prompts, run.iterations[0].policy
    spent: list[float] = []
    finish_step = PromptStream.finish_step

    def finishing(stream: PromptStream, rewards: Any, roll_out: Callable[..., Any]) -> Any:
        # The rollouts of rewrites happen inside and are taken off again.
        return finish_step(stream, rewards, timed(roll_out, spent, sign=-1))

    PromptStream.finish_step = timed(finishing, spent)  # type: ignore[method-assign]
    PromptStream.draw = timed(PromptStream.draw, spent)  # type: ignore[method-assign]
    with tempfile.TemporaryDirectory() as scratch:
        folders = [Path(scratch) / name for name in ("prompts", "online")]
        for folder in folders:
            folder.mkdir()
        prompts_stage(StageContext(prompts.settings, {}, folders[0], prompts.seed))
        settings = {**online.settings, "last_step": steps}
        start = time.perf_counter()
        online_stage(StageContext(settings, {"prompts": folders[0]}, folders[1], online.seed))
        whole = time.perf_counter() - start
    found = {
        "steps": steps,
        "step_s": round(whole / steps, 4),
        "buffer_and_creator_share": round(sum(spent) / whole, 5),
    }
    print(json.dumps(found))


if __name__ == "__main__":
    main()
