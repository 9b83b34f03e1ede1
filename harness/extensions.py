"""What a user can add in a file of their own, and how such files (plug-ins) are found.

A plug-in is a Python module, named by `--plugin PATH_OR_MODULE` or in `HARNESS_PLUGINS` (several
separated by commas), or lying as `plugins/NAME.py` in the checkout that this code runs from. It
registers what it adds:

    @harness.metric("top_two", version="1")
    def top_two(rewards):  # prompts x completions -> one number for each prompt
        return rewards.max(axis=1) - rewards.mean(axis=1)

A process loads them when it first looks a name up; workers inherit the environment. Plug-in and
version, which a person changes with the meaning, are part of the identity of stages that use it.
A name that is taken or no identifier, and a missing version, are a `UserError`.
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
    """Something that a plug-in adds: the thing, its plug-in and version, and what else was said."""

    thing: Any
    plugin: str
    version: str
    options: Mapping[str, Any] = field(default_factory=dict)


class Extensible:
    """One kind of thing that is known by name: the shipped ones, and those of plug-ins.

    `what` is what one is called in messages; `shipped` says where each shipped one stands, as
    `module:attribute`, by name.
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
        """Return what a plug-in registered under a name; None for a shipped or unknown one."""
        if not _PLUGINS.whole:
            load_plugins()
        return self._added.get(name)

    def get(self, name: str) -> Any:
        """Return the thing of a name, importing it where it is a shipped one.

        Raises:
            UserError: There is none.
        """
        found = self.added(name)
        if found is not None:
            return found.thing
        if name not in self.shipped:
            raise UserError(f"unknown {self.what} `{name}`: use one of {', '.join(self)}.")
        module, _, attribute = self.shipped[name].partition(":")
        return getattr(importlib.import_module(module), attribute)

    def identity(self, name: str) -> dict[str, Any]:
        """Return what a stage's settings hold besides the name; nothing of a shipped one."""
        found = self.added(name)
        if found is None:
            return {}
        return {"plugin": {"name": found.plugin, "version": found.version}}

    def check(self, name: str, planned: Any) -> None:
        """Check that what is here under a name is what a stage was planned with.

        Raises:
            HarnessError: It is of another plug-in or version, or of none.
        """
        if self.identity(name).get("plugin") != planned:
            raise HarnessError(
                f"the stage was planned with the {self.what} `{name}` of the plug-in "
                f"{planned or 'none'}, which is not what is loaded now; plan the run again"
            )

    def register(self, name: str, version: str, **options: Any) -> Callable[[Thing], Thing]:
        """Return a decorator that adds something under a name, with what else is said about it."""

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
        """Have a function called with everything that is added, now and later."""
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
"""How much a prompt can still teach; see `metric`."""

LOSSES = Extensible(
    "preference loss",
    {
        "dpo": "harness.training.offline_losses:DPO",
        "sppo": "harness.training.offline_losses:SPPO",
        "simpo": "harness.training.offline_losses:SimPO",
        "orpo": "harness.training.offline_losses:ORPO",
    },
)
"""The algorithms that train on pairs; see `loss`."""


BENCHMARKS = Extensible(
    "benchmark",
    {
        "mt_bench": "harness.evaluation.benchmarks.mt_bench:MtBench",
        "arena_hard": "harness.evaluation.benchmarks.arena_hard:ArenaHard",
        "alpaca_eval": "harness.evaluation.benchmarks.alpaca_eval:AlpacaEval",
    },
)
"""The benchmarks whose answers a judge rates; see `benchmark`."""


def benchmark_name(written: str) -> str:
    """Return a benchmark's one name; a shipped one may be written with hyphens, as it once was."""
    name = written.replace("-", "_")
    return name if name in BENCHMARKS.shipped else written


def benchmark_place(name: str) -> str:
    """Return the folder of a benchmark's files below that of all benchmarks.

    That of a shipped one has hyphens: it is part of what identifies a stored stage.
    """
    return name.replace("_", "-") if name in BENCHMARKS.shipped else name


JUDGES = Extensible("judge", {})
"""Judges that are functions; all others are models behind an endpoint. See `judge`."""

REWARDS = Extensible("reward", {"math": "harness.models.checkable:MATH"})
"""Rewards that are functions of prompt and answers; all others are models. See `reward`."""

CREATORS = Extensible(
    "evolving method",
    # Each world has its own way of rewriting by these; what each does to a prompt stands here.
    dict.fromkeys(
        ("evol_instruct", "evol_quality", "evol_complexity", "self_instruct", "appendix_f"),
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
"""What chooses the prompts of an online training in a league; see `selector`."""


def selector(name: str, *, version: str) -> Callable[[Thing], Thing]:
    """Return a decorator that adds a selector: what chooses the prompts of an online training.

    It decorates a subclass of `harness.selectors.selector.Selector`, whose constructor takes the
    options of a recipe's `online.league`. It is used as `selector` there. Change the version when
    what it chooses changes.
    """
    return SELECTORS.register(name, version)


def metric(name: str, *, version: str, inverse: bool = False) -> Callable[[Thing], Thing]:
    """Return a decorator that adds an informativeness metric.

    The function takes finite rewards, prompts x completions with at least two completions, and
    returns one number for each prompt. It is used as `creator.metric` or `online.metric`. With
    `inverse`, prompts with small numbers are the informative ones. Change the version when the
    meaning changes.
    """
    return METRICS.register(name, version, inverse=inverse)


def loss(name: str, *, version: str, like: str = "dpo") -> Callable[[Thing], Thing]:
    """Return a decorator that adds a preference loss.

    The function takes nothing and returns a subclass of
    `harness.training.offline.OfflineAlgorithm`; it is called where a policy is trained, so that
    only there the heavy libraries are imported. The loss is used as `algorithm` in recipes; a
    profile offers it in `algorithms` and has its hyperparameters in `training`: those of the
    shipped loss that it is `like`.
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

    The function takes a prompt and a `numpy.random.Generator`, from which all its randomness comes,
    and returns the new prompt, or None where it has none. One that asks a model takes a third
    argument, `write`: it gives a message to the profile's creator model and returns the reply. What
    it returns is looked at by the world's rules for unusable rewrites, and an unusable one is tried
    again. It may be called from several threads. It is used as `creator.method` in recipes, at
    every profile that has what it needs. `asks` says that it asks a model; `chained` that each
    rewrite of a prompt starts from the one before, not from the prompt itself.
    """
    return CREATORS.register(name, version, asks=asks, chained=chained)


def benchmark(name: str, *, version: str) -> Callable[[Thing], Thing]:
    """Return a decorator that adds a benchmark.

    It decorates a subclass of `harness.evaluation.benchmark.Benchmark`, most simply of
    `RatedBenchmark` beside it, and is used as `harness evaluate NAME`. Change the version when what
    is asked or how it is scored changes.
    """
    add = BENCHMARKS.register(name, version)

    def named(thing: Thing) -> Thing:
        thing.name = name  # type: ignore[attr-defined]
        return add(thing)

    return named


def judge(name: str, *, version: str) -> Callable[[Thing], Thing]:
    """Return a decorator that adds a judge: a function in the place of a model at an endpoint.

    The function takes the messages of a request, each with `role` and `content`, and returns the
    reply's text. It is used as `--judge NAME`; its replies are kept and addressed with its version,
    and cost nothing.
    """
    return JUDGES.register(name, version)


def reward(
    name: str, *, version: str, model: str | None = None, asks: bool = False
) -> Callable[[Thing], Thing]:
    """Return a decorator that adds a reward: a function in the place of a reward model.

    The function takes a prompt and the list of its answers, and returns a finite number for each,
    or None where it cannot say: that prompt is left out and counted. It is used by its name in the
    `reward_models` of a profile, or as a judge, `reward:NAME`. With a `model` of the hub
    (`owner/name`, at a commit or not), for a head of one's own, it decorates a class or function
    that takes the model's folder and a device, and returns that function. A function that `asks`
    takes a third argument, `post`, which sends a path and a JSON body to the server at
    `HARNESS_REWARD_URL` and returns its JSON.
    """
    return REWARDS.register(name, version, model=model, asks=asks)


@dataclass
class _Plugins:
    """The plug-ins of this process: as the command named them, and those that are loaded.

    `whole` where all are loaded that there are.
    """

    named: list[str] = field(default_factory=list)
    loaded: set[str] = field(default_factory=set)
    whole: bool = False


_PLUGINS = _Plugins()


def named_plugins() -> tuple[str, ...]:
    """Return the plug-ins that this command named, which its next one has to name as well."""
    return tuple(_PLUGINS.named)


def name_plugins(names: list[str]) -> None:
    """Name plug-ins, as files or modules, for this process and all that it starts; load them.

    Raises:
        UserError: There is no such file or module, or it cannot be loaded.
    """
    known = [name for name in os.environ.get(VARIABLE, "").split(",") if name]
    # Unlike those of `pathlib`, these take an unknown user behind `~` and links in a circle.
    places = [os.path.realpath(os.path.expanduser(n)) if n.endswith(".py") else n for n in names]
    if places:
        os.environ[VARIABLE] = ",".join(dict.fromkeys([*known, *places]))
    _PLUGINS.named = list(names)
    load_plugins()


def load_plugins() -> None:
    """Load the plug-ins that are named or lie in the checkout, each once.

    Raises:
        UserError: There is no such file or module, or it cannot be loaded.
    """
    root = own_checkout()
    lying = [] if root is None else sorted(map(str, (root / "plugins").glob("*.py")))
    named = filter(None, os.environ.get(VARIABLE, "").split(","))
    _PLUGINS.whole = True  # what they import may look names up
    try:
        for name in dict.fromkeys([*lying, *named]):
            if name not in _PLUGINS.loaded:
                _load(name)
                _PLUGINS.loaded.add(name)
    except BaseException:
        _PLUGINS.whole = False
        raise


def _load(name: str) -> None:
    """Import a plug-in; whatever it raises is a mistake of the user's, in a sentence."""
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
    # A module's name that no other file has, ending in the file's own.
    name = f"{_OF_A_FILE}{hashlib.sha256(str(path).encode()).hexdigest()[:8]}_{path.stem}"
    module = ModuleType(name)
    module.__file__ = str(path)
    sys.modules[name] = module
    # Kept bytecode may be that of another text of the same size and second.
    exec(compile(path.read_bytes(), str(path), "exec"), module.__dict__)


def _plugin_of(thing: object) -> str:
    """Return the name of the plug-in that a thing is defined in."""
    module = str(getattr(thing, "__module__", "") or "unknown")
    return re.sub(f"^{_OF_A_FILE}[0-9a-f]{{8}}_", "", module)
