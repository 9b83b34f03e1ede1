"""What users can add in their own files (plug-ins), and how these are found.

A plug-in is a Python module, named by `--plugin PATH_OR_MODULE` or in `HARNESS_PLUGINS`
(comma-separated), or located at `plugins/NAME.py` in the checkout that this code runs from. It
registers what it adds:

    @harness.metric("top_two", version="1")
    def top_two(rewards):  # prompts x completions -> one number per prompt
        return rewards.max(axis=1) - rewards.mean(axis=1)

A process loads plug-ins when it first looks up a name; workers inherit the environment. The plug-in
and its version, which authors bump when the meaning changes, are part of the identity of stages
that use it. A name that is taken or not an identifier, or a missing version, is a `UserError`.
"""

from __future__ import annotations

import hashlib
import importlib
import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar

from harness.errors import HarnessError, UserError
from harness.foreign import error_in_a_line, in_a_line
from harness.project import own_checkout

VARIABLE = "HARNESS_PLUGINS"

_OF_A_FILE = "harness_plugin_"

Thing = TypeVar("Thing")


@dataclass(frozen=True)
class Extension:
    """Something a plug-in adds: the object, its plug-in and version, and further options."""

    thing: Any
    plugin: str
    version: str
    options: Mapping[str, Any] = field(default_factory=dict)


class Extensible:
    """A registry of one kind of thing by name: shipped ones and plug-ins'.

    `what` is its name in messages; `shipped` maps the names of shipped ones to `module:attribute`.
    """

    def __init__(self, what: str, shipped: Mapping[str, str]) -> None:
        self.what = what
        self.shipped = shipped
        self._added: dict[str, Extension] = {}
        self._watchers: list[Callable[[str, Extension], None]] = []

    def __iter__(self) -> Iterator[str]:
        if not _PLUGINS.whole:
            load_plugins()
        return iter([*self.shipped, *self._added])

    def __contains__(self, name: object) -> bool:
        return name in self.shipped or self.added(str(name)) is not None

    def added(self, name: str) -> Extension | None:
        """Return what a plug-in registered under a name, or None if shipped or unknown."""
        if not _PLUGINS.whole:
            load_plugins()
        return self._added.get(name)

    def get(self, name: str) -> Any:
        """Return the object registered under a name, importing shipped ones.

        Raises:
            UserError: The name is unknown.
        """
        found = self.added(name)
        if found is not None:
            return found.thing
        if name not in self.shipped:
            raise UserError(f"unknown {self.what} `{name}`: use one of {', '.join(self)}.")
        module, _, attribute = self.shipped[name].partition(":")
        return getattr(importlib.import_module(module), attribute)

    def identity(self, name: str) -> dict[str, Any]:
        """Return what stage settings include besides the name; empty for a shipped one."""
        found = self.added(name)
        if found is None:
            return {}
        return {"plugin": {"name": found.plugin, "version": found.version}}

    def check(self, name: str, planned: Any) -> None:
        """Check that what is loaded under a name is what a stage was planned with.

        Raises:
            HarnessError: The plug-in or its version differs.
        """
        if self.identity(name).get("plugin") != planned:
            raise HarnessError(
                f"the stage was planned with the {self.what} `{name}` of the plug-in "
                f"{planned or 'none'}, which is not what is loaded now; plan the run again"
            )

    def register(self, name: str, version: str, **options: Any) -> Callable[[Thing], Thing]:
        """Return a decorator that registers something under a name, with options."""

        def add(thing: Thing) -> Thing:
            plugin = _plugin_of(thing)
            whose = f"the {self.what} `{name}` of the plug-in {plugin}"
            if not str(name).isidentifier():
                raise UserError(f"{whose}: a name has letters, digits and `_` only")
            if not isinstance(version, str) or not version:
                raise UserError(f'{whose} needs a version, as `version="1"`')
            known = self._added.get(name)
            if name in self.shipped or known is not None:
                owner = "shipped" if known is None else f"from the plug-in {known.plugin}"
                raise UserError(f"{whose} is there already ({owner}); choose another name")
            self._added[name] = Extension(thing, plugin, version, options)
            for watcher in self._watchers:
                watcher(name, self._added[name])
            return thing

        return add

    def watch(self, watcher: Callable[[str, Extension], None]) -> None:
        """Call a function with everything registered so far and later."""
        self._watchers.append(watcher)
        for name, extension in self._added.items():
            watcher(name, extension)


METRICS = Extensible(
    "informativeness metric",
    {
        name: f"harness.eva.informativeness:{name}"
        for name in ("a_min", "a_avg", "a_dis", "var", "mean", "mean_inv", "a_min_inv", "uniform")
    },
)
"""Informativeness metrics of prompts; see `metric`."""

LOSSES = Extensible(
    "preference loss",
    {
        "dpo": "harness.training.offline_losses:DPO",
        "sppo": "harness.training.offline_losses:SPPO",
        "simpo": "harness.training.offline_losses:SimPO",
        "orpo": "harness.training.offline_losses:ORPO",
    },
)
"""Algorithms that train on preference pairs; see `loss`."""


BENCHMARKS = Extensible(
    "benchmark",
    {
        "mt_bench": "harness.evaluation.benchmarks.mt_bench:MtBench",
        "arena_hard": "harness.evaluation.benchmarks.arena_hard:ArenaHard",
        "alpaca_eval": "harness.evaluation.benchmarks.alpaca_eval:AlpacaEval",
    },
)
"""Benchmarks whose answers a judge rates; see `benchmark`."""


def benchmark_name(written: str) -> str:
    """Return a benchmark's canonical name; shipped ones may be written with hyphens."""
    name = written.replace("-", "_")
    return name if name in BENCHMARKS.shipped else written


def benchmark_place(name: str) -> str:
    """Return the name of a benchmark's folder in the benchmarks folder.

    Shipped ones keep hyphens, because the name is part of stored stages' identities.
    """
    return name.replace("_", "-") if name in BENCHMARKS.shipped else name


JUDGES = Extensible("judge", {})
"""Judges that are functions; all others are models at an endpoint. See `judge`."""

REWARDS = Extensible(
    "reward",
    {
        "math": "harness.models.checkable:MATH",
        "instructions": "harness.worlds.instructions.rules:RULES",
    },
)
"""Rewards that are functions of a prompt and its answers; others are models. See `reward`."""

CREATORS = Extensible(
    "evolving method",
    # Each world implements these in its own way; this is where each one's effect is described.
    dict.fromkeys(
        (
            *("evol_instruct", "evol_quality", "evol_complexity", "self_instruct", "appendix_f"),
            "by_policy",
        ),
        "harness.worlds.real.creator:METHODS",
    ),
)
"""How the creator rewrites prompts; see `creator`."""


_SELECTORS = {
    "uniform": "screening:Uniform", "eva": "eva:Eva", "mopps": "remembering:MoPPS",
    "dapo": "screening:DAPO", "band": "screening:Band", "speed": "screening:SPEED",
    "lilo": "screening:LILO", "sfl": "screening:SFL", "greso": "screening:GRESO",
    "plr": "remembering:PLR", "pcl": "remembering:PCL", "cures": "remembering:CurES",
    "adarft": "remembering:AdaRFT", "sec": "remembering:SEC", "accel": "remembering:ACCEL",
}  # fmt: skip
SELECTORS = Extensible(
    "selector", {name: f"harness.selectors.{place}" for name, place in _SELECTORS.items()}
)
"""Selectors of prompts for online training in a league; see `selector`."""


def selector(name: str, *, version: str) -> Callable[[Thing], Thing]:
    """Return a decorator that adds a selector, which chooses prompts in online training.

    It decorates a subclass of `harness.selectors.selector.Selector`, whose constructor takes the
    `options` of a recipe's `online.league`; its name goes in `selector` there. Change the version
    when its choices change.
    """
    return SELECTORS.register(name, version)


def metric(name: str, *, version: str, inverse: bool = False) -> Callable[[Thing], Thing]:
    """Return a decorator that adds an informativeness metric.

    The function takes finite rewards of shape (prompts, completions), with at least two
    completions, and returns one number per prompt. It is used as `creator.metric` or
    `online.metric`. With `inverse`, lower is more informative. Change the version when the meaning
    changes.
    """
    return METRICS.register(name, version, inverse=inverse)


def loss(name: str, *, version: str, like: str = "dpo") -> Callable[[Thing], Thing]:
    """Return a decorator that adds a preference loss.

    The function takes no arguments and returns a subclass of
    `harness.training.offline.OfflineAlgorithm`; it is called only to train a policy, so that heavy
    libraries are imported only there. The loss is used as `algorithm` in recipes; a profile offers
    it in `algorithms` and gives its hyperparameters in `training`, with the fields of the shipped
    loss it is `like`.
    """
    if like not in LOSSES.shipped:
        raise UserError(
            f"the preference loss `{name}` is like `{like}`, which is not shipped: use one of "
            f"{', '.join(LOSSES.shipped)}."
        )
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
    `RatedBenchmark`, and is used as `harness evaluate NAME`. Change the version when the questions
    or the scoring change.
    """
    add = BENCHMARKS.register(name, version)

    def named(thing: Thing) -> Thing:
        thing.name = name  # type: ignore[attr-defined]
        return add(thing)

    return named


def judge(name: str, *, version: str) -> Callable[[Thing], Thing]:
    """Return a decorator that adds a judge: a function in place of a model at an endpoint.

    The function takes a request's messages, each with `role` and `content`, and returns the reply
    text. It is used as `--judge NAME`; its replies are cached by version and cost nothing.
    """
    return JUDGES.register(name, version)


def reward(
    name: str, *, version: str, model: str | None = None, asks: bool = False
) -> Callable[[Thing], Thing]:
    """Return a decorator that adds a reward: a function in place of a reward model.

    The function takes a prompt and the list of its answers, and returns a finite number for each,
    or None if it cannot score: that prompt is skipped and counted. It is used by name in a
    profile's `reward_models`, or as a judge, `reward:NAME`. With a Hub `model` (`owner/name`,
    optionally at a commit), for custom heads, it decorates a class or function that takes the
    model's folder and a device, and returns that function. A function that `asks` takes a third
    argument, `post`, which sends a path and a JSON body to the server at `HARNESS_REWARD_URL` and
    returns its JSON.
    """
    return REWARDS.register(name, version, model=model, asks=asks)


@dataclass
class _Plugins:
    """This process's plug-ins: named by the command, and loaded; `whole` once all are loaded."""

    named: list[str] = field(default_factory=list)
    loaded: set[str] = field(default_factory=set)
    whole: bool = False


_PLUGINS = _Plugins()


def named_plugins() -> tuple[str, ...]:
    """Return the plug-ins named by this command, which follow-up commands must name as well."""
    return tuple(_PLUGINS.named)


def name_plugins(names: list[str]) -> None:
    """Name and load plug-ins, as files or modules, for this process and its children.

    Raises:
        UserError: There is no such file or module, or it cannot be loaded.
    """
    known = [name for name in os.environ.get(VARIABLE, "").split(",") if name]
    # Unlike `pathlib`, `os.path` accepts an unknown user after `~` and symlink loops.
    places = [os.path.realpath(os.path.expanduser(n)) if n.endswith(".py") else n for n in names]
    if places:
        os.environ[VARIABLE] = ",".join(dict.fromkeys([*known, *places]))
    _PLUGINS.named = list(names)
    load_plugins()


def load_plugins() -> None:
    """Load the plug-ins that are named or in the checkout, each once.

    Raises:
        UserError: There is no such file or module, or it cannot be loaded.
    """
    root = own_checkout()
    lying = [] if root is None else sorted(map(str, (root / "plugins").glob("*.py")))
    named = filter(None, os.environ.get(VARIABLE, "").split(","))
    _PLUGINS.whole = True  # set first, since plug-ins may look up names while they are imported
    try:
        for name in dict.fromkeys([*lying, *named]):
            if name not in _PLUGINS.loaded:
                _load(name)
                _PLUGINS.loaded.add(name)
    except BaseException:
        _PLUGINS.whole = False
        raise


def _load(name: str) -> None:
    """Import a plug-in; anything it raises becomes a one-line UserError."""
    try:
        if name.endswith(".py"):
            _import_file(Path(name))
        else:
            importlib.import_module(name)
    except HarnessError as error:
        raise UserError(in_a_line(str(error))) from error
    except (Exception, SystemExit) as error:
        raise UserError(
            f"the plug-in {in_a_line(name)} cannot be loaded: {error_in_a_line(error)}"
        ) from error


def _import_file(path: Path) -> None:
    if not path.is_file():
        raise UserError(f"there is no plug-in `{path}`; correct `--plugin` or {VARIABLE}")
    # A module name unique to the file, ending in the file's name.
    name = f"{_OF_A_FILE}{hashlib.sha256(str(path).encode()).hexdigest()[:8]}_{path.stem}"
    module = ModuleType(name)
    module.__file__ = str(path)
    sys.modules[name] = module
    # Cached bytecode could be stale: from another version of the same size and second.
    exec(compile(path.read_bytes(), str(path), "exec"), module.__dict__)


def _plugin_of(thing: object) -> str:
    """Return the name of the plug-in that defines an object."""
    module = str(getattr(thing, "__module__", "") or "unknown")
    return re.sub(f"^{_OF_A_FILE}[0-9a-f]{{8}}_", "", module)
