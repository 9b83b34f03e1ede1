"""Running table 9's tasks with lm-evaluation-harness; the one place that imports it.

The package loads the model, fetches its data sets and scores; its results are kept as it gives
them, with every sample beside them. A model behind an endpoint is asked for completions, because
multiple-choice tasks need the probabilities of given answers, which no chat endpoint returns.

It was run with lm-eval 0.4.13 on all six tasks with sets of a few items and a random model; with
the real data sets or a real model it was not.

Source: lm-eval 0.4.13, `evaluator.simple_evaluate`, `models/openai_completions.py`.
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from harness.errors import HarnessError, UserError
from harness.evaluation.benchmark_archive import write, write_lines
from harness.evaluation.lm_eval_tasks import TASKS, Task
from harness.foreign import read_json
from harness.runtime.stage import Json, canonical_json, digest

BATCH_SIZE = "4"
"""As in the authors' script."""

ENDPOINT_ENGINE = "local-completions"
RESULTS = "results.json"
_KEY_THAT_THE_PACKAGE_READS = "OPENAI_API_KEY"


@dataclass(frozen=True)
class Measurement:
    """What is asked of lm-eval.

    Attributes:
        model: A folder or a name on the hub; at an endpoint, the name there.
        engine: lm-eval's name for what runs the model: `hf`, `vllm`.
        base_url: An OpenAI-compatible endpoint instead, as `http://host:port/v1`.
        key_variable: Name of the environment variable with the endpoint's key.
        arguments: Further arguments of the engine.
        batch_size: Prompts at once, a number or `auto`.
        device: As torch names it; None leaves it to the package.
        limit: Documents of each task; None for all.
        tasks: The tasks.
    """

    model: str
    engine: str = "hf"
    base_url: str | None = None
    key_variable: str = "MODEL_API_KEY"
    arguments: Mapping[str, Json] = field(default_factory=dict)
    batch_size: str = BATCH_SIZE
    device: str | None = None
    limit: int | None = None
    tasks: Sequence[Task] = TASKS

    @property
    def digest(self) -> str:
        """The sha256 of what is measured."""
        asked = {
            "engine": self.engine if self.base_url is None else ENDPOINT_ENGINE,
            "arguments": self.model_arguments,
            "batch_size": self.batch_size,
            "limit": self.limit,
            "tasks": [f"{task.name}/{task.key}" for task in self.tasks],
        }
        return digest(canonical_json(asked, "measurement"))

    @property
    def model_arguments(self) -> dict[str, Json]:
        """The engine's arguments, the model among them; no key is one of them."""
        if self.base_url is None:
            return {"pretrained": self.model, **self.arguments}
        url = self.base_url.rstrip("/") + "/completions"
        return {"model": self.model, "base_url": url, **self.arguments}


def installed() -> bool:
    """Return whether the package is installed."""
    return importlib.util.find_spec("lm_eval") is not None


def measure(asked: Measurement) -> dict[str, Any]:
    """Run the tasks and return lm-eval's results, the samples among them.

    Raises:
        UserError: The package or one that its engine needs is not installed, or it has no such
            engine.
        HarnessError: The model or a data set cannot be loaded.
    """
    if not installed():
        raise UserError(
            "Table 9's tasks need the package lm-eval, which is not installed; install the extra "
            "`lm-eval` of this project, or score its results with --results"
        )
    import lm_eval
    from lm_eval.api.registry import get_model

    engine = asked.engine if asked.base_url is None else ENDPOINT_ENGINE
    try:
        get_model(engine)
    except ValueError as error:
        raise UserError(f"lm-eval has no engine `{engine}`; give another --engine") from error
    with _key_of(asked):
        try:
            results = lm_eval.simple_evaluate(
                model=engine,
                model_args=asked.model_arguments,
                tasks=[task.name for task in asked.tasks],
                batch_size=asked.batch_size,
                device=asked.device,
                limit=asked.limit,
                log_samples=True,
                # The authors' script applies none.
                apply_chat_template=False,
            )
        except OSError as error:
            words = " ".join(str(error).split())
            raise HarnessError(
                f"lm-eval cannot load a model or a data set ({words[:300]}); put it into the hub's "
                "cache, or let it be fetched with HF_HUB_OFFLINE=0"
            ) from error
        except ImportError as error:
            raise UserError(
                f"The engine `{engine}` of lm-eval lacks a package ({error}); install it"
            ) from error
    if results is None:
        raise HarnessError("lm-eval returned no results; run it in one process")
    return dict(results)


def keep_results(results: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """Write lm-eval's results and its samples, and return the results as they can be read again.

    Args:
        results: What `measure` returned.
        folder: Where to write `results.json` and a file of samples for each task.

    Raises:
        HarnessError: They cannot be written.
    """
    samples = results.get("samples")
    # What a model wrote is among them, and need not be text that can be written.
    kept: dict[str, Any] = read_json(
        json.dumps({k: v for k, v in results.items() if k != "samples"}, default=_plain)
    )
    write(folder / RESULTS, json.dumps(kept, indent=1, ensure_ascii=False) + "\n")
    for task, rows in samples.items() if isinstance(samples, Mapping) else ():
        lines = [read_json(json.dumps(row, default=_plain)) for row in rows]
        write_lines(folder / f"samples_{task}.jsonl", lines)
    return kept


def parse_arguments(option: str, text: str | None) -> dict[str, Json]:
    """Read an engine's arguments from `NAME=VALUE,NAME=VALUE`; values are JSON, else text.

    Raises:
        UserError: A part has no name or no value.
    """
    found: dict[str, Json] = {}
    for part in text.split(",") if text else ():
        name, equals, value = part.partition("=")
        if not name.strip() or not equals:
            raise UserError(f"`{option} {text}` is not a list of settings; write `name=value,...`")
        try:
            found[name.strip()] = json.loads(value)
        except json.JSONDecodeError:
            found[name.strip()] = value
    return found


@contextlib.contextmanager
def _key_of(asked: Measurement) -> Iterator[None]:
    """Let the package find the model's key, and no other, where it looks for one."""
    before = os.environ.pop(_KEY_THAT_THE_PACKAGE_READS, None)
    key = os.environ.get(asked.key_variable)
    if asked.key_variable == _KEY_THAT_THE_PACKAGE_READS:
        key = before
    if key and asked.base_url is not None:
        os.environ[_KEY_THAT_THE_PACKAGE_READS] = key
    try:
        yield
    finally:
        os.environ.pop(_KEY_THAT_THE_PACKAGE_READS, None)
        if before is not None:
            os.environ[_KEY_THAT_THE_PACKAGE_READS] = before


def _plain(value: Any) -> Any:
    """Return what JSON does not know as something it does: numpy's numbers, else text."""
    return value.item() if hasattr(value, "item") else str(value)
