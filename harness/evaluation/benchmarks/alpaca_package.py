"""AlpacaEval's annotators and length control, from the package `alpaca_eval`.

The package's annotator builds the prompts, with its seeded random order of outputs, and parses the
replies; this project's client sends the requests. So the annotator is called twice: once to capture
its prompts, and again with the replies. The length control needs `df_gamed.csv`, which neither the
package nor this project ships and whose digest is checked. It joins difficulties by position, so it
needs all 805 annotations in order; its per-prompt values are the predictions at equal lengths.

Source: alpaca_eval 0.6.6, `annotators/base.py`, `annotators/pairwise_evaluator.py`,
`decoders/openai.py` (chat messages, top_p 1, arguments of a tool call as the text),
`metrics/glm_winrate.py`.
"""

from __future__ import annotations

import contextlib
import importlib.util
import io
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from harness.endpoint.request import ChatRequest, Message, Reply
from harness.errors import UserError
from harness.evaluation.files import Record
from harness.evaluation.scores import FloatArray
from harness.runtime.files import sha256_of

INSTRUCTIONS = 805
FILE_NAME = "df_gamed.csv"
PUBLISHED_SHA256 = "97aeec3f1c7de6dee6fd31fe66f1702623f4614c3efe1c6fc5f4927cd5fd674d"
"""Digest of the published file as two third parties report it; this project never had the file."""


class _Seen(Exception):
    """Stops the annotator once its prompts are captured; not an error."""

    def __init__(self, prompts: Sequence[str], settings: Mapping[str, Any]) -> None:
        super().__init__()
        self.prompts = tuple(prompts)
        self.settings = dict(settings)


def installed() -> bool:
    return importlib.util.find_spec("alpaca_eval") is not None


def prompts_of(rows: Sequence[Record], judge: str, annotator: str) -> dict[str, ChatRequest]:
    """Map the annotator's prompts to their requests, given one record per pair of outputs."""

    def see(prompts: Sequence[str], **settings: Any) -> Any:
        raise _Seen(prompts, settings)

    with _quiet():
        try:
            _annotate(rows, annotator, see)
        except _Seen as seen:
            return {prompt: _request(prompt, seen.settings, judge) for prompt in seen.prompts}
    # Equal outputs need no judge, so there may be no prompts.
    return {}


def preferences_of(
    rows: Sequence[Record], annotator: str, replies: Mapping[str, Reply | None]
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
        annotated = _annotate(rows, annotator, known)
    found = {str(row["instruction"]): row.get("preference") for row in annotated}
    return {
        text: float(value) if isinstance(value, int | float) and 1.0 <= value <= 2.0 else None
        for text, value in found.items()
    }


def length_controlled(
    annotations: Sequence[Mapping[str, Any]], file: Path, sha256: str = PUBLISHED_SHA256
) -> FloatArray | str:
    """Return the predicted preferences at equal lengths, in percent, (805,), or why there are none.

    `file` is the package's data, which must have the digest `sha256`.
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
        glm_winrate.get_length_controlled_winrate(
            table,
            save_weights_dir=None,  # the default writes into the installed package
            is_add_glm_preference_inplace=True,
            is_warn_extreme_changes=False,
        )
    finally:
        glm_winrate.hf_hub_download = fetch
    return 100.0 * table["glm_preference"].to_numpy(dtype=np.float64)


def _annotate(
    rows: Sequence[Record], annotator: str, complete: Callable[..., Any]
) -> list[dict[str, Any]]:
    """Run the package's annotator with a custom completion function."""
    if not installed():
        raise UserError(
            "AlpacaEval's judge needs the package alpaca-eval, which is not installed; install "
            "the extra `alpaca` of this project"
        )
    from alpaca_eval.annotators import PairwiseAnnotator

    pool = PairwiseAnnotator(
        annotators_config=annotator, caching_path=None, is_avoid_reannotations=False
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
