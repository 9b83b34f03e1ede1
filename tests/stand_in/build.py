"""The stand-ins' files: made once, each in a folder that appears when it is whole.

A model trained here repeats to the last byte on one processor with the same versions of the
libraries; elsewhere rounding differs, and with it the policy's digest. Benchmarks are in the real
ones' own files and layouts, with made-up sentences.
"""

import json
import shutil
import tempfile
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from harness.project import benchmarks_dir, models_dir, work_dir
from stand_in import server

OWNER = MADE_UP = "stand-in"
"""First part of every stand-in's name, and who is said to have written reference answers."""

POLICY = "gemma-2"

REWARD_MODELS = ("ArmoRM", "Skywork-Reward", "PairRM", "pair-preference-model")
"""Names of the reward models, after what they stand for."""

PROMPTS = f"{OWNER}-prompts"
"""Name of the folder with the human prompts, in the work folder."""


def folders() -> dict[str, Path]:
    models = {name: models_dir() / OWNER / name for name in (POLICY, *REWARD_MODELS)}
    benchmarks = {name: benchmarks_dir() / name for name in BENCHMARKS}
    return {**models, **benchmarks, PROMPTS: work_dir() / PROMPTS}


Write = Callable[[Path], object]


def build() -> None:
    """Make every stand-in that is not there."""
    for name, folder in folders().items():
        if folder.exists():
            continue
        folder.parent.mkdir(parents=True, exist_ok=True)
        part = Path(tempfile.mkdtemp(prefix=f".{name}-", dir=folder.parent))
        try:
            _writer(name)(part)
            part.chmod(0o755)
            part.rename(folder)
        finally:
            shutil.rmtree(part, ignore_errors=True)


def _writer(name: str) -> Write:
    """Return what writes the files of a stand-in."""
    if name == PROMPTS:
        records = [{"prompt": text} for text in server.prompts()]
        return lambda folder: lines(folder / "prompts.jsonl", records)
    if name in BENCHMARKS:
        return BENCHMARKS[name]
    import torch

    from stand_in.models import WRITERS, write_policy

    torch.set_num_threads(1)
    return write_policy if name == POLICY else WRITERS[name]


ARENA_HARD, RANKED = 12, 24
"""Items of two benchmarks; of AlpacaEval's as many that its length control always has a fit."""

MT_BENCH_CATEGORIES = (
    "writing", "roleplay", "reasoning", "math", "coding", "extraction", "stem", "humanities"
)  # fmt: skip
"""MT-Bench's categories; there is one question of each."""

VERDICT_ASKED = (
    "Here are a question and two answers. Compare them, and end with one of [[A>>B]], [[A>B]], "
    "[[A=B]], [[B>A]], [[B>>A]].\n\nQuestion: {question_1}\n\nAnswer A: {answer_1}\n\n"
    "Answer B: {answer_2}"
)

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


def write_judge_prompts(folder: Path) -> None:
    prompts = [
        {"name": name, "system_prompt": "You rate answers.", "prompt_template": RATING_ASKED + it}
        for name, it in MT_BENCH_PROMPTS.items()
    ]
    lines(folder / "judge_prompts.jsonl", prompts)


def _write_arena_hard(folder: Path) -> None:
    """Write questions, the baseline's answers and the judge's settings."""
    asked = _questions(ARENA_HARD, "in the words of an engineer")
    ids = [f"stand-in-{i}" for i in range(len(asked))]
    turns = [[{"content": text}] for text in asked]
    said = [[{"content": server.reply(text, 1), "token_len": 20}] for text in asked]
    lines(folder / "question.jsonl", questioned(ids, [MADE_UP] * len(ids), turns))
    lines(folder / "answer_gpt-4-0314.jsonl", answered(ids, said))
    settings = {
        "system_prompt": "You compare two answers to a question.",
        "prompt_template": [VERDICT_ASKED],
    }
    # JSON is YAML, and needs no library here.
    (folder / "judge_config.yaml").write_text(json.dumps(settings, indent=1), encoding="utf-8")


def _write_ranked(folder: Path) -> None:
    """Write instructions with the reference model's outputs, as AlpacaEval's."""
    asked = _questions(RANKED, "in plain words")
    records = [
        {
            "dataset": MADE_UP,
            "instruction": text,
            "output": server.reply(text, 2),
            "generator": MADE_UP,
        }
        for text in asked
    ]
    path = folder / "reference_gpt4_1106_preview_outputs.json"
    path.write_text(json.dumps(records, indent=1), encoding="utf-8")


def _write_mt_bench(folder: Path) -> None:
    """Write questions of two turns, the references to them and the judge's prompts."""
    asked = _questions(len(MT_BENCH_CATEGORIES), "as you would to a friend")
    turns = [[text, server.FOLLOW_UPS[i % len(server.FOLLOW_UPS)]] for i, text in enumerate(asked)]
    ids = range(len(turns))
    said = [[server.reply(first, 3), server.reply(first, 4)] for first, _ in turns]
    lines(folder / "question.jsonl", questioned(ids, MT_BENCH_CATEGORIES, turns))
    lines(folder / "reference_answer_gpt-4.jsonl", answered(ids, said))
    write_judge_prompts(folder)


BENCHMARKS: Mapping[str, Callable[[Path], None]] = {
    "arena-hard": _write_arena_hard,
    "ranked": _write_ranked,
    "mt-bench": _write_mt_bench,
}
"""What writes each benchmark's files, by the name of its folder."""


def questioned(
    ids: Iterable[object], categories: Iterable[str], turns: Iterable[object]
) -> list[dict[str, object]]:
    return [
        {"question_id": i, "category": category, "turns": asked}
        for i, category, asked in zip(ids, categories, turns, strict=True)
    ]


def answered(
    ids: Iterable[object], turns: Iterable[object], model: str = MADE_UP
) -> list[dict[str, object]]:
    return [
        {"question_id": i, "model_id": model, "choices": [{"turns": said}]}
        for i, said in zip(ids, turns, strict=True)
    ]


def _questions(count: int, manner: str) -> list[str]:
    """Return questions that are no human prompts, each on another subject until they repeat."""
    subjects, questions = tuple(server.SUBJECTS), server.QUESTIONS
    asked = (
        questions[i % len(questions)].format(subject=subjects[(5 * i + i // 12) % 12])
        for i in range(count)
    )
    return [f"{question} Say it {manner}." for question in asked]


def lines(path: Path, records: Iterable[object]) -> None:
    """Write records as JSON, one a line."""
    path.write_text("".join(json.dumps(record) + "\n" for record in records), encoding="utf-8")
