"""The stand-in endpoint of `harness.worlds.mock`, under the names that tests import."""

from __future__ import annotations

from harness.worlds.mock.server import Body, StandIn, answer, completion, digest, main

judge = answer

__all__ = ["Body", "StandIn", "completion", "digest", "judge"]

if __name__ == "__main__":
    main()
