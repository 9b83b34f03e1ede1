"""Makes the file of the warm-up again (`harness.worlds.instructions.warm_up`).

    python -m harness.pipeline.warm_up warm_up.safetensors

Takes about ten minutes on one core, and the package peft.
"""

from __future__ import annotations

import sys
from pathlib import Path

RANK, LEARNING_RATE, BATCH, MAX_LENGTH = 4, 1.5e-3, 8, 160


def main(out: Path) -> None:
    """Write the adapters, after 113 steps on the demonstrations."""
    from harness.registry.training import Lora
    from harness.training.demonstrations import train_adapters
    from harness.worlds.instructions.warm_up import DEMONSTRATIONS, demonstrations, short_texts
    from harness.worlds.instructions.weights import MODULES, folder

    policy = folder(warmed_up=False)
    train_adapters(
        policy,
        demonstrations(short_texts(policy), DEMONSTRATIONS),
        Lora(rank=RANK, alpha=RANK, targets=MODULES),
        out,
        learning_rate=LEARNING_RATE,
        batch_size=BATCH,
        max_length=MAX_LENGTH,
    )


if __name__ == "__main__":
    main(Path(sys.argv[1]))
