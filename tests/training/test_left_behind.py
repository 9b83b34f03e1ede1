"""What a training leaves behind: the same state, however it lay on devices."""

import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from accelerate import PartialState
from by_hand import assert_same
from safetensors.torch import load_file

from harness.models.loading import load_model, load_tokenizer
from harness.runtime.processes import free_port
from harness.training.distributed import GivenOptimizer, save_optimizer, save_policy
from harness.training.placement import PLAIN, Placement

IDS = torch.tensor([[2, 7, 8, 9], [2, 9, 9, 8]])


def trainer_of(start: Path, *, sharded: bool = False) -> Any:
    """Return what is read of a trainer whose optimizer numbers decayed parameters first."""
    model = load_model(start)
    if sharded:
        from torch.distributed import init_device_mesh
        from torch.distributed.fsdp import fully_shard

        mesh = init_device_mesh("cpu", (2,))
        for part in (*model.model.layers, model):
            fully_shard(part, mesh=mesh)
    parameters = list(model.parameters())
    groups = [
        {"params": [p for p in parameters if p.ndim > 1]},
        {"params": [p for p in parameters if p.ndim == 1], "weight_decay": 0.0},
    ]
    return SimpleNamespace(
        model=model,
        model_wrapped=model,
        optimizer=torch.optim.AdamW(groups, lr=1e-3),
        accelerator=SimpleNamespace(
            unwrap_model=lambda wrapped: wrapped, wait_for_everyone=PartialState().wait_for_everyone
        ),
    )


def step(trainer: Any, times: int) -> None:
    """Train on the same two sequences; in several processes each sees both."""
    for _ in range(times):
        trainer.model(input_ids=IDS).logits.float().square().mean().backward()
        trainer.optimizer.step()
        trainer.optimizer.zero_grad()


def segment(start: Path, before: Path | None, folder: Path, trainer: Any) -> None:
    """Take two steps from where another segment ended, and leave everything behind."""
    if before is not None:
        GivenOptimizer(trainer, before / "optimizer").on_train_begin(None, None, None)
    step(trainer, 2)
    save_optimizer(trainer, folder / "optimizer")
    save_policy(trainer, load_tokenizer(start), start, folder, PLAIN, resumable=True)


def in_two_processes(*segments: tuple[Path, Path | None, Path]) -> None:
    """Do segments with weights, gradients and moments sharded over two processes by FSDP."""
    told = [str(place or "") for each in segments for place in each]
    code = (
        "import sys; from pathlib import Path\n"
        f"sys.path[:] = {[*sys.path, str(Path(__file__).parent)]!r}\n"
        "from accelerate import PartialState; state = PartialState(cpu=True)\n"
        "from test_left_behind import segment, trainer_of\n"
        "told = [Path(name) if name else None for name in sys.argv[1:]]\n"
        "for start, before, folder in zip(told[::3], told[1::3], told[2::3]):\n"
        "    segment(start, before, folder, trainer_of(start, sharded=True))\n"
        "state.destroy_process_group()\n"
    )
    address = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()), "WORLD_SIZE": "2"}
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", code, *told],
            env={
                **os.environ, **address, "RANK": rank, "LOCAL_RANK": rank, "OMP_NUM_THREADS": "1",
                "ACCELERATE_USE_CPU": "1",
            },
        )
        for rank in "01"
    ]  # fmt: skip
    assert [process.wait(200) for process in processes] == [0, 0]


def test_a_state_is_read_back_to_the_last_bit(start: Path, tmp_path: Path) -> None:
    """Parameter 0 is the first that decays; two steps have been taken."""
    one, again = trainer_of(start), trainer_of(start)
    step(one, 2)
    save_optimizer(one, tmp_path / "first")
    saved = load_file(tmp_path / "first")
    assert set(saved) >= {"0.exp_avg", "0.exp_avg_sq", "0.step"}
    assert float(saved["0.step"]) == 2.0
    kept = one.optimizer.state[one.optimizer.param_groups[0]["params"][0]]
    assert torch.equal(saved["0.exp_avg"], kept["exp_avg"])
    GivenOptimizer(again, tmp_path / "first").on_train_begin(None, None, None)
    assert again.optimizer.param_groups[1]["weight_decay"] == 0.0
    before, now = load_model(start).state_dict(), again.model.state_dict()
    assert all(torch.equal(now[name], weight) for name, weight in before.items())
    save_optimizer(again, tmp_path / "second")
    assert_same(tmp_path / "first", tmp_path / "second")


def test_shards_of_two_processes_go_on_from_one_and_one_from_them(
    start: Path, tmp_path: Path
) -> None:
    """Two segments by one process; by two after one; and by one after two."""
    folders = {name: tmp_path / name for name in ("one", "one-one", "two", "one-two", "two-one")}
    for folder in folders.values():
        folder.mkdir()
    segment(start, None, folders["one"], trainer_of(start))
    in_two_processes(
        (start, None, folders["two"]), (folders["one"], folders["one"], folders["one-two"])
    )
    segment(folders["one"], folders["one"], folders["one-one"], trainer_of(folders["one"]))
    segment(folders["two"], folders["two"], folders["two-one"], trainer_of(folders["two"]))
    for name, expected in (("two", "one"), ("one-two", "one-one"), ("two-one", "one-one")):
        for file in ("optimizer", "model.safetensors"):
            assert_same(folders[expected] / file, folders[name] / file, rtol=1e-4, atol=1e-6)
    moved = load_file(folders["one-two"] / "model.safetensors")
    there = load_file(start / "model.safetensors")
    assert all(not torch.equal(weight, there[name]) for name, weight in moved.items())


def test_what_is_gone_on_from_is_float32_and_the_end_is_in_the_profiles_format(
    start: Path, tmp_path: Path
) -> None:
    """Of a bfloat16 weight of size 0.3, whose neighbours are 1e-3 apart, 1e-5 would be lost."""
    trainer, place = trainer_of(start), Placement(dtype="bfloat16")
    with torch.no_grad():
        for parameter in trainer.model.parameters():
            parameter += 1e-5
    tokenizer = load_tokenizer(start)
    save_policy(trainer, tokenizer, start, tmp_path / "on", place, resumable=True)
    saved = dict(load_model(tmp_path / "on").named_parameters())
    for name, parameter in load_model(start).named_parameters():
        torch.testing.assert_close(saved[name], parameter + 1e-5, rtol=0, atol=0)
    save_policy(trainer, tokenizer, start, tmp_path / "end", place)
    weights = load_file(tmp_path / "end" / "model.safetensors")
    assert {weight.dtype for weight in weights.values()} == {torch.bfloat16}
