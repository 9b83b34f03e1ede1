"""The command line with the stand-ins: made if they are not there, and served while it runs.

    HARNESS_WORK=work python tests/stand_in/command.py run table4 --profile PROFILE

With `STAND_IN_RATINGS` the endpoint stops knowing its judge after so many ratings, and with
`STAND_IN_SERVED` there is none: the profile has the harness serve.
"""

import itertools
import json
import os
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent


def main() -> None:
    paths = [str(HERE.parent), *filter(None, [os.environ.get("PYTHONPATH")])]
    sys.path[0] = paths[0]
    os.environ["PYTHONPATH"] = os.pathsep.join(paths)
    os.environ["HARNESS_PLUGINS"] = str(HERE / "plugin.py")
    from harness.cli.main import main as harness_main
    from stand_in import build, server

    class Hostile(server.MockEndpoint):
        """Replies as the other does, until it has given so many ratings."""

        ratings = itertools.count(1)

        def respond(self, request: server.Request, body: server.Body) -> None:
            rated = "[[rating]]" in str(body["messages"])
            if rated and next(self.ratings) > int(os.environ["STAND_IN_RATINGS"]):
                request.send(404, json.dumps({"error": {"message": "never heard of it"}}))
            else:
                super().respond(request, body)

    build.build()
    if "STAND_IN_SERVED" in os.environ:  # by the harness itself
        harness_main()
        return
    with server.endpoints(Hostile if "STAND_IN_RATINGS" in os.environ else server.MockEndpoint):
        harness_main()


if __name__ == "__main__":
    main()
