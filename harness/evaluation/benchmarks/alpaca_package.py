"""What AlpacaEval takes from the package `alpaca_eval`: its annotators and its length control.

The package's annotator makes the prompts, in its seeded random order, and reads the replies. What
lies between is this project's client: the annotator is called once to see its prompts, and again
when each has its reply. The length control needs `df_gamed.csv`, which neither carries and whose
digest is checked. It joins difficulties by position, so that there is no score without all 805
annotations in order; its values by prompt are the predictions at equal lengths.

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
"""Digest of the published file as two others report it; this project has not seen the file."""


class _Seen(Exception):
    """Ends a call of the annotator as soon as its prompts are known; nothing went wrong."""

    def __init__(self, prompts: Sequence[str], settings: Mapping[str, Any]) -> None:
        super().__init__()
        self.prompts = tuple(prompts)
        self.settings = dict(settings)


def installed() -> bool:
    return importlib.util.find_spec("alpaca_eval") is not None


def prompts_of(rows: Sequence[Record], judge: str, annotator: str) -> dict[str, ChatRequest]:
    """Return the annotator's prompts for pairs of outputs, one record each, with their requests."""

    def see(prompts: Sequence[str], **settings: Any) -> Any:
        raise _Seen(prompts, settings)

    with _quiet():
        try:
            _annotate(rows, annotator, see)
        except _Seen as seen:
            return {prompt: _request(prompt, seen.settings, judge) for prompt in seen.prompts}
    # Equal outputs need no judge, so the annotator may have had nothing to ask.
    return {}


def preferences_of(
    rows: Sequence[Record], annotator: str, replies: Mapping[str, Reply | None]
) -> dict[str, float | None]:
    """Return the preference of each instruction, read in the replies to the annotator's prompts."""

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
    """Return what a model's length-controlled win rate is the mean of, or why there is none.

    That is the preference predicted at equal lengths for each annotation, in percent, shape (805,).

    Args:
        annotations: All 805, in the benchmark's order.
        file: Where the package's data should be.
        sha256: The digest that they must have.
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
    # The package fetches its data from the hub; here that returns the file that was checked.
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
    """Call the package's annotator with another way to complete prompts."""
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
    """Return a choice as the package's parsers take it; an empty one where there is no reply."""
    if reply is None:
        return {"text": "", "total_tokens": 0}
    text = reply.tool_arguments if reply.tool_arguments is not None else reply.text
    return {**reply.choice, "text": text or " ", "total_tokens": sum(reply.usage or (0, 0))}


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Keep the package from logging every step and from changing how others log."""
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
