"""Build the embedded world from a seed, or freeze what decides the numbers of a profile's world.

    python tools/build_micro.py build --output my-world   # 60 to 90 minutes on two cores
    python tools/build_micro.py freeze                    # before any row of eva is run

The same seed, processor, thread count and library versions give the same bytes. Elsewhere rounding
differs, and the models' scores agree within `TOLERANCE`. The shipped world is left alone: set
`HARNESS_WORLD` to the folder to run in the rebuilt one.

*Demonstrations* are conversations by the fallible demonstrator of `harness.worlds.embedded.texts`,
from which the base policy θ0, a Gemma-2 of 0.9 million parameters, learns. It sees each of them
once, with the loss on the model's turns only: first what the operations do, each under one name and
without mistakes; then what all the names mean, as far as the demonstrator knows.

How fast a word's meaning can be relearned is a property of the world. The output layer is not tied
to the embeddings: if tied, every softmax would give each name's row a tiny gradient, which Adam
turns into a full step, so names that no prompt mentions would drift. At the end the name embeddings
are scaled down (`resize_names`), so that training on a prompt teaches the names in it and leaves
the others unchanged.

*Human prompts* are narrower and easier than the benchmarks, as UltraFeedback is compared with
Arena-Hard: mostly single operations on short lists, each prompt within one topic. *Benchmarks* are
independent of topics and the creator: they use all names equally (the general one is halfway
between people and uniform) and a sentence pattern that people do not.

*Off-target prompts* look like human ones but cover only the three best-known topics: a control with
prompts that can hardly help on a benchmark about all 24.
"""

from __future__ import annotations

import argparse
import math
import random
import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from importlib.metadata import version
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
import torch
from safetensors import safe_open
from scipy.stats import spearmanr
from transformers import Gemma2Config, Gemma2ForCausalLM

from harness.eva.evolving import Prompt, evolve
from harness.models.policy import generate
from harness.project import work_dir
from harness.registry.declared import named_profile
from harness.runtime.manifest import cpu_model
from harness.worlds import Item, stage_io
from harness.worlds.embedded import choosing, files, reward
from harness.worlds.embedded import language as lang
from harness.worlds.embedded.creator import EmbeddedCreator
from harness.worlds.embedded.files import VERSION, Card, digest, write_card
from harness.worlds.embedded.language import Task
from harness.worlds.embedded.reward import RewardConfig
from harness.worlds.embedded.texts import (
    DEPTHS,
    POPULARITY,
    RANKED,
    RELIABILITY,
    TASKS,
    TOPIC_OF,
    TOPIC_SIZE,
    TOPICS,
    Exchange,
    attempt,
    draw_task,
    read_prompts,
    topic_of,
    word,
)
from harness.worlds.embedded.training import (
    IGNORED,
    SHORT,
    compiled,
    descent,
    encode,
    padded,
    reproducible,
    resize_names,
)
from harness.worlds.freeze import freeze_world

SEED = 0  # seed of the shipped world
POOL = 2400
"""Size of each of the human, matched and off-target pools: six iterations of the profile's x."""

PER_CATEGORY = 40  # two-turn items in each of the eight categories
TOLERANCE = 0.03
"""Largest difference between processors in θ0's mean oracle score on the validation prompts."""

REVISION_LIFT = 0.5
"""Share of the demonstrator's failures removed when it is asked to improve its answer."""

FACTS = ("gsm8k", "gsm_plus", "mmlu_pro")  # tasks whose questions are facts


@dataclass(frozen=True)
class Mix:
    follow_up: float = 0.10  # share of conversations with a second task on the first answer
    revision: float = 0.05  # share with a request to improve the first answer
    downstream: float = 0.08  # share of downstream questions; the rest are single tasks
    depths: tuple[float, ...] = DEPTHS
    names: tuple[str, ...] = RANKED  # names used in tasks, drawn uniformly
    lift: float = 0.0
    """Share of the demonstrator's failures removed (0: none, 1: infallible)."""


def demonstrate(rng: random.Random, mix: Mix) -> list[Exchange]:
    """Draw one conversation of one or two turns."""
    kind = rng.random()
    if kind < mix.downstream:
        return [demonstrated_question(rng)]
    task = draw_task(rng, mix.depths, mix.names)
    assert task.items is not None
    first = attempt(task.names, task.items, rng, mix.lift)
    turns = [(word(task, rng), lang.write_list(first))]
    if kind < mix.downstream + mix.revision:
        revised = attempt(task.names, task.items, rng, max(mix.lift, REVISION_LIFT))
        turns.append((lang.REVISE, lang.write_list(revised)))
    elif kind < mix.downstream + mix.revision + mix.follow_up:
        follow_up = Task(None, tuple(rng.choices(mix.names, k=rng.choice((1, 1, 2)))))
        second = attempt(follow_up.names, first, rng, mix.lift)
        turns.append((word(follow_up, rng), lang.write_list(second)))
    return turns


def told(question: Exchange, rng: random.Random) -> Exchange:
    """Return a fact as the demonstrator tells it: sometimes with its one fixed wrong answer."""
    prompt, answer = question
    belief = random.Random(f"micro-3/belief/{prompt}")
    right = belief.uniform(0.2, 0.95)
    said = prompt.partition(" : ")[2].split(" or ")
    others = said if len(said) == 2 else lang.DIGITS
    wrong = belief.choice([other for other in others if other != answer])
    return question if rng.random() < right else (prompt, wrong)


def demonstrated_question(rng: random.Random) -> Exchange:
    task = rng.choice(tuple(TASKS))
    question = TASKS[task](rng)
    return told(question, rng) if task in FACTS else question


def best_known_topics(count: int) -> tuple[int, ...]:
    """Return the indices in `TOPICS` of the topics the demonstrator knows best."""
    known = [sum(RELIABILITY[name] for name in topic) for topic in TOPICS]
    return tuple(sorted(range(len(TOPICS)), key=lambda at: -known[at])[:count])


BASELINE_LIFT = {"arena_hard": 0.4, "alpaca_eval": 0.7, "validation": 0.4}
"""Share of the demonstrator's failures removed in the reference answers, which are fixed when the
world is built, as the real benchmarks' references are."""


@dataclass(frozen=True)
class Distribution:
    """A distribution over prompts."""

    depths: tuple[float, ...]  # shares of tasks with one operation, two, and so on
    lengths: tuple[int, int]  # shortest and longest list
    frames: int  # number of sentence patterns used, from the first
    weights: tuple[float, ...]
    """Weight of each name, in the order of `RANKED`, or if `topical` of each of `TOPICS`."""
    topical: bool = False  # whether a prompt's names are distinct and uniform within one topic

    def draw(self, rng: random.Random, first: tuple[str, ...] | None = None) -> Task:
        """Draw a task; `first` restricts the name of its first operation."""
        depth = rng.choices(range(1, len(self.depths) + 1), weights=self.depths)[0]
        if self.topical:
            names = rng.sample(rng.choices(TOPICS, weights=self.weights)[0], k=depth)
        else:
            names = rng.choices(RANKED, weights=self.weights, k=depth)
        if first is not None:
            names[0] = rng.choice(first)
        return Task(lang.draw_items(rng, *self.lengths), tuple(names))

    def word(self, task: Task, rng: random.Random) -> str:
        frames = self.frames if task.items is not None else len(lang.FOLLOW_UPS)
        return lang.render(task, rng.randrange(frames))


_EVEN = (1.0,) * len(RANKED)
_PEOPLE = tuple(POPULARITY[TOPIC_OF[name]] / sum(POPULARITY) / TOPIC_SIZE for name in RANKED)
_HALFWAY = tuple(w + 1 / len(RANKED) for w in _PEOPLE)

HUMAN = Distribution((0.6, 0.3, 0.1), (4, 5), lang.BENCHMARK_FRAME, POPULARITY, topical=True)
"""The prompt source (stands in for UltraFeedback)."""

_BEST_KNOWN = best_known_topics(3)
OFF_TARGET = replace(HUMAN, weights=tuple(float(at in _BEST_KNOWN) for at in range(len(TOPICS))))
"""Prompts like human ones, on the three best-known topics: a control."""

MATCHED = Distribution((0.6, 0.3, 0.1), (4, 5), lang.BENCHMARK_FRAME, _EVEN)
"""Prompts like human ones, with the hard benchmark's names: the positive control."""

HARD = Distribution((0.4, 0.4, 0.2), (4, 6), len(lang.FRAMES), _EVEN)
"""The hard benchmark (stands in for Arena-Hard): uniform over names, and deeper."""

GENERAL = Distribution((0.5, 0.35, 0.15), (4, 6), len(lang.FRAMES), _HALFWAY)
"""The general benchmark (stands in for AlpacaEval): between the source and the hard one."""

TWO_TURN = Distribution((0.6, 0.4), (4, 6), len(lang.FRAMES), _EVEN)
"""First turns of the two-turn benchmark (stands in for MT-Bench)."""


def draw_prompts(
    name: str, distribution: Distribution, seed: int, count: int, taken: Sequence[str] = ()
) -> list[str]:
    rng = random.Random(f"{seed}/{name}")
    others = set(taken)
    texts: dict[str, None] = {}
    while len(texts) < count:
        text = distribution.word(distribution.draw(rng), rng)
        if text not in others:
            texts.setdefault(text)
    return list(texts)


def pairwise_items(
    name: str, distribution: Distribution, seed: int, count: int, taken: set[str]
) -> list[Item]:
    """Draw a pairwise benchmark with its reference answers; its texts are added to `taken`."""
    rng = random.Random(f"{seed}/{name}")
    items: list[Item] = []
    while len(items) < count:
        task = distribution.draw(rng)
        assert task.items is not None
        text = distribution.word(task, rng)
        answer = lang.write_list(attempt(task.names, task.items, rng, lift=BASELINE_LIFT[name]))
        if text not in taken:
            taken.add(text)
            category = task.operations[0].category
            items.append(Item(f"{name}-{len(items):04d}", category, text, reference=answer))
    return items


def two_turn_items(seed: int, per_category: int, taken: set[str]) -> list[Item]:
    """Draw the two-turn benchmark: `per_category` items in each of the eight categories."""
    rng = random.Random(f"{seed}/mt_bench")
    items: list[Item] = []
    for category in lang.CATEGORIES:
        names = tuple(name for name in RANKED if lang.MEANING[name].category == category)
        wanted = len(items) + per_category
        while len(items) < wanted:
            text = TWO_TURN.word(TWO_TURN.draw(rng, first=names), rng)
            follow_up = Task(None, tuple(rng.choices(RANKED, k=rng.choice((1, 1, 2)))))
            second = TWO_TURN.word(follow_up, rng)
            if text not in taken:
                taken.add(text)
                items.append(Item(f"mt_bench-{len(items):04d}", category, text, second))
    return items


def write_items(items: Sequence[Item], path: Path) -> None:
    schema = stage_io.schema_of("item_id", "category", "turn_1", "turn_2", "reference")
    stage_io.write_rows(path, [vars(item) for item in items], schema)


def write_prompts(prompts: Sequence[str], path: Path) -> None:
    stage_io.write_rows(path, [{"prompt": text} for text in prompts])


@dataclass(frozen=True)
class Course:
    """A training stage: its steps, peak learning rate and warmup."""

    steps: int
    learning_rate: float
    warmup_steps: int


@dataclass(frozen=True)
class PretrainConfig:
    """Hyperparameters of the base policy; all are ours, sized for two CPU cores."""

    seed: int = 0
    operations: Course = Course(6000, 3e-3, 200)
    names: Course = Course(3000, 1.5e-3, 100)
    batch_size: int = 128
    threads: int = 2  # compute threads; a different number rounds differently
    compiled: bool = True
    """Compile the graph if there is a C++ compiler; without one the bytes differ."""
    pool_batches: int = 16
    """Batches per pool; a pool of demonstrations is batched by length to reduce padding."""

    @property
    def steps(self) -> int:
        return self.operations.steps + self.names.steps


def model_config(vocabulary_size: int) -> Gemma2Config:
    return Gemma2Config(
        vocab_size=vocabulary_size,
        hidden_size=128,
        intermediate_size=384,
        num_hidden_layers=4,
        num_attention_heads=4,
        num_key_value_heads=4,
        head_dim=32,
        query_pre_attn_scalar=32,
        max_position_embeddings=256,
        sliding_window=256,
        initializer_range=0.06,
        tie_word_embeddings=False,
        pad_token_id=0,
        bos_token_id=1,
        eos_token_id=4,
    )


FIRST_NAMES = tuple(operation.names[0] for operation in lang.OPERATIONS)
"""The names used in the first stage of pretraining."""


def curriculum(progress: float) -> Mix:
    """Return the mix of the first stage at a progress in [0, 1]: one operation, two, three."""
    full = Mix(names=FIRST_NAMES, lift=1.0)
    return replace(full, depths=full.depths[: 1 + int(5 * progress)])


def batches(
    config: PretrainConfig, steps: int, stream: str, mix_at: Callable[[float], Mix]
) -> Iterator[tuple[torch.Tensor, ...]]:
    """Yield at least `steps` batches of token ids, mask and labels, each (batch, length)."""
    ids = lang.token_ids()
    pad, size = ids[lang.PAD], config.batch_size * config.pool_batches
    for pool in range(-(-steps // config.pool_batches)):
        rng = random.Random(f"{config.seed}/demonstrations/{stream}/{pool}")
        mix = mix_at(pool * config.pool_batches / steps)
        conversations = (encode(demonstrate(rng, mix), ids) for _ in range(size))
        rows = sorted(conversations, key=lambda row: len(row[0]))
        starts = list(range(0, size, config.batch_size))
        rng.shuffle(starts)
        for start in starts:
            part = rows[start : start + config.batch_size]
            tokens, mask = padded([tokens for tokens, _ in part], pad)
            yield tokens, mask, padded([labels for _, labels in part], IGNORED)[0]


def pretrain(
    config: PretrainConfig, output: Path, on_step: Callable[[int, float], None] = lambda *_: None
) -> None:
    """Train θ0 and save it with its tokenizer."""
    courses = (
        (config.operations, "operations", curriculum),
        (config.names, "names", lambda progress: Mix()),
    )
    with reproducible(config.seed, config.threads) as device:
        model: Any = Gemma2ForCausalLM(model_config(len(lang.token_ids()))).to(torch.device(device))
        forward = compiled(model) if config.compiled else model
        done = 0
        for course, stream, mix_at in courses:
            descend = descent(model, course.learning_rate, course.warmup_steps, course.steps)
            drawn = batches(config, course.steps, stream, mix_at)
            for step, batch in zip(range(1, course.steps + 1), drawn, strict=False):
                loss = _loss(forward, batch, device)
                descend(loss)
                on_step(done + step, float(loss.detach()))
            done += course.steps
        resize_names(model, SHORT)
        model.bfloat16().save_pretrained(output)
        lang.build_tokenizer().save_pretrained(output)


def _loss(forward: Any, batch: tuple[torch.Tensor, ...], device: str) -> torch.Tensor:
    tokens, mask, labels = (part.to(device) for part in batch)
    with torch.autocast(device, dtype=torch.bfloat16):
        logits = forward(input_ids=tokens, attention_mask=mask, use_cache=False).logits
    return torch.nn.functional.cross_entropy(
        logits[:, :-1].float().flatten(0, 1), labels[:, 1:].flatten(), ignore_index=IGNORED
    )


PROMPTS, ANSWERS = 100, 6
"""Prompts per measured group, and answers sampled per prompt, at temperature 1."""

EIGHTHS = 8  # number of groups of names by rank

Competence = dict[str, dict[str, dict[str, float]]]


def measure(policy: Path, seed: int) -> Competence:
    """Evaluate a policy by the rank of names and by depth: exact, oracle score and best of 6."""
    rng = random.Random(f"{seed}/competence")
    size = len(RANKED) // EIGHTHS
    names = {
        f"{at + 1} to {at + size}": RANKED[at : at + size] for at in range(0, len(RANKED), size)
    }
    groups = [("ranks", label, 1, some) for label, some in names.items()]
    groups += [("depth", str(depth), depth, RANKED) for depth in range(1, lang.MAX_DEPTH + 1)]
    prompts = [
        word(Task(lang.draw_items(rng, 4, 6), tuple(rng.choices(some, k=depth))), rng)
        for _, _, depth, some in groups
        for _ in range(PROMPTS)
    ]
    answers = zip(prompts, _answers(policy, prompts, seed), strict=True)
    scores = np.array([[lang.score(prompt, text) for text in own] for prompt, own in answers])
    found: Competence = {"ranks": {}, "depth": {}}
    for (kind, label, _, _), block in zip(groups, np.split(scores, len(groups)), strict=True):
        found[kind][label] = {
            "exact": round(float((block == 1.0).mean()), 3),
            "score": round(float(block.mean()), 3),
            "best_of_6": round(float(block.max(axis=1).mean()), 3),
        }
    return found


def _answers(policy: Path, prompts: Sequence[str], seed: int) -> list[list[str]]:
    answers = generate(
        policy,
        [[{"role": "user", "content": prompt}] for prompt in prompts],
        n=ANSWERS,
        temperature=1.0,
        top_p=1.0,
        max_new_tokens=14,
        batch_size=256,
        seed=seed,
    )
    return [[answer.text for answer in several] for several in answers]


def accuracy(folder: Path, config: RewardConfig) -> dict[str, float]:
    """Measure how often a reward model agrees with the oracle on held-out pairs."""
    right = reward.in_order(folder, config, reward.held_out_pairs(config))
    mean = fmean(right)
    error = math.sqrt(mean * (1 - mean) / len(right))
    return {"held_out_accuracy": round(mean, 4), "standard_error": round(error, 4)}


TEMPLATE = """---
license: apache-2.0
library_name: transformers
---

# {title} of the embedded world {version}

{text}

Gemma-2, {parameters:,} parameters, one token a word; made by `tools/build_micro.py`.
Digest {digest}.
Settings and what was measured stand in the world's `card.json`. It speaks no human language and is
of no use outside the harness.
"""

STANDS_FOR = {
    "pointwise": "ArmoRM-8B",
    "pointwise_large": "Skywork-27B",
    "pairwise": "PairRM-0.4B",
    "pairwise_large": "PairRM-8B",
}
"""The published reward model that each role stands in for."""


def write_model_card(folder: Path, title: str, text: str) -> None:
    with safe_open(folder / "model.safetensors", framework="numpy") as weights:
        shapes = [weights.get_slice(name).get_shape() for name in weights.keys()]  # noqa: SIM118
    parameters, own = sum(map(math.prod, shapes)), digest(folder)
    card = TEMPLATE.format(
        title=title, version=VERSION, text=text, parameters=parameters, digest=own
    )
    (folder / "README.md").write_text(card, encoding="utf-8")


PAIRWISE = {
    "arena_hard": (HARD, 2000),
    "alpaca_eval": (GENERAL, 800),
    "validation": (HARD, 1500),
}
"""The distribution and size of each pairwise benchmark."""

OnEvent = Callable[[str], None]


def build(output: Path, seed: int = SEED, on_event: OnEvent = print) -> Card:
    """Build the world into a folder and write its card."""
    output.mkdir(parents=True, exist_ok=True)
    on_event("prompts and benchmarks")
    write_texts(output, seed)
    machine = {  # what a trained model's bytes depend on besides its settings
        "processor": cpu_model(),
        "device": "cuda" if torch.cuda.is_available() else "cpu",
        "compiled": shutil.which("g++") is not None,
        **{name: version(name) for name in ("torch", "transformers")},
    }
    notes: dict[str, Any] = {"seed": seed, "tolerance": TOLERANCE, "machine": machine}
    notes["theta0"] = build_policy(output, seed, on_event)
    notes["creator"] = measure_creator(output, seed)
    for role in reward.REWARD_MODELS:
        notes[f"rm_{role}"] = build_reward_model(role, output, seed, on_event)
    return write_card(output, notes)


def write_texts(output: Path, seed: int) -> None:
    """Write the prompt pools and the benchmarks; no text is in two of them."""
    human = draw_prompts("human", HUMAN, seed, POOL)
    matched = draw_prompts("matched", MATCHED, seed, POOL, human)
    off_target = draw_prompts("off_target", OFF_TARGET, seed, POOL, [*human, *matched])
    write_prompts(human, output / "prompts.parquet")
    write_prompts(matched, output / "matched.parquet")
    write_prompts(off_target, output / "off_target.parquet")
    taken = {*human, *matched, *off_target}
    for name, (distribution, count) in PAIRWISE.items():
        items = pairwise_items(name, distribution, seed, count, taken)
        write_items(items, output / f"{name}.parquet")
    write_items(two_turn_items(seed, PER_CATEGORY, taken), output / "mt_bench.parquet")


def build_policy(output: Path, seed: int, on_event: OnEvent) -> dict[str, Any]:
    """Train θ0 into `theta0/`; return its notes for the world's card."""
    config, folder = PretrainConfig(seed=seed), output / "theta0"
    losses, on_step = _curve("θ0", config.steps, on_event)
    pretrain(config, folder, on_step)
    text = "Trained on demonstrations by a fallible demonstrator."
    write_model_card(folder, "Base policy θ0", text)
    loss = round(fmean(losses[-100:]), 4)
    return {"settings": asdict(config), "loss": loss, "competence": measure(folder, config.seed)}


def build_reward_model(role: str, output: Path, seed: int, on_event: OnEvent) -> dict[str, Any]:
    """Train a role's reward model into `rm_<role>/`; return its notes for the world's card."""
    config, folder = replace(reward.REWARD_MODELS[role], seed=seed), output / f"rm_{role}"
    _, on_step = _curve(f"reward model {role}", config.steps, on_event)
    reward.fit_reward_model(config, output / "theta0", folder, on_step)
    text = (
        f"θ0's body, with {config.layers} layers and a scalar head that reads {config.reads}, "
        "trained on noisy preferences between attempts by the demonstrator. It stands for "
        f"{STANDS_FOR[role]}."
    )
    write_model_card(folder, f"Reward model {role}", text)
    found = accuracy(folder, config)
    on_event(f"reward model {role}: accuracy on held-out pairs {found['held_out_accuracy']:.3f}")
    return {"settings": asdict(config), **found}


def measure_creator(output: Path, seed: int) -> dict[str, float]:
    """Measure how much rewrites keep of their parents, and how well a parent predicts them.

    Every human prompt is evolved once, as in an iteration of eva.

    Returns:
        `kept`: share of a rewrite's names that occur in the text it rewrote; `kept_or_topic`:
        those plus names from that text's topic; `kept_of_first`, `topic_of_first`: the same for
        the human prompt at the start of the chain. `names`: mean number of names per rewrite.
        `teaches_alike`: Spearman correlation between a human prompt's teachability (of its names,
        for θ0) and its rewrites' mean; `right_alike`: the same for the share of correct answers.
    """
    human = {f"h{i}": text for i, text in enumerate(read_prompts(output / "prompts.parquet"))}
    starts = [Prompt(key, text) for key, text in human.items()]
    made = evolve(starts, EmbeddedCreator(), evolutions=4, retries=2, seed=seed).prompts
    text_of = human | {child.prompt_id: child.prompt for child in made}
    counts: dict[str, list[float]] = {}
    for child in made:
        own = choosing.names_of(child.prompt)
        before = {"": child.parent_id or "", "_of_first": child.prompt_id.split(".")[0]}
        for suffix, key in before.items():
            task = lang.parse(text_of[key])
            assert task is not None
            kept = [name in task.names for name in own]
            topic = [TOPIC_OF[name] == topic_of(task) for name in own]
            counts.setdefault(f"kept{suffix}", []).extend(kept)
            label = "topic_of_first" if suffix else "kept_or_topic"
            counts.setdefault(label, []).extend(a or b for a, b in zip(kept, topic, strict=True))
        counts.setdefault("names", []).append(len(own))
    prompts = choosing.probe_prompts()
    right = choosing.right_by_name(prompts, _answers(output / "theta0", prompts, seed))
    taught = choosing.taught_by_name(right)
    alike = {}
    for label, value in (("teaches_alike", taught), ("right_alike", right)):
        children: dict[str, list[float]] = {}
        for child in made:
            mean = choosing.mean_taught(choosing.names_of(child.prompt), value)
            children.setdefault(child.prompt_id.split(".")[0], []).append(mean)
        parents = [choosing.mean_taught(choosing.names_of(human[key]), value) for key in children]
        alike[label] = float(spearmanr(parents, [fmean(own) for own in children.values()])[0])
    found = {label: fmean(values) for label, values in counts.items()} | alike
    return {label: round(value, 3) for label, value in found.items()}


def _curve(
    what: str, steps: int, on_event: OnEvent
) -> tuple[list[float], Callable[[int, float], None]]:
    """Return a list of losses, and a callback that fills it and reports every 50 steps."""
    losses: list[float] = []

    def on_step(step: int, loss: float) -> None:
        losses.append(loss)
        if step % 50 == 0:
            on_event(f"{what}: step {step} of {steps}, loss {sum(losses[-50:]) / 50:.3f}")

    return losses, on_step


def differing(card: Card) -> list[str]:
    """Return the files of a world that differ from the world in use."""
    known = files.card().assets
    return [name for name, it in card.assets.items() if it["sha256"] != known[name]["sha256"]]


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="Build the embedded world, or freeze a world.")
    verbs = parser.add_subparsers(dest="verb", required=True)
    builds = verbs.add_parser("build", help="make all files of the world from a seed")
    builds.add_argument("--output", type=Path, help="default: `world` in the work folder")
    builds.add_argument("--seed", type=int, default=SEED)
    freezes = verbs.add_parser("freeze", help="write down what decides a profile's numbers")
    freezes.add_argument("--profile", default="micro")
    given = parser.parse_args(arguments)
    if given.verb == "freeze":
        frozen = freeze_world(named_profile(given.profile))
        print(f"Frozen at {frozen.at}: {len(frozen.parts)} parts.")
        return
    folder = given.output or work_dir() / "world"
    card = build(folder, given.seed)
    print(f"The world {card.version} is in {folder}.")
    print(f"Not as in the world in use: {', '.join(differing(card)) or 'no file'}.")


if __name__ == "__main__":
    main()
