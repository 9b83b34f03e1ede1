"""What the topic of a prompt is, at a profile.

In the embedded world a topic is the category of a prompt's first operation, which the world's own
parser reads from the text. That is why this stands here and not in the report, which knows no
world. No other profile has a classifier yet; one that runs a model would be a stage of its own.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from harness.catalogue.profile import Profile

NO_TOPIC = "no topic"
"""The topic of a prompt that cannot be read."""


@dataclass(frozen=True)
class Classifier:
    """Tells the topic of a prompt.

    Attributes:
        topics: The topics, in a fixed order.
        topic_of: Returns the topic of a prompt's text, `NO_TOPIC` where it has none.
    """

    topics: tuple[str, ...]
    topic_of: Callable[[str], str]


def classifier_of(profile: Profile) -> Classifier | None:
    """Return the classifier of a profile, None where it has none."""
    if profile.prompts.source != "world":
        return None
    from harness.micro.operations import CATEGORIES

    return Classifier(CATEGORIES, _category_of_first_operation)


def _category_of_first_operation(prompt: str) -> str:
    from harness.micro.language import parse
    from harness.micro.operations import BY_NAME

    task = parse(prompt)
    return NO_TOPIC if task is None else BY_NAME[task.operations[0]].category
