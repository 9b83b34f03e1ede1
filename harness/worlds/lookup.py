"""Looks up the world of a profile or an identity, and generates all policy answers.

A stage without an engine in its settings answers in this process. An endpoint, or a server that
runs already, is named by `HARNESS_SOLVER_URL`, `_KEY` and `_CONCURRENCY`: it serves the base policy
under its hub name, and one trained by a stage as `policy-` plus the first twelve digits of the
stage's fingerprint.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.endpoint.access import model_of
from harness.errors import UserError
from harness.registry.profile import INSTRUCTIONS, WORLD, Profile
from harness.registry.serving import Served, address
from harness.runtime.files import held
from harness.runtime.stage import Json, StageContext
from harness.serving.engines import SERVED
from harness.worlds import Prompts, Runtime, Settings, World
from harness.worlds.embedded import files, language
from harness.worlds.embedded import world as embedded
from harness.worlds.embedded.world import EmbeddedPrompts, EmbeddedRuntime, EmbeddedWorld
from harness.worlds.instructions import tasks
from harness.worlds.instructions import world as instructions
from harness.worlds.instructions.rules import share_followed
from harness.worlds.real import world as real
from harness.worlds.real.models import policy_folder, policy_name
from harness.worlds.real.world import HubPrompts, HubRuntime, HubWorld
from harness.worlds.stage_io import progress_callback, write_json

if TYPE_CHECKING:
    from harness.inference.solver import Solver
    from harness.models.loading import Conversation
    from harness.models.policy import Completion

STAGES = {
    "topics": "harness.worlds.real.scoring:topics_stage",
    **{
        kind: f"harness.worlds.embedded.reward:{kind}_stage"
        for kind in ("reward_model", "held_out", "best_of_n")
    },
    **{kind: f"harness.worlds.embedded.choosing:{kind}_stage" for kind in ("probe", "choose")},
}
"""Dotted name of the function for each kind of stage that only one world has."""


def world_of(profile: Profile) -> World:
    """Return a profile's world; it chooses prompts and creator apart from the rest."""
    own = profile.policy == WORLD  # only it can read its prompts; `HubPrompts` refuses them
    if own and INSTRUCTIONS in (profile.prompts.source, profile.creator.source):
        raise UserError(
            f"the policy of `{profile.name}` is the embedded world's, which has prompts and a "
            f"creator of its own; take neither from `{INSTRUCTIONS}`"
        )
    prompts: Prompts = HubPrompts(profile)
    if profile.prompts.source == INSTRUCTIONS:
        prompts = instructions.Prompts(profile)
    elif profile.prompts.source == WORLD and own:
        prompts = EmbeddedPrompts()
    creator: Callable[[str], Settings] = partial(real.creator_settings, profile)
    if profile.creator.source == INSTRUCTIONS:
        creator = partial(instructions.creator_settings, lambda: world.policy())
    elif profile.creator.source == WORLD and own:
        creator = embedded.creator_settings
    world: World = (EmbeddedWorld if own else HubWorld)(profile, prompts, creator)
    return world


def right_of(profile: Profile) -> Callable[[str, str], bool] | None:
    """Return the check for a fully correct answer, by an oracle or by rules; None without one."""
    return {WORLD: _right_list, INSTRUCTIONS: _all_followed}.get(profile.prompts.source)


def _right_list(prompt: str, answer: str) -> bool:
    return language.parse(prompt) is not None and language.score(prompt, answer) == 1.0


def _all_followed(prompt: str, answer: str) -> bool:
    task = tasks.read(prompt)
    return task is not None and share_followed(task, answer) == 1.0


def runtime_of(identity: str) -> Runtime:
    if files.has(identity):
        return EmbeddedRuntime()
    if tasks.has(identity):
        return instructions.InstructionsRuntime()
    return HubRuntime()


Ask = Callable[..., Sequence[Sequence["Completion"]]]
"""Takes conversations, their number of answers `n`, a `seed`, and a `temperature` if it is not the
stage's own. Returns the answers to each conversation, in order; none to one that is too long."""


@contextmanager
def answering(ctx: StageContext) -> Iterator[Ask]:
    """Yield the `Ask` of a stage's policy; an engine started for it stops with the block."""
    s = ctx.settings
    own = {name: s[name] for name in ("temperature", "top_p", "max_new_tokens")}
    if "engine" not in s:
        from harness.models.policy import generate

        yield partial(generate, policy_folder(ctx), batch_size=s["batch_size"], **own)
        return
    assert ctx.unfinished is not None
    with held(ctx.unfinished) as keep, _solver(ctx, keep) as solver:

        def ask(
            conversations: Sequence[Conversation], **sampling: Any
        ) -> Sequence[Sequence[Completion]]:
            before = solver.asked + solver.left_out
            done = progress_callback(ctx, "answered", before=before)
            return solver.generate(conversations, on_progress=done, **{**own, **sampling})

        yield ask
        summary = {
            "engine": s["engine"],
            "dtype": s["dtype"],
            "prompts": solver.asked,
            "shortened": solver.shortened,
            "left_out": solver.left_out,
        }
        write_json(ctx.output / "engine.json", summary)


def revision_instruction(settings: Mapping[str, Json]) -> str:
    """Return the revision request from the settings, or the embedded world's by default."""
    return str(settings.get("instruction", language.REVISE))


def _solver(ctx: StageContext, keep: Path) -> Solver:
    from harness.inference.solver import Solver, engine_name, started

    policy, s = policy_folder(ctx), ctx.settings
    served_as = policy_name(s, ctx.inputs["policy"].name if "policy" in ctx.inputs else None)
    engine = engine_name(str(s["engine"]))
    runs = engine == "endpoint" or (engine in SERVED and address("policy") is not None)
    declared = ctx.hardware.get("served")
    start = partial(
        started,
        identity=str(s["engine"]),
        folder=policy,
        dtype=str(s["dtype"]),
        batch_size=s["batch_size"],
        log=keep / "engine.log",
        endpoint=model_of("policy", served_as) if runs else None,
        served=None if declared is None else Served.model_validate(declared),
    )
    return Solver(policy, start, keep, s.get("max_length"))
