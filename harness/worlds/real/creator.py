"""A creator that has a language model rewrite prompts, using an evolving method's templates.

An evolving method is a set of operators, each with a template of the message to the model; one is
drawn uniformly for each rewrite. The wording is stored in a stage's settings; its digest
identifies what is behind a rewrite. The methods are those of table 12 (`evol_quality` applies
to prompts what the published method does to *answers*) and `appendix_f`, that of online eva.

The operator and a sample number are drawn from the chain's own RNG, so a chain requests the same
texts whatever else is evolved alongside it, and a retry requests a different one.

Source: paper sections 3.3 and H.1, table 12, appendices A and F; distilabel 1.3.2 for the methods
of the first four.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.endpoint.client import PATIENCE, Done, ServedModel, work_through
from harness.endpoint.errors import UnansweredError
from harness.endpoint.request import ChatRequest, Message
from harness.errors import HarnessError
from harness.eva.evolving import Evolution, EvolveOne, MapFn, NoReplyError, Prompt, Rewrite
from harness.registry.documents import read_yaml
from harness.words import ignore

if TYPE_CHECKING:
    import numpy as np

TEMPLATES = Path(__file__).resolve().parent / "templates.yaml"

PROMPT, INSTRUCTION = "{prompt}", "{instruction}"


_REWRITE = re.compile(r"<new_prompt>(.*?)</new_prompt>", re.DOTALL)
"""Where the rewrite is in a reply; of several, the last."""


def load_method(name: str) -> dict[str, Any]:
    """Return the settings of a shipped method: each operator's instruction in its frame."""
    shipped = read_yaml(TEMPLATES)["methods"][name]
    messages = {
        operator: shipped["frames"][it["frame"]].replace(INSTRUCTION, it["instruction"].strip())
        for operator, it in shipped["operators"].items()
    }
    return {
        "name": name,
        "messages": {operator: text.strip() for operator, text in messages.items()},
        "reply": {"tag": "new_prompt", "after": None},
        "system": None,
    }


@dataclass(frozen=True)
class Written:
    """A generator's output; the text may be empty."""

    text: str
    reason: str | None = None
    """Why it cannot be used, whatever it says: `CUT` or `REFUSED`."""


@dataclass
class EndpointGenerator:
    """Generates text with a model at an OpenAI-compatible endpoint; may be used by many threads."""

    served: ServedModel
    refused: int = 0

    def write(self, message: str, sample: int, label: str) -> Written:
        """Return the model's text; another `sample` draws another text."""
        served, asked = self.served, (Message("user", message),)
        request = ChatRequest(label, served.model, asked, served.settings, sample)
        try:
            reply = served.client.ask(request)
        except UnansweredError as error:
            self.refused += 1
            # Single prompts may be refused; if all are, the model or its settings are wrong.
            refuses_all = self.refused >= PATIENCE and not served.client.used
            if refuses_all or not error.refused:
                raise
            return Written("", REFUSED)
        finish = reply.choice.get("finish_reason")
        if finish == "content_filter" or (reply.choice.get("message") or {}).get("refusal"):
            return Written(reply.text, REFUSED)
        return Written(reply.text, CUT if finish == "length" else None)


SAMPLES = 2**31
"""Number of sample numbers: large enough that retries of one prompt almost never share one."""

CUT, REFUSED, UNMARKED = "cut off", "refusal", "unmarked"
"""Reasons from the reply itself, besides `REASONS`: truncated at the maximum length, refused
according to the endpoint, or the rewrite is not between its tags."""

_QUOTES = {'"': '"', "“": "”", "'": "'", "`": "`"}


@dataclass(frozen=True)
class ModelCreator:
    """Rewrites prompts by a method (implements `harness.eva.evolving.Rewriter`)."""

    generator: EndpointGenerator
    messages: Mapping[str, str]
    """What each operator tells the model, with `{prompt}` where the prompt goes."""

    def rewrite(self, prompt: str, rng: np.random.Generator) -> Rewrite:
        """Return one rewrite of `prompt` by an operator drawn uniformly, usable or not."""
        operators = sorted(self.messages)  # an order independent of the file's
        operator = operators[int(rng.integers(len(operators)))]
        sample = int(rng.integers(SAMPLES))
        template = self.messages[operator]
        message = template.replace(PROMPT, prompt)
        written = self.generator.write(message, sample, f"a rewrite by {operator}")
        marked = _REWRITE.findall(written.text)
        text = _unquoted(marked[-1].strip(), prompt) if marked else ""
        told = (template.replace(PROMPT, "\n"),)
        reason = written.reason or (why_unusable(text, prompt, told) if marked else UNMARKED)
        return Rewrite(None if reason else text, operator, reason, written.text)


def _unquoted(text: str, parent: str) -> str:
    """Strip quotes around a rewrite, unless the parent starts with the same one."""
    closing, inside = _QUOTES.get(text[:1]), text[1:-1]
    quoted = closing is not None and len(text) > 2 and text.endswith(closing)
    if quoted and not set(inside) & {text[0], closing} and parent.strip()[:1] != text[0]:
        return inside.strip()
    return text


def write_for_plugin(generator: EndpointGenerator, message: str, rng: np.random.Generator) -> str:
    """Return a model's reply to a message from a plug-in's evolving method."""
    sample = int(rng.integers(SAMPLES))
    written = generator.write(message, sample, "a rewrite by a plug-in")
    if written.reason is not None:
        raise NoReplyError(written.reason)
    return written.text


def evolve_concurrently(served: ServedModel, done: Done = ignore) -> MapFn:
    """Return a function that evolves many prompts concurrently, each querying a model."""

    def over(evolve_one: EvolveOne, prompts: Sequence[Prompt]) -> list[Evolution]:
        outcomes = work_through(prompts, evolve_one, served, done)
        grown = [outcome.result for outcome in outcomes]
        if None in grown:
            raise HarnessError(f"evolving a prompt gave no result: {outcomes[grown.index(None)]}")
        return [one for one in grown if one is not None]

    return over


RULES_VERSION = 2
"""Version of the rules for unusable rewrites; raise it by hand when a rule changes."""

REASONS = ("empty", "leftover", "unchanged", "too long", "nothing new")
"""Why a rewrite is not a usable prompt, in the order checked:

- `empty`: no letter, digit or symbol;
- `leftover`: a tag, heading or placeholder of a template, or `ECHO` consecutive words of what the
  model was told, unless the parent has it too;
- `unchanged`: equal to the parent except for case, punctuation and whitespace;
- `too long`: more characters than `TIMES` times the parent's plus `MORE`;
- `nothing new`: no word that the parent lacks.

Meaning is not checked, so a refusal, or an answer instead of a prompt, passes if it has the
requested form; with methods that put the rewrite between tags, it usually doesn't.
"""

TIMES, MORE = 3.0, 1200
"""Ours: templates ask for 10 to 20 more words, or about the same length; each of the four rewrites
in a chain may add that, and short parents may grow."""

ECHO = 8
"""Number of consecutive words of the instructions that count as a leftover."""

_MARKS = re.compile(
    r"</?(?:new_)?(?:prompt|instruction)>"
    r"|\{(?:prompt|instruction|given_prompt|method)\}"
    r"|#+ ?[\w -]{0,24}\b(?:prompt|instruction) ?#+",
    re.IGNORECASE,
)
"""Tags, unfilled placeholders, and headings such as `#Rewritten Prompt#`."""


def why_unusable(text: str, parent: str, told: Iterable[str] = ()) -> str | None:
    """Return why a rewrite is unusable, one of `REASONS`, or None; `told`: the model's messages."""
    said, before = normalized(text), normalized(parent)
    if not said:
        return "empty"
    if _has_leftover(text, parent, told):
        return "leftover"
    if said == before:
        return "unchanged"
    if len(text) > TIMES * len(parent) + MORE:
        return "too long"
    return "nothing new" if set(said.split()) <= set(before.split()) else None


def normalized(text: str) -> str:
    """Normalize a text: lowercase letters, digits and symbols, one space between words."""
    folded = unicodedata.normalize("NFKC", text).casefold()
    return " ".join("".join(map(_telling, folded)).split())


@lru_cache(maxsize=4096)
def _telling(character: str) -> str:
    """Return the character if it distinguishes prompts, else a space."""
    # Operators distinguish formulas and code; quotes, commas and periods do not.
    kept = character.isalnum() or character in "*/%&@\\"
    kept = kept or unicodedata.category(character) in ("Mn", "Mc", "Sm", "Sc", "So")
    return character if kept else " "


def _has_leftover(text: str, parent: str, told: Iterable[str]) -> bool:
    there = {mark.casefold() for mark in _MARKS.findall(parent)}
    if any(mark.casefold() not in there for mark in _MARKS.findall(text)):
        return True
    mine = _echoes(text) - _echoes(parent)
    return any(not mine.isdisjoint(_echoes(message)) for message in told)


@lru_cache(maxsize=64)
def _echoes(text: str) -> set[tuple[str, ...]]:
    words = normalized(text).split()
    return {tuple(words[i : i + ECHO]) for i in range(len(words) - ECHO + 1)}
