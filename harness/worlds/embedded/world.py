"""The embedded world: planning from its card, running from its files."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, ClassVar, cast

from harness.errors import UserError
from harness.eva.evolving import OwnCreator, own_method, plugin_settings
from harness.extensions import BENCHMARKS
from harness.registry.profile import WORLD, Profile
from harness.registry.recipe import Reach, RewardRole
from harness.runtime.stage import Json, StageContext
from harness.serving.engines import identity
from harness.words import ignore
from harness.worlds import (
    DOWNSTREAM,
    NO_TOPIC,
    Evolver,
    Item,
    Prompts,
    Runtime,
    Settings,
    Topics,
    World,
    stage_io,
)
from harness.worlds.embedded import files, texts
from harness.worlds.embedded import judge as oracle
from harness.worlds.embedded.creator import embedded_creator, why_unusable
from harness.worlds.embedded.language import CATEGORIES, parse
from harness.worlds.real import benchmarks

if TYPE_CHECKING:
    from harness.endpoint.client import Done
    from harness.models.reward_model import Reads, Rewards


class EmbeddedPrompts(Prompts):
    """The pool of human prompts, and the prompts with the hard benchmark's names."""

    def identity(self) -> Settings:
        return {"source": files.card().identity("prompts")}

    def matched(self) -> Settings:
        return {"source": files.card().identity("matched"), "matched": True}

    def off_target(self) -> str:
        return files.card().identity("off_target")

    def topics(self) -> Topics | None:
        read = partial(stage_io.read_topics, topic_of=category_of_first_operation)
        return Topics(CATEGORIES, None, read)

    def shown_word(self, word: str) -> str:
        """Mask single characters, which are list items here but ordinary words elsewhere."""
        return "#" if len(word) == 1 and word.isalnum() else word


def creator_settings(method: str) -> Settings:
    return {"creator": f"{files.card().version}/{method}", **plugin_settings(method)}


@dataclass
class EmbeddedWorld(World):
    """The embedded world's parts, each identified by version, name and digest."""

    profile: Profile
    prompts: Prompts
    creator: Callable[[str], Settings]
    has_validation_prompts: ClassVar[bool] = True

    def policy(self) -> str:
        return files.card().identity("theta0")

    def reward_model(self, role: RewardRole) -> str:
        return files.card().identity(f"rm_{role}")

    def engine(self) -> Settings:
        # Policies that generate in the stage's own process need no engine settings.
        if self.profile.engine == "transformers":
            return {}
        return {"engine": identity(self.profile.engine), "dtype": self.profile.dtype}

    def benchmark(self, name: str) -> str:
        if name == DOWNSTREAM:
            return texts.downstream_identity()
        if BENCHMARKS.added(name) is not None:
            return benchmarks.benchmark_identity(name, self.profile.benchmarks[name])
        return files.card().identity(name)

    def judge(self, name: str) -> str:
        return f"{files.card().version}/{name}"

    def judging(self, name: str) -> Settings:
        judge = self.profile.benchmarks[name].judge
        if BENCHMARKS.added(name) is None:
            judge = self.judge(judge)
            _check_judge(judge, oracle.EXACT_MATCH if name == DOWNSTREAM else oracle.JUDGE)
            return {"benchmark": self.benchmark(name), "judge": judge}
        return benchmarks.judging_settings(self.benchmark(name), judge)

    def rating(self, name: str) -> Settings:
        judge = self.judge(self.profile.benchmarks[name].judge)
        _check_judge(judge, oracle.RULES)
        return {"judge": judge}

    def reward_model_accuracy(self, role: RewardRole) -> float | None:
        if self.profile.reward_models.get(role) != WORLD:
            return None
        found = files.card().notes.get(f"rm_{role}", {}).get("held_out_accuracy")
        return None if found is None else float(found)


def category_of_first_operation(prompt: str) -> str:
    task = parse(prompt)
    return NO_TOPIC if task is None else task.operations[0].category


class EmbeddedRuntime(Runtime):
    def rewards(self, identity: str, reads: Reads, dtype: str) -> Rewards:
        """Return the model on the CPU, even with a GPU, so that the numbers do not change."""
        from harness.models.reward_model import CheckpointRewards, load_reward_model

        return CheckpointRewards(load_reward_model(files.resolve(identity), reads, dtype=dtype))

    def human_prompts(self, settings: Mapping[str, Json]) -> dict[int, str]:
        return stage_io.draw_prompts(settings, lambda it: texts.read_prompts(files.resolve(it)))

    def evolver(self, settings: Mapping[str, Json], done: Done = ignore) -> Evolver:
        own = own_method(settings)
        if own is not None:
            return Evolver(OwnCreator(own, lambda text, parent, _told: why_unusable(text, parent)))
        reach = cast(Reach, settings.get("reach", "topic"))
        return Evolver(embedded_creator(str(settings["creator"]), reach))

    def prompt_metrics(self) -> Mapping[str, Callable[[str], float]]:
        return {"complexity": oracle.complexity}

    def questions(self, identity: str) -> Sequence[Item]:
        if files.name_of(identity) == DOWNSTREAM:
            return texts.downstream_items()
        return texts.read_items(files.resolve(identity))

    def judge(self, ctx: StageContext) -> None:
        """Judge answers with the oracle, or by exact match for downstream questions."""
        identity = str(ctx.settings["benchmark"])
        name, items = files.name_of(identity), self.questions(identity)
        answers = stage_io.read_answers(ctx.inputs["answers"])
        if name == DOWNSTREAM:
            judgments, scores, summary = oracle.score_downstream(items, answers)
        else:
            judgments, scores, summary = oracle.score_by_oracle(name, items, answers)
        stage_io.write_judged(ctx, judgments, scores, summary)

    def rate(self, ctx: StageContext) -> None:
        prompts = stage_io.read_prompts(ctx.inputs["prompts"])
        rows = [
            {"prompt_id": row["prompt_id"], "column": column, "value": score(row["prompt"])}
            for column, score in oracle.SCORERS.items()
            for row in prompts
        ]
        stage_io.write_rows(ctx.output / "scores.parquet", rows)
        summary = {"judge": ctx.settings["judge"], "n": len(prompts)}
        stage_io.write_json(ctx.output / "summary.json", summary)


def _check_judge(judge: str, expected: str) -> None:
    if judge.partition("/")[2] != expected:
        raise UserError(f"the embedded world has no such judge `{judge}`; use `{expected}`")
