"""Downloads: what a run reads and this machine lacks, fetched where a person asks for it.

Models come from the hub at the commit that the profile pins, as a loader reads them: no pickled
weights, no code. Benchmarks come from their public homes, with the digests that are known.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

from harness.errors import HarnessError, UserError
from harness.evaluation.benchmark import benchmark_class
from harness.evaluation.files import HomeFile
from harness.evaluation.files import fetch as fetch_files
from harness.extensions import BENCHMARKS, benchmark_place
from harness.foreign import error_in_a_line
from harness.project import benchmarks_dir
from harness.registry.profile import benchmark_named
from harness.worlds.needs import Demand
from harness.worlds.real import prompts
from harness.worlds.real.models import FILES, NOT_DOWNLOADED, without_arguments
from harness.worlds.real.world import Prompts

Say = Callable[[str], None]


def download(demand: Demand, say: Say) -> list[str]:
    """Fetch the models, prompts and benchmarks that are not here; return their names.

    What is here is left alone.

    Raises:
        HarnessError: The hub or a benchmark's home cannot be reached, or does not have it.
    """
    fetched: list[str] = []
    for model in demand.lacking_models:
        fetched.append(_fetch_model(model, say))
    if demand.pools:
        settings = Prompts(demand.profile).identity()
        if prompts.size_of(settings) is None:
            say(f"{settings['source']}: {len(prompts.read_pool(settings))} prompts")
            fetched.append(str(settings["source"]))
    for place, files in _homes(demand):
        fetch_files(files, benchmarks_dir() / place, partial(_said, say, place))
        fetched.append(place)
    if not fetched:
        say("Everything that could be downloaded is here.")
    return fetched


def _fetch_model(identity: str, say: Say) -> str:
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import GatedRepoError, RepositoryNotFoundError

    name, _, revision = without_arguments(identity)[0].partition("@")
    pinned = None if revision in ("", NOT_DOWNLOADED) else revision
    say(f"{name}{'' if pinned is None else f' at {pinned}'} ...")
    try:
        snapshot_download(name, revision=pinned, **FILES)
    except GatedRepoError as error:
        raise UserError(
            f"the licence of {name} is not accepted by this account: accept it at "
            f"https://huggingface.co/{name}, and type `hf auth login`"
        ) from error
    except RepositoryNotFoundError as error:
        raise UserError(f"the hub has no {identity}; correct the profile") from error
    except Exception as error:  # of whichever library the hub's own sends requests with
        raise HarnessError(
            f"{name} cannot be downloaded ({error_in_a_line(error)}); connect this machine and run "
            "the same command again, or bring the hub's cache of a machine that has it"
        ) from error
    return name


def _homes(demand: Demand) -> Iterator[tuple[str, tuple[HomeFile, ...]]]:
    """Yield the place and the files of each benchmark that has a public home and is not here."""
    for name in demand.benchmarks:
        known = benchmark_named(name)
        if known is None or known not in BENCHMARKS.shipped:
            continue
        place = benchmark_place(known)
        elsewhere = demand.profile.benchmarks[name].files not in (None, place)
        if not elsewhere and not (benchmarks_dir() / place).is_dir():
            yield place, tuple(benchmark_class(known).homes)


def _said(say: Say, place: str, file: HomeFile, there: bool) -> None:
    del there
    say(f"{place}/{file.name}")
