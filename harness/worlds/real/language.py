"""Which language a text is in, as far as letters and small words tell.

Two signs are read. The script most letters belong to separates Chinese, Russian or Arabic from
what is written in Latin letters; the commonest small words separate eight languages that are. A
text too short, or without either sign, has no language here: the question this serves is whether a
rewrite *changed* its language, and what cannot be told has not been shown to change.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Mapping
from functools import lru_cache

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

_CODE = re.compile(r"```.*?(?:```|\Z)|`[^`\n]*`|\$\$.*?\$\$|https?://\S+", re.DOTALL)


def language(text: str) -> str | None:
    """Return the language of a text in Latin letters, else its script; None if it is not clear.

    Code, formulas and links are not read.
    """
    text = _CODE.sub(" ", text)
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
    script = main_script(_CODE.sub(" ", text))
    letters = {_script(letter) for letter in set(parent) if letter.isalpha()}
    if script is not None and letters and script not in letters:
        return True
    mine, other = language(text), language(parent)
    return mine is not None and other is not None and mine != other
