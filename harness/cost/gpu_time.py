"""How long a GPU generates, scores and trains, in GPU seconds.

Generating. Each step reads the weights and the keys and values of B sequences from memory and
computes one token of each; the slower of the two is the step's time. B is what fits into the memory
beside the weights, at most what an engine takes at a time and what there is to do. Prompts are read
first, as in scoring.

Scoring and training. Operations over the share of the peak that is reached. A training pass costs
as much as three forward passes of the policy: one forward, one back to the activations, one to the
weights. A fourth comes in where activations are computed again, and one goes where only adapters
are trained.

Work is split evenly over the GPUs; a model is whole on each of them, except in training, where
sharding is part of the share reached.
"""

from __future__ import annotations

from dataclasses import dataclass

from harness.cost.assumptions import GpuUse, Hardware, Shape


@dataclass(frozen=True)
class GpuTime:
    """The time of models' work on some hardware.

    Attributes:
        hardware: the GPUs.
        use: how well they are used.
        width: bytes of a number.
    """

    hardware: Hardware
    use: GpuUse
    width: int = 2

    def fits(self, shape: Shape) -> bool:
        """Return whether a model fits on one GPU with room for a sequence."""
        return self._room(shape) > 0

    def generating(
        self, shape: Shape, sequences: float, prompt: float, answer: float, at_once: float
    ) -> float:
        """Return the GPU seconds of answers.

        Args:
            shape: the policy.
            sequences: answers, over all GPUs.
            prompt: tokens of a prompt.
            answer: tokens of an answer.
            at_once: answers that there are at any time, over all GPUs.
        """
        each = shape.cache_bytes(self.width) * (prompt + answer)
        most = max(1.0, self._room(shape) // each)
        batch = min(self.use.sequences, most, max(1.0, at_once / self.hardware.count))
        length = prompt + answer / 2
        read = shape.parameters * self.width + batch * shape.cache_bytes(self.width) * length
        gpu = self.hardware.gpu
        from_memory = read / (gpu.bandwidth * self.use.decoding_bandwidth)
        # Attention in a step reads the whole context, where a forward pass reads half on average.
        computing = batch * shape.forward_flops(2 * length) / (gpu.flops * self.use.decoding_flops)
        step = max(from_memory, computing)
        return self.scoring(shape, sequences, prompt) + sequences * answer / batch * step

    def scoring(self, shape: Shape, sequences: float, length: float) -> float:
        """Return the GPU seconds of forward passes over sequences of a length."""
        operations = sequences * length * shape.forward_flops(length)
        return operations / (self.hardware.gpu.flops * self.use.scoring)

    def training(self, shape: Shape, sequences: float, length: float, forwards: float) -> float:
        """Return the GPU seconds of a training.

        Args:
            shape: the policy.
            sequences: sequences in one pass.
            length: tokens of a sequence.
            forwards: how many forward passes over them it costs, all in all.
        """
        operations = sequences * length * shape.forward_flops(length) * forwards
        return operations / (self.hardware.gpu.flops * self.use.training)

    def starting(self) -> float:
        """Return the GPU seconds until a stage's models are loaded; all GPUs wait."""
        return self.use.start_s * self.hardware.count

    def _room(self, shape: Shape) -> float:
        """Return the bytes of a GPU that are left for keys and values."""
        return self.hardware.gpu.memory * self.use.memory - shape.parameters * self.width
