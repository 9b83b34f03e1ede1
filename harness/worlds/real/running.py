"""Real models while stages run: their files, what is asked of endpoints, published benchmarks."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, cast

from harness.errors import HarnessError
from harness.runtime.stage import Json, StageContext
from harness.worlds.protocol import Evolver, HumanPrompts, Item, OwnAnswering
from harness.worlds.real.access import access_to
from harness.worlds.real.asking import Judge
from harness.worlds.real.benchmarks import is_lm_eval, questions_of
from harness.worlds.real.creator import ModelCreator, at_once
from harness.worlds.real.generator import EndpointGenerator
from harness.worlds.real.judging import judge_answers
from harness.worlds.real.lm_eval import run_tasks, score_tasks
from harness.worlds.real.models import folder_of
from harness.worlds.real.repeats import duplicates
from harness.worlds.real.scorer import rate_prompts
from harness.worlds.real.scoring import SCORES, tree_score
from harness.worlds.real.sources import positions, read_pool
from harness.worlds.real.templates import Scheme
from harness.worlds.real.unusable import RULES_VERSION


class RealRuntime:
    """Loads models, and asks those behind endpoints (a `Runtime`)."""

    def resolve(self, identity: str) -> Path:
        """Return where the files of a model lie, after checking that they are those it means."""
        return folder_of(identity)

    def reader_device(self) -> str:
        """Return the GPU if there is one."""
        from harness.models.loading import fastest_device

        return fastest_device()

    def weights(self, identity: str) -> str:
        """Return whether the published model's own files were ever checked."""
        from harness.models.verification import verification

        return verification(identity)

    def human_prompts(self, settings: Mapping[str, Json]) -> HumanPrompts:
        """Return pieces of a pool, nearly equal ones where it is a little too small."""
        seed, first, count = (cast(int, settings[name]) for name in ("seed", "first", "count"))
        x, pieces = cast(int, settings["x"]), cast(int, settings["pieces"])
        pool = read_pool(settings)
        chosen = positions(len(pool), seed, x, pieces, first, count)
        summary = {
            "source": settings["source"],
            "pool": asdict(duplicates(pool)),
            "cut": asdict(duplicates([pool[i] for i in chosen])),
        }
        return HumanPrompts(pool, chosen, summary)

    def evolver(
        self, settings: Mapping[str, Json], done: Callable[[int], None] | None = None
    ) -> Evolver:
        """Return the model at an endpoint, told what the settings spell out."""
        spelled = cast(dict[str, Any], settings["rewriting"])
        if spelled["rules"] != RULES_VERSION:
            raise HarnessError(
                f"the stage asks for version {spelled['rules']} of the rules for unusable rewrites "
                f"and this is version {RULES_VERSION}; plan the run again"
            )
        model = str(spelled["model"])
        access = access_to("CREATOR", model)
        client = access.client()
        generator = EndpointGenerator(client, model, spelled["sampling"])
        creator = ModelCreator(generator, Scheme.from_json(spelled["templates"]))
        return Evolver(creator, at_once(client, access.concurrency, done), generator.tokens)

    def tree_score(self, settings: Mapping[str, Json]) -> Callable[[str], float] | None:
        """Return the model that scores prompts, if the settings name one."""
        if "scorer" not in settings:
            return None
        scorer = cast(dict[str, Any], settings["scorer"])
        model = str(scorer["model"])
        if scorer["asked"] != [question.identity(model) for question in SCORES.values()]:
            raise HarnessError(
                "the stage asks a scorer other questions than this version has; plan the run again"
            )
        access = access_to("SCORER", model)
        return tree_score(Judge(access.client(), model, access.concurrency))

    def prompt_metrics(self) -> Mapping[str, Callable[[str], float]]:
        """Return nothing: no rule reads ordinary prompts."""
        return {}

    def questions(self, identity: str) -> Sequence[Item]:
        """Return a benchmark's questions in its order, with the answers it compares with."""
        return questions_of(identity)

    def own_answering(self, identity: str) -> OwnAnswering | None:
        """Return what runs table 9's tasks, whose package asks the questions."""
        return run_tasks if is_lm_eval(identity) else None

    def judge(self, ctx: StageContext) -> None:
        """Judge answers through the benchmark's own code, or read the package's scores."""
        (score_tasks if is_lm_eval(str(ctx.settings["benchmark"])) else judge_answers)(ctx)

    def rate(self, ctx: StageContext) -> None:
        """Have a model score prompts."""
        rate_prompts(ctx)
