"""What a model is told to rewrite a prompt: read from a YAML file, checked, and digested.

The format is described at the head of `templates.yaml`, this project's own templates. Another file
takes the place of the schemes it has, word for word. All mistakes of a file are found before
anything is sent, each with its line: an unknown scheme, method, frame or placeholder, or a missing
one.

What is left of a file is a `Scheme`: for each method one message with one placeholder. A scheme can
be written as JSON and read back, so that it travels in a stage's settings, and its digest says
which words a rewrite is due to, whatever the file was called.

An evolving scheme is a set of methods; one is drawn uniformly for each rewrite. What a method tells
the model is a template (`templates.yaml`); here stands what it is for. The schemes of table 12:

- `evol_instruct`: four methods in depth, which make a prompt ask for more, and one in breadth,
  which leaves it for another of the same kind;
- `evol_complexity`: the four methods in depth alone;
- `evol_quality`: five ways to better a prompt as a question. The published method rewrites
  *answers* along these five; here they are turned to prompts;
- `self_instruct`: a new prompt that the old one only sets the example for.

And the one of online eva, `appendix_f`: five methods in breadth and five in depth, meant for trees
of which the best is rewritten on.

Source: paper sections 3.3 and H.1, table 12, appendices A and F; distilabel 1.3.2 for the methods
of the first four.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from pydantic import model_validator

from harness.errors import UserError
from harness.registry.documents import (
    Document,
    Problem,
    RegistryError,
    few,
    nearest,
    read_declared,
)
from harness.registry.yaml_reader import Loc
from harness.runtime.stage import Json, canonical_json, digest
from harness.strict import Strict

IN_DEPTH = ("constraints", "deepening", "concretizing", "reasoning")

METHODS: Mapping[str, Mapping[str, str]] = {
    "evol_instruct": {
        "constraints": "add a requirement",
        "deepening": "ask further and wider",
        "concretizing": "replace general notions by particular ones",
        "reasoning": "ask for several steps of reasoning",
        "breadth": "another prompt of the same field, rarer than this one",
    },
    "evol_complexity": {
        "constraints": "add a requirement",
        "deepening": "ask further and wider",
        "concretizing": "replace general notions by particular ones",
        "reasoning": "ask for several steps of reasoning",
    },
    "evol_quality": {
        "helpfulness": "say what the answer is for, so that it can be of more use",
        "relevance": "leave out what does not matter and say what does",
        "deepening": "ask for the reasons and the fine points",
        "creativity": "ask for something that is not the obvious",
        "details": "give and ask for particulars",
    },
    "self_instruct": {
        "new": "a new task of another kind",
    },
    "appendix_f": {
        "persona": "as another kind of person would ask it",
        "shift-in": "the same idea in another part of the same field",
        "shift-out": "the same idea about something else altogether",
        "mix": "the idea joined with something of another field",
        "abstract": "the principle behind the particular case",
        "constraints": "add a requirement that changes the answer",
        "deepening": "ask further and wider",
        "concretizing": "replace general notions by particular ones",
        "reasoning": "ask for several steps, and for why each holds",
        "expansion": "add viewpoints, cases or fields to be compared",
    },
}
"""The methods of each scheme by name, and what each does to a prompt."""


OWN_TEMPLATES = Path(__file__).resolve().parent / "templates.yaml"
"""This project's own templates."""

PROMPT, INSTRUCTION = "{prompt}", "{instruction}"

_PLACEHOLDER = re.compile(r"\{[A-Za-z_]\w*\}")


class Reply(Strict):
    """Where in a reply the rewrite stands; with neither, it is the whole reply."""

    tag: str | None = None
    """Name of the tags around it."""
    after: str | None = None
    """A mark that it follows, the last one where there are several."""

    @model_validator(mode="after")
    def _one_way(self) -> Reply:
        if self.tag is not None and self.after is not None:
            raise ValueError("a reply is read by `tag` or by `after`, not by both")
        if self.tag is not None and not re.fullmatch(r"[A-Za-z][\w-]*", self.tag):
            raise ValueError(f"`{self.tag}` is no name of a tag; give letters, as in `new_prompt`")
        if self.after is not None and not self.after.strip():
            raise ValueError("the mark that a rewrite follows is empty")
        return self

    def read(self, text: str) -> str:
        """Return the rewrite in a reply, stripped; the whole reply where it is not marked."""
        if self.tag is not None:
            found = re.findall(rf"<{self.tag}>(.*?)</{self.tag}>", text, re.DOTALL)
            text = found[-1] if found else text
        elif self.after is not None:
            text = text.rpartition(self.after)[2]
        return text.strip()


class _Method(Strict):
    frame: str
    instruction: str


class _Scheme(Strict):
    system: str | None = None
    reply: Reply = Reply()
    frames: dict[str, str]
    methods: dict[str, _Method]


class _File(Strict):
    version: Literal[1]
    schemes: dict[str, _Scheme]


@dataclass(frozen=True)
class Scheme:
    """An evolving scheme in the words of some file.

    Attributes:
        name: The scheme, as in `METHODS`.
        messages: The user message of each method, with `{prompt}` where the prompt goes.
        reply: Where the rewrite stands in a reply.
        system: The system message, if any.
    """

    name: str
    messages: Mapping[str, str]
    reply: Reply = field(default_factory=Reply)
    system: str | None = None

    @cached_property
    def methods(self) -> tuple[str, ...]:
        """The methods, in an order that does not depend on the file's."""
        return tuple(sorted(self.messages))

    @cached_property
    def digest(self) -> str:
        """The sha256 of everything a model is told, and of how its reply is read."""
        return digest(canonical_json(self.as_json(), "templates"))

    def message(self, method: str, prompt: str) -> str:
        """Return what a model is told to rewrite a prompt by a method.

        Placeholders in the prompt itself stay as they are.
        """
        return self.messages[method].replace(PROMPT, prompt)

    def as_json(self) -> dict[str, Json]:
        """Return the scheme as JSON data."""
        return {
            "name": self.name,
            "system": self.system,
            "reply": self.reply.model_dump(),
            "messages": dict(self.messages),
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Scheme:
        """Return the scheme that `as_json` wrote."""
        reply = Reply.model_validate(data["reply"])
        return cls(data["name"], dict(data["messages"]), reply, data["system"])


def load_scheme(name: str, path: Path | None = None) -> Scheme:
    """Return a scheme in the words of a file, or in this project's where the file lacks it.

    Args:
        name: The scheme.
        path: A templates file; None for this project's own.

    Raises:
        UserError: There is no such scheme.
        RegistryError: Anything is wrong in the file; it carries every problem found.
    """
    if name not in METHODS:
        raise UserError(f"there is no evolving scheme `{name}`{nearest(name, METHODS)}")
    if path is not None and name in (given := read_templates(path)):
        return given[name]
    return read_templates(OWN_TEMPLATES)[name]


def read_templates(path: Path) -> dict[str, Scheme]:
    """Read and check a templates file.

    Raises:
        RegistryError: Anything is wrong in it; it carries every problem found.
    """
    file, document = read_declared(path, _File, "`version` and `schemes`")
    problems = few(p for name, s in file.schemes.items() for p in _problems(document, name, s))
    if problems:
        raise RegistryError(problems)
    return {name: _composed(name, scheme) for name, scheme in file.schemes.items()}


def _composed(name: str, scheme: _Scheme) -> Scheme:
    messages = {
        method: scheme.frames[given.frame].replace(INSTRUCTION, given.instruction.strip()).strip()
        for method, given in scheme.methods.items()
    }
    return Scheme(name, messages, scheme.reply, scheme.system)


def _problems(document: Document, name: str, scheme: _Scheme) -> Iterator[Problem]:
    """Yield what is wrong in a scheme that has the right form."""
    here: Loc = ("schemes", name)
    if name not in METHODS:
        text = f"there is no evolving scheme `{name}`{nearest(name, METHODS)}"
        yield document.problem(here, text)
        return
    if not scheme.methods:
        yield document.problem((*here, "methods"), f"`{name}` has no method; give one at least")
    yield from _unknown(document, (*here, "system"), "the system message", scheme.system or "", ())
    for frame, text in scheme.frames.items():
        place = (*here, "frames", frame)
        known = (PROMPT, INSTRUCTION)
        yield from _unknown(document, place, f"the frame `{frame}`", text, known)
        if INSTRUCTION not in text:
            message = f"the frame `{frame}` lacks {INSTRUCTION}, where a method's words go"
            yield document.problem(place, message)
    for method, given in scheme.methods.items():
        place = (*here, "methods", method)
        if method not in METHODS[name]:
            message = f"`{name}` has no method `{method}`{nearest(method, METHODS[name])}"
            yield document.problem(place, message)
        told, where = given.instruction, (*place, "instruction")
        yield from _unknown(document, where, f"the instruction of `{method}`", told, (PROMPT,))
        framed = scheme.frames.get(given.frame)
        if framed is None:
            message = f"there is no frame `{given.frame}`{nearest(given.frame, scheme.frames)}"
            yield document.problem((*place, "frame"), message)
        elif PROMPT not in framed + given.instruction:
            message = f"neither `{method}` nor its frame has {PROMPT}, where the prompt goes"
            yield document.problem(place, message)


def _unknown(
    document: Document, place: Loc, what: str, text: str, known: tuple[str, ...]
) -> Iterator[Problem]:
    """Yield the placeholders in a text that nothing would fill in."""
    for found in sorted(set(_PLACEHOLDER.findall(text)) - set(known)):
        filled = f"only {' and '.join(known)} can stand there" if known else "none can stand there"
        yield document.problem(place, f"{what} has the placeholder {found}; {filled}")
