"""Laws of training under `accelerate`: several processes, and what is left when they die."""

import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

import psutil
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from accelerate.commands.config.config_args import ClusterConfig, load_config_from_file
from by_hand import Logs, assert_same
from processors import on_processors
from test_placement import TEN, trained, weights_in

from harness.errors import HarnessError
from harness.registry.training import Hardware
from harness.runtime import StageContext
from harness.training import launch as launching
from harness.training.launch import LOG, OUTCOME, last_checkpoint
from harness.training.placement import Placement

LEARNING = {
    "learning_rate": 1e-3, "lr_scheduler": "linear", "warmup_ratio": 0.0, "epochs": 2,
    "batch_size": 4, "max_length": 64, "optimizer": "adamw_torch", "weight_decay": 0.0,
    "max_grad_norm": 1.0, "beta": 0.5,
}  # fmt: skip


def launch(
    start: Path, folder: Path, on: Hardware, on_log: Any = None, **changes: Any
) -> tuple[dict[str, float], Logs]:
    """Train ten pairs in `folder`, as `test_placement.trained` does in this process."""
    (folder / "out").mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.Table.from_pylist(TEN), folder / "pairs.parquet")
    logs: Logs = []
    settings = {"algorithm": "dpo", **LEARNING, **changes, "numerics": on.numerics("float32")}
    inputs = {"policy": start, "pairs": folder / "pairs.parquet"}
    ctx = StageContext(
        settings, inputs, folder / "out", 3,
        unfinished=folder / "work", hardware={"training": on.model_dump(mode="json")},
    )  # fmt: skip
    summary = launching.launch(
        "harness.training.offline:train_pairs",
        ctx,
        on_log or (lambda step, metrics: logs.append((step, metrics))),
    )
    return summary, logs


WORK = Path("work") / "cpu-two-processes-2"
"""Where two processes have their checkpoints."""


def descendants() -> Any:
    return psutil.Process().children(recursive=True)


def test_two_processes_go_on_from_one_that_crashed_and_end_as_one_does(
    policy_path: Path, tmp_path: Path
) -> None:
    """Two updates by one process and four by two, against six by one.

    Ten pairs in batches of four leave two over, so the last batch is compared too.
    """
    expected, curves = trained(policy_path, tmp_path / "one")
    with pytest.raises(InterruptedError):
        trained(policy_path, tmp_path / "two", stop_at=3, work=tmp_path / "two" / WORK)
    summary, logs = launch(policy_path, tmp_path / "two", on_processors())
    assert summary == pytest.approx(expected, abs=1e-4)
    assert [step for step, _ in logs] == [1, 2, 3, 4, 5, 6]
    assert logs[:2] == curves[:2]
    for (_, ours), (_, one) in zip(logs, curves, strict=True):
        assert ours["loss"] == pytest.approx(one["loss"], rel=1e-4)
        assert ours["rewards/margins"] == pytest.approx(one["rewards/margins"], abs=1e-4)
    assert_same(weights_in(tmp_path / "two"), weights_in(tmp_path / "one"), atol=2e-5)
    states = (tmp_path / "two" / WORK / "checkpoint-6").glob("rng_state*")
    assert {path.name for path in states} == {"rng_state_0.pth", "rng_state_1.pth"}  # one each
    assert sorted(path.name for path in (tmp_path / "two" / "out").iterdir()) == ["model"]
    assert not descendants()


@pytest.mark.slow
def test_a_training_of_which_a_process_was_killed_goes_on(
    policy_path: Path, tmp_path: Path
) -> None:
    """The trainer is killed after the third of forty updates; the second launch ends them."""

    def kill(step: int, metrics: dict[str, float]) -> None:
        if step == 3:
            leaves = [process for process in descendants() if not process.children()]
            os.kill(leaves[0].pid, signal.SIGKILL)

    changes: Any = {"epochs": 40 / 3}
    with pytest.raises(HarnessError, match="run the same command again to go on"):
        launch(policy_path, tmp_path / "two", on_processors(), kill, **changes)
    assert not descendants()
    _, done = last_checkpoint(tmp_path / "two" / WORK)
    assert 2 <= done < 40
    launch(policy_path, tmp_path / "two", on_processors(), **changes)
    trained(policy_path, tmp_path / "one", **changes)
    assert_same(weights_in(tmp_path / "two"), weights_in(tmp_path / "one"), atol=5e-5)


@pytest.fixture
def stand_in(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Launch a program given as text in place of a trainer; `sys.argv[1]` is the job's file."""

    def use(program: str) -> None:
        def command(*args: Any) -> list[str]:
            return [sys.executable, "-c", program, str(args[-1])]

        monkeypatch.setattr(launching, "_command", command)

    return use


def test_a_training_that_dies_is_one_sentence_with_the_end_of_its_log(
    stand_in: Any, policy_path: Path, tmp_path: Path
) -> None:
    stand_in("print('one'); print('two'); print('three'); print('four'); raise SystemExit(7)")
    with pytest.raises(HarnessError) as failure:
        launch(policy_path, tmp_path, on_processors())
    said = str(failure.value)
    assert "exit code 7" in said
    assert "last log lines: two | three | four (all of them in" in said
    assert str(tmp_path / WORK / LOG) in said


def test_what_a_process_says_of_its_failure_is_what_the_launcher_says(
    stand_in: Any, policy_path: Path, tmp_path: Path
) -> None:
    stand_in(
        "import json, pathlib, sys;"
        f"outcome = pathlib.Path(sys.argv[1]).with_name({OUTCOME!r});"
        "outcome.write_text(json.dumps({'reason': '24 pairs are too many'})); raise SystemExit(1)"
    )
    with pytest.raises(HarnessError, match=r"^24 pairs are too many$"):
        launch(policy_path, tmp_path, on_processors())


def test_a_process_does_its_part_and_the_first_writes_the_summary(
    policy_path: Path, tmp_path: Path
) -> None:
    """What is launched, called here: a training in one process, and one that cannot be."""
    pq.write_table(pa.Table.from_pylist(TEN), tmp_path / "pairs.parquet")
    (tmp_path / "out").mkdir()
    settings = {"algorithm": "dpo", **LEARNING, "epochs": 1}
    inputs = {"policy": str(policy_path), "pairs": str(tmp_path / "pairs.parquet")}
    job = {
        "function": "harness.training.offline:train_pairs",
        "settings": settings,
        "inputs": inputs,
        "output": str(tmp_path / "out"),
        "seed": 3,
        "place": Placement(micro_batch=2).model_dump(mode="json"),
    }
    (tmp_path / "job.json").write_text(json.dumps(job), encoding="utf-8")
    assert launching.main(tmp_path / "job.json") == 0
    summary = json.loads((tmp_path / OUTCOME).read_text(encoding="utf-8"))["summary"]
    assert (summary["pairs"], summary["steps"]) == (10, 3)
    assert (tmp_path / "out" / "model" / "model.safetensors").is_file()

    (tmp_path / OUTCOME).unlink()
    job["settings"] = settings | {"algorithm": "no"}
    (tmp_path / "job.json").write_text(json.dumps(job), encoding="utf-8")
    assert launching.main(tmp_path / "job.json") == 1
    failure = json.loads((tmp_path / OUTCOME).read_text(encoding="utf-8"))
    assert "unknown preference loss `no`: use one of dpo" in failure["reason"]


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (ValueError("not foreseen, so its traceback in the log counts"), None),
        (torch.OutOfMemoryError("CUDA"), "a GPU's memory is full: lower `hardware.micro_batch`"),
        (HarnessError("asked wrongly"), "asked wrongly"),
    ],
)
def test_the_process_that_fails_first_says_why(
    error: Exception, said: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(error: Exception) -> None:
        def part(*args: Any) -> None:
            raise error

        monkeypatch.setattr(launching, "_do_part", part)
        (tmp_path / "job.json").write_text("{}", encoding="utf-8")
        assert launching.main(tmp_path / "job.json") == 1

    fail(error)
    if said is None:
        assert not (tmp_path / OUTCOME).exists()
    else:
        fail(HarnessError("the other processes were left alone"))
        reason = json.loads((tmp_path / OUTCOME).read_text(encoding="utf-8"))["reason"]
        assert reason.startswith(said)


def test_curves_are_handed_on_while_it_trains_and_everything_is_ended_when_that_fails(
    stand_in: Any, policy_path: Path, tmp_path: Path
) -> None:
    """The program starts another one in a session of its own, as torch's launcher does."""
    stand_in(
        "import json, pathlib, subprocess, sys, time;"
        "work = pathlib.Path(sys.argv[1]).parent;"
        "sleep = [sys.executable, '-c', 'import time; time.sleep(200)'];"
        "subprocess.Popen(sleep, start_new_session=True);"
        "file = (work / 'curves.jsonl').open('a');"
        """file.write('{"step": 1, "metrics": {"loss": 0.5}}\\n{"st'); file.flush();"""
        "time.sleep(200)"
    )
    seen: list[int] = []

    def stop(step: int, metrics: dict[str, float]) -> None:
        seen.append(len(descendants()))
        assert (step, metrics) == (1, {"loss": 0.5})
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        launch(policy_path, tmp_path, on_processors(), stop)
    assert seen == [3]  # the supervisor among them
    assert not descendants()


def test_a_configuration_goes_with_its_number_of_devices() -> None:
    for changes in ({"accelerate": "one-gpu.yaml"}, {"accelerate": "fsdp.yaml", "devices": 1}):
        with pytest.raises(ValueError, match=r"does not fit `devices: .*one-gpu.yaml for one"):
            on_processors(**changes)


@pytest.mark.parametrize(
    ("name", "kind", "processes", "on_cpu"),
    [
        ("one-gpu.yaml", "NO", 1, False),
        ("fsdp.yaml", "FSDP", 8, False),
        ("cpu-one-process.yaml", "NO", 1, True),
        ("cpu-two-processes.yaml", "MULTI_GPU", 2, True),
    ],
)
def test_accelerate_itself_reads_every_configuration(
    name: str, kind: str, processes: int, on_cpu: bool
) -> None:
    ours = on_processors(accelerate=name, devices=processes)
    read = load_config_from_file(str(ours.configuration))
    assert isinstance(read, ClusterConfig)
    assert (read.distributed_type.value, read.num_processes) == (kind, processes)
    assert ours.on_cpu == read.use_cpu == on_cpu
