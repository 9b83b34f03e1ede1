"""Mock models while runs are planned: a real world whose parts are made on this machine.

Its models, benchmarks and prompts have identities once they are made (`MockWorld.prepare`).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager

from harness.errors import HarnessError
from harness.worlds.mock import build
from harness.worlds.protocol import Need
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

    def needs(self) -> Iterator[Need]:
        """Yield whether what is there is right; the rest is made when it is first needed."""
        lacking = build.missing(self._seed)
        if lacking:
            yield Need("stand-ins", "met", f"{len(lacking)} are made when first needed")
            return
        try:
            for name, folder in build.folders().items():
                build.check(name, folder)
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
