"""A vLLM server for online rollouts: started before the training, watched, ended with it.

It is vLLM's own server with the flags that TRL's trainers need to send it weights, which TRL itself
puts together. It runs on GPUs of its own, in the environment of the training, because TRL's client
imports vllm (extra `vllm`: the version that fits the pinned TRL).

Not executed so far: no machine with two GPUs and vllm was at hand. The command and the arguments of
the trainers are checked against the installed TRL.
"""

from __future__ import annotations

import socket
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path
from urllib.request import urlopen

from trl.scripts.vllm_serve import ScriptArguments, build_command

from harness.errors import HarnessError, UserError
from harness.registry.training import RolloutServer
from harness.training.placement import HOST, Server
from harness.training.processes import guarded, last_lines, running

LOG = "rollout-server.log"

_LOOK_S = 1.0
_GRACE_S = 3.0


@contextmanager
def rollout_server(
    server: RolloutServer, policy: Path, work: Path, *, dtype: str, max_length: int
) -> Iterator[Server]:
    """Run a server while the block lasts.

    Args:
        server: ports, devices and memory.
        policy: checkpoint that it loads; the trainer sends newer weights.
        work: folder held by this process (`harness.runtime.files.held`); receives the log.
        dtype: number format it computes in.
        max_length: longest prompt and rollout together, in tokens.

    Yields:
        Where it is reached; it answers by then.

    Raises:
        UserError: vllm is not installed, or a port is taken.
        HarnessError: the server died or did not start in time, or something failed and the server
            was gone by then.
    """
    check(server)
    command = guarded(work, serve(server, policy, dtype=dtype, max_length=max_length))
    with running(command, work / LOG, environment(server.devices)) as process:
        _wait_until_it_answers(process, server, work / LOG)
        try:
            yield Server(
                port=server.port, group_port=server.group_port, timeout_s=float(server.start_s)
            )
        except Exception as error:
            with suppress(subprocess.TimeoutExpired):  # it may just be ending
                raise _dead(process.wait(_GRACE_S), work / LOG) from error
            raise


def _wait_until_it_answers(
    process: subprocess.Popen[bytes], server: RolloutServer, log: Path
) -> None:
    end = time.monotonic() + server.start_s
    while True:
        with suppress(OSError), urlopen(f"http://{HOST}:{server.port}/health", timeout=_LOOK_S):
            return
        if process.poll() is not None:
            raise _dead(process.returncode, log)
        if time.monotonic() > end:
            raise HarnessError(
                f"the vLLM server for rollouts did not answer within {server.start_s} s: read "
                f"{log}, or raise `hardware.rollouts.start_s`"
            )
        time.sleep(_LOOK_S)


def _dead(code: int, log: Path) -> HarnessError:
    return HarnessError(
        f"the vLLM server for rollouts ended with exit code {code}, its log with "
        f"`{last_lines(log)}`: read {log}"
    )


def check(server: RolloutServer) -> None:
    """Check that a server can be started.

    Raises:
        UserError: vllm is not installed, or a port is taken.
    """
    if find_spec("vllm") is None or find_spec("requests") is None:
        raise UserError(
            "`hardware.rollouts` needs the library vllm in the environment of the training: "
            "install it with `python -m pip install -e '.[vllm]'`, or let the trainer generate by "
            "leaving `rollouts` out."
        )
    for name, port in (("port", server.port), ("group_port", server.group_port)):
        with socket.socket() as probe:
            try:
                probe.bind((HOST, port))
            except OSError as error:
                raise UserError(
                    f"port {port} of `hardware.rollouts.{name}` cannot be used ({error.strerror}): "
                    "give another one."
                ) from error


def serve(server: RolloutServer, policy: Path, *, dtype: str, max_length: int) -> list[str]:
    """Return the command that serves a policy as TRL's trainers need it."""
    command: list[str] = build_command(
        ScriptArguments(
            model=str(policy),
            host=HOST,
            port=server.port,
            tensor_parallel_size=len(server.devices),
            gpu_memory_utilization=server.gpu_memory,
            dtype=dtype,
            max_model_len=max_length,
        )
    )
    return command


def environment(devices: Sequence[int]) -> dict[str, str]:
    """Return the variables of a server on some GPUs."""
    return {
        "CUDA_VISIBLE_DEVICES": ",".join(map(str, devices)),
        "VLLM_SERVER_DEV_MODE": "1",  # opens the endpoints that take weights
    }
