"""Whether a text answers a prompt instead of being one.

Asked to rewrite a prompt, a model sometimes answers it. Two signs are read. Answers begin in ways
of their own (`Sure! Here ...`, `Answer: ...`). And prompts ask: in their first two or last two
sentences stands a question, a command or what the user wants, where a text that goes on about its
subject has none. The second sign counts only where the parent itself asks, and the text is long
enough to be judged.

This is a heuristic, and knows English only. Measured on published data (the prompts of AlpacaEval,
Arena-Hard and MT-Bench, and four models' answers to them), the figures are in
`tests/worlds/real/test_unusable_corpus.py`: it takes about one ordinary prompt in a hundred for an
answer, and about half of all answers pass it. Most of those are longer than a rewrite may be.
"""

from __future__ import annotations

import re

BEGINNING = 240
"""Characters of a text in which it is read how it begins."""

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
