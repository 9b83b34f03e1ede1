"""Creators by their identity: the embedded one, or a model at an endpoint.

A stage that evolves prompts carries the creator's identity in its settings, `WORLD/SCHEME` or
`MODEL/SCHEME@DIGEST` with the digest of what the model is told. For a model the setting `rewriting`
spells out what the identity stands for: the model's name, how it samples, the scheme's messages
word for word, and the number of the rules by which rewrites are unusable. So the templates file is
read once, while a run is planned, and everything a rewrite is due to is in the fingerprint; where
the model is served is not (`harness.worlds.real.access`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from harness.catalogue.profile import WORLD, Profile
from harness.catalogue.recipe import Online
from harness.errors import HarnessError, UserError
from harness.store.fingerprint import Json
from harness.trainer.assets import Assets

if TYPE_CHECKING:
    from harness.eva.evolving import Creator, Over
    from harness.worlds.real.generator import Tokens

DIGITS = 16
"""Digits of a digest in an identity."""


def creator_settings(profile: Profile, assets: Assets, scheme: str) -> dict[str, Json]:
    """Return the settings that identify a profile's creator with an evolving scheme.

    Raises:
        UserError: there is no such scheme, or the profile's templates file cannot be used.
    """
    if profile.creator.source == WORLD:
        return {"creator": assets.creator(scheme)}
    from harness.worlds.real.templates import load_scheme
    from harness.worlds.real.unusable import RULES_VERSION

    model = profile.creator
    templates = load_scheme(scheme, Path(model.templates) if model.templates else None)
    sampling: dict[str, Json] = {
        "temperature": model.temperature,
        "top_p": model.top_p,
        "max_tokens": model.max_new_tokens,
    }
    return {
        "creator": f"{model.source}/{scheme}@{templates.digest[:DIGITS]}",
        "rewriting": {
            "model": model.source,
            "sampling": {name: value for name, value in sampling.items() if value is not None},
            "rules": RULES_VERSION,
            "templates": templates.as_json(),
        },
    }


def scorer_settings(profile: Profile, online: Online) -> dict[str, Json]:
    """Return the settings that identify what scores the prompts of best-of-n trees, if trees grow.

    Raises:
        UserError: trees grow and the profile has no scorer.
    """
    grows = online.prompts == "eva" and online.method == "tree_bon" and online.tree_depth > 1
    if profile.creator.source == WORLD or not grows:
        return {}
    from harness.worlds.real.scoring import SCORES

    model = profile.creator.scorer
    if model is None:
        raise UserError(
            f"the profile `{profile.name}` has no model that scores prompts, by which best-of-n "
            "trees grow; name one in `creator.scorer`"
        )
    return {"scorer": {"model": model, "asked": [q.identity(model) for q in SCORES.values()]}}


def tree_score_of(settings: Mapping[str, Json]) -> Callable[[str], float] | None:
    """Return what scores prompts for best-of-n trees, by the settings of `scorer_settings`.

    Returns:
        None where the settings name no scorer.

    Raises:
        UserError: nothing says where the model is served.
        HarnessError: the settings are not of this version.
    """
    if "scorer" not in settings:
        return None
    from harness.worlds.real.access import access_to
    from harness.worlds.real.asking import Judge
    from harness.worlds.real.scoring import SCORES, tree_score

    scorer = cast(dict[str, Any], settings["scorer"])
    model = str(scorer["model"])
    if scorer["asked"] != [question.identity(model) for question in SCORES.values()]:
        raise HarnessError(
            "the stage asks a scorer other questions than this version has; plan the run again"
        )
    access = access_to("SCORER", model)
    return tree_score(Judge(access.client(), model, access.concurrency))


@dataclass(frozen=True)
class Evolver:
    """A creator at work.

    Attributes:
        creator: rewrites prompts.
        over: how prompts are worked through.
        tokens: what an endpoint's texts took so far; None for the embedded creator.
    """

    creator: Creator
    over: Over = map
    tokens: Tokens | None = None


def evolver_of(settings: Mapping[str, Json], done: Callable[[int], None] | None = None) -> Evolver:
    """Return the creator that a stage's settings mean.

    Args:
        settings: settings that `creator_settings` returned, among others.
        done: told how many prompts are evolved, where they are many at once.

    Raises:
        UserError: nothing says where the model is served.
        HarnessError: the settings are not of this version.
    """
    if "rewriting" not in settings:
        from harness.worlds.embedded.creator import embedded_creator

        return Evolver(embedded_creator(str(settings["creator"])))
    from harness.worlds.real.access import access_to
    from harness.worlds.real.creator import ModelCreator, at_once
    from harness.worlds.real.generator import EndpointGenerator
    from harness.worlds.real.templates import Scheme
    from harness.worlds.real.unusable import RULES_VERSION

    spelled = cast(dict[str, Any], settings["rewriting"])
    if spelled["rules"] != RULES_VERSION:
        raise HarnessError(
            f"the stage asks for version {spelled['rules']} of the rules for unusable rewrites and "
            f"this is version {RULES_VERSION}; plan the run again"
        )
    model = str(spelled["model"])
    access = access_to("CREATOR", model)
    client = access.client()
    generator = EndpointGenerator(client, model, spelled["sampling"])
    creator = ModelCreator(generator, Scheme.from_json(spelled["templates"]))
    return Evolver(creator, at_once(client, access.concurrency, done), generator.tokens)
