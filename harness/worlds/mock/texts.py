"""What the mock models are about: a few subjects, questions on them, and benchmarks made of these.

Everything is composed from the lists below, so that the same texts serve as human prompts, as the
policy's demonstrations, as benchmark items and as what tokenizers are trained on. None of it is
taken from a data set. Benchmarks are in the real ones' own files and layouts: the files have the
names that the benchmarks' readers look for, so they are called after the benchmarks' opponents too;
what is in them are made-up sentences, and each record says so.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

SUBJECTS: Mapping[str, tuple[str, str, str]] = {
    "a sundial": (
        "A rod throws a shadow on a plate.",
        "The shadow moves as the sun does.",
        "It shows no hour after dark.",
    ),
    "a bicycle": (
        "The pedals turn a chain.",
        "The chain turns the rear wheel.",
        "A rider steers to stay upright.",
    ),
    "bread": (
        "Flour and water make a dough.",
        "Yeast fills the dough with gas.",
        "Heat sets the crust.",
    ),
    "a library": (
        "Books stand in the order of their numbers.",
        "Readers borrow them for some weeks.",
        "A catalogue says where each one is.",
    ),
    "rain": (
        "Warm air carries water upwards.",
        "The water cools and gathers in drops.",
        "Heavy drops fall.",
    ),
    "a compass": (
        "A needle turns on a pin.",
        "The field of the earth pulls at it.",
        "Iron nearby leads it astray.",
    ),
    "a garden": (
        "Plants need light and water.",
        "Weeds take both from them.",
        "Good soil holds water for long.",
    ),
    "a clock": (
        "A weight or a spring drives the wheels.",
        "A pendulum keeps them in step.",
        "The hands show what they count.",
    ),
    "a letter": (
        "It begins with a greeting.",
        "It says what is wanted.",
        "It ends with a name.",
    ),
    "a bridge": (
        "An arch carries weight to both banks.",
        "Cables carry it to towers.",
        "Wind and trains make it swing.",
    ),
    "a map": (
        "It shows a place from above.",
        "Its scale says how far things are.",
        "North is mostly at the top.",
    ),
    "a kitchen": (
        "Food is kept cold until it is used.",
        "Knives are sharp for a reason.",
        "A clean table saves time.",
    ),
}
"""What prompts are about, and three sentences on each."""

QUESTIONS = (
    "Explain how {subject} works.",
    "Describe {subject} to a child.",
    "What should everybody know about {subject}?",
    "Write two sentences about {subject}.",
    "Why do people care about {subject}?",
    "List three facts about {subject}.",
    "How would you begin a talk on {subject}?",
    "Give a short definition of {subject}.",
    "What is often misunderstood about {subject}?",
    "Compare {subject} with something similar.",
    "Tell me in a few words what matters in {subject}.",
    "What could go wrong with {subject}?",
)
"""How they are asked."""

FOLLOW_UPS = ("Now say it in one sentence.", "Can you give a reason for that?")
"""What a user says after the first answer."""

WANTED = (
    "Give one example from daily life.",
    "Explain the reason behind each step.",
    "What changes if there is little time?",
    "Answer so that an expert would agree.",
    "Name one thing that is hard to measure.",
    "What would you ask an engineer about it?",
)
"""What a rewritten prompt asks for on top."""


def prompts() -> list[str]:
    """Return all questions on all subjects: 144 texts in a fixed order, no two alike."""
    return [question.format(subject=subject) for question in QUESTIONS for subject in SUBJECTS]


def matched_prompts() -> list[str]:
    """Return questions with a wish on top, 864 texts: what matched prompts stand for here."""
    return [f"{prompt} {wanted}" for wanted in WANTED for prompt in prompts()]


def reply(prompt: str, number: int) -> str:
    """Return sentences on the subject of a prompt, in an order that a number draws."""
    known = next((said for subject, said in SUBJECTS.items() if subject in prompt), None)
    sentences = list(known or [said for said, _, _ in SUBJECTS.values()])
    draw = random.Random(f"{number}/{prompt}")
    return " ".join(draw.sample(sentences, draw.randint(1, 3)))


def demonstrations(each: int) -> list[tuple[str, str]]:
    """Return prompts with replies, so many for each prompt."""
    return [(prompt, reply(prompt, number)) for prompt in prompts() for number in range(each)]


def all_texts() -> list[str]:
    """Return every text there is, for tokenizers to be trained on."""
    said = [sentence for sentences in SUBJECTS.values() for sentence in sentences]
    return [*prompts(), *said, *FOLLOW_UPS, *WANTED]


ARENA_HARD, ALPACA_EVAL = 12, 24
"""Items of two benchmarks; of AlpacaEval's as many that its length control always has a fit."""

MT_BENCH_CATEGORIES = (
    "writing", "roleplay", "reasoning", "math", "coding", "extraction", "stem", "humanities"
)  # fmt: skip
"""MT-Bench's categories; there is one question of each."""

MADE_UP = "stand-in"
"""Who is said to have written the reference answers."""

VERDICT_ASKED = (
    "Here are a question and two answers. Compare them, and end with one of [[A>>B]], [[A>B]], "
    "[[A=B]], [[B>A]], [[B>>A]].\n\nQuestion: {question_1}\n\nAnswer A: {answer_1}\n\n"
    "Answer B: {answer_2}"
)

ANNOTATOR = {
    "name": "stand-in",
    "system": "You rank two answers to an instruction.",
    "prompt": "Instruction: {instruction}\n\nAnswer m: {output_1}\n\nAnswer M: {output_2}",
}
"""What the judge of AlpacaEval is told, without the package that has AlpacaEval's own words."""

RATING_ASKED = "Rate the last answer from 1 to 10, in the form [[rating]].\n\n"

MT_BENCH_PROMPTS = {
    "single-v1": "Question: {question}\n\nAnswer: {answer}",
    "single-math-v1": "Question: {question}\n\nReference: {ref_answer_1}\n\nAnswer: {answer}",
    "single-v1-multi-turn": "Question: {question_1}\n\nAnswer: {answer_1}\n\n"
    "Question: {question_2}\n\nAnswer: {answer_2}",
    "single-math-v1-multi-turn": "Question: {question_1}\n\nReference: {ref_answer_1}\n\n"
    "Answer: {answer_1}\n\nQuestion: {question_2}\n\nReference: {ref_answer_2}\n\n"
    "Answer: {answer_2}",
}
"""What the judge of MT-Bench is shown, by the names its reader looks for."""


def write_prompts(path: Path, texts: Iterable[str]) -> None:
    """Write prompts, one JSON object in a line."""
    _lines(path, [{"prompt": text} for text in texts])


def write_arena_hard(folder: Path) -> None:
    """Write questions, the baseline's answers and the judge's settings."""
    asked = _questions(ARENA_HARD, "in the words of an engineer")
    ids = [f"stand-in-{i}" for i in range(len(asked))]
    _lines(
        folder / "question.jsonl",
        [
            {"question_id": i, "category": "stand-in", "turns": [{"content": text}]}
            for i, text in zip(ids, asked, strict=True)
        ],
    )
    _lines(
        folder / "answer_gpt-4-0314.jsonl",
        [
            {
                "question_id": i,
                "model_id": MADE_UP,
                "choices": [{"turns": [{"content": reply(text, 1), "token_len": 20}]}],
            }
            for i, text in zip(ids, asked, strict=True)
        ],
    )
    settings = {
        "system_prompt": "You compare two answers to a question.",
        "prompt_template": [VERDICT_ASKED],
    }
    # JSON is YAML, and needs no library here.
    (folder / "judge_config.yaml").write_text(json.dumps(settings, indent=1), encoding="utf-8")


def write_alpaca_eval(folder: Path) -> None:
    """Write instructions with the reference model's outputs, and the words of an annotator."""
    folder.mkdir(parents=True, exist_ok=True)
    records = [
        {
            "dataset": MADE_UP,
            "instruction": text,
            "output": reply(text, 2),
            "generator": MADE_UP,
        }
        for text in _questions(ALPACA_EVAL, "in plain words")
    ]
    path = folder / "reference_gpt4_1106_preview_outputs.json"
    path.write_text(json.dumps(records, indent=1), encoding="utf-8")
    (folder / "annotator.json").write_text(json.dumps(ANNOTATOR, indent=1), encoding="utf-8")


def write_mt_bench(folder: Path) -> None:
    """Write questions of two turns, the references to them and the judge's prompts."""
    asked = _questions(len(MT_BENCH_CATEGORIES), "as you would to a friend")
    turns = [[text, FOLLOW_UPS[i % len(FOLLOW_UPS)]] for i, text in enumerate(asked)]
    _lines(
        folder / "question.jsonl",
        [
            {"question_id": i, "category": category, "turns": both}
            for i, (category, both) in enumerate(zip(MT_BENCH_CATEGORIES, turns, strict=True))
        ],
    )
    _lines(
        folder / "reference_answer_gpt-4.jsonl",
        [
            {
                "question_id": i,
                "model_id": MADE_UP,
                "choices": [{"turns": [reply(both[0], 3), reply(both[0], 4)]}],
            }
            for i, both in enumerate(turns)
        ],
    )
    _lines(
        folder / "judge_prompts.jsonl",
        [
            {
                "name": name,
                "system_prompt": "You rate answers.",
                "prompt_template": RATING_ASKED + template,
            }
            for name, template in MT_BENCH_PROMPTS.items()
        ],
    )


WRITERS = {
    "arena-hard": write_arena_hard,
    "alpaca-eval": write_alpaca_eval,
    "mt-bench": write_mt_bench,
}
"""What writes each benchmark's files, by the name of its folder."""


def _questions(count: int, manner: str) -> list[str]:
    """Return questions that are no human prompts, each on another subject until they repeat."""
    subjects: Sequence[str] = tuple(SUBJECTS)
    return [
        f"{QUESTIONS[i % len(QUESTIONS)].format(subject=subjects[(5 * i + i // 12) % 12])} "
        f"Say it {manner}."
        for i in range(count)
    ]


def _lines(path: Path, records: Iterable[object]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(record) + "\n" for record in records), encoding="utf-8")
