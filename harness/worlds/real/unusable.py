"""Which rewrites are no prompt: found by rule, each with a reason.

Such a rewrite is unusable; it is counted under its reason and tried again. The reasons, in the
order they are looked for (the first that holds is the one counted):

- `empty`: no letter and no digit;
- `refusal`: the beginning says that the model will not or cannot do what it was asked;
- `leftover`: a heading or tag of a template, a placeholder, a phrase that announces the rewrite, or
  eight words in a row of what the model was told;
- `unchanged`: the parent, but for case, punctuation and white space;
- `too long`, `too short`: the length in characters against the parent's, see `Limits`;
- `language`: clearly another language or script than the parent's (`changed_language`);
- `answer`: it begins as answers do, or says much and asks nothing (`is_answer`).

A bad prompt that passes is one among thousands, a good one that is thrown away is asked for again;
yet rules that reject whole kinds of good prompts would change what is trained on. So nothing counts
as evidence that the parent has as well, and where a rule is not sure the rewrite passes. The rules
know English; in other languages only `empty`, `unchanged`, `language`, lengths and tags are found.
All functions are pure. Their meaning is numbered (`RULES_VERSION`).
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache

BEGINNING = 240
"""Characters of a text in which it is read how it begins, and whether it refuses."""

ENDS = 2
"""Sentences at each end of a text in which it is read whether it asks."""

FEWEST_SENTENCES = 3
"""Sentences below which a text that asks nothing is not taken for an answer."""

_BEGINS_AS_ANSWER = re.compile(
    r"^[\W_]*(?:"
    r"(?:final |model |sample |suggested |short )?(?:answer|solution|response)[*_ ]*:"
    r"|(?:sure|certainly|of course|absolutely|great question|no problem)[!,.]+\s+"
    r"(?:here|i|let|to|the)\b"
    r"|(?:the|my) (?:final )?answer (?:is|to (?:this|the|your) question)\b"
    r"|as an ai(?: language model| assistant)?,? i\b"
    r")",
    re.IGNORECASE,
)

_TASKS = frozenset(
    """answer analyze analyse brainstorm build calculate categorize choose classify code compare
    complete compose compute construct convert correct create critique debug decide deduce define
    derive describe design determine develop devise discuss distinguish draft draw edit elaborate
    estimate evaluate explain extract fill find fix generate give guess how identify illustrate
    implement infer invent judge justify list name optimize order outline output paraphrase plan
    predict prepare produce proofread propose prove provide rank rate recommend refactor rephrase
    report respond return review revise rewrite reword schedule score show simplify simulate sketch
    solve sort suggest summarise summarize tell translate verify what which why write""".split()
)
"""What the end of a prompt tells one to do. Answers end with commands of another kind (`remember`,
`enjoy`, `make sure`)."""

_COMMANDS = _TASKS | frozenset(
    """act adapt add adopt advise apply argue arrange articulate ask assess assign assume attach be
    become begin break bring calm capture change characterize chart check cite clarify clean collect
    combine come commence comment compile conclude conduct configure connect consider contemplate
    contrast continue copy count cover craft curate cut deconstruct delineate deliver delve
    demonstrate deploy detail detect diagnose differentiate disclose discover display dissect divide
    do download eliminate elucidate embark embody employ emulate encode ensure enter enumerate
    envision examine exclude execute expand explore express extend figure finish focus follow forget
    form format formulate gather get go group guide have help highlight hypothesize imagine
    impersonate improve include incorporate increase indicate initiate insert inspect install
    integrate interpret interview introduce investigate join keep label learn let lets leverage
    limit list look make manage map mark match measure mention merge mimic model modify narrate
    notify obfuscate offer orchestrate order organize pair parse perform pick picture place play
    ponder pose prefer present pretend print prioritize process prompt publish pull put question
    quote read reconstruct recount reduce refer reflect reimagine relate remind remove render repeat
    replace research restate retrieve reverse rework role roleplay run search segment select send
    separate set share shorten solve speak specify split start state stay structure study substitute
    suppose synthesize take talk teach test think trace transcribe transform try turn undertake
    unravel unscramble update use utilize visualize weigh work""".split()
)
"""What prompts tell one to do."""

_LEADS = re.compile(
    r"^(?:hi|hello|hey|dear \w+|okay|ok|now|then|also|first|firstly|next|finally|please|so|and|but|"
    r"kindly)\b[,:!. ]*",
    re.IGNORECASE,
)
"""Words that may come before a command."""

_WISHES = re.compile(
    r"\b(?:please|(?:can|could|would|will) you|i(?:['’]d| would) (?:like|appreciate|love)|"
    r"i(?:['’]m| am) (?:looking|trying|thinking|going|planning|writing|working|struggling|having|"
    r"interested|building|making|preparing|learning|curious|wondering|new)|"
    r"i(?:['’]ve| want| need| wish| have| was| cannot| can['’]t| don['’]t| like| tried| got| use)|"
    r"help me|tell me|give me|show me|write me|let['’]?s|my|helpful if you|how to|what (?:is|are)|"
    r"your (?:task|job|goal|response|answer|output|role)|"
    r"you (?:are|will|have|must|need|should) (?:need to|to|be|an?|the|given|provided|asked|act|"
    r"write|create|come|choose|find)|(?:should|must) (?:be|include|have|contain|not|also)|"
    r"needs? to be|is needed|are asked|is required)\b",
    re.IGNORECASE,
)
"""How prompts say what is wanted, other than by a question or a command."""

_FAREWELLS = re.compile(
    r"\b(?:let me know|feel free|hope (?:this|that|it)|don['’]t hesitate|good luck|enjoy|"
    r"any (?:other|further|more) questions|happy \w+ing)\b",
    re.IGNORECASE,
)
"""Sentences with which answers end, and which would read as commands."""

_CODE = re.compile(r"```.*?(?:```|\Z)", re.DOTALL)
_BETWEEN_SENTENCES = re.compile(r"(?<=[.!?。！？])[\"'”)\]]*\s+|\n+")
_BETWEEN_CLAUSES = re.compile(r"[:;,\-–—(\"“]|\b(?:and|then)\b")
_FIRST_WORD = re.compile(r"[\W\d_]*([^\W\d_]+(?:['’]\w+)?)")


def is_answer(text: str, parent: str) -> bool:
    """Return whether a text answers its parent instead of asking something new."""
    if begins_as_answer(text):
        return not begins_as_answer(parent)
    return len(sentences(text)) >= FEWEST_SENTENCES and not asks(text) and asks(parent)


def begins_as_answer(text: str) -> bool:
    """Return whether a text begins in a way that only answers do."""
    return _BEGINS_AS_ANSWER.search(text[:BEGINNING]) is not None


def asks(text: str) -> bool:
    """Return whether a question, a command or a wish stands at either end of a text.

    A text without a sentence (nothing but code) counts as asking: nothing says that it does not.
    """
    spoken = [s for s in sentences(text) if not _FAREWELLS.search(s)]
    if not spoken:
        return True
    return any(_asks(s, _COMMANDS) for s in spoken[:ENDS]) or any(
        _asks(s, _TASKS) for s in spoken[-ENDS:]
    )


def sentences(text: str) -> list[str]:
    """Return the sentences of a text outside its code, lines taken as sentences of their own."""
    parts = _BETWEEN_SENTENCES.split(_CODE.sub("\n", text))
    return [part for part in parts if any(c.isalnum() for c in part)]


def _asks(sentence: str, commands: frozenset[str]) -> bool:
    if "?" in sentence or "？" in sentence or _WISHES.search(sentence):
        return True
    for clause in _BETWEEN_CLAUSES.split(sentence):
        first = _FIRST_WORD.match(_LEADS.sub("", clause.strip()))
        if first is not None and first[1].casefold() in commands:
            return True
    return False


RULES_VERSION = 1
"""Raised by a person when a rule's meaning changes."""

REASONS = (
    "empty",
    "refusal",
    "leftover",
    "unchanged",
    "too long",
    "too short",
    "language",
    "answer",
)

ECHO = 8
"""Words in a row of the instructions that make a leftover."""


@dataclass(frozen=True)
class Limits:
    """How long a rewrite may be, in characters.

    Attributes:
        times: Longest, as a multiple of the parent ...
        more: ... and this many characters on top, so that short parents may grow.
        share: Shortest, as a share of the parent.
        fewest: A parent of at least so many characters is not rewritten into fewer.
    """

    times: float = 3.0
    more: int = 1200
    share: float = 0.04
    fewest: int = 8


LIMITS = Limits()
"""Ours: templates ask for 10 to 20 words more, or about the same length; four rewrites in a chain
may each take that. Methods in breadth may leave a long parent's pasted text behind."""


def why_unusable(
    text: str, parent: str, told: Iterable[str] = (), limits: Limits = LIMITS
) -> str | None:
    """Return why a rewrite cannot be used, one of `REASONS`, or None if nothing speaks against it.

    `told` are the messages the model was given, without the prompt in them.
    """
    if not normalised(text):
        return "empty"
    if is_refusal(text) and not is_refusal(parent):
        return "refusal"
    if has_leftover(text, parent, told):
        return "leftover"
    if normalised(text) == normalised(parent):
        return "unchanged"
    if len(text) > limits.times * len(parent) + limits.more:
        return "too long"
    if len(text) < limits.share * len(parent) or len(text) < limits.fewest <= len(parent):
        return "too short"
    if changed_language(text, parent):
        return "language"
    if is_answer(text, parent):
        return "answer"
    return None


def normalised(text: str) -> str:
    """Return what a text says: letters, digits and symbols in lower case, one space between words.

    Compatible forms (full-width letters, ligatures) become one, and accents stay.
    """
    folded = unicodedata.normalize("NFKC", text).casefold()
    return " ".join(folded.translate(_TELLING).split())


class _Telling(dict[int, int]):
    """Maps characters that tell prompts apart to themselves and others to a space, once each."""

    def __missing__(self, code: int) -> int:
        character = chr(code)
        # Operators are what sets formulas and code apart; quotes, commas and stops are not.
        kept = character.isalnum() or character in "*/%&@\\"
        kept = kept or unicodedata.category(character) in ("Mn", "Mc", "Sm", "Sc", "So")
        self[code] = code if kept else ord(" ")
        return self[code]


_TELLING = _Telling()


_CANNOT = (
    r"(?: can ?not| can['’]?t| could ?n['’]?t| won['’]?t| will not| am (?:not able|unable) to|"
    r"['’]m (?:not able|unable|not allowed) to| am not (?:allowed|permitted) to|"
    r" (?:must|have to|need to) (?:\w+ly )?decline(?: to)?)(?: \w+ly)?"
)
_SERVE = (
    r"(?:assist|help|comply|fulfil|fulfill|participate|engage|rewrite|create|generate|provide|"
    r"produce|do (?:that|this)|continue|complete|process|support|answer (?:that|this)|respond)\b"
)
_SORRY = r"(?:i(?:['’]?m| am) (?:very |so |truly )?sorry|sorry|i apologi[sz]e|(?:my )?apologies)"
_ASKED = r"(?:this|that|the|your|such|any)(?: given)? (?:request|prompt|content|rewrite|version)"
_WRONG = (
    r"(?:is (?:inappropriate|harmful|not appropriate)|violates?|goes against|cannot be|can['’]t be|"
    r"contains? (?:harmful|inappropriate|offensive)|promotes?|involves (?:illegal|harmful))"
)

_REFUSALS = (
    # I'm sorry, but I can't help with that. Sorry, as an AI I am not able to write this.
    rf"^{_SORRY}\b[^.?!]{{0,60}}?\bi{_CANNOT} {_SERVE}",
    rf"^{_SORRY}\b[^.?!]{{0,40}}?{_ASKED} {_WRONG}",
    # I cannot assist with this request.
    rf"^(?:unfortunately,? )?i{_CANNOT} "
    r"(?:assist|comply|participate|help (?:you )?with (?:this|that))",
    rf"^(?:unfortunately,? )?i{_CANNOT} (?:fulfill?|process|rewrite|create|generate|provide|"
    rf"produce|write|complete|support|continue)\b[^.?!]{{0,60}}?\b{_ASKED}",
    r"^i (?:must|have to|need to) (?:respectfully |politely )?decline\b",
    # As an AI language model, I cannot ... I'm just a language model ...
    r"^as an? (?:responsible )?(?:ai|artificial intelligence|(?:large )?language model)\b"
    rf"[^.?!]{{0,40}}?,? i(?:{_CANNOT}| do not| don['’]t| am not| strive| aim to)\b",
    r"^i(?:['’]?m| am) (?:just|only) an? (?:\w+ )?(?:ai|language model)\b",
    # This request goes against my guidelines.
    rf"^{_ASKED} {_WRONG}",
)
_REFUSAL = re.compile("|".join(f"(?:{p})" for p in _REFUSALS), re.IGNORECASE)


def is_refusal(text: str) -> bool:
    """Return whether a text begins by refusing, as a model speaks; people complain otherwise."""
    beginning = " ".join(text[:BEGINNING].split()).lstrip("\"'“*# ")
    return _REFUSAL.search(beginning) is not None


_PROMPT_WORD = r"(?:prompt|question|instruction|task|query)"
_MADE = (
    r"(?:rewritten|re-written|evolved|revised|created|modified|reworked|rephrased|reformulated|"
    r"enhanced|upgraded|complicated)"
)
_MARKS = re.compile(
    "|".join(
        (
            # #Given Prompt#, # Rewritten Prompt #
            rf"#+ ?(?:the )?(?:given|original|new|{_MADE}) {_PROMPT_WORD} ?#+",
            # Rewritten prompt: at the start of a line, in bold or as a heading
            rf"^[\W_]{{0,9}}(?:the |my |your )?{_MADE} {_PROMPT_WORD}(?: is)?[*_ ]*:",
            r"^[\W_]{0,9}(?:the |my |your )?(?:given|new|original|old) prompt(?: is)?[*_ ]*:",
            # Here is the rewritten prompt
            r"^[\W_]{0,9}(?:(?:sure|certainly|of course|okay|ok|absolutely)[,.! ]+)?"
            rf"here(?:['’]?s| is) (?:the|a|an|your|my|one)\b[^.:\n]{{0,60}}?\b"
            rf"(?:{_MADE}|more \w+|new|better|improved) (?:\w+ ){{0,3}}"
            rf"(?:{_PROMPT_WORD}|version)\b",
            # tags of templates, whole or cut, and placeholders nobody filled in
            r"</?(?:new_)?(?:prompt|instruction)>",
            r"\{(?:prompt|instruction|given_prompt|method)\}",
            r"\[(?:insert|your) (?:the )?(?:rewritten |new )?prompt(?: here)?\]",
        )
    ),
    re.IGNORECASE | re.MULTILINE,
)


def has_leftover(text: str, parent: str, told: Iterable[str] = ()) -> bool:
    """Return whether pieces of a template are in a text that are not in the parent."""
    there = {_plain(found) for found in _MARKS.findall(parent)}
    if any(_plain(found) not in there for found in _MARKS.findall(text)):
        return True
    mine = _runs(text) - _runs(parent)
    return any(not mine.isdisjoint(_runs_told(message)) for message in told)


def _plain(mark: str) -> str:
    return re.sub(r"[\W_]+", "", mark).casefold()


@lru_cache(maxsize=64)
def _runs_told(message: str) -> set[tuple[str, ...]]:
    return _runs(message)


def _runs(text: str) -> set[tuple[str, ...]]:
    words = normalised(text).split()
    return {tuple(words[i : i + ECHO]) for i in range(len(words) - ECHO + 1)}


FEWEST_LETTERS = 20
"""Letters below which a text's script is not told."""

FEWEST_WORDS = 8
"""Words below which a text's small words tell nothing."""

CLEAR_SHARE = 0.12
"""Least share of a text's words that must be small words of its language."""

CLEAR_LEAD = 2.0
"""How many times as many small words of its language as of any other a text must have."""

MAIN_SHARE = 0.6
"""Least share of a text's letters in its script."""

SMALL_WORDS: Mapping[str, frozenset[str]] = {
    "English": frozenset(
        "the of and to a in is that it for was on are as with be this have from or had by what "
        "which you your how do does i my can an at not but they their would should will if "
        "me".split()
    ),
    "Spanish": frozenset(
        "el la los las de que y en un una por con para es del se no lo su como más pero sus al le "
        "ya qué cuál cómo este esta son ha muy o si mi sin sobre".split()
    ),
    "French": frozenset(
        "le la les de des du et un une est en que qui dans pour pas au aux sur ce cette ces avec "
        "il elle nous vous je ne se son sa ses par plus ou mais comme quel quelle sont être".split()
    ),
    "German": frozenset(
        "der die das und ist nicht ein eine einen einer den dem des zu mit sich auf für von im ich "
        "du er sie es wir wie was auch als an aus bei nach oder aber wenn wird sind".split()
    ),
    "Italian": frozenset(
        "il lo la i gli le di che e un una per con non è del della dei delle nel sono da come più "
        "ma si su al questo questa quale cosa ho ha o se mi".split()
    ),
    "Portuguese": frozenset(
        "o a os as de que e um uma do da dos das em no na para com não por mais como se seu sua ao "
        "é são foi ou mas eu você ele ela isso este esta qual".split()
    ),
    "Dutch": frozenset(
        "de het een en van in is dat op te voor met niet zijn aan er om ook als maar bij door naar "
        "dan wat hoe ik je jij hij zij wij ze deze dit kan worden werd".split()
    ),
    "Polish": frozenset(
        "i w na z do że się nie to jest o jak po co za dla od czy przez są być który która które "
        "ale tak jego oraz może ten ta lub".split()
    ),
}
"""Small words of languages in Latin letters; a word of two languages counts for both."""

_ABOUT_LANGUAGES = re.compile(
    r"\b(?:translat\w*|english|spanish|french|german|italian|portuguese|dutch|polish|russian|"
    r"chinese|mandarin|japanese|korean|arabic|hindi|latin|greek|turkish|hebrew|vietnamese)\b",
    re.IGNORECASE,
)

_NOT_PROSE = re.compile(r"```.*?(?:```|\Z)|`[^`\n]*`|\$\$.*?\$\$|https?://\S+", re.DOTALL)


def language(text: str) -> str | None:
    """Return the language of a text in Latin letters, else its script; None if it is not clear.

    Code, formulas and links are not read.
    """
    text = _NOT_PROSE.sub(" ", text)
    script = main_script(text)
    if script is not None and script != "LATIN":
        return script
    words = re.findall(r"[^\W\d_]+", text.casefold())
    if len(words) < FEWEST_WORDS:
        return None
    hits = Counter({name: sum(w in small for w in words) for name, small in SMALL_WORDS.items()})
    (best, most), (_, second) = hits.most_common(2)
    clear = most >= CLEAR_SHARE * len(words) and most >= CLEAR_LEAD * second
    return best if clear else None


def main_script(text: str) -> str | None:
    """Return the Unicode name of the script of most letters (`LATIN`, `CYRILLIC`, `CJK`).

    None where there are too few letters, or no script has most of them.
    """
    scripts: Counter[str] = Counter()
    for letter, count in Counter(text).items():
        if letter.isalpha():
            scripts[_script(letter)] += count
    total = scripts.total()
    if total < FEWEST_LETTERS:
        return None
    script, most = scripts.most_common(1)[0]
    return script if most >= MAIN_SHARE * total else None


@lru_cache(maxsize=4096)
def _script(letter: str) -> str:
    script = unicodedata.name(letter, "UNKNOWN").partition(" ")[0]
    # Japanese is written in all three.
    return "CJK" if script in ("HIRAGANA", "KATAKANA") else script


def changed_language(text: str, parent: str) -> bool:
    """Return whether a text is clearly in another language than the prompt it was made from.

    It is where most of its letters are of a script that the prompt has not one letter of, and
    where both have a language and these differ. A text that speaks of languages or of translating
    may well hold another one, and passes.
    """
    if _ABOUT_LANGUAGES.search(text):
        return False
    script = main_script(_NOT_PROSE.sub(" ", text))
    letters = {_script(letter) for letter in set(parent) if letter.isalpha()}
    if script is not None and letters and script not in letters:
        return True
    mine, other = language(text), language(parent)
    return mine is not None and other is not None and mine != other
