"""A judge that is a function of a plug-in, in the place of a model at an endpoint."""

from __future__ import annotations

from typing import Any

from harness.endpoint.request import ChatRequest
from harness.errors import HarnessError, UserError
from harness.extensions import JUDGES


class FunctionEndpoint:
    """Answers requests by a judge that `harness.judge` registered; nothing is sent.

    Args:
        name: Its name. Plug-in, name and version are the address under which replies are kept.

    Raises:
        UserError: There is no such judge.
    """

    def __init__(self, name: str) -> None:
        found = JUDGES.added(name)
        if found is None:
            raise UserError(f"no plug-in adds a judge `{name}`; name its file with --plugin")
        self.address = f"plugin:{found.plugin}/{name}@{found.version}"
        self._function = found.thing

    def check_key(self) -> None:
        """Do nothing: a function needs no key."""

    def send(self, request: ChatRequest) -> dict[str, Any]:
        """Call the function, and return its text as a reply.

        Raises:
            HarnessError: It fails, or returns no text.
        """
        try:
            text = self._function(request.body()["messages"])
        except Exception as error:
            raise HarnessError(
                f"{self.address} failed on {request.label}: {type(error).__name__}: {error}"
            ) from error
        if not isinstance(text, str):
            raise HarnessError(f"{self.address} returned no text on {request.label}; return a str")
        message = {"role": "assistant", "content": text}
        return {
            "choices": [{"message": message}],
            "usage": {"prompt_tokens": 0, "completion_tokens": 0},
        }
