"""Programs of Python, run to their end, and the environment of a user who has set nothing."""

import os
import subprocess
import sys
from collections.abc import Mapping


def bare(*prefixes: str) -> dict[str, str]:
    """Return this process's environment without the variables of some prefixes."""
    return {name: text for name, text in os.environ.items() if not name.startswith(prefixes)}


def ran(
    *arguments: object, code: int = 0, env: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run Python; fail where it does not end with the code; return what it said."""
    done = subprocess.run(
        [sys.executable, *map(str, arguments)], capture_output=True, text=True, check=False, env=env
    )
    assert done.returncode == code, done.stderr
    return done
