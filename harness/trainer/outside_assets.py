"""The assets of a profile whose models, prompts and benchmarks come from outside the world.

Identities say what lies on this machine, as `google/gemma-2-9b-it@<commit>`. On a bare machine they
end in `not-downloaded`, so that a run can be planned and priced before anything is fetched;
`refuse_missing` then says what to type, before anything is computed.

A judge is known by its name at an endpoint. What it is told stands in the benchmark's own files and
so in the benchmark's identity (`harness.worlds.real.benchmarks`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from harness.catalogue.profile import WORLD, Profile
from harness.errors import UserError
from harness.store.fingerprint import Json
from harness.store.stage import Stage
from harness.worlds.embedded import world
from harness.worlds.real.benchmarks import (
    NOT_INSTALLED,
    benchmark_identity,
    fetch_line,
    is_benchmark,
    is_lm_eval,
    kind_of,
)
from harness.worlds.real.models import NOT_DOWNLOADED, download_line, identity_of, is_missing

MODELS = ("policy", "reward_model", "ranker")
"""Settings of stages that are the identities of models."""


class OutsideAssets:
    """Turns what a profile names into identities; each model is looked for once."""

    def __init__(self, profile: Profile) -> None:
        """Serve a profile."""
        self._profile = profile
        self._models: dict[str, str] = {}

    def policy(self) -> str:
        """Return the base policy's identity."""
        return self._model(self._profile.policy)

    def reward_model(self, role: str) -> str:
        """Return the identity of the reward model of a role."""
        models = {str(known): model for known, model in self._profile.reward_models.items()}
        return self._model(models[role])

    def prompts(self) -> str:
        """Refuse: the embedded world's prompts are for its own policy."""
        raise self._mixed("prompts.source")

    def creator(self, method: str) -> str:
        """Refuse: the embedded creator rewrites the embedded world's prompts alone."""
        raise self._mixed("creator.source")

    def benchmark(self, name: str) -> str:
        """Return the identity of a benchmark's files."""
        return benchmark_identity(name, self._profile.benchmarks[name])

    def judge(self, name: str) -> str:
        """Return a judge's name at its endpoint."""
        return name

    def _model(self, model: str) -> str:
        if model == WORLD:
            raise self._mixed("reward_models")
        if model not in self._models:
            self._models[model] = identity_of(model)
        return self._models[model]

    def _mixed(self, setting: str) -> UserError:
        return UserError(
            f"the profile `{self._profile.name}` takes `{setting}` from the embedded world, which "
            "only its own policy can read; name one from outside"
        )


def refuse_missing(stages: Iterable[Stage]) -> None:
    """Refuse stages that need what is not on this machine, before any of them is computed.

    Prompts of the hub are read here once, because that is what a stage would do first.

    Raises:
        UserError: something is missing; the message says what to type for each.
    """
    lacking: dict[str, None] = {}
    pools = {}
    for stage in stages:
        lacking |= dict.fromkeys(_lacking(stage))
        if "pool" in stage.settings:
            pools[str(stage.settings["source"])] = stage.settings
    if lacking:
        lines = "".join(f"\n  {line}" for line in lacking)
        raise UserError(
            "this run needs what is not on this machine (harness doctor, with the same --profile, "
            f"lists keys, GPUs and engines as well); type:{lines}"
        )
    if pools:
        from harness.worlds.real.sources import read_pool

        for settings in pools.values():
            read_pool(settings)


def gaps(stages: Iterable[Stage]) -> list[str]:
    """Return which scores of stages will not be available here, and why, in a sentence for each.

    What lacks is no reason to refuse: the rest is computed, and once it is there the same command
    computes these scores alone.
    """
    found: dict[str, None] = {}
    for stage in stages:
        benchmark = str(stage.settings.get("benchmark", ""))
        if stage.kind != "judge" or not (is_benchmark(benchmark) or is_lm_eval(benchmark)):
            continue
        found |= dict.fromkeys(_gaps_of(benchmark, stage.settings))
    return list(found)


def _gaps_of(benchmark: str, settings: Mapping[str, Json]) -> Iterator[str]:
    if is_lm_eval(benchmark):
        if benchmark.endswith(f"@{NOT_INSTALLED}"):
            yield "table 9's tasks will not be available: install the extra `lm-eval`"
        return
    name = kind_of(benchmark).name
    lacks_package = settings.get("package") == NOT_INSTALLED
    if name == "alpaca-eval" and lacks_package:
        yield "AlpacaEval will not be available: install the extra `alpaca`"
    elif name == "alpaca-eval" and settings.get("length_control", "") is None:
        yield (
            "AlpacaEval's length-controlled win rate will not be available: its data df_gamed.csv "
            "are not beside the benchmark's files; type `harness evaluate fetch alpaca-eval`"
        )
    if name == "arena-hard" and lacks_package:
        yield (
            "Arena-Hard's lengths in tokens will not be available: its tokenizer needs the package "
            "`tiktoken`"
        )


def _lacking(stage: Stage) -> Iterator[str]:
    """Yield what to type for what a stage names and this machine does not have."""
    for name in MODELS:
        identity = stage.settings.get(name)
        if isinstance(identity, str) and not world.has(identity) and is_missing(identity):
            yield download_line(identity)
    benchmark = str(stage.settings.get("benchmark", ""))
    if is_benchmark(benchmark) and benchmark.endswith(f"@{NOT_DOWNLOADED}"):
        yield fetch_line(benchmark.partition("@")[0])
