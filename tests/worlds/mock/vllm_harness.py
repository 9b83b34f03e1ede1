"""The command line with the profile `stand-in` answered by vLLM in place of transformers."""

from __future__ import annotations

import functools

from harness.registry import declared
from harness.registry.profile import Profile, load_profiles


@functools.cache
def with_vllm() -> dict[str, Profile]:
    profiles = load_profiles()
    changed = profiles["stand-in"].model_copy(update={"engine": "vllm"})
    return {**profiles, "stand-in": changed}


def main() -> None:
    declared.all_profiles = with_vllm
    from harness.cli.main import main as harness_main

    harness_main()


if __name__ == "__main__":
    main()
