"""The embedded world while runs are planned: its assets, by their digests in the world's card."""

from __future__ import annotations

from pathlib import Path

from harness.errors import HarnessError
from harness.inference.environment import identity
from harness.registry.profile import WORLD
from harness.registry.recipe import RewardRole
from harness.runtime.stage import Json
from harness.worlds.embedded import downstream, world
from harness.worlds.embedded.language import parse
from harness.worlds.embedded.operations import BY_NAME, CATEGORIES
from harness.worlds.protocol import NO_TOPIC, FileCheck, Topics, World


class EmbeddedWorld(World):
    """The embedded world's parts, each by version, name and digest."""

    has_validation_prompts = True

    def policy(self) -> str:
        """Return θ0's identity."""
        return world.card().identity("theta0")

    def reward_model(self, role: str) -> str:
        """Return the identity of the embedded reward model of a role."""
        return world.card().identity(f"rm_{role}")

    def prompts(self) -> dict[str, Json]:
        """Return the identity of the pool of human prompts."""
        return {"source": world.card().identity("prompts")}

    def creator(self, scheme: str) -> dict[str, Json]:
        """Return the identity of the embedded creator: world version and scheme."""
        return {"creator": f"{world.card().version}/{scheme}"}

    def engine(self) -> dict[str, Json]:
        """Return nothing for policies that answer in the stage's own process."""
        if self.profile.engine == "transformers":
            return {}
        return {"engine": identity(self.profile.engine), "dtype": self.profile.dtype}

    def rewriter(self) -> dict[str, Json]:
        """Return nothing: the embedded policy knows one sentence (`language.REVISE`)."""
        return {}

    def benchmark(self, name: str) -> str:
        """Return the identity of a benchmark's items: a file's, or those made anew."""
        if name == downstream.NAME:
            return downstream.identity()
        return world.card().identity(name)

    def judge(self, name: str) -> str:
        """Return the identity of the embedded judge."""
        return f"{world.card().version}/{name}"

    def topics(self) -> Topics | None:
        """Return what reads a prompt's topic from its text: its first operation's category."""
        return Topics(CATEGORIES, None, _read_topics)

    def reward_model_accuracy(self, role: RewardRole) -> float | None:
        """Return the accuracy in the world's card."""
        if self.profile.reward_models.get(role) != WORLD:
            return None
        noted = world.card().notes.get(f"rm_{role}")
        found = noted.get("held_out_accuracy") if isinstance(noted, dict) else None
        return None if found is None else float(found)

    def prompt_pool(self) -> tuple[list[str], str]:
        """Return every human prompt, and the identity of their file."""
        from harness.worlds.embedded.sources import read_prompts

        source = world.card().identity("prompts")
        return read_prompts(world.resolve(source)), source

    def shown_word(self, word: str) -> str:
        """Mask single characters, which are items of lists here and ordinary words elsewhere."""
        from harness.statistics.distance import mask_items

        return mask_items(word)

    def check_files(self) -> FileCheck:
        """Check the digest of every file of the world."""
        what = "embedded world"
        try:
            world.check()
        except HarnessError as error:
            return FileCheck(what, False, str(error), "type `harness micro build`")
        return FileCheck(what, True, f"{world.VERSION}: all digests are right")


def category_of_first_operation(prompt: str) -> str:
    """Return the topic of one of the embedded world's prompts."""
    task = parse(prompt)
    return NO_TOPIC if task is None else BY_NAME[task.operations[0]].category


def _read_topics(folder: Path) -> list[tuple[str, str]]:
    from harness.worlds.stage_io import read_prompts, read_rows

    answered = folder / "completions.parquet"
    rows = read_rows(answered) if answered.exists() else read_prompts(folder)
    return [(row["prompt_id"], category_of_first_operation(row["prompt"])) for row in rows]
