"""Which engine computes: what is asked for, as plain data, and what makes the engine of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict

from harness.errors import UserError
from harness.runtime.engine import Engine, LocalEngine
from harness.runtime.store import Store


class EngineOptions(BaseModel):
    """What is asked about where stages are computed: on this machine, a Ray cluster, or Slurm.

    A Ray cluster is `host:port`, or `auto`; None starts Ray on this machine. `sbatch` has further
    arguments of Slurm's command, as on its command line.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    engine: Literal["local", "ray", "slurm"] = "local"
    ray_address: str | None = None
    sbatch: str | None = None

    def check(self) -> None:
        """Refuse what does not go together.

        Raises:
            UserError: An option is of another engine.
        """
        for option, given, engine in (
            ("--ray-address", self.ray_address, "ray"),
            ("--sbatch", self.sbatch, "slurm"),
        ):
            if given is not None and self.engine != engine:
                raise UserError(
                    f"{option} is for `--engine {engine}`, not `{self.engine}`: leave it out"
                )

    def make(self, store: Store, functions: dict[str, str], log_dir: Path, **more: Any) -> Engine:
        """Return the engine; the arguments are those of `Engine`.

        Raises:
            UserError: As `check`; or a number is wrong.
        """
        self.check()
        if self.engine == "ray":
            from harness.runtime.ray_engine import RayEngine

            return RayEngine(store, functions, log_dir, address=self.ray_address, **more)
        if self.engine == "slurm":
            from harness.runtime.slurm_engine import SlurmEngine

            return SlurmEngine(store, functions, log_dir, sbatch=self.sbatch or "", **more)
        return LocalEngine(store, functions, log_dir, **more)


HERE = EngineOptions()
"""This machine."""
