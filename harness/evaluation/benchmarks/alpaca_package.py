"""AlpacaEval's annotators and length control, from the package `alpaca_eval`.

The package's annotator builds the prompts, with its seeded random order of outputs, and parses the
replies; this project's client sends the requests. So the annotator is called twice: once to capture
its prompts, and again with the replies. The length control needs `df_gamed.csv`, which neither the
package nor this project ships and whose digest is checked. It joins difficulties by position, so it
needs all 805 annotations in order.

The package's own standard error is that of its predictions at equal lengths, which vary with the
difficulty of the instructions but not with the judge's verdicts, so it is several times too small.

Source: alpaca_eval 0.6.6, `annotators/base.py`, `annotators/pairwise_evaluator.py`,
`decoders/openai.py` (chat messages, top_p 1, arguments of a tool call as the text),
`metrics/glm_winrate.py`.
"""

from __future__ import annotations

import contextlib
import importlib.util
import io
import logging
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from harness.endpoint.request import ChatRequest, Message, Reply
from harness.errors import UserError
from harness.evaluation.benchmarks.length_control import information
from harness.evaluation.files import Record
from harness.evaluation.scores import FloatArray
from harness.runtime.files import sha256_of

if TYPE_CHECKING:
    import pandas as pd

OWN_ANNOTATOR = "alpaca_eval_gpt4_turbo_fn"
INSTRUCTIONS = 805
FILE_NAME = "df_gamed.csv"
PUBLISHED_SHA256 = "97aeec3f1c7de6dee6fd31fe66f1702623f4614c3efe1c6fc5f4927cd5fd674d"
"""Digest of the published file as two third parties report it; this project never had the file."""


class _Seen(Exception):
    """Stops the annotator once its prompts are captured; not an error."""


def installed() -> bool:
    return importlib.util.find_spec("alpaca_eval") is not None


def prompts_of(rows: Sequence[Record], judge: str) -> dict[str, ChatRequest]:
    """Map the annotator's prompts to their requests, given one record per pair of outputs."""
    found: dict[str, ChatRequest] = {}

    def see(prompts: Sequence[str], **settings: Any) -> Any:
        found.update({prompt: _request(prompt, settings, judge) for prompt in prompts})
        raise _Seen

    with _quiet(), contextlib.suppress(_Seen):
        _annotate(rows, see)
    return found  # empty if all outputs are equal, which need no judge


def preferences_of(
    rows: Sequence[Record], replies: Mapping[str, Reply | None]
) -> dict[str, float | None]:
    """Return each instruction's preference, parsed from the replies to the annotator's prompts."""

    def known(prompts: Sequence[str], **settings: Any) -> dict[str, list[Any]]:
        choices = [_choice(replies[prompt]) for prompt in prompts]
        return {
            "completions": [choice["text"] for choice in choices],
            "completions_all": choices,
            "price_per_example": [0.0] * len(choices),
            "time_per_example": [0.0] * len(choices),
        }

    with _quiet():
        annotated = _annotate(rows, known)
    found = {str(row["instruction"]): row.get("preference") for row in annotated}
    return {
        text: float(value) if isinstance(value, int | float) and 1.0 <= value <= 2.0 else None
        for text, value in found.items()
    }


def length_controlled(
    annotations: Sequence[Mapping[str, Any]], file: Path, sha256: str = PUBLISHED_SHA256
) -> FloatArray | str:
    """Return values whose mean is the package's score, in percent, (805,), or why there are none.

    A value is the prediction at equal lengths plus the influence of the prompt's own preference on
    the mean prediction. `file` is the package's data, which must have the digest `sha256`.
    """
    if not file.is_file():
        return f"there is no {FILE_NAME}"
    if (found := sha256_of(file)) != sha256:
        return f"{file} has the digest {found}, not {sha256}"
    if not installed():
        return "the package alpaca-eval (extra `alpaca`) is not installed"
    import pandas as pd
    from alpaca_eval.metrics import glm_winrate

    table = pd.DataFrame([dict(row) for row in annotations])
    # The package downloads its data from the hub; return the verified file instead.
    fetch, glm_winrate.hf_hub_download = glm_winrate.hf_hub_download, lambda **_: str(file)
    try:
        with tempfile.TemporaryDirectory() as folder:
            glm_winrate.get_length_controlled_winrate(
                table,
                save_weights_dir=folder,  # the default writes into the installed package
                is_add_glm_preference_inplace=True,
                is_warn_extreme_changes=False,
            )
            (path,) = Path(folder).rglob("*.csv")
            weights = pd.read_csv(path, index_col=0)[list(_TERMS)].to_numpy()[0]
    finally:
        glm_winrate.hf_hub_download = fetch
    predicted = table["glm_preference"].to_numpy(dtype=np.float64)
    if weights.any():  # the reference model has 0.5 against itself, without a fit
        share = glm_winrate.GLM_INFO["length_controlled_v1"]["regularize_to_baseline_lambda"]
        predicted = predicted + _influences(table, pd.read_csv(file), weights, share / 2)
    return 100.0 * predicted


_TERMS = ("np.tanh(std_delta_len)", "instruction_difficulty", "not_gamed_baseline.astype(float)")
"""The regression's terms; the last is 0 for the gamed baselines and the intercept of the others."""


def _influences(
    table: pd.DataFrame, gamed: pd.DataFrame, weights: FloatArray, gamed_weight: float
) -> FloatArray:
    """Return each preference's influence on the mean prediction, times their number, (805,).

    That is the gradient of the mean prediction, times the inverse information, times the
    preference's score; 0 for an absent preference, and a mean of 0. The penalty is left out.
    """
    from scipy.special import expit

    longer = table["output_1"].str.len() - table["output_2"].str.len()
    hard = gamed.drop_duplicates("index")["instruction_difficulty"].loc[table.index]
    design = np.column_stack([np.tanh(longer / longer.std()), hard, np.ones(len(table))])
    theirs = np.column_stack(
        [np.tanh(gamed["std_delta_len"]), gamed["instruction_difficulty"], np.zeros(len(gamed))]
    )
    preference = table["preference"].astype(float).replace({0.0: 1.5}).to_numpy() - 1.0
    judged = ~np.isnan(preference)

    fitted = expit(design @ weights)
    total = information(design[judged], fitted[judged])
    total += gamed_weight * information(theirs, expit(theirs @ weights))
    equal = design * [0.0, 1.0, 1.0]
    slopes = expit(equal @ weights) * expit(-(equal @ weights))
    direction = np.linalg.solve(total, (equal * slopes[:, None]).mean(axis=0))
    found = len(table) * (design @ direction) * (preference - fitted)
    return np.where(judged, found - found[judged].mean(), 0.0)


def _annotate(rows: Sequence[Record], complete: Callable[..., Any]) -> list[dict[str, Any]]:
    """Run the package's annotator with a custom completion function."""
    if not installed():
        raise UserError(
            "AlpacaEval's judge needs the package alpaca-eval, which is not installed; install "
            "the extra `alpaca` of this project"
        )
    from alpaca_eval.annotators import PairwiseAnnotator

    pool = PairwiseAnnotator(
        annotators_config=OWN_ANNOTATOR, caching_path=None, is_avoid_reannotations=False
    )
    for single in pool.annotators.values():
        single.fn_completions = complete
    found: list[dict[str, Any]] = pool(list(rows), chunksize=None)
    return found


def _request(prompt: str, settings: Mapping[str, Any], judge: str) -> ChatRequest:
    from alpaca_eval.utils import prompt_to_chatml

    messages = tuple(Message(m["role"], m["content"]) for m in prompt_to_chatml(prompt.strip()))
    body = {name: value for name, value in settings.items() if name != "model_name"}
    return ChatRequest("an AlpacaEval comparison", judge, messages, {"top_p": 1.0, **body})


def _choice(reply: Reply | None) -> dict[str, Any]:
    """Return a choice as the package's parsers expect it; empty without a reply."""
    if reply is None:
        return {"text": "", "total_tokens": 0}
    text = reply.tool_arguments if reply.tool_arguments is not None else reply.text
    return {**reply.choice, "text": text or " ", "total_tokens": sum(reply.usage or (0, 0))}


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Silence the package's logging, and undo its changes to the logging setup."""
    root = logging.getLogger()
    level, handlers, disabled = root.level, root.handlers[:], root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        with contextlib.redirect_stderr(io.StringIO()):
            yield
    finally:
        logging.disable(disabled)
        root.setLevel(level)
        root.handlers[:] = handlers
