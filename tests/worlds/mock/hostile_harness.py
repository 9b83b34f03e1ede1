"""The command line with a stand-in endpoint that stops knowing its judge in the middle of a run.

`HOSTILE_AFTER` is the number of ratings it gives before.
"""

from __future__ import annotations

import itertools
import os
from typing import Any

from harness.worlds.mock import server
from harness.worlds.mock.server import Body, StandIn, answer


class Hostile(StandIn):
    """Replies as the stand-in does, until it has given so many ratings."""

    def __init__(self, port: int = 0) -> None:
        super().__init__(self._reply, port=port)
        self._ratings = itertools.count(1)

    def _reply(self, body: Body) -> Any:
        rated = "[[rating]]" in str(body["messages"])
        if rated and next(self._ratings) > int(os.environ["HOSTILE_AFTER"]):
            return 404, {"error": {"message": "never heard of it"}}, {}
        return answer(body)


def main() -> None:
    server.StandIn = Hostile  # type: ignore[misc]
    from harness.cli.main import main as harness_main

    harness_main()


if __name__ == "__main__":
    main()
