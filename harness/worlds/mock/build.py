"""The mock models' files: made once from a seed, each in a folder that appears when whole.

    python -c "from harness.worlds.mock.build import main; main()" SEED

Each folder has a card with the seed it was made from and the digests of its files. What is missing,
or was made from another seed or by another version, is made anew, in a process of its own, because
making models imports torch. A model trained here repeats to the last byte on one processor with the
same versions of the libraries; elsewhere rounding differs, and with it the policy's digest.

Benchmarks are in the real ones' own files and layouts, with made-up sentences.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from harness.errors import HarnessError
from harness.project import PACKAGE, benchmarks_dir, models_dir, work_dir
from harness.quiet import worker_environment
from harness.runtime.files import sha256_of
from harness.runtime.leases import hold
from harness.worlds.mock import server
from harness.worlds.real.world import RealWorld

VERSION = 1
"""Raised by a person when the stand-ins are made in another way."""

OWNER = MADE_UP = "stand-in"
"""First part of every stand-in's name, and who is said to have written reference answers."""

POLICY = "gemma-2"

REWARD_MODELS = ("ArmoRM", "Skywork-Reward", "PairRM", "pair-preference-model")
"""Names of the reward models, after what they stand for."""

PROMPTS, MATCHED = f"{OWNER}-prompts", f"{OWNER}-matched"
"""Names of the folders with the human prompts, and with prompts that stand for those matched to the
hard benchmark, in the work folder."""

CARD = "stand_in.json"


def folders() -> dict[str, Path]:
    """Return the folder of each stand-in, by its name."""
    models = {name: models_dir() / OWNER / name for name in (POLICY, *REWARD_MODELS)}
    benchmarks = {name: benchmarks_dir() / OWNER / name for name in BENCHMARKS}
    return {**models, **benchmarks, **{name: work_dir() / name for name in (PROMPTS, MATCHED)}}


def make_ready(seed: int) -> None:
    """Make the stand-ins that are not there, and check those that are."""
    lacking = missing(seed)
    if lacking:
        where = models_dir() / OWNER
        note = f"making the stand-ins ({', '.join(lacking)}) in {where} and beside, once"
        print(f"harness: {note}", file=sys.stderr, flush=True)
        _make(seed)
    for name, folder in folders().items():
        check(name, folder)


def missing(seed: int) -> list[str]:
    """Return the names of the stand-ins that are not there as this seed and version make them."""
    wanted = {"version": VERSION, "seed": seed}
    return [
        name for name, folder in folders().items() if not wanted.items() <= _card(folder).items()
    ]


def write_card(folder: Path, seed: int, said: str) -> None:
    """Write the card of a stand-in: what it is, what it was made from, and its files' digests."""
    card = {"stand_in": said, "version": VERSION, "seed": seed, "files": _digests(folder)}
    (folder / CARD).write_text(json.dumps(card, indent=1) + "\n", encoding="utf-8")


def check(name: str, folder: Path) -> None:
    """Check that a stand-in's files are those that were made.

    Raises:
        HarnessError: One was changed, added or taken away.
    """
    if _card(folder).get("files") != _digests(folder):
        raise HarnessError(
            f"the files of the stand-in `{name}` in {folder} are not those that were made there: "
            "delete the folder, and the next command makes it anew"
        )


def _make(seed: int) -> None:
    """Make what is missing in a process of its own, which imports torch and ends with it."""
    start = (
        "import sys; sys.path[0] = sys.argv[1]; from harness.worlds.mock.build import main; main()"
    )
    done = subprocess.run(
        [sys.executable, "-c", start, str(PACKAGE.parent), str(seed)],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        env=worker_environment(),
    )
    if done.returncode != 0:
        reason = (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
        raise HarnessError(
            f"the stand-ins cannot be made in {models_dir() / OWNER}: {reason}; make room, or set "
            "HARNESS_WORK to a folder that can be written"
        )


def _card(folder: Path) -> dict[str, Any]:
    try:
        found = json.loads((folder / CARD).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def _digests(folder: Path) -> dict[str, str]:
    files = (path for path in sorted(folder.rglob("*")) if path.is_file() and path.name != CARD)
    return {str(path.relative_to(folder)): sha256_of(path) for path in files}


Write = Callable[[Path], None]


def build(seed: int) -> None:
    """Make every stand-in that is not there as this seed and version make it."""
    with hold(work_dir() / "stand-in.lock"):
        for name in missing(seed):
            _put(name, folders()[name], seed)


def _put(name: str, folder: Path, seed: int) -> None:
    """Make one stand-in beside its place, and move it there when it is whole."""
    said, write = _maker(name, seed)
    folder.parent.mkdir(parents=True, exist_ok=True)
    part = Path(tempfile.mkdtemp(prefix=f".{name}-", dir=folder.parent))
    try:
        write(part)
        part.chmod(0o755)
        write_card(part, seed, said)
        # One of another seed or version; a run that was planned with it has to be planned again.
        shutil.rmtree(folder, ignore_errors=True)
        part.rename(folder)
    finally:
        shutil.rmtree(part, ignore_errors=True)


def _maker(name: str, seed: int) -> tuple[str, Write]:
    """Return what is to be said of a stand-in, and what writes its files."""
    if name in (PROMPTS, MATCHED):
        asked = server.prompts() if name == PROMPTS else server.matched_prompts()
        records = [{"prompt": text} for text in asked]
        return "made-up questions", lambda folder: _lines(folder / "prompts.jsonl", records)
    if name in BENCHMARKS:
        return "made-up questions, references and judge's prompts", BENCHMARKS[name]
    if name == POLICY:
        from harness.worlds.mock.models import STEPS, write_policy

        said = f"random weights, then {STEPS} steps on made-up sentences; no language model"
        return said, lambda folder: write_policy(folder, seed)
    from harness.worlds.mock.models import WRITERS

    return "random weights; its rewards mean nothing", lambda folder: WRITERS[name](folder, seed)


def main() -> None:
    """Build with the seed given on the command line, after the folder of the package."""
    import torch

    torch.set_num_threads(1)
    build(int(sys.argv[-1]))


ARENA_HARD, ALPACA_EVAL = 12, 24
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

ANNOTATOR = {
    "name": MADE_UP,
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


def _write_arena_hard(folder: Path) -> None:
    """Write questions, the baseline's answers and the judge's settings."""
    asked = _questions(ARENA_HARD, "in the words of an engineer")
    ids = [f"stand-in-{i}" for i in range(len(asked))]
    _lines(
        folder / "question.jsonl",
        [
            {"question_id": i, "category": MADE_UP, "turns": [{"content": text}]}
            for i, text in zip(ids, asked, strict=True)
        ],
    )
    _lines(
        folder / "answer_gpt-4-0314.jsonl",
        [
            {
                "question_id": i,
                "model_id": MADE_UP,
                "choices": [{"turns": [{"content": server.reply(text, 1), "token_len": 20}]}],
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


def _write_alpaca_eval(folder: Path) -> None:
    """Write instructions with the reference model's outputs, and the words of an annotator."""
    asked = _questions(ALPACA_EVAL, "in plain words")
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
    (folder / "annotator.json").write_text(json.dumps(ANNOTATOR, indent=1), encoding="utf-8")


def _write_mt_bench(folder: Path) -> None:
    """Write questions of two turns, the references to them and the judge's prompts."""
    asked = _questions(len(MT_BENCH_CATEGORIES), "as you would to a friend")
    turns = [[text, server.FOLLOW_UPS[i % len(server.FOLLOW_UPS)]] for i, text in enumerate(asked)]
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
                "choices": [{"turns": [server.reply(both[0], 3), server.reply(both[0], 4)]}],
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


BENCHMARKS: Mapping[str, Callable[[Path], None]] = {
    "arena-hard": _write_arena_hard,
    "alpaca-eval": _write_alpaca_eval,
    "mt-bench": _write_mt_bench,
}
"""What writes each benchmark's files, by the name of its folder."""


def _questions(count: int, manner: str) -> list[str]:
    """Return questions that are no human prompts, each on another subject until they repeat."""
    subjects, questions = tuple(server.SUBJECTS), server.QUESTIONS
    asked = (
        questions[i % len(questions)].format(subject=subjects[(5 * i + i // 12) % 12])
        for i in range(count)
    )
    return [f"{question} Say it {manner}." for question in asked]


def _lines(path: Path, records: Iterable[object]) -> None:
    path.write_text("".join(json.dumps(record) + "\n" for record in records), encoding="utf-8")


class MockWorld(RealWorld):
    """Small models with random weights, made-up questions, and an endpoint of this command's."""

    self_contained = True

    @property
    def _seed(self) -> int:
        assert self.profile.stand_ins is not None
        return self.profile.stand_ins.seed

    def prepare(self) -> None:
        """Make what is not there, and check what is."""
        make_ready(self._seed)

    def serving(self) -> AbstractContextManager[object]:
        """Serve creator, scorer and judge on loopback."""
        return server.endpoints()
