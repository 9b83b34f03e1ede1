"""One process of a training that `accelerate` launched: reads its job, trains, says how it went.

It is started by `harness.training.launched` and nobody else:

    accelerate launch ... -m harness.training.launch JOB.json

The job says what to train and where things lie. The processes of a job share its working folder:
the first one writes the curves and, at the end, the summary; whichever fails says why in a file.
A process ends itself when the one that launched the job is gone, however that ended.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
import traceback
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

SUMMARY = "summary.json"
FAILURE = "failure.json"
LAUNCHER = "HARNESS_LAUNCHER"
"""Environment variable with the signature by which the launcher holds the working folder."""

_LOOK_S = 0.5


@dataclass(frozen=True, kw_only=True)
class Job:
    """A training for several processes; all of it is JSON.

    Attributes:
        algorithm: which one, by the name that recipes use.
        settings: hyperparameters under the catalogue's names.
        micro_batch: pairs for one forward pass on each device.
        placement: the fields of `Placement`, its folder left out.
        policy: checkpoint to start from, and to refer to.
        pairs: Parquet file of the pairs.
        output: existing folder that receives `model/`.
        work: working folder, held by the process that launched the job.
        seed: seed of the training.
        use_cpu: train on processors, whatever else there is.
    """

    algorithm: str
    settings: dict[str, Any]
    micro_batch: int
    placement: dict[str, Any]
    policy: str
    pairs: str
    output: str
    work: str
    seed: int
    use_cpu: bool

    def write(self, path: Path) -> None:
        """Write the job as a file that `read` takes."""
        path.write_text(json.dumps(asdict(self), indent=1) + "\n", encoding="utf-8")

    @staticmethod
    def read(path: Path) -> Job:
        """Read a job."""
        return Job(**json.loads(path.read_text(encoding="utf-8")))


def main(path: Path) -> int:
    """Do a process's part of a job; return its exit code."""
    job = Job.read(path)
    return do(Path(job.work), lambda: _train(job))


def do(work: Path, train: Callable[[], dict[str, float] | None]) -> int:
    """Do a process's part of a job under the eyes of its launcher; return its exit code.

    Args:
        work: working folder, held by the process that launched the job.
        train: does it; returns the summary in the first process, None in the others.
    """
    threading.Thread(target=_end_with_launcher, args=(work,), daemon=True).start()
    try:
        summary = train()
    except BaseException as error:  # noqa: BLE001 (said to the launcher, whatever it is)
        traceback.print_exc()
        _say_why(work, error)
        return 1
    if summary is not None:
        text = json.dumps(summary, indent=1) + "\n"
        (work / SUMMARY).write_text(text, encoding="utf-8")
    return 0


def _train(job: Job) -> dict[str, float] | None:
    """Train; return the summary in the first process, None in the others."""
    import pyarrow.parquet as pq
    from accelerate import PartialState

    from harness.training.offline import hyperparameters, train
    from harness.training.placement import Lora, Placement

    # Before anything else, so that all that follows knows how many processes there are.
    processes = PartialState(cpu=job.use_cpu)
    lora = job.placement["lora"]
    place = Placement(
        work=Path(job.work),
        **{**job.placement, "lora": None if lora is None else Lora(**lora)},
    )
    summary = train(
        Path(job.policy),
        Path(job.policy),
        pq.read_table(job.pairs),
        Path(job.output),
        hyperparameters(job.algorithm, job.settings, micro_batch_size=job.micro_batch),
        seed=job.seed,
        on_log=lambda step, metrics: None,  # the launcher follows the file of the curves
        device="cpu" if job.use_cpu else "cuda",
        place=place,
    )
    first = processes.is_main_process
    processes.destroy_process_group()
    return summary if first else None


def _say_why(work: Path, error: BaseException) -> None:
    """Leave the reason for the launcher; the process that fails first is the one to believe."""
    import torch

    from harness.errors import HarnessError
    from harness.training.placement import FULL

    if isinstance(error, HarnessError):
        reason = str(error)
    elif isinstance(error, torch.OutOfMemoryError):
        reason = FULL
    else:
        return
    try:
        with (work / FAILURE).open("x", encoding="utf-8") as file:
            json.dump({"reason": reason}, file)
    except FileExistsError:
        return


def _end_with_launcher(work: Path) -> None:
    """End this process at once when its launcher holds the working folder no more."""
    from harness.store.unfinished import abandoned

    while not abandoned(work, os.environ[LAUNCHER]):
        time.sleep(_LOOK_S)
    os._exit(1)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
