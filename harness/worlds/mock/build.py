"""The mock models' files: made once from a seed, each in a folder that appears when whole.

    python -c "from harness.worlds.mock.build import main; main()" SEED

Models are at `stand-in/NAME` in the folder of local models, benchmarks at `stand-in/NAME` in the
folder of benchmarks, prompts in the work folder. Each folder has a card with the seed it was made
from and the digests of its files. What is missing, or was made from another seed or by another
version, is made anew, in a process of its own, because making models imports torch and takes
seconds.

A seed decides every weight. A model trained here repeats to the last byte on one processor with the
same versions of the libraries; elsewhere rounding differs, and with it the policy's digest.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from harness.errors import HarnessError
from harness.project import PACKAGE, benchmarks_dir, models_dir, work_dir
from harness.quiet import worker_environment
from harness.runtime.files import sha256_of
from harness.runtime.leases import hold
from harness.worlds.mock import texts
from harness.worlds.protocol import Need
from harness.worlds.real.world import RealWorld

VERSION = 1
"""Raised by a person when the stand-ins are made in another way."""

OWNER = "stand-in"
"""First part of every stand-in's name, as an owner's name on the hub."""

POLICY = "gemma-2"
"""Name of the policy."""

REWARD_MODELS = ("ArmoRM", "Skywork-Reward", "PairRM", "pair-preference-model")
"""Names of the reward models, after what they stand for."""

BENCHMARKS = ("arena-hard", "alpaca-eval", "mt-bench")
PROMPTS = f"{OWNER}-prompts"
"""Name of the folder with the human prompts, in the work folder."""
MATCHED = f"{OWNER}-matched"
"""Name of the folder with prompts that stand for those matched to the hard benchmark."""

CARD = "stand_in.json"


def folders() -> dict[str, Path]:
    """Return the folder of each stand-in, by its name."""
    models = {name: models_dir() / OWNER / name for name in (POLICY, *REWARD_MODELS)}
    benchmarks = {name: benchmarks_dir() / OWNER / name for name in BENCHMARKS}
    return {**models, **benchmarks, **{name: work_dir() / name for name in (PROMPTS, MATCHED)}}


def make_ready(seed: int) -> None:
    """Make the stand-ins that are not there, and check those that are.

    Raises:
        HarnessError: they cannot be made, or the files of one were changed.
    """
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
    return [name for name, folder in folders().items() if not _made_from(folder, seed)]


def write_card(folder: Path, seed: int, said: str) -> None:
    """Write the card of a stand-in: what it is, what it was made from, and its files' digests."""
    card = {
        "stand_in": said,
        "version": VERSION,
        "seed": seed,
        "files": {str(path.relative_to(folder)): sha256_of(path) for path in _files(folder)},
    }
    (folder / CARD).write_text(json.dumps(card, indent=1) + "\n", encoding="utf-8")


def check(name: str, folder: Path) -> None:
    """Check that a stand-in's files are those that were made.

    Raises:
        HarnessError: one was changed, added or taken away.
    """
    known = _card(folder).get("files")
    found = {str(path.relative_to(folder)): sha256_of(path) for path in _files(folder)}
    if known != found:
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


def _made_from(folder: Path, seed: int) -> bool:
    card = _card(folder)
    return card.get("version") == VERSION and card.get("seed") == seed


def _card(folder: Path) -> dict[str, Any]:
    try:
        found = json.loads((folder / CARD).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def _files(folder: Path) -> Iterator[Path]:
    return (p for p in sorted(folder.rglob("*")) if p.is_file() and p.name != CARD)


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
        asked = texts.prompts() if name == PROMPTS else texts.matched_prompts()
        said = "made-up questions"
        return said, lambda folder: texts.write_prompts(folder / "prompts.jsonl", asked)
    if name in texts.WRITERS:
        return "made-up questions, references and judge's prompts", texts.WRITERS[name]
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

    def needs(self) -> Iterator[Need]:
        """Yield whether what is there is right; the rest is made when it is first needed."""
        lacking = missing(self._seed)
        if lacking:
            yield Need("stand-ins", "met", f"{len(lacking)} are made when first needed")
            return
        try:
            for name, folder in folders().items():
                check(name, folder)
        except HarnessError as error:
            yield Need("stand-ins", "missing", str(error), "delete it")
        else:
            yield Need("stand-ins", "met", "made, and all digests are right")

    def lacking_models(self) -> list[str]:
        """Return none: they are made."""
        return []

    def online_needs(self) -> Iterator[Need]:
        """Yield nothing: they are made."""
        yield from ()

    def serving(self) -> AbstractContextManager[object]:
        """Serve creator, scorer and judge on loopback."""
        from harness.worlds.mock.server import endpoints

        return endpoints()
