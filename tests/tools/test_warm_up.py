"""The warm-up: texts changed by rule until they follow their instructions, and adapters."""

import random
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from tiny_gemma import build_tiny_gemma
from warm_up import demonstrate, demonstrations, main, train_adapters

from harness.models.loading import load_model
from harness.registry.training import Lora
from harness.worlds.instructions.kinds import KINDS, NEW, SEEN, Instruction
from harness.worlds.instructions.rules import is_text, share_followed, task_of
from harness.worlds.instructions.tasks import Task, subjects_of

TEXT = "My old bicycle, which is red, has a very good bell and it rings."
FORM = "Write a short poem about {}"


def of(text: str, *instructions: Instruction) -> str:
    return demonstrate(Task(FORM, "an old bicycle", instructions), text, random.Random(0))


@pytest.mark.parametrize("kind", SEEN)
def test_a_demonstration_follows_its_instruction(kind: str) -> None:
    for value in KINDS[kind].values:
        one = Instruction(kind, value)
        shown = of(TEXT, one)
        assert one.followed(shown), (value, shown)
        assert is_text(Task(FORM, "an old bicycle", (one,)), shown), (value, shown)


def test_instructions_are_followed_in_an_order_that_keeps_those_before() -> None:
    quoted_title = of(TEXT, Instruction("quoted"), Instruction("title"))
    assert quoted_title == f'"<<An Old Bicycle>>\n{TEXT}"'


def test_of_many_demonstrations_three_in_four_instructions_are_followed() -> None:
    subject = subjects_of("training")[0]
    about = Task(FORM, subject, ())
    texts = [(about, f"This is {subject}, and it is mine."), (about, f"I saw {subject} today.")]
    made = demonstrations(texts, 200)
    tasks = [task_of(prompt) for prompt, _ in made]
    assert not {kind for task in tasks for kind in task.kinds} & set(NEW)
    assert {task.subject for task in tasks} == {subject}
    shares = [share_followed(task, text) for task, (_, text) in zip(tasks, made, strict=True)]
    assert 0.65 < sum(shares) / len(shares) < 0.9
    assert made == demonstrations(texts, 200)


def test_the_factors_of_the_named_layers_are_written(tmp_path: Path) -> None:
    """64 pairs are 8 steps, and the rate is 0 at the first; what starts at zero has moved."""
    policy, out = build_tiny_gemma(tmp_path / "policy"), tmp_path / "adapters.safetensors"
    before = load_model(policy).state_dict()
    pairs = [(f"Say the number {n}.", f"Number {n} it is.") for n in range(64)]
    train_adapters(policy, pairs, Lora(rank=2, alpha=2, targets=("q_proj", "v_proj")), out)
    layers = {name.removesuffix(".weight"): weight for name, weight in before.items()
              if name.endswith(("q_proj.weight", "v_proj.weight"))}  # fmt: skip
    factors = load_file(out)
    assert factors.keys() == {f"{layer}.lora_{side}.weight" for layer in layers for side in "AB"}
    for layer, weight in layers.items():
        first, second = (factors[f"{layer}.lora_{side}.weight"] for side in "AB")
        assert first.dtype == second.dtype == torch.bfloat16
        assert (second @ first).shape == weight.shape
        assert second.abs().max() > 0


@pytest.mark.parametrize("asked", [["--help"], ["one.safetensors", "two.safetensors"]])
def test_nothing_is_trained_unless_one_file_is_named(asked: list[str]) -> None:
    with pytest.raises(SystemExit):
        main(asked)
