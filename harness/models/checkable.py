r"""Rewards that need no model: prompts whose answers can be checked, and the check.

*Prompts* are made by rule, in four forms of school arithmetic. The right answer follows from the
text of a prompt, so that a rewrite in one of the forms can be checked too; for any other prompt
there is no reward, and it is left out. They are this project's own and come under its licence.

*Check.* A reward is 1 where the last `\boxed{}` of an answer equals the right one, else 0. What is
equal is decided by math-verify (extra `math`). Where the right answer is a number the box must hold
a plain number: math-verify alone takes `72%` and `71 or 72` for 72. It runs in a process of its
own, with bounds on memory and time: an answer may be made to hang it, and in a thread of a worker
it raises instead of answering. An answer that cannot be checked in time is not right.

Source: math-verify 0.9.0, `verify(gold, answer)`.
"""

from __future__ import annotations

import ast
import atexit
import logging
import operator
import random
import re
import resource
from collections.abc import Callable, Sequence
from fractions import Fraction
from functools import lru_cache
from multiprocessing import TimeoutError as ProcessTimeoutError
from multiprocessing import get_context
from typing import Any

from harness.errors import UserError

TIMEOUT_S = 10.0
"""Seconds that the check of one answer may take."""

START_S = 120.0
"""Seconds that the process may take to start."""

MEMORY_BYTES = 4 << 30
"""Address space of the process that checks."""

PROMPTS = 6000
"""Prompts of a profile whose source they are."""

LONGEST_BOX = 500
"""Characters of a box that is read at all."""

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
    r"(?:x\s*=\s*)?(?P<value>-?\s*(?:\d+(?:,\d{3})*(?:\.\d+)?(?:\s*/\s*\d+)?"
    r"|\\[dt]?frac\{\s*-?\d+\s*\}\{\s*-?\d+\s*\}))"
)


def check_math(right: str | None, answers: Sequence[str]) -> list[float] | None:
    r"""Return 1 for each answer whose `\boxed{}` equals the right one, else 0.

    None where there is no right answer. A right answer is written as LaTeX without dollars.

    Raises:
        UserError: math-verify is not installed.
    """
    if right is None:
        return None
    contents = [boxed(answer) for answer in answers]
    if re.fullmatch(r"-?\d+(/\d+|\.\d+)?", right):
        plain = [None if text is None else _PLAIN.fullmatch(text) for text in contents]
        contents = [None if m is None else m["value"].replace(",", "") for m in plain]
    known = {text: _equal(right, text) for text in dict.fromkeys(contents) if text is not None}
    return [0.0 if text is None else known[text] for text in contents]


def _equal(right: str, text: str) -> float:
    pending = _process().apply_async(_compare, (right, text))
    try:
        return float(pending.get(TIMEOUT_S))
    except ProcessTimeoutError:
        _process().terminate()  # whatever it works at
        _process.cache_clear()
        return 0.0
    except MemoryError:
        return 0.0


@lru_cache(maxsize=1)
def _process() -> Any:
    try:
        import math_verify  # noqa: F401
    except ImportError:
        raise UserError(
            "the reward `math` needs the package math-verify, which is not installed; type "
            "`python -m pip install -e '.[math]'`"
        ) from None
    pool = get_context("spawn").Pool(1, _bound)
    atexit.register(pool.terminate)
    # The import of its libraries takes longer than any check.
    pool.apply_async(_compare, ("1", "1")).get(START_S)
    return pool


def _bound() -> None:
    logging.disable()
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def _compare(right: str, text: str) -> bool:
    from math_verify import parse, verify

    gold, found = (parse(f"\\boxed{{{one}}}", raise_on_error=False) for one in (right, text))
    return bool(gold) and bool(found) and bool(verify(gold, found, raise_on_error=False))


class Math:
    """The reward `math`: answers to the prompts made by rule, right or not."""

    VERSION = "1"

    def score(self, prompt: str, answers: list[str]) -> list[float] | None:
        """Return the rewards; None for a prompt whose right answer does not follow from it."""
        return check_math(right_answer(prompt), answers)


MATH = Math()
