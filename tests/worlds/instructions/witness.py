"""Writes an answer that follows given instructions, as a person would who knows what they ask."""

from collections.abc import Mapping, Sequence

from harness.worlds.instructions.kinds import Instruction, Value

FILLING = """
birds sing near tall trees while clouds drift over fields where children play with bright kites
until dusk falls across distant hills as lanterns glow along winding roads between sleepy towns
whose people gather beside warm fires sharing old stories
""".split()
"""Forty words, none of them among those that an instruction names."""

TINY = ("birds", "sing", "near", "trees", "now")

MARKS = {
    "exclamations": "!",
    "question_mark": "?",
    "placeholders": " [x]",
    "highlights": " *x*",
    "hashtags": " #x",
    "asides": " (x)",
    "semicolon": ";",
}


def _parts(asked: Mapping[str, Value], pieces: Sequence[str]) -> str:
    """Lay out an answer's text, whose last piece goes into the last part."""

    def cell(i: int, of: int) -> str:
        return " ".join(pieces) if i == of - 1 else TINY[i % len(TINY)]

    for kind, form in (("bullets", "* {text}"), ("sections", "Section {n}: {text}"),
                       ("numbered", "{n}) {text}"), ("paragraphs", "{text}")):  # fmt: skip
        if kind in asked:
            count = int(asked[kind] or 0)
            lines = [form.format(n=i + 1, text=cell(i, count)) for i in range(count)]
            return ("\n***\n" if kind == "paragraphs" else "\n").join(lines)
    if "dash_line" in asked:
        return f"{TINY[0]}\n---\n{' '.join(pieces)}"
    return " ".join(pieces)


def witness(instructions: Sequence[Instruction]) -> str:
    asked = {one.kind: one.value for one in instructions}
    pieces = [*FILLING[: int(asked["at_least"] or 0)]] if "at_least" in asked else ["birds"]
    pieces += [str(asked["word"])] if "word" in asked else []
    pieces += [str(asked["word_twice"])] * 2 if "word_twice" in asked else []
    pieces += [str(asked["number"])] if "number" in asked else []
    marks = [mark * int(asked[kind] or 0) for kind, mark in MARKS.items() if kind in asked]
    title = "<<birds>>" if "title" in asked else ""
    pieces = [f"{' '.join(pieces)}{''.join(marks)}", title]
    text = _parts(asked, [piece for piece in pieces if piece])
    text = f"{asked['start']}\n{text}" if "start" in asked else text
    text = f"{text}\nP.S. birds" if "postscript" in asked else text
    text = f"{text}\n{asked['end']}" if "end" in asked else text
    text = f"{text} who?" if "last_question" in asked else text
    text = f'"\n{text}\n"' if "quoted" in asked else text
    text = text.lower() if "lowercase" in asked else text
    return text.upper() if "uppercase" in asked else text
