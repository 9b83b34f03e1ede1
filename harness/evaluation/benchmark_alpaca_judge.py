"""AlpacaEval 2 as it is judged: a ranking of two answers, through alpaca_eval.

What the judge is asked and how its reply is read are the package's: its annotator makes the
prompts (with the two answers in its seeded random order), and its parser reads the replies. Only
what lies between, sending prompts and keeping replies, is this project's judge client: the
annotator is called once to see its prompts, and again when every one of them has its reply.

Source: alpaca_eval 0.6.6, `annotators/base.py`, `annotators/pairwise_evaluator.py`,
`decoders/openai.py` (chat messages, top_p 1, arguments of a tool call as the text).
"""

from __future__ import annotations

import contextlib
import importlib.util
import io
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from harness.endpoint.client import Client, Outcome
from harness.endpoint.request import ChatRequest, Message, Reply
from harness.errors import UserError
from harness.evaluation.benchmark_alpaca_eval import OWN_ANNOTATOR, Inputs, Record
from harness.evaluation.benchmark_files import Answers


@dataclass(frozen=True)
class Comparison:
    """One prompt of the annotator, and the request that sends it."""

    prompt: str
    request: ChatRequest


class _Seen(Exception):
    """Ends a call of the annotator as soon as its prompts are known; nothing went wrong."""

    def __init__(self, prompts: Sequence[str], settings: Mapping[str, Any]) -> None:
        super().__init__()
        self.prompts = tuple(prompts)
        self.settings = dict(settings)


def installed() -> bool:
    """Return whether the package is installed."""
    return importlib.util.find_spec("alpaca_eval") is not None


def requests(
    inputs: Inputs, answers: Answers, judge: str, annotator: str = OWN_ANNOTATOR
) -> list[Comparison]:
    """Return the requests that compare a model's answers with the reference.

    Args:
        inputs: The benchmark's files.
        answers: The model's answers.
        judge: The model that is asked; the annotator's own is `OWN_JUDGE`.
        annotator: One of `ANNOTATORS`.

    Raises:
        UserError: The package is not installed, or an instruction has no answer.
    """

    def see(prompts: Sequence[str], **settings: Any) -> Any:
        raise _Seen(prompts, settings)

    rows = _rows(inputs, answers)
    with _quiet():
        try:
            _annotate(rows, annotator, see)
        except _Seen as seen:
            return [_comparison(prompt, seen.settings, judge) for prompt in seen.prompts]
    # Equal outputs need no judge, so the annotator may have had nothing to ask.
    return []


def judge_reply(client: Client, item: Comparison) -> Reply:
    """Return the judge's reply to one comparison."""
    return client.ask(item.request)


def annotation_records(
    inputs: Inputs,
    answers: Answers,
    items: Sequence[Comparison],
    outcomes: Sequence[Outcome[Reply]],
    annotator: str = OWN_ANNOTATOR,
) -> list[dict[str, Any]]:
    """Return annotations in the benchmark's own form and order; unread ones have a null preference.

    Args:
        inputs: The benchmark's files.
        answers: The model's answers.
        items: The comparisons, from `requests`.
        outcomes: What became of them.
        annotator: One of `ANNOTATORS`.
    """
    replies = {i.prompt: o.result for i, o in zip(items, outcomes, strict=True)}

    def known(prompts: Sequence[str], **settings: Any) -> dict[str, list[Any]]:
        choices = [_choice(replies[prompt]) for prompt in prompts]
        return {
            "completions": [choice["text"] for choice in choices],
            "completions_all": choices,
            "price_per_example": [0.0] * len(choices),
            "time_per_example": [0.0] * len(choices),
        }

    rows = _rows(inputs, answers)
    with _quiet():
        annotated = _annotate(rows, annotator, known)
    preferences = {str(row["instruction"]): row.get("preference") for row in annotated}
    records = []
    for row in rows:
        preference = preferences.get(row["instruction"])
        readable = isinstance(preference, int | float) and 1.0 <= preference <= 2.0
        value = float(preference) if readable else None  # type: ignore[arg-type]
        records.append({**row, "annotator": annotator, "preference": value})
    return records


def _rows(inputs: Inputs, answers: Answers) -> list[dict[str, str]]:
    own = answers.to(inputs.questions)
    return [
        {
            "instruction": question.turns[0],
            "dataset": str(reference.get("dataset", "")),
            "output_1": str(reference["output"]),
            "generator_1": inputs.reference,
            "output_2": answer.turns[0],
            "generator_2": answers.model,
        }
        for question, reference, answer in zip(
            inputs.questions, inputs.references, own, strict=True
        )
    ]


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


def _comparison(prompt: str, settings: Mapping[str, Any], judge: str) -> Comparison:
    from alpaca_eval.utils import prompt_to_chatml

    messages = tuple(Message(m["role"], m["content"]) for m in prompt_to_chatml(prompt.strip()))
    body = {name: value for name, value in settings.items() if name != "model_name"}
    request = ChatRequest("an AlpacaEval comparison", judge, messages, {"top_p": 1.0, **body})
    return Comparison(prompt, request)


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
