"""What the topic of a prompt is, at a profile.

In the embedded world a topic is the category of a prompt's first operation, which the world's own
parser reads from the text. That is why this stands here and not in the report, which knows no
world. Elsewhere the profile's scorer sorts prompts into topics, in a stage of its own that the
figures about topics ask for.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from harness.catalogue.figures import Figure, SharesFigure, TopicsFigure
from harness.catalogue.profile import WORLD, Profile
from harness.store.stage import Stage
from harness.trainer.factory import VERSIONS
from harness.trainer.plan import Run
from harness.trainer.rewards import rewards_stage

NO_TOPIC = "no topic"
"""The topic of a prompt that cannot be read, or of which the scorer says nothing readable."""


@dataclass(frozen=True)
class Topics:
    """Tells the topics of prompts.

    Attributes:
        names: The topics, in a fixed order.
        stage_of: Returns the stage that tells the topics of the prompts that a stage holds, or
            of those that it answers.
        read: Returns prompt id and topic of each prompt, or answer, from that stage's folder.
    """

    names: tuple[str, ...]
    stage_of: Callable[[Stage], Stage]
    read: Callable[[Path], list[tuple[str, str]]]


def topics_of(profile: Profile) -> Topics | None:
    """Return what tells topics at a profile, None where nothing does."""
    if profile.prompts.source == WORLD:
        from harness.worlds.embedded.operations import CATEGORIES

        return Topics(CATEGORIES, lambda prompts: prompts, _parsed)
    scorer = profile.creator.scorer
    if scorer is None:
        return None
    from harness.worlds.real.scorer import topic_settings
    from harness.worlds.real.topics import TOPICS

    def stage_of(prompts: Stage) -> Stage:
        # A model is asked about the prompts, for which nobody need have answered them.
        prompts = prompts.inputs["prompts"] if prompts.kind == "generate" else prompts
        label = f"{prompts.label} · topics"
        return Stage(
            "topics", VERSIONS["topics"], topic_settings(scorer), {"prompts": prompts}, label
        )

    return Topics(tuple(TOPICS), stage_of, _sorted_by_a_model)


def prompts_of_topics(figure: Figure, run: Run) -> list[Stage]:
    """Return the stages that hold the prompts whose topics a figure shows of a run, if any."""
    if isinstance(figure, SharesFigure):
        return [iteration.pairs for iteration in run.iterations]
    if isinstance(figure, TopicsFigure):
        return [rewards_stage(run.iterations[figure.iteration - 1]).inputs["completions"]]
    return []


def category_of_first_operation(prompt: str) -> str:
    """Return the topic of one of the embedded world's prompts."""
    from harness.worlds.embedded.language import parse
    from harness.worlds.embedded.operations import BY_NAME

    task = parse(prompt)
    return NO_TOPIC if task is None else BY_NAME[task.operations[0]].category


def _parsed(folder: Path) -> list[tuple[str, str]]:
    from harness.worlds.stage_io import read_prompts, read_rows

    answered = folder / "completions.parquet"
    rows = read_rows(answered) if answered.exists() else read_prompts(folder)
    return [(row["prompt_id"], category_of_first_operation(row["prompt"])) for row in rows]


def _sorted_by_a_model(folder: Path) -> list[tuple[str, str]]:
    from harness.worlds.stage_io import read_rows

    rows = read_rows(folder / "topics.parquet")
    return [(row["prompt_id"], row["topic"] or NO_TOPIC) for row in rows]
