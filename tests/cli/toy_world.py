"""A world of toy files, and stage functions that write what real ones write, in no time.

A policy's "skill" is a number: the base policy has 0.3, and each training adds a little that
depends on its seed. A judge scores each of its prompts with that skill plus noise drawn from the
stage's seed. `TOY_FAILS` names a kind of stage that fails and says the worker's budget, `TOY_WAITS`
one that never ends and opens the pipe `TOY_PIPE` when it is half done. `TOY_LOG` names a folder in
which each stage that begins is noted, `TOY_SLOW` the seconds a stage takes at most, and `TOY_DIES`
the process that kills itself and when (`die_when_told`).
"""

import fcntl
import json
import os
import random
import signal
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from harness.errors import HarnessError
from harness.runtime import StageContext
from harness.selection.experiment import select

KINDS = """prompts generate annotate select evolve pair mix join rewrite repeat train online answer
judge reward_model held_out best_of_n""".split()
FUNCTIONS = {kind: f"toy_world:{kind}_stage" for kind in KINDS}

COLUMNS = {
    "arena_hard": ("ah_wr", "ah_len"),
    "alpaca_eval": ("ae_lc", "ae_wr"),
    "mt_bench": ("mt_avg", "mt_t1", "mt_t2"),
    "validation": ("val_wr", "val_len"),
    "downstream": ("gsm8k", "wmdp"),
}
PROMPTS = [
    {
        "prompt_id": f"p{i}", "prompt": f"double_last-1 : 1 2 {i}", "source": "toy",
        "parent_id": None, "generation": 0, "method": None,
    }
    for i in range(4)
]  # fmt: skip
PAIRS = [
    {
        **prompt, "chosen": "answer 1", "rejected": "answer 0",
        "reward_chosen": 1.0, "reward_rejected": 0.0,
    }
    for prompt in PROMPTS
]  # fmt: skip

COMPLETIONS = [
    {**prompt, "sample": sample, "completion": f"answer {sample}", "n_tokens": 3}
    for prompt in PROMPTS
    for sample in range(6)
]
DRAWN = [
    {**prompt, "informativeness": 0.5, "weight": 0.25, "draw": i}
    for i, prompt in enumerate(PROMPTS)
]


def planned(
    table: str, profile: str, seeds: Sequence[int], rows: Sequence[str] | None = None
) -> Any:
    """Return the runs behind a table."""
    return select(table, profile, rows, seeds).parts[0]


FRESH, AGAIN = "fresh", "again"
"""What `TOY_LOG` says of a stage that begins: that it had to be computed, or that it had not."""

_WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT
_CHANGES = ("os.rename", "os.remove", "os.mkdir", "os.rmdir", "shutil.rmtree", "fcntl.flock")
_holds: list[int] = []


def die_when_told(who: str) -> None:
    """Kill this process before its n-th change to a file, where `TOY_DIES` is `<who>:<n>:<once>`.

    It is `parent` or `worker`. Only the first that gets so far dies: it leaves the file `<once>`.
    """
    named, number, once = [*os.environ.get("TOY_DIES", "").split(":", 2), "", ""][:3]
    if named != who:
        return
    left = int(number)

    def count(event: str, arguments: tuple[Any, ...]) -> None:
        nonlocal left
        if event in _CHANGES or (event == "open" and int(arguments[2] or 0) & _WRITES):
            left -= 1
            if left == 0 and not os.path.exists(once):
                os.mkdir(once)
                os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(count)


if "harness.runtime.worker" in sys.modules:
    die_when_told("worker")


def _note(ctx: StageContext, kind: str) -> None:
    """Note that a stage begins, and whether its output is there or is being computed already.

    The lock on a stage's file is kept until this process begins another stage, so a rival sees it
    from the beginning until the output is in the store.
    """
    if "TOY_LOG" not in os.environ or ctx.unfinished is None:
        return
    log, name = Path(os.environ["TOY_LOG"]), ctx.unfinished.name
    while _holds:
        os.close(_holds.pop())
    _holds.append(os.open(log / f"{name}.lock", os.O_CREAT | os.O_RDWR, 0o644))
    state = FRESH
    try:
        fcntl.flock(_holds[0], fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        state = AGAIN
    if (ctx.unfinished.parents[1] / "stages" / name[:2] / name / "stage.json").exists():
        state = AGAIN
    descriptor = os.open(log / "begun", os.O_CREAT | os.O_WRONLY | os.O_APPEND, 0o644)
    os.write(descriptor, f"{state} {kind} {name} {os.getpid()}\n".encode())
    os.close(descriptor)


def _work(ctx: StageContext, kind: str) -> None:
    _note(ctx, kind)
    if "TOY_SLOW" in os.environ:
        time.sleep(random.Random(ctx.seed).random() * float(os.environ["TOY_SLOW"]))
    if kind == os.environ.get("TOY_FAILS"):
        budget = os.environ.get("HARNESS_BUDGET_USD", "no budget")
        raise HarnessError(f"the toy is broken: mend it ({budget})")
    if kind == os.environ.get("TOY_WAITS"):
        (ctx.output / "half.txt").write_text("half")
        Path(os.environ["TOY_PIPE"]).open("w").close()
        while True:
            signal.pause()


def _write(path: Path, rows: list[dict[str, Any]]) -> None:
    pq.write_table(pa.Table.from_pylist(rows), path)


def annotate_stage(ctx: StageContext) -> None:
    _work(ctx, "annotate")
    noise = random.Random(ctx.seed)
    rows = [
        {"prompt_id": prompt["prompt_id"], "sample": sample, "reward": noise.random()}
        for prompt in PROMPTS
        for sample in range(6)
    ]
    _write(ctx.output / "rewards.parquet", rows)


def _writing(kind: str, file: str, rows: list[dict[str, Any]]) -> Callable[[StageContext], None]:
    """Return a stage that writes the same rows whatever it is given."""

    def stage(ctx: StageContext) -> None:
        _work(ctx, kind)
        _write(ctx.output / file, rows)

    return stage


prompts_stage, evolve_stage = (
    _writing(kind, "prompts.parquet", PROMPTS) for kind in ("prompts", "evolve")
)
generate_stage = _writing("generate", "completions.parquet", COMPLETIONS)
select_stage = _writing("select", "selected.parquet", DRAWN)
pair_stage, mix_stage, join_stage, rewrite_stage, repeat_stage = (
    _writing(kind, "pairs.parquet", PAIRS) for kind in ("pair", "mix", "join", "rewrite", "repeat")
)


def train_stage(ctx: StageContext) -> None:
    _work(ctx, "train")
    ctx.report(1, {"loss": 0.5})
    gained = 0.02 + random.Random(ctx.seed).random() / 100
    _write_skill(ctx, _skill(ctx) + gained)
    (ctx.output / "log.json").write_text(json.dumps({"history": [], "summary": {"steps": 10}}))


def online_stage(ctx: StageContext) -> None:
    _work(ctx, "online")
    first, last = int(str(ctx.settings["first_step"])), int(str(ctx.settings["last_step"]))
    for step in range(first, last + 1):
        ctx.report(step, {"reward": float(step), "buffer/size": 4.0})
    rewarded = [{**row, "reward_mean": 0.5, "reward_best": 1.0} for row in PROMPTS]
    _write(ctx.output / "trained.parquet", rewarded)
    _write_skill(ctx, _skill(ctx) + 0.02 + random.Random(ctx.seed).random() / 100)
    summary = {
        "rollouts": 6 * last, "tokens": 30 * last, "gradient_steps": last, "creator_calls": last,
        "children": 4, "dropped": 1, "unusable": 1, "phases": {"mix-up": last - first + 1},
        "evolved_share": 0.5, "buffer": 4,
    }  # fmt: skip
    (ctx.output / "summary.json").write_text(json.dumps(summary))


def answer_stage(ctx: StageContext) -> None:
    _work(ctx, "answer")
    conversation = json.dumps([{"role": "user", "content": "reverse the list"}])
    row = {"prompt_id": "q0", "turn": 1, "conversation": conversation, "completion": "reversed"}
    _write(ctx.output / "answers.parquet", [row])
    _write_skill(ctx, _skill(ctx))


def judge_stage(ctx: StageContext) -> None:
    _work(ctx, "judge")
    name = str(ctx.settings["benchmark"]).partition("/")[2].partition("@")[0]
    skill = json.loads((ctx.inputs["answers"] / "skill.json").read_text())
    noise = random.Random(ctx.seed)
    _write_scores(ctx, COLUMNS[name], lambda: skill + noise.random())
    categories = [{"prompt_id": f"q{i}", "category": f"category {i % 2}"} for i in range(5)]
    _write(ctx.output / "judgments.parquet", categories)
    (ctx.output / "summary.json").write_text(json.dumps({"judge": ctx.settings["judge"]}))


def reward_model_stage(ctx: StageContext) -> None:
    _work(ctx, "reward_model")
    ctx.report(1, {"loss": 0.5})


def held_out_stage(ctx: StageContext) -> None:
    _work(ctx, "held_out")
    noise = random.Random(ctx.seed)
    _write_scores(ctx, ["rm_accuracy"], lambda: float(noise.random() < 0.8), 20)


def best_of_n_stage(ctx: StageContext) -> None:
    _work(ctx, "best_of_n")
    _write_scores(ctx, ["best_of_n"], random.Random(ctx.seed).random)
    summary = {"mean_answer": 0.4, "best_by_judge": 0.9}
    (ctx.output / "summary.json").write_text(json.dumps(summary))


def _write_scores(
    ctx: StageContext, columns: Sequence[str], value: Callable[[], float], prompts: int = 5
) -> None:
    rows = [
        {"prompt_id": f"q{i}", "column": column, "value": value()}
        for column in columns
        for i in range(prompts)
    ]
    _write(ctx.output / "scores.parquet", rows)


def _skill(ctx: StageContext) -> float:
    policy = ctx.inputs.get("policy") or ctx.inputs.get("before")
    return 0.3 if policy is None else float(json.loads((policy / "skill.json").read_text()))


def _write_skill(ctx: StageContext, skill: float) -> None:
    (ctx.output / "skill.json").write_text(json.dumps(skill))
