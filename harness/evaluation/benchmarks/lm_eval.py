"""Table 9's downstream tasks, run with lm-evaluation-harness.

The paper reports six numbers per row, without metrics or shots: where a task reports several, the
choice is an assumption, stated in the column's notes. Tested only with lm-eval 0.4.13, on a few
items and a random model.

Source: paper appendix G, table 9; authors' code, `benchmark/lm-evaluation-harness/run.sh`
(lm-eval 0.4.3, batches of 4, no chat template); lm-eval 0.4.13.
"""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.errors import HarnessError, UserError
from harness.evaluation.scores import write_json, write_lines
from harness.foreign import in_a_line, read_json
from harness.runtime.stage import Json

BATCH_SIZE = "4"
"""As in the authors' script."""

RESULTS = "results.json"

Results = Mapping[str, Any]


@dataclass(frozen=True)
class LmEvalTask:
    """One column of table 9; `assumption` is what the paper leaves open, and the choice made."""

    column: str
    name: str
    metric: str
    filter: str
    documents: int
    assumption: str = ""


_FILTER = "the paper names no filter; strict-match is the first of the task's two"

TASKS = (
    LmEvalTask("musr_ta", "leaderboard_musr_team_allocation", "acc_norm", "none", 250),
    LmEvalTask(
        "tqa_gen",
        "truthfulqa_gen",
        "bleu_acc",
        "none",
        817,
        "the paper names no metric; bleu_acc is the first of the task's four shares",
    ),
    LmEvalTask("wmdp", "wmdp", "acc", "none", 3668),
    LmEvalTask("gsm8k", "gsm8k", "exact_match", "strict-match", 1319, _FILTER),
    LmEvalTask("gsm_plus", "gsm_plus_mini", "exact_match", "strict-match", 2400, _FILTER),
    LmEvalTask("mmlu_pro", "leaderboard_mmlu_pro", "acc", "none", 12032),
)


def measure(
    engine: str,
    arguments: Mapping[str, Json],
    batch_size: str = BATCH_SIZE,
    device: str | None = None,
) -> dict[str, Any]:
    """Run the tasks and return lm-eval's results with samples."""
    if importlib.util.find_spec("lm_eval") is None:
        raise UserError(
            "Table 9's tasks need the package lm-eval, which is not installed; install the extra "
            "`lm-eval` of this project"
        )
    import lm_eval

    try:
        results = lm_eval.simple_evaluate(
            model=engine,
            model_args=dict(arguments),
            tasks=[task.name for task in TASKS],
            batch_size=batch_size,
            device=device,
            log_samples=True,
            # As in the authors' script.
            apply_chat_template=False,
        )
    except OSError as error:
        words = in_a_line(" ".join(str(error).split()), 300)
        raise HarnessError(
            f"lm-eval cannot load a model or a data set ({words}); put it into the hub's "
            "cache, or let it be fetched with HF_HUB_OFFLINE=0"
        ) from error
    except ImportError as error:
        raise UserError(f"lm-eval lacks a package ({error}); install it") from error
    if results is None:
        raise HarnessError("lm-eval returned no results; run it in one process")
    return dict(results)


def keep_results(results: Results, folder: Path) -> None:
    """Write lm-eval's results and each task's samples."""
    # They contain model output, which may not be encodable as it is.
    write_json(folder / RESULTS, _as_json({k: v for k, v in results.items() if k != "samples"}))
    for task, rows in (results.get("samples") or {}).items():
        write_lines(folder / f"samples_{task}.jsonl", [_as_json(row) for row in rows])


def _as_json(value: Any) -> Any:
    """Convert lm-eval's data to plain JSON: NumPy numbers to numbers, other objects to strings."""
    plain = json.dumps(value, default=lambda v: v.item() if hasattr(v, "item") else str(v))
    return read_json(plain)
