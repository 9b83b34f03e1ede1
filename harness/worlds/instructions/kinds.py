"""Kinds of instruction: how each is said, read back, checked, and made harder or easier.

An instruction is a kind and a value: a number, a word or phrase, or nothing. Checks take any string
and are exact: what they count is what the instruction says, and nothing is guessed. Spaces at the
ends never decide. Quotation marks and Markdown around an answer do not decide how it starts or
ends, but other checks read them: asterisks around its quotation marks fail *quoted*, and quotation
marks before the first bullet point or section fail *bullets* and *sections*.

Two kinds of one *slot* (both say how an answer ends, say) cannot be followed together, nor can
those in `CLASHES`; a prompt never has both.

Source: the idea of verifiable instructions is from Zhou et al. 2023 (IFEval); the kinds, wordings
and checks are ours.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

Value = int | str | None

WORD = re.compile(r"[^\W\d_]+(?:['’][^\W\d_]+)*")
"""A word: letters of any alphabet, with apostrophes inside."""


def words(text: str) -> list[str]:
    return [word.lower() for word in WORD.findall(text)]


@dataclass(frozen=True)
class Kind:
    """A kind of instruction.

    Attributes:
        wordings: How it is said, with `{}` for the value and `{s}` for a plural's ending.
        check: Whether an answer, without surrounding whitespace, follows it.
        values: All values, from the easiest to the hardest if `graded`.
        slot: Part of the answer that it decides; None if only `CLASHES` keep it from others.
        family: Kinds of one family are neighbors of each other.
        new: Whether it is in no prompt of training, one control's aside.
    """

    name: str
    family: str
    wordings: tuple[str, ...]
    check: Callable[[str, Value], bool]
    values: tuple[Value, ...] = (None,)
    graded: bool = False
    slot: str | None = None
    new: bool = False

    def say(self, value: Value, wording: int = 0) -> str:
        ending = "" if value == 1 else "s"
        return self.wordings[wording % len(self.wordings)].format(value, s=ending)

    def near(self, value: Value) -> tuple[Value, ...]:
        """Return the values next to one: both neighbors if graded, else all others."""
        if self.graded:
            return self.easier(value) + self.harder(value)
        return tuple(other for other in self.values if other != value)

    def harder(self, value: Value) -> tuple[Value, ...]:
        return self.values[self.values.index(value) + 1 :][:1] if self.graded else ()

    def easier(self, value: Value) -> tuple[Value, ...]:
        at = self.values.index(value)
        return self.values[max(0, at - 1) : at] if self.graded else ()


def _count(pattern: str, flags: int = 0) -> Callable[[str], int]:
    compiled = re.compile(pattern, flags)
    return lambda text: len(compiled.findall(text))


def _letters(text: str) -> bool:
    return any(letter.isalpha() for letter in text)


def _count_lettered(pattern: str) -> Callable[[str], int]:
    """Count matches whose group has a letter."""
    compiled = re.compile(pattern)
    return lambda text: sum(map(_letters, compiled.findall(text)))


# None of these may take time that grows faster than the text: policies write "...." for ever.
_bullet = re.compile(r"^[ \t]*([*•-])[ \t]+\S", re.MULTILINE)
_figures = re.compile(r"\d+(?:[.,]\d+)*")
_list_number = re.compile(r"^[ \t]*(\d{1,3})[.)](?=[ \t]+\S)", re.MULTILINE)
_section = re.compile(r"^[ \t#*]*Section (\d{1,3})\b", re.MULTILINE)
_placeholders = _count_lettered(r"\[([^\[\]\n]*)\]")
_highlights = _count(r"(?<!\*)\*\*?[^\s*](?:[^*\n]*[^\s*])?\*\*?(?!\*)")
_hashtags = _count(r"(?<!\w)#[^\W\d_]\w*")
_asides = _count_lettered(r"\(([^()\n]*)\)")
_titles = _count_lettered(r"<<([^<>\n]*)>>")
_ps = re.compile(r"^[ \t*_#>]*P\. ?S\.", re.MULTILINE)
_sentence_ends = _count(r"(?<![.!?])[.!?]++(?=[\"'”’)\]*]*(?:\s|$))")


def _sentences(text: str) -> int:
    """Return how many sentences end; the point of a list's number ends none."""
    return _sentence_ends(_list_number.sub("", text))


def _counts_up(number: re.Pattern[str]) -> Callable[[str, Value], bool]:
    """Return a check that the numbers in a text are 1, 2 and so on to the value."""
    return lambda text, n: [*map(int, number.findall(text))] == [*range(1, int(n or 0) + 1)]


def _parts(text: str, n: Value) -> bool:
    parts = text.split("***")
    return len(parts) == n and all(words(part) for part in parts)


def _postscript(text: str, _: Value) -> bool:
    """Return whether a text has a P.S. with words before and after it."""
    *before, after = _ps.split(text)
    return bool(words(" ".join(before)) and words(after))


_AROUND = "\"'“”‘’*_#> \t\n"
"""Quotation marks and Markdown around an answer, which decide neither its start nor its end."""


def _starts(text: str, phrase: Value) -> bool:
    begins = re.compile(re.escape(str(phrase)) + r"(?!(?<=\w)\w)")
    return begins.match(text.lstrip(_AROUND)) is not None


def _ends(text: str, phrase: Value) -> bool:
    before, found, after = text.rstrip(_AROUND).rpartition(str(phrase))
    return bool(found) and not after and not before[-1:].isalnum()


_BUSY = ("river", "stone", "green", "paper", "window", "happy", "market", "never", "garden",
         "music", "seven", "table", "morning", "little", "simple", "bright")  # fmt: skip
_COMMON = ("good", "very", "is", "it", "a", "and", "the")
_SPOKEN = ("Listen:", "Well,", "Dear friend,", "Good morning!", "Once upon a time", "First of all,")
_LAST = ("That is all.", "The end.", "Thank you.", "Hope this helps!", "Have a nice day!")

_ALL = (
    Kind("lowercase", "case",
         ("Use only lowercase letters.", "Write everything in lowercase, with no capital letters."),
         lambda text, _: _letters(text) and text == text.lower(), slot="case"),
    Kind("uppercase", "case",
         ("Write everything in capital letters.", "Use capital letters only."),
         lambda text, _: _letters(text) and text == text.upper(), slot="case"),
    Kind("no_comma", "punctuation",
         ("Do not use any commas.", "Write it without a single comma."),
         lambda text, _: "," not in text),
    Kind("exclamations", "punctuation",
         ("Use at least {} exclamation mark{s}.", "Put in {} or more exclamation marks."),
         lambda text, n: text.count("!") >= int(n or 0), (1, 2, 3, 4), graded=True),
    Kind("start", "frame",
         ('Start with the exact words "{}"', 'Your answer must begin with "{}"'),
         _starts, _SPOKEN, slot="start"),
    Kind("end", "frame",
         ('End with the exact phrase "{}"', 'Finish your answer with "{}"'),
         _ends, _LAST, slot="end"),
    Kind("quoted", "frame",
         ("Wrap your whole answer in double quotation marks.",
          "Put the entire answer inside double quotation marks."),
         lambda text, _: len(text) > 1 and text[0] in '"“' and text[-1] in '"”', slot="frame"),
    Kind("postscript", "frame",
         ("Add a postscript at the end that starts with P.S.",
          "After the text, add a P.S."),
         _postscript, slot="end"),
    Kind("title", "marks",
         ("Give it a title in double angle brackets, such as <<title>>.",
          "Add a title wrapped in double angle brackets, as in <<title>>."),
         lambda text, _: _titles(text) > 0),
    Kind("placeholders", "marks",
         ("Use at least {} placeholder{s} in square brackets, such as [name].",
          "Leave {} or more blanks in square brackets, such as [name]."),
         lambda text, n: _placeholders(text) >= int(n or 0), (1, 2, 3, 4), graded=True),
    Kind("highlights", "marks",
         ("Highlight at least {} part{s} with asterisks, such as *this part*.",
          "Put {} or more phrases between asterisks, such as *this part*."),
         lambda text, n: _highlights(text) >= int(n or 0), (1, 2, 3, 4), graded=True),
    Kind("word", "words",
         ('Use the word "{}".', 'Include the word "{}" in your answer.'),
         lambda text, word: str(word) in words(text), _BUSY),
    Kind("word_twice", "words",
         ('Use the word "{}" at least twice.', 'Mention the word "{}" two times or more.'),
         lambda text, word: words(text).count(str(word)) >= 2, _BUSY),
    Kind("avoid", "words",
         ('Do not use the word "{}".', 'Avoid the word "{}" completely.'),
         lambda text, word: str(word) not in words(text), _COMMON, graded=True),
    Kind("at_most", "length",
         ("Use at most {} words.", "Keep it to {} words or fewer."),
         lambda text, n: len(words(text)) <= int(n or 0), (40, 30, 20, 12), graded=True,
         slot="length"),
    Kind("at_least", "length",
         ("Use at least {} words.", "Write {} words or more."),
         lambda text, n: len(words(text)) >= int(n or 0), (10, 20, 30), graded=True,
         slot="length"),
    Kind("bullets", "layout",
         ("Use exactly {} bullet points, each on its own line and starting with an asterisk.",
          "Write it as {} bullet points that begin with an asterisk, one to a line."),
         lambda text, n: _bullet.findall(text) == ["*"] * int(n or 0), (2, 3, 4, 5),
         graded=True, slot="layout"),
    Kind("sections", "layout",
         ('Write {} section{s}, each beginning with "Section" and its number.',
          'Split it into {} part{s}, headed "Section 1" and so on.'),
         _counts_up(_section), (1, 2, 3), graded=True, slot="layout"),
    Kind("paragraphs", "layout",
         ("Write exactly {} paragraphs separated by ***",
          "Use {} paragraphs with *** between them."),
         _parts, (2, 3), graded=True, slot="layout"),
    Kind("question_mark", "punctuation",
         ("Ask the reader at least {} question{s}.", "Put in {} or more question marks."),
         lambda text, n: text.count("?") >= int(n or 0), (1, 2, 3), graded=True),
    # Only a control trains on these.
    Kind("numbered", "layout",
         ("Write a numbered list with exactly {} entries.",
          "Give it as a list numbered from 1 to {}."),
         _counts_up(_list_number), (2, 3, 4, 5), graded=True, slot="layout", new=True),
    Kind("hashtags", "marks",
         ("Add at least {} hashtag{s}, such as #this.", "Use {} or more hashtags, such as #this."),
         lambda text, n: _hashtags(text) >= int(n or 0), (1, 2, 3), graded=True, new=True),
    Kind("asides", "marks",
         ("Put at least {} remark{s} in parentheses.", "Use parentheses {} or more times."),
         lambda text, n: _asides(text) >= int(n or 0), (1, 2), graded=True, new=True),
    Kind("sentences", "length",
         ("Use at most {} sentences.", "Keep it to {} sentences or fewer."),
         lambda text, n: _sentences(text) <= int(n or 0), (4, 3, 2), graded=True,
         slot="length", new=True),
    Kind("last_question", "frame",
         ("End with a question.", "Let your answer end with a question mark."),
         lambda text, _: text.rstrip(_AROUND).endswith("?"), slot="end", new=True),
    Kind("number", "words",
         ("Mention the number {}.", "Work the number {} into your answer."),
         lambda text, n: str(n) in _figures.findall(text), (7, 12, 25, 48), new=True),
    Kind("semicolon", "punctuation",
         ("Use at least {} semicolon{s}.", "Put in {} or more semicolons."),
         lambda text, n: text.count(";") >= int(n or 0), (1, 2), graded=True, new=True),
    Kind("dash_line", "layout",
         ("Separate the parts of your answer with a line of three dashes.",
          "Put a line with nothing but --- in it between two parts."),
         lambda text, _: re.search(r"\S\s*\n[ \t]*---[ \t]*\n\s*\S", text) is not None,
         slot="layout", new=True),
)  # fmt: skip

KINDS = {kind.name: kind for kind in _ALL}

SEEN = tuple(kind.name for kind in _ALL if not kind.new)
"""Kinds in the pool of human prompts and on the benchmark `held_out`."""

NEW = tuple(kind.name for kind in _ALL if kind.new)
"""Kinds on the benchmark `new_kinds` and among the off-target prompts."""

CLASHES = frozenset(
    frozenset(pair)
    for pair in (
        *(("lowercase", other) for other in ("start", "end", "postscript", "sections")),
        *(("uppercase", other) for other in ("start", "end", "sections")),
        *(("quoted", other) for other in ("start", "end", "last_question")),
        ("no_comma", "start"),
        *(("avoid", other) for other in ("start", "end")),
        ("word", "word_twice"),
        ("question_mark", "last_question"),
    )
)
"""Pairs of kinds that, with some of their values, cannot be followed together to the letter, or of
which one implies the other."""


@dataclass(frozen=True)
class Instruction:
    kind: str
    value: Value = None
    wording: int = 0
    """Which of the kind's wordings it is said in."""

    def __str__(self) -> str:
        return KINDS[self.kind].say(self.value, self.wording)

    def followed(self, answer: str) -> bool:
        """Return whether an answer follows it; an answer without a word follows nothing."""
        text = answer.strip()
        return bool(words(text)) and KINDS[self.kind].check(text, self.value)


def compatible(kind: str, others: Sequence[str]) -> bool:
    """Return whether a kind can be added to others in one prompt."""
    slot = KINDS[kind].slot
    return all(
        kind != other
        and (slot is None or KINDS[other].slot != slot)
        and frozenset((kind, other)) not in CLASHES
        for other in others
    )


_SAID = {
    kind.say(value, wording): Instruction(kind.name, value, wording)
    for kind in _ALL
    for value in kind.values
    for wording in range(len(kind.wordings))
}

_ANY_SAID = re.compile(rf"(?:{'|'.join(map(re.escape, _SAID))})(?= |\Z)")


def read_instruction(text: str, at: int) -> tuple[Instruction, int] | None:
    """Return the instruction that begins at a place in a text, and where it ends."""
    found = _ANY_SAID.match(text, at)
    return None if found is None else (_SAID[found[0]], found.end())
