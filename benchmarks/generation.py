"""Tokens per second of the engines, on one random model, in one run.

Makes a Gemma-2 of a given shape with random weights and a tokenizer of made-up words, and has it
answer the same prompts by

- `ours`: the transformers engine, which reads each prompt once for all its answers;
- `generate`: plain `model.generate`, padded batches of the same size;
- `vllm`: where it is installed (`HARNESS_VLLM_PYTHON`, or beside us), as stages use it.

Loading is not counted; a first batch warms up. Answers have all the same length but for the few
that end by chance, and what is counted is the tokens that came. Prints one JSON object.

    python benchmarks/generation.py                                   # tiny, on a CPU, in a minute
    python benchmarks/generation.py --shape gemma-2-9b --tokens 512   # 20 GB on disk, one large GPU
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
import transformers
from random_models import SHAPES, WORDS, device_name, write_random_model
from transformers import Gemma2ForCausalLM

from harness.inference.request import AnswersOf, Renderer, Request, Sampling, SolverEngine
from harness.inference.solver import started
from harness.inference.transformers_engine import TransformersEngine, transformers_engine
from harness.models.loading import batches_by_length, pad
from harness.quiet import silence
from harness.serving.engines import installed

SHORTEST, LONGEST = 16, 256
"""Words of a prompt, evenly spread."""


def prompts(count: int) -> list[list[dict[str, str]]]:
    """Return conversations of several lengths."""
    spread = [SHORTEST + (LONGEST - SHORTEST) * i // max(1, count - 1) for i in range(count)]
    texts = [" ".join(f"w{(7 * i + j) % WORDS}" for j in range(n)) for i, n in enumerate(spread)]
    return [[{"role": "user", "content": text}] for text in texts]


class PlainGenerate:
    """`model.generate` on padded batches, as a script would call it."""

    def __init__(self, engine: TransformersEngine, renderer: Renderer, batch_size: int) -> None:
        self._model = engine.model
        self._renderer = renderer
        self._batch_size = batch_size

    @torch.inference_mode()
    def tokens(self, asked: Sequence[Request], sampling: Sampling) -> int:
        """Answer prompts and return how many tokens came."""
        n, count = len(asked[0].seeds), 0
        size = max(1, self._batch_size // n)
        for batch in batches_by_length([one.tokens for one in asked], size):
            ids, mask = pad(
                self._renderer.tokenizer,
                [asked[i].tokens for i in batch],
                "left",
                str(self._model.device),
            )
            output = self._model.generate(
                input_ids=ids,
                attention_mask=mask,
                do_sample=True,
                temperature=sampling.temperature,
                top_p=sampling.top_p,
                top_k=0,
                num_return_sequences=n,
                max_new_tokens=asked[0].room,
                eos_token_id=list(sampling.stops),
                pad_token_id=0,
            )[:, ids.shape[1] :]
            ends = torch.isin(output, torch.tensor([0, *sampling.stops], device=output.device))
            count += int((ends.cumsum(1) == 0).sum())
        return count


def engine_tokens(engine: SolverEngine) -> Callable[[Sequence[Request], Sampling], int]:
    """Return what has an engine answer and returns how many tokens came."""

    def tokens(asked: Sequence[Request], sampling: Sampling) -> int:
        answered: AnswersOf = {}
        engine.generate(asked, sampling, answered.update)
        return sum(sample.n_tokens for own in answered.values() for sample in own)

    return tokens


def measured(
    tokens: Callable[[Sequence[Request], Sampling], int],
    asked: Sequence[Request],
    sampling: Sampling,
) -> dict[str, float]:
    """Return tokens, seconds and tokens per second."""
    tokens(asked[-1:], sampling)
    start = time.perf_counter()
    count = tokens(asked, sampling)
    seconds = time.perf_counter() - start
    return {"tokens": count, "s": round(seconds, 3), "tokens_per_s": round(count / seconds, 1)}


@contextmanager
def model_folder(given: Path | None) -> Iterator[Path]:
    """Yield the folder for the model: the one given, or one that is removed afterwards."""
    if given is not None:
        given.mkdir(parents=True, exist_ok=True)
        yield given
        return
    with tempfile.TemporaryDirectory() as scratch:
        yield Path(scratch)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--shape", choices=SHAPES, default="tiny")
    parser.add_argument("--dtype", choices=("float32", "bfloat16"))
    parser.add_argument("--prompts", type=int, default=32)
    parser.add_argument("--samples", type=int, default=6)
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--batch-size", type=int, default=96, help="answers at once")
    parser.add_argument("--folder", type=Path, help="where the model is written; kept")
    given = parser.parse_args()
    silence()
    dtype = given.dtype or ("bfloat16" if torch.cuda.is_available() else "float32")
    found: dict[str, Any] = {
        "shape": given.shape,
        "dtype": dtype,
        "device": device_name(),
        "threads": torch.get_num_threads(),
        "versions": {"torch": torch.__version__, "transformers": transformers.__version__},
        "prompts": given.prompts,
        "samples": given.samples,
        "max_new_tokens": given.tokens,
        "batch_size": given.batch_size,
    }
    with model_folder(given.folder) as folder:
        write_random_model(Gemma2ForCausalLM, given.shape, folder, dtype)
        renderer = Renderer(folder)
        asked = renderer.requests(
            prompts(given.prompts), n=given.samples, seed=0, max_new_tokens=given.tokens
        )
        sampling = Sampling(0.7, 0.9, renderer.stops)
        with transformers_engine(
            folder, renderer, dtype=dtype, batch_size=given.batch_size
        ) as engine:
            found["ours"] = measured(engine_tokens(engine), asked, sampling)
            plain = PlainGenerate(engine, renderer, given.batch_size)
            found["generate"] = measured(plain.tokens, asked, sampling)
            del plain
        vllm = installed("vllm")
        if vllm is None:
            found["vllm"] = "not installed"
        else:
            with started(
                renderer,
                vllm.identity,
                folder,
                dtype=dtype,
                batch_size=len(asked) * given.samples,
                log=folder / "engine.log",
            ) as server:
                found["vllm"] = {
                    "identity": vllm.identity,
                    **measured(engine_tokens(server), asked, sampling),
                }
    print(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
