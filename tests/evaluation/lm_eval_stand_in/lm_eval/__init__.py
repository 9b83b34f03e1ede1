"""A stand-in for lm-eval 0.4.13: the signature of `simple_evaluate`, and results of its form."""

from __future__ import annotations

import os
from typing import Any

CALLS: list[dict[str, Any]] = []
"""What was asked, with the key that the package would have sent."""

FAILS: list[Exception] = []
"""Raised by the next call, if there is one."""

SHARE = 0.25


def simple_evaluate(
    model: Any,
    model_args: str | dict[str, Any] | None = None,
    tasks: list[Any] | None = None,
    num_fewshot: int | None = None,
    batch_size: int | str | None = None,
    max_batch_size: int | None = None,
    device: str | None = None,
    use_cache: str | None = None,
    cache_requests: bool = False,
    rewrite_requests_cache: bool = False,
    delete_requests_cache: bool = False,
    limit: int | float | None = None,
    samples: dict[str, list[int]] | None = None,
    bootstrap_iters: int = 100000,
    check_integrity: bool = False,
    write_out: bool = False,
    log_samples: bool = True,
    evaluation_tracker: Any = None,
    system_instruction: str | None = None,
    apply_chat_template: bool | str = False,
    fewshot_as_multiturn: bool = True,
    gen_kwargs: Any = None,
    task_manager: Any = None,
    verbosity: Any = None,
    predict_only: bool = False,
    random_seed: int = 0,
    numpy_random_seed: int = 1234,
    torch_random_seed: int = 1234,
    fewshot_random_seed: int = 1234,
    confirm_run_unsafe_code: bool = False,
    metadata: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """Return results in which a quarter of everything is right."""
    CALLS.append(
        {
            "model": model, "model_args": model_args, "tasks": tasks, "batch_size": batch_size,
            "limit": limit, "device": device, "chat": apply_chat_template,
            "key": os.environ.get("OPENAI_API_KEY"),
        }
    )  # fmt: skip
    if FAILS:
        raise FAILS.pop()
    names = tasks or []
    metrics = ("acc", "acc_norm", "bleu_acc", "exact_match")
    filters = ("none", "strict-match")
    values = {f"{m},{f}": SHARE for m in metrics for f in filters}
    errors = {f"{m}_stderr,{f}": 0.01 for m in metrics for f in filters}
    seen = limit or 100
    return {
        "results": {name: {"alias": name, **values, **errors} for name in names},
        "versions": dict.fromkeys(names, 1.0),
        "n-shot": dict.fromkeys(names, 5),
        "n-samples": {name: {"original": 100, "effective": seen} for name in names},
        "config": {"model": model, "model_args": model_args},
        "lm_eval_version": "0.4.13",
        "samples": {name: [{"doc_id": 0, "resps": [["r"]], "odd": {1, 2}}] for name in names},
    }
