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
import hashlib
import importlib.util
import io
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from harness.endpoint.request import ChatRequest, Message, Reply
from harness.errors import UserError
from harness.evaluation.files import Record
from harness.evaluation.scores import FloatArray
from harness.foreign import read_plain

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
    """Return whether the package is installed."""
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


@dataclass(frozen=True)
class LengthControl:
    """Where the data of AlpacaEval's length control are, and the digest they must have."""

    data_file: Path | None = None
    sha256: str = PUBLISHED_SHA256

    @classmethod
    def in_folder(cls, data: Path) -> LengthControl:
        """Return that with the data in a folder of the benchmark's files, if they are there."""
        path = data / FILE_NAME
        return cls(path if path.is_file() else None)

    def values(
        self, annotations: Sequence[Mapping[str, Any]], instructions: Sequence[str] | None = None
    ) -> FloatArray | str:
        """Return what a model's length-controlled win rate is the mean of, or why there is none.

        That is the preference predicted at equal lengths for each annotation, in percent, shape
        (805,). The instructions are the benchmark's, in its order, which annotations must have.
        """
        file = self.data_file
        if file is None:
            return f"there is no {FILE_NAME}"
        try:
            found = hashlib.sha256(read_plain(file)).hexdigest()
        except OSError as error:
            raise UserError(f"Cannot read {file}: {error.strerror or error}") from error
        if found != self.sha256.lower():
            return f"{file} has the digest {found}, not {self.sha256}"
        if not installed():
            return "the package alpaca-eval (extra `alpaca`) is not installed"
        if len(annotations) != INSTRUCTIONS:
            return f"there are {len(annotations)} annotations instead of {INSTRUCTIONS}"
        own = [row.get("instruction") for row in annotations]
        if instructions is not None and own != list(instructions):
            return "the annotations are not in the benchmark's order"
        return _by_the_package(annotations, file)


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


def _by_the_package(annotations: Sequence[Mapping[str, Any]], data_file: Path) -> FloatArray:
    import pandas as pd
    from alpaca_eval.metrics import glm_winrate

    table = pd.DataFrame([dict(row) for row in annotations])
    with _fetching(glm_winrate, data_file):
        glm_winrate.get_length_controlled_winrate(
            table,
            # The default writes into the installed package.
            save_weights_dir=None,
            is_add_glm_preference_inplace=True,
            is_warn_extreme_changes=False,
        )
    return 100.0 * table["glm_preference"].to_numpy(dtype=np.float64)


@contextlib.contextmanager
def _fetching(module: Any, data_file: Path) -> Iterator[None]:
    """Let the package's fetch of its data from the hub return a file that was checked."""
    original = module.hf_hub_download
    module.hf_hub_download = lambda **_: str(data_file)
    try:
        yield
    finally:
        module.hf_hub_download = original
