r"""Prompts made by rule, the right answers that follow from them, and the check of a `\boxed{}`."""

from __future__ import annotations

from fractions import Fraction

import pytest

from harness.errors import UserError
from harness.models import checkable
from harness.models.checkable import MATH, boxed, check_math, prompts, right_answer


@pytest.mark.parametrize(
    ("prompt", "right"),
    [
        ("What is 53 + 14? Put the final answer in \\boxed{}.", "67"),
        ("What is 7 * (77 - 95) - 78 / 6?", "-139"),
        ("What is 2 * (52 + 45) - 59 / 10? Show your work.", "1881/10"),
        ("Solve 2x - 42 = 154 for x.", "98"),
        ("Solve 3x + 1 = x - 4 for x.", "-5/2"),
        ("What is the remainder when 879 is divided by 11?", "10"),
        ("What is 15% of 30?", "9/2"),
    ],
)
def test_the_right_answer_follows_from_the_prompt(prompt: str, right: str) -> None:
    assert right_answer(prompt) == right


@pytest.mark.parametrize(
    "prompt",
    [
        "Why is the sky blue?", "What is 1 / 0?", "What is 3 +?", "Solve 2x + 1 = 2x + 3 for x.",
        "What is 2 ** 9?",  # powers could be made to take for ever
        "Solve x * x = 4 for x.", "What is the remainder when 8 is divided by 0?",
    ],
)  # fmt: skip
def test_nothing_follows_from_other_prompts(prompt: str) -> None:
    assert right_answer(prompt) is None
    assert MATH.score(prompt, ["\\boxed{1}"]) is None


def test_every_prompt_made_by_rule_can_be_checked_and_they_never_change() -> None:
    made = prompts()
    assert len(made) == len(set(made)) == checkable.PROMPTS
    assert prompts(12) == made[:12]
    assert made[0] == "What is 53 + 14? Put the final answer in \\boxed{}."
    for prompt in made:
        Fraction(right_answer(prompt) or "none")


@pytest.mark.parametrize(
    ("answer", "inside"),
    [
        ("so \\boxed{1}, no: \\boxed{2}.", "2"),
        ("\\boxed{\\frac{1}{2}}", "\\frac{1}{2}"),
        ("\\boxed{1", None),
        ("72", None),
        ("\\boxed{ }", None),
        ("\\boxed{" + "1" * 600 + "}", None),
    ],
)
def test_the_last_whole_box_counts(answer: str, inside: str | None) -> None:
    assert boxed(answer) == inside


def test_a_box_with_the_right_number_is_right_and_nothing_else() -> None:
    right = ["72", "72.0", "144/2", "\\frac{144}{2}", "x = 72", "\\dfrac{72}{1}"]
    wrong = ["73", "72%", "72\\%", "71 or 72", "72 dollars", "-72", "71, 72", "9^9", "1/0"]
    answers = [f"It is \\boxed{{{inside}}}." for inside in [*right, *wrong]]
    assert check_math("72", [*answers, "It is 72."]) == [1.0] * 6 + [0.0] * 10
    assert check_math("1234", ["\\boxed{1,234}"]) == [1.0]
    assert check_math("-3/4", ["\\boxed{-0.75}", "\\boxed{0.75}"]) == [1.0, 0.0]
    assert check_math("1/3", ["\\boxed{0.333333}", "\\boxed{0.33}"]) == [1.0, 0.0]
    assert check_math(None, answers) is None
    with pytest.raises(UserError, match="and `many` is none"):
        check_math("many", answers)
