"""Mock models while runs are planned: a real world whose parts are made on this machine.

Its models, benchmarks and prompts have identities once they are made (`MockWorld.prepare`).
"""

from __future__ import annotations

from contextlib import AbstractContextManager

from harness.errors import HarnessError
from harness.worlds.mock import build
from harness.worlds.protocol import FileCheck
from harness.worlds.real.world import RealWorld


class MockWorld(RealWorld):
    """Small models with random weights, made-up questions, and an endpoint of this command's."""

    self_contained = True

    @property
    def _seed(self) -> int:
        assert self.profile.stand_ins is not None
        return self.profile.stand_ins.seed

    def prepare(self) -> None:
        """Make what is not there, and check what is."""
        build.make_ready(self._seed)

    def check_files(self) -> FileCheck:
        """Check what is there; the rest is made when it is first needed."""
        lacking = build.missing(self._seed)
        if lacking:
            return FileCheck("stand-ins", True, f"{len(lacking)} are made when first needed")
        try:
            for name, folder in build.folders().items():
                build.check(name, folder)
        except HarnessError as error:
            return FileCheck("stand-ins", False, str(error), "delete it")
        return FileCheck("stand-ins", True, "made, and all digests are right")

    def serving(self) -> AbstractContextManager[object]:
        """Serve creator, scorer and judge on loopback."""
        from harness.worlds.mock.server import endpoints

        return endpoints()
