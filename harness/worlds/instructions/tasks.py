"""Prompts: a form of text, a subject, and one to three instructions.

    Write a short poem about an old bicycle. Use only lowercase letters. Use at least 2 …

A prompt's text says everything: `read` gives back the task it was written from, or None for any
other text. Training prompts, the benchmark of held-out prompts and that of new kinds share no
subject; the last has only kinds that just one control trains on. Everything here follows from
`VERSION`. Identities name it and a digest of the texts.
"""

from __future__ import annotations

import hashlib
import random
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache

from harness.errors import HarnessError, UserError
from harness.registry.profile import INSTRUCTIONS, BenchmarkSettings
from harness.worlds.instructions.kinds import (
    KINDS,
    NEW,
    SEEN,
    Instruction,
    compatible,
    read_instruction,
)

VERSION = "instructions-2"
"""Version of the world. Whatever changes a prompt, a check, a rewrite or a reward needs another."""

MOST = 3
"""Most instructions in a prompt."""

SUBJECTS = tuple(
    """
a rainy morning|an old bicycle|learning to swim|a lost dog|growing tomatoes|a night train|the first
day of school|a broken clock|baking bread|a quiet library|a mountain hike|cleaning the garage|a
birthday party|saving water|a street musician|the full moon|a new neighbor|planting trees|a long
flight|an empty beach|playing chess|a power outage|drinking tea|a winter storm|public buses|a small
bakery|a healthy breakfast|a family photo|moving to a new house|a stray cat|studying history|a rusty
key|morning exercise|a soccer match|fishing at night|paper airplanes|a flea market|recycling at
home|a wooden boat|a school play|wild mushrooms|repairing a car|reading at night|a job interview|a
camping trip|honey bees|a noisy street|life in the city|saving money|a video call|a cold
river|learning the piano|city pigeons|a secret garden|a spelling contest|driving at night|an art
museum|a visit to the hospital|fresh snow|local elections|old letters|a desert road|watching birds|a
lucky coin|software updates|coffee shops|a good night's sleep|a quiet village|running a
marathon|volcanoes|the deep ocean|solar panels|ancient Rome|electric cars|dinosaurs|good
manners|robots|the human heart|space travel|spring cleaning|a lemon tree|the town square|a leaking
roof|a talking parrot|apple pie|a foggy harbor|knitting a sweater|a missing suitcase|a traffic
jam|painting a fence|a haunted castle|a grandmother's kitchen|a burned dinner|an airport
delay|learning a language|a weekend without phones|a friendly dragon|the last bus home|a chess
champion|a broken window|the village well|a snowball fight|an office printer|a borrowed umbrella|a
wedding cake|the smell of coffee|a blue door|a garden snail|training a puppy|late homework|ice
skating|a jazz concert|a spider web|making soup|a lighthouse|the night sky|a hidden path|an angry
goose|a map of the world|a pair of shoes|the color green|summer holidays|a kite on the beach|an
apple orchard|a mobile phone|the city park|a traveling circus|the number zero|a sailing race|a good
joke|the sound of rain|a bowl of rice|a small island|a farmer's market|folding paper|a rubber duck|a
glass of milk|an early frost|the first computer|a forest fire|a crowded elevator|writing a diary|the
old bridge|a wooden chair|an electric guitar|learning to cook|the northern lights|a red balloon|a
desert island|pet goldfish|a treasure map|hot chocolate|a bus driver|the school garden|a brave
knight|a broken promise|a tall ladder|a yellow submarine|lost glasses|the corner shop|a sleepy
bear|a magic trick|windmills|a picnic basket|the piano teacher|a stormy sea|a curious child|shooting
stars|the weather forecast|a hungry wolf|a pocket watch|mountain goats|an ice cream truck|a clever
fox|the town library|a heavy backpack|an old typewriter|a rope swing|paper money|a green apple|a
crossword puzzle|the river bank|a barking dog|the new teacher|a cup of cocoa|wild horses|a squeaky
door|an unfinished novel|the tallest tree|a silver spoon|a train station|tropical fish|a clay pot|a
silent movie|the oldest house|a candle in the dark|roasted chestnuts|a school bus|the fishing
village|a tiny spider|a wool blanket|sunflowers|a stone wall|the morning news|a garden gate
""".replace("\n", " ").strip().split("|")
)  # fmt: skip

_GENRES = tuple(
    """
a short poem|a short story|a tweet|an advertisement|a diary entry|a joke|a short speech|an email|a
letter|a news report|a riddle|a song|a fable|a product review|a postcard|a blog post|a text
message|a warning|an invitation|a thank-you note|a complaint|a slogan|a limerick|a toast|a bedtime
story|a short scene|a travel tip|a movie plot|a radio message|a school essay
""".replace("\n", " ").strip().split("|")
)  # fmt: skip

_READERS = ("a friend", "a child", "your neighbors", "a beginner")

FORMS = (
    *(f"Write {genre} about {{}}" for genre in _GENRES),
    *(f"Write {genre} for {reader} about {{}}" for genre in _GENRES[:15] for reader in _READERS),
    *(
        f"{asked} {{}}"
        for asked in (
            "Describe",
            "Give some advice about",
            "Give your opinion about",
            "Tell me something interesting about",
            "Explain why people care about",
            "Say what you like about",
            "Say what can go wrong with",
            "Introduce me to",
            "Tell a friend about",
            "Share a memory of",
        )
    ),
)


@dataclass(frozen=True)
class Task:
    """What a prompt asks for; `form` has `{}` for the subject."""

    form: str
    subject: str
    instructions: tuple[Instruction, ...]

    def __str__(self) -> str:
        return " ".join([f"{self.form.format(self.subject)}.", *map(str, self.instructions)])

    @property
    def kinds(self) -> tuple[str, ...]:
        return tuple(one.kind for one in self.instructions)

    def with_instruction(self, new: Instruction, at: int | None = None) -> Task:
        """Return the task with an instruction added, or put in the place of another."""
        own = list(self.instructions)
        if at is None:
            own.append(new)
        else:
            own[at] = new
        return replace(self, instructions=tuple(own))


@cache
def _heads() -> tuple[tuple[re.Pattern[str], str], ...]:
    one_of = "|".join(re.escape(subject) for subject in sorted(SUBJECTS, key=len, reverse=True))
    return tuple(
        (re.compile(re.escape(form).replace(r"\{\}", f"({one_of})") + r"\. "), form)
        for form in FORMS
    )


def read(prompt: str) -> Task | None:
    """Return the task that a prompt asks for, or None if it is not one of this world's."""
    for pattern, form in _heads():
        head = pattern.match(prompt)
        if head is None:
            continue
        at, found = head.end(), list[Instruction]()
        while at <= len(prompt) and len(found) <= MOST:
            one = read_instruction(prompt, at)
            if one is None:
                return None
            found.append(one[0])
            at = one[1] + 1
        kinds = [one.kind for one in found]
        fits = all(compatible(kind, kinds[:i]) for i, kind in enumerate(kinds))
        return Task(form, head[1], tuple(found)) if fits and len(found) <= MOST else None
    return None


def draw_instruction(rng: random.Random, kind: str) -> Instruction:
    own = KINDS[kind]
    return Instruction(kind, rng.choice(own.values), rng.randrange(len(own.wordings)))


def draw(rng: random.Random, subjects: Sequence[str], kinds: Sequence[str], most: int = 2) -> Task:
    """Draw a task with 1 to `most` instructions, as many of each number."""
    task = Task(rng.choice(FORMS), rng.choice(list(subjects)), ())
    for _ in range(rng.randint(1, most)):
        fitting = [kind for kind in kinds if compatible(kind, task.kinds)]
        task = task.with_instruction(draw_instruction(rng, rng.choice(fitting)))
    return task


@cache
def subjects_of(part: str) -> tuple[str, ...]:
    """Return the subjects of `training`, `held_out` or `new_kinds`: three in five, one, one."""
    order = list(SUBJECTS)
    random.Random(f"{VERSION}/subjects").shuffle(order)
    own = {"training": (0, 1, 2), "held_out": (3,), "new_kinds": (4,)}[part]
    return tuple(subject for i, subject in enumerate(order) if i % 5 in own)


PARTS = {
    "prompts": ("training", SEEN),
    "off_target": ("training", NEW),
    "held_out": ("held_out", SEEN),
    "new_kinds": ("new_kinds", NEW),
}
"""Subjects and kinds of each set of prompts."""


@cache
def prompts(part: str, count: int) -> tuple[str, ...]:
    """Return the first distinct prompts of a part; a larger count only adds to them."""
    subjects, kinds = PARTS[part]
    rng, found = random.Random(f"{VERSION}/{part}"), dict[str, None]()
    while len(found) < count:
        found.setdefault(str(draw(rng, subjects_of(subjects), kinds)))
    return tuple(found)


JUDGE = f"{VERSION}/rules"

BENCHMARKS = {
    "held_out": {what: f"if_{what}" for what in ("strict", "soft", "len", "distinct", "logp")},
    "new_kinds": {what: f"if_new_{what}" for what in ("strict", "soft")},
}
"""Benchmarks, each with its scores by what they measure."""

GUARDED = 100
"""Answers whose log-probability under the base policy is measured."""


def has(identity: str) -> bool:
    """Return whether an identity belongs to any version of this world."""
    return identity.startswith("instructions-")


def identity_of(part: str, count: int) -> str:
    """Return the identity of a part's first prompts."""
    digest = hashlib.sha256("\n".join(prompts(part, count)).encode()).hexdigest()
    return f"{VERSION}/{part}-{count}@{digest[:16]}"


def part_of(identity: str) -> tuple[str, str]:
    """Return the part and the number of prompts that an identity names."""
    part, _, count = identity.partition("/")[2].partition("@")[0].rpartition("-")
    return part, count


def texts_of(identity: str) -> tuple[str, ...]:
    """Return the prompts of an identity, which must be of this version."""
    part, count = part_of(identity)
    if part not in PARTS or identity != identity_of(part, int(count)):
        raise HarnessError(
            f"the run was planned with `{identity}` and this is {VERSION}; plan the run again"
        )
    return prompts(part, int(count))


def benchmark_identity(name: str, declared: BenchmarkSettings) -> str:
    """Return a benchmark's identity by its name and settings in a profile."""
    if name not in BENCHMARKS:
        raise UserError(
            f"the judge `{INSTRUCTIONS}` knows no benchmark `{name}`; call it one of "
            f"{', '.join(BENCHMARKS)}"
        )
    known, setting = BENCHMARKS[name].values(), f"benchmarks.{name}"
    items = max(map(declared.items_of, declared.columns))
    for score in declared.columns:
        if score not in known:
            raise UserError(
                f"{name} yields no score `{score}`; let `{setting}.columns` be among "
                f"{', '.join(known)}"
            )
        measured = min(items, GUARDED) if score == "if_logp" else items
        if declared.items_of(score) != measured:
            raise UserError(
                f"`{score}` is measured on {measured} answers; correct `{setting}.items`"
            )
    return identity_of(name, items)
