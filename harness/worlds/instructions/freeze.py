"""What the freeze of the world `instructions` covers: every part that determines a number.

These are the prompts of each part, the creator's rewrites of training prompts by method, the
rewards of fixed answers, the policy's weights, and the profile's hyperparameters.
"""

from __future__ import annotations

from harness.registry.profile import Profile
from harness.worlds.freeze import digest, method, rewrites, sizes
from harness.worlds.instructions.creator import METHODS, RuleCreator
from harness.worlds.instructions.kinds import KINDS
from harness.worlds.instructions.rules import RULES, task_of
from harness.worlds.instructions.tasks import PARTS, prompts
from harness.worlds.instructions.weights import identity

SAMPLED = 200
"""Number of training prompts rewritten and rewarded."""


def parts(profile: Profile) -> dict[str, str]:
    human = prompts("prompts", SAMPLED)
    return {
        **{f"prompts {name}": digest(prompts(name, 10 * SAMPLED)) for name in PARTS},
        **{f"creator {name}": rewrites(human, RuleCreator(METHODS[name])) for name in METHODS},
        "rewards": digest([RULES.score(prompt, _answers(prompt)) for prompt in human]),
        "policy": identity(),
        **sizes(profile),
        **method(),
    }


def _answers(prompt: str) -> list[str]:
    """Return answers that follow some kinds of instruction each, about the prompt's subject."""
    about = f"This is a short text about {task_of(prompt).subject} and little else."
    return [
        about,
        about.lower(),
        about.upper(),
        f'"{about}"',
        f"Well, {about}! Is it good? P.S. It is very good.",
        f"<<Title>>\n* one *thing*\n* [name] {about}\n***\nThe end.",
        f"Section 1\n{about}\nSection 2\n{about}",
        " ".join(str(value) for kind in KINDS.values() for value in kind.values) + f" {about}",
    ]
