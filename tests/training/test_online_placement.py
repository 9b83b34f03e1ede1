"""Laws of online training of large models: micro-batches, bfloat16, and the server's arguments."""

from __future__ import annotations

import itertools
import json
import socket
import sys
from pathlib import Path
from typing import Any
from urllib.error import URLError
from urllib.request import urlopen

import pytest
import torch
from safetensors.torch import load_file
from test_online import Source, of_tests
from tiny_gemma import build_tiny_gemma
from trl.trainer.rloo_config import RLOOConfig

from harness.errors import HarnessError, UserError
from harness.registry.training import RolloutServer
from harness.runtime.leases import held
from harness.training import launch
from harness.training.experimental import OnlineDPOConfig
from harness.training.oaif import OAIF
from harness.training.online import OnlineAlgorithm, Segment, train_segment
from harness.training.placement import Placement, one_device
from harness.training.rloo import RLOO

SERVER = RolloutServer(port=18431, group_port=18432, devices=(1, 2), gpu_memory=0.9, start_s=600)


@pytest.fixture(scope="module")
def start(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_tiny_gemma(tmp_path_factory.mktemp("policy"), seed=1)


def train(
    algorithm: type[OnlineAlgorithm], start: Path, out: Path, place: Placement
) -> tuple[Source, list[dict[str, float]]]:
    """Take three steps of two prompts with two rollouts each."""
    out.mkdir()
    source, logs = Source(), []
    train_segment(
        of_tests(algorithm, rollouts=2),
        policy=start,
        reference=start,
        optimizer_state=None,
        out_dir=out,
        segment=Segment(1, 3),
        source=source,
        seed=7,
        on_log=lambda step, metrics: logs.append(metrics),
        place=place,
    )
    return source, logs


def test_micro_batches_see_the_same_rollouts_and_take_one_step_together(
    start: Path, tmp_path: Path
) -> None:
    """Four rollouts a step at once or one by one, with activations kept or computed again."""
    whole, logs = train(RLOO, start, tmp_path / "whole", Placement())
    place = Placement(micro_batch=1, gradient_checkpointing=True, attention="eager")
    parts, cut = train(RLOO, start, tmp_path / "parts", place)
    assert len(logs) == len(cut) == 3
    assert whole.seen[0] == parts.seen[0]
    expected = load_file(tmp_path / "whole" / "model" / "model.safetensors")
    for name, weight in load_file(tmp_path / "parts" / "model" / "model.safetensors").items():
        torch.testing.assert_close(weight, expected[name], atol=2e-5, rtol=0)


@pytest.mark.parametrize("algorithm", [RLOO, OAIF])
def test_bfloat16_trains_float32_weights(
    algorithm: type[OnlineAlgorithm], start: Path, tmp_path: Path
) -> None:
    _, logs = train(algorithm, start, tmp_path / "out", Placement(dtype="bfloat16"))
    assert all(torch.isfinite(torch.tensor(metrics["loss"])) for metrics in logs)
    before = load_file(start / "model.safetensors")
    after = load_file(tmp_path / "out" / "model" / "model.safetensors")
    assert {weight.dtype for weight in after.values()} == {torch.float32}
    assert any(not torch.equal(weight, before[name]) for name, weight in after.items())


def test_a_micro_batch_that_cannot_be_is_the_users_error(start: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="4 pairs cannot be made of micro-batches of 3"):
        Placement(micro_batch=3).batches(4)
    with pytest.raises(UserError, match=r"set `hardware.micro_batch` to 4 for `oaif`"):
        train(OAIF, start, tmp_path / "out", Placement(micro_batch=2))


def test_devices_that_do_not_divide_a_step_are_the_users_error(start: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="2 prompts or rollouts of a step cannot be shared by 3"):
        train(OAIF, start, tmp_path / "out", Placement(devices=3))
    with pytest.raises(UserError, match="micro-batches of 3 on each of 2 devices"):
        Placement(devices=2, micro_batch=3).batches(8)


def test_a_full_gpu_says_what_helps(
    start: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(self: Any, *args: Any, **kwargs: Any) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr("harness.training.rloo._Trainer.train", full, raising=False)
    with pytest.raises(HarnessError, match=r"memory is full: lower `hardware\.micro_batch`"):
        train(RLOO, start, tmp_path / "out", Placement())


@pytest.mark.parametrize(("gpus", "device"), [(0, "cpu"), (1, "cuda")])
def test_one_gpu_is_used_if_there_is_one(
    gpus: int, device: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: gpus)
    assert one_device() == device


def test_several_visible_gpus_are_the_users_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    with pytest.raises(UserError, match="CUDA_VISIBLE_DEVICES=0"):
        one_device()


# The server. Nothing is served here: what is checked is what the installed TRL takes.


@pytest.mark.parametrize("kind", [RLOOConfig, OnlineDPOConfig])
def test_trls_configurations_take_the_servers_arguments(kind: Any, tmp_path: Path) -> None:
    place = Placement(server=SERVER)
    arguments = of_tests(RLOO).arguments(Segment(1, 2), str(tmp_path), place)
    sizes = {"per_device_train_batch_size": 4}
    if kind is RLOOConfig:
        sizes["num_generations"] = 2
    config = kind(**arguments, **sizes)
    assert (config.use_vllm, config.vllm_mode) == (True, "server")
    assert config.vllm_server_base_url == "http://127.0.0.1:18431"
    assert (config.vllm_group_port, config.vllm_server_timeout) == (18432, 600.0)
    assert config.top_k == 0  # nothing is cut off by rank
    plain = of_tests(RLOO).arguments(Segment(1, 2), str(tmp_path), Placement())
    assert not kind(**plain, **sizes).use_vllm


def test_the_server_listens_here_only_and_takes_weights(tmp_path: Path) -> None:
    command = launch.serve(SERVER, tmp_path, dtype="bfloat16", max_length=2048)
    given = dict(itertools.pairwise(command))
    assert given["serve"] == str(tmp_path)
    assert (given["--host"], given["--port"]) == ("127.0.0.1", "18431")
    assert given["--tensor-parallel-size"] == "2"
    assert (given["--dtype"], given["--max-model-len"]) == ("bfloat16", "2048")
    assert json.loads(given["--weight-transfer-config"]) == {"backend": "nccl"}
    assert "--trust-remote-code" not in command
    assert launch.environment(SERVER.devices) == {
        "CUDA_VISIBLE_DEVICES": "1,2",
        "VLLM_SERVER_DEV_MODE": "1",
    }


def test_a_server_without_vllm_is_the_users_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(launch, "_installed", lambda name: False)
    with pytest.raises(UserError, match=r"needs the library vllm .*-e '\.\[vllm\]'"):
        launch.check(SERVER)


def test_a_port_that_is_taken_is_the_users_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launch, "_installed", lambda name: True)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        busy = SERVER.model_copy(update={"port": port})
        with pytest.raises(UserError, match=f"port {port} of `hardware.rollouts.port`"):
            launch.check(busy)


STAND_IN = """
import http.server, sys
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
        if self.path == "/die":
            print("no such device", flush=True)
            import os
            os._exit(3)
    def log_message(self, *args):
        pass
http.server.HTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
"""
"""Answers like a healthy server, and dies when told to."""


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Serve with a program given as text, on a free port."""

    def use(program: str, **changes: Any) -> RolloutServer:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        command = [sys.executable, "-c", program, str(port)]
        monkeypatch.setattr(launch, "check", lambda server: None)
        monkeypatch.setattr(launch, "serve", lambda *args, **kwargs: command)
        return SERVER.model_copy(update={"port": port} | changes)

    return use


def serving(server: RolloutServer, policy: Path, work: Path) -> Any:
    return launch.rollout_server(server, policy, work, dtype="float32", max_length=8)


def test_a_server_is_there_while_the_training_lasts(served: Any, tmp_path: Path) -> None:
    server = served(STAND_IN)
    with (
        held(tmp_path / "work") as work,
        serving(server, tmp_path, work),
        urlopen(f"http://127.0.0.1:{server.port}/health") as answer,
    ):
        assert answer.status == 200
    with pytest.raises(URLError):
        urlopen(f"http://127.0.0.1:{server.port}/health")


def use_and_lose(at: RolloutServer) -> None:
    urlopen(f"http://127.0.0.1:{at.port}/die").close()
    raise ConnectionError("refused")


def test_a_server_that_dies_is_why_the_training_failed(served: Any, tmp_path: Path) -> None:
    server = served(STAND_IN)
    with (
        pytest.raises(HarnessError, match=r"exit code 3\); its last words: no such device"),
        held(tmp_path / "work") as work,
        serving(server, tmp_path, work),
    ):
        use_and_lose(server)


def test_a_server_that_does_not_start_is_not_waited_for(served: Any, tmp_path: Path) -> None:
    for program, changes, message in (
        (
            "print('no memory'); raise SystemExit(4)",
            {},
            r"code 4\); its last words: no memory",
        ),
        ("import time; time.sleep(200)", {"start_s": 1}, "was not ready after 1 s"),
    ):
        server = served(program, **changes)
        with (
            pytest.raises(HarnessError, match=message),
            held(tmp_path / "work") as work,
            serving(server, tmp_path, work),
        ):
            raise AssertionError("it never answered")
