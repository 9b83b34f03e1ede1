"""A creator that has a language model rewrite prompts, in the words of an evolving scheme.

An evolving scheme is a set of methods; one is drawn uniformly for each rewrite. What a method tells
the model is a template, read from a YAML file whose format stands at the head of `templates.yaml`,
this project's own. Another file takes the place of the schemes it has, word for word. What is left
of a file is a `Scheme`, which travels in a stage's settings; its digest says which words a rewrite
is due to. The schemes are those of table 12 (`evol_quality` turns to prompts what the published
method does to *answers*) and `appendix_f`, that of online eva, meant for best-of-n trees.

The method and a sample number are drawn from the chain's own generator, so the same chain asks for
the same texts whatever else is evolved beside it, and a retry asks for another one. An endpoint's
replies are kept on disk: a stage that was killed finds those it had.

Source: paper sections 3.3 and H.1, table 12, appendices A and F; distilabel 1.3.2 for the methods
of the first four.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from pydantic import Field, model_validator

from harness.endpoint.client import PATIENCE, ServedModel, work_through
from harness.endpoint.connection import UnansweredError
from harness.endpoint.request import ChatRequest, Message
from harness.errors import HarnessError, UserError
from harness.eva.evolving import Evolution, Grow, NoReplyError, Over, Prompt, Rewrite
from harness.registry import documents
from harness.registry.documents import Document, Problem
from harness.runtime.stage import fingerprint_of
from harness.strict import Strict

if TYPE_CHECKING:
    import numpy as np

_IN_DEPTH = ("constraints", "deepening", "concretizing", "reasoning")

METHODS: Mapping[str, tuple[str, ...]] = {
    "evol_instruct": (*_IN_DEPTH, "breadth"),
    "evol_complexity": _IN_DEPTH,
    "evol_quality": ("helpfulness", "relevance", "deepening", "creativity", "details"),
    "self_instruct": ("new",),
    "appendix_f": (
        *("persona", "shift-in", "shift-out", "mix", "abstract"),
        *(*_IN_DEPTH, "expansion"),
    ),
}
"""The methods of each scheme; what each does to a prompt, `templates.yaml` says."""

OWN_TEMPLATES = Path(__file__).resolve().parent / "templates.yaml"
"""This project's own templates."""

PROMPT, INSTRUCTION = "{prompt}", "{instruction}"

_PLACEHOLDER = re.compile(r"\{[A-Za-z_]\w*\}")


class ReplyFormat(Strict):
    """Where in a reply the rewrite stands; with neither, it is the whole reply."""

    tag: str | None = Field(default=None, pattern=r"^[A-Za-z][\w-]*$")
    """Name of the tags around it, in letters as in `new_prompt`."""
    after: str | None = Field(default=None, pattern=r"\S")
    """A mark that it follows, the last one where there are several."""

    @model_validator(mode="after")
    def _one_way(self) -> ReplyFormat:
        if self.tag is not None and self.after is not None:
            raise ValueError("a reply is read by `tag` or by `after`, not by both")
        return self

    def read(self, text: str) -> str | None:
        """Return the rewrite in a reply, stripped; None where it is not marked as it should be."""
        if self.tag is not None:
            found = re.findall(rf"<{self.tag}>(.*?)</{self.tag}>", text, re.DOTALL)
            return found[-1].strip() if found else None
        if self.after is not None:
            _, mark, text = text.rpartition(self.after)
            return text.strip() if mark else None
        return text.strip()


class _Method(Strict):
    frame: str
    instruction: str


class _Scheme(Strict):
    system: str | None = None
    reply: ReplyFormat = ReplyFormat()
    frames: dict[str, str]
    methods: dict[str, _Method]

    def composed(self, name: str) -> Scheme:
        messages = {
            method: self.frames[given.frame].replace(INSTRUCTION, given.instruction.strip()).strip()
            for method, given in self.methods.items()
        }
        return Scheme(name=name, messages=messages, reply=self.reply, system=self.system)


class _TemplatesFile(Strict):
    version: Literal[1]
    schemes: dict[str, _Scheme]


class Scheme(Strict):
    """An evolving scheme in the words of some file; it travels in a stage's settings."""

    name: str
    """The scheme, as in `METHODS`."""
    messages: dict[str, str]
    """The user message of each method, with `{prompt}` where the prompt goes."""
    reply: ReplyFormat = ReplyFormat()
    """Where the rewrite stands in a reply."""
    system: str | None = None
    """The system message, if any."""

    @cached_property
    def methods(self) -> tuple[str, ...]:
        """The methods, in an order that does not depend on the file's."""
        return tuple(sorted(self.messages))

    @cached_property
    def digest(self) -> str:
        """The sha256 of everything a model is told, and of how its reply is read."""
        return fingerprint_of(self.model_dump(), "templates")

    def message(self, method: str, prompt: str) -> str:
        """Return what a model is told to rewrite a prompt by a method.

        Placeholders in the prompt itself stay as they are.
        """
        return self.messages[method].replace(PROMPT, prompt)


def load_scheme(name: str, path: Path | None = None) -> Scheme:
    """Return a scheme in the words of a file, or in this project's where the file lacks it.

    Raises:
        UserError: There is no such scheme.
        RegistryError: Anything is wrong in the file; it carries every problem found.
    """
    if name not in METHODS:
        raise UserError(f"there is no evolving scheme `{name}`{documents.nearest(name, METHODS)}")
    if path is not None and name in (given := read_templates(path)):
        return given[name]
    return read_templates(OWN_TEMPLATES)[name]


def read_templates(path: Path) -> dict[str, Scheme]:
    """Read and check a templates file.

    Raises:
        RegistryError: Anything is wrong in it; it carries every problem found.
    """
    file, document = documents.read_declared(path, _TemplatesFile, "`version` and `schemes`")
    problems = [p for name, s in file.schemes.items() for p in _problems(document, name, s)]
    if problems:
        raise documents.RegistryError(problems)
    return {name: scheme.composed(name) for name, scheme in file.schemes.items()}


def _problems(document: Document, name: str, scheme: _Scheme) -> Iterator[Problem]:

    def wrong(text: str, *place: str) -> Problem:
        return document.problem(("schemes", name, *place), text)

    if name not in METHODS:
        yield wrong(f"there is no evolving scheme `{name}`{documents.nearest(name, METHODS)}")
        return
    if not scheme.methods:
        yield wrong(f"`{name}` has no method; give one at least", "methods")
    told: list[tuple[str, tuple[str, ...], tuple[str, ...]]]
    told = [(scheme.system or "", (), ("system",))]
    told += [
        (text, (PROMPT, INSTRUCTION), ("frames", frame)) for frame, text in scheme.frames.items()
    ]
    told += [
        (given.instruction, (PROMPT,), ("methods", method, "instruction"))
        for method, given in scheme.methods.items()
    ]
    for text, known, place in told:
        for found in sorted(set(_PLACEHOLDER.findall(text)) - set(known)):
            what = " ".join(place)
            yield wrong(f"{what} has the placeholder {found}, which nothing fills in", *place)
        if INSTRUCTION in known and INSTRUCTION not in text:
            yield wrong(f"{' '.join(place)} lacks {INSTRUCTION}, where a method's words go", *place)
    for method, given in scheme.methods.items():
        if method not in METHODS[name]:
            near = documents.nearest(method, METHODS[name])
            yield wrong(f"`{name}` has no method `{method}`{near}", "methods", method)
        framed = scheme.frames.get(given.frame)
        if framed is None:
            near = documents.nearest(given.frame, scheme.frames)
            yield wrong(f"there is no frame `{given.frame}`{near}", "methods", method, "frame")
        elif PROMPT not in framed + given.instruction:
            yield wrong(f"neither `{method}` nor its frame has {PROMPT}", "methods", method)


@dataclass(frozen=True)
class Written:
    """What a generator wrote; the text is empty where nothing was."""

    text: str
    cut: bool = False
    """Whether it ended at the longest length allowed instead of by itself."""
    refused: bool = False
    """Whether the endpoint itself says that it was refused or filtered."""


@dataclass
class EndpointGenerator:
    """Has a model at an OpenAI-compatible endpoint write; may be called from many threads."""

    served: ServedModel
    refused: int = 0

    def write(self, messages: Sequence[Message], sample: int, label: str) -> Written:
        """Return what the model writes; another sample draws another text.

        `label` says for people what it is for.

        Raises:
            HarnessError: The endpoint refuses everything, did not answer in all attempts, or the
                budget is used up.
        """
        served = self.served
        request = ChatRequest(label, served.model, tuple(messages), served.settings, sample)
        try:
            reply = served.client.ask(request)
        except UnansweredError as error:
            self.refused += 1
            # One prompt may be refused; all of them are a mistake in the model or its settings.
            refuses_all = self.refused >= PATIENCE and not served.client.used
            if refuses_all or not error.refused:
                raise
            return Written("", refused=True)
        finish, message = reply.choice.get("finish_reason"), reply.choice.get("message") or {}
        refused = finish == "content_filter" or bool(message.get("refusal"))
        return Written(reply.text, cut=finish == "length", refused=refused)


SAMPLES = 2**31
"""Sample numbers there are; two retries of one prompt hardly ever share one."""

CUT, REFUSED, UNMARKED = "cut off", "refusal", "unmarked"
"""Reasons that the reply itself gives, beside `REASONS`: it ended at the longest
length, the endpoint says that it was refused, or the rewrite is not where the scheme wants it."""

_QUOTES = {'"': '"', "“": "”", "'": "'", "`": "`"}


@dataclass(frozen=True)
class ModelCreator:
    """Rewrites prompts by a scheme (implements `harness.eva.evolving.Rewriter`)."""

    generator: EndpointGenerator
    scheme: Scheme

    def rewrite(self, prompt: str, rng: np.random.Generator) -> Rewrite:
        """Return one rewrite of `prompt` by a method drawn uniformly, usable or not."""
        methods = self.scheme.methods
        method = methods[int(rng.integers(len(methods)))]
        sample = int(rng.integers(SAMPLES))
        messages = [Message("user", self.scheme.message(method, prompt))]
        if self.scheme.system is not None:
            messages.insert(0, Message("system", self.scheme.system))
        written = self.generator.write(messages, sample, f"a rewrite by {method}")
        marked = self.scheme.reply.read(written.text)
        text = "" if marked is None else _unquoted(marked, prompt)
        if written.refused or written.cut:
            reason: str | None = REFUSED if written.refused else CUT
        elif marked is None:
            reason = UNMARKED
        else:
            told = self.scheme.messages[method].replace(PROMPT, "\n")
            reason = why_unusable(text, prompt, (told,))
        kept = written.text if reason or written.text != text else None
        return Rewrite(None if reason else text, method, reason, kept)


def _unquoted(text: str, parent: str) -> str:
    """Return a rewrite without quotes around it that the parent lacks."""
    closing, inside = _QUOTES.get(text[:1]), text[1:-1]
    quoted = closing is not None and len(text) > 2 and text.endswith(closing)
    if quoted and not set(inside) & {text[0], closing} and parent.strip()[:1] != text[0]:
        return inside.strip()
    return text


def replied(generator: EndpointGenerator, message: str, rng: np.random.Generator) -> str:
    """Return a model's reply to a message of an evolving method of the user's own.

    Raises:
        NoReplyError: The model refused, or its reply was cut off.
    """
    sample = int(rng.integers(SAMPLES))
    written = generator.write([Message("user", message)], sample, "a rewrite by a plug-in")
    if written.refused or written.cut:
        raise NoReplyError(REFUSED if written.refused else CUT)
    return written.text


def at_once(served: ServedModel, done: Callable[[int], None] | None = None) -> Over:
    """Return a way to evolve many prompts at once, each asking a model.

    `done` is told, in the calling thread, how many prompts are evolved.
    """

    def over(grow: Grow, prompts: Sequence[Prompt]) -> list[Evolution]:
        def told(count: int, total: int) -> None:
            if done is not None:
                done(count)

        outcomes = work_through(prompts, grow, served, told)
        grown = [outcome.result for outcome in outcomes]
        if None in grown:
            raise HarnessError(f"evolving a prompt gave no result: {outcomes[grown.index(None)]}")
        return [one for one in grown if one is not None]

    return over


RULES_VERSION = 2
"""Number of the rules by which rewrites are unusable; a person raises it when one changes."""

REASONS = ("empty", "leftover", "unchanged", "too long", "nothing new")
"""Why a rewrite is no prompt, in the order that is looked for:

- `empty`: no letter and no digit;
- `leftover`: a tag, heading or placeholder of a template, or `ECHO` words in a row of what the
  model was told;
- `unchanged`: the parent, but for case, punctuation and white space;
- `too long`: more than `TIMES` times the parent's characters and `MORE`;
- `nothing new`: no word that the parent has not.

No language is read, so that a refusal or an answer in the place of a prompt passes where it has the
form that was asked for; where a scheme has the rewrite stand between tags, mostly it has not. What
the parent has as well counts for nothing.
"""

TIMES, MORE = 3.0, 1200
"""Ours: templates ask for 10 to 20 words more, or about the same length; four rewrites in a chain
may each take that, and short parents may grow."""

ECHO = 8
"""Words in a row of the instructions that make a leftover."""

_MARKS = re.compile(
    r"</?(?:new_)?(?:prompt|instruction)>"
    r"|\{(?:prompt|instruction|given_prompt|method)\}"
    r"|#+ ?[\w -]{0,24}\b(?:prompt|instruction) ?#+",
    re.IGNORECASE,
)
"""Tags, placeholders that nobody filled in, and headings such as `#Rewritten Prompt#`."""


def why_unusable(text: str, parent: str, told: Iterable[str] = ()) -> str | None:
    """Return why a rewrite cannot be used, one of `REASONS`, or None if nothing speaks against it.

    `told` are the messages the model was given, without the prompt in them.
    """
    said, before = normalised(text), normalised(parent)
    if not said:
        return "empty"
    if _has_leftover(text, parent, told):
        return "leftover"
    if said == before:
        return "unchanged"
    if len(text) > TIMES * len(parent) + MORE:
        return "too long"
    return "nothing new" if set(said.split()) <= set(before.split()) else None


def normalised(text: str) -> str:
    """Return what a text says: letters, digits and symbols in lower case, one space between words.

    Compatible forms (full-width letters, ligatures) become one, and accents stay.
    """
    folded = unicodedata.normalize("NFKC", text).casefold()
    return " ".join("".join(map(_telling, folded)).split())


@lru_cache(maxsize=4096)
def _telling(character: str) -> str:
    """Return a character that tells prompts apart, or a space."""
    # Operators are what sets formulas and code apart; quotes, commas and stops are not.
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
    words = normalised(text).split()
    return {tuple(words[i : i + ECHO]) for i in range(len(words) - ECHO + 1)}
