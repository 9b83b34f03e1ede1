"""Toy stage functions that run in real workers, and the plans made of them."""

import hashlib
import os
import random
import signal
from pathlib import Path
from typing import Any

from harness.errors import HarnessError
from harness.runtime import Stage, StageContext

KINDS = """draw total raises refuses dies fills curve gated leaves keeps counted awaits crams places
asks""".split()
FUNCTIONS = {kind: f"toy_stages:{kind}" for kind in KINDS}


def draw(ctx: StageContext) -> None:
    """Write a number drawn from the stage's seed."""
    (ctx.output / "number.txt").write_text(f"{random.Random(ctx.seed).random()!r}")


def total(ctx: StageContext) -> None:
    """Write the sum of the inputs' numbers, and the environment the worker runs in."""
    numbers = [float((ctx.inputs[name] / "number.txt").read_text()) for name in sorted(ctx.inputs)]
    (ctx.output / "number.txt").write_text(repr(sum(numbers)))
    (ctx.output / "threads.txt").write_text(os.environ["OMP_NUM_THREADS"])


def raises(ctx: StageContext) -> None:
    """Fail as a defect does."""
    raise ValueError("the loss is\nnot a number")


def refuses(ctx: StageContext) -> None:
    """Fail as something foreseen does."""
    raise HarnessError("the model is not there: build it first")


def dies(ctx: StageContext) -> None:
    """Be killed as the kernel kills a process that takes too much memory."""
    print("last words", flush=True)
    os.kill(os.getpid(), signal.SIGKILL)


def leaves(ctx: StageContext) -> None:
    """Leave the process without a word."""
    os._exit(3)


def fills(ctx: StageContext) -> None:
    """Write to a disk that is full."""
    with Path("/dev/full").open("w") as file:
        file.write("x" * 100_000)


def curve(ctx: StageContext) -> None:
    """Report a curve of two points."""
    for step, loss in enumerate((0.5, 0.25)):
        ctx.report(step, {"loss": loss})


def keeps(ctx: StageContext) -> None:
    """Die at the first attempt, leaving unfinished work; write that, and the hardware, then."""
    assert ctx.unfinished is not None
    half = ctx.unfinished / "half.txt"
    if not half.exists():
        ctx.unfinished.mkdir(parents=True)
        half.write_text("half")
        dies(ctx)
    (ctx.output / "whole.txt").write_text(f"{half.read_text()} on {dict(ctx.hardware)}")


def gated(ctx: StageContext) -> None:
    """Say which process this is and stay for ever, unless the gate is open."""
    if not Path(str(ctx.settings["gate"])).exists():
        (ctx.output / "half.txt").write_text("half")
        ctx.report(os.getpid(), {"waiting": 1.0})
        while True:
            signal.pause()
    draw(ctx)


def counted(ctx: StageContext) -> None:
    """Add a line to a file that all runs share, and take some 10 ms."""
    with Path(str(ctx.settings["log"])).open("a") as log:
        log.write(f"{ctx.settings['number']} {ctx.settings['step']}\n")
    hashlib.pbkdf2_hmac("sha256", b"toy", b"", 30_000)
    (ctx.output / "number.txt").write_text("1")


def awaits(ctx: StageContext) -> None:
    """Say which process this is and go on when somebody opens the pipe."""
    ctx.report(os.getpid(), {"waiting": 1.0})
    Path(str(ctx.settings["pipe"])).read_text()
    counted(ctx)


def crams(ctx: StageContext) -> None:
    """Write until the disk is full, to a file that is named or to the output; die or fail of it."""
    try:
        with (ctx.output / str(ctx.settings["file"])).open("wb", buffering=0) as file:
            while True:
                file.write(bytes(4096))
    except OSError:
        if ctx.settings["dies"]:
            leaves(ctx)
        raise


def places(ctx: StageContext) -> None:
    """Write which GPUs the stage sees."""
    gpus = os.environ["CUDA_VISIBLE_DEVICES"]
    (ctx.output / "gpus.txt").write_text(gpus)


def asks(ctx: StageContext) -> None:
    """Have a judge answer ten questions, one after the other, and write how many it did."""
    from harness.endpoint.access import model_of
    from harness.endpoint.request import ChatRequest, Message

    client = model_of("judge", "judge").client
    for number in range(10):
        question = Message("user", f"{'x' * 88}{ctx.settings['number']} {number}")
        client.ask(ChatRequest("p", "judge", (question,), {"temperature": 0, "max_tokens": 10}))


def toy(kind: str, *inputs: Stage, label: str = "", **settings: Any) -> Stage:
    named = {f"input{position}": stage for position, stage in enumerate(inputs)}
    return Stage(kind, 1, settings, named, label or kind)


def one_awaits(pipe: str, log: str, own: str) -> list[Stage]:
    """Return a stage that awaits a pipe with one that needs it, and a stage apart."""
    awaited = toy("awaits", pipe=pipe, log=log, number=0, step=0)
    return [toy("total", awaited), toy("draw", number=own, label=own)]
