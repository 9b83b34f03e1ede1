"""The stand-in endpoint as tests use it: `harness.stand_in`'s, under the names the tests import."""

from __future__ import annotations

from harness.stand_in.replies import Body, answer, completion, digest
from harness.stand_in.server import StandIn, main

judge = answer

__all__ = ["Body", "StandIn", "completion", "digest", "judge"]

if __name__ == "__main__":
    main()
