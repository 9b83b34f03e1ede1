"""What only somebody else can say: whether the hub hands out a model, and an endpoint has one.

This asks over the network, and so only where the user says so (`--online`).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from harness.cli.needs import Need, State
from harness.cli.needs_outside import endpoints_of, models_of, two_parts
from harness.errors import HarnessError

if TYPE_CHECKING:
    from harness.catalogue.profile import Profile
    from harness.worlds.real.access import Role

TIMEOUT_S = 10.0


def online_needs(profile: Profile) -> Iterator[Need]:
    """Yield what the hub and the endpoints say of a profile's models."""
    from harness.worlds.real.models import place_of

    for model in models_of(profile):
        if place_of(model) is None:
            yield _on_the_hub(model)
    for role, model, required in endpoints_of(profile):
        yield _at_its_endpoint(role, model, required=required)


def _on_the_hub(model: str) -> Need:
    """Return whether the hub would hand a model out to this machine's account."""
    from huggingface_hub import auth_check
    from huggingface_hub.errors import GatedRepoError, HfHubHTTPError, RepositoryNotFoundError

    name, what = model.partition("@")[0], f"hub, {model.partition('@')[0]}"
    page = f"https://huggingface.co/{name}"
    try:
        auth_check(name)
    except GatedRepoError:
        do = f"accept its licence at {page}, and type `hf auth login`"
        return Need(what, "missing", "its licence is not accepted by this account", do)
    except RepositoryNotFoundError:
        do = f"look for it at {page}, and type `hf auth login` if it is private"
        return Need(what, "missing", "the hub has no such model for this account", do)
    except (HfHubHTTPError, OSError) as error:
        do = "connect this machine, or bring the model in HARNESS_MODELS"
        return Need(what, "missing", f"the hub cannot be reached ({type(error).__name__})", do)
    return Need(what, "met", "can be downloaded")


def _at_its_endpoint(role: Role, model: str, *, required: bool) -> Need:
    """Return whether an endpoint can be reached, takes the key and has the model."""
    from harness.evaluation.judging.endpoint import Endpoint
    from harness.worlds.real.access import access_to

    what = f"endpoint of the {role.lower()} {model}"
    lacking: State = "missing" if required else "advised"
    try:
        access = access_to(role, model)
        endpoint = Endpoint(access.url, access.key_variable, TIMEOUT_S)
        there = endpoint.models()
    except HarnessError as error:
        return Need(what, lacking, *two_parts(str(error)))
    # Some sellers list a model as `models/NAME`.
    if model in {name.removeprefix("models/") for name in there}:
        return Need(what, "met", f"{endpoint.host} has it")
    do = f"serve it there, or name another endpoint in HARNESS_{role}_URL"
    return Need(what, lacking, f"{endpoint.host} does not have it", do)
