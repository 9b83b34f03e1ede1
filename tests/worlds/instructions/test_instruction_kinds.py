"""Kinds of instruction: every check by hand, saying and reading back, and what goes together."""

import itertools
import random
import time

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from witness import witness

from harness.worlds.instructions.kinds import (
    CLASHES,
    KINDS,
    NEW,
    SEEN,
    Instruction,
    Value,
    compatible,
    read_instruction,
    words,
)

CASES: dict[str, tuple[Value, tuple[str, ...], tuple[str, ...]]] = {
    # kind: value, answers that follow it, answers that do not
    "lowercase": (
        None,
        ("all is quiet.", "it's 5 o'clock, é!", "  **bold** text\n", "straße"),
        ("All is quiet.", "all is Quiet", "ALL", "123 !?", "", "élan É"),
    ),
    "uppercase": (
        None,
        ("ALL IS QUIET.", "IT'S 5 O'CLOCK!", "**É**", "P.S. HELLO"),
        ("ALL IS QUIEt.", "all", "123", "", "STRAßE"),
    ),
    "no_comma": (
        None,
        ("one; two", "a semicolon; a dash - and a stop.", "“quoted”"),
        ("one, two", "1,000 birds", "a,", ", a"),
    ),
    "exclamations": (
        2,
        ("Oh! My!", "Oh!!", "! a !", "a!b!c!"),
        ("Oh!", "Oh my.", "", "!!", "¡Oh! ¡My"),
    ),
    "start": (
        "Once upon a time",
        ("Once upon a time there was a fox.", "Once upon a time", "Once upon a time, a fox",
         '"Once upon a time" he said', "# Once upon a time\nA fox.", "**Once upon a time** a fox.",
         " \n“Once upon a time"),
        ("once upon a time a fox", "Well: Once upon a time", "Once upon a timeless",
         "Once  upon a time", ""),
    ),
    "end": (
        "The end.",
        ("A fox. The end.", "A fox.\n\nThe end.  ", 'A fox. "The end."', "A fox. **The end.**"),
        ("A fox. The end", "A fox. the end.", "The end. A fox.", "A fox. BatThe end.", ""),
    ),
    "quoted": (
        None,
        ('"A fox."', "“A fox.”", ' "A\n\nfox" ', '"a" and "b"'),
        ('"A fox.', 'A fox."', "'A fox.'", 'A "fox" here', '"', "", '"A fox".'),
    ),
    "postscript": (
        None,
        ("Dear fox.\nP.S. Come back.", "Dear fox.\n\n  P. S. Come back.",
         "Dear fox.\n**P.S.** Come back.", "Dear fox.\n*P.S. Come back.*"),
        ("Dear fox.\np.s. Come back.", "Dear fox. P.S. Come back.", "P.S. Come back.",
         "Dear fox.\nP.S.", "Dear fox.\nPS: Come back.", ""),
    ),
    "title": (
        None,
        ("<<The fox>>\nIt ran.", "It ran. <<fox>>", "<<<fox>>>", "**<<A 1st fox>>**"),
        ("<The fox>", "<<The\nfox>>", "<<>> fox", "<<12>> fox", "<< fox", "<<fox> >", "«fox»", ""),
    ),
    "placeholders": (
        2,
        ("Dear [name], see [place].", "[a][b]", "[your name] and [your name]", "[[a]] [b]"),
        ("Dear [name].", "[1] and [2] of [x]", "[] [ ] fox", "[na\nme] [a", "(name) (place)", ""),
    ),
    "highlights": (
        2,
        ("*one* and *two*", "**one** and **two**", "* *one*\n* *two words*", "**one** *two*",
         "*one*, *two*, *three*"),
        ("**one**", "* one\n* two\n* three", "a *** b *** c", "***one*** ***two***",
         "*one* and * two *", "*one\ntwo* three", "2 * 3 * 4 equals x", "** ** fox ** **", ""),
    ),
    "word": (
        "river",
        ("The river.", "RIVER fox", "a-river-b", "(river)", "river2", "the _river_"),
        ("The rivers.", "The river's bed.", "riv er", "driver", "r1ver", ""),
    ),
    "word_twice": (
        "river",
        ("River, river.", "a river and A RIVER", "river river river"),
        ("The river.", "river and rivers", "river and river's", ""),
    ),
    "avoid": (
        "it",
        ("A fox ran.", "It's late", "with a bit of grit", "it’s"),
        ("It ran.", "see (it)", "IT", "it_is", "", "12"),
    ),
    "at_most": (
        12,
        ("one two three", " ".join(["fox"] * 12), "* fox\n" * 12,
         "fox 1 2 3 4 5 6 7 8 9 10 11 12 13", "it's " * 12),
        (" ".join(["fox"] * 13), "fox-" * 13, "fox/" * 13, ""),
    ),
    "at_least": (
        20,
        (" ".join(["fox"] * 20), "fox\n" * 25, "it’s " * 20),
        (" ".join(["fox"] * 19), "fox " + "* " * 20, "fox " + "1 " * 20, "it's " * 10 + "- " * 10),
    ),
    "bullets": (
        2,
        ("* one\n* two", "Foxes:\n* one\n* two\nSo.", "  * one\n\t* two", "* **one**\n* two"),
        ("* one", "* one\n* two\n* three", "- one\n- two", "* one\n* two\n- three", "*one*\n*two*",
         "one * two * three", "* one * two", "*one\n*two", "* \n* ", "1. one\n2. two", ""),
    ),
    "sections": (
        2,
        ("Section 1\nfox\nSection 2\nfox", "**Section 1**: fox\n\n**Section 2**: fox",
         "# Section 1. fox\n## Section 2. fox",
         "Intro\n Section 1 fox\n Section 2 as in Section 1"),
        ("Section 1 fox", "Section 1 fox. Section 2 fox.", "In Section 1\nin Section 2",
         "Section 2\nSection 1", "Section 1\nSection 2\nSection 3",
         "Section 1\nSection 1\nSection 2", "Section 1\nSection 22", "section 1\nsection 2",
         "SECTION 1\nSECTION 2", "Section one\nSection two", ""),
    ),
    "paragraphs": (
        2,
        ("one\n***\ntwo", "one *** two", "one\n\n***\n\ntwo and *three*"),
        ("one\n\ntwo", "one\n***\ntwo\n***", "***\none\n***\ntwo", "one\n***\n12",
         "one *** two *** three", "***one*** two", "***", ""),
    ),
    "question_mark": (
        2,
        ("Who? Why?", "Really??", "a?b?c?"),
        ("Who?", "Who. Why.", "??", ""),
    ),
    "numbered": (
        2,
        ("1. one\n2. two", "Foxes:\n 1) one\n 2) two", "1. one in 1999\n\n2. two"),
        ("1. one", "1. one\n2. two\n3. three", "2. one\n1. two", "1. one 2. two", "1.one\n2.two",
         "1. one\n1. two", "1\n2 fox", "1. \n2. ", "* one\n* two", ""),
    ),
    "hashtags": (
        2,
        ("#one #two", "fox #one, #two!", "(#one)\n#two2", "##one #two"),
        ("#one", "# one # two", "C#one C#two", "#1 #2 #x", "#one#two", ""),
    ),
    "asides": (
        2,
        ("(one) (two)", "a (fox) and (another one)", "((one)) (two)"),
        ("(one)", "() ( ) fox", "(1) (2) fox", "(one (two", "(o\nne) (t\nwo)", "one) two)", ""),
    ),
    "sentences": (
        2,
        ("One. Two.", "One! (Two?)", "no stop at all", "Wait... what?!", "It is 3.5 meters. Fine.",
         "1. one.\n2. two.", "He said “One.” Two."),
        ("One. Two. Three.", "a? b? c?", "a.\nb.\nc.", '"a." "b." "c."', "a... b... c...", ""),
    ),
    "last_question": (
        None,
        ("Fox. Who?", 'He asked "Who?"', "Who?! Who?", "*Who?*\n"),
        ("Who? A fox.", "Who?!", "Who? :)", "?", ""),
    ),
    "number": (
        12,
        ("12 foxes", "foxes: 12.", "in 12, not 13", "the 12th fox", "a (12)"),
        ("112 foxes", "123 foxes", "12,000 foxes", "1.12 foxes", "12.5 foxes", "twelve", "a 1 2"),
    ),
    "semicolon": (
        2,
        ("a; b; c", "a;b;", "fox;;"),
        ("a; b", "a, b, c", "a: b: c", ";;", ""),
    ),
    "dash_line": (
        None,
        ("one\n---\ntwo", "one\n\n  ---  \n\ntwo", "one\n---\ntwo\n---\nthree"),
        ("one --- two", "---\none", "one\n---", "one\n----\ntwo", "one\n- - -\ntwo", "a\n--\nb"),
    ),
}  # fmt: skip
"""An answer without a word, such as `!!`, follows nothing."""

EVERY = [
    Instruction(kind.name, value, wording)
    for kind in KINDS.values()
    for value in kind.values
    for wording in range(len(kind.wordings))
]


def test_there_are_at_least_24_kinds_and_cases_for_all() -> None:
    assert set(CASES) == set(KINDS) == {*SEEN, *NEW}
    assert not set(SEEN) & set(NEW)
    assert len(KINDS) >= 24
    for _, followed, not_followed in CASES.values():
        assert min(len(followed), len(not_followed)) >= 3


@pytest.mark.parametrize("kind", CASES)
def test_a_check_is_the_one_worked_out_by_hand(kind: str) -> None:
    value, followed, not_followed = CASES[kind]
    one = Instruction(kind, value)
    assert [text for text in followed if not one.followed(text)] == []
    assert [text for text in not_followed if one.followed(text)] == []


BY_HAND = ("avoid", "at_most", "at_least", "sentences")
"""Graded kinds whose values are compared by hand, further below."""


@pytest.mark.parametrize(
    "kind", [name for name, kind in KINDS.items() if kind.graded and name not in BY_HAND]
)
def test_a_count_is_compared_with_the_value(kind: str) -> None:
    """What has exactly as many as the hardest value follows the easier ones, if it may be more."""
    values = KINDS[kind].values
    for value in values:
        text = witness([Instruction(kind, value)])
        followed = [other for other in values if Instruction(kind, other).followed(text)]
        easier = [other for other in values if int(other or 0) <= int(value or 0)]
        assert followed == ([value] if KINDS[kind].slot == "layout" else easier)


@pytest.mark.parametrize(
    ("kind", "text", "followed"),
    [
        ("at_most", "fox " * 20, (40, 30, 20)),
        ("at_most", "fox " * 21, (40, 30)),
        ("at_least", "fox " * 30, (10, 20, 30)),
        ("at_least", "fox " * 29, (10, 20)),
        ("sentences", "Fox. " * 3, (4, 3)),
        ("sentences", "Fox. " * 5, ()),
        ("avoid", "It is a very good fox.", ("and", "the")),
    ],
)
def test_values_are_followed_up_to_the_count(
    kind: str, text: str, followed: tuple[Value, ...]
) -> None:
    values = KINDS[kind].values
    assert tuple(v for v in values if Instruction(kind, v).followed(text)) == followed


def test_every_wording_and_value_is_read_back() -> None:
    for one in EVERY:
        said = str(one)
        assert read_instruction(said, 0) == (one, len(said))
        assert read_instruction(f"so {said} Then", 3) == (one, 3 + len(said))
    assert len({str(one) for one in EVERY}) == len(EVERY)


def test_no_sentence_goes_on_as_another() -> None:
    said = [str(one) for one in EVERY]
    assert [(a, b) for a in said for b in said if b.startswith(f"{a} ")] == []


def test_no_other_sentence_is_read() -> None:
    said = "Use at least 2 exclamation marks."
    assert read_instruction(said, 0) is not None
    for other in (
        "Use at least 2 exclamation mark.",
        "Use at least 1 exclamation marks.",
        "Use at least 02 exclamation marks.",
        "Use at least ٢ exclamation marks.",
        "Use at least 5 exclamation marks.",
        f"Use at least {'2' * 5000} exclamation marks.",
        "Use at least two exclamation marks.",
        "use at least 2 exclamation marks.",
        said[:-1],
        f"{said}.",
        f"{said}\n",
        f" {said}",
        'Use the word "fox".',
        'Use the word "".',
        "",
    ):
        assert read_instruction(other, 0) is None, other
    assert read_instruction(said, len(said) + 5) is None


def test_one_is_said_in_the_singular() -> None:
    assert str(Instruction("exclamations", 1)) == "Use at least 1 exclamation mark."
    assert str(Instruction("exclamations", 2)) == "Use at least 2 exclamation marks."
    assert (
        str(Instruction("sections", 1, 1)) == 'Split it into 1 part, headed "Section 1" and so on.'
    )
    assert str(Instruction("no_comma", None, 3)) == "Write it without a single comma."


def test_neighbors_of_a_graded_kind_are_beside_it() -> None:
    bullets = KINDS["bullets"]
    assert [bullets.near(n) for n in (2, 3, 5)] == [(3,), (2, 4), (4,)]
    assert [bullets.harder(n) for n in (2, 3, 5)] == [(3,), (4,), ()]
    assert [bullets.easier(n) for n in (2, 3, 5)] == [(), (2,), (4,)]


def test_at_most_fewer_words_is_harder() -> None:
    at_most = KINDS["at_most"]
    assert (at_most.harder(40), at_most.harder(12)) == ((30,), ())
    assert (at_most.easier(40), at_most.easier(12)) == ((), (20,))


def test_all_values_of_an_ungraded_kind_are_alike() -> None:
    number = KINDS["number"]
    assert number.near(12) == (7, 25, 48)
    assert number.harder(12) == number.easier(12) == ()
    assert KINDS["quoted"].near(None) == KINDS["quoted"].harder(None) == ()


@pytest.mark.parametrize("kind", KINDS)
def test_harder_and_easier_undo_each_other(kind: str) -> None:
    own = KINDS[kind]
    for value in own.values:
        assert value not in own.near(value)
        for harder in own.harder(value):
            assert own.easier(harder) == (value,)
            assert harder in own.near(value)


def test_being_compatible_does_not_depend_on_order() -> None:
    for one, other in itertools.product(KINDS, KINDS):
        assert compatible(one, [other]) == compatible(other, [one])
    for one in KINDS:
        assert not compatible(one, [one])
        assert compatible(one, [])
    rng = random.Random(0)
    for _ in range(2000):
        kinds = rng.sample(list(KINDS), 3)
        fits = {
            all(compatible(kind, order[:i]) for i, kind in enumerate(order))
            for order in itertools.permutations(kinds)
        }
        assert len(fits) == 1


def values_of(*kinds: str) -> list[list[Instruction]]:
    """Return every choice of values for some kinds."""
    alone = [[Instruction(kind, value) for value in KINDS[kind].values] for kind in kinds]
    return [list(choice) for choice in itertools.product(*alone)]


def test_whatever_two_instructions_a_prompt_has_an_answer_can_follow_both() -> None:
    """`witness` writes that answer, from its own knowledge of what each instruction asks for."""
    for one, other in itertools.combinations(KINDS, 2):
        if compatible(one, [other]):
            for both in values_of(one, other):
                text = witness(both)
                assert [str(i) for i in both if not i.followed(text)] == [], text


def test_an_answer_can_follow_three() -> None:
    rng = random.Random(0)
    for _ in range(3000):
        kinds = rng.sample(rng.choice((SEEN, NEW)), 3)
        if all(compatible(kind, kinds[:i]) for i, kind in enumerate(kinds)):
            every = [Instruction(kind, rng.choice(KINDS[kind].values)) for kind in kinds]
            text = witness(every)
            assert [str(i) for i in every if not i.followed(text)] == [], text


FORBIDDING = ("lowercase", "uppercase", "no_comma", "avoid")
"""Kinds that forbid something, so that no part of an answer may have it."""

LITERAL = {"start": KINDS["start"].values, "end": KINDS["end"].values,
           "postscript": ("P.S.",), "sections": ("Section",)}  # fmt: skip
"""What an answer must have to the letter."""


def test_every_clash_is_one() -> None:
    """What one forbids the other's words have; or it wraps them; or one follows from the other."""
    forbidden = {
        frozenset((kind, other))
        for kind in FORBIDDING
        for other, phrases in LITERAL.items()
        for phrase in phrases
        for value in KINDS[kind].values
        if not KINDS[kind].check(str(phrase), value)
    }
    wrapped = {frozenset(("quoted", other)) for other in ("start", "end", "last_question")}
    implied = {frozenset(pair) for pair in (("word", "word_twice"),
                                            ("question_mark", "last_question"))}  # fmt: skip
    assert forbidden | wrapped | implied == CLASHES
    assert Instruction("word", "river").followed(witness([Instruction("word_twice", "river")]))
    assert Instruction("question_mark", 1).followed(witness([Instruction("last_question")]))


ANY_TEXT = st.text(st.characters(codec="utf-8"))
MARKED = st.text("aA1 \n\t*_-#<>[]()!?.,;'’\"“”•PS", max_size=60)
"""Text of the characters that checks look for."""


@given(st.one_of(ANY_TEXT, MARKED, MARKED.map(lambda text: f"Section 1{text}P.S. {text}")))
@example("\ud800 fox")  # lone surrogates, which no text in UTF-8 has, and control characters
@example("\udfff" * 5)
@example("fox \x00\x1b[31m\x07")
@example("\u202e fox\u200b")
def test_a_check_takes_any_text_and_says_the_same_again(text: str) -> None:
    for kind in KINDS.values():
        for value in (kind.values[0], kind.values[-1]):
            one = Instruction(kind.name, value)
            found = one.followed(text)
            assert isinstance(found, bool)
            assert one.followed(text) == one.followed(f" {text}\n") == found


@given(MARKED)
def test_spaces_and_bold_around_an_answer_do_not_decide_its_start_or_end(text: str) -> None:
    for kind in ("start", "end"):
        one = Instruction(kind, KINDS[kind].values[0])
        framed = f"Listen: {text} That is all."
        assert one.followed(framed) == one.followed(f"**{framed}**") is True


LONG = 100_000
ENDLESS = ("(", "*", "[a", "a.", ".", "?)", "<<", "<<a", "[", "\n", "* ", "*a", "#a", "Section 1\n",
           "P.S.\n", "a\n---\n", "1. ", "1,", "a'", "***", "The end.")  # fmt: skip
HEADS = ("[", "(", "<<", "*", "**", "a.", "* ", "1. ", "#", '"')
"""What one letter or space repeated for ever follows."""


@pytest.mark.parametrize("kind", KINDS)
def test_a_text_that_never_ends_is_checked_in_time(kind: str) -> None:
    """100,000 characters in under a second, on a busy machine; they take milliseconds."""
    one = Instruction(kind, KINDS[kind].values[-1])
    pieces = [("", piece) for piece in ENDLESS]
    pieces += [(head, letter) for head in HEADS for letter in "a "]
    for head, piece in pieces:
        text = f"fox {head}{piece * (LONG // len(piece))}a"
        begun = time.thread_time()
        KINDS[kind].check(text, one.value)
        assert time.thread_time() - begun < 1, (head, piece)
    assert one.followed("(" * LONG) is False


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("It's a fox’s den.", ["it's", "a", "fox’s", "den"]),
        ("well-known r2d2 3rd a_b", ["well", "known", "r", "d", "rd", "a", "b"]),
        ("'quoted' ''", ["quoted"]),
        ("Été ΑΣ 12 !", ["été", "ας"]),
        ("", []),
    ],
)
def test_words_are_letters_with_apostrophes_inside(text: str, expected: list[str]) -> None:
    assert words(text) == expected
