"""The creator by rule: what each operator does, and what no rewrite ever is."""

import random
from collections import Counter
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from harness.eva.evolving import Prompt, Rewrite, evolve
from harness.models import policy
from harness.worlds.instructions.creator import (
    ASK,
    BY_POLICY,
    METHODS,
    NEW_TOKENS,
    Operator,
    PolicyCreator,
    RuleCreator,
    why_unusable,
)
from harness.worlds.instructions.kinds import KINDS, SEEN, Instruction
from harness.worlds.instructions.tasks import MOST, Task, draw, prompts, read, subjects_of

TRAINING = subjects_of("training")
FORM, OTHER_FORM = "Write a short poem about {}", "Write a joke about {}"

OPERATORS = {name: operator for method in METHODS.values() for name, operator in method.items()}


def task(*instructions: Instruction, subject: str = TRAINING[0]) -> Task:
    return Task(FORM, subject, instructions)


def results(operator: str, given: Task) -> set[Task]:
    """Return what an operator makes of a task, over many draws."""
    return {OPERATORS[operator](given, random.Random(seed)) for seed in range(300)}


def rewrites(method: str, parents: list[str]) -> list[Rewrite]:
    creator, rng = RuleCreator(METHODS[method]), np.random.default_rng(0)
    return [creator.rewrite(parent, rng) for parent in parents]


BULLETS = [Instruction("bullets", n) for n in (2, 3, 4, 5)]
NO_COMMA, LOWER, UPPER = (Instruction(name) for name in ("no_comma", "lowercase", "uppercase"))


def test_deepening_tightens_one_step() -> None:
    two, three, *_, five = BULLETS
    assert results("deepening", task(two)) == {task(three)}
    assert results("deepening", task(NO_COMMA, two)) == {task(NO_COMMA, three)}
    both = task(two, Instruction("at_most", 20))
    assert results("deepening", both) == {
        task(three, Instruction("at_most", 20)),
        task(two, Instruction("at_most", 12)),
    }
    said = str(task(Instruction("bullets", 2, 1)))
    assert {str(made) for made in results("deepening", task(Instruction("bullets", 2, 1)))} == {
        said.replace("as 2 bullet points", "as 3 bullet points")
    }
    assert {m.kinds for m in results("deepening", task(five))} == {("sections",), ("paragraphs",)}


def test_loosening_goes_one_step_back_or_leaves_one_out() -> None:
    two, three, *_ = BULLETS
    assert results("loosening", task(three)) == {task(two)}
    assert results("loosening", task(NO_COMMA, three)) == {task(NO_COMMA, two)}
    assert results("loosening", task(NO_COMMA, two)) == {task(NO_COMMA), task(two)}
    alone = results("loosening", task(two))
    assert {made.instructions for made in alone} == {(two,)}
    subjects = {made.subject for made in alone}
    assert len(subjects) > 50
    assert subjects < set(TRAINING) - {TRAINING[0]}


def test_constraints_adds_an_instruction_that_goes_with_the_others() -> None:
    given = task(LOWER)
    made = results("constraints", given)
    assert {m.instructions[0] for m in made} == {LOWER}
    assert {(m.form, m.subject, len(m.instructions)) for m in made} == {(FORM, TRAINING[0], 2)}
    clashing = {"lowercase", "uppercase", "start", "end", "postscript", "sections"}
    assert {m.kinds[1] for m in made} == set(SEEN) - clashing


def test_a_prompt_of_three_instructions_is_tightened_instead() -> None:
    given = task(NO_COMMA, LOWER, BULLETS[0])
    assert results("constraints", given) == {task(NO_COMMA, LOWER, BULLETS[1])}


def test_reasoning_puts_a_kind_of_the_family_in_the_place_of_one() -> None:
    assert {m.instructions for m in results("reasoning", task(LOWER))} == {
        (Instruction("uppercase", None, wording),) for wording in (0, 1)
    }
    made = results("reasoning", task(LOWER, NO_COMMA))
    assert {m.kinds for m in made} == {
        ("uppercase", "no_comma"),
        ("lowercase", "exclamations"),
        ("lowercase", "question_mark"),
    }
    assert {m.subject for m in made} == {TRAINING[0]}


def test_where_no_neighbor_fits_the_subject_changes() -> None:
    """Lowercase excludes start, end and postscript, all of the family of the quotation marks."""
    given = task(LOWER, Instruction("quoted"))
    made = {m for m in results("reasoning", given) if m.kinds[0] == "lowercase"}
    assert {m.instructions for m in made} == {given.instructions}
    assert TRAINING[0] not in {m.subject for m in made}


def test_concretizing_changes_the_form_alone() -> None:
    made = results("concretizing", task(NO_COMMA))
    assert {(m.subject, m.instructions) for m in made} == {(TRAINING[0], (NO_COMMA,))}
    assert FORM not in {m.form for m in made}
    assert OTHER_FORM in {m.form for m in made}


def test_breadth_changes_the_subject_and_a_kind() -> None:
    for operator in ("breadth", "creativity"):
        made = results(operator, task(LOWER))
        assert {m.kinds for m in made} == {("uppercase",)}
        assert {m.form for m in made} == {FORM}
        assert TRAINING[0] not in {m.subject for m in made}


def test_details_takes_a_nearby_value() -> None:
    two, three, four, _ = BULLETS
    assert results("details", task(three)) == {task(two), task(four)}
    words = results("details", task(Instruction("word", "river")))
    assert {m.instructions[0].value for m in words} == set(KINDS["word"].values) - {"river"}
    assert {m.instructions for m in results("details", task(NO_COMMA))} == {(NO_COMMA,)}


def test_self_instruct_keeps_a_kind() -> None:
    made = results("new", task(LOWER, BULLETS[0]))
    assert {m.kinds[0] for m in made} == {"lowercase", "bullets"}
    assert len({m.subject for m in made}) > 50
    assert len({m.form for m in made}) > 50


def mixed_parents(count: int) -> list[str]:
    """Return prompts of one to three instructions, as evolving makes them."""
    rng = random.Random(1)
    return [
        *prompts("prompts", count // 2),
        *(str(draw(rng, TRAINING, SEEN, most=MOST)) for _ in range(count - count // 2)),
    ]


@pytest.mark.parametrize("method", METHODS)
def test_a_rewrite_is_another_prompt_of_training(method: str) -> None:
    parents = mixed_parents(2000)
    made = rewrites(method, parents)
    for parent, rewrite in zip(parents, made, strict=True):
        assert rewrite.method in METHODS[method]
        if rewrite.prompt is None:
            assert (rewrite.reason, rewrite.written) == ("unchanged", parent)
            continue
        task = read(rewrite.prompt)
        assert task is not None
        assert rewrite.prompt == str(task) != parent
        assert task.subject in TRAINING
        assert set(task.kinds) <= set(SEEN)
        assert 1 <= len(task.kinds) <= MOST
    assert sum(rewrite.prompt is None for rewrite in made) < 20
    assert set(Counter(rewrite.method for rewrite in made)) == set(METHODS[method])


def test_what_comes_out_as_its_parent_is_counted_as_unchanged() -> None:
    def same(task: Task, rng: random.Random) -> Task:
        return task

    operators: dict[str, Operator] = {"same": same}
    [parent] = prompts("prompts", 1)
    rewrite = RuleCreator(operators).rewrite(parent, np.random.default_rng(0))
    assert rewrite == Rewrite(None, "same", "unchanged", parent)


def test_a_parent_that_cannot_be_read_has_no_rewrite() -> None:
    for text in ("", "Write a poem.", "\x00"):
        [rewrite] = rewrites("evol_instruct", [text])
        assert (rewrite.prompt, rewrite.reason) == (None, "unreadable")


def test_prompts_of_other_parts_are_not_usable() -> None:
    [parent, usable] = prompts("prompts", 2)
    assert why_unusable(usable, parent) is None
    assert why_unusable(parent, parent) == "unchanged"
    for part in ("off_target", "held_out", "new_kinds"):
        assert why_unusable(prompts(part, 1)[0], parent) == "unreadable"
    assert why_unusable("", parent) == "unreadable"


def test_what_the_policy_writes_is_counted_by_why_it_is_unusable(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Of five lines in turn two are usable."""
    parent, first, second = prompts("prompts", 3)
    written = iter([first, second, parent, "Write a poem about love.", ""])
    asked: list[tuple[str, dict[str, Any]]] = []

    def complete_line(folder: Path, text: str, **sampling: Any) -> str:
        asked.append((text, sampling))
        assert folder == Path("policy")
        return next(written)

    monkeypatch.setattr(policy, "complete_line", complete_line)
    creator = PolicyCreator(Path("policy"))
    roots = [Prompt(f"p{i}", parent) for i in range(5)]
    done = evolve(roots, creator, evolutions=1, retries=0, seed=0)
    assert [prompt.prompt for prompt in done.prompts] == [first, second]
    assert done.unusable == {"unchanged": 1, "unreadable": 2}
    assert {attempt.method for attempt in done.tried} == {BY_POLICY}
    assert [attempt.written for attempt in done.tried[2:]] == [
        parent,
        "Write a poem about love.",
        "",
    ]
    for text, sampling in asked:
        assert text.endswith(f"Request: {parent}\nVariation:")
        assert sampling["max_new_tokens"] == NEW_TOKENS
    assert len({sampling["seed"] for _, sampling in asked}) == 5


def test_the_examples_of_rewriting_that_the_policy_sees_are_usable() -> None:
    """Or else it could only copy what cannot be read back."""
    lines = [line.partition(": ") for line in ASK.splitlines()]
    pairs = [(request[2], variation[2]) for request, variation in pairwise(lines)
             if request[0] == "Request" and variation[0] == "Variation"]  # fmt: skip
    assert len(pairs) == 4
    for request, variation in pairs:
        assert why_unusable(variation, request) is None
        assert why_unusable(request, variation) is None
