"""The command line with a stand-in endpoint that stops knowing its judge in the middle of a run.

`HOSTILE_AFTER` is the number of ratings it gives before.
"""

from __future__ import annotations

import itertools
import json
import os

from harness.worlds.mock import server
from harness.worlds.mock.server import Body, MockEndpoint, Request


class Hostile(MockEndpoint):
    """Replies as the mock endpoint does, until it has given so many ratings."""

    def __init__(self, port: int = 0) -> None:
        super().__init__(port)
        self._ratings = itertools.count(1)

    def respond(self, request: Request, body: Body) -> None:
        rated = "[[rating]]" in str(body["messages"])
        if rated and next(self._ratings) > int(os.environ["HOSTILE_AFTER"]):
            request.send(404, json.dumps({"error": {"message": "never heard of it"}}))
        else:
            super().respond(request, body)


def main() -> None:
    server.MockEndpoint = Hostile  # type: ignore[misc]
    from harness.cli.main import main as harness_main

    harness_main()


if __name__ == "__main__":
    main()
