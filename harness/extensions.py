"""What users can add in their own files (plug-ins), and how these are found.

A plug-in is a Python file or module that `--plugin` or `HARNESS_PLUGINS` (comma-separated) names,
or an installed entry point of the group `harness.plugins`. It adds to the dictionaries below:

    @harness.metric("top_two", version="1")
    def top_two(rewards):  # prompts x completions -> one number per prompt
        return rewards.max(axis=1) - rewards.mean(axis=1)

The plug-in and its version, which authors bump when the meaning changes, are part of the identity
of stages that use it. Workers inherit the variable, and so load the same plug-ins.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar

from harness.errors import HarnessError, UserError
from harness.foreign import error_in_a_line, in_a_line

VARIABLE = "HARNESS_PLUGINS"
GROUP = "harness.plugins"

_OF_A_FILE = "harness_plugin_"

Thing = TypeVar("Thing")


@dataclass(frozen=True)
class Extension:
    """What a plug-in added: the object, its plug-in and version, and further options."""

    thing: Any
    plugin: str
    version: str
    options: Mapping[str, Any] = field(default_factory=dict)


class Registry(dict[str, str | Extension]):
    """Extensions of one kind by name: `module:attribute` if shipped, else an `Extension`."""

    def __init__(self, what: str, shipped: Mapping[str, str]) -> None:
        super().__init__(shipped)
        self.what = what
        self.shipped = tuple(shipped)

    def load(self, name: str) -> Any:
        """Return the object registered under a name, importing it if it is shipped."""
        if name not in self:
            raise UserError(f"unknown {self.what} `{name}`: use one of {', '.join(self)}.")
        found = self[name]
        if isinstance(found, Extension):
            return found.thing
        module, _, attribute = found.partition(":")
        return getattr(importlib.import_module(module), attribute)

    def added(self, name: str) -> Extension | None:
        """Return what a plug-in added under a name; None if it is shipped or unknown."""
        found = self.get(name)
        return found if isinstance(found, Extension) else None

    def identity(self, name: str) -> dict[str, Any]:
        """Return what identifies a plug-in's extension in stages; empty for a shipped one."""
        found = self.added(name)
        if found is None:
            return {}
        return {"plugin": {"name": found.plugin, "version": found.version}}

    def check(self, name: str, planned: Any) -> None:
        """Check that a stage was planned with what is loaded under a name."""
        if self.identity(name).get("plugin") != planned:
            raise HarnessError(
                f"the stage was planned with the {self.what} `{name}` of the plug-in "
                f"{planned or 'none'}, which is not what is loaded now; plan the run again"
            )

    def register(self, name: str, version: str, **options: Any) -> Callable[[Thing], Thing]:
        """Return a decorator that adds something under a name, with options."""

        def add(thing: Thing) -> Thing:
            plugin = str(getattr(thing, "__module__", "unknown")).removeprefix(_OF_A_FILE)
            what = f"the {self.what} `{name}` of the plug-in {plugin}"
            if not name.isidentifier():
                raise UserError(f"{what}: a name has letters, digits and `_` only")
            if name in self:
                raise UserError(f"{what} exists already; choose another name")
            self[name] = Extension(thing, plugin, version, options)
            return thing

        return add


METRICS = Registry(
    "informativeness metric",
    {
        name: f"harness.eva.informativeness:{name}"
        for name in ("a_min", "a_avg", "a_dis", "var", "mean", "mean_inv", "a_min_inv", "uniform")
    },
)

ONLINE_ALGORITHMS = ("rloo", "oaif")
"""Losses of online training, which plug-ins cannot add to."""

LOSSES = Registry(
    "preference loss",
    {
        "dpo": "harness.training.offline_losses:DPO",
        "sppo": "harness.training.offline_losses:SPPO",
        "simpo": "harness.training.offline_losses:SimPO",
        "orpo": "harness.training.offline_losses:ORPO",
    },
)

BENCHMARKS = Registry(
    "benchmark",
    {
        "mt_bench": "harness.evaluation.benchmarks.mt_bench:MtBench",
        "arena_hard": "harness.evaluation.benchmarks.arena_hard:ArenaHard",
        "alpaca_eval": "harness.evaluation.benchmarks.alpaca_eval:AlpacaEval",
    },
)
"""Benchmarks whose answers a judge rates."""

SCORES = [
    "ah_wr", "ah_len", "ah_exact", "mt_avg", "mt_t1", "mt_t2", "ae_lc", "ae_wr",
    "complexity", "quality", "musr_ta", "tqa_gen", "wmdp", "gsm8k", "gsm_plus", "mmlu_pro",
    "if_strict", "if_soft", "if_len", "if_distinct", "if_logp", "if_new_strict", "if_new_soft",
]  # fmt: skip
"""Per-prompt scores, of which each column reads one; benchmarks of plug-ins add theirs."""

JUDGES = Registry("judge", {})
"""Judges that are functions; all others are models at an endpoint."""

REWARDS = Registry("reward", {"instructions": "harness.worlds.instructions.rules:RULES"})
"""Rewards that are functions of a prompt and its answers; others are models."""

CREATORS = Registry(
    "evolving method",
    # Each world implements these in its own way; this is where each one's effect is described.
    dict.fromkeys(
        (
            *("evol_instruct", "evol_quality", "evol_complexity", "self_instruct", "appendix_f"),
            "by_policy",
        ),
        "harness.worlds.real.creator:load_method",
    ),
)

_SELECTORS = {
    "uniform": "screening:Uniform", "eva": "eva:Eva", "mopps": "remembering:MoPPS",
    "dapo": "screening:DAPO", "band": "screening:Band", "speed": "screening:SPEED",
    "lilo": "screening:LILO", "sfl": "screening:SFL", "greso": "screening:GRESO",
    "plr": "remembering:PLR", "pcl": "remembering:PCL", "cures": "remembering:CurES",
    "adarft": "remembering:AdaRFT", "sec": "remembering:SEC", "accel": "remembering:ACCEL",
}  # fmt: skip
SELECTORS = Registry(
    "selector", {name: f"harness.selectors.{place}" for name, place in _SELECTORS.items()}
)

REGISTRIES = (METRICS, LOSSES, BENCHMARKS, JUDGES, REWARDS, CREATORS, SELECTORS)


def benchmark_name(written: str) -> str:
    """Return a benchmark's name in the registry; shipped ones may be written with hyphens."""
    name = written.replace("-", "_")
    return name if name in BENCHMARKS.shipped else written


def benchmark_place(name: str) -> str:
    """Return the name of a benchmark's folder in the benchmarks folder.

    Shipped ones keep hyphens, because the name is part of stored stages' identities.
    """
    return name.replace("_", "-") if name in BENCHMARKS.shipped else name


def selector(name: str, *, version: str) -> Callable[[Thing], Thing]:
    """Return a decorator that adds a selector, which chooses prompts in online training.

    It decorates a subclass of `harness.selectors.selector.Selector`, whose constructor takes the
    `options` of a recipe's `online.league`; its name goes in `selector` there.
    """
    return SELECTORS.register(name, version)


def metric(name: str, *, version: str, inverse: bool = False) -> Callable[[Thing], Thing]:
    """Return a decorator that adds an informativeness metric.

    The function takes finite rewards of shape (prompts, completions), with at least two
    completions, and returns one number per prompt. It is used as `creator.metric` or
    `online.metric`. With `inverse`, lower is more informative.
    """
    return METRICS.register(name, version, inverse=inverse)


def loss(name: str, *, version: str, like: str = "dpo") -> Callable[[Thing], Thing]:
    """Return a decorator that adds a preference loss.

    The function takes no arguments and returns a subclass of
    `harness.training.offline.OfflineAlgorithm`; it is called only to train a policy, so that heavy
    libraries are imported only there. The loss is used as `algorithm` in recipes, at profiles that
    offer it in `algorithms`, with the hyperparameters of the shipped loss it is `like`.
    """
    if name in ONLINE_ALGORITHMS:
        raise UserError(f"the loss `{name}` has the name of an online algorithm; choose another")
    if like not in LOSSES.shipped:
        known = ", ".join(LOSSES.shipped)
        raise UserError(f"the loss `{name}` cannot be like `{like}`; `like` is one of {known}")
    return LOSSES.register(name, version, like=like)


def creator(
    name: str, *, version: str, asks: bool = False, chained: bool = True
) -> Callable[[Thing], Thing]:
    """Return a decorator that adds an evolving method: how a prompt is rewritten.

    The function takes a prompt and a `numpy.random.Generator`, its only source of randomness, and
    returns the new prompt, or None if it has none. If it queries a model (`asks`), it takes a third
    argument, `write`, which sends a message to the profile's creator model and returns the reply.
    Results are checked by the world's rules for unusable rewrites, and unusable ones are retried.
    The function may be called from several threads. It is used as `creator.method` in recipes, at
    every profile that has what it needs. With `chained`, each rewrite of a prompt starts from the
    previous rewrite rather than from the prompt itself.
    """
    return CREATORS.register(name, version, asks=asks, chained=chained)


def benchmark(name: str, *, version: str) -> Callable[[Thing], Thing]:
    """Return a decorator that adds a benchmark.

    It decorates a subclass of `harness.evaluation.benchmark.Benchmark`, most simply of its
    `RatedBenchmark`, and is used as `harness evaluate NAME`.
    """
    add = BENCHMARKS.register(name, version)

    def named(thing: Thing) -> Thing:
        thing.name = name  # type: ignore[attr-defined]
        columns = thing.columns.values()  # type: ignore[attr-defined]
        SCORES.extend(score for score in columns if score not in SCORES)
        return add(thing)

    return named


def judge(name: str, *, version: str) -> Callable[[Thing], Thing]:
    """Return a decorator that adds a judge: a function in place of a model at an endpoint.

    The function takes a request's messages, each with `role` and `content`, and returns the reply
    text. It is used as `--judge NAME`; its replies are cached by version and cost nothing.
    """
    return JUDGES.register(name, version)


def reward(name: str, *, version: str, model: str | None = None) -> Callable[[Thing], Thing]:
    """Return a decorator that adds a reward: a function in place of a reward model.

    The function takes a prompt and the list of its answers, and returns a finite number for each,
    or None if it cannot score: offline that prompt is left out, online its rewards are all 0, and
    both are counted. It is used by name in a profile's `reward_models`, or as a judge,
    `reward:NAME`. With a Hub `model` (`owner/name`, optionally at a commit), for custom heads, it
    decorates a class or function that takes the model's folder and a device, and returns that
    function.
    """
    return REWARDS.register(name, version, model=model)


_named: list[str] = []
_loaded: set[str] = set()


def named_plugins() -> tuple[str, ...]:
    """Return the plug-ins named by this command, which follow-up commands must name as well."""
    return tuple(_named)


def load_plugins(names: str | Sequence[str] | None = None) -> None:
    """Load the plug-ins of a command, of `HARNESS_PLUGINS` and of entry points, each once."""
    from importlib.metadata import entry_points

    names = [names] if isinstance(names, str) else names
    known = dict.fromkeys(map(_place, filter(None, os.environ.get(VARIABLE, "").split(","))))
    for place in [*known, *map(_place, names or ())]:
        _load(place)
        known[place] = None
        os.environ[VARIABLE] = ",".join(known)  # for the workers, wherever they start
    for point in entry_points(group=GROUP):
        _load(point.module)
    if names is not None:
        _named[:] = names


def _place(name: str) -> str:
    return os.path.abspath(name) if name.endswith(".py") else name


def _load(name: str) -> None:
    """Import a plug-in once; anything it raises becomes a one-line UserError, and adds nothing."""
    if name in _loaded:
        return
    before, scores = [dict(registry) for registry in REGISTRIES], [*SCORES]
    try:
        if name.endswith(".py"):
            _import_file(Path(name))
        else:
            importlib.import_module(name)
    except (Exception, SystemExit) as error:
        for registry, had in zip(REGISTRIES, before, strict=True):
            registry.clear()
            registry.update(had)
        SCORES[:] = scores
        if isinstance(error, HarnessError):
            raise UserError(in_a_line(str(error))) from error
        raise UserError(
            f"the plug-in {in_a_line(name)} cannot be loaded: {error_in_a_line(error)}"
        ) from error
    _loaded.add(name)


def _import_file(path: Path) -> None:
    module = ModuleType(f"{_OF_A_FILE}{path.stem}")
    module.__file__ = str(path)
    sys.modules[module.__name__] = module
    # Cached bytecode could be stale: from another version of the same size and second.
    exec(compile(path.read_bytes(), str(path), "exec"), module.__dict__)
