"""Make the warm-up of the package's model: a few demonstrations of short answers, by rule.

    python tools/warm_up.py warm_up.safetensors

As it comes, the model ends one answer in four within the limit of tokens, never follows some kinds
of instruction, and a training then mostly teaches it to end or never to end. The policy
that experiments start from is therefore tuned once on demonstrations: a text that the model itself
wrote about a subject, changed by rule so that it follows the instructions of a prompt. One in four
instructions is ignored, so that much remains to be learned. The subjects are those of training, and
no kind is shown that training never sees.

What is learned is written as adapters of low rank. The file that the harness ships,
`harness/worlds/instructions/warm_up.safetensors`, is added to the package's weights by
`harness.worlds.instructions.weights`. Takes about ten minutes on one core, and the package peft.
"""

from __future__ import annotations

import argparse
import random
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
from datasets import Dataset
from safetensors.torch import save_file
from trl import SFTConfig, SFTTrainer

from harness.models.loading import fast_training, load_model, load_tokenizer
from harness.models.policy import generate
from harness.registry.training import Lora
from harness.training.placement import Placement
from harness.worlds.instructions.kinds import SEEN, Instruction, words
from harness.worlds.instructions.rules import is_text
from harness.worlds.instructions.tasks import FORMS, VERSION, Task, draw, subjects_of
from harness.worlds.instructions.weights import MODULES, folder

RANK, LEARNING_RATE, BATCH, MAX_LENGTH = 4, 1.5e-3, 8, 160
TASKS, ANSWERS, DEMONSTRATIONS = 480, 4, 900
IGNORED = 0.25
"""Share of the instructions that a demonstration does not follow."""

LONGEST, MOST_WORDS = 44, 32
"""Tokens of the longest text, and words of the longest demonstration made of it."""

_MORE = ("I like {}.", "Many people know {}.", "You can learn from {}.", "Think about {} today.",
         "Not everybody likes {}.")  # fmt: skip
_CRIES = ("Wow!", "What a day!", "Yes!", "How nice!")
_QUESTIONS = ("What do you think?", "Do you like it?", "Why not?")
_BLANKS = ("[name]", "[place]", "[date]", "[time]")
_WITH_WORD = ("It is {}.", "Think of {}.", "I also like {}.")

_LATE = ("highlights", "placeholders", "word", "word_twice", "exclamations", "question_mark",
         "no_comma", "start", "title", "end", "postscript", "lowercase", "uppercase",
         "quoted")  # fmt: skip
"""Kinds in the order in which they change a text; all others come before."""


def demonstrate(task: Task, text: str, rng: random.Random) -> str:
    """Return a text changed so that it follows the instructions of a task, if that can be."""
    for one in sorted(
        task.instructions, key=lambda one: _LATE.index(one.kind) if one.kind in _LATE else -1
    ):
        text = _follow(one, text, task.subject, rng)
    return text


def _follow(one: Instruction, text: str, subject: str, rng: random.Random) -> str:
    n = one.value if isinstance(one.value, int) else 0
    first = rng.randrange(len(_MORE))
    more = [line.format(subject) for line in (*_MORE[first:], *_MORE[:first])]
    parts = [text, *more] if n < 3 else more
    match one.kind:
        case "lowercase":
            return text.lower()
        case "uppercase":
            return text.upper()
        case "no_comma":
            return text.replace(",", "")
        case "exclamations":
            return " ".join([text, *rng.sample(_CRIES, n)])
        case "question_mark":
            return " ".join([text, *rng.sample(_QUESTIONS, n)])
        case "start":
            return f"{one.value} {text}"
        case "end":
            return f"{text} {one.value}"
        case "quoted":
            return '"' + text.replace('"', "") + '"'
        case "postscript":
            return f"{text}\n\nP.S. {more[0]}"
        case "title":
            return f"<<{subject.title()}>>\n{text}"
        case "placeholders":
            return f"{text} From {', '.join(_BLANKS[:n])}."
        case "highlights":
            found = text.split()
            longest = sorted(range(len(found)), key=lambda i: -len(found[i]))[:n]
            return " ".join(f"*{w}*" if i in longest else w for i, w in enumerate(found))
        case "word":
            return f"{text} {rng.choice(_WITH_WORD).format(one.value)}"
        case "word_twice":
            return f"{text} It is {one.value} and {one.value} again."
        case "avoid":
            return " ".join(w for w in text.split() if one.value not in words(w))
        case "at_most":
            return text if one.followed(text) else more[0]
        case "at_least":
            while not one.followed(text):
                text += f" {more.pop()}"
            return text
        case "bullets":
            return "\n".join(f"* {line}" for line in more[:n])
        case "sections":
            return "\n".join(f"Section {i}\n{part}" for i, part in enumerate(parts[:n], 1))
        case "paragraphs":
            return "\n***\n".join(parts[:n])
    raise ValueError(f"no demonstration of `{one.kind}`")


def demonstrations(texts: list[tuple[Task, str]], count: int) -> list[tuple[str, str]]:
    """Return prompts, each with an answer that follows about three in four of its instructions."""
    rng, found = random.Random(f"{VERSION}/warm-up"), list[tuple[str, str]]()
    while len(found) < count:
        about, text = rng.choice(texts)
        task = replace(draw(rng, [about.subject], SEEN), form=about.form)
        followed = tuple(one for one in task.instructions if rng.random() >= IGNORED)
        shown = replace(task, instructions=followed)
        answer = demonstrate(shown, text, rng)
        short = len(words(answer)) <= MOST_WORDS
        if short and is_text(task, answer) and all(one.followed(answer) for one in followed):
            found.append((str(task), answer))
    return found


def short_texts(policy: Path) -> list[tuple[Task, str]]:
    """Return texts in one sentence that a policy wrote to its end, each about its subject."""
    rng = random.Random(f"{VERSION}/texts")
    tasks = [Task(rng.choice(FORMS), rng.choice(subjects_of("training")), ()) for _ in range(TASKS)]
    asked = [[{"role": "user", "content": f"Answer in one sentence. {task}"}] for task in tasks]
    written = generate(
        policy,
        asked,
        n=ANSWERS,
        temperature=0.7,
        top_p=1.0,
        max_new_tokens=LONGEST,
        batch_size=160,
        seed=0,
    )
    return [
        (task, answer.text.strip())
        for task, answers in zip(tasks, written, strict=True)
        for answer in answers
        if answer.n_tokens < LONGEST and is_text(task, answer.text)
    ]


def train_adapters(policy: Path, pairs: Iterable[tuple[str, str]], lora: Lora, out: Path) -> None:
    """Train on prompts with their answers for one pass; write the factors, as bfloat16.

    In the file they are called `model.….lora_A.weight` and `….lora_B.weight`. The loss is on
    answers alone.
    """
    place = Placement(lora=lora)
    rows = [
        {
            "prompt": [{"role": "user", "content": prompt}],
            "completion": [{"role": "assistant", "content": answer}],
        }
        for prompt, answer in pairs
    ]
    model = load_model(policy)
    with fast_training(model), TemporaryDirectory() as scratch:
        arguments = SFTConfig(
            **place.arguments(scratch),
            num_train_epochs=1,
            learning_rate=LEARNING_RATE,
            lr_scheduler_type="linear",
            per_device_train_batch_size=BATCH,
            max_length=MAX_LENGTH,
            warmup_steps=5,
            seed=0,
            optim="adamw_torch",
        )
        trainer = SFTTrainer(
            model,
            arguments,
            train_dataset=Dataset.from_list(rows),
            processing_class=load_tokenizer(policy),
            peft_config=place.adapters(),
        )
        trainer.train()
    learned = {
        name.removeprefix("base_model.model.").replace(".default", ""): value
        for name, value in trainer.model.state_dict().items()
        if "lora_" in name
    }
    save_file({name: value.to(torch.bfloat16).contiguous() for name, value in learned.items()}, out)


def main(argv: Sequence[str] | None = None) -> None:
    """Write the adapters, after 113 steps on the demonstrations."""
    parser = argparse.ArgumentParser(description="Make the adapters of the warm-up; ten minutes.")
    parser.add_argument("file", type=Path, help="gets the adapters, as safetensors")
    asked = parser.parse_args(argv)
    policy = folder(warmed_up=False)
    pairs = demonstrations(short_texts(policy), DEMONSTRATIONS)
    train_adapters(policy, pairs, Lora(rank=RANK, alpha=RANK, targets=MODULES), asked.file)


if __name__ == "__main__":
    main()
