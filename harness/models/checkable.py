r"""Rewards that need no model: prompts whose answers can be checked, and the check.

*Prompts* are made by rule, in four forms of school arithmetic. The right answer follows from the
text of a prompt, so that a rewrite in one of the forms can be checked too; for any other prompt
there is no reward, and it is left out. They are this project's own and come under its licence.

*Check.* A reward is 1 where the last `\boxed{}` of an answer holds the right number and nothing
else, else 0: neither `72%` nor `71 or 72` is 72.
"""

from __future__ import annotations

import ast
import operator
import random
import re
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any

from harness.errors import UserError

PROMPTS = 6000
"""Prompts of a profile whose source they are."""

LONGEST_BOX = 500
"""Characters of a box that is read at all."""

DECIMALS = 6
"""Decimals to which numbers are equal, so that 0.333333 is 1/3."""

ASKS = "Put the final answer in \\boxed{}."

_NUMBER = r"-?\d+"
_FORMS: tuple[tuple[re.Pattern[str], Callable[..., Fraction | None]], ...]

_OPERATIONS: dict[type[ast.AST], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
}


def right_answer(prompt: str) -> str | None:
    """Return the right answer to a prompt of one of the forms, as `7` or `-3/4`; None for others.

    A prompt may say more after its question.
    """
    for form, solve in _FORMS:
        if found := form.match(prompt.strip()):
            try:
                value = solve(*found.groups())
            except (ZeroDivisionError, SyntaxError, ValueError, RecursionError):
                return None
            return None if value is None else str(value)
    return None


def _value(expression: str, x: Fraction | None = None) -> Fraction:
    """Return the value of an expression of whole numbers, + - * / and brackets, and perhaps x."""

    def of(node: ast.AST) -> Fraction:
        if isinstance(node, ast.BinOp) and type(node.op) in _OPERATIONS:
            return Fraction(_OPERATIONS[type(node.op)](of(node.left), of(node.right)))
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
            return -of(node.operand)
        if isinstance(node, ast.Constant) and type(node.value) is int:
            return Fraction(node.value)
        if isinstance(node, ast.Name) and node.id == "x" and x is not None:
            return x
        raise ValueError(expression)

    return of(ast.parse(expression, mode="eval").body)


def _solved(left: str, right: str) -> Fraction | None:
    """Return the x of a linear equation; None where there is not just one."""
    left, right = (re.sub(r"(\d)\s*x", r"\1*x", side) for side in (left, right))

    def gap(x: int) -> Fraction:
        return _value(left, Fraction(x)) - _value(right, Fraction(x))

    slope = gap(1) - gap(0)
    linear = gap(2) - gap(1) == slope
    return -gap(0) / slope if slope and linear else None


_FORMS = (
    (re.compile(r"What is ([-+*/() \d]{1,200})\?"), _value),
    (re.compile(r"Solve ([-+*() \dx]{1,100}) = ([-+*() \dx]{1,100}) for x\."), _solved),
    (
        re.compile(rf"What is the remainder when ({_NUMBER}) is divided by (\d+)\?"),
        lambda a, b: Fraction(int(a) % int(b)),
    ),
    (
        re.compile(rf"What is ({_NUMBER})% of ({_NUMBER})\?"),
        lambda share, of: Fraction(int(share) * int(of), 100),
    ),
)


def prompts(count: int = PROMPTS) -> list[str]:
    """Return the first of the prompts made by rule, all different, from easy to hard in turn."""
    rng, found = random.Random("checkable prompts, version 1"), dict[str, None]()
    while len(found) < count:
        found.setdefault(f"{_question(rng, len(found) % 6)} {ASKS}")
    return list(found)


def _question(rng: random.Random, level: int) -> str:
    """Return a question of a level from 0, a sum of two numbers, to 5."""
    small, large = rng.randint(2, 12), rng.randint(13, 99)
    other = rng.randint(2, 99)
    if level == 0:
        return f"What is {large} {rng.choice('+-')} {other}?"
    if level == 1:
        return f"What is {small} * {large} {rng.choice('+-')} {other}?"
    if level == 2:
        return f"What is the remainder when {rng.randint(100, 999)} is divided by {small}?"
    if level == 3:
        return f"What is {5 * rng.randint(1, 40)}% of {20 * rng.randint(1, 60)}?"
    if level == 4:
        return f"Solve {small}x {rng.choice('+-')} {other} = {rng.randint(1, 200)} for x."
    inner = f"({large} {rng.choice('+-')} {other})"
    return f"What is {rng.randint(2, 9)} * {inner} - {rng.randint(10, 99)} / {small}?"


def boxed(answer: str) -> str | None:
    r"""Return what stands in the last `\boxed{}` of an answer, None where it has no whole one."""
    start = answer.rfind("\\boxed{")
    if start < 0:
        return None
    depth, begins = 0, start + len("\\boxed{")
    for place in range(begins - 1, min(len(answer), begins + LONGEST_BOX)):
        depth += {"{": 1, "}": -1}.get(answer[place], 0)
        if depth == 0:
            return answer[begins:place].strip() or None
    return None


_PLAIN = re.compile(
    r"(?:x\s*=\s*)?(?P<sign>-?)\s*"
    r"(?:(?P<whole>\d+(?:,\d{3})*(?:\.\d+)?)(?:\s*/\s*(?P<by>\d+))?"
    r"|\\[dt]?frac\{\s*(?P<top>-?\d+)\s*\}\{\s*(?P<bottom>-?\d+)\s*\})"
)


def number(text: str) -> Fraction | None:
    r"""Return the number that a text is: `1,234`, `0.75`, `-3/4`, `\frac{3}{4}`, `x = 5`."""
    found = _PLAIN.fullmatch(text)
    if found is None:
        return None
    over = found["whole"] or found["top"]
    try:
        value = Fraction(over.replace(",", "")) / Fraction(found["by"] or found["bottom"] or 1)
    except ZeroDivisionError:
        return None
    return -value if found["sign"] else value


def check_math(right: str | None, answers: Sequence[str]) -> list[float] | None:
    r"""Return 1 for each answer whose `\boxed{}` holds the right number, else 0.

    None where there is no right answer.

    Raises:
        UserError: The right answer is no number.
    """
    if right is None:
        return None
    wanted = number(right)
    if wanted is None:
        raise UserError(f"answers are checked against a number, and `{right}` is none")
    given = [number(boxed(answer) or "") for answer in answers]
    return [
        float(one is not None and round(one, DECIMALS) == round(wanted, DECIMALS)) for one in given
    ]


class Math:
    """The reward `math`: answers to the prompts made by rule, right or not."""

    VERSION = "1"

    def score(self, prompt: str, answers: list[str]) -> list[float] | None:
        """Return the rewards; None for a prompt whose right answer does not follow from it."""
        return check_math(right_answer(prompt), answers)


MATH = Math()
