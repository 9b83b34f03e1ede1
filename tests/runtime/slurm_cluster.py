"""A Slurm of one node on this machine, from Debian's packages, in a folder of its own.

It needs root, and the commands munged, slurmctld and slurmd. It has two cores and two partitions:
`low`, the default, and `high`, whose jobs preempt those of `low`, which are queued again.
"""

from __future__ import annotations

import os
import secrets
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_START_S = 60.0
_END_S = 10.0

_CONF = """\
ClusterName=harness
SlurmctldHost={host}(127.0.0.1)
SlurmUser=root
SlurmdUser=root
SlurmctldPort={port}
SlurmdPort={node_port}
CommunicationParameters=NoInAddrAny,NoCtldInAddrAny
AuthInfo=socket={folder}/munge.socket,cred_expire=5
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.log
ProctrackType=proctrack/linuxproc
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SchedulerParameters=bf_interval=1,sched_min_interval=0,batch_sched_delay=0
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
ReturnToService=2
KillWait=2
SlurmdParameters=config_overrides
NodeName={host} NodeAddr=127.0.0.1 CPUs=2 RealMemory=4000 State=UNKNOWN
PartitionName=low Nodes=ALL Default=YES PriorityTier=1 PreemptMode=REQUEUE MaxTime=INFINITE State=UP
PartitionName=high Nodes=ALL PriorityTier=10 PreemptMode=OFF MaxTime=INFINITE State=UP
"""


def why_not() -> str | None:
    """Return why no Slurm can be started here; None where it can."""
    lacking = [name for name in ("munged", "slurmctld", "slurmd", "sbatch") if not _found(name)]
    if lacking:
        return f"{', '.join(lacking)} not installed (Debian: slurmctld, slurmd, munge)"
    return None if os.geteuid() == 0 else "a Slurm of one's own needs root"


@contextmanager
def running(folder: Path) -> Iterator[Path]:
    """Run a Slurm while the block lasts; yield its configuration, for SLURM_CONF."""
    for name in ("state", "spool"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    conf, key = folder / "slurm.conf", folder / "munge.key"
    host = socket.gethostname().partition(".")[0]
    port, node_port = _free_port(), _free_port()
    conf.write_text(_CONF.format(folder=folder, host=host, port=port, node_port=node_port))
    (folder / "cgroup.conf").write_text("CgroupPlugin=cgroup/v1\nCgroupAutomount=no\n")
    key.write_bytes(secrets.token_bytes(1024))
    key.chmod(0o400)
    environment = {**os.environ, "SLURM_CONF": str(conf)}
    commands = (
        [
            *(_found("munged"), "--foreground", "--force", f"--socket={folder}/munge.socket"),
            *(f"--key-file={key}", f"--pid-file={folder}/munged.pid"),
            *(f"--log-file={folder}/munged.log", f"--seed-file={folder}/munged.seed"),
        ],
        [_found("slurmctld"), "-D", "-f", str(conf)],
        [_found("slurmd"), "-D", "-f", str(conf), "-N", host],
    )
    daemons: list[subprocess.Popen[bytes]] = []
    try:
        for command in commands:
            name = Path(command[0]).name
            with (folder / f"{name}.out").open("wb") as output:
                daemons.append(
                    subprocess.Popen(
                        command, env=environment, stdout=output, stderr=subprocess.STDOUT
                    )
                )
            if name == "munged":
                _await(lambda: (folder / "munge.socket").exists(), "munged", folder)
        _await(lambda: _idle(environment), "slurmd", folder)
        yield conf
    finally:
        _cancel_all(environment)
        for daemon in reversed(daemons):
            daemon.terminate()
            try:
                daemon.wait(10)
            except subprocess.TimeoutExpired:
                daemon.kill()
                daemon.wait()


def _cancel_all(environment: dict[str, str]) -> None:
    """End all jobs; what looks after one would otherwise outlive the daemons."""
    told = {"env": environment, "capture_output": True, "text": True, "check": False}
    subprocess.run(["scancel", "--user=root"], **told)  # type: ignore[call-overload]
    end = time.monotonic() + _END_S
    while time.monotonic() < end:
        left = subprocess.run(["squeue", "--noheader"], **told)  # type: ignore[call-overload]
        if not left.stdout.strip():
            return
        time.sleep(0.2)


def _idle(environment: dict[str, str]) -> bool:
    asked = ["sinfo", "--noheader", "--format=%t", "--partition=low"]
    found = subprocess.run(asked, env=environment, capture_output=True, text=True, check=False)
    return found.stdout.strip() == "idle"


def _await(true, what: str, folder: Path) -> None:  # type: ignore[no-untyped-def]
    end = time.monotonic() + _START_S
    while not true():
        if time.monotonic() > end:
            logs = "\n".join(path.read_text()[-2000:] for path in sorted(folder.glob("*.log")))
            raise RuntimeError(f"{what} did not start within {_START_S:g} s:\n{logs}")
        time.sleep(0.1)


def _found(name: str) -> str:
    return shutil.which(name, path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin") or ""


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])
