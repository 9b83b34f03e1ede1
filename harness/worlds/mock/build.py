"""Making the stand-ins: models, benchmarks and prompts, each in a folder that appears when whole.

    python -c "from harness.worlds.mock.build import main; main()" SEED

A seed decides every weight. A model trained here repeats to the last byte on one processor with the
same versions of the libraries; elsewhere rounding differs, and with it the policy's digest.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from harness.project import work_dir
from harness.runtime.files import hold
from harness.worlds.mock import data, places

Write = Callable[[Path], None]


def build(seed: int) -> None:
    """Make every stand-in that is not there as this seed and version make it."""
    with _alone():
        for name in places.missing(seed):
            _put(name, places.folders()[name], seed)


@contextmanager
def _alone() -> Iterator[None]:
    """Let one command make stand-ins at a time; the next finds them made."""
    with hold(work_dir() / "stand-in.lock"):
        yield


def _put(name: str, folder: Path, seed: int) -> None:
    """Make one stand-in beside its place, and move it there when it is whole."""
    said, write = _maker(name, seed)
    folder.parent.mkdir(parents=True, exist_ok=True)
    part = Path(tempfile.mkdtemp(prefix=f".{name}-", dir=folder.parent))
    try:
        write(part)
        part.chmod(0o755)
        places.write_card(part, seed, said)
        # One of another seed or version; a run that was planned with it has to be planned again.
        shutil.rmtree(folder, ignore_errors=True)
        part.rename(folder)
    finally:
        shutil.rmtree(part, ignore_errors=True)


def _maker(name: str, seed: int) -> tuple[str, Write]:
    """Return what is to be said of a stand-in, and what writes its files."""
    if name == places.PROMPTS:
        said = "made-up questions"
        return said, lambda folder: data.write_prompts(folder / "prompts.jsonl")
    if name in data.WRITERS:
        return "made-up questions, references and judge's prompts", data.WRITERS[name]
    if name == places.POLICY:
        from harness.worlds.mock.policy import STEPS, write_policy

        said = f"random weights, then {STEPS} steps on made-up sentences; no language model"
        return said, lambda folder: write_policy(folder, seed)
    from harness.worlds.mock.reward_models import WRITERS

    return "random weights; its rewards mean nothing", lambda folder: WRITERS[name](folder, seed)


def main() -> None:
    """Build with the seed given on the command line, after the folder of the package."""
    import torch

    torch.set_num_threads(1)
    build(int(sys.argv[-1]))
